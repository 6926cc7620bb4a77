"""Puts segments that compaction has written in the place of old ones.

The steps, and what a crash leaves of them, are in ``cleaner/recovery.py``. Source:
``UnifiedLog.replaceSegments`` of Kafka.
"""

import os
from collections.abc import Collection, Sequence
from typing import TypeAlias

from raylog.storage.config import LogConfig
from raylog.storage.doomed import DoomedSegments
from raylog.storage.errors import CleaningAborted, StorageError, SwapUnfinished, UndoFailed
from raylog.storage.files import FileSystem
from raylog.storage.names import CLEANED_SUFFIX, SWAP_SUFFIX, segment_file
from raylog.storage.segment import Segment, SegmentId

# One round of compaction over a log. A round that begins ends all before it, as a truncation does:
# those may still run, in a process that is given up.
RoundId: TypeAlias = int


class Swaps:
    """Which round of compaction may swap, and the swap of one log's files."""

    def __init__(self, fs: FileSystem, folder: str, partition: str, doomed: DoomedSegments) -> None:
        self._fs, self._folder, self._partition = fs, folder, partition
        self._doomed = doomed
        self._rounds = 0  # and truncations, since the log was opened

    def begin_round(self) -> RoundId:
        """None that began before can swap any more."""
        self._rounds += 1
        return self._rounds

    def check_unchanged(
        self, segments: Sequence[Segment], ids: Collection[SegmentId], round_id: RoundId
    ) -> None:
        """Raise CleaningAborted unless the round is the last, and these are sealed segments."""
        if round_id != self._rounds:
            why = "another compaction has begun, or the log was cut or opened again"
        elif not {*ids} <= {segment.id for segment in segments[:-1]}:
            why = "retention deleted segments that it was reading"
        else:
            return
        raise CleaningAborted(self._partition, why)

    def replace(
        self,
        segments: Sequence[Segment],
        old: Sequence[SegmentId],
        round_id: RoundId,
        config: LogConfig,
    ) -> tuple[int, Segment]:
        """The number of the first of ``old`` in the list, and the segment for their place.

        See ``Log.replace_segments``.
        """
        self.check_unchanged(segments, old, round_id)
        ids = [segment.id for segment in segments]
        first = ids.index(old[0]) if old else 0
        if not old or ids[first : first + len(old)] != [*old]:
            raise CleaningAborted(
                self._partition, "the segments that it would replace are not adjacent"
            )
        base_offset, replaced = old[0].base_offset, segments[first : first + len(old)]
        fresh = Segment(self._fs, self._folder, base_offset, config, suffix=CLEANED_SUFFIX)
        self._remove_other_cleaned(base_offset)
        try:
            fresh.rename(SWAP_SUFFIX)
            self._fs.sync_dir(self._folder)
            self._doomed.add(replaced)
            fresh.rename("")
            # Before this section is recorded as clean, and before the next one is swapped.
            self._fs.sync_dir(self._folder)
        except StorageError as error:
            if error.is_disk_failure:
                raise UndoFailed(fresh.path, str(error)) from error
            raise SwapUnfinished(fresh.path, str(error)) from error
        return first, fresh

    def _remove_other_cleaned(self, base_offset: int) -> None:
        """Remove the files of rounds that were killed.

        From such a file recovery would conclude that this swap had not begun. The caller syncs the
        folder before anything else goes.
        """
        own = segment_file(base_offset, "")
        left = [name for name in self._fs.list_dir(self._folder) if name.endswith(CLEANED_SUFFIX)]
        stale = [name for name in left if not name.startswith(own)]
        for name in stale:
            self._fs.remove(os.path.join(self._folder, name))
