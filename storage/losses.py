"""Fsynced records that are missing from a log, and losses that a person has accepted.

A log lost records that were on the disk for sure if it ends before its recovery point, or if a
segment below it is gone: a file was removed, restored from an older copy, or damaged. Such a log is
not opened. New records would get the offsets that are missing at its end (LogShorterThanFlushed),
and readers would not notice those that are missing before (FlushedRecordsMissing). A person who
knows that the records are gone for good accepts the loss once. A file in the partition's folder
lists what was accepted, and the log opens::

    accepted-losses      0            version
                         2            how many entries follow
                         10 20        between two segments, the offsets from 10 on, before 20
                         50 60        at the log's end: they may be given to new records

====================  ==============================================================================
an entry              counts as long as
====================  ==============================================================================
between two segments  the gap is there: it is exactly these offsets
at the end            the log dir's checkpoint has its end as the recovery point, and the log ends
                      before. When the log has opened, its owner writes another recovery point at
                      once, and the entry is dropped
====================  ==============================================================================

Any other missing record is another loss, which nobody accepted. What lies below the log start
offset is no loss.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise

from raylog.storage.config import LogConfig
from raylog.storage.errors import LogMissing
from raylog.storage.files import FileSystem
from raylog.storage.gaps import Gaps, Missing, Recovered
from raylog.storage.limits import MAX_LONG
from raylog.storage.names import LOG_SUFFIX, base_offsets, parse_folder, segment_file
from raylog.storage.recovery import Batches, last_batches
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
from raylog.storage.state.properties import CLEAN_SHUTDOWN


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


def gap_loss(missing: Missing) -> Mended:
    """The report of an accepted loss between two segments."""
    return Mended(
        kind="lost",
        file=segment_file(missing.first_offset, LOG_SUFFIX),
        size_bytes=0,
        first_offset=missing.first_offset,
        end_offset=missing.end_offset,
        why="flushed records are missing between two segments, and the loss was accepted",
    )


def find_losses(fs: FileSystem, folder: str, *, is_compacted: bool = False) -> list[Mended]:
    """The flushed records that a log has lost, by offset. Changes nothing.

    The log must be closed. The recovery point is that of the log dir's checkpoint.
    ``is_compacted``: the topic's ``cleanup.policy`` has compact. Raises LogMissing or
    CorruptCheckpoint.
    """
    folder = os.path.abspath(folder)
    recovery_point = checkpointed(fs, folder, RECOVERY_POINTS)
    start_offset = checkpointed(fs, folder, LOG_START_OFFSETS)
    was_clean = fs.exists(os.path.join(os.path.dirname(folder), CLEAN_SHUTDOWN))
    if recovery_point <= start_offset and not was_clean:
        return []
    flushed_to = MAX_LONG if was_clean else recovery_point
    gaps = Gaps(fs, folder, is_compacted=is_compacted, was_clean=was_clean)
    bases = _bases_of(fs, folder)
    before = gaps.missing_before(bases[0], start_offset)
    losses = [
        gap_loss(missing)
        for missing in (*([before] if before else []), *_missing(fs, folder, bases, gaps))
        if start_offset < missing.end_offset <= flushed_to
    ]
    if recovery_point <= start_offset:
        return losses
    base_offset, end_offset = _end_by_recovery(fs, folder, bases, recovery_point, gaps)
    if end_offset < recovery_point:
        losses.append(loss(end_offset, recovery_point, base_offset))
    return losses


def accept_losses(fs: FileSystem, folder: str, *, is_compacted: bool = False) -> list[Mended]:
    """Let a log open that has lost flushed records. Returns and raises what ``find_losses`` does.

    What was accepted is on the disk when this returns; accepting it again changes nothing.
    """
    lost = find_losses(fs, folder, is_compacted=is_compacted)
    write_accepted(fs, folder, lost)
    return lost


def write_accepted(fs: FileSystem, folder: str, lost: Sequence[Mended]) -> None:
    """Write down that these losses are accepted."""
    if not lost:
        return
    path = os.path.join(folder, ACCEPTED_LOSSES)
    known = read_losses(fs, path)
    accepted = [*known]
    for entry in lost:
        if (entry.first_offset, entry.end_offset) not in known:
            accepted.append((entry.first_offset, entry.end_offset))
    if accepted != known:
        write_losses(fs, path, accepted)


def drop_settled(fs: FileSystem, folder: str, end_offset: int) -> None:
    """Forget accepted losses that no opening needs any more. ``end_offset``: the log's end.

    What stays is on the disk when this returns. Raises CorruptCheckpoint.
    """
    path = os.path.join(folder, ACCEPTED_LOSSES)
    known = read_losses(fs, path)
    if not known:
        return
    recovery_point = checkpointed(fs, folder, RECOVERY_POINTS)
    bases = _bases_of(fs, folder)
    needed = []
    for first, end in known:
        if end_offset < end == recovery_point or _is_gap(fs, folder, bases, Missing(first, end)):
            needed.append((first, end))
    if needed != known:
        write_losses(fs, path, needed)


def _is_gap(fs: FileSystem, folder: str, bases: Sequence[int], missing: Missing) -> bool:
    """Whether these offsets may still be missing between two segments."""
    if missing.end_offset not in bases[1:]:
        return False
    before = bases[bases.index(missing.end_offset) - 1]
    segment = Segment(fs, folder, before, LogConfig())
    try:
        batches = last_batches(segment)
    finally:
        segment.close()
    return batches.next_offset == missing.first_offset or not batches.is_whole


def _missing(fs: FileSystem, folder: str, bases: Sequence[int], gaps: Gaps) -> Iterator[Missing]:
    """The gaps between segments, but for what retention has taken."""
    for base, following in pairwise(bases):
        segment = Segment(fs, folder, base, LogConfig())
        try:
            missing = gaps.missing_behind(segment, following)
        finally:
            segment.close()
        if missing is not None and not gaps.is_retention(missing):
            yield missing


def checkpointed(fs: FileSystem, folder: str, name: str) -> int:
    """What a checkpoint of the log dir has for a partition; 0 if it has nothing."""
    log_dir, folder_name = os.path.split(os.path.abspath(folder))
    partition = parse_folder(folder_name)
    if partition is None:
        raise LogMissing(folder, "this is not a partition's folder")
    return read_offsets(fs, os.path.join(log_dir, name)).get(partition, 0)


def _bases_of(fs: FileSystem, folder: str) -> list[int]:
    """Where the segments of a log begin. Raises LogMissing if there is none."""
    if not fs.is_dir(folder):
        raise LogMissing(folder, "the partition's folder does not exist")
    bases = base_offsets(fs.list_dir(folder))
    if not bases:
        raise LogMissing(folder, "the partition's folder has no .log file")
    return bases


def _end_by_recovery(
    fs: FileSystem, folder: str, bases: Sequence[int], recovery_point: int, gaps: Gaps
) -> tuple[int, int]:
    """(base offset of the last segment, log end) as far as the recovery point needs a look.

    Nothing is changed.
    """
    first = max((base for base in bases if base <= recovery_point), default=bases[0])
    following = min((base for base in bases if base > first), default=MAX_LONG)
    segment = Segment(fs, folder, first, LogConfig())
    try:
        batches = Batches(segment, verify=True, end_offset=following)
        batches.read()
        found = Recovered(segment.size - batches.end, batches.next_offset, batches.is_dense)
    finally:
        segment.close()
    is_end = following == MAX_LONG or found.cut_bytes or gaps.is_loss(found, following)
    return first, found.next_offset if is_end else following
