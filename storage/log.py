"""One partition's log: its segments in order, and all that is done to them.

Each part has a module: what is appended, and what of it can be read (``log_end.py``), flushes
(``flushing.py``), segments that were taken out (``doomed.py``), truncation (``truncation.py``), the
swap of compaction (``swap.py``). Here is in which order they do it, and the list of segments.

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

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import pairwise

from raylog.storage import truncation
from raylog.storage.clock import Clock
from raylog.storage.config import LogConfig
from raylog.storage.disk_errors import undo_failed
from raylog.storage.doomed import DoomedSegments
from raylog.storage.errors import (
    CorruptRecord,
    DiskFull,
    OffsetOutOfRange,
    OutOfResources,
    PolicyViolation,
    StorageError,
)
from raylog.storage.files import FileSystem
from raylog.storage.flushing import Flusher
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.locks import LogLocks
from raylog.storage.log_end import LogEnd
from raylog.storage.log_offsets import LogOffsets
from raylog.storage.names import TopicPartition
from raylog.storage.readable import ReadableLog
from raylog.storage.recovery import rebuild_indexes
from raylog.storage.report import Mended
from raylog.storage.retention import SegmentFacts, segments_to_delete
from raylog.storage.segment import Segment, SegmentId
from raylog.storage.snapshots import Snapshots
from raylog.storage.state.epochs import LeaderEpochs
from raylog.storage.state.producers import (
    LastRecord,
    ProducerExpiration,
    ProducerStanding,
    ProducerStates,
)
from raylog.storage.swap import RoundId, Swaps

HIGH_WATERMARK = -1


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
        self.mended: tuple[Mended, ...] = ()  # what opening did to the files
        self.wrong_indexes: set[Segment] = set()
        self._unmendable: set[Segment] = set()
        self._fs, self._clock = fs, clock
        self._segments = tuple(segments)
        self.locks = locks = LogLocks()
        self._offsets = LogOffsets(locks, log_start_offset, recovery_point)
        self._snapshots = Snapshots(fs, folder, locks)
        self._flusher = Flusher(fs, clock, folder, self._offsets, self._snapshots)
        self._doomed = DoomedSegments(fs, clock, folder, locks, config.file_delete_delay_ms)
        self._swaps = Swaps(fs, folder, str(partition), self._doomed)
        self._log_end = LogEnd(
            partition=str(partition),
            clock=clock,
            config=config,
            active=self._segments[-1],
            producers=producers,
            epochs=epochs,
            offsets=self._offsets,
            locks=locks,
            roll=self.roll,
        )
        # As they are, without a call between: every append pays for one.
        self.append = self._log_end.append
        self.append_checked = self._log_end.append_checked
        self.append_all = self._log_end.append_all
        self.needs_verification = self._log_end.needs_verification
        self.check_raises_epoch = self._log_end.check_raises_epoch
        self.transaction_start = self._log_end.transaction_start
        self.missing_before = self._log_end.missing_before
        self.refuse = self._log_end.refuse
        self.expire_producers = self._log_end.expire_producers

    def reconfigure(self, config: LogConfig) -> None:
        """Obey another config from now on.

        What a segment was made with (``SegmentWriter.reconfigure``) changes with the next segment.
        """
        assert self.locks.old.locked()
        assert self.locks.end.locked()
        for segment in self._segments:
            segment.reconfigure(config)
        self._log_end.reconfigure(config)
        self._doomed.delay_ms = config.file_delete_delay_ms
        self.config = config

    @property
    def recovery_point(self) -> int:
        """Below it, everything is on the disk."""
        return self._offsets.recovery_point

    def last_records(self) -> dict[int, LastRecord]:
        """By producer id, where each producer stands. Any thread may ask."""
        return self._log_end.producers.last_records()

    def producers(self) -> list[ProducerStanding]:
        """Each producer that the log knows. Any thread may ask."""
        return self._log_end.producers.standings()

    def _is_owned_alone(self) -> bool:
        locks = self.locks
        return locks.old.locked() and locks.flush.locked() and locks.end.locked()

    # -- roll, flush -------------------------------------------------------------------------------

    def roll(self) -> None:
        """Begin a new segment at the log's end.

        If the active one is still empty, nothing happens.
        """
        assert self.locks.end.locked()
        active, end = self._segments[-1], self._log_end.end
        if active.base_offset == end.offset:
            return
        writer = self._log_end.writer
        writer.finish()
        self._snapshots.write(self._log_end.producers, end.offset)
        self._flusher.has_stray_name = True
        fresh = self._new_segment(end.offset)
        try:
            active.seal()
        except StorageError as error:
            try:
                writer.resume()
                fresh.delete()
            except StorageError as second:
                raise undo_failed(fresh.path, second) from error
            raise
        self._flusher.has_stray_name = False
        with self.locks.list:
            self._segments = (*self._segments, fresh)
        self._log_end.begin(fresh)

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment(self._fs, self.folder, base_offset, self.config, create=True)

    def flush(self, up_to: int | None = None) -> None:
        """Return when everything below ``up_to`` will survive a loss of power.

        The default is the log's end. What waited for it becomes readable, under the end's lock.
        """
        assert self.locks.flush.locked()
        end = self._log_end.end
        offset = end.offset if up_to is None else up_to
        if self.high_watermark < offset or offset > end.segment_base:
            offset = end.offset
        if offset > self.recovery_point:
            self._flusher.flush(self, offset)
        if offset == end.offset and self.high_watermark < offset:
            with self.locks.end:
                self._log_end.show(end)

    def flush_due(self) -> None:
        """Flush the sealed segments, and the active one too once ``flush.ms`` has passed."""
        since_ms = self._clock.now_ms() - self._flusher.flushed_ms
        late = not 0 <= since_ms < self.config.flush_ms  # below 0: the clock was set back
        self.flush(None if late else self._segments[-1].base_offset)

    # -- retention ---------------------------------------------------------------------------------

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
            # first: no reader may take a later record for an older one
            self._offsets.raise_start(start)
            self._doomed.add(old)
            with self.locks.list:  # last: what is not renamed yet stays the log's to remove
                self._segments = self._segments[count:]
            self.epochs.truncate_from_start(start)
            # Those of a close within a segment, too: no segment takes them along.
            first = self._segments[0].base_offset
            self._snapshots.remove_where(lambda offset: offset < first)
        return count

    def _count_old(self, segments: Sequence[Segment]) -> int:
        ends = [*(segment.base_offset for segment in segments[1:]), self.log_end_offset]
        facts = [
            SegmentFacts(end, segment.size, segment.largest_timestamp)
            for segment, end in zip(segments, ends, strict=True)
        ]
        now_ms, start = self._clock.now_ms(), self.log_start_offset
        return segments_to_delete(facts, self.config, now_ms, start, self.high_watermark)

    def retention_lag_ms(self) -> int:
        """How far the oldest segment is beyond ``retention.ms``; 0 where nothing goes by time."""
        if "delete" not in self.config.cleanup_policy or self.config.retention_ms < 0:
            return 0
        oldest = self._segments[0]
        if not oldest.size:
            return 0
        return max(self._clock.now_ms() - oldest.largest_timestamp - self.config.retention_ms, 0)

    def delete_records(self, before_offset: int = HIGH_WATERMARK) -> int:
        """Make records below an offset unreadable; returns the log start offset.

        Whole segments of them go at the next round of retention. -1 means the high watermark.
        Raises OffsetOutOfRange, or PolicyViolation where ``cleanup.policy`` does not have delete.
        """
        assert self.locks.old.locked()
        assert self.locks.flush.locked()
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
            self._offsets.raise_start(offset)
            self.epochs.truncate_from_start(offset)
        return self.log_start_offset

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
                str(self.partition), offset, self.log_start_offset, self.log_end_offset
            )
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(self.log_end_offset)
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
        self._swaps.begin_round()  # so that no other goes on
        cut = truncation.plan(self._segments, offset, is_whole=is_whole)
        self._offsets.lower_recovery_point(cut.records_end)
        if lower_checkpoints is not None:
            lower_checkpoints(cut.records_end)
        self._offsets.cut(cut.records_end, offset)
        try:
            self._cut_files(offset, is_whole=cut.is_whole)
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
        self._log_end.lower(offset, last)
        with self.locks.list:
            self._segments = (*kept,)
        gone = [segment for segment in segments if segment not in kept]
        self._doomed.add(truncation.in_order(gone, offset))
        last.truncate_to(offset)
        if last.index_problem is not None:
            rebuild_indexes(last)
        self._log_end.write_to(last)
        if is_whole:
            self._offsets.empty_at(offset)
            self._log_end.show_all()  # it lay lower, if the log goes on behind its end
        self._forget_behind(offset)

    def _segment_at(self, base_offset: int) -> Segment:
        """The segment that begins there, or a new one."""
        there = (segment for segment in self._segments if segment.base_offset == base_offset)
        return next(there, None) or self._new_segment(base_offset)

    def _forget_behind(self, offset: int) -> None:
        """Bring all that is remembered of the log back to its new end."""
        self._offsets.lower_start(offset)
        self.epochs.truncate_from_end(offset)
        start, now_ms = self.log_start_offset, self._clock.now_ms()
        self._snapshots.remove_where(lambda at: not start < at <= offset)
        producers = truncation.producers_at(
            self._fs, self.folder, str(self.partition), self._segments, start, offset, now_ms
        )
        self._log_end.take_producers(producers)
        with self.locks.list:  # another one: who has begun meanwhile begins again
            self._segments = (*self._segments,)
        self._log_end.settle()

    # -- compaction --------------------------------------------------------------------------------

    def begin_round(self) -> RoundId:
        """A round of compaction begins; none that began before can swap any more."""
        assert self.locks.old.locked()
        return self._swaps.begin_round()

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
        self._swaps.check_unchanged(self._segments, segments, round_id)

    def replace_segments(self, old: Sequence[SegmentId], round_id: RoundId) -> None:
        """Put a cleaned segment in the place of old ones.

        It was written as ``<base offset of the first>.log.cleaned``.

        Raises CleaningAborted if one of these is gone (``check_unchanged``), with nothing changed.
        Once the new name ``.swap`` is on the disk the new segment is valid, and the next opening of
        the log finishes what a crash leaves here; an error of the disk after that is UndoFailed,
        any other SwapUnfinished.
        """
        assert self.locks.old.locked()
        first, fresh = self._swaps.replace(self._segments, old, round_id, self.config)
        with self.locks.list:  # last: a reader finds each segment in the log or among the doomed
            self._segments = (*self._segments[:first], fresh, *self._segments[first + len(old) :])

    # -- upkeep ------------------------------------------------------------------------------------

    def mend_indexes(self) -> list[SegmentId]:
        """Make the indexes again that a reader found lying; returns whose they are.

        Those of the active segment wait until it is sealed. A segment whose batches do not lead to
        its end is left as it is.
        """
        assert self.locks.old.locked()
        assert self.locks.flush.locked()
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

    def purge_deleted(self) -> None:
        """Remove the files of segments deleted at least ``file.delete.delay.ms`` ago."""
        self._doomed.purge(self._segments)

    def next_due_ms(self, expiration: ProducerExpiration) -> int:
        """When upkeep next has something to do if nothing else happens.

        That is to purge, to flush, or to forget a producer.
        """
        due = [*self._doomed.due_ms, self._log_end.due_ms(expiration)]
        if self.recovery_point < self._segments[-1].base_offset:
            due.append(0)
        if self.recovery_point < self.log_end_offset:
            flushed_ms = min(self._flusher.flushed_ms, self._clock.now_ms())
            due.append(flushed_ms + self.config.flush_ms)
        return min(due)

    def validate(self) -> None:
        """Assert what the log promises to itself. No batch is read; nobody may change it meanwhile.

        The recovery point may be below the log start offset: a truncation takes whole batches.
        """
        segments, end, mark = self._segments, self._log_end.end, self._log_end.high_watermark
        start, stable, active = self.log_start_offset, self.last_stable_offset, segments[-1]
        name = str(self.partition)
        for segment, after in pairwise(segments):
            assert segment.base_offset < after.base_offset, f"{name}: base offsets rise"
            segment.validate(after.base_offset)
        active.validate(end.offset)
        assert (end.segment_base, end.position) == (active.base_offset, active.size), f"{name}: end"
        assert segments[0].base_offset <= start <= stable, f"{name}: {start} is not where it begins"
        assert stable <= mark.offset <= end.offset, f"{name}: {stable}, {mark.offset}, {end.offset}"
        assert mark <= end, f"{name}: what can be read lies before the end"
        assert 0 <= self.recovery_point <= end.offset, f"{name}: {self.recovery_point} is flushed"
        assert self._log_end.producers.end_offset <= end.offset, f"{name}: producers end with it"
        epochs = self.epochs.entries
        assert all(one[0] < two[0] and one[1] <= two[1] for one, two in pairwise(epochs)), name
        assert all(offset <= end.offset for _, offset in epochs), f"{name}: epochs end with it"

    def close(self) -> None:
        """Orderly end: everything flushed, the producers' snapshot written, files closed.

        A full disk, or a shortage of descriptors, does not keep a log from its end: what it has no
        room for (the last entries of the indexes, the snapshot) the next opening makes again, or
        does without.
        """
        assert self._is_owned_alone()
        with suppress(DiskFull, OutOfResources):
            self._log_end.writer.finish()
        if self.log_end_offset > self.recovery_point:
            self._flusher.flush(self, self.log_end_offset)
        self._log_end.show_all()
        for segment in self._segments:
            segment.flush_indexes()  # of what a flush before the seal left out
        with suppress(DiskFull, OutOfResources):
            self._snapshots.write(self._log_end.producers, self.log_end_offset)
            self._snapshots.flush()
            self._fs.sync_dir(self.folder)
        for segment in self._segments:
            segment.close()
        self._doomed.remove_all()

    def release(self) -> None:
        """Close the files as they are, after a failure: the next opening recovers the log."""
        for segment in self._segments:
            segment.release()
