"""The thread that writes the metadata log, one append at a time, each fsynced; and its reserve."""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from raylog.actors.events import warn
from raylog.cluster.controller.events import Appended, AppendFailed, ReserveMade
from raylog.cluster.controller.instructions import Append, MakeReserve
from raylog.cluster.controller.records import METADATA_LOG, Record
from raylog.storage.errors import DiskFull, RaylogError, StorageError

logger = logging.getLogger(__name__)


class RecordLog(Protocol):
    """Where records are appended to (``MetadataLog``)."""

    def append(
        self, records: Sequence[Record], *, may_use_reserve: bool = False
    ) -> DiskFull | None:
        """All or none, on the disk when it returns. Raises StorageError.

        Returns why the reserve was given up, where it was.
        """

    def make_reserve(self) -> None:
        """Make the reserve whole. Raises StorageError."""


class Appender:
    """Carries out ``Append`` and ``MakeReserve``. ``put``: takes the event that follows."""

    def __init__(
        self, log: RecordLog, put: Callable[[Appended | AppendFailed | ReserveMade], None]
    ) -> None:
        self._log, self._put = log, put
        self._queue: queue.SimpleQueue[Append | MakeReserve | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="metadata-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def append(self, append: Append) -> None:
        """Returns at once."""
        self._queue.put(append)

    def make_reserve(self) -> None:
        """Returns at once."""
        self._queue.put(MakeReserve())

    def stop(self, timeout_s: float) -> bool:
        """End behind what is queued; returns whether that was in time."""
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            self._put(self.write(work) if isinstance(work, Append) else self.reserve())

    def write(self, append: Append) -> Appended | AppendFailed:
        """Write the records now, and say how it went."""
        try:
            shortage = self._log.append(append.records, may_use_reserve=append.may_use_reserve)
        except RaylogError as error:
            return AppendFailed(token=append.token, error=error)
        except Exception as error:  # a mistake of our own: nobody knows what was written
            warn(logger, "append-failed", trace=True, why=error)
            return AppendFailed(token=append.token, error=StorageError(METADATA_LOG, repr(error)))
        return Appended(token=append.token, shortage=shortage)

    def reserve(self) -> ReserveMade:
        """Make the reserve now, and say how it went."""
        try:
            self._log.make_reserve()
        except RaylogError as error:
            return ReserveMade(problem=error)
        except Exception as error:  # a mistake of our own: there is none, and no record is lost
            warn(logger, "reserve-failed", trace=True, why=error)
            return ReserveMade(problem=StorageError(METADATA_LOG, repr(error)))
        return ReserveMade()
