"""RetentionActor: the Ray actor that has old segments removed from the logs of one node.

It is a shell over :class:`~raylog.actors.upkeep.retention.Retention`.

One a node, named, detached, pinned; its LogManager starts it with the first partition that is not
compacted.
"""

import logging
import threading
import time

import ray

from raylog.actors.events import set_up_logs, warn
from raylog.actors.messages import RetentionStatus
from raylog.actors.metrics import Exporter, export_for_ever
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.nodes import own_name, own_node
from raylog.actors.runtime.ray_metrics import ray_metric
from raylog.actors.upkeep.node_logs import NodeLogs
from raylog.actors.upkeep.retention import Retention
from raylog.storage.clock import SystemClock

logger = logging.getLogger(__name__)


class RetentionActorImpl:
    """The methods that brokers call."""

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        set_up_logs(own_name())
        node = own_node()
        self._interval_s = config.log_retention_check_interval_ms / 1000
        self._retention = Retention(NodeLogs(namespace, node.key), node.node_id, SystemClock())
        threading.Thread(target=self._work, name="retention", daemon=True).start()
        exported = (Exporter(ray_metric, node=node.node_id), self._retention.numbers)
        threading.Thread(target=export_for_ever, args=exported, name="metrics", daemon=True).start()

    def _work(self) -> None:
        while True:
            time.sleep(self._interval_s)
            try:
                self._retention.round()
            except Exception:
                # A LogManager that is away, or an error of Ray's own: the next round tries again.
                warn(logger, "retention-failed", trace=True)

    def status(self) -> list[RetentionStatus]:
        """The node's logs that are not compacted."""
        return self._retention.status()


RetentionActor = ray.remote(max_concurrency=4, num_cpus=0, max_restarts=-1, max_task_retries=0)(
    RetentionActorImpl
)
