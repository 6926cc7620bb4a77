"""The one segment of a log that is appended to: its bytes, its index entries, its end.

A log has one writer at a time, over its last segment, and makes another one when it rolls or cuts.
What is told to readers is the log's business: they stay below a bound that it publishes after the
write. Source: ``LogSegment.append`` of Kafka.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from raylog.storage.buffers import Buffer
from raylog.storage.config import LogConfig
from raylog.storage.disk_errors import undo_failed
from raylog.storage.errors import CorruptRecord, StorageError
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.limits import MAX_INT
from raylog.storage.records import kernel
from raylog.storage.records.layout import NO_TIMESTAMP
from raylog.storage.rolling import Rolling
from raylog.storage.segment import Segment


class AppendInfo(NamedTuple):
    """Where an append went. For a duplicate: where it went the first time."""

    base_offset: int
    last_offset: int
    log_append_time: int  # -1 unless message.timestamp.type is LogAppendTime
    log_start_offset: int
    is_duplicate: bool = False


class Piece(NamedTuple):
    """One whole batch, ready to be written."""

    stamp: bytes  # what the log writes over the batch's first bytes
    body: Buffer  # the bytes behind them
    size_bytes: int
    last_offset: int
    max_timestamp: int
    aborted: AbortedTransaction | None = None  # the transaction that it, an abort marker, ends


class _State(NamedTuple):
    """What the indexes need to know of the segment so far."""

    largest: TimestampOffset  # timestamp of all
    since_entry: int  # bytes behind the last entry


class SegmentWriter:
    """Appends to a segment, until it is sealed."""

    def __init__(self, segment: Segment, now_ms: int) -> None:
        self.segment = segment
        self.rolling = Rolling(segment.base_offset, segment.config, now_ms)
        largest = TimestampOffset(NO_TIMESTAMP, segment.base_offset)
        with suppress(CorruptRecord):  # who reads there is told
            largest = segment.largest or segment.find_largest()
            if segment.size:
                self.rolling.begin_at(segment.first_timestamp)
        self.appender = kernel.ops.Appender(
            segment.log.append_stamped, TimestampOffset, AppendInfo, segment.base_offset
        )
        # Both write one batch, unless that needs a decision.
        self.append_one = self.appender.append
        self.check_and_append = self.appender.check_and_append
        self._arm(_State(largest, since_entry=0))
        segment.appender = self.appender

    def _arm(self, state: _State) -> None:
        """Let the common append go on by itself from here."""
        segment, rolling = self.segment, self.rolling
        offsets, times = segment.offset_index, segment.time_index
        self._has_room = not (offsets.is_full or times.is_full)
        self.appender.arm(
            offsets.changeable(),
            times.changeable(),
            min(offsets.room, times.room) if self._has_room else -1,  # -1: the next one rolls
            (rolling.max_bytes, rolling.last_offset, rolling.last_timestamp),
            segment.config.index_interval_bytes,
            state.since_entry,
            state.largest,
            times.last.timestamp,
            segment.config.record_rules,
        )

    @property
    def _state(self) -> _State:
        appender = self.appender
        return _State(appender.largest, appender.since_entry)

    def reconfigure(self, config: LogConfig) -> None:
        """Obey another config from the next append on.

        The size of its indexes and its preallocated room stay as they were when it was made.
        """
        self.rolling.reconfigure(config)
        self._arm(self._state)

    def should_roll(
        self, size_bytes: int, max_timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        """Whether an append of this much must go to a new segment."""
        size = self.segment.log.size
        is_due = self.rolling.is_due(size, size_bytes, max_timestamp, last_offset, now_ms)
        return is_due or not self._has_room

    def may_fill_up(self, pieces: int) -> bool:
        """Whether so many batches could fill an index, and the next one needs a new segment."""
        segment = self.segment
        left = min(segment.offset_index.entries_left, segment.time_index.entries_left)
        return left <= pieces

    def append(self, pieces: Sequence[Piece]) -> None:
        """Write whole batches at the end, in one call; raises with the segment as it was."""
        log = self.segment.log
        begin, state = log.size, self._state
        buffers: list[Buffer] = []
        for piece in pieces:
            buffers += (piece.stamp, piece.body)
        assert begin + sum(piece.size_bytes for piece in pieces) <= MAX_INT, "should_roll first"
        try:
            log.append(buffers)
            state = self._index(pieces, begin)
        except StorageError:
            self._undo(lambda: self._take_back(begin, pieces[0].last_offset))
            raise
        else:
            if begin == 0:
                self.rolling.begin_at(pieces[0].max_timestamp)
        finally:
            self._arm(state)

    def _index(self, pieces: Sequence[Piece], begin: int) -> _State:
        """Note what was written from position ``begin`` on."""
        segment, position = self.segment, begin
        largest, since_entry = self._state
        for piece in pieces:
            if piece.max_timestamp > largest.timestamp:
                largest = TimestampOffset(piece.max_timestamp, piece.last_offset)
            if since_entry > segment.config.index_interval_bytes:
                segment.offset_index.append(piece.last_offset, position)
                segment.time_index.maybe_append(*largest)
                since_entry = 0
            if piece.aborted is not None:
                segment.txn_index.append(piece.aborted)
            position += piece.size_bytes
            since_entry += piece.size_bytes
        return _State(largest, since_entry)

    def _take_back(self, position: int, last_offset: int) -> None:
        """Drop what a failed append left."""
        segment = self.segment
        if segment.log.size > position:
            segment.log.truncate(position)
        segment.offset_index.truncate_to_position(position)
        segment.time_index.truncate_to(last_offset)
        segment.txn_index.truncate_to(last_offset)

    def _undo(self, undo: Callable[[], None]) -> None:
        try:
            undo()
        except StorageError as error:
            raise undo_failed(self.segment.path, error) from error

    def resume(self) -> None:
        """Go on with a segment that could not be sealed."""
        self._arm(self._state)
        self.segment.appender = self.appender

    def finish(self) -> None:
        """Write what is held back: the last entries of both indexes. To be repeated if it fails."""
        segment = self.segment
        state = self._state
        if state.largest.timestamp != NO_TIMESTAMP:
            segment.time_index.maybe_append(*state.largest)
        try:
            segment.offset_index.write()
            segment.time_index.write()
        finally:
            self._arm(state)  # the time index has the entry now, whether it could be written or not
        segment.give_back_room()
