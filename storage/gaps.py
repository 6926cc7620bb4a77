"""Whether offsets that are missing between two segments are a loss.

A segment that lost its tail with the page cache may end with a whole batch; then only the gap to
the next one tells. Compaction may leave such a gap, too (ours does not, Kafka's may even empty a
segment), but only up to where it has come::

    cleaner-offset-checkpoint         a gap may be compaction's
    lists the partition               below its offset
    does not list it                  anywhere if the topic is compacted, else nowhere
    cannot be read, or could not once anywhere

(A partition that raylog creates is listed with 0.) Nor is a gap a loss behind a segment with gaps
within, or where retention has renamed a segment, and the new name of its neighbour was lost.
"""

import os
from collections.abc import Container, Sequence
from typing import NamedTuple

from raylog.storage.errors import CorruptCheckpoint
from raylog.storage.files import FileSystem
from raylog.storage.limits import MAX_LONG
from raylog.storage.names import parse_folder
from raylog.storage.state.checkpoints import CLEANER_OFFSETS, CORRUPT_SUFFIX, read_offsets


class Recovered(NamedTuple):
    """What a look at every batch of a segment found."""

    cut_bytes: int  # behind the last good batch
    next_offset: int
    is_dense: bool  # no offset is missing between its records: no compaction has been here


class Gaps:
    """The gaps of one log."""

    def __init__(
        self, fs: FileSystem, folder: str, deleted: Container[int | None], *, is_compacted: bool
    ) -> None:
        """``deleted``: where segments began that retention has renamed."""
        self._fs, self._folder = fs, folder
        self._deleted, self._is_compacted = deleted, is_compacted

    def is_loss(self, segment: Recovered, following: int) -> bool:
        """Whether records are missing between a segment and the next, which begins there."""
        end = segment.next_offset
        if end >= following or not segment.is_dense or end in self._deleted:
            return False
        return end >= self._compacted_to()

    def count_kept(self, base_offsets: Sequence[int], checked: Sequence[Recovered]) -> int:
        """How many of the checked segments follow each other without a loss.

        They are the first of those that begin at ``base_offsets``.
        """
        for number, following in enumerate(base_offsets[1 : len(checked)]):
            if self.is_loss(checked[number], following):
                return number + 1
        return len(checked)

    def _compacted_to(self) -> int:
        """How far compaction may have come."""
        log_dir, name = os.path.split(self._folder)
        partition = parse_folder(name)
        path = os.path.join(log_dir, CLEANER_OFFSETS)
        try:
            offsets = read_offsets(self._fs, path)
        except CorruptCheckpoint:
            return MAX_LONG
        if partition in offsets:
            return offsets[partition]
        is_unknown = self._is_compacted or self._fs.exists(path + CORRUPT_SUFFIX)
        return MAX_LONG if is_unknown else 0
