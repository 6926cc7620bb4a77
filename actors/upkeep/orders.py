"""The orders that an upkeep actor gets, and the logs that they name. Knows no Ray.

A LogManager orders each round, and says which logs it may touch. An upkeep actor has no clock that
begins a round.
"""

from collections import deque
from collections.abc import Collection, Sequence

from raylog.actors.control import LogId
from raylog.actors.errors import NotLeader, UnsupportedVersion
from raylog.actors.node_messages import VERSION, UpkeepLog, UpkeepOrder
from raylog.storage.names import TopicPartition

# An order that is under way is of one of the last lives: of each, only the last calls can be late.
LIVES_REMEMBERED = 16


class OrderGate:
    """Which orders are obeyed: of this node, of the newest life, each once. Not safe for threads.

    A life that followed another never comes back.
    """

    def __init__(self, node: str) -> None:
        """``node``: the key of the node that the actor is on."""
        self._node = node
        self._life, self._number = "", -1
        self._controller_epoch = -1
        self._lives_before: deque[str] = deque(maxlen=LIVES_REMEMBERED)

    def accept(self, order: UpkeepOrder) -> bool:
        """Whether to obey an order; one that is late changes nothing.

        Raises UnsupportedVersion, and NotLeader where it is for another node.
        """
        if order.version > VERSION:
            raise UnsupportedVersion(f"the upkeep of node {self._node}", order.version, VERSION)
        if order.node != self._node:
            raise NotLeader(f"the upkeep of node {order.node}", f"this is node {self._node}")
        if order.life in self._lives_before or order.controller_epoch < self._controller_epoch:
            return False
        if order.life == self._life and order.number <= self._number:
            return False
        if order.life != self._life and self._life:
            self._lives_before.append(self._life)
        self._life, self._number = order.life, order.number
        self._controller_epoch = order.controller_epoch
        return True


class RememberedLogs:
    """The logs that the last order named, and which of them are still the same.

    Not safe for threads.
    """

    def __init__(self) -> None:
        self._topic_ids: dict[TopicPartition, str] = {}

    def update(self, logs: Sequence[UpkeepLog], others: Collection[LogId]) -> set[TopicPartition]:
        """An order names these logs; returns those of which anything that is known still holds.

        ``others``: which it leaves alone for now. It does not hold where another topic has the
        name, nor of what is named no more.
        """
        named = [*(ordered.log for ordered in logs), *others]
        before, self._topic_ids = self._topic_ids, {log.partition: log.topic_id for log in named}
        return {
            partition
            for partition, topic_id in self._topic_ids.items()
            if before.get(partition) == topic_id
        }

    def is_same(self, ordered: UpkeepLog) -> bool:
        """Whether the partition is still this topic's, as far as orders say."""
        return self._topic_ids.get(ordered.log.partition) == ordered.log.topic_id
