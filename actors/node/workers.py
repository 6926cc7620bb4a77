"""Bounded pools of daemon threads: work that waits for one disk must not hold up another.

Python's own pools are joined when the process ends, so one disk that hangs would keep it from
ending.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable

from raylog.actors.errors import WorkFailed
from raylog.actors.events import event, warn

logger = logging.getLogger(__name__)
Job = Callable[[], object]


class Workers:
    """A pool of at most so many threads, which are started as they are needed.

    A job tells its own errors; one that raises is our mistake, and is logged.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._lock = threading.Lock()
        self._waiting: deque[Job] = deque()
        self._running = 0

    def run(self, job: Job) -> None:
        """Have the job done, after those that came before where all threads are busy.

        Raises RuntimeError where the system allows no thread for it, and none is there.
        """
        with self._lock:
            self._waiting.append(job)
            if self._running == self._most:
                return
            self._running += 1
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self._waiting.remove(job)  # whoever gave it hears the error, and it alone
                    raise

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception:
                warn(logger, "job-failed", trace=True, workers=self._name)

    def _next(self) -> Job | None:
        """The next job; None: there is none, and the thread ends."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._running -= 1
            return None


class Pools:
    """A pool for each key, each with at most so many threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._pools: dict[Hashable, Workers] = {}

    def run(self, key: Hashable, job: Job) -> None:
        with self._lock:
            pool = self._pools.get(key)
            if pool is None:
                pool = self._pools[key] = Workers(str(key), self._most)
        pool.run(job)


def work_failed(what: str, error: BaseException) -> WorkFailed:
    """An error that nobody is prepared for: logged, and made into one that the machine takes.

    Called where it is handled.
    """
    event(logger, "work-failed", level=logging.ERROR, trace=True, what=what)
    return WorkFailed(what, f"{type(error).__name__}: {error}")
