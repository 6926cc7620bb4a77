"""What a LogManager does all the time for its log dirs, and what it does when a disk fails.

All the time it writes checkpoints, looks whether the dirs are there, removes deleted folders and
exports metrics. Each of these tasks has a thread of its own: a LogActor that does not answer, or a
folder that takes minutes to remove, must not delay the look at the disks. **The lock** guards what
is known of the dirs. No task holds it while it waits for a LogActor or a disk.

**A disk that hangs** answers nothing, so nobody can tell that it has failed. Partitions of other
dirs are opened and asked as before. These do hold the lock while they wait for the disk: making,
deleting, setting aside and adopting a partition in the dir that hangs, the listing at a node's
start, and the shutdown. A task that hangs in one dir does not come to the next.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from raylog.actors.errors import NoLogDirs
from raylog.actors.events import warn
from raylog.actors.messages import (
    Confirmed,
    DesiredVersions,
    Hosted,
    LogDirStatus,
    NodeState,
    Recovering,
)
from raylog.actors.metrics import IDLE_EXPORT_INTERVAL_S, Exporter
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.confirmations import Confirmations
from raylog.actors.node.dirs import NodeDirs
from raylog.actors.node.meters import export_dirs
from raylog.actors.node.recoveries import Recoveries
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, Call, gather
from raylog.actors.runtime.handles import kill
from raylog.actors.runtime.names import log_actor_name, log_manager_name
from raylog.actors.runtime.nodes import own_node
from raylog.actors.runtime.ray_metrics import ray_metric
from raylog.actors.runtime.stubs import LogActorStub, find_log_actor
from raylog.storage.clock import SteadyClock, SystemClock
from raylog.storage.errors import OutOfResources, StorageError
from raylog.storage.files import RealFileSystem
from raylog.storage.names import TopicPartition
from raylog.storage.report import Progress
from raylog.storage.state.properties import random_id

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

# A node of a cluster whose disks are mounted elsewhere than the others' says so in its environment.
LOG_DIRS_VARIABLE = "RAYLOG_LOG_DIRS"
# How often the dirs are looked at, and the deletion queue.
LOOK_INTERVAL_S = 1.0


def node_log_dirs(config: BrokerConfig) -> tuple[str, ...]:
    """This node's log dirs: those of the environment of its Ray, or else ``log.dirs``."""
    override = os.environ.get(LOG_DIRS_VARIABLE)
    paths = BrokerConfig.parse({"log.dirs": override}).log_dirs if override else config.log_dirs
    if not paths:
        raise NoLogDirs("log.dirs is not set; set log.dirs, or RAYLOG_LOG_DIRS on this node")
    return paths


class DirKeeper:
    """The part of the LogManager that knows no topics."""

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        self._namespace, self._config = namespace, config
        self._node = own_node()
        self._fs = RealFileSystem()
        self._lock = threading.RLock()
        delete_delay_ms = config.topic_defaults.file_delete_delay_ms
        self._dirs = NodeDirs(self._fs, SystemClock(), delete_delay_ms, self._lock)
        self._confirmations = Confirmations(log_manager_name(self._node.key), life=random_id())
        self._steady = SteadyClock()
        self._stopped = threading.Event()
        self._recoveries = Recoveries(time.monotonic)
        self._exporter = Exporter(ray_metric, node=self._node.node_id)

    # -- what others ask ---------------------------------------------------------------------------

    def state(self, desired: DesiredVersions) -> NodeState:
        """What the Controller's watch asks for; it says what config versions topics have now."""
        with self._lock:
            self._confirmations.hear(desired)
            return self._confirmations.answer(tuple(self._dirs.offline), self._steady.now_ms())

    def log_dirs(self) -> list[LogDirStatus]:
        """Every log dir of this node."""
        with self._lock:
            online, offline = self._dirs.dirs(), list(self._dirs.offline)
        return [
            *(dir.status(self._node.node_id) for dir in online),
            *(LogDirStatus.offline(self._node.node_id, *dir) for dir in offline),
        ]

    def recovering(self, partition: TopicPartition, progress: Progress | None) -> None:
        """Hear how far the recovery of a partition has come; None: it is over."""
        with self._lock:
            self._recoveries.record(partition, progress)

    def recoveries(self) -> list[Recovering]:
        """The partitions whose recovery takes long, and how far it has come."""
        with self._lock:
            return self._recoveries.running()

    def hosted(self) -> list[Hosted]:
        """The partitions that are served now and whose config is known."""
        with self._lock:
            return self._dirs.hosted()

    def confirmed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Confirmed]:
        """The right to remove records, for those that are served under a confirmed config."""
        with self._lock:
            now_ms = self._steady.now_ms()
            rights = {
                partition: self._confirmations.of(self._dirs.opened[partition].topic_id, now_ms)
                for partition in partitions
                if partition in self._dirs.opened
            }
        return {partition: right for partition, right in rights.items() if right is not None}

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Where the compaction of each partition goes on."""
        return self._dirs.cleaner_offsets()

    def record_cleaner_offset(self, partition: TopicPartition, topic_id: str, offset: int) -> None:
        """Write down where the compaction of a partition goes on.

        Nothing is written if the partition is gone, or another topic's.
        """
        if not self._stopped.is_set():
            self._dirs.record_cleaner_offset(partition, topic_id, offset)

    def _ask_all(
        self, ask: Callable[[LogActorStub], Call[Answer]], timeout_s: float = CALL_TIMEOUT_S
    ) -> Mapping[TopicPartition, Answer]:
        """Ask every LogActor at once; the answers of those that answer within ``timeout_s``."""
        with self._lock:
            partitions = list(self._dirs.opened)
        # All of them are found before any is asked: a look-up that fails leaves nothing half done.
        logs = {partition: find_log_actor(partition, self._namespace) for partition in partitions}
        calls = {partition: ask(log) for partition, log in logs.items() if log is not None}
        gathered = gather(calls, timeout_s)
        for partition, error in gathered.errors.items():
            warn(logger, "no-answer", partition=partition, why=error)
        return gathered.answers

    # -- upkeep ------------------------------------------------------------------------------------

    def _begin_upkeep(self) -> None:
        config = self._config
        for task, interval_s in (
            (self.checkpoint, config.log_flush_offset_checkpoint_interval_ms / 1000),
            (self.checkpoint_starts, config.log_flush_start_offset_checkpoint_interval_ms / 1000),
            (self.look_at_dirs, LOOK_INTERVAL_S),
            (self.remove_deleted, LOOK_INTERVAL_S),
            (self.export_metrics, IDLE_EXPORT_INTERVAL_S),  # it looks at the size of every file
        ):
            arguments = (task, interval_s)
            threading.Thread(
                target=self._repeat, args=arguments, name=task.__name__, daemon=True
            ).start()

    def _repeat(self, task: Callable[[], Any], interval_s: float) -> None:
        while not self._stopped.wait(min(interval_s, threading.TIMEOUT_MAX)):
            try:
                task()
            except Exception:  # whatever Ray raises: the next round tries again
                warn(logger, "upkeep-failed", trace=True, task=task.__name__)

    def export_metrics(self) -> None:
        """Export the metrics of the dirs."""
        with self._lock:
            served, offline = len(self._dirs.hosted()), self._dirs.offline_count
        export_dirs(self._exporter, self.log_dirs(), served, offline)

    def checkpoint(self) -> None:
        """Ask the LogActors for their offsets; write the recovery points and high watermarks.

        Of a LogActor that does not answer, its last answer is written.
        """
        self._ask_for_offsets()
        self._dirs.write_recovery_points()
        self._kill_orphans()

    def checkpoint_starts(self) -> None:
        """Write the log start offsets, in the same way."""
        self._ask_for_offsets()
        self._dirs.write_log_start_offsets()
        self._kill_orphans()

    def _ask_for_offsets(self) -> None:
        with self._lock:
            asked = dict(self._dirs.opened)
        answers = self._ask_all(LogActorStub.offsets)
        with self._lock:
            for partition, offsets in answers.items():
                if partition in asked:
                    self._dirs.record_offsets(partition, asked[partition], offsets.checkpointed())

    def remove_deleted(self) -> None:
        """Remove the folders whose delay is over."""
        with self._lock:
            due = self._dirs.due_deletions()
        for folder in due:
            try:
                self._fs.remove_dir(folder)
            except OutOfResources:
                self._dirs.remove_later(folder)
            except StorageError as error:  # the next start removes it
                warn(logger, "folder-not-removed", folder=folder, why=error)

    # -- a disk fails ------------------------------------------------------------------------------

    def look_at_dirs(self) -> None:
        """Take the dirs offline that have vanished."""
        self._dirs.check()
        self._kill_orphans()

    def failed(self, partition: TopicPartition, topic_id: str, error: StorageError) -> None:
        """Hear that a LogActor's log has failed. If its disk has, the whole dir goes offline."""
        with self._lock:
            opened = self._dirs.opened.get(partition)
            if error.is_disk_failure and opened is not None and opened.topic_id == topic_id:
                self._dirs.fail(opened.directory_id, error.problem)
        self._kill_orphans()

    def _kill_orphans(self) -> None:
        """End the LogActors of dirs that failed, without another write to their disk."""
        with self._lock:
            orphans = self._dirs.take_orphans()
        for partition in orphans:
            kill(log_actor_name(partition), self._namespace)
