import errno
import os
import socket
import struct
from pathlib import Path

import pytest

from raylog.actors.plane.errors import AnswerCut, PeerGone
from raylog.actors.plane.sending import MAX_BUFFERS, FileRange, Piece, send
from raylog.storage.descriptors import Descriptor
from raylog.storage.errors import StorageError
from tests.unit.actors.plane.peers import beside, connected, received

SECOND = struct.pack("@ll", 0, 20_000)


def file_of(folder: Path, content: bytes) -> Descriptor:
    path = folder / "00000000000000000000.log"
    path.write_bytes(content)
    return Descriptor(str(path), os.O_RDONLY)


def test_bytes_and_ranges_of_files_arrive_in_order(tmp_path: Path) -> None:
    file = file_of(tmp_path, b"0123456789")
    with connected() as (ours, peer):
        send(ours, [b"head", FileRange(file, 2, 3), bytearray(b"-"), FileRange(file, 0, 1), b"end"])
        ours.close()
        assert received(peer, 100) == b"head234-0end"


def test_an_answer_larger_than_the_socket_holds_arrives_whole(tmp_path: Path) -> None:
    content = os.urandom(5 << 20)
    file = file_of(tmp_path, content)
    with connected() as (ours, peer):
        pieces: list[Piece] = [
            content,
            FileRange(file, 1, len(content) - 1),
            memoryview(content),
        ]
        with beside(lambda: send(ours, pieces)):
            assert received(peer, 3 * len(content) - 1) == content + content[1:] + content


def test_more_buffers_than_one_call_takes_arrive() -> None:
    pieces = [b"%d " % number for number in range(2 * MAX_BUFFERS + 1)]
    with connected() as (ours, peer), beside(lambda: send(ours, pieces)):
        assert received(peer, len(b"".join(pieces))) == b"".join(pieces)


def test_empty_pieces_send_nothing() -> None:
    with connected() as (ours, peer):
        send(ours, [])
        send(ours, [b"", b"x", b""])
        ours.close()
        assert received(peer, 10) == b"x"


def test_a_file_of_another_name_or_of_none_is_sent(tmp_path: Path) -> None:
    file = file_of(tmp_path, b"records")
    os.unlink(file.path)
    with connected() as (ours, peer):
        send(ours, [FileRange(file, 0, 7)])
        assert received(peer, 7) == b"records"


def test_a_file_that_ends_early_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = file_of(tmp_path, b"01234")
    with connected() as (ours, _), pytest.raises(AnswerCut, match=r"ends at 5.*up to 9"):
        send(ours, [b"head", FileRange(file, 2, 7)])


@pytest.mark.parametrize("kind", ["bytes", "range"])
def test_a_peer_that_has_gone_is_an_error(tmp_path: Path, kind: str) -> None:
    file = file_of(tmp_path, bytes(10))
    with connected() as (ours, peer):
        peer.close()
        with pytest.raises(PeerGone, match=os.strerror(errno.EPIPE)):
            send(ours, [b"answer"] if kind == "bytes" else [FileRange(file, 0, 10)])


@pytest.mark.parametrize("kind", ["bytes", "range"])
def test_a_peer_that_takes_nothing_is_given_up(tmp_path: Path, kind: str) -> None:
    content = bytes(8 << 20)
    file = file_of(tmp_path, content)
    with connected() as (ours, _):
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, SECOND)
        with pytest.raises(PeerGone, match="takes no bytes"):
            send(ours, [content] if kind == "bytes" else [FileRange(file, 0, len(content))])


def test_a_disk_that_cannot_be_read_is_the_disks_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = file_of(tmp_path, b"records")
    monkeypatch.setattr(os, "sendfile", failing)
    with connected() as (ours, _), pytest.raises(StorageError, match=r"\.log"):
        send(ours, [FileRange(file, 0, 7)])
