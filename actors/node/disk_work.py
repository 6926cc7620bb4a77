"""What a LogManager does on its disks: the instructions of its machine, and its upkeep. No Ray.

===================  ==============================================================================
file                 what
===================  ==============================================================================
``dirs.py``          which log dirs are in use
``online_dir.py``    one of them: the folders, what is made, renamed, removed
``dir_checkpoints``  its checkpoint files
``deletion_queue``   its folders that wait to be removed
``copier.py``        copies to another of the dirs
===================  ==============================================================================

All of it is safe for threads. A call returns when it is done, so a disk that hangs blocks the
threads that use its dir, and no others. A failed disk is a StorageError with ``is_disk_failure``:
it is raised as it is, and changes nothing here. The machine says what follows.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial

from raylog.actors.control import LogId
from raylog.actors.errors import NotLeader
from raylog.actors.events import event, warn
from raylog.actors.messages import LogDirStatus, PartitionOffsets
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.copier import Copier
from raylog.actors.node.dir_openings import Beside, in_threads
from raylog.actors.node.dirs import Found, NodeDirs, Unusable, ignore, in_time
from raylog.actors.node.events import Folder
from raylog.actors.node.instructions import (
    Adopt,
    Copy,
    Doom,
    DropCopy,
    MakeFolder,
    PutAside,
    ReadDir,
    RetireDir,
    WriteEpoch,
    WriteIdentity,
)
from raylog.actors.node.metadata_copy import MetadataCopy
from raylog.actors.node.online_dir import OnlineDir
from raylog.actors.partition.locking import lock_patiently
from raylog.storage.clock import Clock
from raylog.storage.errors import (
    CorruptCheckpoint,
    DiskFull,
    FileGone,
    OutOfResources,
    StorageError,
)
from raylog.storage.files import FileSystem, Lock
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.losses import drop_settled
from raylog.storage.names import TopicPartition

logger = logging.getLogger(__name__)

# Of the checkpoints and the marker, at the end.
UNLOCK_TIMEOUT_S = 30.0

DiskInstruction = (
    WriteEpoch
    | ReadDir
    | RetireDir
    | MakeFolder
    | Doom
    | PutAside
    | WriteIdentity
    | Copy
    | Adopt
    | DropCopy
)


def no_roll(log: LogId) -> None:
    """Where nobody serves the logs that are copied."""


class DiskWork:
    """See the module's head."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        *,
        cluster_id: str,
        node_number: int,
        delete_delay_ms: int,
        copy_rate: float,
        roll: Callable[[LogId], None] = no_roll,
        unlock_timeout_s: float = UNLOCK_TIMEOUT_S,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        beside: Beside | None = None,
    ) -> None:
        """Nothing is read yet: see ``open``.

        ``copy_rate``: of all copies together, in bytes a second. ``roll``: have the log's actor
        begin a new segment, before each round of a copy; may raise RaylogError, which ends the copy
        unless it is DiskFull. ``now_s``, ``sleep``: of a clock that never goes back; the copies'
        rate and the waiting for locks go by it. ``beside``: how the dirs are opened; the default is
        a thread for each.
        """
        self._fs, self._clock = fs, clock
        self._cluster_id, self._node_number = cluster_id, node_number
        self._unlock_timeout_s = unlock_timeout_s
        self._now_s, self._sleep = now_s, sleep
        self._memory = threading.Lock()
        # The dir from which each log was opened last, and when its opening began.
        self._homes: dict[LogId, str] = {}
        self._began_s: dict[tuple[str, TopicPartition], float] = {}
        self._dirs = NodeDirs(
            fs,
            clock,
            lock_dir=self._lock_dir,
            lock_folder=self._lock_folder,
            delete_delay_ms=delete_delay_ms,
            beside=beside or in_threads(),
        )
        self._copier = Copier(
            fs,
            clock,
            bytes_per_second=copy_rate,
            roll=roll,
            lock_folder=self._lock_folder,
            now_s=now_s,
            sleep=sleep,
        )

    def obey(self, config: BrokerConfig) -> None:
        """Obey another config of the broker from now on; returns at once."""
        self._dirs.set_delete_delay(config.topic_defaults.file_delete_delay_ms)
        self._copier.set_rate(config.replica_alter_log_dirs_io_max_bytes_per_second)

    def _lock_dir(self, path: str) -> LogDir:
        take = partial(LogDir, self._fs, path, self._cluster_id, self._node_number)
        return lock_patiently(take, self._now_s, self._sleep)

    def _lock_folder(self, folder: str) -> Lock:
        return lock_patiently(partial(self._fs.lock, folder), self._now_s, self._sleep)

    def metadata_copy(
        self, directory_id: str, *, node: str, life: str, steady: Clock
    ) -> MetadataCopy:
        """The copy of the metadata in a log dir. The arguments are as of ``MetadataCopy``."""
        return MetadataCopy(
            self._fs,
            self._clock,
            self._dirs.path(directory_id),
            cluster_id=self._cluster_id,
            node=node,
            life=life,
            directory_id=directory_id,
            steady=steady,
        )

    # -- start and end -----------------------------------------------------------------------------

    def open(self, paths: Sequence[str], late: Callable[[Found], object] = ignore) -> Found:
        """Take the log dirs into use: see ``NodeDirs.open``."""
        return self._dirs.open(paths, late)

    def look_again(self, path: str, late: Callable[[Found], object]) -> str:
        """Look afresh at a dir that could not be used: see ``NodeDirs.look_again``."""
        return self._dirs.look_again(path, late)

    def let_go(self) -> None:
        """Unlock the dirs as they were found, where a start ends before a log was opened."""
        self._dirs.let_go()

    def unlock(self, closed: Mapping[LogId, PartitionOffsets], clean: Set[LogId]) -> bool:
        """The orderly end: write checkpoints and clean-shutdown markers, and unlock the dirs.

        ``closed``: the logs that were closed in order. ``clean``: those that nobody has opened, or
        whose opening was refused with nothing changed. A dir gets its marker where each log in it
        is one of these. Returns whether every dir of the node got one.
        """
        is_whole = self._dirs.is_whole()
        dirs = self._dirs.take_all()
        were_clean: dict[str, bool] = {}

        def unlock(dir: OnlineDir) -> None:
            closed_here, clean_here = self._ended_in(dir, dirs, closed, clean)
            were_clean[dir.directory_id] = dir.unlock(closed_here, clean_here)

        work = {dir.directory_id: partial(unlock, dir) for dir in dirs}
        problems = in_time(work, self._unlock_timeout_s)
        for directory_id, why in problems.items():
            path = self._dirs.path(directory_id)
            warn(logger, "log-dir-not-closed", log_dir=path, why=why)
        return is_whole and not problems and all(were_clean.values())

    def _ended_in(
        self,
        dir: OnlineDir,
        dirs: Sequence[OnlineDir],
        closed: Mapping[LogId, PartitionOffsets],
        clean: Set[LogId],
    ) -> tuple[dict[TopicPartition, CheckpointedOffsets], set[TopicPartition]]:
        """The logs of a dir that were closed there, and those that are as they were.

        A log may lie in two dirs, and was closed in one of them.
        """
        closed_here: dict[TopicPartition, CheckpointedOffsets] = {}
        for log, offsets in closed.items():
            having = [other for other in dirs if other.has(log)]
            home = self._homes.get(log)
            is_home = having == [dir] if home is None else home == dir.directory_id
            if is_home and dir in having:
                closed_here[log.partition] = offsets.checkpointed()
        clean_here: set[TopicPartition] = set()
        for folder in dir.folders():
            if folder.is_copy:
                continue
            is_unopened = folder.is_clean
            if folder.topic_id is not None:
                log = LogId(partition=folder.partition, topic_id=folder.topic_id)
                was_refused = self._homes.get(log) == dir.directory_id
                is_unopened = log in clean and (folder.is_clean or was_refused)
            if is_unopened:
                clean_here.add(folder.partition)
        return closed_here, clean_here

    # -- the machine's instructions ----------------------------------------------------------------

    def carry_out(self, work: DiskInstruction) -> Found | None:
        """Do what the machine says; returns when it is done. Raises RaylogError.

        Of ReadDir: what was found.
        """
        with self._judging():
            return self._carry_out(work)

    @contextmanager
    def _judging(self) -> Iterator[None]:
        """Raise that a disk failed in the place of FileGone, where a whole log dir is gone."""
        try:
            yield
        except FileGone as error:
            failure = self._dirs.disk_failure(error)
            if failure is None:
                raise
            raise failure from error

    def _carry_out(self, work: DiskInstruction) -> Found | None:
        match work:
            case WriteEpoch():
                dir = self._dirs.online(work.directory_id)
                dir.checkpoints.write_epoch(work.controller_epoch)
            case ReadDir():
                return self._dirs.read_back(work.directory_id)
            case RetireDir():
                self._dirs.retire(work.directory_id, work.clean)
            case MakeFolder():
                self._dirs.online(work.directory_id).make(work.log)
            case Doom():
                self._doom(work)
            case PutAside():
                dir = self._dirs.online(work.directory_id)
                dir.put_aside(work.partition, work.topic_id)
            case WriteIdentity():
                self._dirs.online(work.directory_id).write_identity(work.log)
            case Copy():
                self._copy(work)
            case Adopt():
                self._adopt(work)
            case DropCopy():
                self._drop_copy(work)
        return None

    def _doom(self, work: Doom) -> None:
        self._dirs.online(work.directory_id).doom(work.log)
        with self._memory:
            if self._homes.get(work.log) == work.directory_id:
                del self._homes[work.log]

    def _copy(self, work: Copy) -> None:
        source = self._dirs.online(work.directory_id)
        target = self._dirs.online(work.target_id)
        if not source.has(work.log):
            raise NotLeader(str(work.log.partition), "the log is not in this log dir")
        if work.is_last:
            self._copier.finish(work, source, target)
        else:
            self._copier.copy(work, source, target)

    def _adopt(self, work: Adopt) -> None:
        target = self._dirs.online(work.directory_id)
        if target.has(work.log):
            return
        sources = [dir for dir in self._dirs.dirs() if dir is not target and dir.has(work.log)]
        if not sources:
            why = "the log dir from which it was copied is not in use any more"
            raise NotLeader(str(work.log.partition), why)
        checkpoints = sources[0].checkpoints
        offsets = checkpoints.offsets(work.log.partition)
        cleaner_offset = checkpoints.cleaner_offsets().get(work.log.partition)
        target.adopt(work.log, offsets, cleaner_offset)
        self._copier.forget(work.log, work.directory_id)

    def _drop_copy(self, work: DropCopy) -> None:
        self._dirs.online(work.directory_id).drop_copy(work.partition, work.topic_id)
        if work.topic_id is not None:
            log = LogId(partition=work.partition, topic_id=work.topic_id)
            self._copier.forget(log, work.directory_id)

    def forget(self, log: LogId) -> None:
        """Nothing is left of the log here."""
        with self._memory:
            self._homes.pop(log, None)

    def withdraw(self, directory_id: str) -> None:
        """Use a dir no more, and keep its lock until ``RetireDir``; fine if it is not in use."""
        self._dirs.withdraw(directory_id)

    def close_dir(self, directory_id: str) -> None:
        """A dir went offline: write nothing more to it. Fine if it is closed."""
        self._dirs.close_dir(directory_id)

    def unlock_dir(self, directory_id: str) -> None:
        """Unlock a dir that was closed; fine if it is unlocked."""
        self._dirs.unlock_dir(directory_id)

    def give_up_copy(self, copy_token: int) -> None:
        """Have the Copy with this token end soon with NotLeader; fine if it has ended."""
        self._copier.give_up(copy_token)

    # -- a log's opening ---------------------------------------------------------------------------

    def folder(self, directory_id: str, partition: TopicPartition) -> str:
        """Where a partition's folder is or would be. Raises InvalidLogDir."""
        return f"{self._dirs.path(directory_id)}/{partition}"

    def checkpointed(self, directory_id: str, partition: TopicPartition) -> CheckpointedOffsets:
        """The offsets from which a log is opened, from memory; zeros where nothing is known.

        Raises LogDirOffline: zeros would be wrong then.
        """
        return self._dirs.online(directory_id).checkpoints.offsets(partition)

    def began_opening(self, log: LogId, directory_id: str) -> None:
        """Note, before its actor is started or adopted, from where a log is served.

        From then on the log is not as an orderly stop left it.
        """
        dir = self._dirs.get(directory_id)
        if dir is not None:
            dir.began_opening(log.partition)
        with self._memory:
            self._homes[log] = directory_id
            self._began_s[directory_id, log.partition] = self._now_s()

    def opened(self, directory_id: str, partition: TopicPartition) -> bool:
        """Note that an opening has ended, well or not: it counts for the progress of the start.

        Returns whether it was the first of a folder that was found.
        """
        dir = self._dirs.get(directory_id)
        with self._memory:
            began_s = self._began_s.pop((directory_id, partition), None)
        if dir is None or not dir.opened(partition):
            return False
        loaded, of = dir.progress()
        seconds = 0.0 if began_s is None else self._now_s() - began_s
        folder = dir.folder(partition)
        event(logger, "log-loaded", folder=folder, loaded=loaded, of=of, seconds=seconds)
        return True

    # -- offsets -----------------------------------------------------------------------------------

    def record_offsets(self, log: LogId, directory_id: str, offsets: PartitionOffsets) -> None:
        """Keep a log's offsets for the next checkpoint.

        Late ones, of a log or a dir that is gone, are dropped.
        """
        dir = self._dirs.get(directory_id)
        if dir is not None:
            dir.record_offsets(log, offsets.checkpointed())

    def write_recovery_points(self, directory_id: str) -> None:
        """Replace a dir's files of recovery points and high watermarks; also of cleaner offsets.

        Nothing where the dir is not in use. Raises StorageError.
        """
        dir = self._dirs.get(directory_id)
        if dir is not None:
            with self._judging():
                dir.checkpoints.write_recovery_points()
                dir.checkpoints.write_cleaner_offsets()

    def write_log_start_offsets(self, directory_id: str) -> None:
        """Replace a dir's file of log start offsets, in the same way."""
        dir = self._dirs.get(directory_id)
        if dir is not None:
            with self._judging():
                dir.checkpoints.write_log_start_offsets()

    def record_log_start(self, log: LogId, directory_id: str, offsets: PartitionOffsets) -> None:
        """Write down at once where a log begins, since somebody is answered that it does.

        On a full disk it is kept for the next checkpoint: records are removed to make room, too.
        Raises NotLeader where the log, or the dir, is gone, and StorageError.
        """
        dir = self._dirs.get(directory_id)
        if dir is None:
            raise NotLeader(str(log.partition), "its log dir is not in use")
        dir.record_log_start(log, offsets.checkpointed())
        try:
            with self._judging():
                dir.checkpoints.write_log_start_offsets()
        except (DiskFull, OutOfResources) as error:
            warn(logger, "log-start-not-written", partition=log.partition, why=error)

    def settle_losses(self, log: LogId, directory_id: str, offsets: PartitionOffsets) -> None:
        """Write the recovery point of a log that was opened in spite of an accepted loss, at once.

        Then the acceptance is forgotten: the same records, produced again and lost again, are
        another loss. ``offsets``: of the log now. A crash in between leaves the acceptance to the
        next opening. Raises StorageError where the disk fails.
        """
        dir = self._dirs.get(directory_id)
        if dir is None or not dir.has(log):
            return
        dir.record_offsets(log, offsets.checkpointed())
        try:
            with self._judging():
                dir.checkpoints.write_recovery_points()
                drop_settled(self._fs, dir.folder(log.partition), offsets.log_end_offset)
        except (CorruptCheckpoint, DiskFull, OutOfResources) as error:  # the next opening does it
            warn(logger, "loss-not-settled", partition=log.partition, why=error)

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Where the compaction of each partition goes on, from memory.

        Of a partition that lies in two dirs, where it goes on in the one that serves it.
        """
        offsets: dict[TopicPartition, int] = {}
        for dir in self._dirs.dirs():
            for partition, offset in dir.checkpoints.cleaner_offsets().items():
                if partition not in offsets or self._is_served_from(dir, partition):
                    offsets[partition] = offset
        return offsets

    def _is_served_from(self, dir: OnlineDir, partition: TopicPartition) -> bool:
        log = dir.log_of(partition)
        return log is not None and self._homes.get(log) == dir.directory_id

    def record_cleaner_offset(self, log: LogId, directory_id: str, offset: int) -> None:
        """Write down at once where a log's compaction goes on.

        Nothing is written where the log, or the dir, is gone. Raises StorageError.
        """
        dir = self._dirs.get(directory_id)
        if dir is not None and dir.record_cleaner_offset(log, offset):
            with self._judging():
                dir.checkpoints.write_cleaner_offsets()

    # -- upkeep ------------------------------------------------------------------------------------

    def online(self) -> list[str]:
        """The ids of the dirs in use."""
        return [dir.directory_id for dir in self._dirs.dirs()]

    def unusable(self) -> list[Unusable]:
        """The dirs that could not be taken into use, and what to do about them."""
        return self._dirs.unusable()

    def check(self, directory_id: str) -> str | None:
        """Why a dir cannot be trusted any more: its disk failed, or it is gone. None: it can."""
        dir = self._dirs.get(directory_id)
        if dir is None:
            return None
        try:
            dir.check()
        except StorageError as error:
            return error.problem if error.is_disk_failure else None
        return None

    def lost_identities(self, directory_id: str) -> list[TopicPartition]:
        """The partitions whose folder does not say any more whose it is; it reads each."""
        dir = self._dirs.get(directory_id)
        if dir is None:
            return []
        with self._judging():
            return dir.lost_identities()

    def identities_found(self, directory_id: str) -> list[Folder]:
        """The folders that say again whose they are; it reads each that did not."""
        dir = self._dirs.get(directory_id)
        if dir is None:
            return []
        with self._judging():
            return dir.identities_found()

    def remove_deleted(self, directory_id: str) -> None:
        """Remove the folders whose delay is over.

        It also writes the cleaner offsets of new logs: of many at once, and soon. Raises
        StorageError.
        """
        dir = self._dirs.get(directory_id)
        if dir is not None:
            with self._judging():
                dir.remove_deleted()
                dir.checkpoints.write_cleaner_offsets()

    def usable_bytes(self, directory_id: str) -> int:
        """How much may still be written to a dir; -1 where it is unused. Raises StorageError."""
        dir = self._dirs.get(directory_id)
        if dir is None:
            return -1
        with self._judging():
            return dir.usable_bytes()

    def status(
        self, directory_id: str, node_id: str, opening: Set[TopicPartition] | None = None
    ) -> LogDirStatus:
        """What a dir holds, and how much room it has. It looks at every file.

        ``opening``: as of ``OnlineDir.progress``. Raises InvalidLogDir where this node has no such
        dir.
        """
        return self._dirs.status(directory_id, node_id, opening)
