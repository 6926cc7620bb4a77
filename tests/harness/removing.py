"""Have a log's old segments removed at once, as the next round of retention would."""

from raylog.actors.control import Confirmed
from raylog.actors.errors import NotLeader
from raylog.actors.messages import RemovedSegments
from raylog.actors.runtime.nodes import own_node
from raylog.actors.runtime.stubs import find_log_actor, find_log_manager
from raylog.storage.names import TopicPartition
from raylog.storage.testing.waiting import wait_for

CONFIRMED_WITHIN_S = 60


def delete_old_segments(namespace: str, topic: str, partition: int = 0) -> RemovedSegments:
    """What was removed, of a partition of this node, once the Controller has confirmed its config.

    Raises what the partition raises.
    """
    key = TopicPartition(topic, partition)
    rights: list[Confirmed] = []

    def is_confirmed() -> bool:
        manager = find_log_manager(own_node().key, namespace)
        if manager is not None:
            rights.extend(manager.confirmed([key]).get().values())
        return bool(rights)

    wait_for(is_confirmed, CONFIRMED_WITHIN_S, f"the config of {key} is confirmed", poll_s=0.05)
    log = find_log_actor(key, namespace)
    if log is None:
        raise NotLeader(str(key), "its LogActor is not running")
    return log.delete_old_segments(rights[-1]).get()
