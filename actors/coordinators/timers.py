"""Alarms of a pure machine: each has a key and a time, and is set, moved, cancelled, or due."""

import heapq
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

_FEW: Final = 64  # entries of a heap that is not worth making anew
Key = TypeVar("Key")


class Timers(Generic[Key]):
    """One alarm for each key.

    A heap holds them by time. An alarm that was moved or cancelled stays in it until its old time
    has come, and is passed over then. Where most of the heap is of that kind, it is made anew.
    """

    def __init__(self) -> None:
        self._due_ms: dict[Key, tuple[int, int]] = {}  # key: when, and the number of its setting
        self._heap: list[tuple[int, int, Key]] = []
        self._settings = 0

    def set(self, key: Key, at_ms: int) -> None:
        """Ring at this time, and at no other."""
        self._settings += 1
        self._due_ms[key] = (at_ms, self._settings)
        heapq.heappush(self._heap, (at_ms, self._settings, key))
        if len(self._heap) > _FEW + 4 * len(self._due_ms):
            self._heap = [(*due, key) for key, due in self._due_ms.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: Key) -> None:
        """Do not ring; nothing happens where it is not set."""
        self._due_ms.pop(key, None)

    def due(self, now_ms: int) -> Iterator[Key]:
        """The alarms whose time has come, by time; each is taken out before it is given."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, setting, key = heapq.heappop(self._heap)
            if self._due_ms.get(key) == (at_ms, setting):
                del self._due_ms[key]
                yield key

    def next_ms(self) -> int | None:
        """When the next alarm is due; None where there is none."""
        while self._heap:
            at_ms, setting, key = self._heap[0]
            if self._due_ms.get(key) == (at_ms, setting):
                return at_ms
            heapq.heappop(self._heap)
        return None

    def __contains__(self, key: object) -> bool:
        return key in self._due_ms
