"""Makes the sparse indexes of a log agree with its batches while it is opened, and tells it.

=====================================  =============================================================
a segment                              what is done about its indexes
=====================================  =============================================================
after an orderly stop                  made again if a file is missing; what else is wrong is found
                                       when they are first used
after a crash, before the first that   made again if a file is missing or wrong by its own bytes;
is checked                             the log itself is not read for that
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
from raylog.storage.recovery import index_fault, read_tail, rebuild_indexes
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
                why = _last_entry_fault(segment)
        elif not has_indexes(fs, segment):
            why = "an index file is missing"
        if why is not None:
            # if the log is damaged itself, its readers are told when they come there
            with suppress(CorruptRecord):
                rebuild_and_tell(segment, why, report)


def _last_entry_fault(segment: Segment) -> str | None:
    """What is wrong with the last entries of both indexes; None if nothing is.

    A roll writes them. If the log was flushed just before, nothing has flushed them.
    """
    try:
        with suppress(CorruptRecord):
            read_tail(segment)
    except CorruptIndex as error:
        return str(error)
    return None


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
