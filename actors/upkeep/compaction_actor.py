"""CompactionActor: the Ray actor that compacts the logs of one node, beside their LogActors.

It is a shell over :class:`~raylog.actors.upkeep.compactor.Compactor`.

One a node, named, detached, pinned; its LogManager starts it with the first compacted partition,
and orders each of its rounds. It may be killed at any moment: Ray starts it again, and it begins
where the checkpoints say.
"""

import threading

import ray

from raylog.actors.events import set_up_logs
from raylog.actors.messages import CompactionStatus, RetentionStatus
from raylog.actors.metrics import Exporter, export_for_ever
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node_messages import UpkeepOrder
from raylog.actors.partition.locking import lock_patiently
from raylog.actors.runtime.nodes import own_name, own_node
from raylog.actors.runtime.ray_metrics import ray_metric
from raylog.actors.runtime.release import end_if_replaced
from raylog.actors.upkeep.compactor import Compactor
from raylog.actors.upkeep.node_logs import NodeLogs
from raylog.actors.upkeep.orders import OrderGate
from raylog.actors.upkeep.round_threads import RoundThreads
from raylog.storage.clock import SystemClock
from raylog.storage.files import Lock, ReadOnlyFileSystem, RealFileSystem


class CompactionActorImpl:
    """The methods that brokers and LogManagers call."""

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        end_if_replaced()
        set_up_logs(own_name())
        own = own_node()
        node, fs = NodeLogs(namespace, own.key), RealFileSystem()
        self._compactor = Compactor(
            node, own.node_id, config, SystemClock(), fs, ReadOnlyFileSystem(), _lock
        )
        self._lock = threading.Lock()
        self._gate = OrderGate(own.key)
        self._threads = RoundThreads(self._compactor.turn, "compaction")
        self._threads.start(config.log_cleaner_threads)
        exported = (Exporter(ray_metric, node=own.node_id), self._compactor.numbers)
        threading.Thread(target=export_for_ever, args=exported, name="metrics", daemon=True).start()

    def round(self, order: UpkeepOrder) -> None:
        """Begin a round, or go on with these logs where one runs; returns at once.

        Raises UnsupportedVersion, and NotLeader where it is for another node.
        """
        with self._lock:
            if self._gate.accept(order):
                self._compactor.order(order)
                self._threads.wake()

    def status(self) -> list[CompactionStatus]:
        """Every compacted log of the node."""
        return self._compactor.status()

    def retention(self) -> list[RetentionStatus]:
        """The retention of the node's compacted logs."""
        return self._compactor.retention()


CompactionActor = ray.remote(max_concurrency=4, num_cpus=0, max_restarts=-1, max_task_retries=0)(
    CompactionActorImpl
)


def _lock(folder: str) -> Lock:
    return lock_patiently(lambda: RealFileSystem().lock_dir(folder))
