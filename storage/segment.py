"""One segment: the batches from one base offset on, and the two indexes over them.

::

    00000000000000000042.log        record batches, one behind the other
    00000000000000000042.index      offset -> position in the .log
    00000000000000000042.timeindex  timestamp -> offset

A segment appends, finds, and recovers; it knows nothing of its neighbours, of producers or of retention
(``log.py``, ``state/producers.py``, ``retention.py``). Only the last segment of a log is appended to. Any
number of readers may read while one writer appends: a reader stays below a bound that the log publishes
after the write.

An index entry is believed only after a look at the batch it points to. One that lies raises CorruptIndex,
and the caller has :meth:`Segment.rebuild_indexes` make both indexes again. Source: ``LogSegment`` of Kafka.
"""

import os
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from raylog.storage.config import LogConfig
from raylog.storage.errors import CorruptIndex, CorruptRecord, StorageError
from raylog.storage.files import Buffer, FileSystem
from raylog.storage.indexes.offset_index import OffsetIndex
from raylog.storage.indexes.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from raylog.storage.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from raylog.storage.records.batch import HEADER_SIZE, BatchHeader, check_crc, iter_batches, read_header
from raylog.storage.records.decode import decode_records

# Positions and relative offsets are 4-byte signed integers on disk.
MAX_INT32 = 2**31 - 1
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)


class BatchSpan(NamedTuple):
    """What the indexes need to know of one appended batch."""

    last_offset: int
    max_timestamp: int
    size_bytes: int


class Segment:
    """The batches of one ``.log`` file, with their indexes."""

    def __init__(
        self, fs: FileSystem, folder: str, base_offset: int, config: LogConfig, now_ms: int, *, create: bool = False
    ) -> None:
        self.base_offset, self.folder, self.config = base_offset, folder, config
        self._fs, self._suffix = fs, ""
        self.log = fs.open(self._path(LOG_SUFFIX), create=create)
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(fs, self._path(INDEX_SUFFIX), base_offset, index_bytes)
        self.time_index = TimeIndex(fs, self._path(TIME_INDEX_SUFFIX), base_offset, index_bytes)
        if create:
            self.log.truncate(0)
            self.offset_index.create()
            self.time_index.create()
        self._bytes_since_entry = 0
        self._created_ms = now_ms
        self._jitter_ms = random.randrange(min(config.segment_jitter_ms, config.segment_ms) or 1)
        self._first_timestamp: int | None = None
        self._max: TimestampOffset | None = None

    @property
    def size(self) -> int:
        """Bytes of the ``.log`` file."""
        return self.log.size

    @property
    def path(self) -> str:
        """Where the ``.log`` file is now; deletion renames it."""
        return self.log.path

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp, with the last offset of the first batch that has it; (-1, ..) if none."""
        if self._max is None:
            self._max = self.time_index.last
        return self._max

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp for retention: the file's mtime stands in where records have none."""
        known = self.max_timestamp.timestamp
        return known if known >= 0 else self._fs.mtime_ms(self.path)

    # -- writing -------------------------------------------------------------------------------------------

    def should_roll(self, size_bytes: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Whether an append of this much must go to a new segment."""
        if self.size + size_bytes > self.config.segment_bytes:
            return True
        if not 0 <= last_offset - self.base_offset <= MAX_INT32:
            return True
        if self.size and self._waited_ms(max_timestamp, now_ms) > self.config.segment_ms - self._jitter_ms:
            return True
        return self.offset_index.is_full or self.time_index.is_full

    def _waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        """How much time the segment would span, by its records' clock where they have one."""
        if self._first_timestamp is None:
            self._first_timestamp = read_header(self.log.read(HEADER_SIZE, 0)).max_timestamp
        if self._first_timestamp >= 0:
            return max_timestamp - self._first_timestamp
        return now_ms - self._created_ms

    def append(self, buffers: Sequence[Buffer], spans: Sequence[BatchSpan]) -> None:
        """Write whole batches behind each other; ``spans`` has one entry a batch. All or nothing."""
        position = self.size
        assert position + sum(span.size_bytes for span in spans) <= MAX_INT32, "should_roll comes first"
        before = (self._max, self._bytes_since_entry, len(self.offset_index), len(self.time_index))
        try:
            self.log.append(buffers)
            self._index(position, spans)
        except StorageError:
            self._max, self._bytes_since_entry, offsets, times = before
            self.log.truncate(position)
            self.offset_index.truncate(offsets)
            self.time_index.truncate(times)
            raise
        if position == 0:
            self._first_timestamp = spans[0].max_timestamp

    def _index(self, position: int, spans: Sequence[BatchSpan]) -> None:
        for span in spans:
            if span.max_timestamp > self.max_timestamp.timestamp:
                self._max = TimestampOffset(span.max_timestamp, span.last_offset)
            if self._bytes_since_entry > self.config.index_interval_bytes:
                self.offset_index.append(span.last_offset, position)
                self.time_index.maybe_append(*self.max_timestamp)
                self._bytes_since_entry = 0
            position += span.size_bytes
            self._bytes_since_entry += span.size_bytes

    def seal(self) -> None:
        """Become inactive: the time index gets its last entry."""
        if self.max_timestamp.timestamp != NO_TIMESTAMP:
            self.time_index.maybe_append(*self.max_timestamp)

    def flush(self) -> None:
        self.log.flush()
        self.offset_index.flush()
        self.time_index.flush()

    def close(self) -> None:
        self.log.close()
        self.offset_index.close()
        self.time_index.close()

    # -- finding -------------------------------------------------------------------------------------------

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """The headers of the whole batches from a batch's position on, with their positions."""
        end = self.size if end is None else end
        while position + HEADER_SIZE <= end:
            header = read_header(self.log.read(HEADER_SIZE, position))
            if position + header.size_bytes > end:
                return
            yield position, header
            position += header.size_bytes

    def find_batch(self, offset: int, end: int | None = None) -> tuple[int, BatchHeader] | None:
        """The first batch that reaches ``offset``, with its position; None if the segment ends before."""
        position = self._trusted(*self.offset_index.lookup(offset))
        for found, header in self.batches(position, end):
            if header.last_offset >= offset:
                return found, header
        return None

    def end_of_batches(self, start: int, max_bytes: int, end: int) -> int:
        """Where the last whole batch ends that fits into ``max_bytes`` from ``start``; at least one fits."""
        limit = start + max_bytes
        if limit >= end:
            return end
        near = self.offset_index.lookup_position(limit)
        position = self._trusted(*near) if near.position > start else start
        for position, header in self.batches(position, end):  # noqa: B007
            if position + header.size_bytes > limit:
                break
        return position if position > start else position + header.size_bytes

    def _trusted(self, offset: int, position: int) -> int:
        """``position``, if the batch there agrees with the entry that says so."""
        if position == 0:
            return 0
        try:
            if read_header(self.log.read(HEADER_SIZE, position)).last_offset <= offset:
                return position
            why = f"no batch that ends by offset {offset} at position {position}"
        except CorruptRecord as error:
            why = str(error)
        raise CorruptIndex(self.base_offset, offset, why)

    def offset_for_timestamp(self, timestamp: int, start_offset: int, end: int | None = None) -> TimestampOffset | None:
        """The first record at or above ``start_offset`` whose timestamp is ``timestamp`` or later."""
        near = self.time_index.lookup(timestamp)
        found = self.find_batch(max(near.offset, start_offset), end)
        if found is None:
            return None
        position, header = found
        if near.offset >= start_offset and near.timestamp >= 0 and header.max_timestamp != near.timestamp:
            raise CorruptIndex(self.base_offset, near.offset, f"no batch there has timestamp {near.timestamp}")
        for position, header in self.batches(position, end):
            if header.max_timestamp < timestamp:
                continue
            for record in decode_records(self.log.read(header.size_bytes, position), start_offset=start_offset):
                if record.timestamp >= timestamp:
                    return TimestampOffset(record.timestamp, record.offset)
        return None

    # -- mending -------------------------------------------------------------------------------------------

    def recover(self) -> int:
        """Check every batch, cut the file behind the last good one, rebuild the indexes; returns bytes cut."""
        size = self.size
        good = self._good_bytes()
        if good < size:
            self.log.truncate(good)
        self.rebuild_indexes()
        return size - good

    def _good_bytes(self) -> int:
        view = self.log.view()
        position, next_offset = 0, self.base_offset
        try:
            for position, header in iter_batches(view):
                check_crc(view, position, header)
                if header.base_offset < next_offset or header.last_offset - self.base_offset > MAX_INT32:
                    return position
                next_offset = header.next_offset
                position += header.size_bytes
        except CorruptRecord:
            return position
        return position

    def rebuild_indexes(self) -> None:
        """Make both indexes again from the batches' headers."""
        offsets, times = bytearray(), bytearray()
        largest, last_entry, last_time = TimestampOffset(NO_TIMESTAMP, self.base_offset), 0, NO_TIMESTAMP
        for position, header in self.batches():
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
            if position - last_entry > self.config.index_interval_bytes:
                offsets += OffsetIndex.entry.pack(header.last_offset - self.base_offset, position)
                last_entry = position
                if largest.timestamp > last_time:
                    times += TimeIndex.entry.pack(largest.timestamp, largest.offset - self.base_offset)
                    last_time = largest.timestamp
        if largest.timestamp > last_time:
            times += TimeIndex.entry.pack(largest.timestamp, largest.offset - self.base_offset)
        self.offset_index.replace(bytes(offsets))
        self.time_index.replace(bytes(times))
        self._max = largest

    def check_indexes(self) -> None:
        """Hold every entry of both indexes against the batches; CorruptIndex if one lies."""
        by_offset = {header.last_offset: (position, header) for position, header in self.batches()}
        for entry in map(self.offset_index.__getitem__, range(len(self.offset_index))):
            if entry.offset not in by_offset or by_offset[entry.offset][0] != entry.position:
                raise CorruptIndex(self.base_offset, entry.offset, "no batch starts there that ends at this offset")
        for moment in map(self.time_index.__getitem__, range(len(self.time_index))):
            if moment.offset not in by_offset or by_offset[moment.offset][1].max_timestamp != moment.timestamp:
                raise CorruptIndex(self.base_offset, moment.offset, f"no batch with timestamp {moment.timestamp}")

    # -- names ---------------------------------------------------------------------------------------------

    def rename(self, suffix: str) -> None:
        """Give all files of the segment a suffix (``.deleted``); who has them open can go on reading."""
        for own in SUFFIXES:
            old, new = self._path(own), os.path.join(self.folder, segment_file(self.base_offset, own) + suffix)
            if self._fs.exists(old):
                self._fs.rename(old, new)
        self._suffix = suffix
        self.log.path = self._path(LOG_SUFFIX)
        self.offset_index.path = self._path(INDEX_SUFFIX)
        self.time_index.path = self._path(TIME_INDEX_SUFFIX)

    def delete(self) -> None:
        """Close and remove the files."""
        self.close()
        for own in SUFFIXES:
            self._fs.remove(self._path(own))

    def _path(self, own: str) -> str:
        return os.path.join(self.folder, segment_file(self.base_offset, own) + self._suffix)
