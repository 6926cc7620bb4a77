"""When a producer looks at its partitions again: one time for each, of which the last counts.

A new time makes the partition's earlier one void. Void times stay in the heap until they come up,
or until there are too many of them.
"""

import heapq
from collections.abc import Iterator
from itertools import count
from typing import Final, Generic, Protocol, TypeVar

# More times than this are cleared of void ones.
FEWEST_TIMERS: Final = 1000


class Timed(Protocol):
    """A partition; ``due_at``: its time, None if it has none."""

    due_at: float | None


Partition = TypeVar("Partition", bound=Timed)


class Timers(Generic[Partition]):
    """The times of all partitions. They belong to one thread."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Partition]] = []
        self._order = count()
        self._most = FEWEST_TIMERS

    @property
    def next_at(self) -> float | None:
        """The first time, which may be void."""
        return self._heap[0][0] if self._heap else None

    def schedule(self, partition: Partition, due_at: float) -> None:
        """Look at a partition at this time."""
        if due_at == partition.due_at:
            return
        partition.due_at = due_at
        heapq.heappush(self._heap, (due_at, next(self._order), partition))
        if len(self._heap) > self._most:
            self._heap = [timer for timer in self._heap if timer[2].due_at == timer[0]]
            heapq.heapify(self._heap)
            self._most = max(FEWEST_TIMERS, 2 * len(self._heap))

    def take_due(self, now: float) -> Iterator[Partition]:
        """The partitions whose time has come, which have none then."""
        while self._heap and self._heap[0][0] <= now:
            due_at, _, partition = heapq.heappop(self._heap)
            if partition.due_at == due_at:
                partition.due_at = None
                yield partition
