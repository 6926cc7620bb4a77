"""The producers' snapshots in a log's folder, while the log is open.

A roll and an orderly end write one, and the next flush brings it to the disk. What a snapshot says
is ``state/producers.py``'s.
"""

import os
from collections.abc import Callable

from raylog.storage.errors import StorageError
from raylog.storage.files import FileSystem
from raylog.storage.locks import LogLocks
from raylog.storage.names import SNAPSHOT_SUFFIX, offset_of
from raylog.storage.state.producers import ProducerStates


class Snapshots:
    """The snapshots of one log. ``locks.list`` guards those that wait for a flush."""

    def __init__(self, fs: FileSystem, folder: str, locks: LogLocks) -> None:
        self._fs, self._folder, self._locks = fs, folder, locks
        self._unflushed: list[str] = []

    def write(self, producers: ProducerStates, end_offset: int) -> None:
        """Write the producers as of the log's end; the next flush brings it to the disk."""
        producers.end_offset = end_offset
        path = producers.write_snapshot(self._fs, self._folder)
        if path is not None:
            with self._locks.list:
                self._unflushed = [*self._unflushed, path]

    def flush(self) -> None:
        """Bring what was written to the disk."""
        paths = self._unflushed
        for path in paths:
            try:
                file = self._fs.open(path)
                file.flush()
                file.close()
            except StorageError:
                if self._fs.exists(path):
                    raise  # else its segment was deleted meanwhile
        with self._locks.list:  # last: an error leaves them all to the next flush
            self._unflushed = self._unflushed[len(paths) :]

    def remove_where(self, is_useless: Callable[[int], bool]) -> None:
        """Remove snapshots by their offset."""
        for name in self._fs.list_dir(self._folder):
            at = offset_of(name) if name.endswith(SNAPSHOT_SUFFIX) else None
            if at is not None and is_useless(at):
                self._fs.remove(os.path.join(self._folder, name))
