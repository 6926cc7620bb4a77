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

import numpy as np

from raylog.storage.config import LogConfig
from raylog.storage.errors import CorruptIndex, CorruptRecord, StorageError
from raylog.storage.files import FileSystem, undo_failed
from raylog.storage.indexes.builder import IndexBuilder
from raylog.storage.indexes.offset_index import OffsetIndex
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
from raylog.storage.records.batch import BatchHeader, read_header, size_of
from raylog.storage.records.decode import decode_records
from raylog.storage.records.layout import HEADER_SIZE, LOG_OVERHEAD, NO_TIMESTAMP
from raylog.storage.records.scan import (
    BASE_OFFSET,
    COUNT,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    SCAN_COLUMNS,
    Scan,
    scan_batches,
)

# How much recovery reads at once.
SCAN_BYTES = 1 << 20
# How much a search reads at once: what lies between two index entries, mostly.
BLOCK_BYTES = 8192
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


class Recovered(NamedTuple):
    """What :meth:`Segment.recover` found."""

    cut_bytes: int
    next_offset: int
    is_dense: bool  # no offset is missing between its records: no compaction has been here


class Segment:
    """The batches of one ``.log`` file, with their indexes.

    ``index_problem``: what a reader found wrong with an index; its owner makes the indexes again.
    ``largest``: the largest timestamp, where it is known and the segment is sealed; ``appender``
    knows it of one that is written. ``is_deleted``: its files are going.
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
        self.is_deleted = False
        self.log = fs.open(self._path(LOG_SUFFIX), create=create)
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(fs, self._path(INDEX_SUFFIX), base_offset, index_bytes)
        self.time_index = TimeIndex(fs, self._path(TIME_INDEX_SUFFIX), base_offset, index_bytes)
        self.txn_index = TransactionIndex(fs, self._path(TXN_INDEX_SUFFIX), base_offset)
        self.largest: TimestampOffset | None = None
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
        if self.largest is None:
            self.largest = self._find_largest()
        return self.largest

    def _find_largest(self) -> TimestampOffset:
        try:
            last = self.time_index.last
            self._check_entry(last)
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

    def _check_entry(self, entry: TimestampOffset) -> None:
        """Raise CorruptIndex unless an entry of the time index means a batch of this segment."""
        batch = self.find_batch(entry.offset)
        if batch is not None:
            self._check_moment(entry, batch[1])
        elif self.size:
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
        self, position: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The headers of the batches from a batch's position on, with their positions.

        Raises CorruptRecord unless they lead to ``end`` exactly, with offsets that rise.
        """
        return self._rising(self._headers(position, self.size if end is None else end))

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
        place = self.find(offset, end)
        if place is None:
            return None
        return place.position, read_header(self.log.read(HEADER_SIZE, place.position))

    def find(self, offset: int, end: int | None = None) -> Place | None:
        """Where the first batch lies that reaches ``offset``; None if the segment ends before.

        ``end``: the position up to which it may be read. Raises CorruptRecord.
        """
        end = self.size if end is None else end
        try:
            return self._find_near(offset, end)
        except CorruptIndex as problem:
            self.index_problem = problem
            return self._walk(0, end, offset, MAX_LONG)

    def _find_near(self, offset: int, end: int) -> Place | None:
        """As :meth:`find`, by the index. Raises CorruptIndex if it lies."""
        below, above = self.offset_index.around(offset)
        if below.position >= self.size > 0:
            why = f"position {below.position} is behind the end of the file"
            raise CorruptIndex(self.base_offset, offset, why)
        try:
            if above is not None and above.position - below.position > BLOCK_BYTES:
                # Large batches: the entry behind is mostly of the very batch.
                holder = self._holder(offset, above.position, end)
                if holder is not None:
                    return holder
            place = self._walk(below.position, end, offset, MAX_LONG)
            if place is None or place.position == 0 or place.position > below.position:
                return place
            holder = self._holder(offset, below.position, end)
        except CorruptRecord as error:
            if below.position == 0 and above is None:
                raise
            raise CorruptIndex(self.base_offset, offset, str(error)) from error
        if holder is None:
            why = f"the batch at position {below.position} begins behind the offset"
            raise CorruptIndex(self.base_offset, offset, why)
        return holder

    def _holder(self, offset: int, position: int, end: int) -> Place | None:
        """Where the batch lies at ``position``, if it holds ``offset`` and ends by ``end``."""
        if position >= end:
            return None
        header = read_header(self.log.read(HEADER_SIZE, position))
        is_holder = header.base_offset <= offset <= header.last_offset
        if not is_holder or position + header.size_bytes > end:
            return None
        return Place(position, header.size_bytes)

    def _walk(self, position: int, end: int, offset: int, limit: int) -> Place | None:
        """The first batch from ``position`` on that reaches ``offset`` or ends behind ``limit``.

        None if there is none before ``end``. Raises CorruptRecord.
        """
        next_offset = self.base_offset
        while position < end:
            block = self.log.read(min(BLOCK_BYTES, end - position), position)
            state, at, size, next_offset = kernel.ops.walk(
                block, offset, limit - position, next_offset
            )
            position += at
            if state == kernel.ops.WALK_FOUND and position + size <= end:
                return Place(position, size)
            if state != kernel.ops.WALK_MORE or not at:
                return self._walk_slowly(position, end, offset, limit)
        return None

    def _walk_slowly(self, position: int, end: int, offset: int, limit: int) -> Place | None:
        """As :meth:`_walk`: over messages of older versions, and to say what is wrong."""
        for at, header in self.batches(position, end):
            if header.last_offset >= offset or at + header.size_bytes > limit:
                return Place(at, header.size_bytes)
        return None

    def slice(self, offset: int, max_bytes: int, end: int) -> Place | None:
        """Where the batches lie from the one that reaches ``offset`` on, up to ``max_bytes``.

        At least one batch, which may be larger. None if there is none before ``end``, the position
        up to which it may be read. Raises CorruptRecord.
        """
        first = self.find(offset, end)
        if first is None:
            return None
        stop = self._end_of_batches(first, max_bytes, end)
        return Place(first.position, stop - first.position)

    def _end_of_batches(self, first: Place, max_bytes: int, end: int) -> int:
        """Where the last whole batch within ``max_bytes`` ends; ``first`` is taken anyway."""
        limit = first.position + max_bytes
        if limit >= end:
            return end
        if first.size_bytes >= max_bytes:
            return first.end
        try:
            near = self.offset_index.lookup_position(limit).position
            beyond = self._walk(max(near, first.position), end, MAX_LONG, limit)
        except (CorruptIndex, CorruptRecord) as error:
            self.index_problem = CorruptIndex(self.base_offset, first.position, str(error))
            beyond = self._walk(first.position, end, MAX_LONG, limit)
        return end if beyond is None else beyond.position

    def offset_for_timestamp(
        self, timestamp: int, start_offset: int, end: int | None = None
    ) -> TimestampOffset | None:
        """The first record at or above ``start_offset`` with ``timestamp`` or a later one."""
        first = self._batch_before(timestamp, start_offset, end)
        if first is None:
            return None
        for position, header in self.batches(first, end):
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
            self._check_entry(near)
            batch = self.find_batch(max(near.offset, start_offset), end)
        except CorruptIndex as problem:
            self.index_problem = problem
            batch = self.find_batch(start_offset, end)
        return None if batch is None else batch[0]

    # -- mending -----------------------------------------------------------------------------------

    def find_batch_anyway(self, offset: int) -> tuple[int, BatchHeader] | None:
        """As :meth:`find_batch`, but wrong indexes are rebuilt first.

        Call it only while nobody else reads or writes.
        """
        batch = self.find_batch(offset)
        if self.index_problem is not None:
            self.rebuild_indexes()
        return batch

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

    def recover(self, end_offset: int = MAX_LONG) -> tuple[Recovered, Scan]:
        """Check every batch, cut behind the last good one, rebuild the indexes.

        The indexes are flushed with the rest.

        ``end_offset``: where the next segment begins, which no good batch reaches into.
        The transaction index stays: what aborted is known to who follows the producers.
        """
        size, good = self.size, self._rising_part(self._verified(), end_offset)
        if good.end < size:
            self.log.truncate(good.end)
            self.log.flush()  # once it is sealed nobody looks for torn bytes in it again
        entries = self._entries_of(good)
        self.offset_index.rewrite(bytes(entries.offsets))
        self.time_index.rewrite(entries.times())
        bases, lasts = good.rows[:, BASE_OFFSET], good.rows[:, LAST_OFFSET]
        ends = np.append(self.base_offset, lasts + 1)
        is_dense = np.array_equal(bases, ends[:-1]) and np.array_equal(
            lasts - bases + 1, good.rows[:, COUNT]
        )
        return Recovered(size - good.end, int(ends[-1]), is_dense), good

    def scan(self, position: int = 0) -> Scan:
        """As :meth:`batches`, all at once: what their headers say. Raises CorruptRecord."""
        batches = self._rising_part(scan_batches(self.log.view(), position))
        if batches.end < self.size:
            for _ in self.batches(position):  # it says what is wrong
                pass
        return batches

    def _rising_part(self, batches: Scan, end_offset: int = MAX_LONG) -> Scan:
        """The batches before the first with offsets that no segment can hold.

        See :meth:`_rising`.
        """
        bases, lasts = batches.rows[:, BASE_OFFSET], batches.rows[:, LAST_OFFSET]
        bad = bases < np.append(self.base_offset, lasts[:-1] + 1)[: len(bases)]
        bad |= (lasts < bases) | (lasts > min(self.base_offset + MAX_INT, end_offset - 1))
        return batches.first(int(np.argmax(bad))) if bad.any() else batches

    def _verified(self) -> Scan:
        """The batches up to the first whose CRC is wrong: read in pieces that a cache can hold."""
        runs, end, size = [np.empty((0, SCAN_COLUMNS), np.int64)], 0, SCAN_BYTES
        while end < self.size:
            piece = self.log.read(size, end)
            batches = scan_batches(piece, verify=True)
            if batches.end:
                runs.append(batches.rows + np.array([end, *[0] * (SCAN_COLUMNS - 1)]))
                end, size = end + batches.end, SCAN_BYTES
            elif len(piece) < LOG_OVERHEAD or not size < size_of(piece) <= self.size - end:
                break  # otherwise it is a batch larger than the piece
            else:
                size = size_of(piece)
        return Scan(np.concatenate(runs), end)

    def is_whole(self) -> bool:
        """Whether batches' headers lead from the file's head exactly to its end."""
        return self._rising_part(scan_batches(self.log.view())).end == self.size

    def last_batch(self) -> BatchHeader | None:
        """The header of the last batch; None if there is none."""
        last = None
        for _, header in self.batches(self._near_end()):
            last = header
        return last

    def _near_end(self) -> int:
        """The position of a batch near the end."""
        try:
            return self._trusted(*self.offset_index.lookup(self.base_offset + MAX_INT))
        except CorruptIndex:
            self.rebuild_indexes()
            return self._trusted(*self.offset_index.lookup(self.base_offset + MAX_INT))

    def rebuild_indexes(self) -> None:
        """Make both indexes again from the batches' headers; on disk when this returns."""
        entries = self._entries_of(self.scan())
        self.offset_index.replace(bytes(entries.offsets))
        self.time_index.replace(entries.times())
        self.index_problem = None

    def _entries_of(self, batches: Scan) -> IndexBuilder:
        """What both indexes of these batches, which are all, must hold."""
        entries = IndexBuilder(self.base_offset, self.config.index_interval_bytes)
        rows = batches.rows
        entries.add_all(rows[:, POSITION], rows[:, LAST_OFFSET], rows[:, MAX_TIMESTAMP])
        self.largest = entries.largest
        return entries

    def check_indexes(self) -> None:
        """Hold every entry of both indexes against the batches; CorruptIndex if one lies.

        An entry made for several batches at once, as Kafka's followers and old messages have it,
        pairs the last offset of them all with the position of the first: a lookup is right by that
        too.
        """
        offsets = [self.offset_index[number] for number in range(len(self.offset_index))]
        times = [self.time_index[number] for number in range(len(self.time_index))]
        positions = {entry.position: entry.offset for entry in offsets}
        ends = set(positions.values())
        timestamps = {entry.offset: entry.timestamp for entry in times}
        largest = NO_TIMESTAMP
        columns = map(self.scan().column, (POSITION, LAST_OFFSET, MAX_TIMESTAMP))
        for position, last_offset, max_timestamp in zip(*columns, strict=True):
            if last_offset <= positions.get(position, -1):
                del positions[position]
            ends.discard(last_offset)
            largest = max(largest, max_timestamp)
            if timestamps.get(last_offset) == max_timestamp == largest:
                del timestamps[last_offset]
        for offset in (*positions.values(), *ends):
            raise CorruptIndex(
                self.base_offset, offset, "no batch agrees with this entry of the offset index"
            )
        for offset in timestamps:
            raise CorruptIndex(
                self.base_offset, offset, "no batch agrees with this entry of the time index"
            )

    # -- files -------------------------------------------------------------------------------------

    def seal(self) -> None:
        """It is not written any more: its indexes leave the memory, and come back mapped."""
        self.log.seal()
        self.largest, self.appender = self.max_timestamp, None
        self.offset_index.drop()
        self.time_index.drop()
        self.txn_index.seal()

    def give_back_room(self) -> None:
        """Return what was allocated behind the end."""
        if self._has_spare_room or self.config.preallocate:
            self.log.truncate(self.log.size)

    def truncate_to(self, offset: int) -> None:
        """Drop the whole batch that holds ``offset``, and all behind it.

        It is on the disk when this returns. No writer may be at work.
        """
        place = self.find(offset)
        if place is None:
            return
        # first: entries lead readers to bytes
        self.offset_index.truncate_to_position(place.position)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.log.truncate(place.position)
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
        self.is_deleted = True
        self.offset_index.release()
        self.time_index.release()
        self.txn_index.release()
        self.log.remove()
        for own in SUFFIXES[1:]:
            self._fs.remove(self._path(own))

    def _path(self, own: str) -> str:
        return os.path.join(self.folder, segment_file(self.base_offset, own) + self._suffix)
