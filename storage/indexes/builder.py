"""The entries of both sparse indexes for batches that are told one after the other.

Whoever writes or scans a whole segment makes its indexes with this: recovery, and compaction. The entries are
those that appends of the same batches, one by one, would have made.
"""

from raylog.storage.indexes.offset_index import OffsetIndex
from raylog.storage.indexes.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset


class IndexBuilder:
    """``add`` every batch, then take ``offsets`` and ``times()``."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._base_offset, self._interval_bytes = base_offset, interval_bytes
        self.largest = TimestampOffset(NO_TIMESTAMP, base_offset)
        self.offsets = bytearray()
        self._times = bytearray()
        self._last_entry, self._last_time = 0, NO_TIMESTAMP

    def add(self, position: int, last_offset: int, max_timestamp: int) -> None:
        """A batch begins at ``position``."""
        if max_timestamp > self.largest.timestamp:
            self.largest = TimestampOffset(max_timestamp, last_offset)
        if position - self._last_entry > self._interval_bytes:
            self.offsets += OffsetIndex.entry.pack(last_offset - self._base_offset, position)
            self._last_entry = position
            self._add_time()

    def times(self) -> bytes:
        """The time index, with the entry that the end of a segment forces."""
        self._add_time()
        return bytes(self._times)

    def _add_time(self) -> None:
        if self.largest.timestamp > self._last_time:
            relative = self.largest.offset - self._base_offset
            self._times += TimeIndex.entry.pack(self.largest.timestamp, relative)
            self._last_time = self.largest.timestamp
