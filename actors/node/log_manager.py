"""LogManager: the Ray actor that owns one node's log dirs.

One a node, named, detached, pinned to its node. It locks the dirs, makes, opens and deletes
partitions, starts the actors of compaction and retention, keeps the dirs (``dir_keeper.py``), moves
partitions between them (``mover.py``), and ends all of it in order. What it knows it reads from the
dirs (``dirs.py``): after a restart it adopts the LogActors that have lived on. Which topics there
*ought* to be, the Controller knows.

Of the partitions that a dir had at the start, only ``num.recovery.threads.per.data.dir`` are opened
at once. The dirs do not wait for each other.

Source: ``LogManager`` of Kafka.
"""

import logging
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import ray

from raylog.actors.errors import LogRefused, NotLeader
from raylog.actors.events import event, set_up_logs, warn
from raylog.actors.messages import Configured, Found, OpeningReport, Placed, Serving
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.dir_keeper import LOG_DIRS_VARIABLE, node_log_dirs
from raylog.actors.node.mover import MOVES_AT_ONCE, Mover
from raylog.actors.partition.locking import lock_patiently
from raylog.actors.partition.log_actor import LogActor, LogSpec
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, OPEN_TIMEOUT_S
from raylog.actors.runtime.handles import create, kill
from raylog.actors.runtime.names import (
    Node,
    compaction_actor_name,
    log_actor_name,
    retention_actor_name,
)
from raylog.actors.runtime.nodes import is_restarted, own_name, own_node
from raylog.actors.runtime.stubs import LogActorStub, find_log_actor
from raylog.actors.upkeep.compaction_actor import CompactionActor
from raylog.actors.upkeep.retention_actor import RetentionActor
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    CorruptCheckpoint,
    FlushedRecordsMissing,
    LogMissing,
    LogShorterThanFlushed,
    RaylogError,
    StorageError,
    TopicIdUnreadable,
)
from raylog.storage.log_dir import LogDir
from raylog.storage.names import TopicPartition

__all__ = ["LOG_DIRS_VARIABLE", "LogManager", "LogManagerImpl", "node_log_dirs"]

logger = logging.getLogger(__name__)

# Why a log is not opened, with all of its records where they were: the names that LogRefused has.
UNCHANGED = {
    error.__name__
    for error in (
        CorruptCheckpoint,
        FlushedRecordsMissing,
        LogMissing,
        LogShorterThanFlushed,
        TopicIdUnreadable,
    )
}
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
        # by directory id; held while a partition that was there at the start is first opened
        self._load_slots: dict[str, threading.Semaphore] = {}
        if is_restarted():
            self._node.check_alone()
            self.start()
            self._dirs.adopt()

    def start(self) -> dict[str, str]:
        """Lock the log dirs and begin upkeep; fine if it has begun. Returns directory id -> path.

        A dir that cannot be used is offline; ``log_dirs()`` says why. Raises LogLocked,
        InconsistentClusterId, DuplicateLogDir, or why the first cannot be used where none can, with
        no dir locked.
        """
        with self._lock:
            self._check_running("the log dirs")
            if not self._load_slots:
                self._dirs.lock(node_log_dirs(self._config), self._lock_dir)
                at_once = self._config.num_recovery_threads_per_data_dir
                self._load_slots = {
                    directory_id: threading.Semaphore(at_once) for directory_id in self._dirs.paths
                }
                self._begin_upkeep()
            return self._dirs.paths

    def _lock_dir(self, path: str) -> LogDir:
        return lock_patiently(partial(LogDir, self._fs, path, self._cluster_id, self._node_number))

    def found(self) -> list[Found]:
        """The partitions on this node's disks."""
        with self._lock:
            return self._dirs.partitions_on_disk()

    # -- making and opening ------------------------------------------------------------------------

    def create_partition(self, partition: TopicPartition, topic_id: str) -> Placed:
        """Make a new partition's folder, in the dir with the fewest partitions.

        Nothing is left of it if that fails.
        """
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
        """Start the partition's LogActor, or find it running; return when it serves this config.

        ``directory_id``: the log dir that must have the partition; None: any. Raises why the
        partition cannot be opened.
        """
        with self._lock:
            self._check_running(str(partition))
        dir = self._dirs.dir_of(partition, directory_id)  # reads its disk, which may hang
        with self._lock:
            self._check_running(str(partition))
            self._settle_move(partition, dir.directory_id)
            place = Placed(self._node.node_id, dir.directory_id, dir.folder(partition))
            is_first = partition in dir.to_load
        slot: AbstractContextManager[Any] = nullcontext()
        if is_first:
            slot = self._load_slots[place.directory_id]
        with slot:
            begin_s = time.monotonic()
            try:
                report = self._open(partition, topic_id, place, Configured(config, version))
            except RaylogError as error:
                if isinstance(error, StorageError):
                    self.failed(partition, topic_id, error)
                with self._lock:
                    dir = self._dirs.online(place.directory_id)  # LogDirOffline says more
                    if isinstance(error, LogRefused) and error.error in UNCHANGED:
                        dir.refused(partition)
                raise
            finally:
                self._count_loaded(partition, place, time.monotonic() - begin_s)
        return place._replace(report=report)

    def _open(
        self, partition: TopicPartition, topic_id: str, place: Placed, requested: Configured
    ) -> OpeningReport:
        """Start the LogActor, or find it running; returns what opening its log did."""
        spec = LogSpec(
            partition=partition,
            topic_id=topic_id,
            folder=place.folder,
            config=requested.config,
            is_clean=False,
            producer_expiration=self._config.producer_expiration,
            config_version=requested.version,
            namespace=self._namespace,
            node=self._node.key,
        )
        log, newest = self._start_actor(spec, place)
        report = self._opening_of(log, spec, newest)
        if report is None:
            kill(log_actor_name(partition), self._namespace)
            log, newest = self._start_actor(spec, place)
            report = self._opening_of(log, spec, newest)
        if report is None:
            raise NotLeader(str(partition), "its previous LogActor is still ending")
        if any(total.kind == "lost" for total in report.totals):
            self._dirs.settle_losses(partition, log.offsets().get())
        # One that has lived on may have another config.
        log.reconfigure(newest).get()
        return report

    def _start_actor(self, spec: LogSpec, place: Placed) -> tuple[LogActorStub, Configured]:
        """The LogActor, and the config that it is to obey: a newer one may have come meanwhile."""
        with self._lock:  # over the start: a shutdown or deletion that follows ends it
            self._check_running(str(spec.partition))
            requested = Configured(spec.config, spec.config_version)
            newest, is_clean = self._dirs.open(
                spec.partition, spec.topic_id, place.directory_id, requested
            )
            self._start_upkeep_of(newest.config)
            spec = spec._replace(
                is_clean=is_clean, config=newest.config, config_version=newest.version
            )
            name = log_actor_name(spec.partition)
            handle = create(LogActor, name, self._namespace, self._pinned_node(), spec)
            return LogActorStub(handle, spec.partition), newest

    def _pinned_node(self) -> Node:
        """This node, as new actors are pinned to it: another may carry its label by now."""
        return own_node() if self._node.label else self._node

    def _opening_of(
        self, log: LogActorStub, spec: LogSpec, newest: Configured
    ) -> OpeningReport | None:
        """What opening this log did; None if the actor does not serve it.

        One that was adopted may not: an unfinished stop, deletion or move leaves it closed, or with
        another folder. One that Ray has started again may wait for its config.
        """
        serving = log.learn(newest).get(OPEN_TIMEOUT_S)
        if serving is None:
            return None
        is_own = self._is_same_log(serving, spec.topic_id, spec.folder)
        return serving.report if is_own else None

    def _count_loaded(self, partition: TopicPartition, place: Placed, seconds: float) -> None:
        """Count the progress of the start.

        A partition whose opening has failed counts, too: its error was raised.
        """
        with self._lock:
            if place.directory_id not in self._dirs.paths:
                return
            dir = self._dirs.online(place.directory_id)
            if dir.opened(partition):
                event(
                    logger,
                    "log-loaded",
                    folder=place.folder,
                    loaded=dir.loaded,
                    of=dir.loaded + len(dir.to_load),
                    seconds=seconds,
                )

    @ray.method(concurrency_group="move")
    def move_partition(self, partition: TopicPartition, topic_id: str, directory_id: str) -> Placed:
        """See :meth:`raylog.actors.node.mover.Mover.move`."""
        return self.move(partition, topic_id, directory_id)

    # -- configs, compaction and retention ---------------------------------------------------------

    def reconfigure(
        self, partition: TopicPartition, topic_id: str, config: LogConfig, version: int
    ) -> int:
        """Have a partition obey another config from now on.

        Returns the version that it reports then. Raises NotLeader if it is not served here.
        """
        with self._lock:
            self._check_running(str(partition))
            newest = self._dirs.configure(partition, topic_id, Configured(config, version))
            if newest is None:
                raise NotLeader(str(partition), "this node does not serve it")
            self._start_upkeep_of(newest.config)
        log = find_log_actor(partition, self._namespace)
        if log is None:
            raise NotLeader(str(partition), "its LogActor is starting")
        obeyed = log.reconfigure(newest).get()
        # its swap would be refused: it goes by the config of before
        self._abandon_compaction(partition)
        return obeyed

    def config_of(self, partition: TopicPartition, topic_id: str) -> Configured | None:
        """The config that a partition obeys; None if this process has not opened it yet."""
        with self._lock:
            opened = self._dirs.opened.get(partition)
            if opened is None or opened.topic_id != topic_id:
                return None
            return opened.configured

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
        """End the partition's LogActor and rename its folder; fine if it is gone.

        The folder is removed after ``file.delete.delay.ms``. Another topic's partition of this name
        stays.
        """
        self._end_actor(partition, topic_id)
        with self._lock:
            self._check_running(str(partition))
            was_opened = partition in self._dirs.opened
            self._moves.pop(partition, None)  # the thread that moves it notices, and gives up
            self._dirs.delete(partition, topic_id)
            if was_opened and partition not in self._dirs.opened:
                # its LogActor may have been started again after it was ended above
                kill(log_actor_name(partition), self._namespace)
        self._kill_orphans()

    def set_aside(
        self, partition: TopicPartition, topic_id: str | None, directory_id: str | None = None
    ) -> str:
        """Rename the folder of a partition that no topic has any more, and keep it.

        Returns its new path.
        """
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
        """End the LogActor in order, if it serves this topic, and this folder where one is given.

        Another topic's of the same name may run, here or on another node. An actor that does not
        say what it serves ends if the topic's log is here.
        """
        log = find_log_actor(partition, self._namespace)
        if log is None:
            return
        try:
            serving = log.serving("closing").get()
            if serving is not None and not self._is_same_log(serving, topic_id, folder):
                return
            log.close().get()
        except RaylogError as error:
            with self._lock:
                if not self._dirs.has(partition, topic_id):
                    return
            warn(logger, "log-not-closed", partition=partition, why=error)
        kill(log_actor_name(partition), self._namespace)

    def _is_same_log(self, serving: Serving, topic_id: str | None, folder: str | None) -> bool:
        """Whether an actor serves this topic, and the folder of this node where one is given."""
        if serving.topic_id != topic_id:
            return False
        return not folder or (serving.folder, serving.node_id) == (folder, self._node.node_id)

    # -- the end -----------------------------------------------------------------------------------

    def shutdown(self) -> bool:
        """Close every log in order, write checkpoints and clean-shutdown markers, unlock the dirs.

        Returns whether all of it was clean; see ``OnlineDir.unlock``.
        """
        self._stopped.set()
        for name in (compaction_actor_name(self._node.key), retention_actor_name(self._node.key)):
            kill(name, self._namespace)
        with self._lock:
            asked = dict(self._dirs.opened)
        closed = self._ask_all(LogActorStub.close, CLOSE_TIMEOUT_S)
        with self._lock:
            # First, since the rest may fail, and a closed actor must not be found again.
            for partition in asked:
                kill(log_actor_name(partition), self._namespace)
            for partition, offsets in closed.items():
                self._dirs.record_offsets(partition, asked[partition], offsets.checkpointed())
            return self._dirs.unlock(set(closed))


LogManager = ray.remote(
    concurrency_groups={"open": OPENED_AT_ONCE, "move": MOVES_AT_ONCE},
    max_concurrency=16,
    num_cpus=0,
    max_restarts=-1,
    max_task_retries=0,
)(LogManagerImpl)
