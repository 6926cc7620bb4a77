"""LogManager: the Ray actor that owns one node's log dirs. One a node, named, detached, pinned to its node.

It locks the dirs, puts a new partition into the dir with the fewest, starts the LogActors of the partitions
that are there, and the actors of compaction and retention, keeps the checkpoint files, and ends it all in order.
What it knows it reads from the dirs: after a restart it adopts the LogActors that have lived on. What topics
*ought* to be is the Controller's to know.

Source: ``LogManager`` of Kafka.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import Any, NamedTuple

import ray

from raylog.actors.compaction_actor import CompactionActor
from raylog.actors.log_actor import LogActor, LogSpec, lock_patiently
from raylog.actors.messages import (
    Configured,
    Hosted,
    NoLogDirs,
    NotLeader,
    PartitionOffsets,
    PartitionStatus,
)
from raylog.actors.retention_actor import RetentionActor
from raylog.actors.runtime import (
    OPEN_TIMEOUT_S,
    Node,
    compaction_actor_name,
    create,
    find,
    is_restarted,
    kill,
    log_actor_name,
    log_manager_name,
    own_node,
    retention_actor_name,
    wait_for,
)
from raylog.storage.config import BrokerConfig, LogConfig
from raylog.storage.errors import CorruptCheckpoint, InvalidLogDir, LogMissing, RaylogError
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import create_log
from raylog.storage.log_dir import LogDir
from raylog.storage.log_dir import PartitionOffsets as Checkpointed
from raylog.storage.names import TopicPartition
from raylog.storage.state.properties import random_id, read_topic_id

logger = logging.getLogger(__name__)

# A node of a cluster whose disks are mounted elsewhere than the others' says so in its environment.
LOG_DIRS_VARIABLE = "RAYLOG_LOG_DIRS"
TICK_S = 0.2


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


def node_log_dirs(config: BrokerConfig) -> tuple[str, ...]:
    """This node's log dirs: those of the environment that Ray was started with, else ``log.dirs``."""
    override = os.environ.get(LOG_DIRS_VARIABLE)
    paths = BrokerConfig.parse({"log.dirs": override}).log_dirs if override else config.log_dirs
    if not paths:
        raise NoLogDirs("none is configured: set log.dirs")
    return paths


class LogManagerImpl:
    """The methods that the Controller calls."""

    def __init__(self, namespace: str, cluster_id: str, node_number: int, config: BrokerConfig) -> None:
        self._namespace, self._cluster_id, self._node_number, self._config = (
            namespace,
            cluster_id,
            node_number,
            config,
        )
        self._fs = RealFileSystem()
        self._node = own_node()
        self._lock = threading.RLock()
        self._dirs: list[LogDir] = []
        self._opened: dict[TopicPartition, str] = {}  # with the id of its topic
        self._configs: dict[TopicPartition, Configured] = {}  # of those opened since this process began
        self._last_offsets: dict[TopicPartition, Checkpointed] = {}
        self._life = random_id()
        self._stopped = threading.Event()
        if is_restarted():
            self._node.check_alone()
            self.start()
            self._opened = {entry.partition: entry.topic_id for entry in self.found() if entry.topic_id}

    def life(self) -> str:
        """Another one after each restart: what this actor was told before is gone."""
        return self._life

    def start(self) -> dict[str, str]:
        """Lock the log dirs and begin upkeep; fine if it has begun. Returns directory id -> path.

        Raises InvalidLogDir, LogLocked, InconsistentClusterId or CorruptCheckpoint, with no dir locked.
        """
        with self._lock:
            self._check_running("the log dirs")
            if not self._dirs:
                self._dirs = self._lock_dirs()
                threading.Thread(target=self._tick, name="upkeep", daemon=True).start()
            return {log_dir.directory_id: log_dir.path for log_dir in self._dirs}

    def _lock_dirs(self) -> list[LogDir]:
        dirs: list[LogDir] = []
        try:
            for path in node_log_dirs(self._config):
                dirs.append(
                    lock_patiently(partial(LogDir, self._fs, path, self._cluster_id, self._node_number))
                )
                self._last_offsets.update(dirs[-1].offsets())
                dirs[-1].purge()
        except RaylogError:
            for log_dir in dirs:
                log_dir.close(clean=log_dir.was_clean)
            raise
        return dirs

    # -- partitions ----------------------------------------------------------------------------------------

    def found(self) -> list[Found]:
        """The partitions on this node's disks."""
        return [
            Found(partition, self._topic_id_in(log_dir.folder(partition)), log_dir.directory_id)
            for log_dir in self._dirs
            for partition in log_dir.partitions()
        ]

    def create_partition(self, partition: TopicPartition, topic_id: str) -> Placed:
        """Make a new partition's folder, in the dir with the fewest. Nothing is left of it if that fails."""
        with self._lock:
            self._check_running(str(partition))
            log_dir = min(self._dirs, key=lambda candidate: len(candidate.partitions()))
            folder = log_dir.folder(partition)
            if self._fs.exists(folder):
                raise InvalidLogDir(folder, "a partition's folder is there already: move it away")
            try:
                create_log(self._fs, folder, topic_id)
            except RaylogError:
                self._fs.remove_dir(folder)
                raise
            return Placed(self._node.node_id, log_dir.directory_id, folder)

    def open_partition(
        self, partition: TopicPartition, topic_id: str, config: LogConfig, version: int = 0
    ) -> Placed:
        """Start the partition's LogActor, or find it running; returns when it serves, with this config.

        Raises why it cannot.
        """
        with self._lock:
            self._check_running(str(partition))
            log_dir = self._dir_of(partition)
            folder = log_dir.folder(partition)
            # A log that has been opened since the start is no longer as the orderly stop left it.
            is_clean = log_dir.was_clean and partition not in self._opened
            self._opened[partition] = topic_id
            known = self._configs[partition] = self._newer(partition, Configured(config, version))
            self._start_upkeep_of(known.config)
            expiration = self._config.producer_id_expiration_ms
            where = (self._namespace, log_manager_name(self._node.key))
            spec = LogSpec(
                partition, topic_id, folder, known.config, is_clean, expiration, known.version, *where
            )
            handle = self._start_actor(spec)  # under the lock: a shutdown or deletion that follows ends it
        if not self._serves(handle, spec):
            kill(log_actor_name(partition), self._namespace)
            with self._lock:
                self._check_running(str(partition))
                handle = self._start_actor(spec._replace(is_clean=False))
            if not self._serves(handle, spec):
                raise NotLeader(str(partition), "the actor that had its name is still ending")
        # One that has lived on may have been told of another config.
        wait_for(handle.reconfigure.remote(*known), f"configuring {partition}")
        return Placed(self._node.node_id, log_dir.directory_id, folder)

    def _newer(self, partition: TopicPartition, told: Configured) -> Configured:
        known = self._configs.get(partition, told)
        return told if told.version >= known.version else known

    def reconfigure(self, partition: TopicPartition, topic_id: str, config: LogConfig, version: int) -> None:
        """Have a partition obey another config from now on; returns when it does. Fine if it is another topic's."""
        with self._lock:
            self._check_running(str(partition))
            if self._opened.get(partition) != topic_id:
                return
            known = self._configs[partition] = self._newer(partition, Configured(config, version))
            self._start_upkeep_of(known.config)
        handle = find(log_actor_name(partition), self._namespace)
        if handle is None:
            raise NotLeader(str(partition), "its actor is being started")
        wait_for(handle.reconfigure.remote(*known), f"configuring {partition}")
        if not known.config.is_compacted:
            self._abandon_compaction(partition)

    def config_of(self, partition: TopicPartition) -> Configured | None:
        """What a partition obeys; None of one that this process has not opened yet."""
        with self._lock:
            return self._configs.get(partition)

    def _start_actor(self, spec: LogSpec) -> Any:
        return create(LogActor, log_actor_name(spec.partition), self._namespace, self._pinned_node(), spec)

    def _pinned_node(self) -> Node:
        """This node, as new actors are pinned to it: a label may be shared by now."""
        return own_node() if self._node.label else self._node

    def _serves(self, handle: Any, spec: LogSpec) -> bool:
        """False of an adopted actor that an unfinished stop or deletion left: closed, or another topic's."""
        return (
            wait_for(handle.topic_id.remote(), f"opening {spec.partition}", OPEN_TIMEOUT_S) == spec.topic_id
        )

    def delete_partition(self, partition: TopicPartition, topic_id: str) -> None:
        """End the partition's LogActor and remove its folder; fine if it is gone, or another topic's."""
        self._end_actor(partition, topic_id)
        with self._lock:
            self._check_running(str(partition))
            for log_dir in self._dirs:
                folder = log_dir.folder(partition)
                if self._fs.is_dir(folder) and self._topic_id_in(folder) == topic_id:
                    self._fs.remove_dir(log_dir.doom(partition))
            if self._opened.get(partition) == topic_id:
                del self._opened[partition]
                self._configs.pop(partition, None)
                kill(log_actor_name(partition), self._namespace)  # one that was opened in the meantime
            self._last_offsets.pop(partition, None)
            # A topic of the same name may come: it must not begin where this one's checkpoints left off.
            self._write_offsets()

    def set_aside(self, partition: TopicPartition, topic_id: str | None) -> str:
        """Rename the folder of a partition that no topic has any more; it is kept. Returns its new path."""
        # Its actor may have outlived a Controller that was killed in the middle of a deletion.
        self._end_actor(partition, topic_id)
        with self._lock:
            self._check_running(str(partition))
            return self._dir_of(partition).doom(partition, stray=True)

    def _check_running(self, what: str) -> None:
        if self._stopped.is_set():
            raise NotLeader(what, "the LogManager of its node is stopping")

    def _topic_id_in(self, folder: str) -> str | None:
        """Whose folder it is; None, which is no topic's, if that cannot be read."""
        try:
            return read_topic_id(self._fs, folder)
        except CorruptCheckpoint as error:
            logger.warning("%s", error)
            return None

    def _dir_of(self, partition: TopicPartition) -> LogDir:
        for log_dir in self._dirs:
            if self._fs.is_dir(log_dir.folder(partition)):
                return log_dir
        raise LogMissing(
            self._dirs[0].folder(partition), "the partition's folder is in none of this node's log dirs"
        )

    def _end_actor(self, partition: TopicPartition, topic_id: str | None) -> None:
        """End the LogActor in order, unless it is a newer topic's of the same name, which may be on another node."""
        handle = find(log_actor_name(partition), self._namespace)
        if handle is None:
            return
        try:
            if wait_for(handle.topic_id.remote(), f"closing {partition}") not in (topic_id, None):
                return
            wait_for(handle.close.remote(), f"closing {partition}")
        except RaylogError as error:
            logger.warning("%s: %s", partition, error)
        kill(log_actor_name(partition), self._namespace)

    # -- upkeep --------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Checkpoints, on their interval."""
        due: dict[Callable[[], Any], float] = {
            self.checkpoint: self._config.log_flush_offset_checkpoint_interval_ms / 1000,
        }
        last = dict.fromkeys(due, time.monotonic())
        while not self._stopped.wait(TICK_S):
            for task, interval_s in due.items():
                if time.monotonic() - last[task] >= interval_s:
                    last[task] = time.monotonic()
                    try:
                        task()
                    except Exception:  # Ray may fail in its own ways; the next round tries again
                        logger.exception("%s failed", task.__name__)

    def checkpoint(self) -> None:
        """Write what the LogActors say of their offsets to the checkpoint files; the last word of the silent ones."""
        with self._lock:
            asked = dict(self._opened)
        answers = self._ask_all(lambda handle: handle.offsets.remote())
        with self._lock:
            for partition, offsets in answers.items():
                # Meanwhile it may have been deleted, and another topic's made under its name.
                if partition in asked and self._opened.get(partition) == asked[partition]:
                    self._last_offsets[partition] = _checkpointed(offsets)
            self._write_offsets()

    def _write_offsets(self) -> None:
        for log_dir in self._dirs:
            self._write_offsets_of(log_dir)

    def _write_offsets_of(self, log_dir: LogDir) -> None:
        here = set(log_dir.partitions())
        log_dir.write_offsets({key: value for key, value in self._last_offsets.items() if key in here})

    def status(self) -> list[PartitionStatus]:
        """What every LogActor that answers says of itself."""
        return list(self._ask_all(lambda handle: handle.status.remote()).values())

    def _ask_all(self, call: Callable[[Any], Any]) -> Mapping[TopicPartition, Any]:
        with self._lock:
            names = {partition: log_actor_name(partition) for partition in self._opened}
        handles = {partition: find(name, self._namespace) for partition, name in names.items()}
        pending = {partition: call(handle) for partition, handle in handles.items() if handle is not None}
        answers = {}
        for partition, reference in pending.items():
            try:
                answers[partition] = wait_for(reference, str(partition))
            except Exception as error:  # Ray may fail in its own ways; the others are asked all the same
                logger.warning("%s does not answer: %s", partition, error)
        return answers

    # -- compaction and retention, which are other actors' work ------------------------------------------------

    def _start_upkeep_of(self, config: LogConfig) -> None:
        """Start the actor that looks after a log of this config, or find it running."""
        if not config.is_compacted:
            actor, name = RetentionActor, retention_actor_name(self._node.key)
        elif self._config.log_cleaner_enable and self._config.log_cleaner_threads:
            actor, name = CompactionActor, compaction_actor_name(self._node.key)
        else:
            return
        create(actor, name, self._namespace, self._pinned_node(), self._namespace, self._config)

    def _abandon_compaction(self, partition: TopicPartition) -> None:
        """Have a round given up whose swaps would be refused: it saves work, and is not waited for."""
        compaction = find(compaction_actor_name(self._node.key), self._namespace)
        if compaction is not None:
            compaction.abandon.remote(partition)

    def hosted(self) -> list[Hosted]:
        """The partitions that this node serves, with their configs of now."""
        with self._lock:
            return [
                Hosted(partition, self._opened[partition], log_dir.folder(partition), known.config)
                for partition, known in self._configs.items()
                for log_dir in self._dirs
                if partition in self._opened and self._fs.is_dir(log_dir.folder(partition))
            ]

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Where the compaction of each partition goes on."""
        with self._lock:
            return {
                partition: offset
                for log_dir in self._dirs
                for partition, offset in log_dir.cleaner_offsets().items()
            }

    def cleaned(self, partition: TopicPartition, topic_id: str, offset: int) -> None:
        """Write down where the compaction of a partition goes on; fine if it is gone, or another topic's."""
        with self._lock:
            if not self._stopped.is_set() and self._opened.get(partition) == topic_id:
                self._dir_of(partition).write_cleaner_offset(partition, offset)

    # -- the end -------------------------------------------------------------------------------------------

    def shutdown(self) -> bool:
        """Close every log in order, write the checkpoints and the clean-shutdown markers, unlock the dirs.

        Returns whether all of it was clean; a dir with a log that could not be closed, or whose checkpoints
        could not be written, gets no marker.
        """
        self._stopped.set()
        for name in (compaction_actor_name(self._node.key), retention_actor_name(self._node.key)):
            kill(name, self._namespace)
        closed = self._ask_all(lambda handle: handle.close.remote())
        with self._lock:
            for partition in self._opened:  # before anything can fail: a closed actor must not be found again
                kill(log_actor_name(partition), self._namespace)
            self._opened.clear()
            self._last_offsets.update(
                (partition, _checkpointed(offsets)) for partition, offsets in closed.items()
            )
            dirs, self._dirs = self._dirs, []
            were_clean = [self._close_dir(log_dir, set(closed)) for log_dir in dirs]
            return all(were_clean)

    def _close_dir(self, log_dir: LogDir, closed: Set[TopicPartition]) -> bool:
        """Write the dir's checkpoints and marker, and unlock it whatever fails; returns whether it is clean."""
        try:
            self._write_offsets_of(log_dir)
            is_clean = closed >= set(log_dir.partitions())
            log_dir.close(clean=is_clean)
            return is_clean
        except RaylogError as error:
            logger.warning("%s was not closed in order: %s", log_dir.path, error)
            log_dir.close(clean=False)
            return False


LogManager = ray.remote(max_concurrency=16, num_cpus=0, max_restarts=-1, max_task_retries=0)(LogManagerImpl)


def _checkpointed(offsets: PartitionOffsets) -> Checkpointed:
    return Checkpointed(offsets.recovery_point, offsets.log_start_offset, offsets.high_watermark)
