"""Opens a partition's folder: after an orderly stop as it is, after a crash with its tail checked.

What may lie there after a crash: a torn batch at the end of the last segment, indexes that lag
behind or were torn, segments that retention had renamed, a compaction's segment on its way in, a
checkpoint older than the data. What the loader promises: the log is a prefix of what was appended
(less what compaction had dropped) that holds everything that was flushed, or acknowledged and not
lost with the page cache; indexes, producer state and leader epochs agree with it. Everything before
the recovery point was flushed and is not read again.

- **Nothing that may hold a record is removed.** What must leave the log is set aside
  (``asides.py``).
- **Everything is told**: ``Log.mended`` has each file that was cut, set aside, made again or
  removed.
- **Memory is bounded**: one segment after the other is checked, in pieces of 1 MB, and producers,
  transactions and leader epochs are taken over in the same pass.
- A folder without its data is an error, never an empty log. So is a log that ends before its
  recovery point, or that lacks a segment below it (``losses.py``).

Source: ``LogLoader`` of Kafka.
"""

import os
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise

from raylog.storage.asides import is_zero, look_into, set_aside_segment, set_aside_tail
from raylog.storage.cleaner.recovery import finish_swaps
from raylog.storage.clock import Clock
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    CorruptCheckpoint,
    CorruptIndex,
    CorruptRecord,
    DiskFull,
    FlushedRecordsMissing,
    LogMissing,
    LogShorterThanFlushed,
    RaylogError,
    StorageError,
    TopicIdUnreadable,
)
from raylog.storage.files import FileSystem
from raylog.storage.gaps import Gaps, Missing, Recovered
from raylog.storage.indexes.builder import IndexBuilder
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.limits import MAX_LONG
from raylog.storage.log import Log
from raylog.storage.losses import drop_settled, gap_loss, is_accepted, loss
from raylog.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    TopicPartition,
    offset_of,
    segment_file,
)
from raylog.storage.recovery import (
    Batches,
    EpochScan,
    Tail,
    add_entries,
    epoch_changes,
    index_builder,
    index_fault,
    last_batches,
    last_epoch,
    read_tail,
    rebuild_indexes,
)
from raylog.storage.replay import check_aborted, replay_piece, replay_segment
from raylog.storage.report import Meter, OnProgress, Report
from raylog.storage.segment import Segment
from raylog.storage.state.checkpoints import LEADER_EPOCHS
from raylog.storage.state.epochs import LeaderEpochs
from raylog.storage.state.producers import ProducerStates
from raylog.storage.state.properties import read_topic_id, write_topic_id


def create_log(fs: FileSystem, folder: str, topic_id: str) -> None:
    """Make the folder of a new, empty partition, all on disk when this returns."""
    fs.make_dir(folder)
    write_topic_id(fs, folder, topic_id)
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        fs.write_file(os.path.join(folder, segment_file(0, suffix)), b"")
    fs.sync_dir(folder)
    fs.sync_dir(os.path.dirname(folder))


def open_log(
    fs: FileSystem,
    clock: Clock,
    folder: str,
    partition: TopicPartition,
    config: LogConfig,
    *,
    topic_id: str | None = None,
    is_clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    progress: OnProgress | None = None,
) -> Log:
    """Open the log in ``folder``.

    ``topic_id``: the id that ``partition.metadata`` must have, None takes any. ``is_clean``: the
    broker before stopped in order. ``recovery_point``, ``log_start_offset``: of the log dir's
    checkpoints. ``progress`` is told of every segment and every 64 MB that recovery has read.

    What was done to the files is in ``Log.mended``. Raises LogMissing, LogShorterThanFlushed,
    FlushedRecordsMissing or NoRoomToSetAside, with every record where it was.
    """
    _check_identity(fs, folder, topic_id)
    epochs = LeaderEpochs(fs, folder)  # before anything is changed: it may be damaged
    report = Report(fs, folder)
    finish_swaps(fs, folder, report.remove)
    log_bases = [offset_of(name) for name in fs.list_dir(folder) if name.endswith(LOG_SUFFIX)]
    bases = [base for base in log_bases if base is not None]
    if not bases:
        raise LogMissing(folder, "the partition's folder has no .log file")
    now_ms = clock.now_ms()
    segments = [Segment(fs, folder, base, config) for base in bases]
    for segment in segments[:-1]:
        segment.log.seal()
    start = max(log_start_offset, bases[0])
    opening = _Opening(
        fs=fs,
        folder=folder,
        config=config,
        now_ms=now_ms,
        segments=segments,
        start=start,
        recovery_point=recovery_point,
        report=report,
        progress=progress or (lambda _: None),
    )
    gaps = Gaps(fs, folder, is_compacted=config.is_compacted)
    producers = ProducerStates(str(partition))
    try:
        opening.run(producers, gaps, is_clean=is_clean)
    except RaylogError:
        for segment in segments:
            segment.log.close()
        raise
    opening.remove_stray_snapshots()
    opening.restore(epochs)
    end = opening.end
    flushed = end if opening.was_clean else min(recovery_point, end)
    log = Log(fs, clock, folder, partition, config, segments, producers, epochs, start, flushed)
    log.mended = tuple(report.mended)
    with suppress(CorruptCheckpoint, DiskFull):  # the next opening does it
        drop_settled(fs, folder, end)
    if end - log.recovery_point >= config.flush_messages:
        log.flush()  # before any reader sees what is not fsynced
    return log


def _check_identity(fs: FileSystem, folder: str, topic_id: str | None) -> None:
    if not fs.is_dir(folder):
        raise LogMissing(folder, "the partition's folder does not exist")
    own_topic_id = _read_topic_id(fs, folder, topic_id)
    if topic_id is not None and own_topic_id != topic_id:
        raise LogMissing(folder, f"the folder belongs to topic id {own_topic_id}, not {topic_id}")


def _read_topic_id(fs: FileSystem, folder: str, topic_id: str | None) -> str | None:
    if topic_id is None:
        return read_topic_id(fs, folder)
    try:
        own_topic_id = read_topic_id(fs, folder)
    except CorruptCheckpoint as error:
        raise TopicIdUnreadable(folder, topic_id, f"is damaged ({error.args[1]})") from error
    if own_topic_id is None:
        raise TopicIdUnreadable(folder, topic_id, "is missing")
    return own_topic_id


def _remove_leftovers(fs: FileSystem, folder: str, report: Report, kept: Container[str]) -> None:
    """Drop what retention left, and indexes whose log is gone; but not the names in ``kept``."""
    names = fs.list_dir(folder)
    for name in names:
        stem, suffix = os.path.splitext(name)
        is_index = suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
        if is_index and stem + LOG_SUFFIX not in names:
            report.remove(name, "an index without its log")
        elif suffix == DELETED_SUFFIX and name not in kept:
            report.remove(name, "deleted by retention or compaction")
        elif suffix in (CLEANED_SUFFIX, ".tmp"):
            report.remove(name, "left by a write that a stop interrupted")


class _Opening:
    """The segments of one log, on the way from what is on the disk to a log that serves.

    ``end``, ``was_clean``: known after :meth:`run`.
    """

    def __init__(
        self,
        *,
        fs: FileSystem,
        folder: str,
        config: LogConfig,
        now_ms: int,
        segments: list[Segment],
        start: int,
        recovery_point: int,
        report: Report,
        progress: OnProgress,
    ) -> None:
        self.end = 0
        self.was_clean = False
        self._fs, self._folder, self._config, self._now_ms = fs, folder, config, now_ms
        self._segments = segments
        self._start = start
        self._recovery_point = recovery_point
        self._report = report
        self._progress = progress
        self._kept: set[str] = set()  # names of leftovers that are still needed
        self._had_records = any(segment.size for segment in segments)
        self._epochs = EpochScan()
        # Of the segments that are not checked: those whose transaction index must be made again.
        self._damaged: list[Segment] = []

    def run(self, producers: ProducerStates, gaps: Gaps, *, is_clean: bool) -> None:
        """Check what must be checked; bring ``producers`` to the log's end."""
        missing = self._missing_behind(self._traced(gaps), gaps)
        # Above the recovery point an orderly stop leaves no gap.
        is_orderly = all(gap.end_offset <= self._recovery_point for gap in missing)
        self.was_clean = is_clean and is_orderly
        tail = self._clean_tail() if self.was_clean else None
        self.was_clean = tail is not None
        if tail is not None:
            self.end = tail.next_offset
            self._check_length(self.end)
            first = len(self._segments)
        else:
            first = self._first_to_check()
            missing = self._missing_behind(range(first), gaps)
        self._refuse(missing, gaps)
        _remove_leftovers(self._fs, self._folder, self._report, self._kept)
        self._mend_sealed(self._segments[:first])
        self._check_transactions(self._segments[:first])
        self._load_producers(producers, self._segments[first:])
        begin = max(producers.end_offset, self._start)
        for number in range(min(first, len(self._segments))):
            self._replay(producers, number, begin)
        if tail is None:
            self._check_all(producers, first, begin, gaps)
        if self.end < self._start:
            self._begin_again(producers)
        producers.end_offset = self.end

    def _first_to_check(self) -> int:
        """The number of the segment that has the recovery point, or of the one before.

        Where a roll and an fsync failed, a loss of power may bring back the name of the new
        segment. What was not flushed is then in the segment before it.
        """
        bases = [segment.base_offset for segment in self._segments]
        first = max((n for n, base in enumerate(bases) if base <= self._recovery_point), default=0)
        return first - 1 if first and self._has_surplus(first - 1) else first

    def _has_surplus(self, number: int) -> bool:
        """Whether a segment has bytes behind the batch that leads to the next segment."""
        following = self._segments[number + 1].base_offset
        batches = last_batches(self._segments[number], verify=True, end_offset=following)
        return batches.next_offset == following and not batches.is_whole

    # -- what is missing below the recovery point --------------------------------------------------

    def _traced(self, gaps: Gaps) -> list[int]:
        """The numbers of the segments behind which something is missing by names and sizes.

        The name of a file tells of another segment, or a segment is empty that was flushed.
        """
        traced = []
        for number, (segment, following) in enumerate(pairwise(self._segments)):
            is_emptied = not segment.size and following.base_offset <= self._recovery_point
            if is_emptied or gaps.has_trace(segment.base_offset, following.base_offset):
                traced.append(number)
        return traced

    def _missing_behind(self, numbers: Iterable[int], gaps: Gaps) -> list[Missing]:
        """What is missing behind these segments, but for what retention has taken."""
        found = []
        for number in numbers:
            following = self._segments[number + 1].base_offset
            if following <= self._start:
                continue
            missing = gaps.missing_behind(self._segments[number], following)
            if missing is None:
                continue
            if gaps.is_retention(missing):
                # As long as the segments before it are there, its name explains the gap.
                self._kept.add(segment_file(missing.first_offset, LOG_SUFFIX + DELETED_SUFFIX))
            else:
                found.append(missing)
        return found

    def _refuse(self, missing: Sequence[Missing], gaps: Gaps) -> None:
        """Raise FlushedRecordsMissing for a gap that nobody accepted; tell the others."""
        for gap in missing:
            if not gaps.is_accepted(gap):
                raise FlushedRecordsMissing(self._folder, *gap)
            self._report.mended.append(gap_loss(gap))

    # -- after an orderly stop ---------------------------------------------------------------------

    def _clean_tail(self) -> Tail | None:
        """The end of the active segment; None if it is not what an orderly stop leaves."""
        active = self._segments[-1]
        try:
            if not self._has_indexes(active):
                self._damaged.append(active)  # restored from an aside: no index is known
            fault = index_fault(self._fs, active)
            if fault is not None:
                raise CorruptIndex(active.base_offset, 0, fault)
            return read_tail(active)
        except CorruptIndex as error:
            why = str(error)
        except CorruptRecord:
            return None
        batches = Batches(active)
        batches.read()
        if not batches.is_whole:
            return None
        self._check_length(batches.next_offset)
        try:
            self._rebuild(active, why)
            return read_tail(active)
        except (CorruptIndex, CorruptRecord):
            return None

    def _mend_sealed(self, segments: Sequence[Segment]) -> None:
        """Rebuild missing indexes; after a crash those with damaged bytes, too.

        After an orderly stop the others are looked at when they are first used: opening a log of a
        thousand segments reads none of them.
        """
        for segment in segments:
            why = None
            if not self.was_clean:
                why = index_fault(self._fs, segment)
            elif not self._has_indexes(segment):
                why = "an index file is missing"
            if why is not None:
                # a sealed log that is damaged itself: who reads it is told, when he comes there
                with suppress(CorruptRecord):
                    self._rebuild(segment, why)

    def _has_indexes(self, segment: Segment) -> bool:
        indexes = (segment.offset_index, segment.time_index)
        return all(self._fs.exists(index.path) for index in indexes)

    def _rebuild(self, segment: Segment, why: str) -> None:
        rebuild_indexes(segment)
        for index in (segment.offset_index, segment.time_index):
            self._report.add("rebuilt", os.path.basename(index.path), why)

    # -- transactions and producers ----------------------------------------------------------------

    def _check_transactions(self, segments: Sequence[Segment]) -> None:
        """Find the segments whose transaction index does not agree with the batches."""
        ends = dict[int, int]()
        for number, segment in enumerate(segments):
            try:
                segment.txn_index.entries  # noqa: B018  reads the file
            except (CorruptIndex, StorageError):
                self._damaged.append(segment)
                continue
            try:
                check_aborted(self._segments[: number + 1], ends)
            except CorruptIndex:
                self._damaged.append(segment)

    def _load_producers(self, producers: ProducerStates, unchecked: Sequence[Segment]) -> None:
        """Take the newest snapshot from before all that is to be replayed."""
        bases = [segment.base_offset for segment in (*unchecked, *self._damaged)]
        up_to = min([*bases, self.end] if self.was_clean else bases)
        before = self._fs.list_dir(self._folder)
        producers.load_newest(self._fs, self._folder, up_to, self._now_ms)
        for name in {*before} - {*self._fs.list_dir(self._folder)}:
            self._report.add("removed", name, "a producer snapshot that cannot be read")

    def _replay(self, producers: ProducerStates, number: int, begin: int) -> None:
        """Take over the producers of a segment whose batches are not checked."""
        segment = self._segments[number]
        if number + 1 < len(self._segments) and self._segments[number + 1].base_offset <= begin:
            return
        try:
            aborted = replay_segment(producers, segment, begin, MAX_LONG, self._now_ms)
        except CorruptRecord as error:  # readers are told, too, when they come there
            name = segment_file(segment.base_offset, LOG_SUFFIX)
            why = f"{error.problem}; what follows in it tells nothing of producers"
            self._report.add("damaged", name, why, size_bytes=0)
            return
        if segment in self._damaged:
            self._take_aborted(segment, aborted, begin)

    def _take_aborted(
        self, segment: Segment, aborted: Sequence[AbortedTransaction], begin: int
    ) -> None:
        """Put what the markers from ``begin`` on tell into the transaction index."""
        try:
            entries = segment.txn_index.entries
        except (CorruptIndex, StorageError):
            entries = None
        older = [entry for entry in entries or () if entry.last_offset < begin]
        wanted = (*older, *aborted)
        if entries != wanted:
            segment.txn_index.replace(wanted)
            name = os.path.basename(segment.txn_index.path)
            self._report.add("rebuilt", name, "it did not agree with the transactions of the log")

    # -- after a crash -----------------------------------------------------------------------------

    def _check_all(self, producers: ProducerStates, first: int, begin: int, gaps: Gaps) -> None:
        """Check the segments one by one; the first loss ends the log."""
        meter = Meter([segment.size for segment in self._segments[first:]], self._progress)
        number = first
        while number < len(self._segments):
            self._check(producers, number, begin, gaps, meter)
            meter.segment_done()
            number += 1

    def _check(
        self, producers: ProducerStates, number: int, begin: int, gaps: Gaps, meter: "Meter"
    ) -> None:
        """Check every batch of a segment; where a loss is found the log ends there."""
        segment = self._segments[number]
        is_last = number + 1 == len(self._segments)
        following = MAX_LONG if is_last else self._segments[number + 1].base_offset
        entries = index_builder(segment)
        aborted: list[AbortedTransaction] = []
        batches = Batches(segment, verify=True, end_offset=following)
        for piece in batches:
            add_entries(entries, piece)
            self._epochs.add(piece)
            aborted += replay_piece(producers, segment, piece, begin, MAX_LONG, self._now_ms)
            meter.read_up_to(batches.end)
        found = Recovered(segment.size - batches.end, batches.next_offset, batches.is_dense)
        is_torn = found.cut_bytes > 0 and found.next_offset < following
        is_end = is_last or is_torn or gaps.is_loss(found, following)
        if is_end:
            self.end = found.next_offset
            self._check_length(self.end)
        if is_end or found.cut_bytes:
            self._cut(number, batches, is_end=is_end)
        self._rewrite_indexes(segment, entries)
        self._take_aborted(segment, aborted, begin)
        segment.largest = entries.largest

    def _check_length(self, end: int) -> None:
        """Raise LogShorterThanFlushed if flushed records are missing, and nobody accepted it."""
        if end >= self._recovery_point or self._recovery_point <= self._start:
            if end < self._start and (self.was_clean or not self._had_records):
                why = f"the log ends at offset {end}, but it began at {self._start} when it was"
                raise LogMissing(self._folder, f"{why} last open")
            return
        if not is_accepted(self._fs, self._folder, end, self._recovery_point):
            raise LogShorterThanFlushed(self._folder, end, self._recovery_point)
        base_offset = max(s.base_offset for s in self._segments if s.base_offset <= end)
        self._report.mended.append(loss(end, self._recovery_point, base_offset))

    def _cut(self, number: int, batches: Batches, *, is_end: bool) -> None:
        """Take off what lies behind a segment's good batches; with ``is_end`` the log ends there.

        The order lets a crash in between be met again: the copy of the tail first, then the
        segments behind from the last on, then the cut.
        """
        segment = self._segments[number]
        cut_bytes = segment.size - batches.end
        kept_as = ""
        offsets = (-1, -1)
        if cut_bytes and not is_zero(segment.log, batches.end):
            kept_as = set_aside_tail(
                self._fs, self._folder, segment.base_offset, segment.log, batches.end
            )
            aside = look_into(self._fs, self._folder, kept_as)
            if aside.end_offset > batches.next_offset:  # not those of another part of the log
                offsets = (batches.next_offset, aside.end_offset)
        if is_end and number + 1 < len(self._segments):
            why = f"records are missing before it: the log ends at offset {batches.next_offset}"
            self._set_aside(number + 1, why)
        if cut_bytes:
            segment.log.truncate(batches.end)
            segment.log.flush()  # once it is sealed nobody looks for torn bytes in it again
            self._report.add(
                "cut",
                segment_file(segment.base_offset, LOG_SUFFIX),
                "no good batch" if kept_as else "zero bytes",
                size_bytes=cut_bytes,
                offsets=offsets,
                kept_as=kept_as,
            )

    def _set_aside(self, first: int, why: str) -> None:
        """Take the segments from ``first`` on out of the log, the last one first.

        So what is left after a crash has no gap that looks like compaction's.
        """
        end_offset = -1
        while len(self._segments) > first:
            segment = self._segments.pop()
            name = segment_file(segment.base_offset, LOG_SUFFIX)
            if is_zero(segment.log):
                segment.close()
                self._report.remove(name, "a segment without a batch, behind the end of the log")
            else:
                if end_offset < 0:
                    end_offset = _end_of(segment)
                size_bytes = segment.size
                segment.close()
                kept_as = set_aside_segment(self._fs, self._folder, segment.base_offset)
                self._report.add(
                    "set_aside",
                    name,
                    why,
                    size_bytes=size_bytes,
                    offsets=(segment.base_offset, end_offset),
                    kept_as=kept_as,
                )
            end_offset = segment.base_offset
            for index in (segment.offset_index, segment.time_index, segment.txn_index):
                self._report.remove(os.path.basename(index.path), "an index without its log")
            # One that came back would stand in the way of what is written now.
            self._fs.sync_dir(self._folder)

    def _rewrite_indexes(self, segment: Segment, entries: IndexBuilder) -> None:
        """Make both indexes what the batches say.

        The active one's are flushed with it; no other stays in memory.
        """
        for index, content in (
            (segment.offset_index, bytes(entries.offsets)),
            (segment.time_index, entries.times()),
        ):
            try:
                is_right = self._fs.exists(index.path) and self._fs.read_file(index.path) == content
            except StorageError:
                is_right = False
                self._fs.remove(index.path)
            index.rewrite(content)
            if segment is not self._segments[-1] and self._fs.exists(index.path):
                index.flush()
                index.drop()
                index.release()
            if not is_right:
                name = os.path.basename(index.path)
                self._report.add("rebuilt", name, "it did not agree with the batches of the log")

    def _begin_again(self, producers: ProducerStates) -> None:
        """The log begins, empty, at its start offset: all that is left lies before."""
        # Only what was not flushed is lost. A crash in here leaves a gap that recovery meets again.
        fresh = Segment(self._fs, self._folder, self._start, self._config, create=True)
        self._set_aside(0, f"it ends before the log start offset, {self._start}")
        self._segments.append(fresh)
        self._fs.sync_dir(self._folder)
        self.end = self._start
        self._epochs = EpochScan()
        producers.load_newest(self._fs, self._folder, self._start, self._now_ms)

    # -- the rest ----------------------------------------------------------------------------------

    def remove_stray_snapshots(self) -> None:
        """Keep snapshots at segments' bases and at the end; no other can be of use again."""
        useful = {segment.base_offset for segment in self._segments} | {self.end}
        for name in self._fs.list_dir(self._folder):
            if name.endswith(SNAPSHOT_SUFFIX) and offset_of(name) not in useful:
                self._report.remove(name, "a producer snapshot that nothing begins with")

    def restore(self, epochs: LeaderEpochs) -> None:
        """Correct the leader epochs of the file by the batches that were read."""
        epochs.truncate_from_end(self.end)
        changes = self._epochs.changes
        if not changes:
            if last_epoch(self._segments) > epochs.latest:
                changes = epoch_changes(self._segments)
        elif dict(epochs.entries).get(changes[0].epoch, MAX_LONG) > changes[0].base_offset:
            older = [
                segment
                for segment in self._segments
                if segment.base_offset < changes[0].base_offset
            ]
            changes = epoch_changes(older, then=changes)
        if epochs.restore(changes):
            why = "it did not have the leader epochs of the batches"
            self._report.add("rebuilt", LEADER_EPOCHS, why)
        epochs.truncate_from_start(self._start)


def _end_of(segment: Segment) -> int:
    """Where a segment that was not checked ends, -1 if that is not known."""
    with suppress(CorruptIndex, CorruptRecord):
        return read_tail(segment).next_offset
    return -1
