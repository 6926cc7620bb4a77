"""Segments that have left a log: renamed ``.deleted``, and removed after ``file.delete.delay.ms``.

Until then a reader, or another process that was told a file's name, finds them.
"""

import os
from collections.abc import Sequence

from raylog.storage.clock import Clock
from raylog.storage.errors import StorageError
from raylog.storage.files import FileSystem
from raylog.storage.locks import LogLocks
from raylog.storage.names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, segment_file
from raylog.storage.segment import Segment


class DoomedSegments:
    """The doomed segments of one log. ``locks.list`` guards which they are."""

    def __init__(
        self, fs: FileSystem, clock: Clock, folder: str, locks: LogLocks, delay_ms: int
    ) -> None:
        self._fs, self._clock, self._folder, self._locks = fs, clock, folder, locks
        self.delay_ms = delay_ms
        self._doomed: list[tuple[int, Segment]] = []  # when each is due

    def add(self, segments: Sequence[Segment]) -> None:
        """Rename segments, in this order; the new names are on the disk when this returns.

        Their files stay until ``delay_ms`` has passed.
        """
        for segment in segments:
            segment.rename(DELETED_SUFFIX)
            self._fs.remove(
                os.path.join(self._folder, segment_file(segment.base_offset, SNAPSHOT_SUFFIX))
            )
        # Before a new start or end is recorded: what is kept must survive a loss of power.
        self._fs.sync_dir(self._folder)
        due_ms = self._clock.now_ms() + self.delay_ms
        with self._locks.list:
            self._doomed = [*self._doomed, *((due_ms, segment) for segment in segments)]

    @property
    def due_ms(self) -> list[int]:
        """When the files of each may be removed."""
        return [due_ms for due_ms, _ in self._doomed]

    def purge(self, listed: Sequence[Segment]) -> None:
        """Remove the files that are due.

        ``listed``: the log's list. Segments that are about to leave it stay: a reader may have
        them. What cannot be removed waits for as long again. Raises the first error, behind all.
        """
        now_ms = self._clock.now_ms()
        with self._locks.list:
            due = {segment for due_ms, segment in self._doomed if due_ms <= now_ms} - {*listed}
            self._doomed = [entry for entry in self._doomed if entry[1] not in due]
        failures: list[StorageError] = []
        for segment in due:
            try:
                segment.delete()
            except StorageError as error:
                failures.append(error)
                with self._locks.list:
                    self._doomed = [*self._doomed, (now_ms + self.delay_ms, segment)]
        if failures:
            raise failures[0]

    def remove_all(self) -> None:
        """Remove all files, whether they are due or not."""
        for _, segment in self._doomed:
            segment.delete()
