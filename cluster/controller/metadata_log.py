"""The Controller's log on its disk: open or create it, replay it, append to it.

Every append is fsynced. The log ``__cluster_metadata-0`` lies beside the partitions, in a log dir
of the Controller's node (``home.py`` says in which). What the records are is in ``records.py``,
and what they add up to in ``desired.py``: the fold belongs to the machine, and this file only makes
it once, when the log is opened. Where the disk is full, some records may use the metadata's reserve
(``reserve.py``).

Beside it lie its last two snapshots (``actors/metadata_snapshot.py``). The log begins where the
older one ends, so that the newer one may be damaged. Each step below leaves what the next opening
can read, wherever a crash cuts it off::

    write a snapshot of all records, fsync, rename
    begin a new segment
    remove the segments before the end of the snapshot before, and then the snapshots before that
"""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from typing import Any

from raylog.actors.levels import LEVELS, Levels
from raylog.actors.metadata_history import HistoryPoint, MetadataHistory
from raylog.actors.metadata_snapshot import (
    MetadataSnapshot,
    SnapshotId,
    newest_snapshot,
    read_whole_file,
    write_snapshot,
)
from raylog.actors.metadata_start import find_start
from raylog.actors.node.metadata_copy import (
    all_batches,
    batches_from,
    forget_needless,
    open_metadata,
    values_of,
)
from raylog.actors.partition.locking import lock_patiently
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.putting import put_away, put_copy
from raylog.cluster.controller.records import (
    ClusterRecord,
    ControllerRecord,
    CopiesRecord,
    LevelRecord,
    Record,
    decode,
    encode,
)
from raylog.cluster.controller.reserve import PIECE_BYTES, Reserve
from raylog.cluster.controller.snapshots import desired_of
from raylog.storage.clock import Clock
from raylog.storage.errors import (
    DiskFull,
    LogMissing,
    OutOfResources,
    RaylogError,
    StorageError,
)
from raylog.storage.files import FileSystem
from raylog.storage.loader import create_log
from raylog.storage.log import Log
from raylog.storage.log_dir import METADATA_PARTITION, make_usable
from raylog.storage.names import DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX, doomed_folder
from raylog.storage.records.batch import read_header
from raylog.storage.records.encode import encode_records
from raylog.storage.records.scan import next_offset
from raylog.storage.state.controller_epoch import NO_EPOCH
from raylog.storage.state.properties import random_id, read_meta
from raylog.storage.wire import RELEASE

# One read of the replay.
REPLAY_BYTES = 1 << 20


class MetadataLog:
    """``__cluster_metadata-0`` in one log dir.

    ``copies_at``: the number of the last record of who is in sync, when it was opened; -1 for none.
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        log_dir: str,
        *,
        new_cluster: str = "",
        least_epoch: int = NO_EPOCH,
        levels: Levels = LEVELS,
    ) -> None:
        """Open the log in ``log_dir``. ``new_cluster``: the id of the cluster that begins there;
        what cannot be read is kept as ``-stray`` then.

        ``least_epoch``: the highest epoch of a Controller that its log dirs have obeyed. It is in
        the first batch of a new cluster, so that no crash leaves metadata that is older than them.

        Without it the log must exist, and none of its records may be damaged: LogMissing. Where
        the record of the cluster's id is lost it is written again, as the log dir has it. Raises
        also LogLocked, InvalidLogDir, UnsupportedLevel where this raylog does not know the level of
        the cluster, CorruptRecord where a newer raylog wrote it, and StorageError. ``levels``:
        those that it knows.
        """
        self._levels = levels
        self._fs, self._clock, self._log_dir = fs, clock, log_dir
        self._reserve = Reserve(fs, log_dir)
        self.folder = os.path.join(log_dir, str(METADATA_PARTITION))
        if new_cluster:
            self._put_damaged_away()
        if not fs.is_dir(self.folder):
            if not new_cluster:
                raise LogMissing(self.folder, _why_missing(fs, log_dir))
            make_usable(fs, log_dir)
            _make_folder(fs, self.folder)
        self._failed: StorageError | None = None
        self._snapshot: MetadataSnapshot | None = None  # of what comes before the records
        self._newest: HistoryPoint | None = None
        if self._open() != self._log.log_end_offset:
            self._close_gaps()
        try:
            epochs = self._log.epochs
            # Written before the first append, so that it is there on a full disk.
            epochs.assign(epochs.next, self._log.log_end_offset)
            if not self.desired.cluster_id:
                self._begin(self._known_cluster() or new_cluster or random_id(), least_epoch)
        except BaseException:
            self._let_go()
            raise

    def _put_damaged_away(self) -> None:
        """Keep as ``-stray`` what cannot be read where a new cluster shall begin all the same."""
        try:
            if self._fs.is_dir(self.folder):
                find_start(self._fs, self.folder)
        except LogMissing:
            put_away(self._fs, self._log_dir, STRAY_DIR_SUFFIX)

    def _open(self) -> int:
        """Lock it, read it back, and fold it; returns how many records were written to it."""
        self._lock = lock_patiently(lambda: self._fs.lock_dir(self.folder))
        try:
            self._snapshot = find_start(self._fs, self.folder)
            self._newest = None if self._snapshot is None else self._snapshot.point
            # Every append is flushed, so all of it is read back from the disk at each start and
            # checked: it is small. What a failed fsync has left in the page cache does not count.
            self._log = open_metadata(self._fs, self._clock, self.folder)
        except BaseException:
            self._lock.release()
            raise
        end = 0 if self._snapshot is None else self._snapshot.point.end
        self.copies_at = -1 if self._snapshot is None else self._snapshot.point.copies_at
        try:
            self.desired = self._desired_before()
            for value in self.values():
                record = decode(value, self._levels)
                self.desired.apply(record)
                if isinstance(record, CopiesRecord):
                    self.copies_at = end
                end += 1
            if end:
                self._levels.check(self.desired.level, self.folder)
        except BaseException:
            self._let_go()
            raise
        return end

    def _desired_before(self) -> Desired:
        """What the records add up to that are in the snapshot only."""
        return Desired() if self._snapshot is None else desired_of(self._snapshot, self._levels)

    def _let_go(self) -> None:
        """Close and unlock it as it is."""
        self._log.release()
        self._lock.release()

    def _close_gaps(self) -> None:
        """Number the records anew where a person has taken damaged ones out.

        The copies of other nodes take each record's offset for how many come before it. What was
        here is kept as ``-stray``.
        """
        try:
            batches = tuple(all_batches(self._log, self._first))
        finally:
            self._let_go()
        put_copy(
            self._fs, self._clock, self._log_dir, batches, is_outdated=False, begin=self._snapshot
        )
        self._open()

    def _known_cluster(self) -> str:
        """The id that the log dir has, where the log has lost the record of it; or empty.

        That was damaged, and a person has put back what was behind it. Raises LogMissing where the
        log dir does not say it either: another id would be that of no log dir.
        """
        if not self._log.log_end_offset:
            return ""
        meta = read_meta(self._fs, self._log_dir)
        if meta is None:
            why = (
                "the record that says which cluster it is of is lost, and the log dir has no "
                "meta.properties; write that first: `raylog log-dirs identify`"
            )
            raise LogMissing(self.folder, why)
        return meta.cluster_id

    def _begin(self, cluster_id: str, least_epoch: int) -> None:
        records: list[Record] = [ClusterRecord(cluster_id=cluster_id)]
        if least_epoch > self.desired.controller_epoch:
            records.append(ControllerRecord(epoch=least_epoch, node=""))
        is_new = not self._log.log_end_offset
        if is_new and self._levels.newest != self.desired.level:
            records.append(LevelRecord(level=self._levels.newest, release=RELEASE))
        self.append(records)
        for record in records:
            self.desired.apply(record)

    def append(
        self, records: Sequence[Record], *, may_use_reserve: bool = False
    ) -> DiskFull | None:
        """Write the records, all or none, and fsync them.

        Returns why a piece of the reserve was given up for them, where that was needed.

        A full disk or a shortage of descriptors leaves the log as it was: DiskFull or
        OutOfResources, and it may be tried again. After any other failure of a write or an fsync
        nobody knows what is on the disk: every later call raises that error again.
        """
        shortage: DiskFull | None = None
        while True:
            try:
                self._append(records)
                return shortage
            except DiskFull as error:
                if not may_use_reserve or not self._reserve.give_up_piece():
                    raise
                shortage = error.with_traceback(None)

    def values(self) -> Iterator[bytes]:
        """The values of the records that no snapshot has, in their order. Raises CorruptRecord."""
        return _values_of(self._log, self._first)

    @property
    def _first(self) -> int:
        """The number of the first record behind the snapshot with which the log was opened."""
        return 0 if self._snapshot is None else self._snapshot.point.end

    @property
    def start(self) -> int:
        """The number of the first record that it has itself; any thread may ask."""
        return self._log.log_start_offset

    @property
    def end(self) -> int:
        """How many records it has; any thread may ask."""
        return self._log.log_end_offset

    def history(self) -> MetadataHistory:
        """What tells the log from its copies, as it was when it was opened."""
        point = None if self._snapshot is None else self._snapshot.point
        return MetadataHistory(self.values(), begin=point)

    @property
    def directory_id(self) -> str:
        """Of its log dir; empty where the dir is new, or that cannot be read."""
        try:
            meta = read_meta(self._fs, self._log_dir)
        except RaylogError:
            return ""
        return "" if meta is None else meta.directory_id

    def batches(self, first: int, end: int, most_bytes: int) -> tuple[bytes, ...]:
        """Whole batches from the record ``first`` on, and before ``end``; any thread may ask."""
        found = batches_from(self._log, first, most_bytes) if first < end else ()
        return tuple(batch for batch in found if read_header(batch).base_offset < end)

    @property
    def newest(self) -> HistoryPoint | None:
        """The end of its newest snapshot; None where it has none. Any thread may ask."""
        return self._newest

    def snapshot_file(self, of: HistoryPoint) -> bytes:
        """The file of one of its last two snapshots; any thread may ask.

        Each time it is read as who gets it will: a disk may damage it at any time. Raises
        CorruptCheckpoint and NewerRecord where it is damaged, and StorageError.
        """
        return read_whole_file(self._fs, self.folder, SnapshotId(of.end, of.latest_epoch))

    def damaged_snapshots(self) -> tuple[str, ...]:
        """Why snapshots that are newer than the newest which can be read cannot."""
        return newest_snapshot(self._fs, self.folder).damaged

    def save(self, snapshot: MetadataSnapshot) -> tuple[str, ...]:
        """Write a snapshot of all records, and remove what the one before it has made needless.

        Returns why others that stay cannot be read. Raises StorageError; what is missing then is
        done with the next snapshot.
        """
        if self._failed is not None:
            raise copy(self._failed)
        assert snapshot.point.end == self._log.log_end_offset, "it is of other records"
        write_snapshot(self._fs, self.folder, snapshot, self._clock.now_ms())
        self._newest = snapshot.point
        self._roll()
        return forget_needless(self._fs, self._log, snapshot.id)

    def _roll(self) -> None:
        """Begin a new segment: only whole ones can be removed."""
        try:
            self._log.roll()
        except (DiskFull, OutOfResources):
            raise
        except StorageError as error:
            self._failed = error
            raise

    def make_reserve(self) -> None:
        """Make the reserve whole. Raises as ``Reserve.make``."""
        self._reserve.make()

    def make_room(self) -> None:
        """Make a piece of the reserve free if the disk is full: for an orderly stop."""
        try:
            is_full = self._fs.room(self._log_dir).usable_bytes < PIECE_BYTES
        except StorageError:
            return
        if is_full:
            self._reserve.give_up_piece()

    def _append(self, records: Sequence[Record]) -> None:
        if self._failed is not None:
            raise copy(self._failed)
        now_ms = self._clock.now_ms()
        rows: Sequence[Any] = [(now_ms, None, encode(record), ()) for record in records]
        end = self._log.log_end_offset
        try:
            self._log.append(encode_records(rows))
            self._log.flush()
        except StorageError as error:
            may_retry = isinstance(error, DiskFull | OutOfResources)
            is_undone = may_retry and self._log.log_end_offset == end
            if is_undone:
                raise
            self._failed = error
            if may_retry:  # as such it would say that nothing was written
                self._failed = StorageError(self.folder, str(error))
            raise self._failed from error

    def close(self) -> None:
        """Orderly end. Raises StorageError, with the folder unlocked all the same."""
        try:
            if self._failed is None:
                self._log.close()
        finally:
            self._let_go()


def _values_of(log: Log, offset: int) -> Iterator[bytes]:
    """The values of the records from an offset on."""
    while (found := log.read(offset, REPLAY_BYTES)).size_bytes:
        batches = found.read()
        behind = next_offset(batches, offset, found.end_offset)
        yield from values_of(batches, offset)
        offset = behind


def _why_missing(fs: FileSystem, log_dir: str) -> str:
    meta = read_meta(fs, log_dir)
    cluster = f" of cluster {meta.cluster_id}" if meta else ""
    return f"the metadata{cluster} is missing"


def _make_folder(fs: FileSystem, folder: str) -> None:
    """Make the log's folder, whole or not at all.

    It is made under a name that says it is to be removed, as which a crash leaves it.
    """
    log_dir = os.path.dirname(folder)
    draft_name = doomed_folder(METADATA_PARTITION, uuid.uuid4(), DELETE_DIR_SUFFIX)
    draft = os.path.join(log_dir, draft_name)
    try:
        create_log(fs, draft, random_id())
        fs.rename(draft, folder)
    except RaylogError:
        with suppress(RaylogError):
            fs.remove_dir(draft)
        raise
    fs.sync_dir(log_dir)
