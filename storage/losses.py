"""Fsynced records that are missing, and what somebody said to that.

A log that ends before its recovery point lost records that were on the disk for sure: a file was
removed, restored from an older copy, or damaged. Opening refuses it (LogShorterThanFlushed), since
it would give the missing offsets to new records. Who knows that the records are gone for good says
so once; that is written into the partition's folder, and the log opens from there::

    accepted-losses      0            version
                         1            how many entries follow
                         10 12        offsets from 10 on, before 12, are lost and may be given again

An entry counts as long as the recovery point in the log dir's checkpoint is its end: that file
still has the old one until the first checkpoint after the opening. With any other recovery point, a
missing record is another loss, which nobody accepted. What lies below the log start offset is no
loss.
"""

import os

from raylog.storage.config import LogConfig
from raylog.storage.errors import LogMissing
from raylog.storage.files import FileSystem
from raylog.storage.gaps import Gaps, Recovered
from raylog.storage.limits import MAX_LONG
from raylog.storage.names import DELETED_SUFFIX, LOG_SUFFIX, offset_of, parse_folder, segment_file
from raylog.storage.recovery import Batches
from raylog.storage.report import Mended
from raylog.storage.segment import Segment
from raylog.storage.state.checkpoints import (
    ACCEPTED_LOSSES,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_losses,
    read_offsets,
    write_losses,
)


def is_accepted(fs: FileSystem, folder: str, end_offset: int, recovery_point: int) -> bool:
    """Whether somebody accepted that a log ends here, with this recovery point."""
    losses = read_losses(fs, os.path.join(folder, ACCEPTED_LOSSES))
    return any(first <= end_offset and recovery_point == end for first, end in losses)


def loss(folder_end: int, recovery_point: int, base_offset: int) -> Mended:
    """The report of an accepted loss. ``base_offset``: of the log's last segment."""
    return Mended(
        kind="lost",
        file=segment_file(base_offset, LOG_SUFFIX),
        size_bytes=0,
        first_offset=folder_end,
        end_offset=recovery_point,
        why="flushed records are missing, and the loss was accepted",
    )


def find_loss(fs: FileSystem, folder: str, *, is_compacted: bool = False) -> Mended | None:
    """The flushed records that a log has lost; None if it has lost none. Changes nothing.

    The log must be closed. The recovery point is that of the log dir's checkpoint.
    ``is_compacted``: the topic's ``cleanup.policy`` has compact. Raises LogMissing or
    CorruptCheckpoint.
    """
    folder = os.path.abspath(folder)
    recovery_point = checkpointed(fs, folder, RECOVERY_POINTS)
    if recovery_point <= checkpointed(fs, folder, LOG_START_OFFSETS):
        return None
    base_offset, end_offset = _end_by_recovery(fs, folder, recovery_point, is_compacted)
    if end_offset >= recovery_point:
        return None
    return loss(end_offset, recovery_point, base_offset)


def accept_loss(fs: FileSystem, folder: str, *, is_compacted: bool = False) -> Mended | None:
    """Let a log open that has lost flushed records; returns as ``find_loss``, and raises so.

    What was accepted is on the disk when this returns; accepting it again changes nothing.
    """
    lost = find_loss(fs, folder, is_compacted=is_compacted)
    if lost is not None and not is_accepted(fs, folder, lost.first_offset, lost.end_offset):
        path = os.path.join(folder, ACCEPTED_LOSSES)
        losses = [*read_losses(fs, path), (lost.first_offset, lost.end_offset)]
        write_losses(fs, path, losses)
    return lost


def checkpointed(fs: FileSystem, folder: str, name: str) -> int:
    """What a checkpoint of the log dir has for a partition; 0 if it has nothing."""
    log_dir, folder_name = os.path.split(os.path.abspath(folder))
    partition = parse_folder(folder_name)
    if partition is None:
        raise LogMissing(folder, "this is not a partition's folder")
    return read_offsets(fs, os.path.join(log_dir, name)).get(partition, 0)


def _end_by_recovery(
    fs: FileSystem, folder: str, recovery_point: int, is_compacted: bool
) -> tuple[int, int]:
    """(base offset of the last segment, log end) as far as the recovery point needs a look.

    Nothing is changed.
    """
    if not fs.is_dir(folder):
        raise LogMissing(folder, "the partition's folder does not exist")
    names = fs.list_dir(folder)
    bases = [
        base
        for name in names
        if name.endswith(LOG_SUFFIX) and (base := offset_of(name)) is not None
    ]
    if not bases:
        raise LogMissing(folder, "the partition's folder has no .log file")
    first = max((base for base in bases if base <= recovery_point), default=bases[0])
    following = min((base for base in bases if base > first), default=MAX_LONG)
    segment = Segment(fs, folder, first, LogConfig())
    try:
        batches = Batches(segment, verify=True, end_offset=following)
        for _ in batches:
            pass
        found = Recovered(segment.size - batches.end, batches.next_offset, batches.is_dense)
    finally:
        segment.close()
    deleted = {offset_of(name) for name in names if name.endswith(LOG_SUFFIX + DELETED_SUFFIX)}
    gaps = Gaps(fs, folder, deleted, is_compacted=is_compacted)
    is_end = following == MAX_LONG or found.cut_bytes or gaps.is_loss(found, following)
    return first, found.next_offset if is_end else following
