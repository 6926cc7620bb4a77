"""Have a log's old segments removed at once, as the next round of retention would."""

import ray

from raylog.actors.errors import ConfigUnconfirmed
from raylog.actors.messages import RemovedSegments
from raylog.actors.runtime.nodes import own_node
from raylog.actors.upkeep.node_logs import NodeLogs
from raylog.storage.names import TopicPartition
from raylog.storage.testing.waiting import wait_for

CONFIRMED_WITHIN_S = 60


def delete_old_segments(namespace: str, topic: str, partition: int = 0) -> RemovedSegments:
    """What was removed, of a partition of this node, once the Controller has confirmed its config.

    Raises what the partition raises.
    """
    assert ray.is_initialized()
    key = TopicPartition(topic, partition)
    logs, answers = NodeLogs(namespace, own_node().key), []

    def is_confirmed() -> bool:
        answers.append(logs.delete_old_segments([key])[key])
        return not isinstance(answers[-1], ConfigUnconfirmed)

    wait_for(is_confirmed, CONFIRMED_WITHIN_S, f"the config of {key} is confirmed")
    removed = answers[-1]
    if isinstance(removed, Exception):
        raise removed
    return removed
