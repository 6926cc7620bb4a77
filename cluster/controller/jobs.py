"""The Controller's work that may take long, each piece in a thread beside the watch.

So nothing holds up the watch. The error of a piece is logged, and logged again only when it is
another: a disk that fails every second must not fill the disk that the logs are on.
"""

import logging
import threading
import time
from collections.abc import Callable

from raylog.actors.events import warn

logger = logging.getLogger(__name__)

Work = Callable[[], None]


class Jobs:
    """Threads, and their last errors.

    ``stopped``: once it is set nothing is logged, since everything fails then.
    """

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._last_errors: dict[str, str] = {}

    def begin(self, name: str, work: Work) -> None:
        """Do the work in a thread of its own."""
        thread = threading.Thread(target=self.attempt, args=(name, work), name=name, daemon=True)
        with self._lock:
            self._threads = [*self._running(), thread]
            thread.start()

    def begin_alone(self, name: str, work: Work) -> None:
        """As ``begin``, unless one of this name still runs."""
        with self._lock:
            if any(thread.name == name for thread in self._running()):
                return
        self.begin(name, work)

    def attempt(self, name: str, work: Work) -> None:
        """Do the work in this thread; its error is logged."""
        try:
            work()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if self._last_errors.get(name) != text and not self._stopped.is_set():
                self._last_errors[name] = text
                warn(logger, f"{name}-failed", trace=True)
        else:
            self._last_errors.pop(name, None)

    def wait(self, timeout_s: float | None = None) -> None:
        """Return when all that were begun have ended, or the time is up."""
        with self._lock:
            running = self._running()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in running:
            thread.join(None if deadline is None else max(deadline - time.monotonic(), 0))

    def _running(self) -> list[threading.Thread]:
        return [thread for thread in self._threads if thread.is_alive()]
