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
