"""The metadata log's disk in a simulation: records that were fsynced, and an older copy of them."""

from collections.abc import Callable, Sequence

from raylog.cluster.controller.records import Record, decode, encode
from raylog.storage.errors import DiskFull, RaylogError, StorageError

PATH = "/metadata"
# So many appends find room on a full disk.
RESERVE_PIECES = 4


class MetadataDisk:
    """``appended`` hears of records that are about to be written, ``written`` of each that is."""

    def __init__(
        self,
        appended: Callable[[Sequence[Record]], None],
        written: Callable[[Record], None],
        restored: Callable[[], None],
    ) -> None:
        self._appended, self._written, self._restored = appended, written, restored
        self._log: list[bytes] = []
        self._backup: list[bytes] = []
        self.fails_next = ""
        self.is_full = False
        self.reserve_pieces = 0
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
        shortage = DiskFull(PATH) if self.is_full or failure == "full" else None
        if shortage is not None:
            if not (may_use_reserve and self.reserve_pieces):
                return shortage, None
            self.reserve_pieces -= 1
        self._appended(records)
        for record in records:
            self._log.append(encode(record))
            self._written(record)
        error = StorageError(PATH, "an fsync failed") if failure == "fsync" else None
        return error, shortage

    def make_reserve(self) -> DiskFull | None:
        """Make it whole; returns why that cannot be done."""
        if self.is_full:
            return DiskFull(PATH)
        self.reserve_pieces = RESERVE_PIECES
        return None

    def back_up(self) -> None:
        self._backup = list(self._log)

    def restore(self) -> None:
        """Put the older copy in place, if one was made."""
        if self._backup:
            self._log = list(self._backup)
            self.generation += 1
            self._restored()
