"""Makes the sparse indexes of a log agree with its batches while it is opened, and tells it.

=====================================  =============================================================
a segment                              what is done about its indexes
=====================================  =============================================================
after an orderly stop                  made again if a file is missing; what else is wrong is found
                                       when they are first used
after a crash, before the first that   made again if a file is missing or wrong by its own bytes;
is checked                             the log itself is not read for that
the last of these                      made again, too, if no batch agrees with one of the entries
                                       that a roll wrote, and no flush
that lost its end, which was accepted  made again if no batch agrees with one of the entries
after a crash, checked                 written anew from the batches that were read
=====================================  =============================================================

How an index is made from one segment is ``recovery.py``'s.
"""

import os
from collections.abc import Sequence
from contextlib import suppress

from raylog.storage.errors import CorruptIndex, CorruptRecord, StorageError
from raylog.storage.files import FileSystem
from raylog.storage.indexes.builder import IndexBuilder
from raylog.storage.indexes.offset_index import OffsetPosition
from raylog.storage.indexes.sparse import UNWRITTEN_BYTES, SparseIndex
from raylog.storage.recovery import (
    check_indexes,
    check_moment,
    index_fault,
    read_tail,
    rebuild_indexes,
)
from raylog.storage.report import Report
from raylog.storage.segment import Segment


def has_indexes(fs: FileSystem, segment: Segment) -> bool:
    """Whether both sparse indexes have a file."""
    indexes = (segment.offset_index, segment.time_index)
    return all(fs.exists(index.path) for index in indexes)


def rebuild_and_tell(segment: Segment, why: str, report: Report) -> None:
    """Make both indexes again from the batches. Raises CorruptRecord with both as they were."""
    rebuild_indexes(segment)
    for index in (segment.offset_index, segment.time_index):
        report.add("rebuilt", os.path.basename(index.path), why)


def mend_indexes(
    fs: FileSystem, segments: Sequence[Segment], report: Report, *, was_clean: bool
) -> None:
    """Make missing indexes of segments that are not checked; after a crash wrong ones, too.

    After an orderly stop no index is read for that: there may be thousands.
    """
    for segment in segments:
        why = None
        if not was_clean:
            why = index_fault(fs, segment)
            if why is None and segment is segments[-1]:
                why = _tail_fault(segment)
        elif not has_indexes(fs, segment):
            why = "an index file is missing"
        if why is not None:
            # if the log is damaged itself, its readers are told when they come there
            with suppress(CorruptRecord):
                rebuild_and_tell(segment, why, report)


def mend_cut_segment(fs: FileSystem, segment: Segment, report: Report) -> None:
    """Mend the indexes of a segment that lost its end, a loss that was accepted."""
    if index_fault(fs, segment) is not None:
        return  # mend_indexes knows why
    with suppress(CorruptRecord):  # readers of a damaged log are told when they come there
        try:
            check_indexes(segment)
        except CorruptIndex:
            why = "records that it knew of are lost, and the loss was accepted"
            rebuild_and_tell(segment, why, report)
        else:
            segment.offset_index.drop()
            segment.time_index.drop()


def _tail_fault(segment: Segment) -> str | None:
    """What is wrong with the entries of both indexes that a roll wrote; None if nothing is.

    If the log was flushed just before the roll, nothing has flushed them. Of the log, one header is
    read for each of them, and what lies behind the last one.
    """
    try:
        with suppress(CorruptRecord):
            read_tail(segment)
            _check_unflushed(segment)
    except CorruptIndex as error:
        return str(error)
    return None


def _check_unflushed(segment: Segment) -> None:
    """Raise CorruptIndex unless a batch agrees with each entry that may never have been flushed."""
    offsets, times = segment.offset_index, segment.time_index
    for number in _unflushed(offsets):
        entry = offsets[number]
        if _end_of_batch(segment, entry) != entry.offset:
            raise CorruptIndex(segment.base_offset, number, "no batch agrees with its offset")
    for number in _unflushed(times):
        check_moment(segment, times[number])


def _unflushed(index: SparseIndex) -> range:
    """The numbers of the entries that may never have been flushed."""
    count = UNWRITTEN_BYTES // index.entry.size + 1
    return range(max(len(index) - count, 0), len(index))


def _end_of_batch(segment: Segment, entry: OffsetPosition) -> int:
    """The last offset of the first batch, from an entry's position on, that reaches its offset.

    -1 where there is none. It is not always the batch at the position: Kafka's followers make one
    entry for several batches.
    """
    with suppress(CorruptRecord):
        for _, header in segment.batches(entry.position):
            if header.last_offset >= entry.offset:
                return header.last_offset
    return -1


def rewrite_indexes(
    fs: FileSystem,
    segment: Segment,
    entries: IndexBuilder,
    report: Report,
    *,
    is_active: bool,
    is_flushed: bool,
) -> None:
    """Make both indexes of a checked segment what its batches say.

    ``is_flushed``: the segment is, or was found so; the indexes of another are flushed with it.
    Only the active one's stay in memory.
    """
    for index, content in (
        (segment.offset_index, bytes(entries.offsets)),
        (segment.time_index, entries.times()),
    ):
        try:
            is_right = fs.exists(index.path) and fs.read_file(index.path) == content
        except StorageError:
            is_right = False
            fs.remove(index.path)
        index.rewrite(content)
        if is_flushed and fs.exists(index.path):
            index.flush()
        if not is_active and fs.exists(index.path):
            index.drop()
            index.release()
        if not is_right:
            name = os.path.basename(index.path)
            report.add("rebuilt", name, "it did not agree with the batches of the log")
