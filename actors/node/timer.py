"""The time as threads need it that wait: how late it is, and a pause that ends early."""

import threading
import time
from typing import Protocol


class Timer(Protocol):
    """Seconds that never go back, and pauses."""

    def now_s(self) -> float: ...

    def wait(self, ended: threading.Event, seconds: float) -> bool:
        """Wait until the event is set, at most so long; returns whether it is."""


class RealTimer:
    """The machine's time."""

    def now_s(self) -> float:
        return time.monotonic()

    def wait(self, ended: threading.Event, seconds: float) -> bool:
        return ended.wait(min(seconds, threading.TIMEOUT_MAX))
