"""What is done again and again: each task in a thread of its own, and for each log dir apart.

A task that waits for a disk must not delay the look at another. What is done for each dir is not
begun again for a dir in which it has not ended: a disk that hangs holds one thread for each task.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial

from raylog.actors.events import warn
from raylog.actors.node.events import DirFailed, Event
from raylog.actors.node.timer import Timer
from raylog.actors.node.workers import Pools
from raylog.storage.errors import StorageError

logger = logging.getLogger(__name__)

DirJob = Callable[[str], object]


class Repeating:
    """Tasks that are repeated until ``stop``."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._stopped = threading.Event()

    def every(self, interval_s: float, name: str, task: Callable[[], object]) -> None:
        """Do ``task`` after each ``interval_s``, first after one."""
        arguments = (interval_s, name, task)
        threading.Thread(target=self._repeat, args=arguments, name=name, daemon=True).start()

    def stop(self) -> None:
        """Begin no task any more; one that runs goes on."""
        self._stopped.set()

    def _repeat(self, interval_s: float, name: str, task: Callable[[], object]) -> None:
        while not self._timer.wait(self._stopped, interval_s):
            try:
                task()
            except Exception:  # whatever Ray raises: the next round tries again
                warn(logger, "task-failed", trace=True, task=name)


class EachDir:
    """Jobs for each log dir that is online, in a thread of each dir and job."""

    def __init__(
        self, online: Callable[[], Iterable[str]], tell: Callable[[Event], object]
    ) -> None:
        """``tell``: told ``DirFailed`` where a job meets a failed disk."""
        self._online = online
        self._tell = tell
        self._pools = Pools(1)
        self._lock = threading.Lock()
        self._running: dict[tuple[str, str], Future[None]] = {}

    def run(self, name: str, job: DirJob) -> list[Future[None]]:
        """Begin the job in each dir in which it does not run; returns what has not ended.

        The futures have no result, and raise nothing.
        """
        return [self._run(name, directory_id, job) for directory_id in list(self._online())]

    def _run(self, name: str, directory_id: str, job: DirJob) -> "Future[None]":
        key = (name, directory_id)
        with self._lock:
            future = self._running.get(key)
            if future is not None and not future.done():
                return future
            future = self._running[key] = Future()
        try:
            self._pools.run(key, partial(self._do, future, name, directory_id, job))
        except RuntimeError:  # no thread for it: the next round tries again
            future.set_result(None)
            raise
        return future

    def _do(self, future: "Future[None]", name: str, directory_id: str, job: DirJob) -> None:
        try:
            job(directory_id)
        except StorageError as error:
            if error.is_disk_failure:
                self._tell(DirFailed(directory_id=directory_id, why=error.problem))
            else:
                warn(logger, "log-dir-task-failed", task=name, directory_id=directory_id, why=error)
        except Exception:
            warn(logger, "log-dir-task-failed", trace=True, task=name, directory_id=directory_id)
        finally:
            future.set_result(None)
