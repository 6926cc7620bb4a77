"""One log dir while it is used: its folders, its checkpoints, its deletions. Knows no Ray.

::

    listing at the start ----+
    made, adopted -----------+--> names: partition -> topic id      (the dir is not listed again)
    doomed, put aside -------+
    copies                        -future folders, with the log of which each is a copy
    clean                         as an orderly stop left them, or as they were made
    to load -> loaded             folders that were found, and those of them that were opened since

Each method may block, since its disk may hang. It holds up nobody but its own thread, and whoever
wants to write to the checkpoint files of the same dir (``dir_checkpoints.py``). ``_memory`` guards
what is known; nobody waits for a disk while holding it. Two threads never work for one partition
in one dir: the machine sees to that.

A method whose disk fails raises StorageError; what follows from it, the machine decides.
"""

import logging
import os
import threading
import uuid
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import partial

from raylog.actors.control import DirReport, LogId
from raylog.actors.errors import NotLeader
from raylog.actors.events import warn
from raylog.actors.messages import LogDirStatus
from raylog.actors.node.deletion_queue import DeletionQueue
from raylog.actors.node.dir_checkpoints import DirCheckpoints
from raylog.actors.node.events import Folder
from raylog.actors.partition.opening import metadata_asides
from raylog.storage.clock import Clock
from raylog.storage.errors import (
    CorruptCheckpoint,
    DiskFull,
    InvalidLogDir,
    LogMissing,
    OutOfResources,
    RaylogError,
    StorageError,
)
from raylog.storage.files import FileSystem, Lock
from raylog.storage.loader import create_log
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.mirror import folder_bytes
from raylog.storage.names import (
    DELETE_DIR_SUFFIX,
    TopicPartition,
    doomed_folder,
    parse_folder,
)
from raylog.storage.state.properties import read_topic_id, write_topic_id

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class CopyFolder:
    """A ``-future`` folder. ``topic_id``: None where it does not say whose it is."""

    path: str
    partition: TopicPartition
    topic_id: str | None
    is_whole: bool = False


class OnlineDir:
    """See the module's head."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        log_dir: LogDir,
        *,
        delete_delay_ms: int,
        lock_folder: Callable[[str], Lock],
    ) -> None:
        """``log_dir``: one that has just been locked. ``lock_folder``: may wait; LogLocked."""
        self._fs, self._log_dir, self.delete_delay_ms = fs, log_dir, delete_delay_ms
        self._lock_folder = lock_folder
        self._memory = threading.Lock()
        self._is_closed = False
        self._deletions = DeletionQueue(fs, clock)
        self._copies: list[CopyFolder] = []
        listing = log_dir.listing()
        self._names = {name: self._read_topic_id(self.folder(name)) for name in listing.partitions}
        # Those whose folder did not say once whose it is.
        self._unnamed = {name for name, topic_id in self._names.items() if topic_id is None}
        self._to_load = set(self._names)
        self._loaded = 0
        self._clean = set(self._names) if log_dir.was_clean else set()
        self.checkpoints = DirCheckpoints(log_dir, self._names.keys())
        self.controller_epoch = log_dir.controller_epoch()
        self._tell_damages()
        for path in listing.futures:
            self._find_copy(path)
        for path in listing.doomed:
            self._deletions.add(path, delete_delay_ms)
        for name in listing.unknown:
            why = "not the name of a partition"
            warn(logger, "folder-ignored", log_dir=log_dir.path, folder=name, why=why)

    def _find_copy(self, path: str) -> None:
        partition = parse_folder(os.path.basename(path).rpartition(".")[0])
        if partition is None:
            self._deletions.add(path)
            return
        topic_id = self._read_topic_id(path)
        self._copies.append(CopyFolder(path=path, partition=partition, topic_id=topic_id))

    def _read_topic_id(self, folder: str) -> str | None:
        """The id of the topic whose folder it is; None if that cannot be read."""
        try:
            return read_topic_id(self._fs, folder)
        except CorruptCheckpoint as error:
            warn(logger, "topic-id-unreadable", folder=folder, why=error)
            return None

    def _tell_damages(self) -> None:
        for damage in self._log_dir.take_damages():
            warn(
                logger,
                "checkpoint-damaged",
                log_dir=self.path,
                file=damage.file,
                why=damage.why,
                kept_as=damage.kept_as,
                entries_used=damage.entries,
            )

    # -- what is known, without a look at the disk -------------------------------------------------

    @property
    def directory_id(self) -> str:
        return self._log_dir.directory_id

    @property
    def path(self) -> str:
        return self._log_dir.path

    @property
    def is_closed(self) -> bool:
        """Whether the dir was given up: nothing more is to be done in it."""
        return self._is_closed

    def folder(self, partition: TopicPartition) -> str:
        return self._log_dir.folder(partition)

    def has(self, log: LogId) -> bool:
        """Whether the log's folder lies here."""
        with self._memory:
            return self._names.get(log.partition) == log.topic_id

    def log_of(self, partition: TopicPartition) -> LogId | None:
        """The log whose folder has this name; None where it is gone, or does not say."""
        with self._memory:
            topic_id = self._names.get(partition)
        return None if topic_id is None else LogId(partition=partition, topic_id=topic_id)

    def folders(self) -> tuple[Folder, ...]:
        """Everything that lies here; copies, too."""
        with self._memory:
            logs = [
                Folder(
                    partition=partition,
                    topic_id=topic_id,
                    directory_id=self.directory_id,
                    is_clean=partition in self._clean,
                )
                for partition, topic_id in self._names.items()
            ]
            copies = [
                Folder(
                    partition=copy.partition,
                    topic_id=copy.topic_id,
                    directory_id=self.directory_id,
                    is_copy=True,
                )
                for copy in self._copies
            ]
        return (*logs, *copies)

    # -- the folders of logs -----------------------------------------------------------------------

    def make(self, log: LogId) -> None:
        """Make a new log's folder; fine if it is there. After an error it does not exist.

        It is made under a name that says it is to be removed, as which a crash leaves it. Raises
        InvalidLogDir where another folder has the name.
        """
        if self.has(log):
            return
        self.check()  # where its disk was unmounted, the folder would be made on another
        self._check_free(log.partition)
        self.checkpoints.drop_stale(log.partition)
        draft_name = doomed_folder(log.partition, uuid.uuid4(), DELETE_DIR_SUFFIX)
        draft = os.path.join(self.path, draft_name)
        try:
            create_log(self._fs, draft, log.topic_id)
            self._give_name(draft, log.partition)
        except RaylogError:
            self._deletions.add(draft)
            raise
        # 0, so that recovery knows which gaps are not compaction's. It is written soon.
        self.checkpoints.record_cleaner_offset(log.partition, 0)
        self._add(log)

    def _check_free(self, partition: TopicPartition) -> None:
        folder = self.folder(partition)
        if self._fs.exists(folder):
            raise InvalidLogDir(folder, "the partition's folder already exists; move it away")

    def _give_name(self, path: str, partition: TopicPartition) -> None:
        """Make a folder the partition's. After a shortage it has its own name again."""
        try:
            self._log_dir.adopt(partition, path)
        except (DiskFull, OutOfResources):  # maybe of the sync behind the rename
            if self._fs.is_dir(self.folder(partition)):
                self._fs.rename(self.folder(partition), path)
            raise

    def _add(self, log: LogId) -> None:
        with self._memory:
            self._names[log.partition] = log.topic_id
            self._clean.add(log.partition)

    def doom(self, log: LogId) -> None:
        """Rename the log's folder; it is removed after ``file.delete.delay.ms``.

        Fine if it is gone. Raises LogLocked where a process still has the log.
        """
        if not self.has(log):
            return
        path = self._take_away(log.partition, stray=False)
        if path is not None:
            self._deletions.add(path, self.delete_delay_ms)

    def put_aside(self, partition: TopicPartition, topic_id: str | None) -> None:
        """Rename a folder that belongs to no topic, and keep it. Fine if it is gone.

        ``topic_id``: None where the folder does not say. Raises LogLocked where a process still has
        the log, and LogMissing where the folder says a topic after all.
        """
        with self._memory:
            if partition not in self._names:
                return
            known = self._names[partition]
        if topic_id is None:
            known = self._read_topic_id(self.folder(partition))
            if known is not None:
                raise LogMissing(self.folder(partition), "the folder belongs to a topic")
        elif known != topic_id:
            return
        path = self._take_away(partition, stray=True)
        if path is not None:
            warn(logger, "folder-set-aside", partition=partition, topic_id=topic_id, kept_as=path)

    def _take_away(self, partition: TopicPartition, *, stray: bool) -> str | None:
        """Rename a partition's folder; returns its new path, None if it was gone already."""
        folder = self.folder(partition)
        if not self._fs.is_dir(folder):
            self.check()  # a disk that is gone has taken no folder away
            self._forget(partition)
            return None
        lock = self._lock_folder(folder)
        try:
            path = self._log_dir.doom(partition, stray=stray)
        except (DiskFull, OutOfResources):
            if not self._fs.is_dir(folder):  # it was renamed, but not synced
                self._forget(partition)
            raise
        finally:
            lock.release()
        self._forget(partition)
        return path

    def _forget(self, partition: TopicPartition) -> None:
        with self._memory:
            self._names.pop(partition, None)
            self._clean.discard(partition)
            self._to_load.discard(partition)
        self.checkpoints.forget(partition)

    def write_identity(self, log: LogId) -> None:
        """Write the ``partition.metadata`` of a log's folder.

        Raises LogMissing where there is no folder, or it is another log's.
        """
        folder = self.folder(log.partition)
        with self._memory:
            known = self._names.get(log.partition, "")
        if known not in (None, log.topic_id):
            raise LogMissing(folder, "the folder is gone, or belongs to another topic")
        write_topic_id(self._fs, folder, log.topic_id)
        with self._memory:
            self._names[log.partition] = log.topic_id

    def lost_identities(self) -> list[TopicPartition]:
        """The partitions whose folder does not say whose it is.

        It reads a small file of each partition. Each is told again and again: its actor's word may
        not have been written, since the disk was full.
        """
        with self._memory:
            names = list(self._names)
        lost: list[TopicPartition] = []
        for partition in names:
            if self._is_identity_lost(self.folder(partition)):
                lost.append(partition)
        with self._memory:
            self._unnamed |= set(lost)
        return lost

    def identities_found(self) -> list[Folder]:
        """The folders that did not say whose they are, and do so now: the file was restored.

        Each is told again and again, since nobody can say who has heard of it.
        """
        with self._memory:
            self._unnamed &= self._names.keys()
            unnamed = sorted(self._unnamed)
        found: list[Folder] = []
        for partition in unnamed:
            if self._is_identity_lost(self.folder(partition)):
                continue
            topic_id = self._read_topic_id(self.folder(partition))
            with self._memory:
                if topic_id is None or partition not in self._names:
                    continue
                self._names[partition] = topic_id
            found.append(
                Folder(partition=partition, topic_id=topic_id, directory_id=self.directory_id)
            )
        return found

    def _is_identity_lost(self, folder: str) -> bool:
        try:
            return read_topic_id(self._fs, folder) is None and self._fs.is_dir(folder)
        except CorruptCheckpoint:
            return True

    # -- copies ------------------------------------------------------------------------------------

    def copy_of(self, log: LogId) -> CopyFolder | None:
        """The copy of a log that lies here, or that is being made."""
        with self._memory:
            return self._copy_of(log.partition, log.topic_id)

    def _copy_of(self, partition: TopicPartition, topic_id: str | None) -> CopyFolder | None:
        for copy in self._copies:
            if (copy.partition, copy.topic_id) == (partition, topic_id):
                return copy
        return None

    def begin_copy(self, log: LogId) -> CopyFolder:
        """Note that a copy of a log is made here; returns where, without making the folder.

        A copy that was begun is gone on with. Raises InvalidLogDir where the log could not get its
        name here.
        """
        self._check_free(log.partition)
        path = self._log_dir.future_folder(log.partition)
        with self._memory:
            copy = self._copy_of(log.partition, log.topic_id)
            if copy is None:
                copy = CopyFolder(path=path, partition=log.partition, topic_id=log.topic_id)
                self._copies.append(copy)
            copy.is_whole = False
            return copy

    def adopt(self, log: LogId, offsets: CheckpointedOffsets, cleaner_offset: int | None) -> None:
        """Give the whole copy the log's name, and its checkpoints; fine if it has them.

        The checkpoints come first: after a crash a dir that has the log has its log start offset.
        """
        copy = self.copy_of(log)
        if copy is None and self.has(log):
            return
        if copy is None or not copy.is_whole:
            raise NotLeader(str(log.partition), "its copy in the other log dir is not whole")
        self._check_free(log.partition)
        self.checkpoints.record(log.partition, offsets)
        if cleaner_offset is not None:
            self.checkpoints.record_cleaner_offset(log.partition, cleaner_offset)
        try:
            self.checkpoints.write_all()
            self._give_name(copy.path, log.partition)
        except BaseException:
            self.checkpoints.forget(log.partition)
            raise
        self._add(log)
        with self._memory:
            self._copies.remove(copy)

    def drop_copy(self, partition: TopicPartition, topic_id: str | None) -> None:
        """Have a copy removed; fine if it is gone."""
        with self._memory:
            dropped = [
                copy
                for copy in self._copies
                if (copy.partition, copy.topic_id) == (partition, topic_id)
            ]
            self._copies = [copy for copy in self._copies if copy not in dropped]
        for copy in dropped:
            self._deletions.add(copy.path)

    # -- openings ----------------------------------------------------------------------------------

    def began_opening(self, partition: TopicPartition) -> None:
        """Note that a partition is opened: from now on it is not as an orderly stop left it."""
        with self._memory:
            self._clean.discard(partition)

    def opened(self, partition: TopicPartition) -> bool:
        """Note that an opening has ended, well or not.

        Returns whether the partition was found when the dir was opened, and this was the first.
        """
        with self._memory:
            is_first = partition in self._to_load
            self._to_load.discard(partition)
            self._loaded += is_first
            return is_first

    def progress(self, opening: Set[TopicPartition] | None = None) -> tuple[int, int]:
        """How many of the folders that were found were opened since, and how many shall be.

        ``opening``: those that are to be opened here; None: all, since nobody has said it yet. What
        is never ordered is not waited for: a topic that no config opens, a folder without an id.
        """
        with self._memory:
            left = self._to_load if opening is None else self._to_load & opening
            return self._loaded, self._loaded + len(left)

    def is_clean(self, partition: TopicPartition) -> bool:
        """Whether the partition is as an orderly stop left it, or as it was made."""
        with self._memory:
            return partition in self._clean

    # -- offsets -----------------------------------------------------------------------------------

    def record_offsets(self, log: LogId, offsets: CheckpointedOffsets) -> None:
        """Keep a log's offsets for the next checkpoint, unless its folder is gone."""
        with self._memory:
            if self._names.get(log.partition) == log.topic_id:
                self.checkpoints.record(log.partition, offsets)

    def record_log_start(self, log: LogId, offsets: CheckpointedOffsets) -> None:
        """As ``DirCheckpoints.record_log_start``. Raises NotLeader where its folder is gone."""
        with self._memory:
            if self._names.get(log.partition) != log.topic_id:
                raise NotLeader(str(log.partition), f"it does not lie in {self.path}")
            self.checkpoints.record_log_start(log.partition, offsets)

    def record_cleaner_offset(self, log: LogId, offset: int) -> bool:
        """Keep for the next checkpoint where a log's compaction goes on.

        Returns False where its folder is gone.
        """
        with self._memory:
            is_here = self._names.get(log.partition) == log.topic_id
            if is_here:
                self.checkpoints.record_cleaner_offset(log.partition, offset)
            return is_here

    # -- upkeep ------------------------------------------------------------------------------------

    def remove_deleted(self) -> None:
        """Remove the folders whose delay is over."""
        self._deletions.remove_due()

    def check(self) -> None:
        """Raise StorageError unless the dir is still there, and the same."""
        self._log_dir.check()

    def disk_failure(self, error: StorageError) -> StorageError | None:
        """Why the dir must go offline after an error in it; None if its disk is fine."""
        return self._log_dir.disk_failure(error)

    def usable_bytes(self) -> int:
        """How much may still be written."""
        return self._fs.room(self.path).usable_bytes

    def report(self, *, is_read_back: bool = False) -> DirReport:
        """The dir as it is now, online."""
        try:
            usable_bytes = self.usable_bytes()
        except StorageError:
            usable_bytes = -1
        return DirReport(
            directory_id=self.directory_id,
            path=self.path,
            state="online",
            usable_bytes=usable_bytes,
            is_read_back=is_read_back,
            is_new=self._log_dir.is_new,
        )

    def status(self, node_id: str, opening: Set[TopicPartition] | None = None) -> LogDirStatus:
        """What the dir holds, and how much room it has. It looks at every file.

        ``opening``: as of ``progress``.
        """
        try:
            listing = self._log_dir.listing()
            folders = [self.folder(partition) for partition in listing.partitions]
            size_bytes = sum(folder_bytes(self._fs, folder) for folder in folders)
            total_bytes, usable_bytes = self._fs.room(self.path)
            damaged_files = tuple(self._log_dir.damaged_files())
            asides = tuple(metadata_asides(self._fs, self.path))
            is_private = self._fs.is_private(self.path)
        except StorageError as error:
            failure = self.disk_failure(error)
            problem = (failure or error).problem
            unknown = LogDirStatus.offline(node_id, self.path, self.directory_id, problem)
            return unknown._replace(is_online=failure is None)
        loaded, to_load = self.progress(opening)
        return LogDirStatus(
            node_id=node_id,
            path=self.path,
            directory_id=self.directory_id,
            is_online=True,
            problem=None,
            partitions=len(listing.partitions),
            size_bytes=size_bytes,
            total_bytes=total_bytes,
            usable_bytes=usable_bytes,
            loaded=loaded,
            to_load=to_load,
            damaged_files=damaged_files,
            strays=tuple(sorted(listing.strays)),
            is_private=is_private,
            metadata_asides=asides,
        )

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Write nothing more to the dir; fine if it was closed. Its lock is kept."""
        self._is_closed = True
        self.checkpoints.close()

    def give_lock_up(self) -> None:
        """Unlock the dir without another write, after ``close``."""
        self._log_dir.close(clean=False)

    def let_go(self) -> None:
        """Unlock the dir as it was found, where no log was opened."""
        self._is_closed = True
        is_untouched = self._log_dir.was_clean and self._names.keys() <= self._clean
        try:
            self.checkpoints.close(partial(self._log_dir.close, clean=is_untouched))
        except StorageError as error:
            warn(logger, "log-dir-not-closed", log_dir=self.path, why=error)
            self.checkpoints.close(partial(self._log_dir.close, clean=False))

    def unlock(
        self,
        closed: Mapping[TopicPartition, CheckpointedOffsets],
        clean: Set[TopicPartition],
    ) -> bool:
        """Write the checkpoints, and the clean-shutdown marker, and unlock the dir.

        ``closed``: the logs that were closed in order. ``clean``: those that are as an orderly stop
        left them. Returns whether each log here is one of these; if not, or if the checkpoints
        could not be written, the dir gets no marker.
        """
        self._is_closed = True
        for partition, offsets in closed.items():
            self.checkpoints.record(partition, offsets)
        try:
            is_clean = set(self._log_dir.partitions()) <= closed.keys() | clean
            self.checkpoints.write_and_close(partial(self._log_dir.close, clean=is_clean))
            return is_clean
        except RaylogError as error:
            warn(logger, "log-dir-not-closed", log_dir=self.path, why=error)
            self.checkpoints.close(partial(self._log_dir.close, clean=False))
            return False
