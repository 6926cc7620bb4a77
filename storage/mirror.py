"""A copy of a partition's folder in another log dir, brought up to date in rounds.

The log is being written meanwhile.

::

    round 1   everything                                      appends go on
    round 2   what has changed since: little                  appends go on
    ...
    last      the rest, when nobody writes any more; then the copy is equal, and on its disk

A file is copied again unless inode, size and mtime are those of its last copy, and that copy was
not made in the moment of a change (a clock of files is coarse: ``SETTLED_MS``). Files are copied
whole: an append that failed and was taken back may have been seen half, so what was copied of a
growing file proves nothing. Whoever rolls the log between two rounds keeps the rest small. What is
on its way out or in (``.deleted``, ``.cleaned``, ``.swap``, ``.tmp``) is left out: compaction's
work begins again, and readers have the original.

Not its job: who may write meanwhile, what the copy is called, when it counts (``copier.py``).
"""

import os
from collections.abc import Callable

from raylog.storage.clock import Clock
from raylog.storage.errors import NoRoom, StorageError
from raylog.storage.files import FileStat, FileSystem
from raylog.storage.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX

# A file that changed this recently may change again without another mtime.
SETTLED_MS = 1000
_TRANSIENT = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, ".tmp")


class Mirror:
    """The copy of ``source`` that is made as ``target``, a folder of its own."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        source: str,
        target: str,
        copied: Callable[[int], None] = lambda size_bytes: None,
    ) -> None:
        """``copied`` is told of every few MB, and may wait, or raise to end it."""
        self._fs = fs
        self._clock = clock
        self._source = source
        self._target = target
        self._copied = copied
        # of the files whose copies are right, and on the disk
        self._known: dict[str, FileStat] = {}

    def check_room(self) -> None:
        """Raise NoRoom unless the source would fit beside what is there."""
        needed_bytes = folder_bytes(self._fs, self._source)
        usable_bytes = self._fs.room(os.path.dirname(self._target)).usable_bytes
        if needed_bytes > usable_bytes:
            raise NoRoom(os.path.dirname(self._target), needed_bytes, usable_bytes)

    def round(self, *, is_last: bool = False) -> int:
        """Copy what has changed since the round before; returns how many bytes that was.

        ``is_last``: nobody writes to the source any more. Afterwards the copy is equal, and
        survives a loss of power once its own name does.
        """
        self._fs.make_dir(self._target)
        wanted = [name for name in self._fs.list_dir(self._source) if not name.endswith(_TRANSIENT)]
        for name in {*self._fs.list_dir(self._target)} - {*wanted}:
            self._known.pop(name, None)
            self._fs.remove(os.path.join(self._target, name))
        copied_bytes = sum(self._copy(name, is_last=is_last) for name in wanted)
        if is_last:
            self._fs.sync_dir(self._target)
        return copied_bytes

    def _copy(self, name: str, *, is_last: bool) -> int:
        source, target = os.path.join(self._source, name), os.path.join(self._target, name)
        stat = self._fs.stat(source)
        if stat is None or stat == self._known.get(name):
            return 0
        is_settled = is_last or stat.mtime_ms + SETTLED_MS <= self._clock.now_ms()
        self._known.pop(name, None)
        try:
            self._fs.copy_file(source, target, self._copied, flush=is_settled)
        except StorageError:
            if is_last or self._fs.stat(source) is not None:
                raise
            return 0  # it was renamed or removed meanwhile; the next round removes the copy
        if is_settled:
            self._known[name] = stat
        return stat.size_bytes


def folder_bytes(fs: FileSystem, folder: str) -> int:
    """The sizes of a partition's files together; of those that are removed meanwhile, none."""
    stats = [fs.stat(os.path.join(folder, name)) for name in fs.list_dir(folder)]
    return sum(stat.size_bytes for stat in stats if stat is not None)
