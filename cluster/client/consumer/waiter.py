"""The only place where a consumer waits."""

import threading
import time

LONGEST_WAIT_S = 3600.0


class Waiter:
    """Waits until something has ended, or until a time."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def another(self) -> "Waiter":
        """For another consumer."""
        return Waiter()

    def now(self) -> float:
        return time.monotonic()

    def wake(self) -> None:
        """Called in any thread."""
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Until :meth:`wake`, also an earlier one, or for so long."""
        if seconds > 0:
            self._event.wait(min(seconds, LONGEST_WAIT_S))
        self._event.clear()
