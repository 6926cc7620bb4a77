"""What a LogManager does all the time for its log dirs: checkpoints, the look at the disks, removal
of what was deleted; and what it does when a disk fails.

Each task has a thread of its own: a LogActor that does not answer, or a folder that takes minutes
to remove, must not hold up the look at the disks. **The lock** guards what is known of the dirs,
and is held over neither.

**A disk that hangs** answers nothing, so nobody can tell that it has failed. No task here holds the
lock while it waits for a disk: partitions of the other dirs open, and are asked for, as before.
What does hold it, and waits with it, is what changes folders in the dir that hangs, or lists all
dirs: making, deleting, setting aside and adopting a partition, the listing at a node's start, the
end. A task that hangs in one dir does not come to the next.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from raylog.actors.errors import NoLogDirs
from raylog.actors.events import warn
from raylog.actors.messages import Hosted, LogDirStatus, NodeState, PartitionOffsets
from raylog.actors.metrics import IDLE_EXPORT_INTERVAL_S, Exporter
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.dirs import NodeDirs
from raylog.actors.node.meters import export_dirs
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, wait_for
from raylog.actors.runtime.handles import find, kill
from raylog.actors.runtime.names import log_actor_name
from raylog.actors.runtime.nodes import own_node
from raylog.actors.runtime.ray_metrics import ray_metric
from raylog.storage.clock import SystemClock
from raylog.storage.errors import StorageError
from raylog.storage.files import RealFileSystem
from raylog.storage.log_dir import PartitionOffsets as Checkpointed
from raylog.storage.names import TopicPartition
from raylog.storage.state.properties import random_id

logger = logging.getLogger(__name__)

# A node of a cluster whose disks are mounted elsewhere than the others' says so in its environment.
LOG_DIRS_VARIABLE = "RAYLOG_LOG_DIRS"
# How often the dirs are looked at, and the deletion queue.
LOOK_INTERVAL_S = 1.0


def node_log_dirs(config: BrokerConfig) -> tuple[str, ...]:
    """This node's log dirs: those of the environment that Ray was started with, else
    ``log.dirs``."""
    override = os.environ.get(LOG_DIRS_VARIABLE)
    paths = BrokerConfig.parse({"log.dirs": override}).log_dirs if override else config.log_dirs
    if not paths:
        raise NoLogDirs("none is configured: set log.dirs")
    return paths


class DirKeeper:
    """The part of the LogManager that knows nothing of topics."""

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        self._namespace, self._config, self._node = namespace, config, own_node()
        self._fs = RealFileSystem()
        self._lock = threading.RLock()
        delete_delay_ms = config.topic_defaults.file_delete_delay_ms
        self._dirs = NodeDirs(self._fs, SystemClock(), delete_delay_ms, self._lock)
        self._life = random_id()
        self._stopped = threading.Event()
        self._exporter = Exporter(ray_metric, node=self._node.node_id)

    # -- what others ask ---------------------------------------------------------------------------

    def state(self) -> NodeState:
        """What the Controller's watch asks for."""
        with self._lock:
            return NodeState(self._life, tuple(self._dirs.offline))

    def log_dirs(self) -> list[LogDirStatus]:
        """Every log dir of this node."""
        with self._lock:
            online, offline = self._dirs.dirs(), list(self._dirs.offline)
        return [
            *(dir.status(self._node.node_id) for dir in online),
            *(LogDirStatus.offline(self._node.node_id, *dir) for dir in offline),
        ]

    def hosted(self) -> list[Hosted]:
        """The partitions that are served now, as far as their config is known."""
        with self._lock:
            return self._dirs.hosted()

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Where the compaction of each partition goes on."""
        return self._dirs.cleaner_offsets()

    def cleaned(self, partition: TopicPartition, topic_id: str, offset: int) -> None:
        """Write down where the compaction of a partition goes on; fine if it is gone, or another
        topic's."""
        if not self._stopped.is_set():
            self._dirs.cleaned(partition, topic_id, offset)

    def _ask_all(
        self, call: Callable[[Any], Any], timeout_s: float = CALL_TIMEOUT_S
    ) -> Mapping[TopicPartition, Any]:
        """The answers of those LogActors that answer in time: of all together, since they are asked
        at once."""
        with self._lock:
            names = {partition: log_actor_name(partition) for partition in self._dirs.opened}
        handles = {partition: find(name, self._namespace) for partition, name in names.items()}
        pending = {
            partition: call(handle) for partition, handle in handles.items() if handle is not None
        }
        deadline = time.monotonic() + timeout_s
        answers = {}
        for partition, reference in pending.items():
            try:
                answers[partition] = wait_for(
                    reference, str(partition), max(0, deadline - time.monotonic())
                )
            except (
                Exception
            ) as error:  # Ray may fail in its own ways; the others are asked all the same
                warn(logger, "no-answer", partition=partition, why=error)
        return answers

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
            except Exception:  # Ray may fail in its own ways; the next round tries again
                warn(logger, "upkeep-failed", trace=True, task=task.__name__)

    def export_metrics(self) -> None:
        """Hand over what there is to tell of the dirs."""
        with self._lock:
            served, offline = len(self._dirs.hosted()), self._dirs.offline_count
        export_dirs(self._exporter, self.log_dirs(), served, offline)

    def checkpoint(self) -> None:
        """Write recovery points and high watermarks, as the LogActors tell them; the last word of
        the silent ones."""
        self._note_offsets()
        self._dirs.write_recovery_points()
        self._kill_orphans()

    def checkpoint_starts(self) -> None:
        """Write the log start offsets, in the same way."""
        self._note_offsets()
        self._dirs.write_log_start_offsets()
        self._kill_orphans()

    def _note_offsets(self) -> None:
        with self._lock:
            asked = dict(self._dirs.opened)
        answers = self._ask_all(lambda handle: handle.offsets.remote())
        with self._lock:
            for partition, offsets in answers.items():
                if partition in asked:
                    self._dirs.note(partition, asked[partition], checkpointed(offsets))

    def remove_deleted(self) -> None:
        """Remove the folders whose delay is over."""
        with self._lock:
            due = self._dirs.due_deletions()
        for folder in due:
            try:
                self._fs.remove_dir(folder)
            except StorageError as error:  # the next start finds it again
                warn(logger, "folder-not-removed", folder=folder, why=error)

    # -- a disk fails ------------------------------------------------------------------------------

    def look_at_dirs(self) -> None:
        """Take the dirs offline that have vanished."""
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


def checkpointed(offsets: PartitionOffsets) -> Checkpointed:
    """What a checkpoint keeps of a log's offsets."""
    return Checkpointed(offsets.recovery_point, offsets.log_start_offset, offsets.high_watermark)
