"""One partition's log: its segments in order, and all that is done to them.

That is append, roll, flush, retention, truncation and compaction's swap.

::

    log start offset      recovery point     last stable   log end offset
          |                     |               |            |
    [ segment 0 ][ segment 1 ][ segment 2 (active)           ]
                  flushed <---->| in the page cache
                                                |<---------->| may still be aborted

*Offset* counts records, *position* counts bytes in a segment's file. The *last stable offset* is
where the oldest open transaction begins: a read of committed records stops there, and is told which
transactions below it were aborted, for the reader to skip. The *high watermark* is the log's end
while a log has one replica.

**Who may call what.** Two things have one owner each at a time; the caller holds their locks
(``actors/partition/partition.py``), so that slow work on old segments never holds up an append:

- *the end*: ``append``, ``roll``, ``expire_producers``;
- *the old segments*: ``delete_old_segments``, ``delete_records``, ``replace_segments``,
  ``begin_round``. What they do to the disk touches no file of the active segment. Where both owners
  change the list of segments they hold ``list_lock``: for two assignments, and never while they
  read or write a file.

``truncate_to``, ``reconfigure`` and ``close`` need both. ``flush`` and ``purge_deleted`` may run
beside all of these, one of each at a time. What readers may call, any number of threads, is in
``readable.py``. Who uses a log from one thread needs no lock at all.

Not its job: opening a folder (``loader.py``), what may be appended (``validation.py``), who decides
what is deleted (``retention.py``) or compacted (``cleaner``). Source: ``UnifiedLog`` and
``LocalLog`` of Kafka.
"""

import os
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import pairwise
from struct import Struct
from typing import Any, NamedTuple

from crc32c import crc32c

from raylog.storage.buffers import Buffer
from raylog.storage.clock import Clock
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    CleaningAborted,
    DiskFull,
    OffsetOutOfRange,
    PolicyViolation,
    StorageError,
    SwapUnfinished,
    UndoFailed,
)
from raylog.storage.files import FileSystem
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TopicPartition,
    offset_of,
    segment_file,
)
from raylog.storage.readable import LogEnd, ReadableLog
from raylog.storage.records.batch import BatchHeader
from raylog.storage.records.control import read_marker
from raylog.storage.records.layout import (
    AT_ATTRIBUTES,
    AT_CRC,
    AT_MAX_TIMESTAMP,
    CRC,
    CRC_START,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP,
)
from raylog.storage.replay import replay
from raylog.storage.report import Mended
from raylog.storage.retention import SegmentFacts, segments_to_delete
from raylog.storage.segment import Segment, SegmentId
from raylog.storage.state.epochs import LeaderEpochs
from raylog.storage.state.producers import NO_PRODUCER, CachedBatch, LastRecord, ProducerStates
from raylog.storage.validation import CLIENT, CheckedBatch, Origin, check_append

HIGH_WATERMARK = -1

# What the log writes into a batch: base offset, length, leader epoch. All are outside of the CRC.
_STAMP = Struct(">qii")
_ATTRIBUTES = Struct(">h")
_new = tuple.__new__  # half the time of a NamedTuple's own constructor: every append makes two


class AppendInfo(NamedTuple):
    """Where an append went. For a duplicate: where it went the first time."""

    base_offset: int
    last_offset: int
    log_append_time: int  # -1 unless message.timestamp.type is LogAppendTime
    log_start_offset: int
    is_duplicate: bool = False


class RoundId(NamedTuple):
    """One round of compaction over a log."""

    truncations: int  # of the log, at the round's begin
    # a round that begins ends all before it: those may still run, in a process that is given up
    number: int


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
        self.mended: tuple[Mended, ...] = ()  # what opening did to the files
        self._fs, self._clock = fs, clock
        self._producers = producers
        self._stamps_append_time = config.message_timestamp_type == "LogAppendTime"
        self._segments = tuple(segments)
        self._doomed: list[tuple[int, Segment]] = []
        # a lock, where there is more than one thread
        self.list_lock: AbstractContextManager[Any] = nullcontext()
        self.truncations = 0
        self._rounds = 0  # of compaction, since the log was opened
        self._flushed_ms = clock.now_ms()
        active = self._segments[-1]
        self._end = LogEnd(producers.end_offset, active.base_offset, active.size)

    def reconfigure(self, config: LogConfig) -> None:
        """Obey another config from now on.

        What a segment was made with (``Segment.reconfigure``) changes with the next segment.
        """
        for segment in self._segments:
            segment.reconfigure(config)
        self._stamps_append_time = config.message_timestamp_type == "LogAppendTime"
        self.config = config

    # -- append ------------------------------------------------------------------------------------

    def append(
        self, records: Buffer, leader_epoch: int | None = None, origin: Origin = CLIENT
    ) -> AppendInfo:
        """Append one batch, or raise with nothing written. See ``validation.check_append``."""
        now_ms = self._clock.now_ms()
        batch = check_append(records, self.config, now_ms, origin)
        return self.append_checked(batch, now_ms, leader_epoch, origin)

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
        header, content = batch
        max_timestamp = header.max_timestamp
        has_producer = header.producer_id != NO_PRODUCER
        marker = None
        if has_producer:
            if header.is_control:
                marker = read_marker(content)
            if marker is not None:
                self._producers.check_marker(header, marker)
            elif duplicate := self._producers.check(header, is_client=origin == CLIENT):
                return self._first_append(duplicate)
        append_time = NO_TIMESTAMP
        if self._stamps_append_time or header.attributes & LOG_APPEND_TIME:
            if self._stamps_append_time:
                max_timestamp = append_time = now_ms
            content = _with_timestamp_type(header, content, append_time)
        epoch = self.epochs.latest if leader_epoch is None else leader_epoch
        base_offset = self._end.offset
        last_offset = base_offset + header.last_offset_delta
        size_bytes = header.batch_length + LOG_OVERHEAD
        active = self._segments[-1]
        if self.epochs.is_stale:
            self.epochs.save()
        if active.should_roll(size_bytes, max_timestamp, last_offset, now_ms):
            self.roll()
            active = self._segments[-1]
        stamp = _STAMP.pack(base_offset, header.batch_length, epoch)
        aborted = (
            self._producers.aborted_by(header, marker, base_offset) if marker is not None else None
        )
        body = memoryview(content)[_STAMP.size :]
        active.append((stamp, body), size_bytes, last_offset, max_timestamp, aborted)
        if has_producer:
            stamped = header._replace(max_timestamp=max_timestamp) if append_time >= 0 else header
            self._producers.add(stamped, base_offset, now_ms, marker)
        self._producers.end_offset = last_offset + 1
        self._end = _new(LogEnd, (last_offset + 1, active.base_offset, active.log.size))
        return _new(
            AppendInfo, (base_offset, last_offset, append_time, self.log_start_offset, False)
        )

    def _first_append(self, duplicate: CachedBatch) -> AppendInfo:
        """What a batch that is sent again is answered."""
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
        active, end = self._segments[-1], self._end.offset
        if active.base_offset == end:
            return
        active.seal()
        self._producers.write_snapshot(self._fs, self.folder, flush=False)
        fresh = Segment(self._fs, self.folder, end, self.config, self._clock.now_ms(), create=True)
        with self.list_lock:
            self._segments = (*self._segments, fresh)
        self._end = LogEnd(end, fresh.base_offset, 0)

    # -- flush, retention, close -------------------------------------------------------------------

    def flush(self, up_to: int | None = None) -> None:
        """Return when everything below ``up_to`` will survive a loss of power.

        The default is the log's end.
        """
        offset = self._end.offset if up_to is None else up_to
        if offset <= self.recovery_point:
            return
        segments = self._segments
        first = self._floor(segments, self.recovery_point)
        dirty = [segment for segment in segments[first:] if segment.base_offset < offset]
        for segment in dirty:
            self._flush(segment)
        if any(segment.base_offset >= self.recovery_point for segment in dirty):
            self._fs.sync_dir(self.folder)
        self._recover_from(offset)
        self._flushed_ms = self._clock.now_ms()

    def _flush(self, segment: Segment) -> None:
        try:
            segment.flush()
        except StorageError:
            if segment in self._segments:
                raise  # else it was deleted and closed meanwhile

    def _recover_from(self, offset: int) -> None:
        """Advance the recovery point."""
        with self.list_lock:
            self.recovery_point = max(self.recovery_point, offset)

    def flush_due(self) -> None:
        """Flush the sealed segments, and the active one too once ``flush.ms`` has passed."""
        late = self._clock.now_ms() - self._flushed_ms >= self.config.flush_ms
        self.flush(None if late else self._segments[-1].base_offset)

    def delete_old_segments(self, end_lock: AbstractContextManager[Any] | None = None) -> int:
        """Retention: take old segments out of the log, rename them ``.deleted``; returns how many.

        ``end_lock``: makes the caller the end's owner for the moment in which the active segment is
        found old, too.
        """
        segments = self._segments
        count = self._count_old(segments)
        if count == len(segments):
            with end_lock or nullcontext():
                segments = self._segments
                count = self._count_old(segments)  # an append may have come before the lock
                if count == len(segments):
                    try:
                        self.roll()
                    except DiskFull:
                        count -= 1  # the others make room for it
            # The new segment alone carries the log's end: its name must outlive the old ones.
            self._fs.sync_dir(self.folder)
        old = segments[:count]
        if old:
            self._doom(old)
            with self.list_lock:  # last: a reader finds each segment in one of the two
                self._segments = self._segments[count:]
            self._start_at(max(self.log_start_offset, self._segments[0].base_offset))
        return count

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
        with self.list_lock:
            self._doomed = [*self._doomed, *((due, segment) for segment in segments)]

    def _start_at(self, offset: int) -> None:
        self.log_start_offset = offset
        self._recover_from(offset)
        self.epochs.truncate_from_start(offset)

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
            self.flush(offset)  # a log that ended before its start would not be opened again
            self._start_at(offset)
        return self.log_start_offset

    # -- truncation --------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Make ``offset`` the log's end: the batch that holds it goes, whole, and all behind it.

        Returns whether there was anything to cut. Below the first segment everything goes.
        """
        if offset < 0:
            raise OffsetOutOfRange(
                str(self.partition), offset, self.log_start_offset, self._end.offset
            )
        if offset >= self._end.offset:
            self.epochs.truncate_from_end(self._end.offset)
            return False
        if offset < self._segments[0].base_offset:
            self.truncate_fully(offset)
            return True
        kept = tuple(segment for segment in self._segments if segment.base_offset <= offset)
        doomed = self._segments[len(kept) :]
        self._end = LogEnd(offset, kept[-1].base_offset, self._position_of(kept[-1], offset))
        self._segments = kept
        self.truncations += 1
        try:
            self._doom(doomed)
            kept[-1].truncate_to(offset, self._clock.now_ms())
            self._end = LogEnd(offset, kept[-1].base_offset, kept[-1].size)
        finally:
            self.truncations += 1
        self._cut_back_to(offset)
        return True

    def truncate_fully(self, offset: int) -> None:
        """Drop everything; the log goes on, empty, at ``offset``."""
        self._doom(self._segments)
        fresh = Segment(
            self._fs, self.folder, offset, self.config, self._clock.now_ms(), create=True
        )
        self._fs.sync_dir(self.folder)
        self._end = LogEnd(offset, offset, 0)
        self._segments = (fresh,)
        self.truncations += 2
        self.log_start_offset = offset
        self._cut_back_to(offset)

    def _cut_back_to(self, offset: int) -> None:
        """Bring all that is remembered of the log back to its new end."""
        self.log_start_offset = min(self.log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.epochs.truncate_from_end(offset)
        now_ms = self._clock.now_ms()
        for name in self._fs.list_dir(self.folder):
            at = offset_of(name) if name.endswith(SNAPSHOT_SUFFIX) else None
            if at is not None and not self.log_start_offset < at <= offset:
                self._fs.remove(os.path.join(self.folder, name))
        self._producers = ProducerStates(str(self.partition))
        self._producers.load_newest(self._fs, self.folder, offset, now_ms)
        replay(self._producers, self._segments, self.log_start_offset, offset, now_ms)

    # -- compaction --------------------------------------------------------------------------------

    def last_records(self) -> dict[int, LastRecord]:
        """By producer id, where each producer stands. Any thread may ask."""
        return self._producers.last_records()

    def begin_round(self) -> RoundId:
        """A round of compaction begins; none that began before can swap any more."""
        self._rounds += 1
        return RoundId(self.truncations, self._rounds)

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
        if round_id.number != self._rounds:
            why = "another compaction has begun, or the log was opened again"
        elif round_id.truncations != self.truncations or not {*segments} <= {
            segment.id for segment in self._segments[:-1]
        }:
            why = "retention or a truncation deleted segments that it was reading"
        else:
            return
        raise CleaningAborted(str(self.partition), why)

    def replace_segments(self, old: Sequence[SegmentId], round_id: RoundId) -> None:
        """Put a cleaned segment in the place of old ones.

        It was written as ``<base offset of the first>.log.cleaned``.

        Raises CleaningAborted if one of these is gone (``check_unchanged``), with nothing changed.
        Once the new name ``.swap`` is on the disk the new segment is valid, and the next opening of
        the log finishes what a crash leaves here; an error of the disk after that is UndoFailed, a
        full disk SwapUnfinished. Source: ``UnifiedLog.replaceSegments``.
        """
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
            self._clock.now_ms(),
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
        except DiskFull as error:
            raise SwapUnfinished(fresh.path) from error
        except StorageError as error:
            raise UndoFailed(fresh.path, str(error)) from error
        with self.list_lock:  # last: a reader finds each segment in the log or among the doomed
            self._segments = (*self._segments[:first], fresh, *self._segments[first + len(old) :])

    def _remove_other_cleaned(self, base_offset: int) -> None:
        """Remove the files of rounds that were killed.

        From such a file recovery would conclude that this swap had not begun.
        """
        own = segment_file(base_offset, "")
        left = [name for name in self._fs.list_dir(self.folder) if name.endswith(CLEANED_SUFFIX)]
        stale = [name for name in left if not name.startswith(own)]
        for name in stale:
            self._fs.remove(os.path.join(self.folder, name))
        if stale:
            self._fs.sync_dir(self.folder)

    def _facts(self, segments: Sequence[Segment]) -> list[SegmentFacts]:
        ends = [*(segment.base_offset for segment in segments[1:]), self._end.offset]
        return [
            SegmentFacts(end, segment.size, segment.largest_timestamp)
            for segment, end in zip(segments, ends, strict=True)
        ]

    def purge_deleted(self) -> None:
        """Remove the files of segments deleted at least ``file.delete.delay.ms`` ago."""
        now_ms = self._clock.now_ms()
        with self.list_lock:
            due = [segment for when, segment in self._doomed if when <= now_ms]
            self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]
        for segment in due:
            segment.delete()

    def next_due_ms(self, expiration_ms: int) -> int:
        """When upkeep next has something to do if nothing else happens.

        That is to purge, to flush, or to forget a producer.
        """
        due = [when for when, _ in self._doomed]
        if self.recovery_point < self._segments[-1].base_offset:
            due.append(0)
        if self.recovery_point < self._end.offset:
            due.append(self._flushed_ms + self.config.flush_ms)
        return min([*due, self._producers.oldest_ms + expiration_ms])

    def expire_producers(self, expiration_ms: int) -> None:
        """Forget producers that have been silent for this long."""
        self._producers.expire(self._clock.now_ms(), expiration_ms)

    def close(self) -> None:
        """Orderly end: everything flushed, the producers' snapshot written, files closed.

        A full disk does not keep a log from its end: what it has no room for (the last entries of
        the indexes, the snapshot) the next opening makes again, or does without.
        """
        with suppress(DiskFull):
            self._segments[-1].seal()
        self.flush()
        for segment in self._segments:
            segment.flush_indexes()  # of what a flush before the seal left out
        with suppress(DiskFull):
            self._producers.write_snapshot(self._fs, self.folder, flush=True)
        for segment in self._segments:
            segment.close()
        for _, segment in self._doomed:
            segment.delete()


def _with_timestamp_type(header: BatchHeader, content: Buffer, append_time: int) -> bytearray:
    """The batch with the topic's timestamp type.

    That is LogAppendTime with this time, or CreateTime if the time is -1.
    """
    changed = bytearray(content)
    attributes = header.attributes & ~LOG_APPEND_TIME
    if append_time >= 0:
        attributes |= LOG_APPEND_TIME
        TIMESTAMP.pack_into(changed, AT_MAX_TIMESTAMP, append_time)
    _ATTRIBUTES.pack_into(changed, AT_ATTRIBUTES, attributes)
    CRC.pack_into(changed, AT_CRC, crc32c(memoryview(changed)[CRC_START:]))
    return changed
