import threading
from collections.abc import Iterator, Sequence

import pytest

from raylog.actors.plane.connection import Connection, LastAnswer
from raylog.actors.plane.errors import AnswerCut, PeerGone
from raylog.actors.plane.meters import Measured
from raylog.actors.plane.parking import Parking
from raylog.actors.plane.reading import MOST_BEHIND, Frames
from raylog.actors.plane.room import Room
from raylog.actors.plane.sending import Piece
from raylog.storage.errors import RaylogError
from tests.unit.actors.plane.peers import beside, connected, framed, received

LONG_MS = 60_000


def echo(frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
    return [bytes(frames[0]), b"|"]


def test_requests_are_answered_in_order_and_give_their_room_back() -> None:
    room = Room()
    with connected() as (ours, peer):
        peer.sendall(framed(b"one") + framed(b"two"))
        peer.shutdown(1)
        assert Connection(ours, Frames(ours, room), echo).serve() is None
        assert received(peer, 100) == b"one|two|"
    assert room.used_bytes == 0


def test_a_request_may_have_no_answer() -> None:
    room = Room()
    answers: Iterator[Sequence[Piece]] = iter([[], [b"second"]])
    with connected() as (ours, peer):
        peer.sendall(framed(b"acks=0") + framed(b"next"))
        peer.shutdown(1)
        connection = Connection(ours, Frames(ours, room), lambda *_: next(answers))
        assert connection.serve() is None
        assert received(peer, 100) == b"second"


@pytest.mark.parametrize(
    ("sent", "taken"),
    [
        ([b"\0\0one", b"\0\0two", b"\0\0three"], [3]),
        ([b"\0\0one", b"\0\1two", b"\0\0three", b"\0\0four"], [1, 1, 2]),
        ([b"\0\1one", b"\0\1two"], [1, 1]),
        ([b"\0\0%d" % number for number in range(20)], [1 + MOST_BEHIND, 19 - MOST_BEHIND]),
        ([b"\0\0one", b"\0"], [1, 1]),
        ([b"\0\0one", b""], [1, 1]),
    ],
)
def test_requests_to_produce_that_are_there_already_are_answered_together(
    sent: Sequence[bytes], taken: Sequence[int]
) -> None:
    room, together, notes = Room(), list[int](), list[Measured]()

    def answer(frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
        together.append(len(frames))
        return frames

    with connected() as (ours, peer):
        peer.sendall(b"".join(map(framed, sent)))
        peer.shutdown(1)
        connection = Connection(ours, Frames(ours, room), answer, notes.append)
        assert connection.serve() is None
        assert received(peer, 1000) == b"".join(sent)
    assert together == taken
    assert room.used_bytes == 0
    assert [note[2] for note in notes] == [len(one) for one in sent]


def test_what_has_no_room_is_not_taken_together() -> None:
    room, together = Room(10), list[int]()

    def answer(frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
        together.append(len(frames))
        return frames

    with connected() as (ours, peer):
        peer.sendall(framed(b"\0\0three") + framed(b"\0\0four"))
        peer.shutdown(1)
        assert Connection(ours, Frames(ours, room), answer).serve() is None
    assert together == [1, 1]


def test_half_a_request_is_waited_for_and_not_taken_together() -> None:
    room, together = Room(), list[int]()

    def answer(frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
        together.append(len(frames))
        if len(together) == 1:
            peer.sendall(b"lf")
            peer.shutdown(1)
        return frames

    with connected() as (ours, peer):
        peer.sendall(framed(b"\0\0whole") + framed(b"\0\0half")[:-2])
        assert Connection(ours, Frames(ours, room), answer).serve() is None
        assert received(peer, 100) == b"\0\0whole\0\0half"
    assert together == [1, 1]


def test_a_last_answer_is_sent_before_the_end() -> None:
    def last(frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
        raise LastAnswer([b"no"], AnswerCut("path", 1, 2))

    room = Room()
    with connected() as (ours, peer):
        peer.sendall(framed(b"x") + framed(b"never read"))
        connection = Connection(ours, Frames(ours, room), last)
        assert isinstance(connection.serve(), AnswerCut)
        assert received(peer, 100) == b"no"
    assert room.used_bytes == 0


def test_an_error_ends_the_connection_and_is_returned() -> None:
    def refuse(frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
        raise AnswerCut("path", 1, 2)

    room = Room()
    with connected() as (ours, peer):
        peer.sendall(framed(b"x") + framed(b"never read"))
        connection = Connection(ours, Frames(ours, room), refuse)
        assert isinstance(connection.serve(), AnswerCut)
        assert received(peer, 1) == b""
    assert room.used_bytes == 0


def test_an_error_that_nobody_expected_is_raised_and_the_connection_is_closed() -> None:
    def fail(frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
        raise ZeroDivisionError

    room = Room()
    with connected() as (ours, peer):
        peer.sendall(framed(b"x"))
        with pytest.raises(ZeroDivisionError):
            Connection(ours, Frames(ours, room), fail).serve()
        assert received(peer, 1) == b""
    assert room.used_bytes == 0


def test_a_stop_lets_the_request_in_hand_finish() -> None:
    room, is_in_hand, may_finish = Room(), threading.Event(), threading.Event()

    def slow(frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
        is_in_hand.set()
        assert may_finish.wait(60)
        return [b"done"]

    with connected() as (ours, peer):
        connection = Connection(ours, Frames(ours, room), slow)
        with beside(connection.serve):
            peer.sendall(framed(b"x") + framed(b"too late"))
            assert is_in_hand.wait(60)
            connection.stop()
            may_finish.set()
            assert received(peer, 100) == b"done"


def test_a_stop_ends_a_wait_for_a_request_and_a_parked_one() -> None:
    room, outcomes, is_parked = Room(), [], threading.Event()

    def park(frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
        parking.prepare()
        is_parked.set()
        outcomes.append(parking.wait(LONG_MS))
        return []

    for sends in (b"", framed(b"x")):
        with connected() as (ours, peer):
            connection = Connection(ours, Frames(ours, room), park)
            with beside(connection.serve):
                peer.sendall(sends)
                assert not sends or is_parked.wait(60)
                connection.stop()
    assert outcomes == ["peer is gone"]
    connection.stop()  # of one that has ended


def test_a_silent_connection_ends_without_a_word() -> None:
    room = Room()
    with connected() as (ours, _):
        connection = Connection(ours, Frames(ours, room), echo, max_idle_ms=20)
        assert connection.serve() is None


def test_a_peer_that_takes_no_answer_ends_its_connection() -> None:
    def much(frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
        return [bytes(8 << 20)]

    room = Room()
    with connected() as (ours, peer):
        peer.sendall(framed(b"x"))
        connection = Connection(ours, Frames(ours, room), much, max_idle_ms=20)
        ended: RaylogError | None = connection.serve()
    assert isinstance(ended, PeerGone)
