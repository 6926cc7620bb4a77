"""One connection to a LogActor, step by step: who sends, who is told, and when room is wanted."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from raylog.cluster.client.buffers import Buffers
from raylog.cluster.client.sockets.channel import Channel
from tests.unit.actors.plane.peers import connected, framed, received

CHUNK = memoryview(bytearray(1000))


class Reactor:
    """Keeps what a channel asks of it."""

    def __init__(self) -> None:
        self.watched: list[Channel] = []
        self.room: list[bool] = []

    def watch(self, channel: Channel) -> None:
        self.watched.append(channel)

    def want_room(self, channel: Channel, is_wanted: bool) -> None:
        self.room.append(is_wanted)

    def forget(self, channel: Channel) -> None:
        self.watched.remove(channel)


class Play:
    """A channel, its peer, and what those who asked were told."""

    def __init__(self, ours: socket.socket, peer: socket.socket) -> None:
        ours.setblocking(False)
        self.peer = peer
        self.reactor = Reactor()
        self.channel = Channel(ours, self.reactor, Buffers())
        self.answers: list[bytes] = []
        self.given_up: list[str] = []

    def ask(self, content: bytes = b"request") -> bool:
        return self.channel.ask(
            lambda number: [number.to_bytes(4, "big"), content],
            lambda frame: self.answers.append(bytes(frame)),
            self.given_up.append,
        )

    def ready(self, **more: Any) -> None:
        self.channel.ready(CHUNK, **{"has_room": False, **more})


@pytest.fixture
def play() -> Iterator[Play]:
    with connected() as (ours, peer):
        yield Play(ours, peer)


def answer(number: int, content: bytes = b"") -> bytes:
    return framed(number.to_bytes(4, "big") + b"\0" + content)


def test_requests_go_in_order_and_answers_come_in_order(play: Play) -> None:
    assert play.ask(b"one")
    assert play.ask(b"two")
    assert received(play.peer, 14) == b"\0\0\0\0one\0\0\0\1two"
    play.peer.sendall(answer(0, b"first") + answer(1, b"second"))
    play.ready()
    assert play.answers == [b"\0\0\0\0\0first", b"\0\0\0\1\0second"]
    assert (play.reactor.room, play.given_up) == ([], [])


def test_an_answer_comes_in_any_pieces(play: Play) -> None:
    content = answer(0, b"x" * 3000) + answer(1, b"y")
    play.ask()
    play.ask()
    for start in range(0, len(content), 3):
        play.peer.sendall(content[start : start + 3])
        play.ready()
    assert [len(one) for one in play.answers] == [3005, 6]


@pytest.mark.parametrize("sent", [answer(1), answer(0) + answer(1), framed(b"\0\0")])
def test_what_nobody_has_asked_for_ends_it(play: Play, sent: bytes) -> None:
    play.ask()
    play.peer.sendall(sent)
    play.ready()
    assert play.reactor.watched == []
    assert len(play.answers) + len(play.given_up) == 1
    assert not play.ask(), "nothing is sent any more"


def test_who_has_asked_is_told_of_the_end_and_nobody_asks_after_it(play: Play) -> None:
    play.ask()
    play.channel.end()
    assert not play.ask(), "at once"
    assert play.given_up == []
    play.ready()
    assert play.given_up == ["its process has ended the connection"]
    assert (play.reactor.watched, play.channel.has_answered) == ([], False)


def test_one_that_has_ended_keeps_nothing_of_its_requests(play: Play) -> None:
    records = bytearray(1 << 20)
    play.channel.ask(lambda _: [memoryview(records)], lambda _: None, lambda _: None)
    assert play.channel.is_busy
    play.channel.end()
    play.ready()
    assert not play.channel.is_busy
    records.append(0)  # which no view of it hinders


def test_room_is_wanted_for_as_long_as_something_is_left_to_send(play: Play) -> None:
    large = b"x" * (4 << 20)
    play.ask(large)
    play.ask(b"behind")
    assert play.reactor.room == [True]
    content = bytearray()
    while len(content) < len(large) + 14:
        content += play.peer.recv(1 << 20)
        play.ready(has_room=True)
    assert play.reactor.room == [True, False]
    assert content[4:-10] == large
    assert content[-10:] == b"\0\0\0\1behind"


def test_its_end_is_noticed_where_it_has_something_left_to_send(play: Play) -> None:
    play.ask(b"x" * (4 << 20))
    play.peer.close()
    play.ready(has_room=True)
    assert len(play.given_up) == 1
    assert play.reactor.watched == []
