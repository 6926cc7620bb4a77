"""What any number of threads may ask of a log while one writer appends to it.

They ask for offsets, for records, and for offsets by time.

Nobody locks here. The segment list is an immutable tuple, and the log end is published, in one
assignment, after its bytes are written: a reader takes the end first and the segments second, so
that what the one bounds is in the other. A segment that leaves the log is renamed and kept open for
a while among the *doomed*, where a reader that was told of it before still finds it. A truncation
is counted twice: when the new end is published, before bytes go, and when they are gone. Who saw an
older end, or was in between, and met something odd, tells it by the count, and looks again.

Source: ``LocalLog.read`` and ``UnifiedLog.fetchOffsetByTimestamp`` of Kafka.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal, NamedTuple, TypeVar

from raylog.storage.errors import CorruptIndex, CorruptRecord, OffsetOutOfRange, SegmentDeleted
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.names import TopicPartition
from raylog.storage.records.layout import NO_TIMESTAMP
from raylog.storage.segment import Segment
from raylog.storage.state.producers import ProducerStates

# ListOffsets' special timestamps.
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6

Answer = TypeVar("Answer")

# How far a read may see: Kafka's FetchIsolation.
Isolation = Literal["log_end", "high_watermark", "committed"]
LOG_END: Final = "log_end"
COMMITTED: Final = "committed"


class Slice(NamedTuple):
    """Whole batches that lie behind each other in one segment's file: what a read answers with.

    The path may be renamed or taken by another file after the answer; the inode tells.
    """

    path: str
    inode: int
    position: int
    size_bytes: int


class LogEnd(NamedTuple):
    """The bound of readers.

    That is the next offset, and the bytes of the active segment that they may see.
    """

    offset: int
    segment_base: int
    position: int


class ReadableLog:
    """A log as its readers see it; ``Log`` is it with a writer."""

    partition: TopicPartition
    log_start_offset: int
    truncations: int  # two for each, odd while one goes on: who meets one begins again
    _producers: ProducerStates
    _segments: tuple[Segment, ...]
    _doomed: list[tuple[int, Segment]]  # (when their files may go, segment)
    _end: LogEnd

    # -- offsets -----------------------------------------------------------------------------------

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; the last is the active one."""
        return self._segments

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._end.offset

    @property
    def high_watermark(self) -> int:
        """The end of what is replicated: the log's end, while a log has one replica."""
        return self._end.offset

    @property
    def last_stable_offset(self) -> int:
        """The end of what no open transaction can still abort."""
        unstable = self._producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return max(min(unstable, self.high_watermark), self.log_start_offset)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    # -- read --------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, isolation: Isolation = LOG_END) -> Slice | None:
        """Where the batches lie that hold ``offset`` and what follows, or None at the log's end.

        The slice lies in one segment, ends at the end of a batch and has at least one, even one
        that is larger than ``max_bytes``. Its first batch may begin before ``offset``. With
        ``isolation`` "committed" it ends at the last stable offset; what of it was aborted,
        :meth:`aborted_in` tells. Raises OffsetOutOfRange.
        """
        return self._undisturbed(lambda: self._read(offset, max_bytes, isolation))

    def _undisturbed(self, look: Callable[[], Answer]) -> Answer:
        """What ``look`` answers; again, if it met a truncation."""
        while True:
            truncations = self.truncations
            try:
                return look()
            except (CorruptRecord, CorruptIndex):
                if truncations == self.truncations and not truncations % 2:
                    raise

    @staticmethod
    def _anyway(segment: Segment, look: Callable[[Segment], Answer]) -> Answer:
        """What ``look`` answers; without the segment's indexes, if they lie."""
        try:
            return look(segment)
        except CorruptIndex:
            return look(segment.without_indexes())

    def _read(self, offset: int, max_bytes: int, isolation: Isolation) -> Slice | None:
        end = self._end  # before the segments: what it bounds is in them
        segments = self._segments
        if not self.log_start_offset <= offset <= end.offset:
            raise OffsetOutOfRange(str(self.partition), offset, self.log_start_offset, end.offset)
        if isolation == COMMITTED:
            end = self._stable_end(segments, end)
        if offset >= end.offset:
            return None
        for segment in segments[self._floor(segments, offset) :]:
            limit = end.position if segment.base_offset == end.segment_base else segment.size
            look = partial(self._slice, offset=offset, max_bytes=max_bytes, limit=limit)
            piece = self._anyway(segment, look)
            if piece is not None or segment.base_offset == end.segment_base:
                return piece
        return None

    def _stable_end(self, segments: Sequence[Segment], end: LogEnd) -> LogEnd:
        """As ``end``, for the last stable offset."""
        stable = self.last_stable_offset
        if stable >= end.offset:
            return end
        segment = segments[self._floor(segments, stable)]
        return LogEnd(stable, segment.base_offset, self._position_of(segment, stable))

    def aborted_in(self, piece: Slice, offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with data in a slice that was just read from ``offset``.

        A reader skips a producer's transactional batches from each first offset to the abort
        marker. Some of them may lie behind the slice.
        """
        segments = self._segments
        number = next(
            (n for n, segment in enumerate(segments) if segment.log.inode == piece.inode), None
        )
        if number is None:
            return self._aborted_in_doomed(piece, offset)
        after = segments[number].offset_index.offset_after(piece.position + piece.size_bytes)
        if after is None:
            after = (
                segments[number + 1].base_offset if number + 1 < len(segments) else self._end.offset
            )
        aborted: list[AbortedTransaction] = []
        for segment in segments[number:]:
            some, is_complete = segment.txn_index.collect(offset, after)
            aborted += some
            if is_complete:
                break
        return aborted

    def _aborted_in_doomed(self, piece: Slice, offset: int) -> list[AbortedTransaction]:
        """As :meth:`aborted_in`, for a segment that has been replaced since.

        The segments that follow it may be replaced too.
        """
        every = [*self._segments, *(segment for _, segment in self._doomed)]
        holder = next((segment for segment in every if segment.log.inode == piece.inode), None)
        if holder is None:
            raise SegmentDeleted(piece.path)
        behind = [segment for segment in every if segment.base_offset >= holder.base_offset]
        entries = {entry for segment in behind for entry in segment.txn_index.entries}
        return sorted(
            (e for e in entries if e.last_offset >= offset), key=lambda entry: entry.last_offset
        )

    def _slice(self, segment: Segment, offset: int, max_bytes: int, limit: int) -> Slice | None:
        first = segment.find_batch(offset, limit)
        if first is None:
            return None
        start = first[0]
        stop = segment.end_of_batches(start, max_bytes, limit)
        return Slice(
            path=segment.path, inode=segment.log.inode, position=start, size_bytes=stop - start
        )

    def read_bytes(self, piece: Slice) -> bytes:
        """The bytes of a slice that :meth:`read` has just answered."""
        every = [*self._segments, *(segment for _, segment in self._doomed)]
        segment = next((segment for segment in every if segment.log.inode == piece.inode), None)
        if segment is None:
            raise SegmentDeleted(piece.path)
        return segment.log.read(piece.size_bytes, piece.position)

    def offset_for_timestamp(
        self, timestamp: int, isolation: Isolation = LOG_END
    ) -> TimestampOffset | None:
        """The first record whose timestamp is ``timestamp`` (ms) or later.

        None if there is none that ``isolation`` lets a reader see.

        LATEST (-1) gives the end of what it lets a reader see; EARLIEST (-2) and EARLIEST_LOCAL
        (-4) the log start offset, all with timestamp -1; MAX_TIMESTAMP (-3) the first record with
        the largest timestamp. LATEST_TIERED (-5) and EARLIEST_PENDING_UPLOAD (-6) give None: no
        record is anywhere but here.
        """
        limit = self.last_stable_offset if isolation == COMMITTED else self._end.offset
        if timestamp == LATEST:
            return TimestampOffset(NO_TIMESTAMP, limit)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return TimestampOffset(NO_TIMESTAMP, self.log_start_offset)
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return None
        moment = self._undisturbed(lambda: self._first_at(timestamp))
        return None if moment is None or moment.offset >= limit else moment

    def _first_at(self, timestamp: int) -> TimestampOffset | None:
        end = self._end
        segments = self._segments
        if timestamp == MAX_TIMESTAMP:
            timestamp = max(segment.max_timestamp.timestamp for segment in segments)
            if timestamp < 0:
                return None
        for segment in segments:
            if segment.max_timestamp.timestamp < timestamp:
                continue
            limit = end.position if segment.base_offset == end.segment_base else segment.size
            look = partial(
                Segment.offset_for_timestamp,
                timestamp=timestamp,
                start_offset=self.log_start_offset,
                end=limit,
            )
            moment = self._anyway(segment, look)
            if moment is not None:
                return moment
        return None

    @staticmethod
    def _floor(segments: Sequence[Segment], offset: int) -> int:
        return max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)

    @staticmethod
    def _position_of(segment: Segment, offset: int) -> int:
        batch = segment.find_batch(offset)
        return segment.size if batch is None else batch[0]
