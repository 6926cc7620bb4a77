"""Corrects a log's leader epochs by its batches while it is opened.

The file (``leader-epoch-checkpoint``) may be gone or old, or have epochs whose batches a crash took
away. Of the batches that recovery checks every epoch is compared with it. If none is checked, only
the epoch of the last batch is. Source: ``LeaderEpochFileCache`` of Kafka.
"""

from collections.abc import Sequence

import numpy as np

from raylog.storage.errors import CorruptIndex, CorruptRecord
from raylog.storage.limits import MAX_LONG
from raylog.storage.records.scan import BASE_OFFSET, LAST_OFFSET
from raylog.storage.recovery import Batches, Piece, read_tail
from raylog.storage.report import Report
from raylog.storage.segment import Segment
from raylog.storage.state.checkpoints import LEADER_EPOCHS
from raylog.storage.state.epochs import NO_EPOCH, EpochChange, LeaderEpochs

# How much of a segment is read at once for the epoch of its first batch.
LOOKUP_BYTES = 16 << 10


class EpochScan:
    """The leader epochs of batches that are told one after the other: every change counts."""

    def __init__(self) -> None:
        self.changes: list[EpochChange] = []
        self._latest = NO_EPOCH
        self._next_offset = 0

    def add(self, piece: Piece) -> None:
        """The next batches."""
        epochs, rows = piece.epochs(), piece.rows
        before = np.maximum.accumulate(np.append(self._latest, epochs))[:-1]
        for number in np.flatnonzero(epochs > before).tolist():
            floor = int(rows[number - 1, LAST_OFFSET]) + 1 if number else self._next_offset
            self._latest = int(epochs[number])
            self.changes.append(
                EpochChange(
                    epoch=self._latest,
                    base_offset=int(rows[number, BASE_OFFSET]),
                    floor=floor if self.changes else 0,  # it may have begun before the first batch
                )
            )
        self._next_offset = int(rows[-1, LAST_OFFSET]) + 1


def epoch_changes(
    segments: Sequence[Segment], then: Sequence[EpochChange] = ()
) -> list[EpochChange]:
    """The leader epochs of whole segments, and ``then`` of what follows them.

    A segment is not read but for its first batches if the next one begins with the same epoch.
    """
    segments = [segment for segment in segments if segment.size]
    firsts = [next(iter(Batches(segment, piece_bytes=LOOKUP_BYTES)), None) for segment in segments]
    scan = EpochScan()
    for number, (segment, first) in enumerate(zip(segments, firsts, strict=True)):
        if first is None:
            continue
        following = firsts[number + 1] if number + 1 < len(firsts) else None
        if following is not None and following.epochs()[0] == first.epochs()[0]:
            scan.add(first)
            continue
        for piece in Batches(segment):
            scan.add(piece)
    known = scan.changes[-1].epoch if scan.changes else NO_EPOCH
    return [*scan.changes, *(change for change in then if change.epoch > known)]


def last_epoch(segments: Sequence[Segment]) -> int:
    """The leader epoch of the log's last batch, -1 if there is none."""
    last = next((segment for segment in reversed(segments) if segment.size), None)
    if last is None:
        return NO_EPOCH
    try:
        return read_tail(last).epoch
    except (CorruptIndex, CorruptRecord):
        epochs = [int(piece.epochs()[-1]) for piece in Batches(last)]
        return epochs[-1] if epochs else NO_EPOCH


def restore_epochs(
    epochs: LeaderEpochs,
    changes: Sequence[EpochChange],
    segments: Sequence[Segment],
    end: int,
    report: Report,
) -> None:
    """Correct the leader epochs of the file by the batches.

    ``changes``: of the batches that were checked, which are the log's last ones. ``end``: of the
    log.
    """
    epochs.end_at(end)
    if not changes:
        if last_epoch(segments) > epochs.latest:
            changes = epoch_changes(segments)
    elif dict(epochs.entries).get(changes[0].epoch, MAX_LONG) > changes[0].base_offset:
        first = changes[0].base_offset
        older = [segment for segment in segments if segment.base_offset < first]
        changes = epoch_changes(older, then=changes)
    if epochs.restore(changes):
        why = "it did not have the leader epochs of the batches"
        report.add("rebuilt", LEADER_EPOCHS, why)
