"""One log dir while it is used: its partitions, its checkpoints, its deletions. Knows no Ray.

::

    folders found at the start   to load -> loaded
    partitions                   as an orderly stop left them ("clean"), or not
    checkpoint tables            the last word of every LogActor, until it is written
    deletion queue               folders that were renamed -delete, and when each is removed

A method whose disk fails raises StorageError; ``dirs.py`` decides what follows from it.

Not safe for threads, with one exception. A thread that writes the checkpoint files holds
``writing``, and waits for nothing else meanwhile. So a disk that hangs stops only the threads that
want to write to it.
"""

import logging
import threading
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from typing import NamedTuple

from raylog.actors.events import warn
from raylog.actors.messages import LogDirStatus
from raylog.storage.clock import Clock
from raylog.storage.errors import (
    CorruptCheckpoint,
    DiskFull,
    InvalidLogDir,
    OutOfResources,
    RaylogError,
    StorageError,
)
from raylog.storage.files import FileSystem
from raylog.storage.loader import create_log
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.mirror import folder_bytes
from raylog.storage.names import TopicPartition
from raylog.storage.state.properties import read_topic_id

logger = logging.getLogger(__name__)
Offsets = Mapping[TopicPartition, CheckpointedOffsets]


class Doomed(NamedTuple):
    """A folder that waits to be removed."""

    due_ms: int
    folder: str


class OnlineDir:
    """See the module's head. ``log_dir``: one that has just been locked."""

    def __init__(self, fs: FileSystem, clock: Clock, log_dir: LogDir, delete_delay_ms: int) -> None:
        self._fs, self._clock, self._delete_delay_ms = fs, clock, delete_delay_ms
        self.log_dir = log_dir
        self.writing = threading.Lock()  # of the checkpoint files
        self.offsets = log_dir.offsets()
        log_dir.cleaner_offsets()  # if it is damaged, that is told at the start
        self._tell_damages()
        listing = log_dir.listing()
        self.to_load = set(listing.partitions)
        self.loaded = 0
        self._clean = set(listing.partitions) if log_dir.was_clean else set()
        self._opening_clean: set[TopicPartition] = set()  # of those that are being opened now
        self._doomed: list[Doomed] = []
        # Whether the checkpoint files may have partitions that are gone. A crash may have come
        # between the rename of a folder and the checkpoints, so at the start they may.
        self._has_stale_checkpoints = True
        self._doom(listing.doomed, delete_delay_ms)
        self._doom(listing.futures, 0)  # nobody finishes a copy that a crash interrupted
        for name in listing.unknown:
            warn(
                logger,
                "folder-ignored",
                log_dir=log_dir.path,
                folder=name,
                why="not the name of a partition",
            )

    def _tell_damages(self) -> None:
        for damage in self.log_dir.take_damages():
            warn(
                logger,
                "checkpoint-damaged",
                log_dir=self.log_dir.path,
                file=damage.file,
                why=damage.why,
                kept_as=damage.kept_as,
                entries_used=damage.entries,
            )

    @property
    def directory_id(self) -> str:
        return self.log_dir.directory_id

    @property
    def count(self) -> int:
        """How many partitions are here, or are being moved here."""
        listing = self.log_dir.listing()
        return len(listing.partitions) + len(listing.futures)

    def check(self) -> None:
        """Raise StorageError unless the dir is still there, and the same."""
        try:
            self.log_dir.check()
        except CorruptCheckpoint as error:
            raise StorageError(self.log_dir.path, error.problem) from error

    def status(self, node_id: str) -> LogDirStatus:
        """What the dir holds, and how much room it has.

        Not to be called under a lock, since it looks at every file.
        """
        try:
            listing = self.log_dir.listing()
            folders = [self.folder(partition) for partition in listing.partitions]
            size_bytes = sum(folder_bytes(self._fs, folder) for folder in folders)
            total_bytes, usable_bytes = self._fs.room(self.log_dir.path)
            damaged_files = tuple(self.log_dir.damaged_files())
        except StorageError as error:
            failure = self.log_dir.disk_failure(error)
            problem = (failure or error).problem
            unknown = LogDirStatus.offline(node_id, self.log_dir.path, self.directory_id, problem)
            return unknown._replace(is_online=failure is None)
        return LogDirStatus(
            node_id=node_id,
            path=self.log_dir.path,
            directory_id=self.directory_id,
            is_online=True,
            problem=None,
            partitions=len(listing.partitions),
            size_bytes=size_bytes,
            total_bytes=total_bytes,
            usable_bytes=usable_bytes,
            loaded=self.loaded,
            to_load=self.loaded + len(self.to_load),
            damaged_files=damaged_files,
            strays=tuple(sorted(listing.strays)),
        )

    # -- partitions --------------------------------------------------------------------------------

    def folder(self, partition: TopicPartition) -> str:
        return self.log_dir.folder(partition)

    def has(self, partition: TopicPartition) -> bool:
        return self._fs.is_dir(self.folder(partition))

    def topic_id(self, partition: TopicPartition) -> str | None:
        """The id of the topic whose folder it is; None if that cannot be read."""
        try:
            return read_topic_id(self._fs, self.folder(partition))
        except CorruptCheckpoint as error:
            warn(logger, "topic-id-unreadable", partition=partition, why=error)
            return None

    def create(self, partition: TopicPartition, topic_id: str) -> None:
        """Make a new partition's folder.

        Nothing is left under its name if the disk is full, or there is no descriptor for a file.
        """
        folder = self.folder(partition)
        if self._fs.exists(folder):
            raise InvalidLogDir(folder, "the partition's folder already exists; move it away")
        self._drop_stale_checkpoints()
        self.offsets.pop(partition, None)
        try:
            create_log(self._fs, folder, topic_id)
            with self.writing:  # so that recovery knows which gaps are not compaction's
                self.log_dir.write_cleaner_offset(partition, 0)
        except DiskFull:
            self._fs.remove_dir(folder)
            raise
        except OutOfResources:
            self._doom_now(partition)
            raise
        self._clean.add(partition)

    def adopt(
        self,
        partition: TopicPartition,
        copy: str,
        offsets: CheckpointedOffsets,
        cleaner_offset: int | None,
    ) -> None:
        """Make a copy the partition; its log was closed in order. Its checkpoints are written.

        Where the disk is too full for them, or there is no descriptor for a file, the copy is
        removed: under the partition's name it would be in the way of the next move.
        """
        self._drop_stale_checkpoints()
        self.log_dir.adopt(partition, copy)
        self.offsets[partition] = offsets
        try:
            with self.writing:
                self.write_recovery_points(self.offsets)
                self.write_log_start_offsets(self.offsets)
                if cleaner_offset is not None:
                    self.log_dir.write_cleaner_offset(partition, cleaner_offset)
        except (DiskFull, OutOfResources):
            self._doom_now(partition)
            self._forget(partition)
            raise
        self._clean.add(partition)

    def _doom_now(self, partition: TopicPartition) -> None:
        """Take a folder out of the way; a rename needs neither room nor a descriptor."""
        if not self.has(partition):
            return
        with suppress(OutOfResources):  # of the sync behind it: the next start removes the folder
            self._doom([self.log_dir.doom(partition)], 0)

    def drop_copy(self, folder: str) -> None:
        """Have an unwanted folder removed; fine if it is gone."""
        self._doom([folder], 0)

    def open(self, partition: TopicPartition) -> bool:
        """Note that a partition is about to be opened.

        Returns whether it is as an orderly stop left it, which is true once.
        """
        is_clean = partition in self._clean
        self._clean.discard(partition)
        if is_clean:
            self._opening_clean.add(partition)
        else:
            self._opening_clean.discard(partition)
        return is_clean

    def refused(self, partition: TopicPartition) -> None:
        """Note that the log that is being opened cannot be opened, and is as it was.

        Else the next try would take it for one that a crash left, and believe what only a crash
        explains.
        """
        if partition in self._opening_clean:
            self._clean.add(partition)

    def opened(self, partition: TopicPartition) -> bool:
        """Note that an opening has ended, well or not.

        Returns whether the partition was found at the start and is opened for the first time.
        """
        self._opening_clean.discard(partition)
        is_first = partition in self.to_load
        self.to_load.discard(partition)
        self.loaded += is_first
        return is_first

    def delete(self, partition: TopicPartition) -> None:
        """Rename a partition's folder; it is removed when ``file.delete.delay.ms`` is over."""
        self._doom([self.log_dir.doom(partition)], self._delete_delay_ms)
        self._forget(partition)

    def set_aside(self, partition: TopicPartition) -> str:
        """Rename the folder of a partition that no topic has any more, and keep it.

        Returns its new path.
        """
        path = self.log_dir.doom(partition, stray=True)
        self._forget(partition)
        return path

    def _forget(self, partition: TopicPartition) -> None:
        self.offsets.pop(partition, None)
        self.to_load.discard(partition)
        self._clean.discard(partition)
        self._opening_clean.discard(partition)
        self._has_stale_checkpoints = True
        try:
            self._drop_stale_checkpoints()
        except (DiskFull, OutOfResources) as error:
            warn(logger, "checkpoint-not-written", partition=partition, why=error)

    def _drop_stale_checkpoints(self) -> None:
        """Remove from the checkpoint files the partitions that are gone.

        A new partition of the same name must not begin where the checkpoints of the old one end.
        """
        if not self._has_stale_checkpoints:
            return
        with self.writing:
            self.write_recovery_points(self.offsets)
            self.write_log_start_offsets(self.offsets)
            self.log_dir.drop_cleaner_offsets()
        self._has_stale_checkpoints = False

    # -- deletion ----------------------------------------------------------------------------------

    def _doom(self, folders: Iterable[str], delay_ms: int) -> None:
        due_ms = self._clock.now_ms() + delay_ms
        self._doomed += [Doomed(due_ms, folder) for folder in folders]

    def due_deletions(self) -> list[str]:
        """The folders that are to be removed now; each is told once."""
        now_ms = self._clock.now_ms()
        due = [folder for due_ms, folder in self._doomed if due_ms <= now_ms]
        self._doomed = [doomed for doomed in self._doomed if doomed.due_ms > now_ms]
        return due

    # -- checkpoints -------------------------------------------------------------------------------

    def write_recovery_points(self, offsets: Offsets) -> None:
        """Replace the checkpoint files of recovery points and high watermarks.

        Of ``offsets``, the partitions that are here are written. The caller holds ``writing``.
        """
        self.log_dir.write_recovery_points(self._of_partitions_here(offsets))

    def write_log_start_offsets(self, offsets: Offsets) -> None:
        """Replace the checkpoint file of log start offsets, in the same way."""
        self.log_dir.write_log_start_offsets(self._of_partitions_here(offsets))

    def _of_partitions_here(self, offsets: Offsets) -> Offsets:
        here = set(self.log_dir.partitions())
        return {partition: offsets[partition] for partition in offsets if partition in here}

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Where the compaction of each partition goes on. The caller does not hold ``writing``."""
        with self.writing:
            offsets = self.log_dir.cleaner_offsets()
        self._tell_damages()
        return offsets

    def unlock(self, closed: Set[TopicPartition]) -> bool:
        """Write the checkpoints and the clean-shutdown marker, and unlock the dir.

        Returns whether every log here was ``closed`` in order. If one was not, or the checkpoints
        could not be written, the dir gets no marker. A log that nobody has opened is as it was.
        """
        try:
            with self.writing:
                is_clean = {*self.log_dir.partitions()} <= closed | self._clean
                self.log_dir.write_offsets(self._of_partitions_here(self.offsets))
                self.log_dir.close(clean=is_clean)
            return is_clean
        except RaylogError as error:
            warn(logger, "log-dir-not-closed", log_dir=self.log_dir.path, why=error)
            self.log_dir.close(clean=False)
            return False
