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
from raylog.storage.errors import CorruptRecord, StorageError
from raylog.storage.files import undo_failed
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.limits import MAX_INT
from raylog.storage.records.layout import NO_TIMESTAMP
from raylog.storage.rolling import Rolling
from raylog.storage.segment import Segment


class Piece(NamedTuple):
    """One whole batch, ready to be written."""

    stamp: bytes  # what the log writes over the batch's first bytes
    body: Buffer  # the bytes behind them
    size_bytes: int
    last_offset: int
    max_timestamp: int
    aborted: AbortedTransaction | None = None  # the transaction that it, an abort marker, ends


class SegmentWriter:
    """Appends to a segment, until it is sealed."""

    def __init__(self, segment: Segment, now_ms: int) -> None:
        self.segment = segment
        self.rolling = Rolling(segment.base_offset, segment.config, now_ms)
        self._bytes_since_entry = 0
        self._largest = TimestampOffset(NO_TIMESTAMP, segment.base_offset)
        self._timed = self._largest  # the largest timestamp that the time index has seen
        with suppress(CorruptRecord):  # who reads there is told
            self._largest = segment.max_timestamp
            if segment.size:
                self.rolling.begin_at(segment.first_timestamp)
        segment.largest = self._largest
        self._see_room()

    def reconfigure(self, config: LogConfig) -> None:
        """Obey another config from the next append on.

        The size of its indexes and its preallocated room stay as they were when it was made.
        """
        self.rolling.reconfigure(config)

    def should_roll(
        self, size_bytes: int, max_timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        """Whether an append of this much must go to a new segment."""
        size = self.segment.log.size
        is_due = self.rolling.is_due(size, size_bytes, max_timestamp, last_offset, now_ms)
        return is_due or not self._has_room

    def append(self, pieces: Sequence[Piece]) -> None:
        """Write whole batches at the end, in one call; raises with the segment as it was."""
        segment, log = self.segment, self.segment.log
        begin, before, since_entry = log.size, self._largest, self._bytes_since_entry
        buffers: list[Buffer] = []
        for piece in pieces:
            buffers += (piece.stamp, piece.body)
        assert begin + sum(piece.size_bytes for piece in pieces) <= MAX_INT, "should_roll first"
        try:
            log.append(buffers)
            position = begin
            for piece in pieces:
                self._index(piece, position)
                position += piece.size_bytes
        except StorageError:
            self._largest = segment.largest = before
            self._bytes_since_entry = since_entry
            self._undo(lambda: self._take_back(begin, pieces[0].last_offset))
            raise
        if begin == 0:
            self.rolling.begin_at(pieces[0].max_timestamp)

    def _index(self, piece: Piece, position: int) -> None:
        """Note what was written at ``position``."""
        segment = self.segment
        if piece.max_timestamp > self._largest.timestamp:
            self._largest = TimestampOffset(piece.max_timestamp, piece.last_offset)
            segment.largest = self._largest
        if self._bytes_since_entry > segment.config.index_interval_bytes:
            segment.offset_index.append(piece.last_offset, position)
            self._add_time()
            self._bytes_since_entry = 0
            self._see_room()
        if piece.aborted is not None:
            segment.txn_index.append(piece.aborted)
        self._bytes_since_entry += piece.size_bytes

    def _add_time(self) -> None:
        if self._largest is not self._timed:
            self.segment.time_index.maybe_append(*self._largest)
            self._timed = self._largest

    def _see_room(self) -> None:
        segment = self.segment
        self._has_room = not (segment.offset_index.is_full or segment.time_index.is_full)

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

    def finish(self) -> None:
        """Write what is held back: the last entries of both indexes. To be repeated if it fails."""
        segment = self.segment
        if self._largest.timestamp != NO_TIMESTAMP:
            segment.time_index.maybe_append(*self._largest)
        segment.offset_index.write()
        segment.time_index.write()
        segment.give_back_room()
