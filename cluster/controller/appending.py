"""The thread that writes the metadata log: appends, each fsynced, its snapshots and its reserve."""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from raylog.actors.events import warn
from raylog.actors.metadata_snapshot import MetadataSnapshot
from raylog.cluster.controller.events import Appended, AppendFailed, ReserveMade, SnapshotMade
from raylog.cluster.controller.instructions import Append, MakeReserve, MakeSnapshot
from raylog.cluster.controller.records import METADATA_LOG, Record
from raylog.cluster.controller.snapshots import snapshot_of
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

    def save(self, snapshot: MetadataSnapshot) -> tuple[str, ...]:
        """Save a snapshot of all records. Raises StorageError.

        Returns why others that lie there cannot be read.
        """


Work = Append | MakeReserve | MakeSnapshot
Done = Appended | AppendFailed | ReserveMade | SnapshotMade


class Appender:
    """Carries out what is to be done, in its order. ``put``: takes the event that follows."""

    def __init__(self, log: RecordLog, put: Callable[[Done], None]) -> None:
        self._log, self._put = log, put
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="metadata-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def do(self, work: Work) -> None:
        """Returns at once."""
        self._queue.put(work)

    def stop(self, timeout_s: float) -> bool:
        """End behind what is queued; returns whether that was in time."""
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            self._put(self._done(work))

    def _done(self, work: Work) -> Done:
        match work:
            case Append():
                return self.write(work)
            case MakeReserve():
                return self.reserve()
            case MakeSnapshot():
                return self.snapshot(work)

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

    def snapshot(self, wanted: MakeSnapshot) -> SnapshotMade:
        """Save the snapshot now, and say how it went."""
        try:
            damaged = self._log.save(snapshot_of(wanted.desired, wanted.point))
        except RaylogError as error:
            return SnapshotMade(problem=error)
        except Exception as error:  # a mistake of our own: the log has all records
            warn(logger, "snapshot-failed", trace=True, why=error)
            return SnapshotMade(problem=StorageError(METADATA_LOG, repr(error)))
        return SnapshotMade(damaged=damaged)
