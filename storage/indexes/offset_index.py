"""The sparse index from an offset to a position in its segment's ``.log`` file.

The index lets a read start near an offset instead of at the head of the file. It is sparse: about
one entry for every ``index.interval.bytes`` of log, so a lookup answers with a position at or
before the offset, and the caller scans forward from there.

On disk (``<base offset>.index``) it is an array of 8-byte entries, big-endian, in both columns
strictly increasing::

    +----------------------------+-----------------+
    | relative offset (4 bytes)  | position (4 B)  |   relative offset = offset - base_offset
    +----------------------------+-----------------+

An entry pairs the *last* offset of a batch with the position where that batch *starts*.
Source: ``OffsetIndex`` of Kafka.
"""

from contextlib import suppress
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raylog.storage.errors import StorageError
from raylog.storage.indexes.sparse import Column, Entries, SparseIndex

_OFFSET, _POSITION = Column(at=0, size=4), Column(at=4, size=4)


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class OffsetIndex(SparseIndex):
    """Offsets to positions."""

    entry = Struct(">ii")

    def append(self, last_offset: int, position: int) -> None:
        """Add an entry; both columns must rise."""
        entry = self.entry.pack(last_offset - self.base_offset, position)
        # big-endian bytes sort as numbers
        assert bytes(self._loaded()[-8:-4]) < entry[:4], "index offsets rise"
        self._append(entry)

    def __getitem__(self, number: int) -> OffsetPosition:
        return self._before(self._loaded(), number + 1)

    def validate(self, next_offset: int, size_bytes: int) -> None:
        """Assert that the entries rise, and lead into a segment that ends there."""
        self._validate_rising()
        if len(self):
            last = self[len(self) - 1]
            assert self.base_offset <= last.offset < next_offset, f"{self.path}: ends at {last}"
            assert 0 <= last.position < size_bytes, f"{self.path}: ends at {last}"

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or below ``offset``; ``(base_offset, 0)`` if there is none."""
        entries = self._loaded()
        return self._before(entries, self._count_up_to(entries, _OFFSET, offset - self.base_offset))

    def around(self, offset: int) -> tuple[OffsetPosition, OffsetPosition | None]:
        """The last entry at or below ``offset``, as ``lookup``, and the one behind it."""
        entries = self._loaded()
        count = self._count_up_to(entries, _OFFSET, offset - self.base_offset)
        has_next = count < len(entries) // self.entry.size
        return self._before(entries, count), self._before(entries, count + 1) if has_next else None

    def last_in_file(self) -> OffsetPosition | None:
        """The last entry by the file's bytes, of which no others are read or kept.

        None if the file has no whole entries, or cannot be read.
        """
        with suppress(StorageError):
            file = self._fs.open(self.path)
            try:
                last = file.size - self.entry.size
                if last < 0 or file.size % self.entry.size:
                    return None
                relative, position = self.entry.unpack(file.read(self.entry.size, last))
            finally:
                file.close()
            return OffsetPosition(self.base_offset + relative, position)
        return None

    def lookup_position(self, position: int) -> OffsetPosition:
        """The last entry at or below a position in the file, ``(base_offset, 0)`` if none."""
        entries = self._loaded()
        return self._before(entries, self._count_up_to(entries, _POSITION, position))

    def entry_from(self, position: int) -> OffsetPosition | None:
        """The first entry at or above a position in the file, or None."""
        entries = self._loaded()
        count = self._count_up_to(entries, _POSITION, position - 1)
        has_one = count < len(entries) // self.entry.size
        return self._before(entries, count + 1) if has_one else None

    def truncate_to_position(self, position: int) -> None:
        """Drop entries at and above a position in the file."""
        self.truncate(self._count_up_to(self._loaded(), _POSITION, position - 1))

    def _before(self, entries: Entries, count: int) -> OffsetPosition:
        """The last of the first ``count`` entries."""
        if not count:
            return OffsetPosition(self.base_offset, 0)
        relative, position = self.entry.unpack_from(entries, (count - 1) * self.entry.size)
        return OffsetPosition(self.base_offset + relative, position)

    def _columns(self, content: memoryview) -> list[NDArray[np.integer]]:
        table = np.frombuffer(content, ">i4").reshape(-1, 2)
        return [table[:, 0], table[:, 1]]
