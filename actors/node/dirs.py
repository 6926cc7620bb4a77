"""The log dirs of one node: which can be used, and which partitions they hold. Knows no Ray.

::

    configured dir --lock--> online --its disk fails, or it vanishes--> offline until the next start
                     |                                                     ^
                     +-------- it cannot be used, but another can ---------+

When a dir goes offline, no checkpoint is written to it any more, its lock is given up, and its
LogActors are orphans: they are to be killed.

LogManager does what needs actors; what the disks and the clock decide is decided here and in
``online_dir.py``. **The lock** of LogManager guards it all, and its callers hold it, but for what
is done again and again and must not hold the lock while a disk hangs: ``check``, ``dir_of``, what
writes a checkpoint, ``cleaner_offsets`` and ``cleaned``. These take it themselves, for what is
known and for the verdict, and none of them while it waits for a disk.

Source: the state of Kafka's ``LogManager``.
"""

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from raylog.actors.errors import NoLogDirs
from raylog.actors.events import event, warn
from raylog.actors.messages import Configured, Hosted, OfflineDir
from raylog.actors.node.online_dir import OnlineDir
from raylog.storage.clock import Clock
from raylog.storage.errors import (
    CorruptCheckpoint,
    DuplicateLogDir,
    InvalidLogDir,
    LogDirOffline,
    LogMissing,
    RaylogError,
    StorageError,
)
from raylog.storage.files import FileSystem
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.names import TopicPartition

logger = logging.getLogger(__name__)
Taken = TypeVar("Taken")


class Found(NamedTuple):
    """A partition that lies on a node's disks."""

    partition: TopicPartition
    topic_id: str | None
    directory_id: str


class Placed(NamedTuple):
    """Where a partition is."""

    node_id: str
    directory_id: str
    folder: str


class Opened(NamedTuple):
    """A partition whose LogActor was started."""

    topic_id: str
    directory_id: str
    # None of one adopted after a restart, until the Controller tells it again
    configured: Configured | None


class NodeDirs:
    """See the module's head."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        delete_delay_ms: int,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        """``lock``: may be taken again by who has it; None where there is one thread."""
        self._fs, self._clock, self._delete_delay_ms = fs, clock, delete_delay_ms
        self._lock = lock or nullcontext()
        self._online: dict[str, OnlineDir] = {}
        self.offline: list[OfflineDir] = []
        self.opened: dict[TopicPartition, Opened] = {}
        self._orphans: list[TopicPartition] = []
        # that went offline with their dir, and their topic ids
        self._lost: dict[TopicPartition, str] = {}

    # -- start and end -----------------------------------------------------------------------------

    def lock(self, paths: Sequence[str], open_dir: Callable[[str], LogDir]) -> None:
        """Lock the dirs; one that cannot be used is offline from the start, as long as there is
        another.

        Raises DuplicateLogDir, LogLocked, InconsistentClusterId, or why the first cannot be used
        where none can; no dir is locked then.
        """
        problems: dict[str, RaylogError] = {}
        try:
            self._check_different(paths)
            for path in paths:
                try:
                    self._take(open_dir(path))
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
            self._is_offline(OfflineDir(path, None, str(problem)))

    def _check_different(self, paths: Sequence[str]) -> None:
        seen: dict[str, str] = {}
        for path in paths:
            real = self._fs.real_path(path)
            if real in seen:
                raise DuplicateLogDir(path, seen[real], "are one folder")
            seen[real] = path

    def _take(self, log_dir: LogDir) -> None:
        """Look through a dir that has just been locked."""
        try:
            twin = self._online.get(log_dir.directory_id)
            if twin is not None:
                raise DuplicateLogDir(log_dir.path, twin.log_dir.path, "have one directory.id")
            dir = OnlineDir(self._fs, self._clock, log_dir, self._delete_delay_ms)
        except RaylogError:
            log_dir.close(clean=log_dir.was_clean)
            raise
        self._online[log_dir.directory_id] = dir

    def adopt(self) -> None:
        """A LogManager was restarted: what lies here is served by LogActors that have lived on."""
        for partition, topic_id, directory_id in self.found():
            if topic_id is not None:
                self.opened[partition] = Opened(topic_id, directory_id, None)

    def unlock(self, closed: Set[TopicPartition]) -> bool:
        """Write the checkpoints and the clean-shutdown markers, and unlock; ``closed``: the logs
        closed in order.

        Returns whether all of it was clean, and no dir has failed.
        """
        were_clean = [dir.unlock(closed) for dir in self._online.values()]
        self._online.clear()
        self.opened.clear()
        return all(were_clean) and not any(dir.directory_id for dir in self.offline)

    # -- dirs --------------------------------------------------------------------------------------

    @property
    def paths(self) -> dict[str, str]:
        """Directory id -> path, of those that are online."""
        return {directory_id: dir.log_dir.path for directory_id, dir in self._online.items()}

    def dirs(self) -> list[OnlineDir]:
        """Those that are online."""
        with self._lock:
            return list(self._online.values())

    def online(self, directory_id: str) -> OnlineDir:
        """A dir by its id. Raises LogDirOffline, or InvalidLogDir of one that is not this
        node's."""
        for path, offline_id, why in self.offline:
            if offline_id == directory_id:
                raise LogDirOffline(path, why)
        if directory_id not in self._online:
            raise InvalidLogDir(directory_id, f"is none of this node's, which are {self.paths}")
        return self._online[directory_id]

    def check(self) -> None:
        """Take those offline that have vanished."""
        self._each(OnlineDir.check)

    def fail(self, directory_id: str, why: str) -> None:
        """A dir's disk has failed: the dir is offline from now on, and its LogActors are
        orphans."""
        dir = self._online.pop(directory_id, None)
        if dir is None:
            return
        self._is_offline(OfflineDir(dir.log_dir.path, directory_id, why))
        lost = [
            partition
            for partition, opened in self.opened.items()
            if opened.directory_id == directory_id
        ]
        for partition in lost:
            self._lost[partition] = self.opened.pop(partition).topic_id
        self._orphans += lost
        dir.log_dir.close(clean=False)

    def _is_offline(self, dir: OfflineDir) -> None:
        event(logger, "log-dir-offline", level=logging.ERROR, log_dir=dir.path, why=dir.why)
        self.offline.append(dir)

    def take_orphans(self) -> list[TopicPartition]:
        """The partitions whose LogActors are to be killed; each is told once."""
        orphans, self._orphans = self._orphans, []
        return orphans

    @property
    def offline_count(self) -> int:
        """How many partitions went offline with their dir, and have not been deleted or opened
        elsewhere since."""
        return len(self._lost)

    @contextmanager
    def using(self, dir: OnlineDir) -> Iterator[None]:
        """Where the disk fails in here, the dir goes offline: LogDirOffline."""
        try:
            yield
        except StorageError as error:
            if not error.is_disk_failure:
                raise
            with self._lock:
                self.fail(dir.directory_id, str(error))
            raise LogDirOffline(dir.log_dir.path, str(error)) from error

    def _each(self, work: Callable[[OnlineDir], None]) -> None:
        """Do it in every dir that is online; the others go on where one fails."""
        for dir in self.dirs():
            try:
                with self.using(dir):
                    work(dir)
            except LogDirOffline:
                pass  # which has been logged
            except StorageError as error:
                warn(logger, "log-dir-work-failed", log_dir=dir.log_dir.path, why=error)

    # -- partitions --------------------------------------------------------------------------------

    def found(self) -> list[Found]:
        """The partitions in the dirs."""
        found: list[Found] = []

        def look(dir: OnlineDir) -> None:
            for partition in dir.log_dir.partitions():
                found.append(Found(partition, dir.topic_id(partition), dir.directory_id))

        self._each(look)
        return found

    def create(self, partition: TopicPartition, topic_id: str) -> OnlineDir:
        """Make a new partition's folder, in the dir with the fewest. Nothing is left of it if that
        fails.

        Raises NoLogDirs, DiskFull, or InvalidLogDir where a folder of its name is there already.
        """
        while counts := self._counts():
            dir = min(counts, key=counts.__getitem__)
            with suppress(LogDirOffline), self.using(dir):  # then another takes it
                dir.create(partition, topic_id)
                return dir
        raise NoLogDirs(
            "; ".join(f"{path}: {why}" for path, _, why in self.offline) or "none is locked"
        )

    def _counts(self) -> dict[OnlineDir, int]:
        """How many partitions each dir has that is online, in the order in which they were
        given."""
        counts: dict[OnlineDir, int] = {}

        def count(dir: OnlineDir) -> None:
            counts[dir] = dir.count

        self._each(count)
        return counts

    def dir_of(self, partition: TopicPartition, directory_id: str | None = None) -> OnlineDir:
        """The dir that has a partition's folder; it must be the one with this id, if that is given.

        Raises LogMissing, LogDirOffline.
        """
        with self._lock:
            candidates = self.dirs() if directory_id is None else [self.online(directory_id)]
        for dir in candidates:
            if dir.has(partition):
                return dir
        where = candidates[0].folder(partition) if candidates else str(partition)
        raise LogMissing(where, "the partition's folder is in none of this node's log dirs")

    def delete(self, partition: TopicPartition, topic_id: str) -> None:
        """Rename the topic's folder of this partition, wherever it lies; it is removed later.

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
        self, partition: TopicPartition, topic_id: str, directory_id: str, told: Configured
    ) -> tuple[Configured, bool]:
        """Its LogActor is started now; returns what it is to obey, and whether an orderly stop left
        the log."""
        is_clean = self.online(directory_id).open(partition)
        self._lost.pop(partition, None)
        known = self.opened.get(partition)
        if known is None or known[:2] != (topic_id, directory_id):
            self.opened[partition] = Opened(topic_id, directory_id, told)
        return self.configure(partition, topic_id, told) or told, is_clean

    def configure(
        self, partition: TopicPartition, topic_id: str, told: Configured
    ) -> Configured | None:
        """What a partition obeys from now on, which is the newer of ``told`` and known; None if it
        is not served."""
        opened = self.opened.get(partition)
        if opened is None or opened.topic_id != topic_id:
            return None
        known = opened.configured
        newest = told if known is None or told.version >= known.version else known
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
        """Rename the folder of a partition that no topic has any more; it is kept. Returns its new
        path.

        Raises LogMissing if it is gone, or another topic's by now.
        """
        dir = self.dir_of(partition, directory_id)
        with self.using(dir):
            if dir.topic_id(partition) != topic_id:
                raise LogMissing(dir.folder(partition), "it is another topic's by now")
            return dir.set_aside(partition)

    def hosted(self) -> list[Hosted]:
        """What is served now, as far as its config is known."""
        return [
            Hosted(
                partition,
                one.topic_id,
                self._online[one.directory_id].folder(partition),
                one.configured.config,
            )
            for partition, one in self.opened.items()
            if one.configured is not None
        ]

    def due_deletions(self) -> list[str]:
        """The folders that are to be removed now; each is told once."""
        return [folder for dir in self._online.values() for folder in dir.due_deletions()]

    # -- checkpoints -------------------------------------------------------------------------------

    def note(self, partition: TopicPartition, asked: Opened, offsets: CheckpointedOffsets) -> None:
        """What the LogActor that was ``asked`` says of its offsets; not heard if the partition was
        made anew since."""
        now = self.opened.get(partition)
        if now is not None and now[:2] == asked[:2]:
            self._online[now.directory_id].offsets[partition] = offsets

    def write_recovery_points(self) -> None:
        """Replace the checkpoint files of recovery points and high watermarks."""
        self._each(
            lambda dir: self._write(dir, lambda: dict(dir.offsets), dir.write_recovery_points)
        )

    def write_log_start_offsets(self) -> None:
        """Replace the checkpoint file of log start offsets."""
        self._each(
            lambda dir: self._write(dir, lambda: dict(dir.offsets), dir.write_log_start_offsets)
        )

    def _write(
        self, dir: OnlineDir, take: Callable[[], Taken | None], write: Callable[[Taken], None]
    ) -> None:
        """Write what ``take`` says under the lock, without it; nothing if that is None, or the dir
        is gone.

        Whoever holds the lock and wants to write a file of the dir waits until this is done: so a
        partition that leaves is out of the checkpoints for good, even if this has taken it down
        before.
        """
        while True:
            with self._lock:
                taken = take() if self._online.get(dir.directory_id) is dir else None
                if taken is None:
                    return
                if dir.writing.acquire(blocking=False):
                    break
            with dir.writing:
                pass  # whoever writes there has done so; what is known may have changed
        try:
            write(taken)
        finally:
            dir.writing.release()

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Where the compaction of each partition that is served goes on."""
        with self._lock:
            home = {partition: one.directory_id for partition, one in self.opened.items()}
        found: dict[TopicPartition, int] = {}

        def look(dir: OnlineDir) -> None:
            for partition, offset in dir.cleaner_offsets().items():
                if home.get(partition) == dir.directory_id:
                    found[partition] = offset

        self._each(look)
        return found

    def cleaned(self, partition: TopicPartition, topic_id: str, offset: int) -> None:
        """Where a partition's compaction goes on from now; not heard if it is another topic's by
        now."""

        def directory_id() -> str | None:
            opened = self.opened.get(partition)
            return (
                opened.directory_id if opened is not None and opened.topic_id == topic_id else None
            )

        with self._lock:
            home = directory_id()
            if home is None:
                return
            dir = self.online(home)
        with self.using(dir):
            self._write(
                dir,
                lambda: offset if directory_id() == home else None,
                partial(dir.log_dir.write_cleaner_offset, partition),
            )
