import threading
from collections.abc import Iterator, Sequence

import pytest

from raylog.actors.plane.connection import Connection
from raylog.actors.plane.errors import AnswerCut, PeerGone
from raylog.actors.plane.parking import Parking
from raylog.actors.plane.reading import Frames
from raylog.actors.plane.room import Room
from raylog.actors.plane.sending import Piece
from raylog.storage.errors import RaylogError
from tests.unit.actors.plane.peers import beside, connected, framed, received

LONG_MS = 60_000


def echo(frame: bytearray, parking: Parking) -> Sequence[Piece]:
    return [bytes(frame), b"|"]


def test_requests_are_answered_in_order_and_give_their_room_back() -> None:
    room = Room()
    with connected() as (ours, peer):
        peer.sendall(framed(b"one") + framed(b"two"))
        peer.shutdown(1)
        assert Connection(ours, Frames(ours, room), echo, room.leave).serve() is None
        assert received(peer, 100) == b"one|two|"
    assert room.used_bytes == 0


def test_a_request_may_have_no_answer() -> None:
    room = Room()
    answers: Iterator[Sequence[Piece] | None] = iter([None, [b"second"]])
    with connected() as (ours, peer):
        peer.sendall(framed(b"acks=0") + framed(b"next"))
        peer.shutdown(1)
        connection = Connection(ours, Frames(ours, room), lambda *_: next(answers), room.leave)
        assert connection.serve() is None
        assert received(peer, 100) == b"second"


def test_an_error_ends_the_connection_and_is_returned() -> None:
    def refuse(frame: bytearray, parking: Parking) -> Sequence[Piece]:
        raise AnswerCut("path", 1, 2)

    room = Room()
    with connected() as (ours, peer):
        peer.sendall(framed(b"x") + framed(b"never read"))
        connection = Connection(ours, Frames(ours, room), refuse, room.leave)
        assert isinstance(connection.serve(), AnswerCut)
        assert received(peer, 1) == b""
    assert room.used_bytes == 0


def test_an_error_that_nobody_expected_is_raised_and_the_connection_is_closed() -> None:
    def fail(frame: bytearray, parking: Parking) -> Sequence[Piece]:
        raise ZeroDivisionError

    room = Room()
    with connected() as (ours, peer):
        peer.sendall(framed(b"x"))
        with pytest.raises(ZeroDivisionError):
            Connection(ours, Frames(ours, room), fail, room.leave).serve()
        assert received(peer, 1) == b""
    assert room.used_bytes == 0


def test_a_stop_lets_the_request_in_hand_finish() -> None:
    room, is_in_hand, may_finish = Room(), threading.Event(), threading.Event()

    def slow(frame: bytearray, parking: Parking) -> Sequence[Piece]:
        is_in_hand.set()
        assert may_finish.wait(60)
        return [b"done"]

    with connected() as (ours, peer):
        connection = Connection(ours, Frames(ours, room), slow, room.leave)
        with beside(connection.serve):
            peer.sendall(framed(b"x") + framed(b"too late"))
            assert is_in_hand.wait(60)
            connection.stop()
            may_finish.set()
            assert received(peer, 100) == b"done"


def test_a_stop_ends_a_wait_for_a_request_and_a_parked_one() -> None:
    room, outcomes, is_parked = Room(), [], threading.Event()

    def park(frame: bytearray, parking: Parking) -> None:
        parking.prepare()
        is_parked.set()
        outcomes.append(parking.wait(LONG_MS))

    for sends in (b"", framed(b"x")):
        with connected() as (ours, peer):
            connection = Connection(ours, Frames(ours, room), park, room.leave)
            with beside(connection.serve):
                peer.sendall(sends)
                assert not sends or is_parked.wait(60)
                connection.stop()
    assert outcomes == ["peer is gone"]
    connection.stop()  # of one that has ended


def test_a_silent_connection_ends_without_a_word() -> None:
    room = Room()
    with connected() as (ours, _):
        connection = Connection(ours, Frames(ours, room), echo, room.leave, max_idle_ms=20)
        assert connection.serve() is None


def test_a_peer_that_takes_no_answer_ends_its_connection() -> None:
    def much(frame: bytearray, parking: Parking) -> Sequence[Piece]:
        return [bytes(8 << 20)]

    room = Room()
    with connected() as (ours, peer):
        peer.sendall(framed(b"x"))
        connection = Connection(ours, Frames(ours, room), much, room.leave, max_idle_ms=20)
        ended: RaylogError | None = connection.serve()
    assert isinstance(ended, PeerGone)
