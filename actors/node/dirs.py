"""The log dirs of one node: which can be used, and which partitions they hold. Knows no Ray.

::

    configured dir --lock--> online --its disk fails, or it vanishes--> offline until the next start
                     |                                                     ^
                     +-------- it cannot be used, but another can ---------+

When a dir goes offline, no checkpoint is written to it any more, its lock is given up, and its
LogActors are orphans: they are to be killed.

The LogManager does what needs actors. What the disks and the clock decide is decided here and in
``online_dir.py``. **The lock** of the LogManager guards all of it. A method that is called again
and again must not hold the lock while it waits for a disk, which may hang:

==============================================================  ================================
method                                                          who takes the lock
==============================================================  ================================
``check``, ``dir_of``, ``remove_later``,                        the method, to read the state and
``write_recovery_points``,
``write_log_start_offsets``, ``cleaner_offsets``,               to change it, but never while it
``record_cleaner_offset``, ``settle_losses``                    waits for a disk
every other                                                     its caller
==============================================================  ================================

Source: the state of Kafka's ``LogManager``.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from raylog.actors.errors import NoLogDirs
from raylog.actors.events import event, warn
from raylog.actors.messages import Configured, Found, Hosted, OfflineDir, PartitionOffsets
from raylog.actors.node.online_dir import OnlineDir
from raylog.storage.clock import Clock
from raylog.storage.errors import (
    CorruptCheckpoint,
    DiskFull,
    DuplicateLogDir,
    InvalidLogDir,
    LogDirOffline,
    LogMissing,
    OutOfResources,
    RaylogError,
    StorageError,
)
from raylog.storage.files import FileSystem
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.losses import drop_settled
from raylog.storage.names import TopicPartition

logger = logging.getLogger(__name__)
Content = TypeVar("Content")


class Opened(NamedTuple):
    """A partition whose LogActor was started."""

    topic_id: str
    directory_id: str
    # None where the actor was adopted after a restart, until the Controller opens it again
    configured: Configured | None

    def is_same_log(self, other: "Opened") -> bool:
        """Whether both are the same topic's, in the same dir."""
        return (self.topic_id, self.directory_id) == (other.topic_id, other.directory_id)


class NodeDirs:
    """See the module's head."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        delete_delay_ms: int,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        """``lock``: a reentrant lock; None where there is one thread."""
        self._fs, self._clock, self._delete_delay_ms = fs, clock, delete_delay_ms
        self._lock = lock or nullcontext()
        self._online: dict[str, OnlineDir] = {}
        self.offline: list[OfflineDir] = []
        self.opened: dict[TopicPartition, Opened] = {}
        self._orphans: list[TopicPartition] = []
        # the topic ids of partitions that went offline with their dir
        self._lost: dict[TopicPartition, str] = {}

    # -- start and end -----------------------------------------------------------------------------

    def lock(self, paths: Sequence[str], open_dir: Callable[[str], LogDir]) -> None:
        """Lock the dirs. One that cannot be used is offline, as long as another can be used.

        Raises DuplicateLogDir, LogLocked, InconsistentClusterId, OutOfResources, or why the first
        cannot be used where none can; no dir is locked then.
        """
        problems: dict[str, RaylogError] = {}
        try:
            self._check_different(paths)
            for path in paths:
                try:
                    self._add_online(open_dir(path))
                except OutOfResources:
                    raise  # of this process, not of the dir
                except (InvalidLogDir, CorruptCheckpoint, StorageError) as error:
                    problems[path] = error
            if not self._online:
                raise problems[paths[0]]
        except RaylogError:
            for dir in self._online.values():
                dir.log_dir.close(clean=dir.log_dir.was_clean)
            self._online.clear()
            raise
        for path, problem in problems.items():
            todo = "" if isinstance(problem, StorageError) else problem.advice
            self._add_offline(OfflineDir(path, None, problem.problem, todo))

    def _check_different(self, paths: Sequence[str]) -> None:
        path_by_real_path: dict[str, str] = {}
        for path in paths:
            real_path = self._fs.real_path(path)
            if real_path in path_by_real_path:
                raise DuplicateLogDir(path, path_by_real_path[real_path], "are the same folder")
            path_by_real_path[real_path] = path

    def _add_online(self, log_dir: LogDir) -> None:
        """Look through a dir that has just been locked."""
        try:
            twin = self._online.get(log_dir.directory_id)
            if twin is not None:
                raise DuplicateLogDir(log_dir.path, twin.log_dir.path, "have the same directory.id")
            dir = OnlineDir(self._fs, self._clock, log_dir, self._delete_delay_ms)
        except RaylogError:
            log_dir.close(clean=log_dir.was_clean)
            raise
        self._online[log_dir.directory_id] = dir

    def adopt(self) -> None:
        """After a restart of the LogManager: LogActors that have lived on serve what lies here."""
        for found in self.partitions_on_disk():
            if found.topic_id is not None:
                opened = Opened(found.topic_id, found.directory_id, configured=None)
                self.opened[found.partition] = opened

    def unlock(self, closed: Set[TopicPartition]) -> bool:
        """Write the checkpoints and the clean-shutdown markers, and unlock the dirs.

        ``closed``: the logs that were closed in order. Returns whether all were, and no dir has
        failed.
        """
        were_clean = [dir.unlock(closed) for dir in self._online.values()]
        self._online.clear()
        self.opened.clear()
        return all(were_clean) and not any(dir.directory_id for dir in self.offline)

    # -- dirs --------------------------------------------------------------------------------------

    @property
    def paths(self) -> dict[str, str]:
        """Directory id -> path, of the dirs that are online."""
        return {directory_id: dir.log_dir.path for directory_id, dir in self._online.items()}

    def dirs(self) -> list[OnlineDir]:
        """The dirs that are online."""
        with self._lock:
            return list(self._online.values())

    def online(self, directory_id: str) -> OnlineDir:
        """A dir by its id. Raises LogDirOffline, or InvalidLogDir if it is not this node's."""
        for dir in self.offline:
            if dir.directory_id == directory_id:
                raise LogDirOffline(dir.path, dir.why)
        if directory_id not in self._online:
            raise InvalidLogDir(
                directory_id, f"this node has no such log dir; its log dirs are {self.paths}"
            )
        return self._online[directory_id]

    def check(self) -> None:
        """Take the dirs offline that have vanished."""
        self._each(OnlineDir.check)

    def fail(self, directory_id: str, why: str) -> None:
        """Take a dir offline whose disk has failed. Its LogActors are orphans from now on."""
        dir = self._online.pop(directory_id, None)
        if dir is None:
            return
        self._add_offline(OfflineDir(dir.log_dir.path, directory_id, why))
        lost = [
            partition
            for partition, opened in self.opened.items()
            if opened.directory_id == directory_id
        ]
        for partition in lost:
            self._lost[partition] = self.opened.pop(partition).topic_id
        self._orphans += lost
        dir.log_dir.close(clean=False)

    def _add_offline(self, dir: OfflineDir) -> None:
        event(logger, "log-dir-offline", level=logging.ERROR, log_dir=dir.path, why=dir.why)
        self.offline.append(dir)

    def take_orphans(self) -> list[TopicPartition]:
        """The partitions whose LogActors are to be killed; each is returned once."""
        orphans, self._orphans = self._orphans, []
        return orphans

    @property
    def offline_count(self) -> int:
        """How many partitions went offline with their dir.

        Those that were deleted or opened elsewhere since are not counted.
        """
        return len(self._lost)

    @contextmanager
    def using(self, dir: OnlineDir) -> Iterator[None]:
        """Take the dir offline, and raise LogDirOffline, if its disk fails in this context."""
        try:
            yield
        except StorageError as error:
            failure = dir.log_dir.disk_failure(error)
            if failure is None:
                raise
            with self._lock:
                self.fail(dir.directory_id, failure.problem)
            raise LogDirOffline(dir.log_dir.path, failure.problem) from error

    def _each(self, work: Callable[[OnlineDir], None]) -> None:
        """Do ``work`` in every dir that is online; if one fails, the others go on."""
        for dir in self.dirs():
            try:
                with self.using(dir):
                    work(dir)
            except LogDirOffline:
                pass  # it has been logged
            except StorageError as error:
                warn(logger, "log-dir-work-failed", log_dir=dir.log_dir.path, why=error)

    # -- partitions --------------------------------------------------------------------------------

    def partitions_on_disk(self) -> list[Found]:
        """The partitions whose folders are in the dirs that are online."""
        partitions: list[Found] = []

        def list_dir(dir: OnlineDir) -> None:
            for partition in dir.log_dir.partitions():
                partitions.append(Found(partition, dir.topic_id(partition), dir.directory_id))

        self._each(list_dir)
        return partitions

    def create(self, partition: TopicPartition, topic_id: str) -> OnlineDir:
        """Make a new partition's folder, in the dir with the fewest partitions.

        Raises NoLogDirs, DiskFull, or InvalidLogDir where a folder of its name is there already.
        Nothing is left of the folder then.
        """
        while counts := self._partition_counts():
            dir = min(counts, key=counts.__getitem__)
            with suppress(LogDirOffline), self.using(dir):  # if it fails, another dir is tried
                dir.create(partition, topic_id)
                return dir
        problems = [f"{dir.path}: {dir.why}" for dir in self.offline]
        raise NoLogDirs("; ".join(problems) or "this node has no usable log dir")

    def _partition_counts(self) -> dict[OnlineDir, int]:
        """How many partitions each online dir has, in the order in which the dirs were given."""
        counts: dict[OnlineDir, int] = {}

        def count(dir: OnlineDir) -> None:
            counts[dir] = dir.count

        self._each(count)
        return counts

    def dir_of(self, partition: TopicPartition, directory_id: str | None = None) -> OnlineDir:
        """The dir that has a partition's folder. Raises LogMissing, LogDirOffline.

        ``directory_id``: the dir that must have it; None: any.
        """
        with self._lock:
            candidates = self.dirs() if directory_id is None else [self.online(directory_id)]
        for dir in candidates:
            if dir.has(partition):
                return dir
        where = candidates[0].folder(partition) if candidates else str(partition)
        raise LogMissing(where, "the partition's folder is in none of this node's log dirs")

    def delete(self, partition: TopicPartition, topic_id: str) -> None:
        """Rename the topic's folder of this partition, in every dir; it is removed later.

        In a dir that is offline it stays, and is set aside as stray once the dir is back.
        """
        for dir in list(self._online.values()):
            with suppress(LogDirOffline), self.using(dir):
                if dir.has(partition) and dir.topic_id(partition) == topic_id:
                    dir.delete(partition)
        if partition in self.opened and self.opened[partition].topic_id == topic_id:
            del self.opened[partition]
        if self._lost.get(partition) == topic_id:
            del self._lost[partition]

    def open(
        self, partition: TopicPartition, topic_id: str, directory_id: str, requested: Configured
    ) -> tuple[Configured, bool]:
        """Note that a partition's LogActor is started now.

        Returns the config that it is to obey, and whether an orderly stop left the log.
        """
        is_clean = self.online(directory_id).open(partition)
        self._lost.pop(partition, None)
        before = self.opened.get(partition)
        opened = Opened(topic_id, directory_id, requested)
        if before is None or not before.is_same_log(opened):
            self.opened[partition] = opened
        newest = self.configure(partition, topic_id, requested)
        return newest or requested, is_clean

    def configure(
        self, partition: TopicPartition, topic_id: str, requested: Configured
    ) -> Configured | None:
        """Give a partition the requested config, unless it has a newer one.

        Returns what it obeys from now on; None if it is not served.
        """
        opened = self.opened.get(partition)
        if opened is None or opened.topic_id != topic_id:
            return None
        newest = opened.configured
        if newest is None or requested.version >= newest.version:
            newest = requested
        self.opened[partition] = opened._replace(configured=newest)
        return newest

    def has(self, partition: TopicPartition, topic_id: str | None) -> bool:
        """Whether the topic's folder of this partition is in a dir."""
        return any(
            dir.has(partition) and dir.topic_id(partition) == topic_id
            for dir in self._online.values()
        )

    def set_aside(
        self, partition: TopicPartition, topic_id: str | None, directory_id: str | None
    ) -> str:
        """Rename the folder of a partition that no topic has any more, and keep it.

        Returns its new path. Raises LogMissing if it is gone, or another topic's by now.
        """
        dir = self.dir_of(partition, directory_id)
        with self.using(dir):
            if dir.topic_id(partition) != topic_id:
                raise LogMissing(dir.folder(partition), "the folder now belongs to another topic")
            path = dir.set_aside(partition)
        opened = self.opened.get(partition)
        if opened is not None and opened.directory_id == dir.directory_id:
            del self.opened[partition]  # a log of that name elsewhere is not this node's to close
        return path

    def hosted(self) -> list[Hosted]:
        """The partitions that are served now and whose config is known."""
        return [
            Hosted(
                partition=partition,
                topic_id=opened.topic_id,
                folder=self._online[opened.directory_id].folder(partition),
                config=opened.configured.config,
            )
            for partition, opened in self.opened.items()
            if opened.configured is not None
        ]

    def due_deletions(self) -> list[str]:
        """The folders that are to be removed now; each is returned once."""
        return [folder for dir in self._online.values() for folder in dir.due_deletions()]

    def remove_later(self, folder: str) -> None:
        """A folder that was due could not be removed now: it is due again."""
        with self._lock:
            for dir in self._online.values():
                if os.path.dirname(folder) == dir.log_dir.path:
                    dir.drop_copy(folder)

    # -- checkpoints -------------------------------------------------------------------------------

    def record_offsets(
        self, partition: TopicPartition, asked: Opened, offsets: CheckpointedOffsets
    ) -> None:
        """Keep a LogActor's offsets for the next checkpoint.

        ``asked``: the partition when its LogActor was asked. If it was made anew since, the offsets
        are the old one's, and are dropped.
        """
        opened = self.opened.get(partition)
        if opened is not None and opened.is_same_log(asked):
            self._online[opened.directory_id].offsets[partition] = offsets

    def write_recovery_points(self) -> None:
        """Replace the checkpoint files of recovery points and high watermarks."""

        def write(dir: OnlineDir) -> None:
            self._write_unlocked(dir, lambda: dict(dir.offsets), dir.write_recovery_points)

        self._each(write)

    def settle_losses(self, partition: TopicPartition, offsets: PartitionOffsets) -> None:
        """Write the recovery point of a log that was opened in spite of an accepted loss, at once.

        Then the acceptance is forgotten: the same records, produced again and lost again, are
        another loss. ``offsets``: of the log now. A crash in between leaves the acceptance to the
        next opening. Raises LogDirOffline.
        """
        with self._lock:
            opened = self.opened.get(partition)
            if opened is None:
                return
            self.record_offsets(partition, opened, offsets.checkpointed())
            dir = self._online[opened.directory_id]
        try:
            with self.using(dir):
                self._write_unlocked(dir, lambda: dict(dir.offsets), dir.write_recovery_points)
                drop_settled(self._fs, dir.folder(partition), offsets.log_end_offset)
        except (CorruptCheckpoint, DiskFull, OutOfResources) as error:  # the next opening does it
            warn(logger, "loss-not-settled", partition=partition, why=error)

    def write_log_start_offsets(self) -> None:
        """Replace the checkpoint file of log start offsets."""

        def write(dir: OnlineDir) -> None:
            self._write_unlocked(dir, lambda: dict(dir.offsets), dir.write_log_start_offsets)

        self._each(write)

    def _write_unlocked(
        self,
        dir: OnlineDir,
        read: Callable[[], Content | None],
        write: Callable[[Content], None],
    ) -> None:
        """Read the content of a file with the lock held, and write it without the lock.

        Nothing is written if the content is None, or the dir is no longer online. A thread that
        holds the lock and wants to write a file of the dir waits until this has ended. So a
        partition that is deleted meanwhile is out of the checkpoints for good, even if the content
        that was read has it.
        """
        while True:
            with self._lock:
                content = read() if self._online.get(dir.directory_id) is dir else None
                if content is None:
                    return
                if dir.writing.acquire(blocking=False):
                    break
            with dir.writing:
                pass  # another thread has written; the content may have changed
        try:
            write(content)
        finally:
            dir.writing.release()

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Where the compaction of each partition that is served goes on."""
        with self._lock:
            directory_ids = {
                partition: opened.directory_id for partition, opened in self.opened.items()
            }
        offsets: dict[TopicPartition, int] = {}

        def read(dir: OnlineDir) -> None:
            for partition, offset in dir.cleaner_offsets().items():
                if directory_ids.get(partition) == dir.directory_id:
                    offsets[partition] = offset

        self._each(read)
        return offsets

    def record_cleaner_offset(self, partition: TopicPartition, topic_id: str, offset: int) -> None:
        """Write down where a partition's compaction goes on.

        Nothing is written if the partition is another topic's by now.
        """
        with self._lock:
            directory_id = self._directory_id(partition, topic_id)
            if directory_id is None:
                return
            dir = self.online(directory_id)

        def still_wanted() -> int | None:
            return offset if self._directory_id(partition, topic_id) == directory_id else None

        write = partial(dir.log_dir.write_cleaner_offset, partition)
        with self.using(dir):
            self._write_unlocked(dir, still_wanted, write)

    def _directory_id(self, partition: TopicPartition, topic_id: str) -> str | None:
        """The dir from which this topic's partition is served; None if it is not."""
        opened = self.opened.get(partition)
        if opened is None or opened.topic_id != topic_id:
            return None
        return opened.directory_id
