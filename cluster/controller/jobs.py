"""The Controller's work that may take long, each piece in a thread beside the watch: nothing holds
up the watch.

What a piece fails with is logged, and logged again only when it is something else: a disk that
fails every second must not fill the disk that the logs are on.
"""

import logging
import threading
import time
from collections.abc import Callable

from raylog.actors.events import warn

logger = logging.getLogger(__name__)

Work = Callable[[], None]


class Jobs:
    """Threads, and what they said last. ``stopped``: from then on nothing is logged, since all of
    it fails."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._said: dict[str, str] = {}

    def begin(self, name: str, work: Work) -> None:
        """Do it in a thread of its own."""
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
        """Do it here; what it fails with is logged."""
        try:
            work()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if self._said.get(name) != text and not self._stopped.is_set():
                self._said[name] = text
                warn(logger, f"{name}-failed", trace=True)
        else:
            self._said.pop(name, None)

    def wait(self, timeout_s: float | None = None) -> None:
        """Return when all that were begun have ended, or the time is up."""
        with self._lock:
            running = self._running()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in running:
            thread.join(None if deadline is None else max(deadline - time.monotonic(), 0))

    def _running(self) -> list[threading.Thread]:
        return [thread for thread in self._threads if thread.is_alive()]
