"""The copy of the metadata log in one log dir: what the Controller pushes, fsynced. Knows no Ray.

The folder ``__cluster_metadata-0`` is the same as the Controller's own, batch for batch, so a
Controller may begin over it as it lies. Beside the log is the file ``controller-epoch``: the
highest epoch of a Controller that the copy has promised to, fsynced before anything of that one is
taken::

    <log dir>/__cluster_metadata-0/
      00000000000000000000.log ...     as of each partition
      controller-epoch                 the promise (``controller_epoch.py``)

**What a push does.** The copy takes nothing of a Controller with a lower epoch than it has promised
to, or has a record of. Where it agrees with the push on everything before ``base``, it goes on from
there: what it has already stays, and what differs is cut off with all behind it. Only the tail of a
Controller that was replaced is cut::

    copy     1 1 1 2 2          of epoch 2, which was lost
    push         1 3 3          base 2, of epoch 3
    then     1 1 1 3 3

Records of an earlier *era* (``metadata_history.py``) may have counted: a person has gone on without
this copy, or begun the cluster anew. Where any of them would be cut, the whole folder is set aside
as ``-stray``, and an empty one begins in its place.

If what differs lies in the epoch that pushes, two Controllers have had this epoch. Nothing is cut
then, and ``problem`` says so. In all cases the answer is what the copy has; the Controller finds
out from it where to go on (``following.py``).

**Snapshots.** A push may bring the file of one (``metadata_snapshot.py``). A copy that has all
records before its end keeps it, and removes what the one before has made needless, as the
Controller's log does. One that lacks any is made anew behind it, beside the old one, which goes
when the new one is on the disk with the promise. A crash in between leaves the old one, or none.
A snapshot that can be read is never cut. Where it has records of a lost Controller, since older
metadata was put in place, the Controller pushes from its first record on, or its own snapshot: the
copy is made anew.

Not its job: which log dir (``metadata_keeper.py``), and who calls: one thread at a time.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from raylog.actors.control import VERSION, MetadataKept, MetadataPush
from raylog.actors.errors import UnsupportedVersion
from raylog.actors.metadata_history import MetadataHistory, common_end, era_of
from raylog.actors.metadata_snapshot import (
    MetadataSnapshot,
    SnapshotId,
    from_bytes,
    newest_snapshot,
    remove_newer,
    remove_older,
    write_snapshot,
)
from raylog.actors.metadata_start import find_start
from raylog.storage.buffers import Buffer
from raylog.storage.clock import Clock
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    DiskFull,
    InconsistentClusterId,
    LogLocked,
    OutOfResources,
    RaylogError,
    StorageError,
)
from raylog.storage.files import FileSystem, Lock
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.names import (
    DELETE_DIR_SUFFIX,
    STRAY_DIR_SUFFIX,
    base_offsets,
    doomed_folder,
)
from raylog.storage.records.batch import iter_batches, read_header
from raylog.storage.records.decode import decode_records
from raylog.storage.state.controller_epoch import (
    NO_EPOCH,
    read_controller_epoch,
    write_controller_epoch,
)
from raylog.storage.state.properties import PARTITION_METADATA, random_id

# All records of one decision are one batch: for a topic of 10,000 partitions more than 3 MB, and
# names can be longer. By default a log takes 1 MiB.
BATCH_BYTES = 64 << 20
CONFIG = LogConfig(retention_ms=-1, max_message_bytes=BATCH_BYTES)
# Under it a folder of the metadata is made out of everybody's sight.
NEW_SUFFIX = ".new"
# One read of what lies there.
READ_BYTES = 1 << 20
# A copy that could not be opened is tried again after this; one that is locked, at once.
REOPEN_MS = 5_000
# A Controller hears an answer before it pushes again. More are remembered than it can lack.
MOST_ANSWERS = 64


class MetadataCopy:
    """The copy in one log dir. Nothing lies there before something is pushed."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        log_dir: str,
        *,
        cluster_id: str,
        node: str,
        life: str,
        directory_id: str,
        steady: Clock | None = None,
    ) -> None:
        """``clock``: of the records. ``steady``: one that is never set; None: the same.

        ``node``, ``life``, ``directory_id``: as ``MetadataKept`` has them.
        """
        self._fs, self._clock, self._steady = fs, clock, steady or clock
        self._cluster_id = cluster_id
        self.folder = os.path.join(log_dir, str(METADATA_PARTITION))
        self._kept = MetadataKept(node=node, life=life, directory_id=directory_id)
        self._answers = _Answers()
        self._open: _OpenCopy | None = None
        self._why_not: RaylogError | None = None  # it could not be opened, or has failed
        self._not_before_ms = 0

    # -- what is asked of it -----------------------------------------------------------------------

    def status(self) -> MetadataKept:
        """What it has. Nothing is made where nothing lies."""
        try:
            if self._has_folder():
                self._opened()
        except RaylogError as error:
            return self._answer(error)
        return self._answer()

    def promise(self, epoch: int) -> MetadataKept:
        """Take nothing of a Controller with a lower epoch from now on: on the disk when it answers.

        ``promised`` in the answer is what counts: it may be higher, or the disk may have failed.
        Where nothing lies nothing is promised: nobody counts on what is not there, and whoever puts
        a folder back must not find another one in its place.
        """
        try:
            if self._has_folder():
                self._opened().promise(epoch)
        except RaylogError as error:
            return self._failed(error)
        return self._answer()

    def take(self, push: MetadataPush) -> MetadataKept:
        """Take what fits of a push, on the disk when it answers. Raises UnsupportedVersion."""
        if push.version > VERSION:
            raise UnsupportedVersion(self.folder, push.version, VERSION)
        try:
            if push.cluster_id != self._cluster_id:
                raise InconsistentClusterId(self.folder, self._cluster_id, push.cluster_id)
            begin = self._snapshot_of(push)
            opened = self._opened()
            if opened.must_begin_anew(begin, push):
                is_kept = opened.was_given_up_for(begin, push)
                self._begin_anew(begin, opened.promised, is_kept=is_kept)
            is_refused, problem = self._opened().take(push)
            if begin is not None and not is_refused:
                self._opened().keep(begin)
        except RaylogError as error:
            return self._failed(error)
        if is_refused:
            return replace(self._answer(), problem=problem)
        if push.life == self._kept.life:
            self._answers.heard(push.controller_epoch, push.heard)
        number = self._answers.given(push.controller_epoch, self._steady.now_ms())
        return replace(self._answer(), number=number)

    def read(self, first: int, most_bytes: int) -> tuple[bytes, ...]:
        """Whole batches from the one that holds the record ``first`` on; at least one.

        None at the end. Raises why it cannot be read.
        """
        if not self._has_folder():
            return ()
        return self._opened().read(first, most_bytes)

    def release(self) -> None:
        """Close and unlock the folder. The next request opens it again, if nobody has locked it."""
        opened, self._open = self._open, None
        self._why_not, self._not_before_ms = None, 0
        if opened is not None:
            opened.close()

    # -- its parts ---------------------------------------------------------------------------------

    def _snapshot_of(self, push: MetadataPush) -> MetadataSnapshot | None:
        if not push.snapshot:
            return None
        begin = from_bytes(push.snapshot, self.folder)
        if begin.point.cluster_id != self._cluster_id:
            cluster_id = begin.point.cluster_id
            raise InconsistentClusterId(self.folder, self._cluster_id, cluster_id)
        return begin

    def _begin_anew(self, begin: MetadataSnapshot | None, promised: int, *, is_kept: bool) -> None:
        """Have an empty log in the place of what is there, behind a snapshot if there is one.

        ``is_kept``: what is there is set aside; else it goes.
        """
        fs, log_dir = self._fs, os.path.dirname(self.folder)
        made = self.folder + NEW_SUFFIX
        if fs.is_dir(made):  # of a copy that was cut off
            remove_folder(fs, made)
        create_log(fs, made, random_id(), 0 if begin is None else begin.point.end)
        if begin is not None:
            write_snapshot(fs, made, begin, self._clock.now_ms())
        write_controller_epoch(fs, made, promised)
        self.release()
        suffix = STRAY_DIR_SUFFIX if is_kept else DELETE_DIR_SUFFIX
        away = doomed_folder(METADATA_PARTITION, uuid.uuid4(), suffix)
        fs.rename(self.folder, os.path.join(log_dir, away))
        fs.rename(made, self.folder)
        fs.sync_dir(log_dir)

    def _has_folder(self) -> bool:
        return self._open is not None or self._fs.is_dir(self.folder)

    def _opened(self) -> "_OpenCopy":
        if self._open is not None:
            return self._open
        now_ms = self._steady.now_ms()
        if self._why_not is not None and now_ms < self._not_before_ms:
            raise self._why_not
        try:
            self._open = _OpenCopy(self._fs, self._clock, self.folder, self._cluster_id)
        except LogLocked:
            raise
        except RaylogError as error:
            self._why_not, self._not_before_ms = error, now_ms + REOPEN_MS
            raise
        self._why_not = None
        return self._open

    def _failed(self, error: RaylogError) -> MetadataKept:
        """The answer after an error. What nobody knows to be on the disk is read back from it."""
        opened = self._open
        if opened is not None and opened.has_failed:
            self._open = None
            self._why_not, self._not_before_ms = error, self._steady.now_ms() + REOPEN_MS
            opened.let_go()
        return self._answer(error)

    def _answer(self, error: RaylogError | None = None) -> MetadataKept:
        heard_ms = self._answers.heard_ms
        idle_ms = -1 if heard_ms is None else self._steady.now_ms() - heard_ms
        kept = replace(self._kept, idle_ms=idle_ms, problem="" if error is None else str(error))
        if self._open is None:
            return kept
        history = self._open.history
        return replace(
            kept,
            cluster_id=history.cluster_id,
            end=history.end,
            digest=history.digest_at(history.end),
            epochs=history.epochs,
            promised=self._open.promised,
            snapshot_end=self._open.snapshot_end,
        )


class _Answers:
    """The answers to one Controller's pushes, and which of them it has got.

    ``heard_ms``: when the last of these was given; None for none.
    """

    def __init__(self) -> None:
        self.heard_ms: int | None = None
        self._epoch = NO_EPOCH
        self._number = 0
        self._given_ms: dict[int, int] = {}  # of those that may be heard yet

    def given(self, epoch: int, now_ms: int) -> int:
        """The number of an answer that is given now."""
        if epoch != self._epoch:
            self._epoch, self._given_ms, self.heard_ms = epoch, {}, None
        self._number += 1
        self._given_ms[self._number] = now_ms
        while len(self._given_ms) > MOST_ANSWERS:
            del self._given_ms[next(iter(self._given_ms))]
        return self._number

    def heard(self, epoch: int, number: int) -> None:
        """The Controller has got this one; those before it matter no more."""
        if epoch != self._epoch or number not in self._given_ms:
            return
        self.heard_ms = self._given_ms[number]
        self._given_ms = {n: at for n, at in self._given_ms.items() if n > number}


class _OpenCopy:
    """The folder while it is open and locked. ``promised``, ``snapshot_end``: as of
    ``MetadataKept``.

    ``has_failed``: after a write of which nobody knows whether it is on the disk.
    """

    def __init__(self, fs: FileSystem, clock: Clock, folder: str, cluster_id: str) -> None:
        """Open the folder, or make it. Raises why that cannot be."""
        self._fs, self._clock, self.folder = fs, clock, folder
        self.has_failed = False
        if not fs.is_dir(folder) or _is_unfinished(fs, folder):
            create_log(fs, folder, random_id())
        self._lock: Lock = fs.lock_dir(folder)
        try:
            self._begin = find_start(fs, folder)
            # Small, and fsynced with each push: all of it is read back from the disk, and checked.
            self._log = open_metadata(fs, clock, folder)
        except BaseException:
            self._lock.release()
            raise
        try:
            self.promised = read_controller_epoch(fs, folder)
            self.history = self._read_history()
            self.snapshot_end = self.history.start
            if self.history.cluster_id not in ("", cluster_id):
                raise InconsistentClusterId(folder, self.history.cluster_id, cluster_id)
        except BaseException:
            self.let_go()
            raise

    def promise(self, epoch: int) -> None:
        if epoch <= self.promised:
            return
        try:
            write_controller_epoch(self._fs, self.folder, epoch)
        except RaylogError as error:
            self.has_failed = not isinstance(error, DiskFull | OutOfResources)
            raise
        self.promised = epoch

    def take(self, push: MetadataPush) -> tuple[bool, str]:
        """Whether nothing was taken, and the problem where two Controllers have had one epoch."""
        history = self.history
        if push.controller_epoch < max(self.promised, history.latest_epoch):
            return True, ""
        self.promise(push.controller_epoch)
        if not self._agrees(push):
            return True, ""
        new = self._without_known(push)
        if new.base < self.snapshot_end:
            return True, ""
        if new.batches and new.base < history.end:
            if history.latest_epoch == push.controller_epoch:
                why = (
                    f"record {new.base} is another one than that of the Controller, though both "
                    f"are of epoch {push.controller_epoch}"
                )
                return True, why
            self._cut(new.base)
            if self.history.end < new.base:  # the Controller goes on from there
                return False, ""
        self._append(new.batches)
        return False, ""

    def _agrees(self, push: MetadataPush) -> bool:
        """Whether it has what comes before a push, as far as it has it itself."""
        first = max(self.history.start, self._log.log_start_offset)
        if not first <= _first_of(push) <= push.base <= self.history.end:
            return False
        return self.history.digest_at(push.base) == push.digest

    def _without_known(self, push: MetadataPush) -> MetadataPush:
        """The push from the first batch on that differs from what lies here."""
        base = _first_of(push)
        for number, batch in enumerate(push.batches):
            values = list(values_of(batch))
            known = self._values(base)
            if any(value != next(known, None) for value in values):
                return replace(push, base=base, batches=push.batches[number:])
            base += len(values)
        return replace(push, base=base, batches=())

    def _cut(self, end: int) -> None:
        """Cut the log at the beginning of the batch that holds the record ``end``."""
        held = self._log.read(end, 1).read()
        _, header = next(iter_batches(held))
        # Those that are left are damaged. They would say that the log has lost what is cut.
        remove_newer(self._fs, self.folder, header.base_offset)
        try:
            self._log.truncate_to(header.base_offset)
            self._log.flush()
        except StorageError:
            self.has_failed = True
            raise
        self.history = self._read_history()

    def must_begin_anew(self, begin: MetadataSnapshot | None, push: MetadataPush) -> bool:
        """Whether it can go on with a push only anew, and the push may replace what it has.

        Then it has promised to the Controller that pushes. ``begin``: the snapshot of the push.
        """
        if push.controller_epoch < max(self.promised, self.history.latest_epoch):
            return False
        is_wanted = self._is_replaced(push, 0) if begin is None else self._lacks(begin, push)
        is_wanted = is_wanted or self._would_cut_era(push)
        if is_wanted:
            self.promise(push.controller_epoch)
        return is_wanted

    def _is_of_earlier_era(self, push: MetadataPush) -> bool:
        return era_of(self.history.latest_epoch) < era_of(push.controller_epoch)

    def _would_cut_era(self, push: MetadataPush) -> bool:
        """Whether a push would cut records of an earlier era."""
        if not self._is_of_earlier_era(push) or not self._agrees(push):
            return False
        new = self._without_known(push)
        return bool(new.batches) and new.base < self.history.end

    def was_given_up_for(self, begin: MetadataSnapshot | None, push: MetadataPush) -> bool:
        """Whether records of it, which is begun anew, may have counted in an earlier era."""
        if not self._is_of_earlier_era(push):
            return False
        if begin is None:
            return True
        history, point = self.history, begin.point
        shared = common_end(history.epochs, history.end, point.epochs, point.end)
        return shared < history.end

    def _is_replaced(self, push: MetadataPush, first: int) -> bool:
        """Whether its snapshot has records of a lost Controller; the push begins at ``first``."""
        is_of_another = self.history.latest_epoch < push.controller_epoch
        return push.base == first < self.snapshot_end and is_of_another

    def _lacks(self, begin: MetadataSnapshot, push: MetadataPush) -> bool:
        """Whether it lacks records before a snapshot's end, or has others."""
        history, point = self.history, begin.point
        if history.has(point) or point.end <= history.start:
            return self._is_replaced(push, point.end)
        shared = common_end(history.epochs, history.end, point.epochs, point.end)
        has_others = shared < history.end or history.end >= point.end
        # If two Controllers have had this epoch, a person decides.
        return not (has_others and history.latest_epoch == push.controller_epoch)

    def keep(self, begin: MetadataSnapshot) -> None:
        """Keep a snapshot of what it has, and remove what the one before has made needless."""
        if begin.point.end <= self.snapshot_end or not self.history.has(begin.point):
            return
        write_snapshot(self._fs, self.folder, begin, self._clock.now_ms())
        try:
            self._log.roll()
        except StorageError as error:
            self.has_failed = not isinstance(error, DiskFull | OutOfResources)
            raise
        self._begin, self.snapshot_end = begin, begin.point.end
        forget_needless(self._fs, self._log, begin.id)

    def _read_history(self) -> MetadataHistory:
        if self._begin is None:
            return MetadataHistory(self._values())
        return MetadataHistory(self._values(self._begin.point.end), begin=self._begin.point)

    def _append(self, batches: tuple[bytes, ...]) -> None:
        """Append them in order, and fsync what was appended, also where the disk is full then."""
        try:
            for batch in batches:
                self._append_one(batch)
        finally:
            if batches and not self.has_failed:
                self._flush()

    def _append_one(self, batch: bytes) -> None:
        end = self._log.log_end_offset
        values = list(values_of(batch))
        try:
            self._log.append(batch)
        except StorageError as error:
            is_undone = isinstance(error, DiskFull | OutOfResources)
            self.has_failed = not is_undone or self._log.log_end_offset != end
            raise
        for value in values:
            self.history.add(value)

    def _flush(self) -> None:
        try:
            self._log.flush()
        except StorageError:
            self.has_failed = True
            raise

    def read(self, first: int, most_bytes: int) -> tuple[bytes, ...]:
        return batches_from(self._log, first, most_bytes)

    def _values(self, first: int = 0) -> Iterator[bytes]:
        for batch in all_batches(self._log, first):
            yield from values_of(batch, first)

    def close(self) -> None:
        try:
            self._log.close()
        except StorageError:
            pass  # every push was fsynced: nothing is lost
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Unlock the folder as it is."""
        with suppress(StorageError):
            self._log.release()
        self._lock.release()


def _first_of(push: MetadataPush) -> int:
    """The first record that a push brings: its first batch may begin before ``base``.

    So it is where the Controller's log has in one batch what the copy has in several.
    """
    if not push.batches:
        return push.base
    return min(push.base, read_header(push.batches[0]).base_offset)


def _is_unfinished(fs: FileSystem, folder: str) -> bool:
    """Whether a crash has left a folder that never had a log. One that has lost it is an error."""
    return all(name.startswith(PARTITION_METADATA) for name in fs.list_dir(folder))


# -- batches and the values in them ----------------------------------------------------------------


def values_of(batches: Buffer, first: int = 0) -> Iterator[bytes]:
    """The values of the records with numbers from ``first`` on. Raises CorruptRecord."""
    for record in decode_records(batches, start_offset=first):
        yield record.value or b""


def open_metadata(fs: FileSystem, clock: Clock, folder: str) -> Log:
    """The metadata log in a folder, read back from the disk. Raises as ``open_log``."""
    first = min(base_offsets(fs.list_dir(folder)), default=0)  # what is before is in a snapshot
    return open_log(fs, clock, folder, METADATA_PARTITION, CONFIG, log_start_offset=first)


def forget_before(log: Log, end: int) -> None:
    """Remove the segments of a metadata log that have no record from ``end`` on."""
    locks = log.locks
    with locks.old, locks.flush:
        log.delete_records(end)
    with locks.old:
        log.delete_old_segments()
    log.purge_deleted()


def forget_needless(fs: FileSystem, log: Log, newest: SnapshotId) -> tuple[str, ...]:
    """Remove what the snapshot before the newest has made needless, if there is one.

    Returns why those between these two cannot be read: they stay. Raises StorageError; what is left
    then goes with the next one.
    """
    found = newest_snapshot(fs, log.folder, before=newest)
    before = found.newest
    if before is not None:
        forget_before(log, before.point.end)
        remove_older(fs, log.folder, before.id)
    return found.damaged


def remove_folder(fs: FileSystem, folder: str) -> None:
    """Remove a folder with its files."""
    for name in fs.list_dir(folder):
        fs.remove(os.path.join(folder, name))
    fs.remove_dir(folder)


def batches_from(log: Log, first: int, most_bytes: int) -> tuple[bytes, ...]:
    """Whole batches of a metadata log from the one that holds the record ``first`` on.

    At least one, and about ``most_bytes``; none at the log's end. Any thread may call it.
    """
    if first >= log.log_end_offset:
        return ()
    held = memoryview(log.read(first, most_bytes).read())
    return tuple(
        bytes(held[position : position + header.size_bytes])
        for position, header in iter_batches(held)
    )


def all_batches(log: Log, first: int = 0) -> Iterator[bytes]:
    """The record batches of a metadata log from the one that holds the record ``first`` on."""
    while batches := batches_from(log, first, READ_BYTES):
        yield from batches
        _, header = next(iter_batches(batches[-1]))
        first = header.last_offset + 1
