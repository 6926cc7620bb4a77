"""Does all that is in a partition's folder agree? Every byte is read, nothing is written.

==============  ====================================================================================
``.log``        whole batches to the end, each with its CRC; offsets that rise, and stay below the
                next segment's
``.index``      each entry is at the head of a batch, and a batch ends with its offset
``.timeindex``  each entry's batch has its timestamp, and no batch before it a larger one
``.txnindex``   the transactions that the log's markers abort, and no others
``.snapshot``   what the log's batches tell of the producers up to its offset
leader epochs   the epoch that each batch carries; none begins behind the log's end
identity        ``partition.metadata`` can be read, where there is one
==============  ====================================================================================

Transaction indexes and snapshots are compared in full where the log tells everything: from its
first offset on, or from a snapshot at its first segment, with no gap that compaction made.
Elsewhere they may know more than the log, and only what contradicts it is a problem: compaction
keeps each producer's last batch of now, and takes what a snapshot has as the last one of then. A
snapshot that knows of a record in a gap that was accepted (``losses.py``) is right. Behind a batch
that cannot be read they are not looked at. A snapshot below the first segment is only decoded: its
batches are gone.

Of the leader epochs, those below the first entry may be gone: the log began there once. Without an
entry nothing is compared, since the next opening begins a new epoch.

In a log that is being written meanwhile the last batch may look torn. Recovery is ``loader.py``'s
business.
"""

import os
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    CorruptCheckpoint,
    CorruptIndex,
    CorruptRecord,
    InvalidRecord,
)
from raylog.storage.files import FileSystem
from raylog.storage.gaps import Gaps, Recovered
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.limits import MAX_INT
from raylog.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_offsets,
    offset_of,
    segment_file,
)
from raylog.storage.records.batch import BatchHeader
from raylog.storage.records.control import read_marker
from raylog.storage.recovery import check_indexes
from raylog.storage.segment import Segment
from raylog.storage.state.checkpoints import (
    ACCEPTED_LOSSES,
    LEADER_EPOCHS,
    read_epochs,
    read_losses,
)
from raylog.storage.state.producers import ProducerState, ProducerStates, decode_snapshot
from raylog.storage.state.properties import PARTITION_METADATA, read_topic_id
from raylog.storage.tools.dump.logs import file_batches
from raylog.storage.tools.folders import check_has_log


class Problem(NamedTuple):
    """What is wrong with one file."""

    file: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}: {self.why}"


class SegmentReport(NamedTuple):
    """What was found in one segment."""

    base_offset: int
    next_offset: int  # behind its last good batch
    batches: int
    size_bytes: int
    good_bytes: int  # of batches that are whole and right, from the head on
    is_dense: bool  # no offset is missing between its records
    problems: tuple[Problem, ...]

    @property
    def is_torn(self) -> bool:
        """Whether its ``.log`` has bytes that are no good batches."""
        return self.good_bytes < self.size_bytes


def verify_folder(
    fs: FileSystem, folder: str, *, is_compacted: bool = False
) -> list[SegmentReport]:
    """What was found, segment by segment. Raises NotAPartitionFolder where there is none.

    ``is_compacted``: the topic's ``cleanup.policy`` has compact, so a gap may be no loss.
    """
    reports = list(_reports(fs, folder))
    kept = count_recoverable(fs, folder, reports, is_compacted=is_compacted)
    last = reports[kept - 1]
    if kept < len(reports) and not last.is_torn:
        following = reports[kept].base_offset
        why = (
            f"ends at offset {last.next_offset}, but the next segment begins at {following}: "
            "records are missing"
        )
        gap = Problem(segment_file(last.base_offset, LOG_SUFFIX), why)
        reports[kept - 1] = last._replace(problems=(*last.problems, gap))
    return reports


def count_recoverable(
    fs: FileSystem, folder: str, reports: Sequence[SegmentReport], *, is_compacted: bool
) -> int:
    """How many of the segments, from the first on, a recovery after a crash would keep."""
    checked = []
    for report, following in zip_longest(reports, [report.base_offset for report in reports[1:]]):
        checked.append(
            Recovered(report.size_bytes - report.good_bytes, report.next_offset, report.is_dense)
        )
        if report.is_torn and report.next_offset != following:
            break
    gaps = Gaps(fs, folder, is_compacted=is_compacted)
    return gaps.count_kept([report.base_offset for report in reports], checked)


def _reports(fs: FileSystem, folder: str) -> Iterator[SegmentReport]:
    check_has_log(fs, folder)
    bases = base_offsets(fs.list_dir(folder))
    replayed = _Replayed(fs, folder, bases[0])
    for base, following in zip_longest(bases, bases[1:]):
        segment = Segment(fs, folder, base, LogConfig())
        try:
            yield _verify_segment(fs, segment, following, replayed)
        finally:
            segment.close()


def _verify_segment(
    fs: FileSystem, segment: Segment, following: int | None, replayed: "_Replayed"
) -> SegmentReport:
    problems: list[Problem] = []
    aborted: list[AbortedTransaction] = []
    batches = good = 0
    next_offset = segment.base_offset
    is_dense = True
    log_file = segment_file(segment.base_offset, LOG_SUFFIX)
    try:
        for position, header in _good_batches(segment):
            aborted += replayed.take(segment, position, header, problems)
            is_dense = is_dense and _follows(header, next_offset)
            batches += 1
            good = position + header.size_bytes
            next_offset = header.next_offset
    except (CorruptRecord, InvalidRecord) as error:
        why = error.args[1] if isinstance(error, CorruptRecord) else str(error)
        problems.append(Problem(log_file, f"position {good}: {why}"))
    else:
        if good < segment.size:
            problems.append(
                Problem(
                    log_file, f"{segment.size - good} bytes at its end are not a complete batch"
                )
            )
    if good < segment.size:
        replayed.is_lost = True
    else:
        problems += _index_problems(fs, segment)
    if following is not None and next_offset > following:
        problems.append(
            Problem(
                log_file,
                f"reaches offset {next_offset - 1}, but {following} begins the next segment",
            )
        )
    problems += replayed.transaction_problems(segment, aborted)
    if following is None:
        problems += replayed.snapshot_problems(next_offset)
        problems += replayed.snapshots_beyond(next_offset)
        problems += replayed.epoch_problems(next_offset)
        problems += _identity_problems(fs, segment.folder)
    return SegmentReport(
        base_offset=segment.base_offset,
        next_offset=next_offset,
        batches=batches,
        size_bytes=segment.size,
        good_bytes=good,
        is_dense=is_dense,
        problems=tuple(problems),
    )


def _good_batches(segment: Segment) -> Iterator[tuple[int, BatchHeader]]:
    """Every whole batch, with its position.

    Raises CorruptRecord for the first batch whose shape, CRC or offsets are not good. A partial
    batch at the end is left out. What is good here is what recovery keeps, but recovery gives no
    reasons.
    """
    next_offset = segment.base_offset
    for batch in file_batches(segment.log):
        position, header = batch.position, batch.header
        batch.check_crc()
        if header.base_offset < next_offset or header.last_offset - segment.base_offset > MAX_INT:
            raise CorruptRecord(
                f"position {position}",
                f"the offset is {header.base_offset}, but it must be {next_offset} or more",
            )
        next_offset = header.next_offset
        yield position, header


def _follows(header: BatchHeader, next_offset: int) -> bool:
    """Whether a batch begins with this offset, and lacks none itself."""
    return header.base_offset == next_offset and header.last_offset_delta + 1 == header.count


def _index_problems(fs: FileSystem, segment: Segment) -> Iterator[Problem]:
    """What is wrong with the offset and time index over batches that are all good."""
    sound = True
    for suffix, index in (
        (INDEX_SUFFIX, segment.offset_index),
        (TIME_INDEX_SUFFIX, segment.time_index),
    ):
        name = segment_file(segment.base_offset, suffix)
        try:
            if not fs.exists(index.path):
                raise CorruptIndex(segment.base_offset, 0, "the file does not exist")
            index.check()
        except CorruptIndex as error:
            sound = False
            yield Problem(name, _told(error))
    if sound:
        try:
            check_indexes(segment)
        except CorruptIndex as error:
            suffix = TIME_INDEX_SUFFIX if "time index" in error.args[2] else INDEX_SUFFIX
            yield Problem(
                segment_file(segment.base_offset, suffix),
                f"offset {error.args[1]}: {error.args[2]}",
            )


def _identity_problems(fs: FileSystem, folder: str) -> Iterator[Problem]:
    try:
        read_topic_id(fs, folder)
    except CorruptCheckpoint as error:
        yield Problem(PARTITION_METADATA, error.args[1])


def _told(error: CorruptIndex) -> str:
    return f"entry {error.args[1]}: {error.args[2]}"


class _Replayed:
    """The producers as the log's batches tell them, and what is held against that on the way."""

    def __init__(self, fs: FileSystem, folder: str, first_offset: int) -> None:
        self._fs, self._folder = fs, folder
        self._producers = ProducerStates(os.path.basename(folder))
        self._epochs = _Epochs(fs, folder)
        names = [name for name in fs.list_dir(folder) if name.endswith(SNAPSHOT_SUFFIX)]
        self._snapshots = sorted(
            (offset, name) for name in names if (offset := offset_of(name)) is not None
        )
        self._first_offset = self._next_offset = first_offset
        self._accepted = _accepted_losses(fs, folder)
        # What compaction has taken: first offset, and behind the last. A gap at a segment's end may
        # be a loss, unless compaction has been in the segment: see ``gaps.py``.
        self._gaps: list[tuple[int, int]] = []
        self._base_offset = -1  # of the segment of the last batch
        self._is_cleaned = False  # that segment lacks offsets within
        self.is_lost = False
        self._is_full = self._begin(first_offset)

    def _begin(self, first_offset: int) -> bool:
        """Whether all that was before the first segment is known."""
        if first_offset == 0:
            return True
        for offset, name in self._snapshots:
            if offset == first_offset:
                path = os.path.join(self._folder, name)
                try:
                    self._producers.decode(path, self._fs.read_file(path), offset, 0)
                except CorruptCheckpoint:
                    return False
                return True
        return False

    def take(
        self, segment: Segment, position: int, header: BatchHeader, problems: list[Problem]
    ) -> Iterator[AbortedTransaction]:
        """One more batch; yields the transaction that it aborts, if it does."""
        if self.is_lost:
            return
        problems += self.snapshot_problems(header.base_offset)
        problems += self._epochs.take(header)
        self._is_full = self._is_full and _follows(header, self._next_offset)
        self._note_gap(segment.base_offset, header)
        marker = None
        if header.is_control:
            marker = read_marker(segment.log.read(header.size_bytes, position))
            if marker is not None:
                aborted = self._producers.aborted_by(header, marker, header.base_offset)
                if aborted is not None:
                    yield aborted
        self._producers.add(header, header.base_offset, 0, marker)
        self._next_offset = header.next_offset

    def _note_gap(self, base_offset: int, header: BatchHeader) -> None:
        """A batch comes behind the last one, in the segment of this base offset."""
        has_gap = header.base_offset > self._next_offset
        is_within = self._next_offset >= base_offset
        if has_gap and (is_within or self._is_cleaned):
            self._gaps.append((self._next_offset, header.base_offset))
        if base_offset != self._base_offset:
            self._base_offset, self._is_cleaned = base_offset, False
        is_dense = header.last_offset_delta + 1 == header.count
        self._is_cleaned = self._is_cleaned or not is_dense or (has_gap and is_within)

    def transaction_problems(
        self, segment: Segment, aborted: list[AbortedTransaction]
    ) -> Iterator[Problem]:
        """What is wrong with a segment's transaction index."""
        name = segment_file(segment.base_offset, TXN_INDEX_SUFFIX)
        try:
            entries = segment.txn_index.entries
        except CorruptIndex as error:
            yield Problem(name, _told(error))
            return
        if self.is_lost:
            return
        unmatched = {(entry.producer_id, entry.last_offset): entry for entry in entries}
        for wanted in aborted:
            indexed = unmatched.pop((wanted.producer_id, wanted.last_offset), None)
            if indexed is None:
                yield Problem(name, f"lacks {_transaction(wanted)}")
            elif indexed.first_offset > wanted.first_offset or (
                self._is_full and indexed != wanted
            ):
                yield Problem(
                    name, f"has {_transaction(indexed)}, where the log has {_transaction(wanted)}"
                )
        if self._is_full:
            for indexed in unmatched.values():
                yield Problem(name, f"has {_transaction(indexed)}, which no marker aborts")

    def snapshot_problems(self, up_to: int) -> Iterator[Problem]:
        """What is wrong with the snapshots at or before an offset, to which the log is replayed."""
        while self._snapshots and self._snapshots[0][0] <= up_to:
            offset, name = self._snapshots.pop(0)
            path = os.path.join(self._folder, name)
            try:
                snapshot = decode_snapshot(path, self._fs.read_file(path))
            except CorruptCheckpoint as error:
                yield Problem(name, error.args[1])
                continue
            if offset >= self._first_offset and not self.is_lost:
                is_full = self._is_full and offset == self._next_offset
                told = self._contradictions(snapshot, offset, is_full=is_full)
                yield from (Problem(name, why) for why in told)

    def snapshots_beyond(self, end_offset: int) -> Iterator[Problem]:
        """Those that speak of what the log does not have."""
        for offset, name in self._snapshots:
            yield Problem(name, f"is of offset {offset}, but the log ends at {end_offset}")

    def epoch_problems(self, end_offset: int) -> Iterator[Problem]:
        """What is wrong with the leader epochs besides what the batches contradict."""
        yield from self._epochs.unreadable
        if not self.is_lost:
            yield from self._epochs.beyond(end_offset)

    def _is_accepted(self, offset: int) -> bool:
        """Whether somebody accepted that the log lacks this offset."""
        return any(first <= offset < end for first, end in self._accepted)

    def _is_in_gap(self, offset: int) -> bool:
        """Whether compaction took the batch of this offset, up to which the log is replayed."""
        if offset >= self._next_offset:
            return self._is_cleaned
        place = bisect_right(self._gaps, (offset, self._next_offset))
        return place > 0 and offset < self._gaps[place - 1][1]

    def _is_compacted(self, state: ProducerState, replayed: ProducerState, offset: int) -> bool:
        """Whether a snapshot's last batch of a producer was taken since. ``offset``: its own."""
        last_offset = state.batches[-1].last_offset
        is_newer = replayed.batches[-1].last_offset < last_offset < offset
        return is_newer and self._is_in_gap(last_offset)

    def _contradictions(
        self, snapshot: dict[int, ProducerState], offset: int, *, is_full: bool
    ) -> Iterator[str]:
        """``offset``: of the snapshot."""
        for producer_id, state in snapshot.items():
            replayed = self._producers.get(producer_id)
            if replayed is None or replayed.epoch != state.epoch:
                if is_full:
                    yield (
                        f"producer {producer_id} of epoch {state.epoch}, "
                        "which the log does not have"
                    )
                continue
            has_batches = replayed.batches and state.batches
            if has_batches and self._is_accepted(state.batches[-1].last_offset):
                continue
            if has_batches and self._is_compacted(state, replayed, offset):
                continue
            if has_batches and replayed.batches[-1][:3] != state.batches[-1][:3]:
                last = replayed.batches[-1]
                yield (
                    f"producer {producer_id} at sequence {state.batches[-1].last_sequence}, where "
                    "the log has "
                    f"sequence {last.last_sequence} at offset {last.last_offset}"
                )
            elif is_full and replayed.transaction_start != state.transaction_start:
                yield (
                    f"producer {producer_id} with an open transaction from "
                    f"{state.transaction_start}, "
                    f"where the log has {replayed.transaction_start} (-1: none)"
                )
        for producer_id, start in self._producers.open_transactions.items():
            if is_full and producer_id not in snapshot:
                yield f"lacks producer {producer_id}, whose transaction is open from offset {start}"


def _accepted_losses(fs: FileSystem, folder: str) -> Collection[tuple[int, int]]:
    """The losses that somebody accepted; none if the file is damaged."""
    try:
        return read_losses(fs, os.path.join(folder, ACCEPTED_LOSSES))
    except CorruptCheckpoint:
        return ()


class _Epochs:
    """The leader epochs' checkpoint, held against the epochs that the batches carry."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self.unreadable: list[Problem] = []
        self._entries: list[tuple[int, int]] = []
        try:
            self._entries = read_epochs(fs, os.path.join(folder, LEADER_EPOCHS))
        except CorruptCheckpoint as error:
            self.unreadable.append(Problem(LEADER_EPOCHS, error.args[1]))
        self._number = -1  # of the entry that the last batch belongs to; -1: before the first
        self._reported: set[tuple[int, int]] = set()

    def take(self, header: BatchHeader) -> Iterator[Problem]:
        """One more batch; an entry and an epoch that contradict each other are told once."""
        entries, offset, epoch = self._entries, header.base_offset, header.leader_epoch
        if not entries or epoch < 0:
            return
        while self._number + 1 < len(entries) and entries[self._number + 1][1] <= offset:
            self._number += 1
        known = entries[max(self._number, 0)][0]
        is_before = self._number < 0
        agrees = epoch <= known if is_before else epoch == known
        if agrees or (self._number, epoch) in self._reported:
            return
        self._reported.add((self._number, epoch))
        why = f"has epoch {known} at offset {offset}, where the log has epoch {epoch}"
        if is_before:
            why = (
                f"begins with epoch {known}, where the log has epoch {epoch} before, at offset "
                f"{offset}"
            )
        yield Problem(LEADER_EPOCHS, why)

    def beyond(self, end_offset: int) -> Iterator[Problem]:
        """Epochs that begin behind the log's end."""
        for epoch, start in self._entries:
            if start > end_offset:
                yield Problem(
                    LEADER_EPOCHS,
                    f"has epoch {epoch} from offset {start}, but the log ends at {end_offset}",
                )


def _transaction(entry: AbortedTransaction) -> str:
    return (
        f"producer {entry.producer_id}'s aborted offsets {entry.first_offset}-{entry.last_offset} "
        f"(last stable offset {entry.last_stable_offset})"
    )
