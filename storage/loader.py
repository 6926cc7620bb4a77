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

This module decides which segments are checked, and where the log ends. Its parts: ``cutting.py``
(what leaves the log), ``on_disk.py`` (that the disk is read), ``index_recovery.py``,
``producer_recovery.py``, ``epoch_recovery.py``.

Source: ``LogLoader`` of Kafka.
"""

import os
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise

from raylog.storage.cleaner.recovery import finish_swaps
from raylog.storage.clock import Clock
from raylog.storage.config import LogConfig
from raylog.storage.cutting import Cutter
from raylog.storage.epoch_recovery import EpochScan, restore_epochs
from raylog.storage.errors import (
    CorruptCheckpoint,
    CorruptIndex,
    CorruptRecord,
    DiskFull,
    FlushedRecordsMissing,
    LogMissing,
    LogShorterThanFlushed,
    RaylogError,
    TopicIdUnreadable,
)
from raylog.storage.files import FileSystem
from raylog.storage.gaps import Gaps, Missing, Recovered
from raylog.storage.index_recovery import (
    has_indexes,
    mend_cut_segment,
    mend_indexes,
    rebuild_and_tell,
    rewrite_indexes,
)
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
    base_offsets,
    offset_of,
    segment_file,
)
from raylog.storage.on_disk import read_from_disk
from raylog.storage.producer_recovery import ProducerRecovery
from raylog.storage.recovery import (
    Batches,
    Tail,
    add_entries,
    index_builder,
    index_fault,
    last_batches,
    read_tail,
)
from raylog.storage.report import Meter, OnProgress, Report
from raylog.storage.segment import Segment
from raylog.storage.state.checkpoints import LOG_START_OFFSETS
from raylog.storage.state.epochs import EpochChange, LeaderEpochs
from raylog.storage.state.producers import ProducerStates
from raylog.storage.state.properties import read_topic_id, write_topic_id


def create_log(fs: FileSystem, folder: str, topic_id: str, base_offset: int = 0) -> None:
    """Make the folder of a new, empty partition, all on disk when this returns.

    ``base_offset``: of its first record.
    """
    fs.make_dir(folder)
    write_topic_id(fs, folder, topic_id)
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        fs.write_file(os.path.join(folder, segment_file(base_offset, suffix)), b"")
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
    bases = base_offsets(fs.list_dir(folder))
    if not bases:
        raise LogMissing(folder, "the partition's folder has no .log file")
    segments = [Segment(fs, folder, base, config) for base in bases]
    for segment in segments[:-1]:
        segment.log.seal()
    start = max(log_start_offset, bases[0])
    producers = ProducerStates(str(partition))
    opening = _Opening(
        fs=fs,
        folder=folder,
        config=config,
        segments=segments,
        start=start,
        checkpointed_start=log_start_offset,
        recovery_point=recovery_point,
        producers=ProducerRecovery(fs, folder, producers, start, clock.now_ms(), report),
        report=report,
        progress=progress or (lambda _: None),
        is_clean=is_clean,
    )
    try:
        opening.run()
    except RaylogError:
        for segment in segments:
            segment.log.close()
        raise
    opening.remove_stray_snapshots()
    end = opening.end
    restore_epochs(epochs, opening.epoch_changes, segments, end, report)
    epochs.truncate_from_start(start)
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
        if name in kept:
            continue
        stem, suffix = os.path.splitext(name)
        is_index = suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
        if is_index and stem + LOG_SUFFIX not in names:
            report.remove(name, "an index without its log")
        elif suffix == DELETED_SUFFIX:
            report.remove(name, "deleted by retention or compaction")
        elif suffix in (CLEANED_SUFFIX, ".tmp"):
            report.remove(name, "left by a write that a stop interrupted")


class _Opening:
    """The segments of one log, on the way from what is on the disk to a log that serves.

    ``end``, ``was_clean``, ``epoch_changes`` (of the batches that were checked): known after
    :meth:`run`.
    """

    def __init__(
        self,
        *,
        fs: FileSystem,
        folder: str,
        config: LogConfig,
        segments: list[Segment],
        start: int,
        checkpointed_start: int,
        recovery_point: int,
        producers: ProducerRecovery,
        report: Report,
        progress: OnProgress,
        is_clean: bool,
    ) -> None:
        self.end = 0
        self.was_clean = False
        self._fs, self._folder, self._config = fs, folder, config
        self._segments = segments
        self._start = start
        self._checkpointed_start = checkpointed_start
        self._recovery_point = recovery_point
        self._producers = producers
        self._report = report
        self._progress = progress
        self._cutter = Cutter(fs, folder, segments, report)
        self._is_clean = is_clean
        self._gaps = Gaps(fs, folder, is_compacted=config.is_compacted, was_clean=is_clean)
        self._kept: set[str] = set()  # names of leftovers that are still needed
        self._had_records = any(segment.size for segment in segments)
        self._epochs = EpochScan()

    @property
    def epoch_changes(self) -> Sequence[EpochChange]:
        return self._epochs.changes

    def run(self) -> None:
        """Check what must be checked; bring the producers to the log's end."""
        sealed = range(len(self._segments) - 1)
        missing = self._missing_behind(sealed if self._is_clean else self._renamed())
        before = self._gaps.missing_before(self._segments[0].base_offset, self._checkpointed_start)
        tail = self._clean_tail() if self._is_clean else None
        self.was_clean = tail is not None
        if tail is not None:
            self.end = tail.next_offset
            self._check_length(self.end)
            first = len(self._segments)
        else:
            read_from_disk(self._fs, self._folder, self._segments, self._recovery_point)
            first = self._first_to_check()
            missing = self._missing_behind(range(first))
        self._refuse([before, *missing] if before else missing)
        _remove_leftovers(self._fs, self._folder, self._report, self._kept)
        self._mend_before(missing)
        self._take_unchecked(first)
        if tail is None:
            self._check_all(first)
        if self.end < self._start:
            self._begin_again()
        self._producers.end_at(self.end)

    def _take_unchecked(self, count: int) -> None:
        """Take the first segments as they are, but for their indexes."""
        segments = self._segments[:count]
        mend_indexes(self._fs, segments, self._report, was_clean=self.was_clean)
        self._producers.check_transactions(segments)
        up_to = self.end if self.was_clean else self._segments[count].base_offset
        self._producers.load(segments, up_to, self._segments[0].base_offset)
        self._producers.replay(self._segments, count)

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

    def _renamed(self) -> list[int]:
        """The numbers of the segments behind which another one was renamed."""
        return [
            number
            for number, (segment, following) in enumerate(pairwise(self._segments))
            if self._gaps.renamed(segment.base_offset, following.base_offset)
        ]

    def _missing_behind(self, numbers: Iterable[int]) -> list[Missing]:
        """What is missing behind these segments, but for what retention has taken."""
        found = []
        for number in numbers:
            following = self._segments[number + 1].base_offset
            if following <= self._start:
                continue
            missing = self._gaps.missing_behind(self._segments[number], following)
            if missing is None:
                self._keep_half_renamed(self._segments[number], following)
                continue
            is_retention = self._gaps.is_retention(missing)
            renamed = self._gaps.renamed(*missing)
            if is_retention and not renamed <= self._kept:
                # Somebody else may have done it.
                name = segment_file(missing.first_offset, LOG_SUFFIX + DELETED_SUFFIX)
                why = "it was renamed, and segments before it were not"
                self._report.add("gap", name, why, offsets=missing)
            # They may hold the records. As long as they are there, their names explain the gap.
            self._kept |= renamed
            if not is_retention:
                found.append(missing)
        return found

    def _keep_half_renamed(self, segment: Segment, following: int) -> None:
        """Keep and tell what somebody renamed where compaction may have been."""
        missing = self._gaps.half_renamed(segment, following)
        if missing is None:
            return
        names = self._gaps.names_from(missing)
        if not names <= self._kept:
            name = segment_file(missing.first_offset, LOG_SUFFIX + DELETED_SUFFIX)
            why = "it was renamed, and other files of its segment were not"
            self._report.add("gap", name, why, offsets=missing)
        self._kept |= names

    def _refuse(self, missing: Sequence[Missing]) -> None:
        """Raise FlushedRecordsMissing for a gap that nobody accepted; tell the others."""
        for gap in missing:
            if not self._gaps.is_accepted(gap):
                raise FlushedRecordsMissing(self._folder, *gap)
            self._report.mended.append(gap_loss(gap))

    def _mend_before(self, accepted: Sequence[Missing]) -> None:
        """Mend the indexes of the segments that lost their end."""
        for gap in accepted:
            before = [s for s in self._segments if s.base_offset < gap.end_offset]
            mend_cut_segment(self._fs, before[-1], self._report)

    # -- after an orderly stop ---------------------------------------------------------------------

    def _clean_tail(self) -> Tail | None:
        """The end of the active segment; None if it is not what an orderly stop leaves."""
        active = self._segments[-1]
        try:
            if not has_indexes(self._fs, active):
                self._producers.distrust(active)  # restored from an aside: no index is known
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
        self._tell_gap(active, batches)
        try:
            rebuild_and_tell(active, why, self._report)
            return read_tail(active)
        except (CorruptIndex, CorruptRecord):
            return None

    # -- after a crash -----------------------------------------------------------------------------

    def _check_all(self, first: int) -> None:
        """Check the segments one by one; the first loss ends the log."""
        meter = Meter([segment.size for segment in self._segments[first:]], self._progress)
        number = first
        while number < len(self._segments):
            self._check(number, meter)
            meter.segment_done()
            number += 1

    def _check(self, number: int, meter: Meter) -> None:
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
            aborted += self._producers.add(segment, piece)
            meter.read_up_to(batches.end)
        self._tell_gap(segment, batches)
        found = Recovered(segment.size - batches.end, batches.next_offset, batches.is_dense)
        is_torn = found.cut_bytes > 0 and found.next_offset < following
        is_end = is_last or is_torn or self._gaps.is_loss(found, following)
        if is_end:
            self.end = found.next_offset
            self._check_length(self.end)
        self._cutter.cut(number, batches, is_end=is_end)
        is_active = segment is self._segments[-1]
        is_flushed = not is_active or self.end <= self._recovery_point
        rewrite_indexes(
            self._fs, segment, entries, self._report, is_active=is_active, is_flushed=is_flushed
        )
        self._producers.take_aborted(segment, aborted)
        segment.largest = entries.largest

    def _tell_gap(self, segment: Segment, batches: Batches) -> None:
        """Tell of offsets that are missing within a segment, and that nothing explains."""
        missing = self._gaps.within(batches, self._start)
        if missing is not None:
            why = "a batch was taken out of the file, or the base offset behind them is damaged"
            name = segment_file(segment.base_offset, LOG_SUFFIX)
            self._report.add("gap", name, why, size_bytes=0, offsets=missing)

    def _check_length(self, end: int) -> None:
        """Raise LogShorterThanFlushed if flushed records are missing, and nobody accepted it."""
        if end >= self._recovery_point or self._recovery_point <= self._start:
            if end < self._start and (self.was_clean or not self._had_records):
                checkpoint = os.path.join(os.path.dirname(self._folder), LOG_START_OFFSETS)
                raise LogMissing(
                    self._folder,
                    f"the log ends at offset {end}, but it began at {self._start} when it was last "
                    f"open, says {checkpoint} (if that file is wrong: docs/OPERATIONS.md, "
                    "A log start offset behind the end)",
                )
            return
        if not is_accepted(self._fs, self._folder, end, self._recovery_point):
            raise LogShorterThanFlushed(self._folder, end, self._recovery_point)
        base_offset = max(s.base_offset for s in self._segments if s.base_offset <= end)
        self._report.mended.append(loss(end, self._recovery_point, base_offset))

    def _begin_again(self) -> None:
        """The log begins, empty, at its start offset: all that is left lies before."""
        # Only what was not flushed is lost. A crash in here leaves a gap that recovery meets again.
        fresh = Segment(self._fs, self._folder, self._start, self._config, create=True)
        self._cutter.set_aside(0, f"it ends before the log start offset, {self._start}")
        self._segments.append(fresh)
        self._fs.sync_dir(self._folder)
        self.end = self._start
        self._epochs = EpochScan()
        self._producers.begin_again()

    # -- the rest ----------------------------------------------------------------------------------

    def remove_stray_snapshots(self) -> None:
        """Keep snapshots at segments' bases and at the end; no other can be of use again."""
        useful = {segment.base_offset for segment in self._segments} | {self.end}
        for name in self._fs.list_dir(self._folder):
            if not name.endswith(SNAPSHOT_SUFFIX) or (offset := offset_of(name)) in useful:
                continue
            if self.was_clean and offset is not None and offset < self.end:
                # The stop before the last one left it: that is no finding.
                self._fs.remove(os.path.join(self._folder, name))
            else:
                self._report.remove(name, "a producer snapshot that nothing begins with")
