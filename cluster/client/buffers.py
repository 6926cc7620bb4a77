"""Memory for batches that were read, used again when nobody refers to it any more.

**Whose the bytes are**: the caller's, for as long as anything refers to them (a memoryview, an
array, a decoder). A buffer is filled again when nothing refers to it any more. A fresh buffer for
each fetch of 8 MB would cost as much as the read: each of its pages is a fault.
"""

import threading

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


class Buffers:
    """Buffers that are kept. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buffers: list[bytearray] = []

    def room(self, size_bytes: int) -> memoryview:
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
