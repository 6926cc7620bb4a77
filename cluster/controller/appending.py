"""The thread that writes the metadata log: one append at a time, each fsynced."""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from raylog.actors.events import warn
from raylog.cluster.controller.events import Appended, AppendFailed
from raylog.cluster.controller.instructions import Append
from raylog.cluster.controller.records import METADATA_LOG, Record
from raylog.storage.errors import RaylogError, StorageError

logger = logging.getLogger(__name__)


class RecordLog(Protocol):
    """Where records are appended to (``MetadataLog``)."""

    def append(self, records: Sequence[Record]) -> None:
        """All or none, on the disk when it returns. Raises StorageError."""


class Appender:
    """Carries out ``Append``. ``put``: takes the event that follows."""

    def __init__(self, log: RecordLog, put: Callable[[Appended | AppendFailed], None]) -> None:
        self._log, self._put = log, put
        self._queue: queue.SimpleQueue[Append | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="metadata-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def append(self, append: Append) -> None:
        """Returns at once."""
        self._queue.put(append)

    def stop(self, timeout_s: float) -> bool:
        """End behind what is queued; returns whether that was in time."""
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (append := self._queue.get()) is not None:
            self._put(self.write(append))

    def write(self, append: Append) -> Appended | AppendFailed:
        """Write the records now, and say how it went."""
        try:
            self._log.append(append.records)
        except RaylogError as error:
            return AppendFailed(token=append.token, error=error)
        except Exception as error:  # a mistake of our own: nobody knows what was written
            warn(logger, "append-failed", trace=True, why=error)
            return AppendFailed(token=append.token, error=StorageError(METADATA_LOG, repr(error)))
        return Appended(token=append.token)
