"""LogManager: the Ray actor that owns one node's log dirs. One a node, named, detached, pinned to
its node.

It locks the dirs, makes, opens and deletes partitions, starts the actors of compaction and
retention, keeps the dirs (``dir_keeper.py``), moves partitions between them (``mover.py``), and
ends it all in order. What it knows it reads from the dirs (``node_dirs.py``): after a restart it
adopts the LogActors that have lived on. What topics *ought* to be is the Controller's to know.

Of each dir only ``num.recovery.threads.per.data.dir`` of the partitions that were found at the
start are being opened at once; the dirs do not wait for each other.

Source: ``LogManager`` of Kafka.
"""

import logging
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import ray

from raylog.actors.errors import NotLeader
from raylog.actors.events import event, set_up_logs, warn
from raylog.actors.messages import Configured
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.dir_keeper import LOG_DIRS_VARIABLE, checkpointed, node_log_dirs
from raylog.actors.node.dirs import Found, Placed
from raylog.actors.node.mover import MOVES_AT_ONCE, Mover
from raylog.actors.partition.log_actor import LogActor, LogSpec, lock_patiently
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, OPEN_TIMEOUT_S, wait_for
from raylog.actors.runtime.handles import create, find, kill
from raylog.actors.runtime.names import (
    Node,
    compaction_actor_name,
    log_actor_name,
    log_manager_name,
    retention_actor_name,
)
from raylog.actors.runtime.nodes import is_restarted, own_name, own_node
from raylog.actors.upkeep.compaction_actor import CompactionActor
from raylog.actors.upkeep.retention_actor import RetentionActor
from raylog.storage.config import LogConfig
from raylog.storage.errors import RaylogError, StorageError
from raylog.storage.log_dir import LogDir
from raylog.storage.names import TopicPartition

__all__ = ["LOG_DIRS_VARIABLE", "LogManager", "LogManagerImpl", "node_log_dirs"]

logger = logging.getLogger(__name__)

# Each call that opens a partition holds a thread until it serves.
OPENED_AT_ONCE = 64
# Each log flushes what it has, all at once on a few disks. The Controller waits a little longer.
CLOSE_TIMEOUT_S = OPEN_TIMEOUT_S - 2 * CALL_TIMEOUT_S


class LogManagerImpl(Mover):
    """The methods that the Controller calls."""

    def __init__(
        self, namespace: str, cluster_id: str, node_number: int, config: BrokerConfig
    ) -> None:
        set_up_logs(own_name())
        super().__init__(namespace, config)
        self._cluster_id, self._node_number = cluster_id, node_number
        # by directory id: who may open what the start found
        self._turns: dict[str, threading.Semaphore] = {}
        if is_restarted():
            self._node.check_alone()
            self.start()
            self._dirs.adopt()

    def start(self) -> dict[str, str]:
        """Lock the log dirs and begin upkeep; fine if it has begun. Returns directory id -> path.

        A dir that cannot be used is offline, and ``log_dirs()`` tells why. Raises LogLocked,
        InconsistentClusterId, DuplicateLogDir, or why the first cannot be used where none can, with
        no dir locked.
        """
        with self._lock:
            self._check_running("the log dirs")
            if not self._turns:
                self._dirs.lock(node_log_dirs(self._config), self._lock_dir)
                at_once = self._config.num_recovery_threads_per_data_dir
                self._turns = {
                    directory_id: threading.Semaphore(at_once) for directory_id in self._dirs.paths
                }
                self._begin_upkeep()
            return self._dirs.paths

    def _lock_dir(self, path: str) -> LogDir:
        return lock_patiently(partial(LogDir, self._fs, path, self._cluster_id, self._node_number))

    def found(self) -> list[Found]:
        """The partitions on this node's disks."""
        with self._lock:
            return self._dirs.found()

    # -- making and opening ------------------------------------------------------------------------

    def create_partition(self, partition: TopicPartition, topic_id: str) -> Placed:
        """Make a new partition's folder, in the dir with the fewest. Nothing is left of it if that
        fails."""
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
        """Start the partition's LogActor, or find it running; returns when it serves, with this
        config.

        ``directory_id``: the log dir that it must be in; without it, whichever has it. Raises why
        it cannot.
        """
        with self._lock:
            self._check_running(str(partition))
        dir = self._dirs.dir_of(partition, directory_id)  # a look at its disk, which may hang
        with self._lock:
            self._check_running(str(partition))
            self._settle_move(partition, dir.directory_id)
            place = Placed(self._node.node_id, dir.directory_id, dir.folder(partition))
            is_first = partition in dir.to_load
        turn: AbstractContextManager[Any] = (
            self._turns[place.directory_id] if is_first else nullcontext()
        )
        with turn:
            begin = time.monotonic()
            try:
                self._open(partition, topic_id, place, Configured(config, version))
            except RaylogError as error:
                if isinstance(error, StorageError):
                    self.failed(partition, topic_id, error)
                with self._lock:
                    self._dirs.online(place.directory_id)  # raises LogDirOffline, which tells more
                raise
            finally:
                self._opened(partition, place, time.monotonic() - begin)
        return place

    def _open(
        self, partition: TopicPartition, topic_id: str, place: Placed, told: Configured
    ) -> None:
        spec = LogSpec(
            partition,
            topic_id,
            place.folder,
            told.config,
            False,
            self._config.producer_id_expiration_ms,
            told.version,
            self._namespace,
            log_manager_name(self._node.key),
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
            known, is_clean = self._dirs.open(
                spec.partition, spec.topic_id, place.directory_id, told
            )
            self._start_upkeep_of(known.config)
            spec = spec._replace(
                is_clean=is_clean, config=known.config, config_version=known.version
            )
            name = log_actor_name(spec.partition)
            return create(LogActor, name, self._namespace, self._pinned_node(), spec), known

    def _pinned_node(self) -> Node:
        """This node, as new actors are pinned to it: a label may be shared by now."""
        return own_node() if self._node.label else self._node

    def _serves(self, handle: Any, spec: LogSpec) -> bool:
        """False of an adopted actor that an unfinished stop, deletion or move left: closed, or of
        another folder."""
        serving = wait_for(handle.serving.remote(), f"opening {spec.partition}", OPEN_TIMEOUT_S)
        return serving == (spec.topic_id, spec.folder, self._node.node_id)

    def _opened(self, partition: TopicPartition, place: Placed, seconds: float) -> None:
        """Progress of the start; a partition whose opening failed counts, too: its error was
        told."""
        with self._lock:
            if place.directory_id not in self._dirs.paths:
                return
            dir = self._dirs.online(place.directory_id)
            if dir.opened(partition):
                of = dir.loaded + len(dir.to_load)
                event(
                    logger,
                    "log-loaded",
                    folder=place.folder,
                    loaded=dir.loaded,
                    of=of,
                    seconds=seconds,
                )

    @ray.method(concurrency_group="move")
    def move_partition(self, partition: TopicPartition, topic_id: str, directory_id: str) -> Placed:
        """See :meth:`raylog.actors.node.mover.Mover.move`."""
        return self.move(partition, topic_id, directory_id)

    # -- configs, compaction and retention ---------------------------------------------------------

    def reconfigure(
        self, partition: TopicPartition, topic_id: str, config: LogConfig, version: int
    ) -> None:
        """Have a partition obey another config from now on; returns when it does. Fine if it is
        another topic's."""
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

    def _start_upkeep_of(self, config: LogConfig) -> None:
        """Start the actor that looks after a log of this config, or find it running."""
        if not config.is_compacted:
            actor, name = RetentionActor, retention_actor_name(self._node.key)
        elif self._config.log_cleaner_enable and self._config.log_cleaner_threads:
            actor, name = CompactionActor, compaction_actor_name(self._node.key)
        else:
            return
        create(actor, name, self._namespace, self._pinned_node(), self._namespace, self._config)

    # -- the end of a partition --------------------------------------------------------------------

    def delete_partition(self, partition: TopicPartition, topic_id: str) -> None:
        """End the partition's LogActor and rename its folder, to be removed after
        ``file.delete.delay.ms``.

        Fine if it is gone, or another topic's.
        """
        self._end_actor(partition, topic_id)
        with self._lock:
            self._check_running(str(partition))
            was_opened = partition in self._dirs.opened
            self._moves.pop(partition, None)  # which is given up where it is
            self._dirs.delete(partition, topic_id)
            if was_opened and partition not in self._dirs.opened:
                # one that was opened in the meantime
                kill(log_actor_name(partition), self._namespace)
        self._kill_orphans()

    def set_aside(
        self, partition: TopicPartition, topic_id: str | None, directory_id: str | None = None
    ) -> str:
        """Rename the folder of a partition that no topic has any more; it is kept. Returns its new
        path."""
        with self._lock:
            self._check_running(str(partition))
            folder = self._dirs.dir_of(partition, directory_id).folder(partition)
        # Its actor may have outlived a Controller that was killed in the middle of a deletion.
        self._end_actor(partition, topic_id, folder)
        with self._lock:
            self._check_running(str(partition))
            return self._dirs.set_aside(partition, topic_id, directory_id)

    def _end_actor(
        self, partition: TopicPartition, topic_id: str | None, folder: str | None = None
    ) -> None:
        """End the LogActor in order, if it serves this topic (and this node's folder): a newer
        topic's of the same name may run here or on another node. One that does not say what it
        serves ends if the topic's log is here."""
        handle = find(log_actor_name(partition), self._namespace)
        if handle is None:
            return
        is_here = (folder, self._node.node_id)
        try:
            serving = wait_for(handle.serving.remote(), f"closing {partition}")
            if serving is not None and (
                serving[0] != topic_id or (folder and serving[1:] != is_here)
            ):
                return
            wait_for(handle.close.remote(), f"closing {partition}")
        except RaylogError as error:
            with self._lock:
                if not self._dirs.has(partition, topic_id):
                    return
            warn(logger, "log-not-closed", partition=partition, why=error)
        kill(log_actor_name(partition), self._namespace)

    # -- the end -----------------------------------------------------------------------------------

    def shutdown(self) -> bool:
        """Close every log in order, write the checkpoints and the clean-shutdown markers, unlock
        the dirs.

        Returns whether all of it was clean; see ``OnlineDir.unlock``.
        """
        self._stopped.set()
        for name in (compaction_actor_name(self._node.key), retention_actor_name(self._node.key)):
            kill(name, self._namespace)
        with self._lock:
            asked = dict(self._dirs.opened)
        closed = self._ask_all(lambda handle: handle.close.remote(), CLOSE_TIMEOUT_S)
        with self._lock:
            # before anything can fail: a closed actor must not be found again
            for partition in asked:
                kill(log_actor_name(partition), self._namespace)
            for partition, offsets in closed.items():
                self._dirs.note(partition, asked[partition], checkpointed(offsets))
            return self._dirs.unlock(set(closed))


LogManager = ray.remote(
    concurrency_groups={"open": OPENED_AT_ONCE, "move": MOVES_AT_ONCE},
    max_concurrency=16,
    num_cpus=0,
    max_restarts=-1,
    max_task_retries=0,
)(LogManagerImpl)
