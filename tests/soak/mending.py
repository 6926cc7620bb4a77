"""An operator who looks after disks that were lost: when one is back he says so (``raylog log-dirs
online``), again and again until it is in use."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from raylog.actors.messages import LogDirStatus
from raylog.cluster.controller.log_dir_states import LogDirDescription
from raylog.storage.errors import LogDirOffline, RaylogError

LOOK_S = 1.0


class LogDirs(Protocol):
    """What a :class:`Broker` says of log dirs, and does with them."""

    def log_dirs(self) -> list[LogDirStatus]: ...
    def log_dir_online(self, log_dir: str, *, timeout_s: float) -> list[LogDirDescription]: ...


class Mender:
    """A thread; use it as a context manager.

    A dir that was put back is watched to the end of the run: an actor that was stopped may tell
    late of an error that it has met meanwhile.
    """

    def __init__(self, broker: LogDirs, start_afresh: Callable[[Path], None]) -> None:
        """``start_afresh``: end the LogManager of a log dir; its next start looks at the dir."""
        self._broker, self._start_afresh = broker, start_afresh
        self._watched: set[Path] = set()
        self._busy = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mender")

    def __enter__(self) -> "Mender":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Nobody looks meanwhile."""
        with self._busy:
            yield

    def use(self, broker: LogDirs) -> None:
        """The broker was started again."""
        self._broker = broker

    def watch(self, log_dir: Path) -> None:
        """It was put back."""
        self._watched.add(log_dir)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            with self._busy:
                if self._watched:
                    self.look()

    def look(self) -> None:
        """One round. What the broker cannot say or do now is asked for again in the next one."""
        try:
            for log_dir in self._offline():
                self._use_again(log_dir)
        except RaylogError as error:
            print(f"mender: {type(error).__name__}: {error}", flush=True)

    def _offline(self) -> list[Path]:
        """Those of the watched dirs that are not in use, and not away once more."""
        told = {Path(dir.path): dir.is_online for dir in self._broker.log_dirs()}
        return [path for path in list(self._watched) if path.is_dir() and not told.get(path, True)]

    def _use_again(self, log_dir: Path) -> None:
        try:
            for used in self._broker.log_dir_online(str(log_dir), timeout_s=0):
                print(f"mender: {log_dir}: {used.state}", flush=True)
        except LogDirOffline as error:
            print(f"mender: its node does not know it: {error}", flush=True)
            self._start_afresh(log_dir)
