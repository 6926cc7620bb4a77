"""The entries of both sparse indexes for batches that are told one after the other.

Whoever writes or scans a whole segment makes its indexes with this: recovery, and compaction. The
entries are those that appends of the same batches, one by one, would have made.
"""

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from raylog.storage.indexes.offset_index import OffsetIndex
from raylog.storage.indexes.time_index import TimeIndex, TimestampOffset
from raylog.storage.records.layout import NO_TIMESTAMP

OFFSET_ENTRY = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])


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

    def add_all(
        self,
        positions: NDArray[np.int64],
        last_offsets: NDArray[np.int64],
        max_timestamps: NDArray[np.int64],
    ) -> None:
        """Many batches, one behind the other: as ``add`` for each."""
        if not len(positions):
            return
        at = self._entries_at(positions)
        before = np.maximum.accumulate(np.append(self.largest.timestamp, max_timestamps[:-1]))
        is_later = max_timestamps > before
        # For each batch, the last one up to it with a later timestamp than all before; or -1.
        latest = np.maximum.accumulate(np.where(is_later, np.arange(len(positions)), -1))
        times = np.where(latest < 0, self.largest.timestamp, max_timestamps[latest])
        offsets = np.where(latest < 0, self.largest.offset, last_offsets[latest])
        self.offsets += _packed(OFFSET_ENTRY, last_offsets[at] - self._base_offset, positions[at])
        adds_time = times[at] > np.append(self._last_time, times[at][:-1])
        self._times += _packed(
            TIME_ENTRY, times[at][adds_time], offsets[at][adds_time] - self._base_offset
        )
        self.largest = TimestampOffset(int(times[-1]), int(offsets[-1]))
        if len(at):
            self._last_entry, self._last_time = (
                int(positions[at[-1]]),
                int(max(times[at[-1]], self._last_time)),
            )

    def _entries_at(self, positions: NDArray[np.int64]) -> NDArray[np.intp]:
        """Which of the batches get an entry."""
        # large batches: each but, perhaps, the first
        if (np.diff(positions) > self._interval_bytes).all():
            return np.arange(
                positions[0] - self._last_entry <= self._interval_bytes, len(positions)
            )
        at: list[int] = []
        starts, number, last_entry = positions.tolist(), 0, self._last_entry
        while True:
            number = bisect_right(starts, last_entry + self._interval_bytes, number)
            if number == len(starts):
                return np.array(at, np.intp)
            at.append(number)
            last_entry = starts[number]

    def times(self) -> bytes:
        """The time index, with the entry that the end of a segment forces."""
        self._add_time()
        return bytes(self._times)

    def _add_time(self) -> None:
        if self.largest.timestamp > self._last_time:
            relative = self.largest.offset - self._base_offset
            self._times += TimeIndex.entry.pack(self.largest.timestamp, relative)
            self._last_time = self.largest.timestamp


def _packed(kind: np.dtype[np.void], first: NDArray[np.int64], second: NDArray[np.int64]) -> bytes:
    table = np.empty(len(first), kind)
    for name, column in zip(kind.fields or (), (first, second), strict=True):
        table[name] = column
    return table.tobytes()
