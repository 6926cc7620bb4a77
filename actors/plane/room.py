"""How many bytes of requests a process holds at once.

A request takes room before its bytes are read, and gives it back once it is answered. Who finds no
room waits, and reads nothing meanwhile: the peer's TCP window closes, and no client is told an
error that it would drop records for. They are served in the order in which they came, so that a
large request is not overtaken for ever. A request that is larger than all room enters once nothing
else is in.
"""

import threading
from collections import deque
from typing import Final

# As a partition takes on by Ray calls (``partition/bounds.py``).
ROOM_BYTES: Final = 16 << 20


class Place:
    """A request that waits for room."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.is_in = False
        self.is_over = threading.Event()


class Room:
    """Bytes that are shared by the connections of a process."""

    def __init__(self, size_bytes: int = ROOM_BYTES) -> None:
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._queue: deque[Place] = deque()
        self._is_closed = False
        self.used_bytes = 0

    def enter(self, size_bytes: int) -> bool:
        """Take room, once there is some; False if the room is closed before."""
        with self._lock:
            if self._is_closed:
                return False
            place = Place(size_bytes)
            self._queue.append(place)
            self._admit()
        place.is_over.wait()
        return place.is_in

    def enter_if_free(self, size_bytes: int) -> bool:
        """Take room if there is some now, and nobody waits for it."""
        with self._lock:
            if self._is_closed or self._queue or not self._fits(size_bytes):
                return False
            self.used_bytes += size_bytes
            return True

    def leave(self, size_bytes: int) -> None:
        """Give room back."""
        with self._lock:
            self.used_bytes -= size_bytes
            self._admit()

    def _admit(self) -> None:
        """Let those in for whom there is room, in their order."""
        while self._queue and self._fits(self._queue[0].size_bytes):
            place = self._queue.popleft()
            self.used_bytes += place.size_bytes
            place.is_in = True
            place.is_over.set()

    def _fits(self, size_bytes: int) -> bool:
        return not self.used_bytes or self.used_bytes + size_bytes <= self._size_bytes

    @property
    def waiting(self) -> int:
        """How many requests wait for room."""
        return len(self._queue)

    def close(self) -> None:
        """Let nobody in any more."""
        with self._lock:
            self._is_closed = True
            while self._queue:
                self._queue.popleft().is_over.set()
