"""CompactionActor: the Ray actor that compacts the logs of one node, beside their LogActors.

It is a shell over :class:`~raylog.actors.upkeep.compactor.Compactor`.

One a node, named, detached, pinned; its LogManager starts it with the first compacted partition. It
may be killed at any moment: Ray starts it again, and it begins where the checkpoints say.
"""

import logging
import threading
import time

import ray

from raylog.actors.events import set_up_logs, warn
from raylog.actors.messages import CompactionStatus, RetentionStatus
from raylog.actors.metrics import Exporter, export_for_ever
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.partition.locking import lock_patiently
from raylog.actors.runtime.nodes import own_name, own_node
from raylog.actors.runtime.ray_metrics import ray_metric
from raylog.actors.upkeep.compactor import Compactor
from raylog.actors.upkeep.node_logs import NodeLogs
from raylog.storage.clock import SystemClock
from raylog.storage.files import Lock, ReadOnlyFileSystem, RealFileSystem
from raylog.storage.names import TopicPartition

logger = logging.getLogger(__name__)


class CompactionActorImpl:
    """The methods that brokers and LogManagers call."""

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        set_up_logs(own_name())
        own = own_node()
        node, fs = NodeLogs(namespace, own.key), RealFileSystem()
        self._backoff_s = config.log_cleaner_backoff_ms / 1000
        self._compactor = Compactor(
            node, own.node_id, config, SystemClock(), fs, ReadOnlyFileSystem(), _lock
        )
        for number in range(config.log_cleaner_threads):
            threading.Thread(target=self._work, name=f"cleaner-{number}", daemon=True).start()
        exported = (Exporter(ray_metric, node=own.node_id), self._compactor.numbers)
        threading.Thread(target=export_for_ever, args=exported, name="metrics", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                was_cleaned = self._compactor.turn()
            except Exception:
                # A LogManager that is away, or an error of Ray's own: the next turn tries again.
                warn(logger, "compaction-failed", trace=True)
                was_cleaned = False
            if not was_cleaned:
                time.sleep(self._backoff_s)

    def status(self) -> list[CompactionStatus]:
        """Every compacted log of the node."""
        return self._compactor.status()

    def retention(self) -> list[RetentionStatus]:
        """The retention of the node's compacted logs."""
        return self._compactor.retention()

    def abandon(self, partition: TopicPartition) -> None:
        """Give a log's round up, if one runs."""
        self._compactor.abandon(partition)


CompactionActor = ray.remote(max_concurrency=4, num_cpus=0, max_restarts=-1, max_task_retries=0)(
    CompactionActorImpl
)


def _lock(folder: str) -> Lock:
    return lock_patiently(lambda: RealFileSystem().lock(folder))
