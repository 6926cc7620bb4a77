"""The end of a log: where batches go, and how far readers may see.

::

    log start offset      recovery point     last stable   high watermark   log end offset
          |                     |               |                |               |
    [ segment 0 ][ segment 1 ][ segment 2 (active)                               ]
                  flushed <---->| in the page cache              |<------------->| wait for an fsync
                                                |<-------------->| may still be aborted

*Offset* counts records, *position* counts bytes in a segment's file. The *high watermark* is what
consumers may read up to: the log's end, but for records that wait for an fsync on a topic of
``flush.messages``. The *last stable offset* is where the oldest open transaction begins: a read of
committed records stops there, and is told which transactions below it were aborted, for the reader
to skip.

Whoever changes it holds ``locks.end``. Readers take no lock: they see what was published behind the
bytes that it covers (``readable.py``).

Not its job: the list of segments, and when a new one is made (``log.py``), what may be appended
(``validation.py``), how bytes and index entries are written (``writer.py``).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from raylog.storage.appending import Prepared, Run, marker_of, with_timestamp_type
from raylog.storage.buffers import Buffer
from raylog.storage.clock import Clock
from raylog.storage.config import LogConfig
from raylog.storage.errors import InvalidRecord, RaylogError, StorageError, UndoFailed
from raylog.storage.limits import MAX_LONG
from raylog.storage.locks import LogLocks
from raylog.storage.log_offsets import LogOffsets
from raylog.storage.records import kernel
from raylog.storage.records.batch import BatchHeader
from raylog.storage.records.control import Marker
from raylog.storage.records.layout import (
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    STAMP,
)
from raylog.storage.rolling import LAST_OFFSET
from raylog.storage.segment import Segment
from raylog.storage.state.epochs import LeaderEpochs
from raylog.storage.state.producers import (
    NO_PRODUCER,
    CachedBatch,
    ProducerExpiration,
    ProducerStates,
)
from raylog.storage.state.refusals import Refusals
from raylog.storage.validation import CLIENT, CheckedBatch, Origin, look_closer, unchanging
from raylog.storage.writer import AppendInfo, Piece, SegmentWriter

# Two buffers each, and the system takes 1,024 in one call.
MOST_PIECES = 512
_new = tuple.__new__  # half the time of a NamedTuple's own constructor


class Bound(NamedTuple):
    """How far somebody may read: Kafka's LogOffsetMetadata."""

    offset: int  # the next one
    segment_base: int
    position: int  # in that segment's file
    # All that was ever appended up to here since the log was opened: pollers count by it.
    appended_bytes: int = 0


class Ended(NamedTuple):
    """A transaction whose marker was written."""

    first_offset: int
    marker_offset: int


class LogEnd:
    """See the module's head.

    ``end`` and ``high_watermark``: bounds of readers. ``producers``: as of the end. ``ended``:
    transactions that ended last, and maybe above the high watermark. Only this class sets them.
    """

    def __init__(
        self,
        *,
        partition: str,
        clock: Clock,
        config: LogConfig,
        active: Segment,
        producers: ProducerStates,
        epochs: LeaderEpochs,
        offsets: LogOffsets,
        locks: LogLocks,
        roll: Callable[[], None],
    ) -> None:
        """``roll``: begins a new segment in the log, with :meth:`begin`."""
        self._partition, self._clock = partition, clock
        self._epochs, self._offsets, self._locks, self._roll = epochs, offsets, locks, roll
        self.producers = producers
        self.ended: tuple[Ended, ...] = ()
        self._refusals = Refusals()
        self._producers_checked_ms = clock.now_ms()
        self._obey(config)
        self.writer = SegmentWriter(active, clock.now_ms())
        self.end = Bound(producers.end_offset, active.base_offset, active.size)
        self.high_watermark = self.end

    def reconfigure(self, config: LogConfig) -> None:
        """Obey another config from the next append on."""
        self.writer.reconfigure(config)
        self._obey(config)

    def _obey(self, config: LogConfig) -> None:
        self._config = config
        self._stamps_append_time = config.message_timestamp_type == "LogAppendTime"
        self._flush_messages = config.flush_messages
        self._may_wait = config.flush_messages != MAX_LONG  # readers, for an fsync
        # whether a batch may be written as anything else than it came
        self._changes_batches = self._stamps_append_time or config.target_codec is not None

    # -- append ------------------------------------------------------------------------------------

    def append(
        self, records: Buffer, leader_epoch: int | None = None, origin: Origin = CLIENT
    ) -> AppendInfo:
        """Append one batch, or raise with nothing written. See ``validation.check_append``."""
        if type(records) is not bytes:
            records = unchanging(records)
        now_ms, epochs = self._clock.now_ms(), self._epochs
        found: Any  # a BatchHeader, (Bound, AppendInfo) or None
        epoch = epochs.latest if leader_epoch is None else self._epoch_of(leader_epoch)
        if self._changes_batches or epochs.is_stale:
            found = kernel.ops.check_batch(records, self._config.record_rules, now_ms)
        else:
            found = self.writer.check_and_append(
                records, now_ms, self.end, epoch, self._offsets.start
            )
            if type(found) is tuple:
                end, info = found
                self._publish(end)
                return info
        batch = look_closer(records, found, self._config, now_ms, origin)
        return self.append_checked(batch, now_ms, epoch, origin)

    def _epoch_of(self, leader_epoch: int | None) -> int:
        """The epoch that a batch is stamped with; a newer one than all begins at the log's end."""
        latest = self._epochs.latest
        if leader_epoch is None:
            return latest
        if leader_epoch > latest:
            self._epochs.assign(leader_epoch, self.end.offset)
        return leader_epoch

    def append_checked(
        self,
        batch: CheckedBatch,
        now_ms: int,
        leader_epoch: int | None = None,
        origin: Origin = CLIENT,
    ) -> AppendInfo:
        """Append a batch that ``check_append`` let pass.

        One that its producer sent before is not written again. Raises OutOfOrderSequence,
        InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced, DiskFull or
        StorageError with nothing written.
        """
        assert self._locks.end.locked()
        try:
            info = self._append_checked(batch, now_ms, leader_epoch, origin)
        except RaylogError as error:
            answer = self._refusals.answer(batch.header, error, now_ms)
            if answer is error:
                raise
            raise answer from None
        if not info.is_duplicate:
            self._refusals.written(batch.header.producer_id)
        return info

    def _append_checked(
        self, batch: CheckedBatch, now_ms: int, leader_epoch: int | None, origin: Origin
    ) -> AppendInfo:
        header = batch.header
        marker = marker_of(batch)
        if header.producer_id != NO_PRODUCER:
            duplicate = self.producers.check(header, marker, is_client=origin == CLIENT)
            if duplicate is not None:
                return self._first_append(duplicate)
        epoch = self._epoch_of(leader_epoch)
        is_changed = self._stamps_append_time or header.attributes & LOG_APPEND_TIME
        if marker is None and not is_changed and not self._epochs.is_stale:
            written = self.writer.append_one(
                batch.content, header, self.end, epoch, self._offsets.start
            )
            if written is not None:
                end, info = written
                if header.producer_id != NO_PRODUCER:
                    self.producers.add(header, info.base_offset, now_ms, None)
                self._publish(end)
                return info
        prepared = self._prepare(batch, marker, self.end.offset, now_ms, epoch)
        self._make_room(prepared, now_ms)
        self.writer.append((prepared.piece,))
        return self._take(prepared, now_ms)

    def needs_verification(self, header: BatchHeader) -> bool:
        """See ``ProducerStates``."""
        return self.producers.needs_verification(header)

    def check_raises_epoch(self, producer_id: int, marker_epoch: int) -> None:
        """See ``ProducerStates``."""
        self.producers.check_raises_epoch(producer_id, marker_epoch)

    def transaction_start(self, producer_id: int) -> int | None:
        """The first offset of a producer's open transaction; None where nothing is open."""
        return self.producers.open_transactions.get(producer_id)

    def missing_before(self, header: BatchHeader) -> RaylogError | None:
        """See ``Refusals``."""
        assert self._locks.end.locked()
        return self._refusals.missing_before(header, self._clock.now_ms())

    def refuse(self, header: BatchHeader, error: RaylogError) -> None:
        """A batch was refused before it came here: those behind it wait for it, too."""
        assert self._locks.end.locked()
        self._refusals.answer(header, error, self._clock.now_ms())

    def append_all(
        self,
        batches: Sequence[CheckedBatch],
        now_ms: int,
        leader_epoch: int | None = None,
        origin: Origin = CLIENT,
    ) -> list[AppendInfo | RaylogError]:
        """Append several checked batches: one write for all that go to one segment.

        Answers in their order, each as :meth:`append_checked` would return or raise it. A batch
        that may not be written does not hold up the others; an error of the disk is the answer of
        all that were to be written together.
        """
        assert self._locks.end.locked()
        run = Run(self._partition, self.end.offset)
        epoch = self._epoch_of(leader_epoch)
        for batch in batches:
            try:
                self._add_to(run, batch, now_ms, epoch, origin)
            except UndoFailed as error:
                run.undo_failure = error
                run.answers.append(error)
            except RaylogError as error:
                run.answers.append(self._refusals.answer(batch.header, error, now_ms))
        self._write(run, now_ms)
        return run.answers

    def _add_to(
        self,
        run: Run,
        batch: CheckedBatch,
        now_ms: int,
        epoch: int,
        origin: Origin,
    ) -> None:
        """Put a batch behind those that are to be written; or answer it, if it was written."""
        header, marker = batch.header, marker_of(batch)
        is_full = len(run.prepared) == MOST_PIECES
        # What a marker ends must be written: its entry is made of the log's own state.
        if marker is not None or is_full or self._should_roll(header, run, now_ms):
            self._write(run, now_ms)
        if run.undo_failure is not None:
            raise run.undo_failure  # the batch would lie behind torn bytes
        if header.producer_id != NO_PRODUCER:
            run.producers.borrow(header.producer_id, self.producers)
            duplicate = run.producers.check(header, marker, is_client=origin == CLIENT)
            if duplicate is not None and duplicate.last_offset >= self.end.offset:
                self._write(run, now_ms)  # its first copy is among those: it may fail
                if run.undo_failure is not None:
                    raise run.undo_failure
                run.producers.borrow(header.producer_id, self.producers)
                duplicate = run.producers.check(header, marker, is_client=origin == CLIENT)
            if duplicate is not None:
                run.answers.append(self._first_append(duplicate))
                return
        prepared = self._prepare(batch, marker, run.next_offset, now_ms, epoch)
        if not run.prepared:
            self._make_room(prepared, now_ms)
        if header.producer_id != NO_PRODUCER:
            run.producers.add(prepared.header, prepared.base_offset, now_ms, marker)
        run.add(prepared)

    def _should_roll(self, header: BatchHeader, run: Run, now_ms: int) -> bool:
        """Whether a batch cannot go to the active segment behind those that are gathered."""
        if not run.prepared:
            return False
        max_timestamp = now_ms if self._stamps_append_time else header.max_timestamp
        if self.writer.may_fill_up(len(run.prepared)):
            return True
        first = run.prepared[0].piece.max_timestamp
        if not self.end.position and self.writer.rolling.is_over(first, max_timestamp, now_ms):
            return True
        return self.writer.should_roll(
            run.size_bytes + header.size_bytes,
            max_timestamp,
            run.next_offset + header.last_offset_delta,
            now_ms,
        )

    def _write(self, run: Run, now_ms: int) -> None:
        """Write what a run has gathered, and answer it."""
        if not run.prepared:
            return
        answers: list[AppendInfo | RaylogError]
        try:
            self.writer.append([prepared.piece for prepared in run.prepared])
            answers = [self._take(prepared, now_ms) for prepared in run.prepared]
            for prepared in run.prepared:
                self._refusals.written(prepared.header.producer_id)
        except StorageError as error:
            answers = [
                self._refusals.answer(prepared.header, error, now_ms) for prepared in run.prepared
            ]
            if isinstance(error, UndoFailed):
                run.undo_failure = error
        run.end(answers, self.end.offset)

    def _prepare(
        self,
        batch: CheckedBatch,
        marker: Marker | None,
        base_offset: int,
        now_ms: int,
        epoch: int,
    ) -> Prepared:
        """A batch as it is written at ``base_offset``. Raises InvalidRecord at the last offset."""
        header, content = batch
        if base_offset > LAST_OFFSET - header.last_offset_delta:
            why = f"{self._partition}: no offsets are left for {header.count} records"
            raise InvalidRecord(f"{why} behind offset {base_offset}; append to another partition")
        append_time = NO_TIMESTAMP
        if self._stamps_append_time or header.attributes & LOG_APPEND_TIME:
            if self._stamps_append_time:
                append_time = now_ms
                header = header._replace(max_timestamp=now_ms)
            content = with_timestamp_type(header, content, append_time)
        aborted = None
        if marker is not None:
            aborted = self.producers.aborted_by(header, marker, base_offset)
        piece = _new(
            Piece,
            (
                STAMP.pack(base_offset, header.batch_length, epoch),
                memoryview(content)[STAMP.size :],
                header.batch_length + LOG_OVERHEAD,
                base_offset + header.last_offset_delta,
                header.max_timestamp,
                aborted,
            ),
        )
        return _new(Prepared, (header, marker, base_offset, append_time, piece))

    def _make_room(self, prepared: Prepared, now_ms: int) -> None:
        """Begin a new segment, if the batch needs one."""
        if self._epochs.is_stale:
            self._epochs.save()
        piece = prepared.piece
        if self.writer.should_roll(
            piece.size_bytes, piece.max_timestamp, piece.last_offset, now_ms
        ):
            self._roll()

    def _take(self, prepared: Prepared, now_ms: int) -> AppendInfo:
        """A batch was written: remember its producer, and tell the readers."""
        header, marker, base_offset, append_time, _ = prepared
        if header.producer_id != NO_PRODUCER:
            if marker is not None:
                self._remember_ended(header.producer_id, base_offset)
            self.producers.add(header, base_offset, now_ms, marker)
        before, size_bytes = self.end, header.batch_length + LOG_OVERHEAD
        end = Bound(
            offset=base_offset + header.last_offset_delta + 1,
            segment_base=self.writer.segment.base_offset,
            position=before.position + size_bytes,
            appended_bytes=before.appended_bytes + size_bytes,
        )
        self._publish(end)
        return AppendInfo(
            base_offset=base_offset,
            last_offset=end.offset - 1,
            log_append_time=append_time,
            log_start_offset=self._offsets.start,
        )

    def _remember_ended(self, producer_id: int, marker_offset: int) -> None:
        """A transaction ends with this marker. For readers, only once they can see the marker."""
        first_offset = self.producers.open_transactions.get(producer_id)
        if first_offset is None:
            return
        readable = self.high_watermark.offset
        unseen = (ended for ended in self.ended if ended.marker_offset >= readable)
        self.ended = (*unseen, Ended(first_offset, marker_offset))

    def _publish(self, end: Bound) -> None:
        """The log ends there now; it is readable up to there, if nothing waits for an fsync."""
        self.end = end
        if not self._may_wait or end.offset - self._offsets.recovery_point < self._flush_messages:
            self.high_watermark = end

    def _first_append(self, duplicate: CachedBatch) -> AppendInfo:
        """The original result of a duplicate append."""
        first = duplicate.last_offset - duplicate.offset_delta
        append_time = duplicate.timestamp if self._stamps_append_time else NO_TIMESTAMP
        return AppendInfo(
            base_offset=first,
            last_offset=duplicate.last_offset,
            log_append_time=append_time,
            log_start_offset=self._offsets.start,
            is_duplicate=True,
        )

    # -- what else moves the end -------------------------------------------------------------------

    def begin(self, fresh: Segment) -> None:
        """The log goes on in a new segment."""
        assert self._locks.end.locked()
        self.writer = SegmentWriter(fresh, self._clock.now_ms())
        end = self.end
        self.end = end._replace(segment_base=fresh.base_offset, position=0)
        if self.high_watermark == end:
            self.high_watermark = self.end

    def show(self, end: Bound) -> None:
        """All below an end that was flushed becomes readable."""
        assert self._locks.end.locked()
        self.high_watermark = max(self.high_watermark, end)

    def show_all(self) -> None:
        """Nothing waits for an fsync any more."""
        self.high_watermark = self.end

    def lower(self, offset: int, segment: Segment) -> None:
        """Publish a lower end, before the bytes behind it go."""
        assert self._locks.end.locked()
        position = segment.position_of(offset)
        end = Bound(offset, segment.base_offset, position, self.end.appended_bytes)
        # A marker may go: until it is known what is open at the new end nothing is stable.
        self.ended = (Ended(first_offset=0, marker_offset=offset),)
        self.high_watermark = min(self.high_watermark, end)
        self.end = end

    def write_to(self, segment: Segment) -> None:
        """Appends go to a segment that was cut."""
        self.writer = SegmentWriter(segment, self._clock.now_ms())

    def take_producers(self, producers: ProducerStates) -> None:
        """The producers as of the lower end. Nothing is stable before :meth:`settle`."""
        self.producers = producers

    def settle(self) -> None:
        """What is open at the lower end is known."""
        self.ended = ()

    # -- producers ---------------------------------------------------------------------------------

    def due_ms(self, expiration: ProducerExpiration) -> int:
        """When a producer is to be forgotten, if none sends anything until then."""
        silent_ms = self.producers.oldest_ms + expiration.after_ms
        return max(silent_ms, self._producers_checked_ms + expiration.check_interval_ms)

    def expire_producers(self, expiration: ProducerExpiration) -> bool:
        """Forget producers that have been silent too long, if it is time to look for them.

        Returns whether more are due: a call forgets so many that an append can wait for it.
        """
        assert self._locks.end.locked()
        now_ms = self._clock.now_ms()
        if now_ms - self._producers_checked_ms < expiration.check_interval_ms:
            return False
        is_more_due = self.producers.expire(now_ms, expiration.after_ms)
        if not is_more_due:
            self._producers_checked_ms = now_ms
        return is_more_due
