"""Frames on their way out of a socket: each is received once, into a buffer of its size.

::

    size (4 bytes, big-endian)    of what follows
    request                       so many bytes

The size is a stranger's word. It is compared with ``socket.request.max.bytes``; room is taken for
it (``room.py``); only then is a buffer made. A frame that has begun must be whole within a time
that its size sets: a peer that sends one byte a second holds its room no longer than that.

Between two frames a connection may be silent for ``connections.max.idle.ms``. That is SO_RCVTIMEO
of the socket: the kernel counts, and a thread that waits costs nothing.
"""

import errno
import fcntl
import os
import select
import socket
import struct
import termios
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from raylog.actors.listeners import MAX_FRAME_BYTES
from raylog.actors.plane.errors import FrameTooLarge, PeerGone
from raylog.actors.plane.room import Room

# A frame that has begun: so long, and a second for each of so many bytes.
FRAME_S: Final = 30.0
SLOWEST_BYTES_PER_S: Final = 256 * 1024

# Frames that are taken together: more would wait long for the first one's answer.
MOST_BEHIND: Final = 15

_SIZE: Final = struct.Struct(">i")
_COUNT: Final = struct.Struct("@i")
_PEEK: Final = socket.MSG_PEEK | socket.MSG_DONTWAIT
_STALLED: Final = frozenset((errno.EAGAIN, errno.EWOULDBLOCK))
_TLS_HANDSHAKE: Final = 0x16030000  # the first bytes of a TLS client's hello, as a size


class Frames:
    """The frames of one connection, one after the other.

    ``max_frame_bytes`` and ``room`` may change: those of a frame are as it begins.
    """

    def __init__(
        self,
        connection: socket.socket,
        room: Room,
        *,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection, self.room = connection, room
        self._entered: deque[Room] = deque()  # for each frame that has not left: where it is
        self.max_frame_bytes, self._now_s = max_frame_bytes, now_s
        self._head = bytearray(_SIZE.size)

    def next(self) -> bytearray | None:
        """The next frame, without its size; None where the peer has ended between two frames.

        Its room is taken, until ``leave``. Raises PeerGone and FrameTooLarge; then
        no room is taken.
        """
        if not self._receive_head():
            return None
        (size_bytes,) = _SIZE.unpack(self._head)
        if not 0 <= size_bytes <= self.max_frame_bytes:
            raise FrameTooLarge(size_bytes, self.max_frame_bytes, _hint(size_bytes))
        room = self.room
        if not room.enter(size_bytes):
            return None
        self._entered.append(room)
        try:
            frame = bytearray(size_bytes)
            deadline_s = self._now_s() + FRAME_S + size_bytes / SLOWEST_BYTES_PER_S
            self._receive(memoryview(frame), deadline_s)
        except BaseException:
            self._entered.pop().leave(size_bytes)
            raise
        return frame

    def leave(self, size_bytes: int) -> None:
        """Give the room of the oldest frame back."""
        self._entered.popleft().leave(size_bytes)

    def behind(self, beginning: bytes) -> Iterator[bytearray]:
        """The frames that are there already, whole, and begin like this; as many as there is room.

        Their room is taken, as by ``next``.
        """
        for _ in range(MOST_BEHIND):
            try:
                head = self._connection.recv(_SIZE.size + len(beginning), _PEEK)
            except OSError:
                return  # ``next`` tells why
            if not head.endswith(beginning) or len(head) < _SIZE.size + len(beginning):
                return
            (size_bytes,) = _SIZE.unpack_from(head)
            is_there = _waiting_bytes(self._connection) >= _SIZE.size + size_bytes
            if not 0 <= size_bytes <= self.max_frame_bytes or not is_there:
                return
            if not self.room.enter_if_free(size_bytes):
                return
            self._entered.append(self.room)
            frame = bytearray(size_bytes)
            self._connection.recv_into(self._head)
            self._connection.recv_into(frame, 0, socket.MSG_WAITALL)
            yield frame

    def _receive_head(self) -> bool:
        """Whether there is another frame. Its size is in ``_head`` then."""
        try:
            count = self._connection.recv_into(self._head)
        except OSError as error:
            if error.errno in _STALLED:
                return False  # it was silent for as long as it may be
            raise PeerGone(os.strerror(error.errno or 0)) from None
        if not count:
            return False
        if count < _SIZE.size:
            self._receive(memoryview(self._head)[count:], self._now_s() + FRAME_S)
        return True

    def _receive(self, buffer: memoryview, deadline_s: float) -> None:
        """Fill the buffer. Raises PeerGone.

        Without a call more where all bytes are there, which is nearly always.
        """
        while buffer:
            try:
                count = self._connection.recv_into(buffer, 0, socket.MSG_DONTWAIT)
            except OSError as error:
                if error.errno not in _STALLED:
                    raise PeerGone(os.strerror(error.errno or 0)) from None
                self._await_bytes(buffer.nbytes, deadline_s)
                continue
            if not count:
                raise PeerGone(f"it ended {buffer.nbytes} bytes before the end of a frame")
            buffer = buffer[count:]

    def _await_bytes(self, missing_bytes: int, deadline_s: float) -> None:
        left_s = deadline_s - self._now_s()
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        if left_s <= 0 or not poll.poll(left_s * 1000):
            raise PeerGone(f"{missing_bytes} bytes of a frame have not come in time")


def _waiting_bytes(connection: socket.socket) -> int:
    """How many bytes the system has received for a socket."""
    (count,) = _COUNT.unpack(fcntl.ioctl(connection.fileno(), termios.FIONREAD, bytes(_COUNT.size)))
    return int(count)


def _hint(size_bytes: int) -> str:
    """What a size that makes no sense says of its peer."""
    if size_bytes & 0xFFFF0000 == _TLS_HANDSHAKE:
        return " (the peer speaks TLS, and this listener does not)"
    return ""
