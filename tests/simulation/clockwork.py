"""Time and chance of a simulation: one queue of what happens, one seed for every choice."""

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from random import Random

TRACE_LENGTH = 400


class Clockwork:
    """What is to happen, in order of time; what comes at one time, in the order of its making."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now_ms = 0
        self.events = 0
        self.trace: deque[str] = deque(maxlen=TRACE_LENGTH)
        self._queue: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def after(self, delay_ms: int, happen: Callable[[], object]) -> None:
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._numbers), happen))

    def soon(self, happen: Callable[[], object], *, most_ms: int) -> None:
        """At some moment from now to ``most_ms`` later; mostly soon."""
        self.after(self.some(most_ms), happen)

    def some(self, most: int) -> int:
        """A number from 0 to ``most``; small ones are more likely."""
        return int(most * self.chance.random() ** 3)

    def step(self) -> bool:
        """Let the next thing happen; False if there is none."""
        if not self._queue:
            return False
        self.now_ms, _, happen = heapq.heappop(self._queue)
        self.events += 1
        happen()
        return True

    def note(self, who: str, what: object) -> None:
        """Keep a line for whoever reads the end of a run that failed."""
        self.trace.append(f"{self.now_ms / 1000:9.3f}  {who:<14} {what}")
