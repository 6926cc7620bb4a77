"""RetentionActor: the Ray actor that has old segments removed from the logs of one node.

It is a shell over :class:`~raylog.actors.upkeep.retention.Retention`.

One a node, named, detached, pinned; its LogManager starts it with the first partition that is not
compacted, and orders each of its rounds.
"""

import threading

import ray

from raylog.actors.events import set_up_logs
from raylog.actors.messages import RetentionStatus
from raylog.actors.metrics import Exporter, export_for_ever
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node_messages import UpkeepOrder
from raylog.actors.runtime.nodes import own_name, own_node
from raylog.actors.runtime.ray_metrics import ray_metric
from raylog.actors.runtime.release import end_if_replaced
from raylog.actors.upkeep.node_logs import NodeLogs
from raylog.actors.upkeep.orders import OrderGate
from raylog.actors.upkeep.retention import Retention
from raylog.actors.upkeep.round_threads import RoundThreads
from raylog.storage.clock import SystemClock


class RetentionActorImpl:
    """The methods that brokers and LogManagers call."""

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        end_if_replaced()
        set_up_logs(own_name())
        node = own_node()
        self._retention = Retention(NodeLogs(namespace, node.key), node.node_id, SystemClock())
        self._lock = threading.Lock()
        self._gate = OrderGate(node.key)
        self._order: UpkeepOrder | None = None  # of the next round
        self._threads = RoundThreads(self._turn, "retention")
        self._threads.start(1)
        exported = (Exporter(ray_metric, node=node.node_id), self._retention.numbers)
        threading.Thread(target=export_for_ever, args=exported, name="metrics", daemon=True).start()

    def round(self, order: UpkeepOrder) -> None:
        """Begin a round, or have it follow the one that runs; returns at once.

        Raises UnsupportedVersion, and NotLeader where it is for another node.
        """
        with self._lock:
            if self._gate.accept(order):
                self._order = order
                self._threads.wake()

    def _turn(self) -> bool:
        with self._lock:
            order, self._order = self._order, None
        if order is not None:
            self._retention.round(order)
        return False

    def status(self) -> list[RetentionStatus]:
        """The node's logs that are not compacted."""
        return self._retention.status()


RetentionActor = ray.remote(max_concurrency=4, num_cpus=0, max_restarts=-1, max_task_retries=0)(
    RetentionActorImpl
)
