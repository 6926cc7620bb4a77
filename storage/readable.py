"""What any number of threads may ask of a log while one writer appends to it.

They ask for records, for offsets, and for offsets by time.

Nobody locks here. A reader takes, in this order: the bound below which it may read, the list of
segments (an immutable tuple), and the log start offset. The writer publishes in the order that
makes this right: bytes before the bound that covers them, a higher log start before the segments
below it leave the list, a lower bound before bytes are cut. So what the bound covers is in the list
or below the start. Whoever finds another list at the end than the one that it took begins again: a
truncation puts one in place before it cuts, and one when it is done.

A read answers with an open file, not with a name: its bytes stay, whatever becomes of the segment
meanwhile.

Who reads never repairs. An index that lies is read past, and noted for the log's owner
(``Log.mend_indexes``). Source: ``LocalLog.read`` and ``UnifiedLog.fetchOffsetByTimestamp`` of
Kafka.
"""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, Literal, NamedTuple

from raylog.storage.errors import CorruptRecord, LogClosed, OffsetOutOfRange, SegmentDeleted
from raylog.storage.files import OpenFile
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.limits import MAX_LONG
from raylog.storage.log_end import Bound, LogEnd
from raylog.storage.log_offsets import LogOffsets
from raylog.storage.names import TopicPartition
from raylog.storage.records.layout import NO_TIMESTAMP
from raylog.storage.segment import Segment
from raylog.storage.state.epochs import NO_EPOCH, EpochEnd, LeaderEpochs

# ListOffsets' special timestamps.
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6

# How far a read may see: Kafka's FetchIsolation. Followers see the log's end.
Isolation = Literal["log_end", "high_watermark", "committed"]
LOG_END: Final = "log_end"
HIGH_WATERMARK: Final = "high_watermark"
COMMITTED: Final = "committed"

_base_offset = attrgetter("base_offset")


class LogRead(NamedTuple):
    """What a read answers: where the batches lie, and the log's offsets at that moment.

    ``size_bytes`` is 0, and ``file`` None, where there is nothing to read yet.
    """

    file: OpenFile | None
    path: str  # of the file, when it was read; it may have another name since
    segment_base: int  # the base offset of the segment; -1 if nothing was read
    position: int
    size_bytes: int
    # Behind all offsets of these batches: where the next segment begins, or what may be read ends.
    # No CRC covers a base offset, so a reader compares: ``records.scan.next_offset``.
    end_offset: int  # -1 if nothing was read
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    leader_epoch: int  # -1 if there is none
    # For readers of committed records: what of it was aborted. A reader skips a producer's
    # transactional batches from each first offset to the abort marker, which may lie behind.
    aborted: tuple[AbortedTransaction, ...]
    # The log has lost its end since the reader read it, and parts from what he has at this offset,
    # the end of this epoch. Nothing was read then.
    diverging: EpochEnd | None = None

    def read(self) -> bytes:
        """The batches' bytes; none where there are none."""
        return b"" if self.file is None else self.file.read(self.size_bytes, self.position)


class _Found(NamedTuple):
    """Batches in one of the log's segments."""

    number: int  # of the segment in the list
    file: OpenFile | None
    path: str
    segment_base: int
    position: int
    size_bytes: int
    end_offset: int


_NOTHING = _Found(
    number=-1, file=None, path="", segment_base=-1, position=0, size_bytes=0, end_offset=-1
)


class ReadableLog:
    """A log as its readers see it; ``Log`` is it with a writer."""

    partition: TopicPartition
    epochs: LeaderEpochs
    wrong_indexes: set[Segment]  # segments whose index a reader found lying
    _segments: tuple[Segment, ...]
    _offsets: LogOffsets
    _log_end: LogEnd

    # -- offsets -----------------------------------------------------------------------------------

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; the last is the active one."""
        return self._segments

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._offsets.start

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log_end.end.offset

    @property
    def high_watermark(self) -> int:
        """The end of what consumers may read.

        It is the log's end, but for records that wait for an fsync where ``flush.messages`` asks
        for one.
        """
        return self._log_end.high_watermark.offset

    @property
    def readable_bytes(self) -> int:
        """All bytes that were appended, and became readable, since the log was opened."""
        return self._log_end.high_watermark.appended_bytes

    @property
    def last_stable_offset(self) -> int:
        """The end of what no open transaction can still abort."""
        return self._stable(self._log_end.high_watermark.offset)

    def _stable(self, high_watermark: int) -> int:
        """The last stable offset under a high watermark that was taken before."""
        end = self._log_end
        unstable = end.producers.first_unstable_offset
        firsts = [high_watermark if unstable is None else unstable]
        # A marker that a loss of power may still take away decides nothing.
        firsts += (e.first_offset for e in end.ended if e.marker_offset >= high_watermark)
        return max(min(*firsts, high_watermark), min(self._offsets.start, high_watermark))

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    # -- read --------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation = "high_watermark",
        last_fetched_epoch: int = NO_EPOCH,
    ) -> LogRead:
        """The batches that hold ``offset`` and what follows, and the log's offsets.

        They lie in one segment, end at the end of a batch, and are at least one, even one that is
        larger than ``max_bytes``. The first may begin before ``offset``. Nothing is read at the end
        of what ``isolation`` lets a reader see. Raises OffsetOutOfRange, CorruptRecord.

        ``last_fetched_epoch``: the leader epoch of a batch that the reader has, the last one before
        ``offset`` or a later one; -1: not known. Where this log ended that epoch before ``offset``,
        or lacks it, the answer is where the two part: ``LogRead.diverging``. OffsetOutOfRange where
        the epoch is above all of this log. Source: KIP-320; ``Partition.readRecords`` of Kafka.
        """
        while True:
            before = self._segments
            mark = self._log_end.high_watermark
            stable = self._stable(mark.offset)
            end = self._log_end.end
            diverging = self._diverging(last_fetched_epoch, offset, end.offset)
            segments = self._segments
            start = self._offsets.start
            if segments is not before or mark.offset > end.offset:
                continue  # a truncation has come between, and these are not of one moment
            is_unknown = diverging is not None and diverging.epoch == NO_EPOCH
            is_behind_end = diverging is None and offset > end.offset
            if offset < start or is_behind_end or is_unknown:
                raise OffsetOutOfRange(str(self.partition), offset, start, end.offset)
            bound = end if isolation == LOG_END else mark
            aborted: tuple[AbortedTransaction, ...] = ()
            try:
                if isolation == COMMITTED:
                    bound = self._stable_bound(segments, mark, stable)
                parts = diverging is not None
                found = None if parts else self._find(segments, offset, max_bytes, bound)
                if found is not None and isolation == COMMITTED:
                    aborted = self._aborted(segments, found, offset, end.offset)
            except (CorruptRecord, LogClosed, SegmentDeleted):
                if segments is self._segments:
                    raise
                continue
            if segments is not self._segments:
                continue  # what was found may have been cut meanwhile, or its aborts
            found = found or _NOTHING
            return LogRead(
                file=found.file,
                path=found.path,
                segment_base=found.segment_base,
                position=found.position,
                size_bytes=found.size_bytes,
                end_offset=found.end_offset,
                log_start_offset=start,
                high_watermark=mark.offset,
                last_stable_offset=stable,
                log_end_offset=end.offset,
                leader_epoch=self.epochs.latest,
                aborted=aborted,
                diverging=diverging,
            )

    def _diverging(self, last_fetched_epoch: int, offset: int, end_offset: int) -> EpochEnd | None:
        """Where the log parts from what a reader has; None if it does not."""
        if last_fetched_epoch < 0:
            return None
        found = self.epochs.end_offset_for(last_fetched_epoch, end_offset)
        return found if found.epoch < last_fetched_epoch or found.offset < offset else None

    def _find(
        self, segments: Sequence[Segment], offset: int, max_bytes: int, bound: Bound
    ) -> _Found | None:
        """The batches from ``offset`` on below a bound; None if there are none."""
        if offset >= bound.offset:
            return None
        for number in range(floor_of(segments, offset), len(segments)):
            segment = segments[number]
            end, end_offset = _ends(segments, number, bound)
            place = segment.slice(offset, max_bytes, end, end_offset)
            self._look_for_problems(segment)
            if place is not None:
                return _Found(
                    number=number,
                    file=segment.log.opened(),
                    path=segment.path,
                    segment_base=segment.base_offset,
                    position=place.position,
                    size_bytes=place.size_bytes,
                    end_offset=end_offset,
                )
            if segment.base_offset == bound.segment_base:
                return None
        return None

    def _look_for_problems(self, segment: Segment) -> None:
        if segment.index_problem is not None:
            self.wrong_indexes.add(segment)

    def _stable_bound(self, segments: Sequence[Segment], mark: Bound, stable: int) -> Bound:
        """As ``mark``, for the last stable offset."""
        if stable >= mark.offset:
            return mark
        number = floor_of(segments, stable)
        segment = segments[number]
        end, end_offset = _ends(segments, number, mark)
        place = segment.find(stable, end, end_offset)
        return Bound(stable, segment.base_offset, end if place is None else place.position)

    def _aborted(
        self, segments: Sequence[Segment], found: _Found, offset: int, end_offset: int
    ) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions with data in batches that were read from ``offset``.

        Of a segment that was deleted meanwhile they may be missing: then the log has another list.
        """
        after = segments[found.number].offset_beyond(found.position + found.size_bytes)
        self._look_for_problems(segments[found.number])
        if after is None:
            is_last = found.number + 1 == len(segments)
            after = end_offset if is_last else segments[found.number + 1].base_offset
        aborted: list[AbortedTransaction] = []
        for number in range(found.number, len(segments)):
            some, is_complete = segments[number].txn_index.collect(offset, after)
            aborted += some
            if is_complete:
                break
        return tuple(aborted)

    # -- times -------------------------------------------------------------------------------------

    def offset_for_timestamp(
        self, timestamp: int, isolation: Isolation = "high_watermark"
    ) -> TimestampOffset | None:
        """The first record whose timestamp is ``timestamp`` (ms) or later.

        None if there is none that ``isolation`` lets a reader see.

        LATEST (-1) gives the end of what it lets a reader see; EARLIEST (-2) and EARLIEST_LOCAL
        (-4) the log start offset, all with timestamp -1; MAX_TIMESTAMP (-3) the first record with
        the largest timestamp. LATEST_TIERED (-5) and EARLIEST_PENDING_UPLOAD (-6) give None: no
        record is anywhere but here.
        """
        while True:
            segments = self._segments
            bound, limit = self._bound_of(isolation)
            start = self._offsets.start
            if timestamp == LATEST:
                return TimestampOffset(NO_TIMESTAMP, limit)
            if timestamp in (EARLIEST, EARLIEST_LOCAL):
                return TimestampOffset(NO_TIMESTAMP, start)
            if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
                return None
            try:
                moment = self._first_at(segments, timestamp, start, bound)
            except (CorruptRecord, LogClosed, SegmentDeleted):
                if segments is self._segments:
                    raise
                continue
            if segments is not self._segments:
                continue  # the bound may be another list's
            return None if moment is None or moment.offset >= limit else moment

    def _bound_of(self, isolation: Isolation) -> tuple[Bound, int]:
        """Where a reader must stop: the bound to search under, and the offset."""
        if isolation == LOG_END:
            return self._log_end.end, self._log_end.end.offset
        mark = self._log_end.high_watermark
        return mark, self._stable(mark.offset) if isolation == COMMITTED else mark.offset

    def _first_at(
        self, segments: Sequence[Segment], timestamp: int, start: int, bound: Bound
    ) -> TimestampOffset | None:
        if timestamp == MAX_TIMESTAMP:
            timestamp = max(segment.max_timestamp.timestamp for segment in segments)
            if timestamp < 0:
                return None
        for number, segment in enumerate(segments):
            if segment.base_offset > bound.segment_base:
                return None
            if segment.max_timestamp.timestamp < timestamp:
                continue
            end, end_offset = _ends(segments, number, bound)
            moment = segment.offset_for_timestamp(timestamp, start, end, end_offset)
            self._look_for_problems(segment)
            if moment is not None:
                return moment
        return None

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which ``offset`` was written, -1 if it is older than all."""
        return self.epochs.epoch_at(offset)

    def end_offset_for(self, epoch: int) -> EpochEnd:
        """The epoch and offset up to which a log that ends in ``epoch`` may agree with this one.

        See :meth:`raylog.storage.state.epochs.LeaderEpochs.end_offset_for`.
        """
        return self.epochs.end_offset_for(epoch, self._log_end.end.offset)


def _ends(segments: Sequence[Segment], number: int, bound: Bound) -> tuple[int, int]:
    """Up to which position, and below which offset, ``bound`` lets a segment be read."""
    segment = segments[number]
    if segment.base_offset == bound.segment_base:
        return bound.position, bound.offset
    if number + 1 < len(segments):
        return segment.size, segments[number + 1].base_offset
    return segment.size, MAX_LONG  # a truncation is about to put another list in place


def floor_of(segments: Sequence[Segment], offset: int) -> int:
    """The number of the segment that holds ``offset``; 0 if all begin behind it."""
    return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)
