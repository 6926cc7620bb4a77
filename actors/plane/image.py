"""The cluster as its clients see it: brokers, topics, and which broker leads each partition.

To a client of Kafka's protocol every LogActor is a broker that leads its partition, and every
LogManager is one that leads nothing: the one to begin with, the controller's address, and the one
who answers while others are started again. A broker's number, host and port stay the same for ever,
also while it is away: clients are back at once then.

An image never changes; a newer one takes its place. Three rules of clients stand behind it:

- No leader is named that is not among the brokers (kafka-python stops for good).
- No broker is left out for the sake of the topics asked for (librdkafka drops it).
- A leader epoch never goes back, and is -1 where nobody knows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from uuid import UUID

NO_NODE: Final = -1
NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A process that takes requests. ``rack``: the node's label, if it has one."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """A partition. ``is_online``: whether its leader can serve it now, as far as is known."""

    leader: int
    leader_epoch: int = NO_EPOCH
    is_online: bool = True


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic, with its partitions by number."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    is_internal: bool = False


@dataclass(frozen=True)
class ClusterImage:
    """All of it. ``controller``: the number of the broker that takes commands."""

    cluster_id: str
    controller: int
    brokers: tuple[BrokerImage, ...]
    topics: Mapping[str, TopicImage]

    @cached_property
    def topics_by_id(self) -> Mapping[UUID, TopicImage]:
        return {topic.topic_id: topic for topic in self.topics.values()}

    @cached_property
    def node_ids(self) -> frozenset[int]:
        """The numbers of all brokers."""
        return frozenset(broker.node_id for broker in self.brokers)
