"""An answer on its way into a socket: bytes, and ranges of open files that go by ``sendfile``.

A Fetch answer is a head, the batches as they lie in a segment's file, and a trailer. The batches
never enter this process: the kernel moves them from the page cache into the socket. The file is
open, so it does not matter whether it is renamed or deleted meanwhile.

What goes out together is told to the kernel: bytes before a range carry MSG_MORE, because TCP would
send a packet of its own for the head otherwise (the sockets have TCP_NODELAY).

An answer's size is promised in its head. So an answer that cannot be sent whole ends the
connection: there is no way to say so to the peer.
"""

import errno
import os
import socket
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from raylog.actors.plane.errors import AnswerCut, PeerGone
from raylog.storage.buffers import Buffer
from raylog.storage.disk_errors import storage_error

# On loopback TCP a sendfile of several MB in one call takes many times as long as in pieces.
MAX_SENDFILE_BYTES: Final = 1 << 20
# Linux takes at most 1,024 buffers in one call (IOV_MAX).
MAX_BUFFERS: Final = 1024
_STALLED: Final = frozenset((errno.EAGAIN, errno.EWOULDBLOCK))
_GONE: Final = frozenset(
    (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.ESHUTDOWN, errno.ETIMEDOUT, errno.EBADF)
)


class OpenFile(Protocol):
    """A file that stays open as long as it is referred to."""

    path: str

    def fileno(self) -> int: ...


class FileRange(NamedTuple):
    """Bytes of an open file."""

    file: OpenFile
    position: int
    size_bytes: int


Piece: TypeAlias = Buffer | FileRange


def send(connection: socket.socket, pieces: Sequence[Piece]) -> None:
    """Send all pieces, in order.

    Raises PeerGone if the peer has ended the connection, or has taken nothing for as long as the
    socket allows (SO_SNDTIMEO); AnswerCut if a file is shorter than its range; and StorageError if
    its disk cannot be read. After each of them the connection must be closed.
    """
    buffers: list[memoryview] = []
    for piece in pieces:
        if isinstance(piece, FileRange):
            _send_buffers(connection, buffers, is_last=False)
            buffers = []
            _send_range(connection, piece)
        else:
            buffers.append(memoryview(piece))
    _send_buffers(connection, buffers, is_last=True)


def _send_buffers(connection: socket.socket, buffers: list[memoryview], *, is_last: bool) -> None:
    flags = 0 if is_last else socket.MSG_MORE
    while buffers:
        try:
            sent = connection.sendmsg(buffers[:MAX_BUFFERS], (), flags)
        except OSError as error:
            raise _peer_gone(error) from None
        buffers = behind(buffers, sent)


def behind(buffers: list[memoryview], sent: int) -> list[memoryview]:
    """What is left of the buffers once so many bytes are sent."""
    for number, buffer in enumerate(buffers):
        if sent < buffer.nbytes:
            return [buffer[sent:], *buffers[number + 1 :]]
        sent -= buffer.nbytes
    return []


def _send_range(connection: socket.socket, piece: FileRange) -> None:
    position, end = piece.position, piece.position + piece.size_bytes
    source = piece.file.fileno()
    while position < end:
        size_bytes = min(end - position, MAX_SENDFILE_BYTES)
        try:
            sent = os.sendfile(connection.fileno(), source, position, size_bytes)
        except OSError as error:
            if error.errno in _STALLED or error.errno in _GONE:
                raise _peer_gone(error) from None
            raise storage_error(piece.file.path, error) from error
        if not sent:
            raise AnswerCut(piece.file.path, position, end)
        position += sent


def _peer_gone(error: OSError) -> PeerGone:
    is_stalled = error.errno in _STALLED
    return PeerGone("it takes no bytes" if is_stalled else os.strerror(error.errno or 0))
