"""One partition's log: its segments in order, and all that is done to them.

That is append, roll, flush, retention, truncation and compaction's swap.

::

    log start offset      recovery point     last stable   log end offset
          |                     |               |            |
    [ segment 0 ][ segment 1 ][ segment 2 (active)           ]
                  flushed <---->| in the page cache
                                                |<---------->| may still be aborted

*Offset* counts records, *position* counts bytes in a segment's file. The *high watermark* is what
consumers may read up to: the log's end, but for records that wait for an fsync on a topic of
``flush.messages``. The *last stable offset* is where the oldest open transaction begins: a read of
committed records stops there, and is told which transactions below it were aborted, for the reader
to skip.

**Who may call what.** The caller holds the locks (``Log.locks``), so that slow work on old segments
never holds up an append; each method asserts that they are held:

- ``end``: ``append``, ``append_checked``, ``append_all``, ``roll``, ``expire_producers``;
- ``old``: ``delete_old_segments``, ``replace_segments``, ``begin_round``. What they do to the disk
  touches no file of the active segment;
- ``flush``: ``flush``, ``flush_due``, which take ``end`` to raise the high watermark;
- ``old`` and ``flush``: ``delete_records``, ``mend_indexes``; ``old`` and ``end``: ``reconfigure``;
- all three: ``truncate_to``, ``truncate_fully``, ``close``.

``purge_deleted`` may run beside all of these, one at a time. Where two owners change the list of
segments they take ``list`` themselves. What readers may call, any number of threads, is in
``readable.py``.

Not its job: opening a folder (``loader.py``), what may be appended (``validation.py``), who decides
what is deleted (``retention.py``) or compacted (``cleaner``). Source: ``UnifiedLog`` and
``LocalLog`` of Kafka.
"""

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, TypeAlias

from raylog.storage.appending import Prepared, Run, marker_of, with_timestamp_type
from raylog.storage.buffers import Buffer
from raylog.storage.clock import Clock
from raylog.storage.config import LogConfig
from raylog.storage.disk_errors import undo_failed
from raylog.storage.errors import (
    CleaningAborted,
    CorruptRecord,
    DiskFull,
    InvalidRecord,
    OffsetOutOfRange,
    OutOfResources,
    PolicyViolation,
    RaylogError,
    StorageError,
    SwapUnfinished,
    UndoFailed,
)
from raylog.storage.files import FileSystem
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.limits import MAX_LONG
from raylog.storage.locks import LogLocks
from raylog.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TopicPartition,
    offset_of,
    segment_file,
)
from raylog.storage.readable import Bound, Ended, ReadableLog, floor_of
from raylog.storage.records import kernel
from raylog.storage.records.batch import BatchHeader
from raylog.storage.records.control import Marker
from raylog.storage.records.layout import (
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    STAMP,
)
from raylog.storage.recovery import rebuild_indexes
from raylog.storage.replay import replay
from raylog.storage.report import Mended
from raylog.storage.retention import SegmentFacts, segments_to_delete
from raylog.storage.rolling import LAST_OFFSET
from raylog.storage.segment import Segment, SegmentId
from raylog.storage.state.epochs import LeaderEpochs
from raylog.storage.state.producers import (
    NO_PRODUCER,
    CachedBatch,
    LastRecord,
    ProducerExpiration,
    ProducerStates,
)
from raylog.storage.validation import CLIENT, CheckedBatch, Origin, look_closer, unchanging
from raylog.storage.writer import AppendInfo, Piece, SegmentWriter

HIGH_WATERMARK = -1

# Two buffers each, and the system takes 1,024 in one call.
MOST_PIECES = 512
_new = tuple.__new__  # half the time of a NamedTuple's own constructor


# One round of compaction over a log. A round that begins ends all before it, as a truncation does:
# those may still run, in a process that is given up.
RoundId: TypeAlias = int


class Log(ReadableLog):
    """The log of one partition. Made by ``loader.open_log`` or ``loader.create_log``."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        folder: str,
        partition: TopicPartition,
        config: LogConfig,
        segments: Sequence[Segment],
        producers: ProducerStates,
        epochs: LeaderEpochs,
        log_start_offset: int,
        recovery_point: int,
    ) -> None:
        assert segments, "a log has an active segment"
        self.folder, self.partition, self.config = folder, partition, config
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.recovery_point = max(recovery_point, log_start_offset)
        self._unflushed_snapshots: list[str] = []
        self._has_stray_name = False  # of a segment that a roll took back
        self.mended: tuple[Mended, ...] = ()  # what opening did to the files
        self._fs, self._clock = fs, clock
        self._producers = producers
        self._obey(config)
        self._segments = tuple(segments)
        self._doomed: list[tuple[int, Segment]] = []
        self.locks = LogLocks()
        self.wrong_indexes: set[Segment] = set()
        self._ended: tuple[Ended, ...] = ()
        self._cut = (-1, -1)  # where the records end since the last truncation, and where it was
        self._unmendable: set[Segment] = set()
        self._rounds = 0  # of compaction, and truncations, since the log was opened
        self._flushed_ms = clock.now_ms()
        self._producers_checked_ms = self._flushed_ms
        self._writer = SegmentWriter(self._segments[-1], clock.now_ms())
        active = self._segments[-1]
        self._end = Bound(producers.end_offset, active.base_offset, active.size)
        self._high_watermark = self._end

    def reconfigure(self, config: LogConfig) -> None:
        """Obey another config from now on.

        What a segment was made with (``SegmentWriter.reconfigure``) changes with the next segment.
        """
        assert self.locks.end.locked()
        for segment in self._segments:
            segment.reconfigure(config)
        self._writer.reconfigure(config)
        self._obey(config)
        self.config = config

    def _obey(self, config: LogConfig) -> None:
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
        now_ms, epochs = self._clock.now_ms(), self.epochs
        found: Any  # a BatchHeader, (Bound, AppendInfo) or None
        epoch = epochs.latest if leader_epoch is None else self._epoch_of(leader_epoch)
        if self._changes_batches or epochs.is_stale:
            found = kernel.ops.check_batch(records, self.config.record_rules, now_ms)
        else:
            found = self._writer.check_and_append(
                records, now_ms, self._end, epoch, self.log_start_offset
            )
            if type(found) is tuple:
                end, info = found
                self._publish(end)
                return info
        batch = look_closer(records, found, self.config, now_ms, origin)
        return self.append_checked(batch, now_ms, epoch, origin)

    def _epoch_of(self, leader_epoch: int | None) -> int:
        """The epoch that a batch is stamped with; a newer one than all begins at the log's end."""
        latest = self.epochs.latest
        if leader_epoch is None:
            return latest
        if leader_epoch > latest:
            self.epochs.assign(leader_epoch, self._end.offset)
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
        assert self.locks.end.locked()
        header = batch.header
        marker = marker_of(batch)
        if header.producer_id != NO_PRODUCER:
            duplicate = self._producers.check(header, marker, is_client=origin == CLIENT)
            if duplicate is not None:
                return self._first_append(duplicate)
        epoch = self._epoch_of(leader_epoch)
        is_changed = self._stamps_append_time or header.attributes & LOG_APPEND_TIME
        if marker is None and not is_changed and not self.epochs.is_stale:
            written = self._writer.append_one(
                batch.content, header, self._end, epoch, self.log_start_offset
            )
            if written is not None:
                end, info = written
                if header.producer_id != NO_PRODUCER:
                    self._producers.add(header, info.base_offset, now_ms, None)
                self._publish(end)
                return info
        prepared = self._prepare(batch, marker, self._end.offset, now_ms, epoch)
        self._make_room(prepared, now_ms)
        self._writer.append((prepared.piece,))
        return self._take_prepared(prepared, now_ms)

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
        assert self.locks.end.locked()
        run = Run(str(self.partition), self._end.offset)
        epoch = self._epoch_of(leader_epoch)
        for batch in batches:
            try:
                self._add_to(run, batch, now_ms, epoch, origin)
            except UndoFailed as error:
                run.undo_failure = error
                run.answers.append(error)
            except RaylogError as error:
                run.answers.append(error)
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
            run.producers.borrow(header.producer_id, self._producers)
            duplicate = run.producers.check(header, marker, is_client=origin == CLIENT)
            if duplicate is not None and duplicate.last_offset >= self._end.offset:
                self._write(run, now_ms)  # its first copy is among those: it may fail
                if run.undo_failure is not None:
                    raise run.undo_failure
                run.producers.borrow(header.producer_id, self._producers)
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
        if self._writer.may_fill_up(len(run.prepared)):
            return True
        first = run.prepared[0].piece.max_timestamp
        if not self._end.position and self._writer.rolling.is_over(first, max_timestamp, now_ms):
            return True
        return self._writer.should_roll(
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
            self._writer.append([prepared.piece for prepared in run.prepared])
            answers = [self._take_prepared(prepared, now_ms) for prepared in run.prepared]
        except StorageError as error:
            answers = [error] * len(run.prepared)
            if isinstance(error, UndoFailed):
                run.undo_failure = error
        run.end(answers, self._end.offset)

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
            why = f"{self.partition}: no offsets are left for {header.count} records"
            raise InvalidRecord(f"{why} behind offset {base_offset}; append to another partition")
        append_time = NO_TIMESTAMP
        if self._stamps_append_time or header.attributes & LOG_APPEND_TIME:
            if self._stamps_append_time:
                append_time = now_ms
                header = header._replace(max_timestamp=now_ms)
            content = with_timestamp_type(header, content, append_time)
        aborted = None
        if marker is not None:
            aborted = self._producers.aborted_by(header, marker, base_offset)
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
        if self.epochs.is_stale:
            self.epochs.save()
        piece = prepared.piece
        if self._writer.should_roll(
            piece.size_bytes, piece.max_timestamp, piece.last_offset, now_ms
        ):
            self.roll()

    def _take_prepared(self, prepared: Prepared, now_ms: int) -> AppendInfo:
        header, marker, base_offset, append_time, _ = prepared
        return self._take(header, marker, base_offset, append_time, now_ms)

    def _take(
        self,
        header: BatchHeader,
        marker: Marker | None,
        base_offset: int,
        append_time: int,
        now_ms: int,
    ) -> AppendInfo:
        """A batch was written: remember its producer, and tell the readers."""
        if header.producer_id != NO_PRODUCER:
            if marker is not None:
                self._remember_ended(header.producer_id, base_offset)
            self._producers.add(header, base_offset, now_ms, marker)
        before, size_bytes = self._end, header.batch_length + LOG_OVERHEAD
        end = Bound(
            offset=base_offset + header.last_offset_delta + 1,
            segment_base=self._writer.segment.base_offset,
            position=before.position + size_bytes,
            appended_bytes=before.appended_bytes + size_bytes,
        )
        self._publish(end)
        return AppendInfo(
            base_offset=base_offset,
            last_offset=end.offset - 1,
            log_append_time=append_time,
            log_start_offset=self.log_start_offset,
        )

    def _remember_ended(self, producer_id: int, marker_offset: int) -> None:
        """A transaction ends with this marker. For readers, only once they can see the marker."""
        first_offset = self._producers.open_transactions.get(producer_id)
        if first_offset is None:
            return
        readable = self._high_watermark.offset
        unseen = (ended for ended in self._ended if ended.marker_offset >= readable)
        self._ended = (*unseen, Ended(first_offset, marker_offset))

    def _publish(self, end: Bound) -> None:
        """The log ends there now; it is readable up to there, if nothing waits for an fsync."""
        self._end = end
        if not self._may_wait or end.offset - self.recovery_point < self._flush_messages:
            self._high_watermark = end

    def _first_append(self, duplicate: CachedBatch) -> AppendInfo:
        """The original result of a duplicate append."""
        first = duplicate.last_offset - duplicate.offset_delta
        append_time = duplicate.timestamp if self._stamps_append_time else NO_TIMESTAMP
        return AppendInfo(
            base_offset=first,
            last_offset=duplicate.last_offset,
            log_append_time=append_time,
            log_start_offset=self.log_start_offset,
            is_duplicate=True,
        )

    def roll(self) -> None:
        """Begin a new segment at the log's end.

        If the active one is still empty, nothing happens.
        """
        assert self.locks.end.locked()
        active, end = self._segments[-1], self._end
        if active.base_offset == end.offset:
            return
        self._writer.finish()
        self._write_snapshot()
        # Until the folder is synced a loss of power may bring back a name that is taken back here:
        # an empty segment, which would end the log below what the active one has got since.
        self._has_stray_name = True
        fresh = self._new_segment(end.offset)
        try:
            active.seal()
        except StorageError as error:
            try:
                self._writer.resume()
                fresh.delete()
            except StorageError as second:
                raise undo_failed(fresh.path, second) from error
            raise
        self._has_stray_name = False
        self._writer = SegmentWriter(fresh, self._clock.now_ms())
        with self.locks.list:
            self._segments = (*self._segments, fresh)
        self._end = end._replace(segment_base=fresh.base_offset, position=0)
        if self._high_watermark == end:
            self._high_watermark = self._end

    def _write_snapshot(self) -> None:
        """The producers as of the log's end; the next flush brings it to the disk."""
        self._producers.end_offset = self._end.offset
        path = self._producers.write_snapshot(self._fs, self.folder)
        if path is not None:
            with self.locks.list:
                self._unflushed_snapshots = [*self._unflushed_snapshots, path]

    def _flush_snapshots(self) -> None:
        paths = self._unflushed_snapshots
        for path in paths:
            try:
                file = self._fs.open(path)
                file.flush()
                file.close()
            except StorageError:
                if self._fs.exists(path):
                    raise  # else its segment was deleted meanwhile
        with self.locks.list:  # last: an error leaves them all to the next flush
            self._unflushed_snapshots = self._unflushed_snapshots[len(paths) :]

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment(self._fs, self.folder, base_offset, self.config, create=True)

    # -- flush, retention, close -------------------------------------------------------------------

    def flush(self, up_to: int | None = None) -> None:
        """Return when everything below ``up_to`` will survive a loss of power.

        The default is the log's end. What waited for it becomes readable, under the end's lock.
        """
        assert self.locks.flush.locked()
        end = self._end
        offset = end.offset if up_to is None else up_to
        if self._high_watermark.offset < offset or offset > end.segment_base:
            offset = end.offset
        if offset > self.recovery_point:
            self._flush_segments(offset)
        if offset == end.offset and self._high_watermark.offset < offset:
            with self.locks.end:
                self._high_watermark = max(self._high_watermark, end)

    def _flush_segments(self, offset: int) -> None:
        """Flush the segments between the recovery point and ``offset``."""
        segments = self._segments
        first = floor_of(segments, self.recovery_point)
        dirty = [segment for segment in segments[first:] if segment.base_offset < offset]
        if first > 0:
            # Its last entries were written when it was sealed, which may be after its last flush.
            self._flush(segments[first - 1], Segment.flush_indexes)
        for segment in dirty:
            self._flush(segment, Segment.flush)
        self._flush_snapshots()
        is_new = any(segment.base_offset >= self.recovery_point for segment in dirty)
        if is_new or self._has_stray_name:
            self._has_stray_name = False  # before: a roll beside this sets it again
            try:
                self._fs.sync_dir(self.folder)
            except StorageError:
                self._has_stray_name = True
                raise
        self._recover_from(offset)
        self._flushed_ms = self._clock.now_ms()

    def _flush(self, segment: Segment, flush: Callable[[Segment], None]) -> None:
        try:
            flush(segment)
        except StorageError:
            if segment in self._segments:
                raise  # else it was deleted and closed meanwhile

    def _recover_from(self, offset: int) -> None:
        """Advance the recovery point; not above the last record before a cut."""
        records_end, cut_at = self._cut
        if offset <= cut_at:
            offset = min(offset, records_end)
        with self.locks.list:
            self.recovery_point = max(self.recovery_point, offset)

    def flush_due(self) -> None:
        """Flush the sealed segments, and the active one too once ``flush.ms`` has passed."""
        since_ms = self._clock.now_ms() - self._flushed_ms
        late = not 0 <= since_ms < self.config.flush_ms  # below 0: the clock was set back
        self.flush(None if late else self._segments[-1].base_offset)

    def delete_old_segments(self) -> int:
        """Retention: take old segments out of the log, rename them ``.deleted``; returns how many.

        It takes the end's lock for the moment in which the active segment is found old, too.
        """
        assert self.locks.old.locked()
        segments = self._segments
        count = self._count_old(segments)
        if count == len(segments):
            with self.locks.end:
                segments = self._segments
                count = self._count_old(segments)  # an append may have come before the lock
                if count == len(segments):
                    try:
                        self.roll()
                    except DiskFull:
                        count -= 1  # the others make room for it
        old = segments[:count]
        if old:
            # What is left carries the log's end. Its names must outlive the old ones, and be on
            # the disk before a checkpoint can say that the log begins there.
            self._fs.sync_dir(self.folder)
            start = max(self.log_start_offset, self._segments[count].base_offset)
            self._raise_start(start)  # first: no reader may take a later record for an older one
            self._doom(old)
            with self.locks.list:  # last: what is not renamed yet stays the log's to remove
                self._segments = self._segments[count:]
            self.epochs.truncate_from_start(start)
            self._remove_snapshots_below(self._segments[0].base_offset)
        return count

    def _remove_snapshots_below(self, offset: int) -> None:
        """Those of a close within a segment, too: no segment takes them along."""
        for name in self._fs.list_dir(self.folder):
            at = offset_of(name) if name.endswith(SNAPSHOT_SUFFIX) else None
            if at is not None and at < offset:
                self._fs.remove(os.path.join(self.folder, name))

    def retention_lag_ms(self) -> int:
        """How far the oldest segment is beyond ``retention.ms``; 0 where nothing goes by time."""
        if "delete" not in self.config.cleanup_policy or self.config.retention_ms < 0:
            return 0
        oldest = self._segments[0]
        if not oldest.size:
            return 0
        return max(self._clock.now_ms() - oldest.largest_timestamp - self.config.retention_ms, 0)

    def _count_old(self, segments: Sequence[Segment]) -> int:
        facts, now_ms = self._facts(segments), self._clock.now_ms()
        return segments_to_delete(
            facts, self.config, now_ms, self.log_start_offset, self.high_watermark
        )

    def _doom(self, segments: Sequence[Segment]) -> None:
        """Rename segments ``.deleted``.

        Their files stay until ``file.delete.delay.ms`` has passed.
        """
        for segment in segments:
            segment.rename(DELETED_SUFFIX)
            self._fs.remove(
                os.path.join(self.folder, segment_file(segment.base_offset, SNAPSHOT_SUFFIX))
            )
        # Before a new start or end is recorded: what is kept must survive a loss of power.
        self._fs.sync_dir(self.folder)
        due = self._clock.now_ms() + self.config.file_delete_delay_ms
        with self.locks.list:
            self._doomed = [*self._doomed, *((due, segment) for segment in segments)]

    def _raise_start(self, offset: int) -> None:
        self.log_start_offset = offset
        self._recover_from(offset)

    def delete_records(self, before_offset: int = HIGH_WATERMARK) -> int:
        """Make records below an offset unreadable; returns the log start offset.

        Whole segments of them go at the next round of retention. -1 means the high watermark.
        Raises OffsetOutOfRange, or PolicyViolation where ``cleanup.policy`` does not have delete.
        """
        if "delete" not in self.config.cleanup_policy:
            raise PolicyViolation(
                f"{self.partition}: cleanup.policy={self.config.cleanup_policy} keeps the last "
                "record of every key; add delete to cleanup.policy, or write tombstones"
            )
        offset = self.high_watermark if before_offset == HIGH_WATERMARK else before_offset
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                str(self.partition), offset, self.log_start_offset, self.high_watermark
            )
        if offset > self.log_start_offset:
            # A log that ended before its start would not be opened again.
            self.flush(offset)
            self._raise_start(offset)
            self.epochs.truncate_from_start(offset)
        return self.log_start_offset

    def _is_owned_alone(self) -> bool:
        locks = self.locks
        return locks.old.locked() and locks.flush.locked() and locks.end.locked()

    # -- truncation --------------------------------------------------------------------------------

    def truncate_to(
        self, offset: int, lower_checkpoints: Callable[[int], None] | None = None
    ) -> bool:
        """Make ``offset`` the log's end: the batch that holds it goes, whole, and all behind it.

        Returns whether there was anything to cut. Below the first segment everything goes.
        ``lower_checkpoints``: returns when no checkpoint on a disk is above the offset that it is
        given. It is called before anything goes: a log that ended below its recovery point would
        not be opened again.
        """
        if offset < 0:
            raise OffsetOutOfRange(
                str(self.partition), offset, self.log_start_offset, self._end.offset
            )
        if offset >= self._end.offset:
            self.epochs.truncate_from_end(self._end.offset)
            return False
        self._cut_back(offset, lower_checkpoints)
        return True

    def truncate_fully(
        self, offset: int, lower_checkpoints: Callable[[int], None] | None = None
    ) -> None:
        """Drop everything; the log goes on, empty, at ``offset``."""
        self._cut_back(offset, lower_checkpoints, is_whole=True)

    def _cut_back(
        self,
        offset: int,
        lower_checkpoints: Callable[[int], None] | None,
        *,
        is_whole: bool = False,
    ) -> None:
        assert self._is_owned_alone()
        self._rounds += 1
        segments = self._segments
        is_whole = is_whole or offset < segments[0].base_offset
        holder = segments[floor_of(segments, offset)]
        # A whole batch goes, so the records may end, and after a crash the log, before the offset.
        end = holder.base_offset if is_whole else holder.end_before(offset)
        cut = min(end, offset), offset
        self.recovery_point = min(self.recovery_point, *cut)
        if lower_checkpoints is not None:
            lower_checkpoints(cut[0])
        self._cut = cut
        try:
            self._cut_files(offset, is_whole=is_whole)
        except StorageError as error:
            # Some files are gone, and some are not: only opening the log again tells which.
            raise undo_failed(self.folder, error) from error

    def _cut_files(self, offset: int, *, is_whole: bool) -> None:
        segments = self._segments
        kept = () if is_whole else tuple(s for s in segments if s.base_offset <= offset)
        if not kept:
            # First, so that a crash in here leaves a log.
            kept = (self._segment_at(offset),)
            self._fs.sync_dir(self.folder)
        last = kept[-1]
        self._end_at(offset, last)
        with self.locks.list:
            self._segments = (*kept,)
        gone = [segment for segment in segments if segment not in kept]
        below = [segment for segment in gone if segment.base_offset < offset]
        above = [segment for segment in gone if segment.base_offset >= offset]
        # From both ends towards the offset: whatever a crash leaves has no hole.
        self._doom([*below, *reversed(above)])
        last.truncate_to(offset)
        if last.index_problem is not None:
            rebuild_indexes(last)
        self._writer = SegmentWriter(last, self._clock.now_ms())
        if is_whole:
            self._cut = (offset, offset)
            self._raise_start(offset)
            self._high_watermark = self._end  # which lay lower, if the log goes on behind its end
        self._forget_behind(offset)

    def _segment_at(self, base_offset: int) -> Segment:
        """The segment that begins there, or a new one."""
        there = (segment for segment in self._segments if segment.base_offset == base_offset)
        return next(there, None) or self._new_segment(base_offset)

    def _end_at(self, offset: int, segment: Segment) -> None:
        """Publish a lower end, before the bytes behind it go."""
        position = segment.position_of(offset)
        end = Bound(offset, segment.base_offset, position, self._end.appended_bytes)
        # A marker may go: until it is known what is open at the new end nothing is stable.
        self._ended = (Ended(first_offset=0, marker_offset=offset),)
        self._high_watermark = min(self._high_watermark, end)
        self._end = end

    def _forget_behind(self, offset: int) -> None:
        """Bring all that is remembered of the log back to its new end."""
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epochs.truncate_from_end(offset)
        now_ms = self._clock.now_ms()
        for name in self._fs.list_dir(self.folder):
            at = offset_of(name) if name.endswith(SNAPSHOT_SUFFIX) else None
            if at is not None and not self.log_start_offset < at <= offset:
                self._fs.remove(os.path.join(self.folder, name))
        producers = ProducerStates(str(self.partition))
        producers.load_newest(self._fs, self.folder, offset, now_ms)
        replay(producers, self._segments, self.log_start_offset, offset, now_ms)
        self._producers = producers
        with self.locks.list:  # another one: who has begun meanwhile begins again
            self._segments = (*self._segments,)
        self._ended = ()

    # -- compaction --------------------------------------------------------------------------------

    def last_records(self) -> dict[int, LastRecord]:
        """By producer id, where each producer stands. Any thread may ask."""
        return self._producers.last_records()

    def begin_round(self) -> RoundId:
        """A round of compaction begins; none that began before can swap any more."""
        assert self.locks.old.locked()
        self._rounds += 1
        return self._rounds

    def sealed(self) -> list[tuple[Segment, int]]:
        """The segments that are no longer written, each with the base offset of the next."""
        return [(segment, after.base_offset) for segment, after in pairwise(self._segments)]

    def aborted(self) -> list[AbortedTransaction]:
        """All aborted transactions, by marker."""
        return [entry for segment in self._segments for entry in segment.txn_index.entries]

    def check_unchanged(self, segments: Collection[SegmentId], round_id: RoundId) -> None:
        """Raise CleaningAborted unless the round may go on with these segments.

        They must still be sealed segments of the log. Since the round began, nothing may have been
        cut, and no other round may have begun.
        """
        if round_id != self._rounds:
            why = "another compaction has begun, or the log was cut or opened again"
        elif not {*segments} <= {segment.id for segment in self._segments[:-1]}:
            why = "retention deleted segments that it was reading"
        else:
            return
        raise CleaningAborted(str(self.partition), why)

    def replace_segments(self, old: Sequence[SegmentId], round_id: RoundId) -> None:
        """Put a cleaned segment in the place of old ones.

        It was written as ``<base offset of the first>.log.cleaned``.

        Raises CleaningAborted if one of these is gone (``check_unchanged``), with nothing changed.
        Once the new name ``.swap`` is on the disk the new segment is valid, and the next opening of
        the log finishes what a crash leaves here; an error of the disk after that is UndoFailed,
        any other SwapUnfinished. Source: ``UnifiedLog.replaceSegments``.
        """
        assert self.locks.old.locked()
        self.check_unchanged(old, round_id)
        ids = [segment.id for segment in self._segments]
        first = ids.index(old[0]) if old else 0
        if not old or ids[first : first + len(old)] != [*old]:
            raise CleaningAborted(
                str(self.partition), "the segments that it would replace are not adjacent"
            )
        base_offset, replaced = old[0].base_offset, self._segments[first : first + len(old)]
        fresh = Segment(
            self._fs,
            self.folder,
            base_offset,
            self.config,
            suffix=CLEANED_SUFFIX,
        )
        self._remove_other_cleaned(base_offset)
        try:
            fresh.rename(SWAP_SUFFIX)
            self._fs.sync_dir(self.folder)
            self._doom(replaced)
            fresh.rename("")
            # Before this section is recorded as clean, and before the next one is swapped.
            self._fs.sync_dir(self.folder)
        except StorageError as error:
            if error.is_disk_failure:
                raise UndoFailed(fresh.path, str(error)) from error
            raise SwapUnfinished(fresh.path, str(error)) from error
        with self.locks.list:  # last: a reader finds each segment in the log or among the doomed
            self._segments = (*self._segments[:first], fresh, *self._segments[first + len(old) :])

    def _remove_other_cleaned(self, base_offset: int) -> None:
        """Remove the files of rounds that were killed.

        From such a file recovery would conclude that this swap had not begun. The caller syncs the
        folder before anything else goes.
        """
        own = segment_file(base_offset, "")
        left = [name for name in self._fs.list_dir(self.folder) if name.endswith(CLEANED_SUFFIX)]
        stale = [name for name in left if not name.startswith(own)]
        for name in stale:
            self._fs.remove(os.path.join(self.folder, name))

    def mend_indexes(self) -> list[SegmentId]:
        """Make the indexes again that a reader found lying; returns whose they are.

        Those of the active segment wait until it is sealed. A segment whose batches do not lead to
        its end is left as it is.
        """
        wrong = self.wrong_indexes - self._unmendable
        mended = []
        for segment in self._segments[:-1]:
            if segment not in wrong:
                continue
            try:
                rebuild_indexes(segment)
            except CorruptRecord:  # the log itself is damaged, which its readers are told
                self._unmendable.add(segment)
            else:
                segment.seal()
                mended.append(segment.id)
        self.wrong_indexes.intersection_update(self._segments[-1:])
        return mended

    def _facts(self, segments: Sequence[Segment]) -> list[SegmentFacts]:
        ends = [*(segment.base_offset for segment in segments[1:]), self._end.offset]
        return [
            SegmentFacts(end, segment.size, segment.largest_timestamp)
            for segment, end in zip(segments, ends, strict=True)
        ]

    def purge_deleted(self) -> None:
        """Remove the files of segments deleted at least ``file.delete.delay.ms`` ago.

        What cannot be removed waits for as long again. Raises the first error, behind all.
        """
        now_ms = self._clock.now_ms()
        with self.locks.list:
            listed = {*self._segments}  # those that are about to leave: a reader may have them
            due = {s for when, s in self._doomed if when <= now_ms} - listed
            self._doomed = [entry for entry in self._doomed if entry[1] not in due]
        failures: list[StorageError] = []
        for segment in due:
            try:
                segment.delete()
            except StorageError as error:
                failures.append(error)
                with self.locks.list:
                    again_ms = now_ms + self.config.file_delete_delay_ms
                    self._doomed = [*self._doomed, (again_ms, segment)]
        if failures:
            raise failures[0]

    def next_due_ms(self, expiration: ProducerExpiration) -> int:
        """When upkeep next has something to do if nothing else happens.

        That is to purge, to flush, or to forget a producer.
        """
        due = [when for when, _ in self._doomed]
        if self.recovery_point < self._segments[-1].base_offset:
            due.append(0)
        if self.recovery_point < self._end.offset:
            flushed_ms = min(self._flushed_ms, self._clock.now_ms())
            due.append(flushed_ms + self.config.flush_ms)
        silent_ms = self._producers.oldest_ms + expiration.after_ms
        due.append(max(silent_ms, self._producers_checked_ms + expiration.check_interval_ms))
        return min(due)

    def expire_producers(self, expiration: ProducerExpiration) -> bool:
        """Forget producers that have been silent too long, if it is time to look for them.

        Returns whether more are due: a call forgets so many that an append can wait for it.
        """
        now_ms = self._clock.now_ms()
        if now_ms - self._producers_checked_ms < expiration.check_interval_ms:
            return False
        is_more_due = self._producers.expire(now_ms, expiration.after_ms)
        if not is_more_due:
            self._producers_checked_ms = now_ms
        return is_more_due

    def close(self) -> None:
        """Orderly end: everything flushed, the producers' snapshot written, files closed.

        A full disk, or a shortage of descriptors, does not keep a log from its end: what it has no
        room for (the last entries of the indexes, the snapshot) the next opening makes again, or
        does without.
        """
        assert self._is_owned_alone()
        with suppress(DiskFull, OutOfResources):
            self._writer.finish()
        if self._end.offset > self.recovery_point:
            self._flush_segments(self._end.offset)
        self._high_watermark = self._end
        for segment in self._segments:
            segment.flush_indexes()  # of what a flush before the seal left out
        with suppress(DiskFull, OutOfResources):
            self._write_snapshot()
            self._flush_snapshots()
            self._fs.sync_dir(self.folder)
        for segment in self._segments:
            segment.close()
        for _, segment in self._doomed:
            segment.delete()
