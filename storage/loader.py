"""Opens a partition's folder: after an orderly stop as it is, after a crash with its tail checked.

What may lie there after a crash: a torn batch at the end of the last segment, indexes that lag
behind or were torn, segments that retention had renamed, a compaction's segment on its way in, a
checkpoint older than the data. What the loader promises: the log is a prefix of what was appended
(less what compaction had dropped) that holds everything that was flushed, or acknowledged and not
lost with the page cache; indexes, producer state and leader epochs agree with it. Everything before
the recovery point was flushed and is not read again.

A folder without its data is an error, never an empty log. Source: ``LogLoader`` of Kafka.
"""

import os
from collections.abc import Collection, Container, Sequence

from raylog.storage.cleaner.recovery import finish_swaps
from raylog.storage.clock import Clock
from raylog.storage.config import LogConfig
from raylog.storage.errors import CorruptCheckpoint, CorruptIndex, CorruptRecord, LogMissing
from raylog.storage.files import FileSystem
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.limits import MAX_LONG
from raylog.storage.log import Log
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
    parse_folder,
    segment_file,
)
from raylog.storage.records.batch import check_crc
from raylog.storage.records.scan import Scan
from raylog.storage.replay import replay
from raylog.storage.segment import Recovered, Segment
from raylog.storage.state.checkpoints import CLEANER_OFFSETS, CORRUPT_SUFFIX, read_offsets
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
) -> Log:
    """Open the log in ``folder``.

    ``topic_id``: the id that ``partition.metadata`` must have, None takes any. ``is_clean``: the
    broker before stopped in order. ``recovery_point``, ``log_start_offset``: of the log dir's
    checkpoints. Raises LogMissing.
    """
    _check_identity(fs, folder, topic_id)
    deleted = _remove_leftovers(fs, folder)
    log_bases = [offset_of(name) for name in fs.list_dir(folder) if name.endswith(LOG_SUFFIX)]
    bases = [base for base in log_bases if base is not None]
    if not bases:
        raise LogMissing(folder, "the partition's folder has no .log file")
    now_ms = clock.now_ms()
    segments = [Segment(fs, folder, base, config) for base in bases]
    is_clean = is_clean and segments[-1].is_whole()
    had_records = any(segment.size for segment in segments)
    checked = {} if is_clean else _recover(fs, folder, segments, recovery_point, deleted)
    mend = [*checked, *_mend_indexes(fs, segments, is_clean, checked)]
    start = max(log_start_offset, segments[0].base_offset)
    last = next(filter(None, (segment.last_batch() for segment in reversed(segments))), None)
    end = max(last.next_offset if last else 0, segments[-1].base_offset)
    if end < start:
        if is_clean or not had_records or recovery_point > start:
            raise LogMissing(
                folder,
                f"the log ends at offset {end}, but it began at {start} when it was last open",
            )
        # Only what was not flushed is lost. A crash in here leaves a gap that recovery meets again.
        fresh = Segment(fs, folder, start, config, create=True)
        for segment in segments:
            segment.delete()
        fs.sync_dir(folder)
        segments = [fresh]
        checked = {}
        mend = []
        last = None
        end = start
    producers = ProducerStates(str(partition))
    producers.load_newest(
        fs, folder, min([end, *(segment.base_offset for segment in mend)]), now_ms
    )
    replay(producers, segments, start, end, now_ms, mend, checked)
    _remove_stray_snapshots(fs, folder, segments, end)
    epochs = LeaderEpochs(fs, folder)
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(start)
    if last and last.leader_epoch > epochs.latest:
        epochs.assign(last.leader_epoch, max(last.base_offset, start))
    flushed = end if is_clean else min(recovery_point, end)
    log = Log(fs, clock, folder, partition, config, segments, producers, epochs, start, flushed)
    if end - log.recovery_point >= config.flush_messages:
        log.flush()  # before any reader sees what is not fsynced
    return log


def _check_identity(fs: FileSystem, folder: str, topic_id: str | None) -> None:
    if not fs.is_dir(folder):
        raise LogMissing(folder, "the partition's folder does not exist")
    own_topic_id = read_topic_id(fs, folder)
    if topic_id is not None and own_topic_id != topic_id:
        raise LogMissing(folder, f"the folder belongs to topic id {own_topic_id}, not {topic_id}")


def _remove_leftovers(fs: FileSystem, folder: str) -> set[int | None]:
    """Drop what retention left, finish or drop a compaction, drop indexes whose log is gone.

    Returns the base offsets of the segments that retention had renamed.
    """
    doomed = finish_swaps(fs, folder)
    names = fs.list_dir(folder)
    for name in names:
        stem, suffix = os.path.splitext(name)
        orphan = (
            suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
            and stem + LOG_SUFFIX not in names
        )
        if orphan or suffix in (DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp"):
            fs.remove(os.path.join(folder, name))
    return {offset_of(name) for name in doomed if name.endswith(LOG_SUFFIX + DELETED_SUFFIX)}


def _recover(
    fs: FileSystem,
    folder: str,
    segments: list[Segment],
    recovery_point: int,
    deleted: set[int | None],
) -> dict[Segment, Scan]:
    """Check the segments from the one with the recovery point on; the first loss ends the log.

    Returns those that were checked and are left: their transaction indexes are to be made again.
    """
    first = max(
        (n for n, segment in enumerate(segments) if segment.base_offset <= recovery_point),
        default=0,
    )
    checked: list[Recovered] = []
    scans: list[Scan] = []
    ends = [*(segment.base_offset for segment in segments[first + 1 :]), MAX_LONG]
    for segment, end_offset in zip(segments[first:], ends, strict=True):
        result, batches = segment.recover(end_offset)
        checked.append(result)
        scans.append(batches)
        if result.cut_bytes:
            break
    bases = [segment.base_offset for segment in segments[first:]]
    lost = segments[first + count_kept(fs, folder, bases, checked, deleted) :]
    for segment in lost:
        segment.delete()
        segments.remove(segment)
    if lost:
        fs.sync_dir(folder)  # one that came back would stand in the way of what is written now
    return dict(zip(segments[first:], scans, strict=False))


def count_kept(
    fs: FileSystem,
    folder: str,
    base_offsets: Sequence[int],
    checked: Sequence[Recovered],
    deleted: Container[int | None],
) -> int:
    """How many of the checked segments follow each other without a loss.

    The segments are the first of those that begin at ``base_offsets``. ``deleted``: where segments
    began that retention has renamed.

    A segment that lost its tail with the page cache may end with a whole batch; then only the gap
    to the next one tells. Compaction may leave such a gap, too (ours does not), but only up to
    where it has come. Nor is a gap a loss behind a segment with gaps within, or where retention has
    renamed a segment, and the new name of its neighbour was lost.
    """
    for number, following in enumerate(base_offsets[1 : len(checked)]):
        _, end, is_dense = checked[number]
        is_gap = is_dense and end < following and end not in deleted
        if is_gap and end >= _compacted_to(fs, folder):
            return number + 1
    return len(checked)


def _compacted_to(fs: FileSystem, folder: str) -> int:
    """How far compaction has come, by the log dir's checkpoint.

    If the checkpoint cannot be read, or could not be read once, compaction may have been anywhere.
    """
    log_dir, name = os.path.split(folder)
    partition = parse_folder(name)
    path = os.path.join(log_dir, CLEANER_OFFSETS)
    try:
        offsets = read_offsets(fs, path)
    except CorruptCheckpoint:
        return MAX_LONG
    if partition in offsets:
        return offsets[partition]
    return MAX_LONG if fs.exists(path + CORRUPT_SUFFIX) else 0


def _mend_indexes(
    fs: FileSystem, segments: list[Segment], is_clean: bool, checked: Collection[Segment]
) -> list[Segment]:
    """Rebuild missing indexes, and those of the active segment that disagree with it.

    After an orderly stop those of sealed segments are looked at when they are first used, and
    rebuilt then: opening a log of a thousand segments reads none of them. Returns the segments
    whose transaction index is damaged.
    """
    for segment in segments:
        if segment in checked:
            continue  # recovery has just made its indexes
        try:
            _mend_index(fs, segment, is_clean, is_active=segment is segments[-1])
        except CorruptRecord:
            pass  # a sealed log that is damaged itself: who reads it is told, when he comes there
    damaged, ends = list[Segment](), dict[int, int]()
    for number, segment in enumerate(segments):
        if segment in checked:
            continue  # its transaction index will be made again
        try:
            _check_aborted(segments[: number + 1], ends)
        except CorruptIndex:
            damaged.append(segment)
    return damaged


def _mend_index(fs: FileSystem, segment: Segment, is_clean: bool, is_active: bool) -> None:
    stem = segment.path.removesuffix(LOG_SUFFIX)
    try:
        if not fs.exists(stem + INDEX_SUFFIX) or not fs.exists(stem + TIME_INDEX_SUFFIX):
            raise CorruptIndex(segment.base_offset, 0, "an index file is missing")
        if is_active:
            segment.check_indexes()
        elif not is_clean:
            segment.offset_index.check()
            segment.max_timestamp  # noqa: B018  reads and checks the time index
    except CorruptIndex:
        segment.rebuild_indexes()


def _check_aborted(segments: Sequence[Segment], ends: dict[int, int]) -> None:
    """Compare every entry of the last segment's transaction index with the batches.

    Raises CorruptIndex if an entry is wrong.

    ``ends``: by producer id, where its aborted transactions have ended so far, which is brought up
    to date.

    No checksum covers it, and it decides what readers of committed records see. Where the batches
    themselves are damaged nothing is held against the index: readers are told when they come there.
    """
    index = segments[-1].txn_index
    for number, entry in enumerate(index.entries):
        if entry.first_offset <= ends.get(entry.producer_id, -1):
            raise CorruptIndex(
                index.base_offset,
                number,
                "it begins before the producer's previous transaction ended",
            )
        ends[entry.producer_id] = entry.last_offset
        for offset in (entry.last_offset, entry.first_offset, entry.last_stable_offset):
            try:
                agrees = _agrees(segments, entry, offset)
            except CorruptRecord:
                return
            if not agrees:
                raise CorruptIndex(
                    index.base_offset,
                    number,
                    f"it does not agree with the batch at offset {offset}",
                )


def _agrees(segments: Sequence[Segment], entry: AbortedTransaction, offset: int) -> bool:
    """Whether a batch of the right kind begins at one of an entry's three offsets.

    Compaction may have removed the batches of an aborted transaction, but never its marker before
    them.
    """
    is_marker = offset == entry.last_offset
    segment = next(
        (segment for segment in reversed(segments) if segment.base_offset <= offset), None
    )
    batch = segment and segment.find_batch_anyway(offset)
    if segment is None or not batch or batch[1].base_offset > offset or offset > entry.last_offset:
        return not is_marker
    position, header = batch
    is_own = header.producer_id == entry.producer_id
    kind = header.is_transactional and (is_own or offset == entry.last_stable_offset)
    if header.base_offset == offset and kind and header.is_control == is_marker:
        return True
    check_crc(segment.log.view(), position, header)
    return False


def _remove_stray_snapshots(fs: FileSystem, folder: str, segments: list[Segment], end: int) -> None:
    """Keep snapshots at segments' bases and at the end; no other can be of use again."""
    useful = {segment.base_offset for segment in segments} | {end}
    for name in fs.list_dir(folder):
        if name.endswith(SNAPSHOT_SUFFIX) and offset_of(name) not in useful:
            fs.remove(os.path.join(folder, name))
