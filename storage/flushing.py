"""Brings a log's segments to the disk, from the recovery point on.

Nothing is repeated after an fsync that failed: the caller takes the log offline.
"""

from collections.abc import Callable

from raylog.storage.clock import Clock
from raylog.storage.errors import StorageError
from raylog.storage.files import FileSystem
from raylog.storage.log_offsets import LogOffsets
from raylog.storage.readable import ReadableLog, floor_of
from raylog.storage.segment import Segment
from raylog.storage.snapshots import Snapshots


class Flusher:
    """The flushes of one log, which ``locks.flush`` keeps apart."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        folder: str,
        offsets: LogOffsets,
        snapshots: Snapshots,
    ) -> None:
        self._fs, self._clock, self._folder = fs, clock, folder
        self._offsets, self._snapshots = offsets, snapshots
        self.flushed_ms = clock.now_ms()  # when the last flush ended
        # Whether a loss of power may bring back the name of a segment that a roll took back: an
        # empty segment, which would end the log below what the active one has got since.
        self.has_stray_name = False

    def flush(self, log: ReadableLog, up_to: int) -> None:
        """Flush the log's segments between the recovery point and ``up_to``."""
        segments, recovery_point = log.segments, self._offsets.recovery_point
        first = floor_of(segments, recovery_point)
        dirty = [segment for segment in segments[first:] if segment.base_offset < up_to]
        if first > 0:
            # Its last entries were written when it was sealed, which may be after its last flush.
            self._flush(log, segments[first - 1], Segment.flush_indexes)
        for segment in dirty:
            self._flush(log, segment, Segment.flush)
        self._snapshots.flush()
        is_new = any(segment.base_offset >= recovery_point for segment in dirty)
        if is_new or self.has_stray_name:
            self.has_stray_name = False  # before: a roll beside this sets it again
            try:
                self._fs.sync_dir(self._folder)
            except StorageError:
                self.has_stray_name = True
                raise
        self._offsets.flushed_to(up_to)
        self.flushed_ms = self._clock.now_ms()

    def _flush(self, log: ReadableLog, segment: Segment, flush: Callable[[Segment], None]) -> None:
        try:
            flush(segment)
        except StorageError:
            if segment in log.segments:
                raise  # else it was deleted and closed meanwhile
