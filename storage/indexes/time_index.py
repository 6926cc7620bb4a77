"""The sparse index from a timestamp to an offset of its segment.

On disk (``<base offset>.timeindex``) it is an array of 12-byte entries, big-endian, in both columns
strictly increasing::

    +----------------------+----------------------------+
    | timestamp (8 bytes)  | relative offset (4 bytes)  |   relative offset = offset - base_offset
    +----------------------+----------------------------+

An entry (t, o) says: every record with a timestamp above t lies behind o, where o is the last
offset of the batch that reached t. Equal timestamps add no entry, so a segment without timestamps
has an empty index. One slot is kept for the entry that roll and close force. Source: ``TimeIndex``
of Kafka.
"""

from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raylog.storage.indexes.sparse import Column, Entries, SparseIndex
from raylog.storage.records.layout import NO_TIMESTAMP

_TIMESTAMP, _OFFSET = Column(at=0, size=8), Column(at=8, size=4)


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class TimeIndex(SparseIndex):
    """Timestamps to offsets."""

    entry = Struct(">qi")
    reserved = 1

    def maybe_append(self, timestamp: int, last_offset: int) -> None:
        """Add an entry if ``timestamp`` is above the last one's."""
        last = self.last
        if timestamp > last.timestamp and (last_offset > last.offset or not len(self)):
            self._append(self.entry.pack(timestamp, last_offset - self.base_offset))

    def validate(self, next_offset: int) -> None:
        """Assert that the entries rise, and end with a segment that ends before an offset."""
        self._validate_rising()
        if len(self):
            last = self.last
            assert self.base_offset <= last.offset < next_offset, f"{self.path}: ends at {last}"

    @property
    def last(self) -> TimestampOffset:
        """The last entry; ``(-1, base_offset)`` if there is none."""
        entries = self._loaded()
        return self._before(entries, len(entries) // self.entry.size)

    def __getitem__(self, number: int) -> TimestampOffset:
        return self._before(self._loaded(), number + 1)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry at or below ``timestamp``; ``(-1, base_offset)`` if there is none."""
        entries = self._loaded()
        return self._before(entries, self._count_up_to(entries, _TIMESTAMP, timestamp))

    def truncate_to(self, offset: int) -> None:
        """Drop entries at and above ``offset``."""
        self.truncate(self._count_up_to(self._loaded(), _OFFSET, offset - 1 - self.base_offset))

    def _before(self, entries: Entries, count: int) -> TimestampOffset:
        """The last of the first ``count`` entries."""
        if not count:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = self.entry.unpack_from(entries, (count - 1) * self.entry.size)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def _columns(self, content: memoryview) -> list[NDArray[np.integer]]:
        table = np.frombuffer(content, np.dtype([("timestamp", ">i8"), ("offset", ">i4")]))
        return [table["timestamp"], table["offset"]]
