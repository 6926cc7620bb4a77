"""Which nodes' LogManagers are to be started, and when: again and again, but less and less often.

Not that of a node which is stopped, with one exception: where none runs, but LogActors of the node
do, one is started to close them in order.
"""

from collections.abc import Collection, Mapping

from raylog.actors.control import LogId
from raylog.actors.runtime.names import log_actor_name
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.observed import Observed
from raylog.cluster.controller.telling import Delay


class Starts:
    """The nodes whose LogManager may not run."""

    def __init__(self) -> None:
        self._delays: dict[str, Delay] = {}
        self._to_close: set[str] = set()

    def begin(self, key: str, now_ms: int) -> None:
        """A node has come, or is wanted again."""
        self._delays[key] = Delay(now_ms)

    def silent(self, key: str, now_ms: int) -> None:
        """Somebody has asked it, and got no answer."""
        self._delays.setdefault(key, Delay(now_ms))

    def close_left(self, key: str, *, is_needed: bool) -> None:
        """Whether a node that is stopped needs one to close what was left running."""
        (self._to_close.add if is_needed else self._to_close.discard)(key)

    def forget(self, key: str) -> None:
        """It runs, or the node has left."""
        self._delays.pop(key, None)
        self._to_close.discard(key)

    def due(self, desired: Desired, now_ms: int) -> list[str]:
        """The nodes where one is to be started now."""
        due = []
        for key, delay in self._delays.items():
            is_wanted = key in self._to_close or not desired.is_stopped(key)
            if is_wanted and now_ms >= delay.due_ms:
                delay.done(now_ms)
                due.append(key)
        return due


def is_left_running(
    desired: Desired, observed: Mapping[str, Observed], key: str, actors: Collection[str]
) -> bool:
    """Whether LogActors of a node run. ``actors``: the names of all actors of the cluster."""
    for log in desired.logs_at(key):
        is_there = log_actor_name(log.partition) in actors
        if is_there and not _is_of_another_node(log, desired, observed, key):
            return True
    return False


def _is_of_another_node(
    log: LogId, desired: Desired, observed: Mapping[str, Observed], key: str
) -> bool:
    """Whether an actor with the name of a node's log serves the next topic of that name elsewhere.

    The topic was deleted while the node was stopped. Where the other node could not open its log,
    the actor may be the one that was left, and in the way.
    """
    topic = desired.topic_named(log.partition.topic)
    if topic is None:
        return False
    namesake = LogId(partition=log.partition, topic_id=topic.topic_id)
    if namesake not in desired.partitions:
        return False
    node = desired.node_of(namesake)
    if node == key:
        return False
    seen = observed.get(node or "")
    entries = () if seen is None else seen.logs.get(namesake, ())
    return all(entry.state != "failed" for entry in entries)
