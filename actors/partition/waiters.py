"""Who waits for records of a partition: each is woken by the append that has enough for it.

Waiters stand in a heap, ordered by the count of bytes ever readable that wakes them. An append pops
the ones that are due, and costs the same with one waiter or a thousand.
"""

import heapq
import itertools
import threading
from collections.abc import Callable
from typing import NamedTuple

from raylog.actors.errors import TooManyPolls
from raylog.storage.limits import MAX_INT


class Waiter(NamedTuple):
    """Who waits for bytes. Waiters are ordered by what they wait for."""

    wanted_bytes: int  # the count of bytes ever readable that wakes it
    ticket: int  # another one for each waiter, so that the order is never decided by ``wake``
    wake: Callable[[], None]


class Waiters:
    """See the module's head. Any thread may call everything.

    ``readable_bytes`` counts the bytes that were ever readable. ``partition``: as errors name it.
    """

    def __init__(self, partition: str, readable_bytes: Callable[[], int]) -> None:
        self._partition, self._readable_bytes = partition, readable_bytes
        self._lock = threading.Lock()
        self._heap: list[Waiter] = []
        self._tickets = itertools.count()
        self._is_over = False

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, wanted_bytes: int, wake: Callable[[], None], *, most: int = MAX_INT) -> Waiter:
        """Have ``wake`` called once: when so many bytes were ever readable, or none will be.

        It is called by any thread, perhaps before this returns, and must neither wait nor raise:
        an append waits for it. Raises TooManyPolls if ``most`` are waiting.
        """
        waiter = Waiter(wanted_bytes, next(self._tickets), wake)
        with self._lock:
            if self._is_over:
                wake()  # ``end`` has woken all that were here
                return waiter
            if len(self._heap) >= most:
                raise TooManyPolls(self._partition, most)
            heapq.heappush(self._heap, waiter)
        self.wake_due()
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Wake it no more; fine if it was woken."""
        with self._lock:
            if waiter in self._heap:
                self._heap.remove(waiter)
                heapq.heapify(self._heap)

    def wake_due(self) -> None:
        """Wake those whose bytes are there."""
        if not self._heap:
            return
        with self._lock:
            readable_bytes = self._readable_bytes()
            while self._heap and self._heap[0].wanted_bytes <= readable_bytes:
                heapq.heappop(self._heap).wake()

    def end(self) -> None:
        """Wake all, and everyone who comes later at once: no more bytes will be readable."""
        with self._lock:
            self._is_over = True
            for waiter in self._heap:
                waiter.wake()
            self._heap.clear()
