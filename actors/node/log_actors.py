"""How a node reaches LogActors: the port. ``ray_log_actors.py`` is it on Ray.

Every method raises NotLeader or RequestTimedOut where Ray or the actor does not answer, and what
the actor raised.
"""

from collections.abc import Collection, Mapping, Set
from typing import Protocol

from raylog.actors.messages import PartitionOffsets
from raylog.actors.node.events import Served
from raylog.actors.node.processes import LogProcess
from raylog.actors.node_messages import LogOrder, LogSays
from raylog.actors.partition.spec import LogSpec
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition

# For what an actor answers from memory.
SAYS_TIMEOUT_S = 10.0


class AskedActors(Protocol):
    """What is asked of LogActors that are there."""

    def says_all(
        self, partitions: Collection[TopicPartition], timeout_s: float = SAYS_TIMEOUT_S
    ) -> Mapping[TopicPartition, LogSays | RaylogError | None]:
        """As ``LogActors.says``, of many at once, for ``timeout_s`` in all."""

    def learn(self, order: LogOrder) -> LogSays:
        """Have an actor that waits for its config learn it, and open its log."""

    def running(self) -> Set[TopicPartition]:
        """The partitions whose names actors have, on any node."""


class LogActors(AskedActors, Protocol):
    """The LogActors of a namespace, by the names of their partitions."""

    def start(self, spec: LogSpec) -> None:
        """Begin to start the actor on this node; nothing where one has its name already."""

    def says(self, partition: TopicPartition, timeout_s: float = SAYS_TIMEOUT_S) -> LogSays | None:
        """What the actor says; None where no actor has the name."""

    def reconfigure(self, order: LogOrder) -> LogSays:
        """Have the actor obey the order's config, unless it obeys a newer one."""

    def roll(self, partition: TopicPartition) -> None:
        """Begin a new segment."""

    def close(self, partition: TopicPartition, timeout_s: float) -> PartitionOffsets:
        """Close the log in order."""

    def close_all(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, PartitionOffsets | RaylogError]:
        """As ``close``, of many at once, for ``timeout_s`` in all."""

    def kill(self, partition: TopicPartition) -> None:
        """Begin to end the actor for good; fine if it is gone."""

    def is_there(self, partition: TopicPartition) -> bool:
        """Whether an actor has the name."""

    def process(self, partition: TopicPartition) -> LogProcess | None:
        """The actor's process; None where that is not on this node, or nobody knows."""

    def is_running(self, process: LogProcess) -> bool:
        """Whether a process of this node has not ended yet."""

    def end_at_once(self, process: LogProcess) -> None:
        """End a process of this node, also where it stands still."""

    def nodes(self) -> Set[str]:
        """Ray's ids of the nodes that are up."""


def served_of(says: LogSays) -> Served:
    """What an actor serves that is ``serving``."""
    assert says.config is not None, "an actor that serves has a config"
    offsets = says.offsets
    return Served(
        log=says.log,
        directory_id=says.directory_id,
        config=says.config,
        config_version=says.config_version,
        leader_epoch=says.leader_epoch,
        log_start_offset=-1 if offsets is None else offsets.log_start_offset,
        log_end_offset=-1 if offsets is None else offsets.log_end_offset,
        port=says.port,
    )
