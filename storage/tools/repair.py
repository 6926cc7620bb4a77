"""Mends a partition's folder that no broker serves.

It makes a copy first, and then does the recovery that a start after a crash does.

Recovery is ``loader.py``'s: it checks every batch, ends the log before the first that is not good,
and makes indexes, the producers' snapshot and the leader epochs anew from what is left. What this
adds is the care of a tool that is run by hand: it takes the log dir's lock and the folder's, so
that nobody serves it; it changes nothing where nothing is wrong; it keeps a copy of all files; and
it takes whole segments behind a damaged one out of the log only if told to, which a broker does by
itself; and who runs it accepts that flushed records are lost (``losses.py``).

The copy is a folder beside the partition's, named as brokers name what they set aside (``-stray``):
raylog leaves it alone for ever. Source of the recovery: ``LogLoader`` of Kafka.
"""

import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from raylog.storage.clock import Clock
from raylog.storage.config import COMPACT, DELETE, LogConfig
from raylog.storage.errors import CorruptCheckpoint, RepairRefused, StorageError
from raylog.storage.files import FileSystem
from raylog.storage.loader import open_log
from raylog.storage.losses import accept_losses
from raylog.storage.names import (
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    STRAY_DIR_SUFFIX,
    SWAP_SUFFIX,
    TopicPartition,
    doomed_folder,
    parse_folder,
    segment_file,
)
from raylog.storage.report import Kind, Mended
from raylog.storage.state.checkpoints import (
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    read_offsets,
)
from raylog.storage.state.properties import read_topic_id
from raylog.storage.tools.folders import locked, partition_folder
from raylog.storage.tools.verify import SegmentReport, count_recoverable, verify_folder


class Repaired(NamedTuple):
    """What a repair did."""

    copy: str  # where the files are as they were
    mended: tuple[Mended, ...]  # what was cut, set aside, made again and removed
    lost: tuple[Mended, ...]  # flushed records that are missing; the log opens without them
    end_offset: int  # of the log now

    def of_kind(self, kind: Kind) -> list[Mended]:
        return [entry for entry in self.mended if entry.kind == kind]


def repair_folder(
    fs: FileSystem,
    clock: Clock,
    folder: str,
    *,
    copy_to: str | None = None,
    drop_segments: bool = False,
    is_compacted: bool = False,
    on_copy: Callable[[str], object] = bool,
) -> Repaired | None:
    """Repair ``folder``; None if nothing is wrong with it, and then nothing is changed.

    ``copy_to``: a folder that does not exist yet, or is empty, for the copy; default: one beside
    ``folder``. ``drop_segments``: segments behind a damaged one may leave the log. What leaves the
    log is set aside (``asides.py``).
    ``is_compacted``: the topic's ``cleanup.policy`` has compact. ``on_copy`` is told where the copy
    is before anything is changed. Raises LogLocked, NotAPartitionFolder, RepairRefused,
    CorruptCheckpoint or DiskFull with nothing changed but the copy made.
    """
    folder = partition_folder(fs, folder)
    partition = parse_folder(os.path.basename(folder))
    assert partition is not None
    with locked(fs, folder):
        before = verify_folder(fs, folder, is_compacted=is_compacted)
        if not any(report.problems for report in before):
            return None
        start_offset = _check(
            fs, folder, partition, before, drop_segments=drop_segments, is_compacted=is_compacted
        )
        copy = _copy(fs, folder, copy_to or _beside(folder, partition))
        on_copy(copy)
        _remove_wrong_state(fs, folder, before)
        config = LogConfig(cleanup_policy=COMPACT if is_compacted else DELETE)
        log = open_log(fs, clock, folder, partition, config, log_start_offset=start_offset)
        log.close()
        lost: list[Mended] = []
        with suppress(CorruptCheckpoint):  # the broker sets it aside, and then nothing is missed
            lost = accept_losses(fs, folder, is_compacted=is_compacted)
    return Repaired(copy=copy, mended=log.mended, lost=tuple(lost), end_offset=log.log_end_offset)


def _check(
    fs: FileSystem,
    folder: str,
    partition: TopicPartition,
    reports: Sequence[SegmentReport],
    *,
    drop_segments: bool,
    is_compacted: bool,
) -> int:
    """Raise where recovery would fail or remove more than was allowed.

    Returns the log start offset.
    """
    swaps = [name for name in fs.list_dir(folder) if name.endswith(SWAP_SUFFIX)]
    if swaps:
        raise RepairRefused(
            folder, f"a compaction is unfinished ({swaps[0]}); start the broker, which completes it"
        )
    read_topic_id(fs, folder)
    start = read_offsets(fs, os.path.join(os.path.dirname(folder), LOG_START_OFFSETS)).get(
        partition, 0
    )
    kept = count_recoverable(fs, folder, reports, is_compacted=is_compacted)
    last, lost = reports[kept - 1], reports[kept:]
    if last.next_offset < start:
        raise RepairRefused(
            folder,
            f"the undamaged part ends at offset {last.next_offset}, before the log start offset "
            f"{start}, so no record would be left; restore the folder from a copy",
        )
    if lost and not drop_segments:
        raise RepairRefused(folder, _why_kept(last, lost, is_compacted=is_compacted))
    return start


def _why_kept(last: SegmentReport, lost: Sequence[SegmentReport], *, is_compacted: bool) -> str:
    """Why segments behind the last good one are not set aside without a word, and what to do."""
    what = "is damaged" if last.is_torn else "or a segment that is gone lacks records"
    why = (
        f"{segment_file(last.base_offset, LOG_SUFFIX)} {what} after offset "
        f"{last.next_offset - 1}, and the repair would set aside the {len(lost)} segments "
        f"after it ({sum(report.size_bytes for report in lost)} bytes); restore the file from "
        "a copy, or allow this with --drop-segments (their records leave the log, and the files "
        "stay)"
    )
    if last.is_torn:
        return why
    why += "; `raylog log accept-loss` keeps them, if what is missing had been flushed"
    return why if is_compacted else why + "; if the topic is compacted, give --compacted"


def _remove_wrong_state(fs: FileSystem, folder: str, reports: Sequence[SegmentReport]) -> None:
    """Drop snapshots and leader epochs that disagree with the log.

    Recovery makes them again from the batches. It looks only at the snapshot that it begins with,
    and believes the leader epochs.
    """
    for report in reports:
        for problem in report.problems:
            if problem.file == LEADER_EPOCHS or problem.file.endswith(SNAPSHOT_SUFFIX):
                fs.remove(os.path.join(folder, problem.file))


def _beside(folder: str, partition: TopicPartition) -> str:
    return os.path.join(
        os.path.dirname(folder), doomed_folder(partition, uuid.uuid4(), STRAY_DIR_SUFFIX)
    )


def _copy(fs: FileSystem, folder: str, target: str) -> str:
    """Copy all files, on disk when this returns; a copy that fails is removed."""
    target = os.path.abspath(target)
    if os.path.commonpath([folder, target]) == folder:
        raise RepairRefused(folder, f"the folder for the copy, {target}, is inside; give another")
    if fs.exists(target) and (not fs.is_dir(target) or fs.list_dir(target)):
        raise RepairRefused(
            folder, f"the folder for the copy, {target}, already exists; give a new folder"
        )
    fs.make_dir(target)
    try:
        for name in fs.list_dir(folder):
            source = os.path.join(folder, name)
            if fs.is_dir(source):
                continue
            fs.copy_file(source, os.path.join(target, name), lambda _: None, flush=True)
        fs.sync_dir(target)
        fs.sync_dir(os.path.dirname(target))
    except StorageError:
        fs.remove_dir(target)
        raise
    return target
