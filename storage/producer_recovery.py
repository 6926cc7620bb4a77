"""Finds where the producers of a log stand, and mends its transaction indexes, at its opening.

A snapshot tells where the producers stood at an offset; the batches behind it tell the rest. The
same batches tell which transactions were aborted: a transaction index that is damaged, or does not
agree with the log, is made again from them.

What one segment tells is ``replay.py``'s. Source: ``UnifiedLog.rebuildProducerState`` of Kafka.
"""

import os
from collections.abc import Sequence

from raylog.storage.errors import CorruptIndex, CorruptRecord, StorageError
from raylog.storage.files import FileSystem
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.limits import MAX_LONG
from raylog.storage.names import LOG_SUFFIX, segment_file
from raylog.storage.recovery import Piece
from raylog.storage.replay import check_aborted, look_back, replay_piece, replay_segment
from raylog.storage.report import Report
from raylog.storage.segment import Segment
from raylog.storage.state.producers import ProducerStates


class ProducerRecovery:
    """The producers of one log, on the way to its end."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        producers: ProducerStates,
        start: int,
        now_ms: int,
        report: Report,
    ) -> None:
        """``start``: the log start offset."""
        self._fs, self._folder, self._now_ms = fs, folder, now_ms
        self._producers, self._start, self._report = producers, start, report
        self._begin = start  # batches from here on tell of producers
        # Of the segments that are not checked: those whose transaction index must be made again.
        self._damaged: list[Segment] = []

    def distrust(self, segment: Segment) -> None:
        """Nothing is known of this segment's transaction index: the batches must tell."""
        self._damaged.append(segment)

    def check_transactions(self, segments: Sequence[Segment]) -> None:
        """Find the segments whose transaction index does not agree with the batches.

        ``segments``: the first ones of the log, none of which is checked.
        """
        ends = dict[int, int]()
        for number, segment in enumerate(segments):
            try:
                segment.txn_index.entries  # noqa: B018  reads the file
            except (CorruptIndex, StorageError):
                self._damaged.append(segment)
                continue
            try:
                check_aborted(segments[: number + 1], ends)
            except CorruptIndex:
                self._damaged.append(segment)

    def load(self, segments: Sequence[Segment], up_to: int, lowest: int) -> None:
        """Take the newest snapshot from ``lowest`` to ``up_to``, from before all that is replayed.

        ``segments``: those before it. ``lowest``: where the log's first segment begins; behind an
        older one batches are missing.
        """
        damaged = [segment.base_offset for segment in self._damaged]
        before = self._fs.list_dir(self._folder)
        newest = min([up_to, *damaged])
        self._producers.load_newest(self._fs, self._folder, newest, self._now_ms, lowest)
        look_back(self._producers, segments, self._now_ms)
        for name in {*before} - {*self._fs.list_dir(self._folder)}:
            self._report.add("removed", name, "a producer snapshot that cannot be read")
        # From a snapshot on nothing is left out, also below the start: the marker of a transaction
        # that the snapshot has open may lie there.
        self._begin = self._producers.end_offset or self._start

    def begin_again(self) -> None:
        """All segments have left the log, which begins again at its start offset."""
        self._damaged.clear()
        self.load((), self._start, self._start)

    def replay(self, segments: Sequence[Segment], count: int) -> None:
        """Take over the batches of the log's first ``count`` segments, which are not checked."""
        ends = [*(segment.base_offset for segment in segments[1:]), MAX_LONG]
        for segment, end in zip(segments[:count], ends, strict=False):
            if end > self._begin:
                self._replay(segment)

    def _replay(self, segment: Segment) -> None:
        try:
            aborted = replay_segment(self._producers, segment, self._begin, MAX_LONG, self._now_ms)
        except CorruptRecord as error:  # readers are told, too, when they come there
            name = segment_file(segment.base_offset, LOG_SUFFIX)
            why = f"{error.problem}; what follows in it tells nothing of producers"
            self._report.add("damaged", name, why, size_bytes=0)
            return
        if segment in self._damaged:
            self.take_aborted(segment, aborted)

    def add(self, segment: Segment, piece: Piece) -> list[AbortedTransaction]:
        """Take over some batches of a segment that is checked; what their markers abort."""
        return replay_piece(self._producers, segment, piece, self._begin, MAX_LONG, self._now_ms)

    def take_aborted(self, segment: Segment, aborted: Sequence[AbortedTransaction]) -> None:
        """Put what the replayed markers of a segment abort into its transaction index."""
        try:
            entries = segment.txn_index.entries
        except (CorruptIndex, StorageError):
            entries = None
        older = [entry for entry in entries or () if entry.last_offset < self._begin]
        wanted = (*older, *aborted)
        if entries != wanted:
            segment.txn_index.replace(wanted)
            name = os.path.basename(segment.txn_index.path)
            self._report.add("rebuilt", name, "it did not agree with the transactions of the log")

    def end_at(self, offset: int) -> None:
        """The log ends there."""
        self._producers.end_offset = offset
