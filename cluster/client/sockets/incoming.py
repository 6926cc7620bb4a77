"""Frames out of the bytes that a socket gives, in whatever pieces they come.

A small frame is copied out of what one call has received, which may hold several. The rest of a
large one is received into its own memory, so the batches of a fetch are copied once.
"""

import socket
from collections.abc import Iterator
from typing import Final

from raylog.cluster.client.buffers import Buffers
from raylog.storage.limits import MAX_INT

_SIZE_BYTES: Final = 4


class Incoming:
    """The bytes of one connection. One thread at a time."""

    def __init__(self, connection: socket.socket, buffers: Buffers) -> None:
        self.most_bytes = MAX_INT  # of a frame
        self._connection, self._buffers = connection, buffers
        self._rest = b""  # the beginning of a frame's size
        self._frame: memoryview | None = None  # the one that is being received
        self._filled = 0

    def receive(self, chunk: memoryview) -> Iterator[memoryview]:
        """The frames, without their sizes, that what is there now completes.

        ``chunk``: room for what one call receives, unless it is for a large frame.

        Nothing writes to one as long as anybody refers to it. Raises OSError, EOFError where the
        connection has ended, and ValueError for a size that is none.
        """
        frame = self._frame
        if frame is None:
            count = self._received_into(chunk)
            yield from self._split(bytes(chunk[:count]))
            return
        self._filled += self._received_into(frame[self._filled :])
        if self._filled == len(frame):
            self._frame = None
            yield frame

    def drop(self) -> None:
        """The connection has ended: give up what is half received."""
        self._frame, self._rest = None, b""

    def _received_into(self, room: memoryview) -> int:
        count = self._connection.recv_into(room)
        if not count:
            raise EOFError
        return count

    def _split(self, received: bytes) -> Iterator[memoryview]:
        """The frames in what was received; the beginning of one is kept."""
        content = memoryview(self._rest + received)
        self._rest = b""
        at = 0
        while len(content) - at >= _SIZE_BYTES:
            size_bytes = int.from_bytes(content[at : at + _SIZE_BYTES], "big", signed=True)
            if not 0 <= size_bytes <= self.most_bytes:
                raise ValueError(f"a frame of {size_bytes} bytes")
            start = at + _SIZE_BYTES
            at = start + size_bytes
            if at > len(content):
                self._begin(size_bytes, content[start:])
                return
            yield content[start:at]
        self._rest = bytes(content[at:])

    def _begin(self, size_bytes: int, beginning: memoryview) -> None:
        """A frame of which more is to come."""
        frame = self._buffers.room(size_bytes)
        frame[: len(beginning)] = beginning
        self._frame, self._filled = frame, len(beginning)
