"""Looking at a node's log dirs for the metadata, before anybody has opened anything. No Ray.

This only reads, and mends no file. A log that a crash has left torn is read up to the torn place,
as its recovery will. Where a cluster may begin, the lock of each log dir is tried, and released at
once.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial

from raylog.actors.errors import MetadataUnreadable, NewerRecord, UnsupportedLevel
from raylog.actors.metadata_history import MetadataHistory
from raylog.actors.metadata_snapshot import MetadataSnapshot, check_snapshots
from raylog.actors.metadata_start import find_start
from raylog.actors.node.metadata_copy import values_of
from raylog.cluster.controller.copies import Copy, SurveyedDir
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.records import decode
from raylog.cluster.controller.snapshots import desired_of
from raylog.storage.asides import aside_names
from raylog.storage.errors import FileGone, LogLocked, LogMissing, OutOfResources, RaylogError
from raylog.storage.files import FileSystem
from raylog.storage.log_dir import LOCK_FILE, METADATA_PARTITION
from raylog.storage.names import LOG_SUFFIX, base_offsets, segment_file
from raylog.storage.records.batch import iter_batches
from raylog.storage.records.scan import scan_batches
from raylog.storage.state.controller_epoch import NO_EPOCH, read_controller_epoch
from raylog.storage.state.properties import read_meta

# For all log dirs of a node. A healthy disk takes milliseconds.
ANSWER_TIMEOUT_S = 10.0
# A folder whose files are removed while it is read is read again, so often in all.
MOST_READS = 5
SILENT = f"it has not answered within {ANSWER_TIMEOUT_S:.0f} s; its disk may hang"

Look = Future[None]
Looks = Sequence[Look]


class Surveyor:
    """Looks at log dirs, each in a thread of its own: one that hangs holds up only itself.

    It counts as unreadable then. While it hangs no other thread looks at it, so a process that asks
    again and again has one Surveyor.
    """

    def __init__(self, fs: FileSystem, wait: Callable[[Looks], object] | None = None) -> None:
        """``wait``: returns when all have ended, or after ANSWER_TIMEOUT_S."""
        self._fs = fs
        self._wait = wait or partial(futures.wait, timeout=ANSWER_TIMEOUT_S)
        self._lock = threading.Lock()
        self._looks: dict[str, _Look] = {}

    def survey(
        self, node_id: str, paths: Sequence[str], *, node: str = "", tries_locks: bool = False
    ) -> list[SurveyedDir]:
        """What lies in each of a node's log dirs, in their order.

        ``node``: its key. ``tries_locks``: find out also which of them another process has locked.
        Raises OutOfResources where a thread cannot be started.
        """
        looks = [self._look_at(node_id, path, tries_locks) for path in paths]
        self._wait([look.ended for look in looks if not look.is_late])
        return [replace(look.result(), node=node) for look in looks]

    def _look_at(self, node_id: str, path: str, tries_locks: bool) -> "_Look":
        """A look that has begun; the one of before where that has not ended."""
        with self._lock:
            before = self._looks.get(path)
            if before is not None and not before.ended.done():
                return before
            look = _Look(self._fs, node_id, path, tries_locks)
            try:
                threading.Thread(target=look.run, name="survey", daemon=True).start()
            except RuntimeError as error:
                raise OutOfResources(path, str(error)) from error
            self._looks[path] = look
            return look


class _Look:
    """A look at one log dir. ``is_late``: it was given up; what it finds yet counts no more."""

    def __init__(self, fs: FileSystem, node_id: str, path: str, tries_lock: bool) -> None:
        self.ended: Look = Future()
        self.is_late = False
        self._fs = fs
        self._path, self._tries_lock = path, tries_lock
        self._found = SurveyedDir(node_id=node_id, path=path)  # so far

    def run(self) -> None:
        try:
            self._look()
        except (NewerRecord, UnsupportedLevel) as error:
            self._found = replace(self._found, problem=str(error), is_of_newer=True)
        except RaylogError as error:
            self._found = replace(self._found, problem=error.problem)
        except BaseException as error:
            self.ended.set_exception(error)
            return
        self.ended.set_result(None)

    def result(self) -> SurveyedDir:
        """What was found. Raises what is no error of raylog's."""
        if not self.ended.done():
            self.is_late = True
        if self.is_late:
            return replace(self._found, copy=None, problem=SILENT, is_of_newer=False)
        self.ended.result()
        return self._found

    def _look(self) -> None:
        fs, path = self._fs, self._path
        folder = os.path.join(path, str(METADATA_PARTITION))
        self._found = replace(
            self._found, obeyed_epoch=_obeyed_epoch(fs, path), real_path=fs.real_path(path)
        )
        if self._tries_lock:
            self._found = replace(self._found, is_locked=_is_locked(fs, path))
        if not fs.is_dir(path):
            self._found = replace(self._found, is_missing=True)
            return
        self._found = replace(self._found, has_metadata=fs.is_dir(folder))
        meta = read_meta(fs, path)
        if meta is not None:
            self._found = replace(
                self._found, cluster_id=meta.cluster_id, directory_id=meta.directory_id
            )
        if self._found.has_metadata:
            self._found = replace(self._found, asides=tuple(aside_names(fs, folder)))
            copy = self._read(folder)
            if copy.end and not copy.cluster_id and meta is not None:  # the record of it is lost
                copy = replace(copy, cluster_id=meta.cluster_id)
            promised = _obeyed_epoch(fs, folder)
            self._found = replace(self._found, promised_epoch=promised, copy=copy)
            damaged = _damaged_snapshots(fs, folder)
            self._found = replace(self._found, damaged_snapshots=damaged)

    def _read(self, folder: str) -> Copy:
        """The metadata. Where its last batch is damaged, what comes before is noted."""
        try:
            return read_whole(self._fs, folder)
        except LogMissing:
            with suppress(RaylogError):
                begin = find_start(self._fs, folder, but_for_last=True)
                part = _read_from(self._fs, folder, begin)
                self._found = replace(self._found, whole_part=part)
            raise


def _damaged_snapshots(fs: FileSystem, folder: str) -> tuple[str, ...]:
    """What is wrong with snapshots of a copy that can be read. It is for people: no error."""
    with suppress(RaylogError):
        return tuple(entry.told for entry in check_snapshots(fs, folder) if entry.damage)
    return ()


def _is_locked(fs: FileSystem, path: str) -> bool:
    """Whether another process uses a log dir. One without a lock file is free; none is made."""
    lock_file = os.path.join(path, LOCK_FILE)
    try:
        if fs.exists(lock_file):
            fs.lock(lock_file).release()
    except LogLocked:
        return True
    except RaylogError:  # whoever opens the dir says it
        return False
    return False


def _obeyed_epoch(fs: FileSystem, path: str) -> int:
    """The highest epoch that a log dir has obeyed, or a copy promised to; -1 for none known."""
    try:
        return read_controller_epoch(fs, path)
    except RaylogError:  # the node says it when it opens the dir, and does not use it
        return NO_EPOCH


def read_whole(fs: FileSystem, folder: str) -> Copy:
    """The metadata in a folder.

    Raises LogMissing and MetadataUnreadable as ``find_start`` does, and NewerRecord or
    UnsupportedLevel where a newer raylog wrote it.
    """
    for _ in range(MOST_READS - 1):
        names = fs.list_dir(folder)
        try:
            return _read_once(fs, folder)
        except (FileGone, LogMissing, MetadataUnreadable):
            # Who writes it may have removed segments that a snapshot has made needless.
            if fs.list_dir(folder) == names:
                raise
    return _read_once(fs, folder)


def _read_once(fs: FileSystem, folder: str) -> Copy:
    return _read_from(fs, folder, find_start(fs, folder))


def _read_from(fs: FileSystem, folder: str, begin: MetadataSnapshot | None) -> Copy:
    first = 0 if begin is None else begin.point.end
    reader = CopyReader(begin)
    for batch in batches_of(fs, folder, first):
        for value in values_of(batch, first):
            reader.take(value)
    return reader.copy()


class CopyReader:
    """Reads a copy record by record. ``begin``: the snapshot of what comes before these."""

    def __init__(self, begin: MetadataSnapshot | None = None) -> None:
        """Raises as ``desired_of``."""
        self._desired = Desired() if begin is None else desired_of(begin)
        self._history = MetadataHistory(begin=None if begin is None else begin.point)

    def take(self, value: bytes) -> None:
        """The value of the next record. Raises as ``decode`` does."""
        record = decode(value)
        self._history.add(value)
        self._desired.apply(record)

    def copy(self) -> Copy:
        """What was read so far."""
        desired, history = self._desired, self._history
        controller = desired.controller
        is_ruled = history.ruled_from >= 0
        return Copy(
            cluster_id=desired.cluster_id,
            controller_epoch=desired.controller_epoch,
            topics=len(desired.topics),
            digests=history.digests,
            controller="" if controller is None else controller.node,
            controller_dir="" if controller is None else controller.directory,
            in_sync=dict(zip(desired.copy_dirs, desired.copies, strict=True)) if is_ruled else None,
            ruled_from=history.ruled_from,
            is_stopped=desired.is_all_stopped,
            copies_at=history.copies_at,
            first=history.start,
            first_digest=history.digest_at(history.start),
            epochs=history.epochs,
        )


def batches_of(fs: FileSystem, folder: str, first: int | None = None) -> Iterator[memoryview]:
    """The record batches in a folder of the metadata, up to a torn end. This only reads.

    ``first``: only those with records from this one on; None: all that there are. Raises FileGone
    where that record is gone.
    """
    bases = base_offsets(fs.list_dir(folder))
    if first is None:
        first = bases[0] if bases else 0
    if bases and bases[0] > first:
        raise FileGone(os.path.join(folder, segment_file(first, LOG_SUFFIX)))
    for base_offset in bases:
        path = os.path.join(folder, segment_file(base_offset, LOG_SUFFIX))
        content = memoryview(fs.read_file(path))
        whole = content[: scan_batches(content, verify=True).end]
        for position, header in iter_batches(whole):
            if header.last_offset >= first:
                yield whole[position : position + header.size_bytes]
