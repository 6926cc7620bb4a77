"""One segment: the batches from one base offset on, and the two indexes over them.

::

    00000000000000000042.log        record batches, one behind the other
    00000000000000000042.index      offset -> position in the .log
    00000000000000000042.timeindex  timestamp -> offset
    00000000000000000042.txnindex   aborted transactions, if there are any

A segment appends and finds; it knows nothing of its neighbours, of producers or of
retention (``log.py``, ``state/producers.py``, ``retention.py``). Only the last segment of a log is
appended to. Any number of readers may read while one writer appends: a reader stays below a bound
that the log publishes after the write.

An index entry is believed only after a look at the batch it points to. One that lies raises
CorruptIndex. Repair is ``recovery.py``'s. Source: ``LogSegment`` of Kafka.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from typing import NamedTuple

from raylog.storage.buffers import Buffer
from raylog.storage.config import LogConfig
from raylog.storage.errors import CorruptIndex, CorruptRecord, StorageError, UndoFailed
from raylog.storage.files import FileSystem
from raylog.storage.indexes.offset_index import OffsetIndex
from raylog.storage.indexes.time_index import TimeIndex, TimestampOffset
from raylog.storage.indexes.transaction_index import AbortedTransaction, TransactionIndex
from raylog.storage.limits import MAX_INT, MAX_LONG
from raylog.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
)
from raylog.storage.records.batch import BatchHeader, read_header
from raylog.storage.records.decode import decode_records
from raylog.storage.records.layout import HEADER_SIZE, NO_TIMESTAMP

SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class SegmentId(NamedTuple):
    """Which segment it is, to those who have it open and to those who find its file."""

    base_offset: int
    inode: int  # of the .log: compaction puts other files under the same base offset


class Segment:
    """The batches of one ``.log`` file, with their indexes."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        *,
        create: bool = False,
        suffix: str = "",
    ) -> None:
        """``suffix``: behind the names of all files, as ``.cleaned`` is."""
        self.base_offset, self.folder, self.config = base_offset, folder, config
        self._fs, self._suffix = fs, suffix
        self.log = fs.open(self._path(LOG_SUFFIX), create=create)
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(fs, self._path(INDEX_SUFFIX), base_offset, index_bytes)
        self.time_index = TimeIndex(fs, self._path(TIME_INDEX_SUFFIX), base_offset, index_bytes)
        self.txn_index = TransactionIndex(fs, self._path(TXN_INDEX_SUFFIX), base_offset)
        if create:
            self._create()
        self._bytes_since_entry = 0
        self._created_ms = now_ms
        self._is_preallocated = create and config.preallocate
        self._jitter_ms = random.randrange(
            min(config.segment_jitter_ms, config.max_segment_ms) or 1
        )
        self._max_span_ms = config.max_segment_ms - self._jitter_ms
        self._has_room: bool | None = None
        self._has_times: bool | None = None  # whether the first batch has a timestamp
        self._span_end = -MAX_LONG  # a larger timestamp needs a look at the clocks
        # Known from the beginning where an append and readers may come at once.
        self._max: TimestampOffset | None = self.time_index.last if create else None
        # the largest timestamp that the time index has seen
        self._timed: TimestampOffset | None = None

    def reconfigure(self, config: LogConfig) -> None:
        """Obey another config from the next append on.

        The size of its indexes, its jitter and its preallocated room stay as they were when it was
        made, as in Kafka. Under the lock of the log's one writer.
        """
        span_ms = max(config.max_segment_ms - self._jitter_ms, 0)
        if self._has_times:
            self._span_end += span_ms - self._max_span_ms
        self.config, self._max_span_ms = config, span_ms

    def _create(self) -> None:
        """Make all files or none.

        An empty .log left behind would one day end the log at its base offset.
        """
        try:
            self.log.truncate(0)
            if self.config.preallocate:
                self.log.allocate(self.config.segment_bytes)
            self.offset_index.create()
            self.time_index.create()
        except StorageError:
            self._undo(self.delete)
            raise

    @property
    def id(self) -> SegmentId:
        return SegmentId(self.base_offset, self.log.inode)

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
        """The largest timestamp, with the last offset of the first batch that has it.

        (-1, ..) if there is none.
        """
        if self._max is None:
            try:
                self._max = self._find_max()
            except CorruptIndex:
                self._max = self._max_of_all()
        return self._max

    def take_largest(self, largest: TimestampOffset) -> None:
        """What recovery found to be the largest timestamp."""
        self._max = largest

    def _max_of_all(self) -> TimestampOffset:
        """As :meth:`_find_max`, by the batches alone."""
        largest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        for _, header in self.batches():
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        return largest

    def _find_max(self) -> TimestampOffset:
        """The largest timestamp, by the time index's last entry and the batches behind it.

        Entries may be missing at the end of the index.
        """
        largest = self.time_index.last
        batch = self.find_batch(largest.offset)
        if batch is None:
            if self.size:
                raise CorruptIndex(self.base_offset, largest.offset, "no batch reaches this offset")
            return largest
        self._check_moment(largest, batch[1])
        for _, header in self.batches(batch[0]):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        return largest

    def _check_moment(self, moment: TimestampOffset, header: BatchHeader) -> None:
        """Raise CorruptIndex unless an entry of the time index means this batch."""
        actual = TimestampOffset(header.max_timestamp, header.last_offset)
        if moment.timestamp != NO_TIMESTAMP and moment != actual:
            raise CorruptIndex(
                self.base_offset, moment.offset, f"no batch with timestamp {moment.timestamp}"
            )

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, -1 if it has none."""
        return (
            read_header(self.log.read(HEADER_SIZE, 0)).max_timestamp if self.size else NO_TIMESTAMP
        )

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp for retention.

        Where records have no timestamp it is the file's mtime.
        """
        timestamp = self.max_timestamp.timestamp
        return timestamp if timestamp >= 0 else self._fs.mtime_ms(self.path)

    # -- writing -----------------------------------------------------------------------------------

    def should_roll(
        self, size_bytes: int, max_timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        """Whether an append of this much must go to a new segment."""
        size = self.log.size
        if (
            size + size_bytes > self.config.segment_bytes
            or last_offset - self.base_offset > MAX_INT
        ):
            return True
        if max_timestamp > self._span_end and size and self._is_over(max_timestamp, now_ms):
            return True
        if self._has_room is None:
            self._has_room = not (self.offset_index.is_full or self.time_index.is_full)
        return not self._has_room

    def _is_over(self, max_timestamp: int, now_ms: int) -> bool:
        """Whether the segment would span more than its time.

        The clock is that of its records, where they have timestamps.
        """
        if self._has_times is None:
            self._begin_at(read_header(self.log.read(HEADER_SIZE, 0)).max_timestamp)
        if self._has_times:
            return max_timestamp > self._span_end
        return now_ms - self._created_ms > self._max_span_ms

    def _begin_at(self, first_timestamp: int) -> None:
        self._has_times = first_timestamp >= 0
        self._span_end = first_timestamp + self._max_span_ms if self._has_times else -MAX_LONG

    def append(
        self,
        buffers: Sequence[Buffer],
        size_bytes: int,
        last_offset: int,
        max_timestamp: int,
        aborted: AbortedTransaction | None = None,
    ) -> None:
        """Write one whole batch, given in pieces, at the end; raises with the segment as it was.

        ``aborted``: the transaction that the batch, an abort marker, ends.
        """
        position = self.log.size
        assert position + size_bytes <= MAX_INT, "should_roll comes first"
        before = self._max or self.max_timestamp
        try:
            self.log.append(buffers)
            if max_timestamp > before.timestamp:
                self._max = TimestampOffset(max_timestamp, last_offset)
            if self._bytes_since_entry > self.config.index_interval_bytes:
                self._add_entries(last_offset, position)
            if aborted is not None:
                self.txn_index.append(aborted)
        except StorageError:
            self._max = before
            self._undo(lambda: self._take_back(position, last_offset))
            raise
        self._bytes_since_entry += size_bytes
        if position == 0:
            self._begin_at(max_timestamp)

    def _take_back(self, position: int, last_offset: int) -> None:
        """Drop what a failed append left."""
        if self.log.size > position:
            self.log.truncate(position)
        self.offset_index.truncate_to_position(position)
        self.time_index.truncate_to(last_offset)

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop the whole batch that holds ``offset``, and all behind it.

        It is on the disk when this returns.
        """
        batch = self.find_batch(offset)
        if batch is None:
            return
        position = batch[0]
        self.offset_index.truncate_to_position(position)  # first: entries lead readers to bytes
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.log.truncate(position)
        self.log.flush()
        self._max = self._timed = self._has_room = None
        self._bytes_since_entry = 0
        if position == 0:
            self._created_ms = now_ms

    def _undo(self, undo: Callable[[], None]) -> None:
        try:
            undo()
        except StorageError as error:
            raise UndoFailed(self.path, str(error)) from error

    def _add_entries(self, last_offset: int, position: int) -> None:
        self.offset_index.append(last_offset, position)
        if self._max is not self._timed:
            self.time_index.maybe_append(*self.max_timestamp)
            self._timed = self._max
        self._bytes_since_entry = 0
        self._has_room = None

    def seal(self) -> None:
        """Become inactive: the time index gets its last entry, and both are written out."""
        if self.max_timestamp.timestamp != NO_TIMESTAMP:
            self.time_index.maybe_append(*self.max_timestamp)
        self.offset_index.write()
        self.time_index.write()
        if self._is_preallocated or self.config.preallocate:
            self.log.truncate(self.log.size)

    def flush(self) -> None:
        self.log.flush()
        self.flush_indexes()

    def flush_indexes(self) -> None:
        self.offset_index.flush()
        self.time_index.flush()
        self.txn_index.flush()

    def close(self) -> None:
        self.log.close()
        self.offset_index.close()
        self.time_index.close()
        self.txn_index.release()

    # -- finding -----------------------------------------------------------------------------------

    def batches(
        self, position: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The headers of the batches from a batch's position on, with their positions.

        Raises CorruptRecord unless they lead to ``end`` exactly, with offsets that rise.
        """
        return self._rising(self._headers(position, self.size if end is None else end))

    def _headers(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        while position < end:
            header = read_header(self.log.read(min(HEADER_SIZE, end - position), position))
            if position + header.size_bytes > end:
                raise self._corrupt(
                    position, f"only {end - position} of {header.size_bytes} bytes of a batch"
                )
            yield position, header
            position += header.size_bytes

    def _rising(
        self, batches: Iterator[tuple[int, BatchHeader]], end_offset: int = MAX_LONG
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The same batches, as long as their offsets are what a segment can hold.

        No CRC covers the base offset.
        """
        next_offset, limit = self.base_offset, min(self.base_offset + MAX_INT, end_offset - 1)
        for position, header in batches:
            last_offset = header.last_offset
            if not next_offset <= header.base_offset <= last_offset <= limit:
                why = (
                    f"offsets {header.base_offset} to {last_offset} where {next_offset} must follow"
                )
                raise self._corrupt(position, why)
            next_offset = last_offset + 1
            yield position, header

    def _corrupt(self, position: int, why: str) -> CorruptRecord:
        return CorruptRecord(f"{self.path}, position {position}", why)

    def find_batch(self, offset: int, end: int | None = None) -> tuple[int, BatchHeader] | None:
        """The first batch that reaches ``offset``, with its position.

        None if the segment ends before.
        """
        start = self._trusted(*self.offset_index.lookup(offset))
        try:
            for position, header in self.batches(start, end):
                if header.last_offset >= offset:
                    return position, header
        except CorruptRecord as error:
            if start:
                raise CorruptIndex(self.base_offset, offset, str(error)) from error
            raise
        return None

    def without_indexes(self) -> "Segment":
        """The same segment, for one look that believes no index."""
        other, nowhere = copy(self), self.path + ".none"
        other.offset_index = OffsetIndex(self._fs, nowhere, self.base_offset, 0)
        other.time_index = TimeIndex(self._fs, nowhere, self.base_offset, 0)
        return other

    def end_of_batches(self, start: int, max_bytes: int, end: int) -> int:
        """Where the last whole batch within ``max_bytes`` from ``start`` ends.

        At least one batch fits.
        """
        limit = start + max_bytes
        if limit >= end:
            return end
        near = self.offset_index.lookup_position(limit)
        stop = self._trusted(*near) if near.position > start else start
        for position, header in self.batches(stop, end):
            if position + header.size_bytes > limit and position > start:
                break
            stop = position + header.size_bytes
        return stop

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

    def offset_for_timestamp(
        self, timestamp: int, start_offset: int, end: int | None = None
    ) -> TimestampOffset | None:
        """The first record at or above ``start_offset`` with ``timestamp`` or a later one."""
        near = self.time_index.lookup(timestamp)
        first = self.find_batch(max(near.offset, start_offset), end)
        if first is None:
            is_all = end is None or end == self.size
            if is_all and near.offset > max(start_offset, self.base_offset):
                raise CorruptIndex(self.base_offset, near.offset, "no batch reaches this offset")
            return None
        if near.offset >= start_offset:
            self._check_moment(near, first[1])
        for position, header in self.batches(first[0], end):
            if header.max_timestamp < timestamp:
                continue
            content = self.log.read(header.size_bytes, position)
            for record in decode_records(content, start_offset=start_offset, control=True):
                if record.timestamp >= timestamp:
                    return TimestampOffset(record.timestamp, record.offset)
        return None

    def open_all_files(self) -> None:
        """Open or read all files: from here on it does not matter to readers what they are called.

        What is damaged is told to those who read it.
        """
        with suppress(CorruptIndex, CorruptRecord):
            self.txn_index.entries  # noqa: B018  reads the file
        with suppress(CorruptIndex):
            self.offset_index.check()
        with suppress(CorruptIndex):
            self.time_index.check()

    # -- names -------------------------------------------------------------------------------------

    def rename(self, suffix: str) -> None:
        """Give all files of the segment a suffix (``.deleted``).

        Who has them open can go on reading.
        """
        self.open_all_files()
        for own in SUFFIXES:
            old, new = (
                self._path(own),
                os.path.join(self.folder, segment_file(self.base_offset, own) + suffix),
            )
            if self._fs.exists(old):
                self._fs.rename(old, new)
        self._suffix = suffix
        self.log.path = self._path(LOG_SUFFIX)
        self.offset_index.path = self._path(INDEX_SUFFIX)
        self.time_index.path = self._path(TIME_INDEX_SUFFIX)
        self.txn_index.path = self._path(TXN_INDEX_SUFFIX)

    def delete(self) -> None:
        """Close and remove the files."""
        self.log.close()
        self.offset_index.release()
        self.time_index.release()
        self.txn_index.release()
        for own in SUFFIXES:
            self._fs.remove(self._path(own))

    def _path(self, own: str) -> str:
        return os.path.join(self.folder, segment_file(self.base_offset, own) + self._suffix)
