"""The time as an argument: who needs it is given a clock, which tests turn by hand."""

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time in ms since the epoch."""

    def now_ms(self) -> int: ...


class SystemClock:
    """The machine's wall clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SteadyClock:
    """Time since the machine's start: it is never set, and is the same for all of its processes.

    It runs on while a process stands still, and on Linux while the machine sleeps.
    """

    _CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now_ms(self) -> int:
        return time.clock_gettime_ns(self._CLOCK) // 1_000_000
