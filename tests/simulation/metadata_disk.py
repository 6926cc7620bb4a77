"""The metadata log's disk in a simulation: records that were fsynced, and an older copy of them."""

from collections.abc import Callable, Sequence

from raylog.cluster.controller.records import Record, decode, encode
from raylog.storage.errors import DiskFull, RaylogError, StorageError

PATH = "/metadata"


class MetadataDisk:
    """``written`` hears each record that has reached the disk."""

    def __init__(self, written: Callable[[Record], None], restored: Callable[[], None]) -> None:
        self._written, self._restored = written, restored
        self._log: list[bytes] = []
        self._backup: list[bytes] = []
        self.fails_next = ""
        self.has_reserve = False
        self.generation = 0  # of the files, which a restore puts in the place of the old ones

    @property
    def was_restored(self) -> bool:
        return self.generation > 0

    def records(self) -> list[Record]:
        return [decode(value) for value in self._log]

    def append(
        self, records: Sequence[Record], *, may_use_reserve: bool
    ) -> tuple[RaylogError | None, DiskFull | None]:
        """All or none; the error where it failed, and why the reserve was given up.

        After a failed fsync they may be there or not.
        """
        failure, self.fails_next = self.fails_next, ""
        shortage = DiskFull(PATH) if failure == "full" else None
        if shortage is not None:
            if not (may_use_reserve and self.has_reserve):
                return shortage, None
            self.has_reserve = False
        for record in records:
            self._log.append(encode(record))
            self._written(record)
        error = StorageError(PATH, "an fsync failed") if failure == "fsync" else None
        return error, shortage

    def back_up(self) -> None:
        self._backup = list(self._log)

    def restore(self) -> None:
        """Put the older copy in place, if one was made."""
        if self._backup:
            self._log = list(self._backup)
            self.generation += 1
            self._restored()
