"""Reads of segment files on the partition's own node, into buffers that are used again.

The LogActor tells where the batches lie. The inode is checked, since the name may have gone to
another file. The file is opened for each read, which costs some microseconds of a fetch. So a
reader keeps no file open that retention has removed. It is not mapped, because a mapped page that
was cut away, or that the disk cannot read, ends the process (SIGBUS).

**Whose the bytes are**: the caller's, for as long as anything refers to them (a memoryview, an
array, a decoder). A buffer is filled again when nothing refers to it any more. A fresh buffer for
each fetch of 8 MB would cost as much as the read: each of its pages is a fault.
"""

import os
import threading

from raylog.storage.descriptors import Descriptor
from raylog.storage.errors import SegmentDeleted, StorageError
from raylog.storage.readable import Slice

# A buffer that is kept: a fetch of the usual size. Larger ones are rare, and are not kept.
MOST_KEPT_BYTES = 8 << 20
MOST_KEPT = 4


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of it is left: Python lets nobody resize a bytearray that has one."""
    try:
        buffer.append(buffer.pop())  # neither moves its memory
    except BufferError:
        return False
    return True


class SegmentFiles:
    """Reads slices of segment files. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buffers: list[bytearray] = []

    def read(self, location: Slice) -> memoryview:
        """The bytes at ``location``. Raises SegmentDeleted where they are not there any more."""
        content = self._room(location.size_bytes)
        try:
            file = Descriptor(location.path, os.O_RDONLY)
            is_same = file.inode == location.inode
            if is_same and file.read_into(content, location.position) == len(content):
                return content
        except (OSError, StorageError):
            pass  # the actor will send the bytes, or say what is wrong
        raise SegmentDeleted(location.path)

    def _room(self, size_bytes: int) -> memoryview:
        """A view of a buffer that nobody else refers to."""
        if size_bytes > MOST_KEPT_BYTES:
            return memoryview(bytearray(size_bytes))
        with self._lock:
            free = [buffer for buffer in self._buffers if _is_free(buffer)]
            buffer = next((buffer for buffer in free if len(buffer) >= size_bytes), None)
            if buffer is None:
                buffer = bytearray(1 << max(size_bytes - 1, 1).bit_length())
                self._keep(buffer, free)
            return memoryview(buffer)[:size_bytes]

    def _keep(self, buffer: bytearray, free: list[bytearray]) -> None:
        """Keep a new buffer, in the place of one that is too small, if there is room."""
        if free:
            self._buffers = [kept for kept in self._buffers if kept is not free[0]]
        if len(self._buffers) < MOST_KEPT:
            self._buffers.append(buffer)
