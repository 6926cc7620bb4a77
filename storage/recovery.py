"""Reads one segment to its end, and makes its indexes again.

What opening does with a whole log is ``loader.py``'s business.

==========================  ========================================================================
:class:`Batches`            the batches up to the first that is not good, piece by piece
:func:`read_tail`           what lies behind the last index entry: all that a clean start reads
:func:`last_batches`        the same, where only the segment's end is of interest
:func:`end_by_index`        the segment's end alone, by two small reads
:func:`rebuild_indexes`     both sparse indexes, from the batches' headers
:func:`check_indexes`       every entry of both against the batches
:func:`index_fault`         what is wrong with the index files by their own bytes
==========================  ========================================================================

**Memory is bounded.** A segment is read in pieces of 1 MB. Of a larger batch only the header is
kept, and its CRC is computed piece by piece. (A message of version 0 or 1 is read whole.) Nothing
is mapped: a bad sector is an error of a read, never a SIGBUS.

Nobody else may write to the segment meanwhile. Source: ``LogSegment.recover`` of Kafka.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from raylog.storage.errors import CorruptIndex, CorruptRecord, StorageError
from raylog.storage.files import FileSystem
from raylog.storage.indexes.builder import OFFSET_ENTRY, TIME_ENTRY, IndexBuilder
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.limits import MAX_INT, MAX_LONG
from raylog.storage.records.batch import BatchHeader, read_header, size_of
from raylog.storage.records.layout import (
    AT_LEADER_EPOCH,
    AT_MAGIC,
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
)
from raylog.storage.records.scan import (
    BASE_OFFSET,
    COUNT,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    scan_batches,
)
from raylog.storage.segment import Segment

# How much of a segment is read at once.
PIECE_BYTES = 1 << 20
# How much of a segment's end is read where only its end is of interest. Between two index entries
# lie about 4 KB (``index.interval.bytes``) and a batch.
LOOK_BYTES = 16 << 10


class Piece(NamedTuple):
    """Whole batches, one behind the other."""

    rows: NDArray[np.int64]  # one for each batch, as of a scan; positions are in the segment
    content: bytes  # of them all; of one that is larger than a piece, its header
    position: int  # of the content in the segment

    def header(self, position: int) -> BatchHeader:
        """The header of the batch at a position of the segment."""
        return read_header(self.content, position - self.position)

    def epochs(self) -> NDArray[np.int64]:
        """The leader epoch of each batch; -1 of a message of version 0 or 1."""
        content = np.frombuffer(self.content, np.uint8)
        starts = self.rows[:, POSITION] - self.position
        fields = content[starts[:, None] + np.arange(AT_LEADER_EPOCH, AT_LEADER_EPOCH + 4)]
        epochs = fields.view(">i4")[:, 0].astype(np.int64)
        return np.where(content[starts + AT_MAGIC] == MAGIC, epochs, -1)


class Batches:
    """The batches of a segment from a batch's position on, up to the first that is not good.

    Iterate once. Good batches are whole, their offsets rise from the segment's base and stay below
    ``end_offset``, which begins the next segment, and with ``verify`` their CRC is right.
    """

    def __init__(
        self,
        segment: Segment,
        position: int = 0,
        *,
        verify: bool = False,
        end_offset: int = MAX_LONG,
        piece_bytes: int | None = None,
    ) -> None:
        self.end = position  # behind the last good batch so far
        self.next_offset = segment.base_offset  # behind its last record
        self.is_dense = True  # no offset is missing between the records: no compaction was here
        self.is_full = True  # nor within a batch, which a CRC says
        # From the first offset that is missing between two batches to behind the last one.
        self.gap: tuple[int, int] | None = None
        self._segment, self._verify = segment, verify
        self._piece_bytes = piece_bytes or PIECE_BYTES
        self._last_allowed = min(segment.base_offset + MAX_INT, end_offset - 1)

    @property
    def is_whole(self) -> bool:
        """Whether the good batches lead to the end of the file."""
        return self.end == self._segment.size

    def __iter__(self) -> Iterator[Piece]:
        while self.end < self._segment.size:
            piece = self._read()
            count = self._count_rising(piece.rows)
            is_end = count < len(piece.rows)
            if count and not is_end and self._is_last_raised(piece):
                count, is_end = count - 1, True
            if not count:
                return
            good = piece._replace(rows=piece.rows[:count])
            self._take(good)
            yield good
            if is_end:
                return

    def _read(self) -> Piece:
        """The next batches; without any where no whole one is."""
        content = self._segment.log.read(self._piece_bytes, self.end)
        batches = scan_batches(content, verify=self._verify)
        if batches.end or len(content) < LOG_OVERHEAD:
            return self._piece(batches.rows, content)
        size_bytes = size_of(content)
        if not len(content) < size_bytes <= self._segment.size - self.end:
            return self._piece(batches.rows, content)
        return self._read_large(size_bytes)

    def _read_large(self, size_bytes: int) -> Piece:
        """The next batch, which says that it is larger than a piece."""
        content = self._segment.log.read(HEADER_SIZE, self.end)
        if len(content) == HEADER_SIZE and content[AT_MAGIC] < MAGIC:
            content = self._segment.log.read(size_bytes, self.end)
            return self._piece(scan_batches(content, verify=self._verify).rows, content)
        rows = np.empty((0, 6), np.int64)
        try:
            header = read_header(content)
        except CorruptRecord:
            return self._piece(rows, content)
        is_good = header.last_offset <= MAX_LONG
        if is_good and self._verify:
            is_good = self._crc(size_bytes) == header.crc
        if is_good:
            row = [
                0,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                header.producer_id,
                header.count,
            ]
            rows = np.array([row], np.int64)
        return self._piece(rows, content)

    def _crc(self, size_bytes: int) -> int:
        """The CRC-32C of the next batch, of version 2."""
        crc, at = 0, self.end + CRC_START
        end = self.end + size_bytes
        while at < end:
            content = self._segment.log.read(min(self._piece_bytes, end - at), at)
            if not content:
                break
            crc = crc32c(content, crc)
            at += len(content)
        return crc

    def _piece(self, rows: NDArray[np.int64], content: bytes) -> Piece:
        return Piece(rows + np.array([self.end, 0, 0, 0, 0, 0]), content, self.end)

    def _count_rising(self, rows: NDArray[np.int64]) -> int:
        """How many batches come before the first with offsets that the segment cannot hold.

        No CRC covers the base offset.
        """
        bases, lasts = rows[:, BASE_OFFSET], rows[:, LAST_OFFSET]
        lowest = np.append(self.next_offset, lasts[:-1] + 1)[: len(bases)]
        bad = (bases < lowest) | (lasts < bases) | (lasts > self._last_allowed)
        if not bad.any():
            return len(rows)
        count = int(np.argmax(bad))
        if count and _is_raised(rows[count - 1], int(lowest[count - 1]), rows[count, BASE_OFFSET]):
            count -= 1
        return count

    def _is_last_raised(self, piece: Piece) -> bool:
        """The same of the last batch of a piece: the header behind the piece tells."""
        last = piece.rows[-1]
        lowest = int(piece.rows[-2, LAST_OFFSET]) + 1 if len(piece.rows) > 1 else self.next_offset
        if last[BASE_OFFSET] == lowest:
            return False
        position = int(last[POSITION])
        end = position + size_of(piece.content, position - piece.position)
        try:
            header = read_header(self._segment.log.read(HEADER_SIZE, end))
        except CorruptRecord:
            return False
        return _is_raised(last, lowest, header.base_offset)

    def _take(self, piece: Piece) -> None:
        rows = piece.rows
        bases, lasts = rows[:, BASE_OFFSET], rows[:, LAST_OFFSET]
        ends = np.append(self.next_offset, lasts + 1)
        is_adjacent = np.array_equal(bases, ends[:-1])
        counts = rows[:, COUNT]
        is_full = lasts - bases + 1 == counts
        self.is_dense = self.is_dense and is_adjacent and bool(is_full.all())
        self.is_full = self.is_full and bool((is_full | (counts < 0)).all())
        if not is_adjacent:
            self._note_gap(rows, ends)
        last = int(rows[-1, POSITION])
        self.end = last + size_of(piece.content, last - piece.position)
        self.next_offset = int(lasts[-1]) + 1

    def _note_gap(self, rows: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        # The header of a compressed set of versions 0 and 1 has the last offset alone.
        jumps = np.flatnonzero((rows[:, BASE_OFFSET] > ends[:-1]) & (rows[:, COUNT] >= 0))
        if not len(jumps):
            return
        first = int(ends[jumps[0]]) if self.gap is None else self.gap[0]
        self.gap = first, int(rows[jumps[-1], BASE_OFFSET])

    def read(self) -> None:
        """Read all of them: the attributes tell of all batches then."""
        for _ in self:
            pass

    def check_whole(self) -> None:
        """Raise CorruptRecord, which says what is wrong, unless all was good up to the end."""
        if self.is_whole:
            return
        left = self._segment.size - self.end
        try:
            header = read_header(self._segment.log.read(min(HEADER_SIZE, left), self.end))
        except CorruptRecord as error:
            why = str(error.args[1])
        else:
            why = self._fault(header, left)
        raise CorruptRecord(f"{self._segment.path}, position {self.end}", why)

    def _fault(self, header: BatchHeader, left: int) -> str:
        """Why a batch is not good whose header can be read."""
        if header.size_bytes > left:
            return f"only {left} of {header.size_bytes} bytes of a batch"
        first, last = header.base_offset, header.last_offset
        if self.next_offset <= first <= last <= self._last_allowed:
            return "the CRC is wrong"
        return f"offsets {first} to {last} where {self.next_offset} must follow"


def _is_raised(row: NDArray[np.int64], lowest: int, following: int) -> bool:
    """Whether a batch's own base offset is wrong, and not that of the next one, which is below it.

    Without this batch's gap the offsets go on: it belongs at ``lowest``.
    """
    size = int(row[LAST_OFFSET] - row[BASE_OFFSET]) + 1
    return bool(row[BASE_OFFSET] > lowest) and following == lowest + size


def last_batches(segment: Segment, *, verify: bool = False, end_offset: int = MAX_LONG) -> Batches:
    """The batches from the last index entry on, read to their end; ``verify`` as of Batches.

    It is all of them if those do not lead to the end of the file. The index is given back.
    """
    with suppress(CorruptIndex):
        entry = segment.offset_index.lookup(segment.base_offset + MAX_INT)
        segment.offset_index.drop()
        batches = Batches(segment, entry.position, verify=verify, end_offset=end_offset)
        batches.read()
        # An entry at the very end of a file that became shorter has no batch.
        if batches.is_whole and batches.end > entry.position:
            return batches
    batches = Batches(segment, verify=verify, end_offset=end_offset)
    batches.read()
    return batches


def end_by_index(segment: Segment) -> int | None:
    """The offset behind a segment's last batch, by what lies behind the last index entry.

    None if that does not tell: the index is missing or wrong, the batches do not lead to the end of
    the file, or too many of them lie there. CRCs are not checked.
    """
    entry = segment.offset_index.last_in_file()
    position = 0 if entry is None else entry.position
    if not 0 <= position < segment.size:
        return None
    content = segment.log.read(LOOK_BYTES, position)
    batches = scan_batches(content)
    if position + batches.end == segment.size:
        return int(batches.rows[-1, LAST_OFFSET]) + 1
    with suppress(CorruptRecord):  # only the head of the last batch was read
        header = read_header(content, batches.end)
        if position + batches.end + header.size_bytes == segment.size:
            return header.next_offset
    return None


class Tail(NamedTuple):
    """The end of a segment that was closed in order."""

    next_offset: int
    epoch: int  # of the last batch, -1 if it has none


def read_tail(segment: Segment) -> Tail:
    """Read from the last index entry on.

    Tells the segment its largest timestamp. Raises CorruptIndex if an index does not agree with the
    batches, CorruptRecord if the batches do not lead to the end of the file.
    """
    entry = segment.offset_index.lookup(segment.base_offset + MAX_INT)
    latest = segment.time_index.last
    batches = Batches(segment, entry.position)
    largest, epoch, is_entry_true = latest, -1, not entry.position
    for piece in batches:
        epoch = int(piece.epochs()[-1])
        is_entry_true = is_entry_true or bool((piece.rows[:, LAST_OFFSET] == entry.offset).any())
        largest = _larger(largest, piece)
    if entry.position and not (is_entry_true and batches.is_whole):
        raise CorruptIndex(
            segment.base_offset, entry.offset, "no batch agrees with the last offset index entry"
        )
    batches.check_whole()
    if latest.timestamp != NO_TIMESTAMP:
        check_moment(segment, latest)
    if entry.position and latest.timestamp == NO_TIMESTAMP != largest.timestamp:
        raise CorruptIndex(segment.base_offset, 0, "the time index has no entry")
    segment.largest = largest
    return Tail(batches.next_offset, epoch)


def check_moment(segment: Segment, entry: TimestampOffset) -> None:
    """Raise CorruptIndex unless an entry of the time index means a batch of the segment."""
    batch = segment.find_batch(entry.offset)
    if segment.index_problem is not None:
        raise segment.index_problem
    if batch is None or (batch[1].max_timestamp, batch[1].last_offset) != entry:
        raise CorruptIndex(
            segment.base_offset, entry.offset, "no batch agrees with this time index entry"
        )


def _larger(largest: TimestampOffset, piece: Piece) -> TimestampOffset:
    """The largest timestamp of what was known and of a piece; the first where several are equal."""
    number = int(np.argmax(piece.rows[:, MAX_TIMESTAMP]))
    timestamp = int(piece.rows[number, MAX_TIMESTAMP])
    if timestamp <= largest.timestamp:
        return largest
    return TimestampOffset(timestamp, int(piece.rows[number, LAST_OFFSET]))


def find_batch_anyway(segment: Segment, offset: int) -> tuple[int, BatchHeader] | None:
    """The first batch that reaches ``offset``; wrong indexes are rebuilt meanwhile.

    None if the segment ends before. Raises CorruptRecord.
    """
    batch = segment.find_batch(offset)
    if segment.index_problem is not None:
        rebuild_indexes(segment)
    return batch


# -- indexes ---------------------------------------------------------------------------------------


def rebuild_indexes(segment: Segment) -> None:
    """Make both indexes again from the batches' headers; on disk when this returns.

    Raises CorruptRecord, with both as they were, if the batches do not lead to the segment's end:
    an index of half a segment would hide the rest.
    """
    entries = index_builder(segment)
    batches = Batches(segment)
    for piece in batches:
        add_entries(entries, piece)
    batches.check_whole()
    segment.offset_index.replace(bytes(entries.offsets))
    segment.time_index.replace(entries.times())
    segment.largest, segment.index_problem = entries.largest, None


def index_builder(segment: Segment) -> IndexBuilder:
    """What collects the entries of a segment's indexes."""
    return IndexBuilder(segment.base_offset, segment.config.index_interval_bytes)


def add_entries(entries: IndexBuilder, piece: Piece) -> None:
    """Add the entries of the next batches."""
    rows = piece.rows
    entries.add_all(rows[:, POSITION], rows[:, LAST_OFFSET], rows[:, MAX_TIMESTAMP])


def index_fault(fs: FileSystem, segment: Segment) -> str | None:
    """What is wrong with the files of both sparse indexes by their own bytes; None if nothing is.

    The log is not read. A file that the disk cannot read is wrong too.
    """
    for index, kind in ((segment.offset_index, OFFSET_ENTRY), (segment.time_index, TIME_ENTRY)):
        if not fs.exists(index.path):
            return "an index file is missing"
        try:
            content = fs.read_file(index.path)
        except StorageError as error:
            return str(error)
        if len(content) % kind.itemsize:
            return f"an index file has {len(content) % kind.itemsize} bytes too many"
        entries = np.frombuffer(content, kind)
        for name in kind.names or ():
            column = entries[name]
            if len(column) and column[0] < 0:
                return "an index entry is negative"
            if (column[1:] <= column[:-1]).any():
                return "an index entry is not above the one before"
    return None


def check_indexes(segment: Segment) -> None:
    """Hold every entry of both indexes against the batches; CorruptIndex if one lies.

    An entry made for several batches at once, as Kafka's followers and old messages have it, pairs
    the last offset of them all with the position of the first: a lookup is right by that too.
    """
    offsets = [segment.offset_index[number] for number in range(len(segment.offset_index))]
    times = [segment.time_index[number] for number in range(len(segment.time_index))]
    positions = {entry.position: entry.offset for entry in offsets}
    ends = set(positions.values())
    timestamps = {entry.offset: entry.timestamp for entry in times}
    largest = NO_TIMESTAMP
    batches = Batches(segment)
    for piece in batches:
        columns = (piece.rows[:, n].tolist() for n in (POSITION, LAST_OFFSET, MAX_TIMESTAMP))
        for position, last_offset, max_timestamp in zip(*columns, strict=True):
            if last_offset <= positions.get(position, -1):
                del positions[position]
            ends.discard(last_offset)
            largest = max(largest, max_timestamp)
            if timestamps.get(last_offset) == max_timestamp == largest:
                del timestamps[last_offset]
    batches.check_whole()
    for offset in (*positions.values(), *ends):
        raise CorruptIndex(
            segment.base_offset, offset, "no batch agrees with this entry of the offset index"
        )
    for offset in timestamps:
        raise CorruptIndex(
            segment.base_offset, offset, "no batch agrees with this entry of the time index"
        )
