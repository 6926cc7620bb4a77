"""LogManager: the Ray actor that owns one node's log dirs. One a node, named, detached, pinned to its node.

It locks the dirs, makes and opens partitions, starts the actors of compaction and retention, keeps the checkpoint
files, removes what was deleted, takes a dir offline whose disk fails, and ends it all in order. What it knows it
reads from the dirs (``node_dirs.py``): after a restart it adopts the LogActors that have lived on. What topics
*ought* to be is the Controller's to know.

**The lock** guards what is known of the dirs, and is never held over a wait for a LogActor or over the removal of
a folder. Of each dir only ``num.recovery.threads.per.data.dir`` partitions that were found at the start are being
opened at once; the dirs do not wait for each other.

Source: ``LogManager`` of Kafka.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

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
from raylog.actors.node_dirs import Found, NodeDirs, Placed
from raylog.actors.retention_actor import RetentionActor
from raylog.actors.runtime import (
    CALL_TIMEOUT_S,
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
from raylog.storage.clock import SystemClock
from raylog.storage.config import BrokerConfig, LogConfig
from raylog.storage.errors import RaylogError, StorageError
from raylog.storage.files import RealFileSystem
from raylog.storage.log_dir import LogDir
from raylog.storage.log_dir import PartitionOffsets as Checkpointed
from raylog.storage.names import TopicPartition
from raylog.storage.state.properties import random_id

logger = logging.getLogger(__name__)

# A node of a cluster whose disks are mounted elsewhere than the others' says so in its environment.
LOG_DIRS_VARIABLE = "RAYLOG_LOG_DIRS"
# How often the dirs are looked at, and the deletion queue.
UPKEEP_INTERVAL_S = 1.0
# Each call that opens a partition holds a thread until it serves.
OPENED_AT_ONCE = 64


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
        self._dirs = NodeDirs(self._fs, SystemClock(), config.topic_defaults.file_delete_delay_ms)
        self._loading: dict[str, threading.Semaphore] = {}  # by directory id
        self._life = random_id()
        self._stopped = threading.Event()
        if is_restarted():
            self._node.check_alone()
            self.start()
            self._dirs.adopt()

    def life(self) -> str:
        """Another one after each restart: what this actor was told before is gone."""
        return self._life

    def start(self) -> dict[str, str]:
        """Lock the log dirs and begin upkeep; fine if it has begun. Returns directory id -> path.

        A dir that cannot be used is offline, and ``log_dirs()`` tells why. Raises LogLocked,
        InconsistentClusterId, DuplicateLogDir, or why the first cannot be used where none can, with no dir locked.
        """
        with self._lock:
            self._check_running("the log dirs")
            if not self._loading:
                self._dirs.lock(node_log_dirs(self._config), self._lock_dir)
                self._loading = {
                    directory_id: threading.Semaphore(self._config.num_recovery_threads_per_data_dir)
                    for directory_id in self._dirs.paths
                }
                self._begin_upkeep()
            return self._dirs.paths

    def _lock_dir(self, path: str) -> LogDir:
        return lock_patiently(partial(LogDir, self._fs, path, self._cluster_id, self._node_number))

    # -- partitions ----------------------------------------------------------------------------------------

    def found(self) -> list[Found]:
        """The partitions on this node's disks."""
        with self._lock:
            return self._dirs.found()

    def create_partition(self, partition: TopicPartition, topic_id: str) -> Placed:
        """Make a new partition's folder, in the dir with the fewest. Nothing is left of it if that fails."""
        with self._lock:
            self._check_running(str(partition))
            dir = self._dirs.create(partition, topic_id)
            return Placed(self._node.node_id, dir.directory_id, dir.folder(partition))

    @ray.method(concurrency_group="open")
    def open_partition(
        self,
        partition: TopicPartition,
        topic_id: str,
        config: LogConfig,
        version: int = 0,
        directory_id: str | None = None,
    ) -> Placed:
        """Start the partition's LogActor, or find it running; returns when it serves, with this config.

        ``directory_id``: the log dir that it must be in; without it, whichever has it. Raises why it cannot.
        """
        with self._lock:
            self._check_running(str(partition))
            dir = self._dirs.dir_of(partition, directory_id)
            place = Placed(self._node.node_id, dir.directory_id, dir.folder(partition))
            is_first = partition in dir.to_load
        turn: AbstractContextManager[Any] = self._loading[place.directory_id] if is_first else nullcontext()
        with turn:
            begin = time.monotonic()
            try:
                self._open(partition, topic_id, place, Configured(config, version))
            except StorageError as error:
                self.failed(partition, topic_id, error)
                raise
            finally:
                self._opened(partition, place, time.monotonic() - begin)
        return place

    def _open(self, partition: TopicPartition, topic_id: str, place: Placed, told: Configured) -> None:
        expiration_ms, manager = self._config.producer_id_expiration_ms, log_manager_name(self._node.key)
        spec = LogSpec(
            partition,
            topic_id,
            place.folder,
            told.config,
            False,
            expiration_ms,
            told.version,
            self._namespace,
            manager,
        )
        handle, known = self._start_actor(spec, place)
        if not self._serves(handle, spec):
            kill(log_actor_name(partition), self._namespace)
            handle, known = self._start_actor(spec, place)
            if not self._serves(handle, spec):
                raise NotLeader(str(partition), "the actor that had its name is still ending")
        # One that has lived on may have been told of another config.
        wait_for(handle.reconfigure.remote(*known), f"configuring {partition}")

    def _start_actor(self, spec: LogSpec, place: Placed) -> tuple[Any, Configured]:
        """The LogActor, and what it is to obey: a newer config may have been told meanwhile."""
        with self._lock:  # over the start: a shutdown or deletion that follows ends it
            self._check_running(str(spec.partition))
            told = Configured(spec.config, spec.config_version)
            known, is_clean = self._dirs.open(spec.partition, spec.topic_id, place.directory_id, told)
            self._start_upkeep_of(known.config)
            spec = spec._replace(is_clean=is_clean, config=known.config, config_version=known.version)
            return create(
                LogActor, log_actor_name(spec.partition), self._namespace, self._pinned_node(), spec
            ), known

    def reconfigure(self, partition: TopicPartition, topic_id: str, config: LogConfig, version: int) -> None:
        """Have a partition obey another config from now on; returns when it does. Fine if it is another topic's."""
        with self._lock:
            self._check_running(str(partition))
            known = self._dirs.configure(partition, topic_id, Configured(config, version))
            if known is None:
                return
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
            opened = self._dirs.opened.get(partition)
            return None if opened is None else opened.configured

    def _pinned_node(self) -> Node:
        """This node, as new actors are pinned to it: a label may be shared by now."""
        return own_node() if self._node.label else self._node

    def _serves(self, handle: Any, spec: LogSpec) -> bool:
        """False of an adopted actor that an unfinished stop, deletion or move left: closed, or of another folder."""
        serving = wait_for(handle.serving.remote(), f"opening {spec.partition}", OPEN_TIMEOUT_S)
        return serving == (spec.topic_id, spec.folder)

    def _opened(self, partition: TopicPartition, place: Placed, seconds: float) -> None:
        """Progress of the start; a partition whose opening failed counts, too, and its error was told."""
        with self._lock:
            if place.directory_id in self._dirs.paths:
                dir = self._dirs.online(place.directory_id)
                if dir.opened(partition):
                    total = dir.loaded + len(dir.to_load)
                    logger.info("%s: %d of %d loaded, %.1f s", place.folder, dir.loaded, total, seconds)

    def delete_partition(self, partition: TopicPartition, topic_id: str) -> None:
        """End the partition's LogActor and rename its folder, to be removed after ``file.delete.delay.ms``.

        Fine if it is gone, or another topic's.
        """
        self._end_actor(partition, topic_id)
        with self._lock:
            self._check_running(str(partition))
            was_opened = partition in self._dirs.opened
            self._dirs.delete(partition, topic_id)
            if was_opened and partition not in self._dirs.opened:
                kill(log_actor_name(partition), self._namespace)  # one that was opened in the meantime

    def set_aside(
        self, partition: TopicPartition, topic_id: str | None, directory_id: str | None = None
    ) -> str:
        """Rename the folder of a partition that no topic has any more; it is kept. Returns its new path."""
        with self._lock:
            self._check_running(str(partition))
            folder = self._dirs.dir_of(partition, directory_id).folder(partition)
        # Its actor may have outlived a Controller that was killed in the middle of a deletion.
        self._end_actor(partition, topic_id, folder)
        with self._lock:
            self._check_running(str(partition))
            return self._dirs.set_aside(partition, directory_id)

    def _check_running(self, what: str) -> None:
        if self._stopped.is_set():
            raise NotLeader(what, "the LogManager of its node is stopping")

    def _end_actor(self, partition: TopicPartition, topic_id: str | None, folder: str | None = None) -> None:
        """End the LogActor in order, if it serves this topic (and folder): a newer topic's of the same name may run
        here or on another node."""
        handle = find(log_actor_name(partition), self._namespace)
        if handle is None:
            return
        try:
            serving = wait_for(handle.serving.remote(), f"closing {partition}")
            if serving is not None and (serving[0] != topic_id or folder not in (None, serving[1])):
                return
            wait_for(handle.close.remote(), f"closing {partition}")
        except RaylogError as error:
            logger.warning("%s: %s", partition, error)
        kill(log_actor_name(partition), self._namespace)

    # -- upkeep --------------------------------------------------------------------------------------------

    def _begin_upkeep(self) -> None:
        """Each task in a thread of its own: a LogActor that does not answer must not hold up the look at the disks."""
        config = self._config
        for task, interval_s in (
            (self.checkpoint, config.log_flush_offset_checkpoint_interval_ms / 1000),
            (self.checkpoint_starts, config.log_flush_start_offset_checkpoint_interval_ms / 1000),
            (self.look_at_dirs, UPKEEP_INTERVAL_S),
            (self.remove_deleted, UPKEEP_INTERVAL_S),
        ):
            threading.Thread(
                target=self._repeat, args=(task, interval_s), name=task.__name__, daemon=True
            ).start()

    def _repeat(self, task: Callable[[], Any], interval_s: float) -> None:
        due = time.monotonic() + interval_s
        while not self._stopped.wait(max(0.0, min(due - time.monotonic(), threading.TIMEOUT_MAX))):
            due = max(due + interval_s, time.monotonic())
            try:
                task()
            except Exception:  # Ray may fail in its own ways; the next round tries again
                logger.exception("%s failed", task.__name__)

    def checkpoint(self) -> None:
        """Write recovery points and high watermarks, as the LogActors tell them; the last word of the silent ones."""
        self._note_offsets()
        with self._lock:
            self._dirs.write_recovery_points()
        self._kill_orphans()

    def checkpoint_starts(self) -> None:
        """Write the log start offsets, in the same way."""
        self._note_offsets()
        with self._lock:
            self._dirs.write_log_start_offsets()
        self._kill_orphans()

    def _note_offsets(self) -> None:
        with self._lock:
            asked = dict(self._dirs.opened)
        answers = self._ask_all(lambda handle: handle.offsets.remote())
        with self._lock:
            for partition, offsets in answers.items():
                if partition in asked:
                    self._dirs.note(partition, asked[partition], _checkpointed(offsets))

    def look_at_dirs(self) -> None:
        """Take the dirs offline that have vanished."""
        with self._lock:
            self._dirs.check()
        self._kill_orphans()

    def failed(self, partition: TopicPartition, topic_id: str, error: StorageError) -> None:
        """A LogActor's log has failed: if its disk is to blame, the whole dir goes offline."""
        with self._lock:
            opened = self._dirs.opened.get(partition)
            if error.is_disk_failure and opened is not None and opened.topic_id == topic_id:
                self._dirs.fail(opened.directory_id, str(error))
        self._kill_orphans()

    def _kill_orphans(self) -> None:
        """LogActors of a dir that failed end without another word to its disk."""
        with self._lock:
            orphans = self._dirs.take_orphans()
        for partition in orphans:
            kill(log_actor_name(partition), self._namespace)

    def remove_deleted(self) -> None:
        """Remove the folders whose delay is over."""
        with self._lock:
            due = self._dirs.due_deletions()
        for folder in due:
            try:
                self._fs.remove_dir(folder)
            except StorageError as error:  # the next start finds it again
                logger.warning("%s was not removed: %s", folder, error)

    def status(self) -> list[PartitionStatus]:
        """What every LogActor that answers says of itself."""
        return list(self._ask_all(lambda handle: handle.status.remote()).values())

    def _ask_all(self, call: Callable[[Any], Any]) -> Mapping[TopicPartition, Any]:
        """The answers of those LogActors that answer within the time of one call."""
        with self._lock:
            names = {partition: log_actor_name(partition) for partition in self._dirs.opened}
        handles = {partition: find(name, self._namespace) for partition, name in names.items()}
        pending = {partition: call(handle) for partition, handle in handles.items() if handle is not None}
        deadline = time.monotonic() + CALL_TIMEOUT_S
        answers = {}
        for partition, reference in pending.items():
            try:
                answers[partition] = wait_for(reference, str(partition), max(0, deadline - time.monotonic()))
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
        """The partitions that this node serves, as far as their config is known."""
        with self._lock:
            return self._dirs.hosted()

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Where the compaction of each partition goes on."""
        with self._lock:
            return self._dirs.cleaner_offsets()

    def cleaned(self, partition: TopicPartition, topic_id: str, offset: int) -> None:
        """Write down where the compaction of a partition goes on; fine if it is gone, or another topic's."""
        with self._lock:
            if not self._stopped.is_set():
                self._dirs.cleaned(partition, topic_id, offset)

    # -- the end -------------------------------------------------------------------------------------------

    def shutdown(self) -> bool:
        """Close every log in order, write the checkpoints and the clean-shutdown markers, unlock the dirs.

        Returns whether all of it was clean; see ``OnlineDir.unlock``.
        """
        self._stopped.set()
        for name in (compaction_actor_name(self._node.key), retention_actor_name(self._node.key)):
            kill(name, self._namespace)
        with self._lock:
            asked = dict(self._dirs.opened)
        closed = self._ask_all(lambda handle: handle.close.remote())
        with self._lock:
            for partition in asked:  # before anything can fail: a closed actor must not be found again
                kill(log_actor_name(partition), self._namespace)
            for partition, offsets in closed.items():
                self._dirs.note(partition, asked[partition], _checkpointed(offsets))
            return self._dirs.unlock(set(closed))


LogManager = ray.remote(
    concurrency_groups={"open": OPENED_AT_ONCE},
    max_concurrency=16,
    num_cpus=0,
    max_restarts=-1,
    max_task_retries=0,
)(LogManagerImpl)


def _checkpointed(offsets: PartitionOffsets) -> Checkpointed:
    return Checkpointed(offsets.recovery_point, offsets.log_start_offset, offsets.high_watermark)
