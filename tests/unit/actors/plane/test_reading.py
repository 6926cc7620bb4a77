import socket
import struct

import pytest

from raylog.actors.plane.errors import FrameTooLarge, PeerGone
from raylog.actors.plane.reading import FRAME_S, SLOWEST_BYTES_PER_S, Frames
from raylog.actors.plane.room import Room
from tests.unit.actors.plane.peers import SIZE, beside, connected, framed

SHORT = struct.pack("@ll", 0, 20_000)


def taken(frames: Frames, count: int) -> list[bytes | None]:
    """The next so many frames."""
    some = (frames.next() for _ in range(count))
    return [None if frame is None else bytes(frame) for frame in some]


def test_frames_come_one_after_the_other_each_with_its_room() -> None:
    room = Room(100)
    with connected() as (ours, peer):
        peer.sendall(framed(b"first") + framed(b"") + framed(b"second"))
        frames = Frames(ours, room)
        assert taken(frames, 3) == [b"first", b"", b"second"]
        assert room.used_bytes == len(b"firstsecond")


def test_a_frame_in_single_bytes_is_put_together() -> None:
    content = bytes(range(50))
    with connected() as (ours, peer):

        def drip() -> None:
            for byte in framed(content):
                peer.sendall(bytes([byte]))

        with beside(drip):
            assert taken(Frames(ours, Room()), 1) == [content]


def test_an_end_between_two_frames_is_the_end() -> None:
    with connected() as (ours, peer):
        peer.sendall(framed(b"last"))
        peer.close()
        frames = Frames(ours, Room())
        assert taken(frames, 2) == [b"last", None]


@pytest.mark.parametrize("sent", [b"\0", b"\0\0\0\5", b"\0\0\0\5four"])
def test_an_end_in_the_middle_is_an_error_and_holds_no_room(sent: bytes) -> None:
    room = Room()
    with connected() as (ours, peer):
        peer.sendall(sent)
        peer.close()
        with pytest.raises(PeerGone, match="before the end of a frame"):
            Frames(ours, room).next()
    assert room.used_bytes == 0


@pytest.mark.parametrize("size_bytes", [-1, -(2**31), 11, 2**31 - 1])
def test_a_size_beyond_the_limit_takes_no_room(size_bytes: int) -> None:
    room = Room()
    with connected() as (ours, peer):
        peer.sendall(SIZE.pack(size_bytes))
        with pytest.raises(FrameTooLarge, match=f"{size_bytes} bytes"):
            Frames(ours, room, max_frame_bytes=10).next()
    assert room.used_bytes == 0


def test_the_largest_frame_is_taken() -> None:
    with connected() as (ours, peer):
        peer.sendall(framed(bytes(10)))
        frames = Frames(ours, Room(), max_frame_bytes=10)
        assert taken(frames, 1) == [bytes(10)]


def test_a_client_that_speaks_tls_is_named() -> None:
    with connected() as (ours, peer):
        peer.sendall(bytes.fromhex("16030100fe010000"))
        with pytest.raises(FrameTooLarge, match="speaks TLS"):
            Frames(ours, Room()).next()


def test_a_peer_that_is_silent_for_long_is_not_waited_for() -> None:
    with connected() as (ours, _):
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, SHORT)
        assert Frames(ours, Room()).next() is None


def test_a_frame_that_has_begun_must_be_whole_in_time() -> None:
    """The clock passes the frame's time while a byte is missing."""
    room, size_bytes = Room(), 512 * 1024
    times = iter([0.0, FRAME_S + size_bytes / SLOWEST_BYTES_PER_S])
    with connected() as (ours, peer):
        peer.sendall(SIZE.pack(size_bytes) + b"x")
        with pytest.raises(PeerGone, match=f"{size_bytes - 1} bytes of a frame"):
            Frames(ours, room, now_s=lambda: next(times)).next()
    assert room.used_bytes == 0


def test_a_size_that_has_begun_must_be_whole_in_time() -> None:
    times = iter([0.0, FRAME_S])
    with connected() as (ours, peer):
        peer.sendall(b"\0\0")
        with pytest.raises(PeerGone, match="2 bytes of a frame"):
            Frames(ours, Room(), now_s=lambda: next(times)).next()


def test_a_reset_is_the_peers_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()  # with a reset
    with ours, pytest.raises(PeerGone, match="reset"):
        Frames(ours, Room()).next()


def test_nothing_is_read_once_the_room_is_closed() -> None:
    room = Room()
    room.close()
    with connected() as (ours, peer):
        peer.sendall(framed(b"x"))
        assert Frames(ours, room).next() is None
