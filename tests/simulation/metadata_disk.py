"""The metadata log's disk in a simulation: records that were fsynced, and an older copy of them."""

from collections.abc import Callable, Sequence

from raylog.actors.control import MetadataKept
from raylog.actors.metadata_history import MetadataHistory
from raylog.cluster.controller.records import Record, decode, encode
from raylog.storage.errors import DiskFull, RaylogError, StorageError
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.clock import T0
from tests.simulation.upgrades import NEW

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
        self._history = MetadataHistory()  # of the log
        self._batches: list[tuple[int, bytes]] = []  # of the log: the first record, and the bytes
        self._backup: list[bytes] = []
        self.fails_next = ""
        self.is_full = False
        self.reserve_pieces = 0
        self.generation = 0  # of the files, which a restore puts in the place of the old ones

    @property
    def was_restored(self) -> bool:
        return self.generation > 0

    def records(self) -> list[Record]:
        return [decode(value, NEW) for value in self._log]

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
        self._put([encode(record) for record in records])
        for record in records:
            self._written(record)
        error = StorageError(PATH, "an fsync failed") if failure == "fsync" else None
        return error, shortage

    def _put(self, values: list[bytes]) -> None:
        rows = [(T0, None, value, ()) for value in values]
        batch = bytes(encode_records(rows, base_offset=len(self._log)))
        self._batches.append((len(self._log), batch))
        self._log += values
        for value in values:
            self._history.add(value)

    def has(self, kept: MetadataKept) -> bool:
        """Whether the records of a copy are those of the log, as far as the copy goes."""
        return self._history.digest_at(kept.end) == kept.digest

    def history(self) -> MetadataHistory:
        """What tells it from its copies."""
        return MetadataHistory(self._log)

    def batches(self, base: int, end: int) -> tuple[bytes, ...]:
        """From the record ``base`` on, and before ``end``."""
        return tuple(batch for first, batch in self._batches if base <= first < end)

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
            self._history = MetadataHistory(self._log)
            self._batches = [entry for entry in self._batches if entry[0] < len(self._log)]
            self.generation += 1
            self._restored()
