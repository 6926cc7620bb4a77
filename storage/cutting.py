"""Takes out of a log what recovery cannot keep in it: the end of a segment, and segments behind it.

What may hold records is set aside (``asides.py``). Zero bytes, as preallocated room has, and the
indexes of a segment that leaves are removed. All of it is told (``report.py``).

The next recovery must understand what a crash in here leaves. So the order is:

1. the end of the segment is copied,
2. the segments behind it leave, the last one first: no gap comes about that looks like
   compaction's,
3. the segment is cut.

Where a log ends is not decided here (``loader.py``).
"""

import os
from contextlib import suppress

from raylog.storage.asides import is_zero, look_into, set_aside_segment, set_aside_tail
from raylog.storage.errors import CorruptIndex, CorruptRecord
from raylog.storage.files import FileSystem
from raylog.storage.names import LOG_SUFFIX, segment_file
from raylog.storage.recovery import Batches, read_tail
from raylog.storage.report import Report
from raylog.storage.segment import Segment


class Cutter:
    """Cuts the segments of one log; those that leave it are taken off the list."""

    def __init__(
        self, fs: FileSystem, folder: str, segments: list[Segment], report: Report
    ) -> None:
        self._fs, self._folder = fs, folder
        self._segments, self._report = segments, report

    def cut(self, number: int, batches: Batches, *, is_end: bool) -> None:
        """Take off what lies behind a segment's good batches; with ``is_end`` the log ends there.

        Raises NoRoomToSetAside with nothing changed.
        """
        segment = self._segments[number]
        cut_bytes = segment.size - batches.end
        kept_as = ""
        offsets = (-1, -1)
        if cut_bytes and not is_zero(segment.log, batches.end):
            kept_as = set_aside_tail(
                self._fs, self._folder, segment.base_offset, segment.log, batches.end
            )
            aside = look_into(self._fs, self._folder, kept_as)
            if aside.end_offset > batches.next_offset:  # not those of another part of the log
                offsets = (batches.next_offset, aside.end_offset)
        if is_end and number + 1 < len(self._segments):
            why = f"records are missing before it: the log ends at offset {batches.next_offset}"
            self.set_aside(number + 1, why)
        if not cut_bytes:
            return
        segment.log.truncate(batches.end)
        segment.log.flush()  # once it is sealed nobody looks for torn bytes in it again
        self._report.add(
            "cut",
            segment_file(segment.base_offset, LOG_SUFFIX),
            "no good batch" if kept_as else "zero bytes",
            size_bytes=cut_bytes,
            offsets=offsets,
            kept_as=kept_as,
        )

    def set_aside(self, first: int, why: str) -> None:
        """Take the segments from number ``first`` on out of the log."""
        following: Segment | None = None
        while len(self._segments) > first:
            segment = self._segments.pop()
            self._take_out(segment, following, why)
            following = segment

    def _take_out(self, segment: Segment, following: Segment | None, why: str) -> None:
        name = segment_file(segment.base_offset, LOG_SUFFIX)
        if is_zero(segment.log):
            segment.close()
            self._report.remove(name, "a segment without a batch, behind the end of the log")
        else:
            self._keep(segment, name, following, why)
        for index in (segment.offset_index, segment.time_index, segment.txn_index):
            self._report.remove(os.path.basename(index.path), "an index without its log")
        # One that came back would stand in the way of what is written now.
        self._fs.sync_dir(self._folder)

    def _keep(self, segment: Segment, name: str, following: Segment | None, why: str) -> None:
        end_offset = _end_of(segment) if following is None else following.base_offset
        size_bytes = segment.size
        segment.close()
        kept_as = set_aside_segment(self._fs, self._folder, segment.base_offset)
        self._report.add(
            "set_aside",
            name,
            why,
            size_bytes=size_bytes,
            offsets=(segment.base_offset, end_offset),
            kept_as=kept_as,
        )


def _end_of(segment: Segment) -> int:
    """Where a segment that was not checked ends, -1 if that is not known."""
    with suppress(CorruptIndex, CorruptRecord):
        return read_tail(segment).next_offset
    return -1
