"""The folders of one log dir that wait to be removed, each until its time. Knows no Ray.

A folder waits under a name that says so (``-delete``), or that of a copy which nobody wants
(``-future``). So the next start finds whatever was not removed.
"""

import logging
import threading
from dataclasses import dataclass

from raylog.actors.events import warn
from raylog.storage.clock import Clock
from raylog.storage.errors import OutOfResources, StorageError
from raylog.storage.files import FileSystem

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """A folder that is to be removed."""

    due_ms: int
    folder: str


class DeletionQueue:
    """See the module's head."""

    def __init__(self, fs: FileSystem, clock: Clock) -> None:
        self._fs, self._clock = fs, clock
        self._memory = threading.Lock()
        self._doomed: list[Doomed] = []

    def add(self, folder: str, delay_ms: int = 0) -> None:
        """Have a folder removed when ``delay_ms`` is over."""
        doomed = Doomed(due_ms=self._clock.now_ms() + delay_ms, folder=folder)
        with self._memory:
            self._doomed.append(doomed)

    def remove_due(self) -> None:
        """Remove the folders whose time has come.

        One that a shortage keeps from being removed is due again. One whose removal fails is left
        to the next start: it is in nobody's way, and a disk that has failed is noticed elsewhere.
        """
        for folder in self._take_due():
            try:
                self._fs.remove_dir(folder)
            except OutOfResources:
                self.add(folder)
            except StorageError as error:
                warn(logger, "folder-not-removed", folder=folder, why=error)

    def _take_due(self) -> list[str]:
        now_ms = self._clock.now_ms()
        with self._memory:
            due = [doomed.folder for doomed in self._doomed if doomed.due_ms <= now_ms]
            self._doomed = [doomed for doomed in self._doomed if doomed.due_ms > now_ms]
        return due
