"""One segment: the batches from one base offset on, and the indexes over them.

::

    00000000000000000042.log        record batches, one behind the other
    00000000000000000042.index      offset -> position in the .log
    00000000000000000042.timeindex  timestamp -> offset
    00000000000000000042.txnindex   aborted transactions, if there are any

A segment is files that are read. It knows nothing of its neighbours, of producers or of retention
(``log.py``, ``state/producers.py``, ``retention.py``). The last one of a log has a
``SegmentWriter`` besides; any number of readers may read meanwhile: a reader stays below a bound
that the log publishes after the write.

An index entry is believed only after a look at the batch it points to. Who meets one that lies
reads on without the index, and leaves the finding in ``index_problem``: making indexes again is the
business of the log's owner. Source: ``LogSegment`` of Kafka.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from raylog.storage.config import LogConfig
from raylog.storage.disk_errors import undo_failed
from raylog.storage.errors import CorruptIndex, CorruptRecord, StorageError
from raylog.storage.files import FileSystem
from raylog.storage.indexes.offset_index import OffsetIndex, OffsetPosition
from raylog.storage.indexes.time_index import TimeIndex, TimestampOffset
from raylog.storage.indexes.transaction_index import TransactionIndex
from raylog.storage.limits import MAX_INT, MAX_LONG
from raylog.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
)
from raylog.storage.records import kernel
from raylog.storage.records.batch import BatchHeader, read_header
from raylog.storage.records.decode import decode_records
from raylog.storage.records.layout import HEADER_SIZE, NO_TIMESTAMP

# How much a search reads at once: what lies between two index entries, mostly.
BLOCK_BYTES = 8192
# What lies between two index entries is read at once, up to this.
MAX_FIRST_BYTES = 65536
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class SegmentId(NamedTuple):
    """Which segment it is, to those who have it open and to those who find its file."""

    base_offset: int
    inode: int  # of the .log: compaction puts other files under the same base offset


class Place(NamedTuple):
    """Where a batch lies in its segment's file, in bytes."""

    position: int
    size_bytes: int

    @property
    def end(self) -> int:
        return self.position + self.size_bytes


class Segment:
    """The batches of one ``.log`` file, with their indexes.

    ``index_problem``: what a reader found wrong with an index; its owner makes the indexes again.
    ``largest``: the largest timestamp, where it is known and the segment is sealed; ``appender``
    knows it of one that is written.
    """

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        base_offset: int,
        config: LogConfig,
        *,
        create: bool = False,
        suffix: str = "",
    ) -> None:
        """``suffix``: behind the names of all files, as ``.cleaned`` is."""
        self.base_offset, self.folder, self.config = base_offset, folder, config
        self._fs, self._suffix = fs, suffix
        self.index_problem: CorruptIndex | None = None
        self.log = fs.open(self._path(LOG_SUFFIX), create=create)
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(fs, self._path(INDEX_SUFFIX), base_offset, index_bytes)
        self.time_index = TimeIndex(fs, self._path(TIME_INDEX_SUFFIX), base_offset, index_bytes)
        self.txn_index = TransactionIndex(fs, self._path(TXN_INDEX_SUFFIX), base_offset)
        self.largest: TimestampOffset | None = None
        # by a reader: (size of the file, largest timestamp in it)
        self._found_largest = -1, TimestampOffset(NO_TIMESTAMP, base_offset)
        self.appender: kernel.ops.Appender | None = None
        self._has_spare_room = create and config.preallocate
        if create:
            self._create()

    def reconfigure(self, config: LogConfig) -> None:
        """Obey another config from now on."""
        self.config = config

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
        except StorageError as error:
            try:
                self.delete()
            except StorageError as second:
                raise undo_failed(self.path, second) from error
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

    def validate(self, next_offset: int) -> None:
        """Assert what a segment promises that ends before ``next_offset``. No batch is read."""
        assert self.base_offset <= next_offset, f"{self.path}: it ends behind its base offset"
        self.offset_index.validate(next_offset, self.size)
        self.time_index.validate(next_offset)
        self.txn_index.validate(next_offset)
        largest = self.largest if self.appender is None else self.appender.largest
        if largest is not None:
            indexed = self.time_index.last.timestamp
            assert indexed <= largest.timestamp, f"{self.path}: it has the times of its index"

    # -- times -------------------------------------------------------------------------------------

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp, with the last offset of the first batch that has it.

        (-1, ..) if there is none. Raises CorruptRecord.
        """
        appender = self.appender
        if appender is not None:
            latest: TimestampOffset = appender.largest
            return latest
        known = self.largest
        if known is not None:
            return known
        size, found = self._found_largest  # a truncation may go on beside this
        if size != self.size:
            size = self.size
            found = self.find_largest()
            self._found_largest = size, found
        return found

    def find_largest(self) -> TimestampOffset:
        """As :attr:`max_timestamp`, read from the files."""
        try:
            last = self.time_index.last
            self._check_entry(last, self.size)
            place = self.find(last.offset)
            return last if place is None else self._largest_from(place.position, last)
        except CorruptIndex as problem:
            self.index_problem = problem
            return self._largest_from(0, TimestampOffset(NO_TIMESTAMP, self.base_offset))

    def _largest_from(self, position: int, largest: TimestampOffset) -> TimestampOffset:
        """``largest``, or what a batch from ``position`` on has above it.

        Entries may be missing at the end of the index.
        """
        for _, header in self.batches(position):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        return largest

    def _check_entry(self, entry: TimestampOffset, end: int) -> None:
        """Raise CorruptIndex unless an entry of the time index means a batch of this segment.

        Of a batch at ``end`` or behind it nothing is known: what lies there may be on its way out.
        """
        batch = self.find_batch(entry.offset, end)
        if batch is not None:
            self._check_moment(entry, batch[1])
        elif 0 < self.size <= end:
            raise CorruptIndex(self.base_offset, entry.offset, "no batch reaches this offset")

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

    # -- finding -----------------------------------------------------------------------------------

    def batches(
        self, position: int = 0, end: int | None = None, end_offset: int = MAX_LONG
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The headers of the batches from a batch's position on, with their positions.

        Raises CorruptRecord unless they lead to ``end`` exactly, with offsets that rise and stay
        below ``end_offset``.
        """
        end = self.size if end is None else end
        return self._rising(self._headers(position, end), self.base_offset, end_offset)

    def _headers(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        block, begin = b"", position
        while position < end:
            if position + HEADER_SIZE > begin + len(block):
                block, begin = self.log.read(min(BLOCK_BYTES, end - position), position), position
            header = read_header(block, position - begin)
            if position + header.size_bytes > end:
                raise self._corrupt(
                    position, f"only {end - position} of {header.size_bytes} bytes of a batch"
                )
            yield position, header
            position += header.size_bytes

    def _rising(
        self, batches: Iterator[tuple[int, BatchHeader]], next_offset: int, end_offset: int
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The same batches, as long as their offsets are what a segment can hold.

        No CRC covers the base offset.
        """
        limit = min(self.base_offset + MAX_INT, end_offset - 1)
        for position, header in batches:
            last_offset = header.last_offset
            if not next_offset <= header.base_offset <= last_offset <= limit:
                why = (
                    f"offsets {header.base_offset} to {last_offset} where {next_offset} to {limit} "
                    "can be"
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
        place = self.find(offset, end)
        if place is None:
            return None
        return place.position, read_header(self.log.read(HEADER_SIZE, place.position))

    def find(self, offset: int, end: int | None = None, end_offset: int = MAX_LONG) -> Place | None:
        """Where the first batch lies that reaches ``offset``; None if the segment ends before.

        ``end``: the position up to which it may be read. ``end_offset``: behind all its offsets,
        where that is known. Raises CorruptRecord.
        """
        end = self.size if end is None else end
        try:
            return self._find_near(offset, end, end_offset)
        except CorruptIndex as problem:
            self.index_problem = problem
            return self._walk(0, end, offset, MAX_LONG, end_offset)

    def position_of(self, offset: int) -> int:
        """Where the batch begins that holds ``offset``; the size if the segment ends before.

        Nothing is read for an offset that is not behind the base offset. Raises CorruptRecord.
        """
        if offset <= self.base_offset:
            return 0
        place = self.find(offset)
        return self.size if place is None else place.position

    def end_before(self, offset: int) -> int:
        """The offset behind the last batch that ends below ``offset``.

        It is the base offset if there is none, or if that cannot be read.
        """
        try:
            position = self.position_of(offset)
            near = self.offset_index.lookup_position(position - 1).position
            end = self.base_offset
            for _, header in self.batches(near, position):
                end = header.next_offset
        except (CorruptIndex, CorruptRecord):
            return self.base_offset
        return end

    def _find_near(self, offset: int, end: int, end_offset: int) -> Place | None:
        """As :meth:`find`, by the index. Raises CorruptIndex if it lies."""
        if self.offset_index.is_missing:
            self.index_problem = CorruptIndex(self.base_offset, 0, "its file is gone")
        below, above = self.offset_index.around(offset)
        if below.position >= self.size > 0:
            why = f"position {below.position} is behind the end of the file"
            raise CorruptIndex(self.base_offset, offset, why)
        try:
            holder = self._holder_by_entry(offset, below, above, end, end_offset)
            if holder is not None:
                return holder
            gap = BLOCK_BYTES if above is None else above.position - below.position + HEADER_SIZE
            first_bytes = max(gap, BLOCK_BYTES) if gap <= MAX_FIRST_BYTES else BLOCK_BYTES
            place = self._walk(below.position, end, offset, MAX_LONG, end_offset, first_bytes)
            if place is None or place.position == 0:
                return place
            if place.position > below.position and below.offset != offset:
                return place
            holder = self._holder(offset, place.position, end, end_offset)
        except CorruptRecord as error:
            if below.position == 0 and above is None:
                raise
            raise CorruptIndex(self.base_offset, offset, str(error)) from error
        if holder is None:
            why = f"the batch at position {place.position} does not hold the offset"
            raise CorruptIndex(self.base_offset, offset, why)
        return holder

    def _holder_by_entry(
        self,
        offset: int,
        below: OffsetPosition,
        above: OffsetPosition | None,
        end: int,
        end_offset: int,
    ) -> Place | None:
        """The batch of one of the two entries around ``offset``, where it is likely the holder.

        An entry has the last offset of its batch. Where batches are large nearly each of them has
        an entry, but never the first of a segment.
        """
        if below.position and below.offset == offset:
            return self._holder(offset, below.position, end, end_offset)
        if above is None or above.position - below.position <= BLOCK_BYTES:
            return None
        is_first_likely = 2 * (offset - self.base_offset) <= above.offset - self.base_offset
        if below.position == 0 and is_first_likely:
            return None
        return self._holder(offset, above.position, end, end_offset)

    def _holder(self, offset: int, position: int, end: int, end_offset: int) -> Place | None:
        """Where the batch lies at ``position``, if it holds ``offset`` and ends by ``end``."""
        if position >= end:
            return None
        header = read_header(self.log.read(HEADER_SIZE, position))
        is_holder = self.base_offset <= header.base_offset <= offset <= header.last_offset
        is_inside = header.last_offset < end_offset and position + header.size_bytes <= end
        if not is_holder or not is_inside:
            return None
        return Place(position, header.size_bytes)

    def _walk(
        self,
        position: int,
        end: int,
        offset: int,
        limit: int,
        end_offset: int,
        block_bytes: int = BLOCK_BYTES,
    ) -> Place | None:
        """The first batch from ``position`` on that reaches ``offset`` or ends behind ``limit``.

        ``block_bytes``: how much the first read takes. None if there is none before ``end``. Raises
        CorruptRecord where the offsets do not rise, or are not below ``end_offset``.
        """
        next_offset = self.base_offset
        while position < end:
            block = self.log.read(min(block_bytes, end - position), position)
            block_bytes = BLOCK_BYTES
            state, at, size, next_offset = kernel.ops.walk(
                block, offset, limit - position, next_offset, end_offset
            )
            position += at
            if state == kernel.ops.WALK_FOUND and position + size <= end:
                return Place(position, size)
            if state != kernel.ops.WALK_MORE or not at:
                return self._walk_slowly(position, end, offset, limit, next_offset, end_offset)
        if position > end:
            raise self._corrupt(end, f"a batch before it leads to position {position}")
        return None

    def _walk_slowly(
        self, position: int, end: int, offset: int, limit: int, next_offset: int, end_offset: int
    ) -> Place | None:
        """As :meth:`_walk`: over messages of older versions, and to say what is wrong."""
        headers = self._headers(position, end)
        for at, header in self._rising(headers, next_offset, end_offset):
            if header.last_offset >= offset or at + header.size_bytes > limit:
                return Place(at, header.size_bytes)
        return None

    def slice(
        self, offset: int, max_bytes: int, end: int, end_offset: int = MAX_LONG
    ) -> Place | None:
        """Where the batches lie from the one that reaches ``offset`` on, up to ``max_bytes``.

        At least one batch, which may be larger. None if there is none before ``end``, the position
        up to which it may be read. ``end_offset``: as of :meth:`find`; of the batches behind the
        first, those that are not looked at here are for the reader to compare with it
        (``scan.next_offset``). Raises CorruptRecord.
        """
        first = self.find(offset, end, end_offset)
        if first is None:
            return None
        stop = self._end_of_batches(first, max_bytes, end, end_offset)
        return Place(first.position, stop - first.position)

    def offset_beyond(self, position: int) -> int | None:
        """An offset behind all batches before a batch's position, by the index; None: no entry.

        Raises CorruptRecord.
        """
        try:
            entry = self.offset_index.entry_from(position)
            if entry is None:
                return None
            header = read_header(self.log.read(HEADER_SIZE, entry.position))
            if header.base_offset <= header.last_offset <= entry.offset:
                return entry.offset
            why = f"no batch that ends by this offset at position {entry.position}"
            self.index_problem = CorruptIndex(self.base_offset, entry.offset, why)
        except (CorruptIndex, CorruptRecord) as error:
            self.index_problem = CorruptIndex(self.base_offset, position, str(error))
        return None

    def _end_of_batches(self, first: Place, max_bytes: int, end: int, end_offset: int) -> int:
        """Where the last whole batch within ``max_bytes`` ends; ``first`` is taken anyway."""
        limit = first.position + max_bytes
        if limit >= end:
            return end
        if first.size_bytes >= max_bytes:
            return first.end
        try:
            near = self.offset_index.lookup_position(limit).position
            beyond = self._walk(max(near, first.end), end, MAX_LONG, limit, end_offset)
        except (CorruptIndex, CorruptRecord) as error:
            self.index_problem = CorruptIndex(self.base_offset, first.position, str(error))
            beyond = self._walk(first.end, end, MAX_LONG, limit, end_offset)
        return end if beyond is None else beyond.position

    def offset_for_timestamp(
        self,
        timestamp: int,
        start_offset: int,
        end: int | None = None,
        end_offset: int = MAX_LONG,
    ) -> TimestampOffset | None:
        """The first record at or above ``start_offset`` with ``timestamp`` or a later one.

        ``end``, ``end_offset``: as of :meth:`find`.
        """
        first = self._batch_before(timestamp, start_offset, end)
        if first is None:
            return None
        for position, header in self.batches(first, end, end_offset):
            if header.max_timestamp < timestamp:
                continue
            content = self.log.read(header.size_bytes, position)
            for record in decode_records(content, start_offset=start_offset, control=True):
                if record.timestamp >= timestamp:
                    return TimestampOffset(record.timestamp, record.offset)
        return None

    def _batch_before(self, timestamp: int, start_offset: int, end: int | None) -> int | None:
        """The position of a batch at or above ``start_offset``, no later than ``timestamp``."""
        try:
            near = self.time_index.lookup(timestamp)
            self._check_entry(near, self.size if end is None else end)
            batch = self.find_batch(max(near.offset, start_offset), end)
        except CorruptIndex as problem:
            self.index_problem = problem
            batch = self.find_batch(start_offset, end)
        return None if batch is None else batch[0]

    # -- files -------------------------------------------------------------------------------------

    def seal(self) -> None:
        """It is not written any more: its indexes leave the memory, and come back mapped."""
        # First what may fail: then the segment is as it was, and is written on.
        self.log.seal()
        self.offset_index.seal()
        self.time_index.seal()
        self.txn_index.seal()
        self.largest, self.appender = self.max_timestamp, None
        self.offset_index.drop()
        self.time_index.drop()

    def give_back_room(self) -> None:
        """Return what was allocated behind the end."""
        if self._has_spare_room or self.config.preallocate:
            self.log.truncate(self.log.size)

    def truncate_to(self, offset: int) -> None:
        """Drop the whole batch that holds ``offset``, and all behind it.

        It is on the disk when this returns. No writer may be at work. An index that lies is left
        in ``index_problem``.
        """
        position = self.position_of(offset)
        if position == self.size:
            return
        # first: entries lead readers to bytes
        try:
            self.offset_index.truncate_to_position(position)
            self.time_index.truncate_to(offset)
        except CorruptIndex as problem:
            self.index_problem = problem
        self.txn_index.truncate_to(offset)
        self.log.truncate(position)
        self.log.flush()
        self.largest = self.appender = None

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

    def release(self) -> None:
        """Close the files as they are: nothing is written."""
        self.log.close()
        self.offset_index.release()
        self.time_index.release()
        self.txn_index.release()

    def open_all_files(self) -> None:
        """Open or read all files: from here on it does not matter to readers what they are called.

        What is damaged is told to those who read it.
        """
        with suppress(CorruptIndex):
            self.txn_index.entries  # noqa: B018  reads the file
        with suppress(CorruptIndex):
            len(self.offset_index)
        with suppress(CorruptIndex):
            len(self.time_index)

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
            if own == LOG_SUFFIX:
                self.log.rename(new)
            elif self._fs.exists(old):
                self._fs.rename(old, new)
        self._suffix = suffix
        self.offset_index.path = self._path(INDEX_SUFFIX)
        self.time_index.path = self._path(TIME_INDEX_SUFFIX)
        self.txn_index.path = self._path(TXN_INDEX_SUFFIX)

    def delete(self) -> None:
        """Close and remove the files."""
        self.offset_index.release()
        self.time_index.release()
        self.txn_index.release()
        self.log.remove()
        for own in SUFFIXES[1:]:
            self._fs.remove(self._path(own))

    def _path(self, own: str) -> str:
        return os.path.join(self.folder, segment_file(self.base_offset, own) + self._suffix)
