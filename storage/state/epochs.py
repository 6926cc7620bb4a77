"""Which leader epoch began at which offset: ``leader-epoch-checkpoint`` of a partition.

Each opening of a log for writing begins an epoch, and every batch written carries it, so that it
can be told which writer made it. Source: ``LeaderEpochFileCache`` of Kafka; KIP-101, KIP-279.

**A full disk, or no descriptor left.** What keeps two writers apart is the lock on the folder; what
the epoch adds is that no two of them ever write batches under one number. For that it must be in
the file before the first batch that carries it, and no earlier: a number that no batch carries may
be taken again. (From then on it stays taken, also when retention or a loss of power has taken every
batch that carries it.) So a change that could not be written counts in memory, the file is *stale*,
and ``Log`` saves it before it writes the next batch, or does not write that batch. Until then the
file has more than is true (epochs that were cut off) or less (the one that has just begun), and an
opening mends both. Or it has the change, but a loss of power may take it back.
"""

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from raylog.storage.errors import CorruptCheckpoint, DiskFull, OutOfResources
from raylog.storage.files import FileSystem
from raylog.storage.limits import MAX_INT
from raylog.storage.state.checkpoints import LEADER_EPOCHS, read_epochs, write_epochs

NO_EPOCH = -1
NO_OFFSET = -1
MAX_EPOCH = MAX_INT


class EpochEnd(NamedTuple):
    """Up to which offset a log holds an epoch, and those before it."""

    epoch: int
    offset: int


class EpochChange(NamedTuple):
    """The first batch of an epoch, as the log tells it."""

    epoch: int
    base_offset: int
    floor: int  # behind the batch before: compaction may have removed what was between


class LeaderEpochs:
    """Epochs with their start offsets, rising in both; kept in the file and in memory.

    ``entries``: (epoch, start offset), oldest first. ``latest``: the newest epoch, -1 if there is
    none. ``is_stale``: whether the file is behind, since it could not be written.
    """

    def __init__(self, fs: FileSystem, folder: str) -> None:
        # A lock, where there is more than one thread: the log's end and its old segments have
        # owners of their own.
        self.lock: AbstractContextManager[Any] = nullcontext()
        self.is_stale = False
        self._fs, self._path = fs, os.path.join(folder, LEADER_EPOCHS)
        self._take(tuple(read_epochs(fs, self._path)))

    def _take(self, entries: tuple[tuple[int, int], ...]) -> None:
        self.entries = entries
        self.latest = entries[-1][0] if entries else NO_EPOCH

    @property
    def next(self) -> int:
        """The epoch that a new writer takes.

        Raises CorruptCheckpoint after the last epoch, which nobody reaches.
        """
        if self.latest == MAX_EPOCH:
            raise CorruptCheckpoint(
                self._path, f"leader epoch {self.latest} is the highest possible"
            )
        return self.latest + 1

    def assign(self, epoch: int, start_offset: int) -> None:
        """An epoch begins; entries that contradict it are dropped.

        It is on the disk when this returns, unless the file is stale.
        """
        assert epoch >= 0
        assert start_offset >= 0
        with self.lock:
            if (
                self.entries
                and self.entries[-1][0] == epoch
                and start_offset >= self.entries[-1][1]
            ):
                return
            kept = [entry for entry in self.entries if entry[0] < epoch and entry[1] < start_offset]
            self._change((*kept, (epoch, start_offset)))

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop epochs that begin at ``end_offset`` or later: their records are gone."""
        with self.lock:
            self._change(tuple(entry for entry in self.entries if entry[1] < end_offset))

    def end_at(self, end_offset: int) -> None:
        """The log was opened, and ends there: epochs that begin behind begin there.

        The newest stays, though none of its batches may be left: a number that was given out must
        not be given out again.
        """
        with self.lock:
            kept = tuple(entry for entry in self.entries if entry[1] < end_offset)
            if kept != self.entries:
                self._change((*kept, (self.latest, end_offset)))

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that ended before ``start_offset``.

        The epoch that holds ``start_offset`` now begins there.
        """
        with self.lock:
            older = [entry for entry in self.entries if entry[1] <= start_offset]
            newer = [entry for entry in self.entries if entry[1] > start_offset]
            self._change(((older[-1][0], start_offset), *newer) if older else tuple(newer))

    def epoch_at(self, offset: int) -> int:
        """The epoch in which ``offset`` was written, -1 if it is older than all."""
        return max((epoch for epoch, start in self.entries if start <= offset), default=NO_EPOCH)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The epoch and offset up to which a log that ends in ``epoch`` may agree with this one.

        It parts from this one there at the latest: KIP-101.

        The epoch is the newest of this log that is not above ``epoch``, and the offset its end:
        where the next one began, or the log's end. Below the first epoch it is ``epoch`` itself
        with the first one's start. (-1, -1) for an epoch above all, and for -1.
        """
        if epoch != NO_EPOCH and epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        above = [entry for entry in self.entries if entry[0] > epoch]
        if epoch == NO_EPOCH or not above:
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        floor = max((each for each, _ in self.entries if each <= epoch), default=epoch)
        return EpochEnd(floor, above[0][1])

    def restore(self, changes: Iterable[EpochChange]) -> bool:
        """Take over what the log's batches tell; returns whether the entries were wrong.

        An entry may begin before its first batch, which compaction can remove. No epoch is dropped
        for a lower one: a number that was given out must not be given out again.
        """
        with self.lock:
            entries = with_changes(self.entries, changes)
            is_wrong = entries != self.entries
            self._change(entries)
            return is_wrong

    def _change(self, entries: tuple[tuple[int, int], ...]) -> None:
        if entries == self.entries:
            return
        try:
            write_epochs(self._fs, self._path, entries)
            self.is_stale = False
        except (DiskFull, OutOfResources):
            self.is_stale = True
        self._take(entries)

    def save(self) -> None:
        """Bring a stale file up to date. Raises DiskFull or OutOfResources; it is stale then."""
        with self.lock:
            write_epochs(self._fs, self._path, self.entries)
            self.is_stale = False


def with_changes(
    entries: Iterable[tuple[int, int]], changes: Iterable[EpochChange]
) -> tuple[tuple[int, int], ...]:
    """The entries, corrected by what the batches of a part of the log tell."""
    starts = dict(entries)
    for change in changes:
        start = starts.get(change.epoch, NO_OFFSET)
        if not change.floor <= start <= change.base_offset:
            starts[change.epoch] = change.base_offset
    kept: list[tuple[int, int]] = []
    for epoch in sorted(starts, reverse=True):
        if not kept or starts[epoch] < kept[-1][1]:
            kept.append((epoch, starts[epoch]))
    return tuple(reversed(kept))
