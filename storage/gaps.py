"""Whether offsets that are missing between two segments are a loss.

A segment that lost its tail with the page cache may end with a whole batch. Then only the gap to
the next segment tells of the loss. Other gaps are no loss:

=================================================  =================================================
a gap                                              is no loss because
=================================================  =================================================
below the offset of ``cleaner-offset-checkpoint``  compaction has come so far, and may leave gaps:
                                                   raylog's does not, Kafka's may even empty a
                                                   segment
of a compacted topic that this file does not list  nobody knows how far compaction has come. (A
                                                   partition that raylog creates is listed with 0)
anywhere, if this file cannot be read, or could    the same
not be read once
behind a segment that lacks offsets within         compaction has been there
where a segment is named ``.deleted``              retention took it, and a loss of power took the
                                                   new name of its neighbour. After an orderly stop
                                                   no other file of the segment may have its own
                                                   name: retention renames or removes all of them
that somebody accepted                             see ``losses.py``
=================================================  =================================================

**Below the recovery point** batches are not checked when a log opens. There the ends of segments
tell of a gap: of each, the last index entry and the batches behind it are read, some KB.
"""

import os
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import NamedTuple

from raylog.storage.errors import CorruptCheckpoint
from raylog.storage.files import FileSystem
from raylog.storage.limits import MAX_LONG
from raylog.storage.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_of,
    parse_folder,
    segment_file,
)
from raylog.storage.recovery import Batches, end_by_index, last_batches
from raylog.storage.segment import Segment
from raylog.storage.state.checkpoints import (
    ACCEPTED_LOSSES,
    CLEANER_OFFSETS,
    CORRUPT_SUFFIX,
    read_losses,
    read_offsets,
)

INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class Recovered(NamedTuple):
    """What a look at every batch of a segment found."""

    cut_bytes: int  # behind the last good batch
    next_offset: int
    is_dense: bool  # no offset is missing between its records: no compaction has been here


class Missing(NamedTuple):
    """Offsets that no segment has: behind the end of one, and before the next begins."""

    first_offset: int
    end_offset: int


class Gaps:
    """The gaps of one log. It is made before recovery removes anything."""

    def __init__(
        self, fs: FileSystem, folder: str, *, is_compacted: bool, was_clean: bool = False
    ) -> None:
        """``was_clean``: the log was closed in order."""
        self._fs, self._folder, self._is_compacted = fs, folder, is_compacted
        names = fs.list_dir(folder)
        self._renamed = _offsets(names, (LOG_SUFFIX + DELETED_SUFFIX,))
        self._indexes = _offsets(names, INDEX_SUFFIXES)
        in_place = self._indexes | _offsets(names, (SNAPSHOT_SUFFIX,))
        self._by_retention = self._renamed - in_place if was_clean else self._renamed

    def is_loss(self, segment: Recovered, following: int) -> bool:
        """Whether records between a segment and the next are lost.

        ``following``: where the next one begins.
        """
        if not self._is_hole(segment, following):
            return False
        missing = Missing(segment.next_offset, following)
        return not self.is_retention(missing) and not self.is_accepted(missing)

    def is_retention(self, missing: Missing) -> bool:
        """Whether retention has renamed the segment that began there."""
        return missing.first_offset in self._by_retention

    def missing_before(self, first_base: int, log_start_offset: int) -> Missing | None:
        """What somebody renamed before the first segment, though an orderly stop came last.

        ``log_start_offset``: of the log dir's checkpoint; what lies below it is not missing.
        """
        renamed = self._renamed - self._by_retention
        lowest = min((offset for offset in renamed if offset < first_base), default=first_base)
        first_offset = max(lowest, log_start_offset)
        return Missing(first_offset, first_base) if first_offset < first_base else None

    def is_accepted(self, missing: Missing) -> bool:
        """Whether somebody accepted that exactly these offsets are missing."""
        return missing in self._accepted

    def within(self, batches: Batches, log_start_offset: int) -> Missing | None:
        """From the first offset to the last that a segment lacks though nothing was compacted.

        None if compaction may have removed them: in a compacted topic that is anywhere, since
        Kafka's followers copy what it left in their leader's log, whatever their own checkpoint
        says. ``batches``: of the segment, read to the last good one.
        """
        if batches.gap is None or self._is_compacted or not batches.is_full:
            return None
        first, end = batches.gap
        if end <= log_start_offset or end <= self._compacted_to:
            return None
        return Missing(max(first, self._compacted_to), end)

    def count_kept(self, base_offsets: Sequence[int], checked: Sequence[Recovered]) -> int:
        """How many of the checked segments follow each other without a loss.

        They are the first of those that begin at ``base_offsets``.
        """
        for number, following in enumerate(base_offsets[1 : len(checked)]):
            if self.is_loss(checked[number], following):
                return number + 1
        return len(checked)

    def renamed(self, first_offset: int, end_offset: int) -> set[str]:
        """The names of the ``.log`` files from one offset to another that were renamed."""
        return {
            segment_file(offset, LOG_SUFFIX + DELETED_SUFFIX)
            for offset in self._renamed
            if first_offset <= offset < end_offset
        }

    def missing_behind(self, segment: Segment, following: int) -> Missing | None:
        """What is missing between a sealed segment and the next, which begins at ``following``.

        Also what retention took, and what was accepted. None: nothing, or nobody knows, since the
        segment is damaged, and no index of a segment behind it is left that tells where it ended.
        """
        if following <= self._compacted_to:
            return None
        end = end_by_index(segment)
        if end is None:
            end = last_batches(segment).next_offset
        if end >= following:
            return None
        batches = Batches(segment)
        batches.read()
        end = batches.next_offset
        if not batches.is_whole:
            bases = range(segment.base_offset + 1, following)
            end = min((base for base in self._indexes if base in bases), default=following)
        if not self._is_hole(Recovered(0, end, batches.is_dense), following):
            return None
        return Missing(end, following)

    def _is_hole(self, segment: Recovered, following: int) -> bool:
        """Whether a gap is not compaction's."""
        end = segment.next_offset
        return end < following and segment.is_dense and end >= self._compacted_to

    @cached_property
    def _accepted(self) -> Collection[tuple[int, int]]:
        return read_losses(self._fs, os.path.join(self._folder, ACCEPTED_LOSSES))

    @cached_property
    def _compacted_to(self) -> int:
        """How far compaction may have come."""
        log_dir, name = os.path.split(self._folder)
        partition = parse_folder(name)
        path = os.path.join(log_dir, CLEANER_OFFSETS)
        try:
            offsets = read_offsets(self._fs, path)
        except CorruptCheckpoint:
            return MAX_LONG
        if partition in offsets:
            return offsets[partition]
        is_unknown = self._is_compacted or self._fs.exists(path + CORRUPT_SUFFIX)
        return MAX_LONG if is_unknown else 0


def _offsets(names: Sequence[str], suffixes: tuple[str, ...]) -> set[int]:
    """The offsets in the names with one of the suffixes."""
    offsets = (offset_of(name) for name in names if name.endswith(suffixes))
    return {offset for offset in offsets if offset is not None}
