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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final
from uuid import UUID

from raylog.actors.cluster_image import ClusterEntries, TopicEntry
from raylog.actors.listeners import Listener
from raylog.storage.names import INTERNAL_TOPICS
from raylog.storage.state.properties import id_uuid

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

    def seen_by(self, listener: Listener) -> "ClusterImage":
        """What those are told who come by this listener: where it is, of each broker."""
        brokers = []
        for one in self.brokers:
            host, port = listener.address(one.host, one.port)
            brokers.append(replace(one, host=host, port=port))
        return replace(self, brokers=tuple(brokers))

    @cached_property
    def topics_by_id(self) -> Mapping[UUID, TopicImage]:
        return {topic.topic_id: topic for topic in self.topics.values()}

    @cached_property
    def node_ids(self) -> frozenset[int]:
        """The numbers of all brokers."""
        return frozenset(broker.node_id for broker in self.brokers)


def image_of(entries: ClusterEntries) -> ClusterImage:
    """The image that these entries make.

    A process that has never listened, or whose host nobody knows, is left out of it: its port may
    be that of another cluster, and clients ask any broker what there is.
    """
    brokers = sorted(_brokers(entries), key=lambda broker: broker.node_id)
    controller = entries.nodes.get(entries.controller)
    return ClusterImage(
        cluster_id=entries.cluster_id,
        controller=NO_NODE if controller is None else controller.endpoint.kafka_id,
        brokers=tuple(brokers),
        topics={topic.name: _topic_of(topic) for topic in entries.topics.values()},
    )


def _brokers(entries: ClusterEntries) -> Iterator[BrokerImage]:
    for node in entries.nodes.values():
        if node.host:
            yield BrokerImage(node.endpoint.kafka_id, node.host, node.endpoint.port)
    for topic in entries.topics.values():
        for one in topic.partitions:
            node_of_it = entries.nodes.get(one.node)
            if one.has_listened and node_of_it is not None and node_of_it.host:
                yield BrokerImage(one.endpoint.kafka_id, node_of_it.host, one.endpoint.port)


def _topic_of(topic: TopicEntry) -> TopicImage:
    return TopicImage(
        name=topic.name,
        topic_id=id_uuid(topic.topic_id),
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(
            PartitionImage(one.endpoint.kafka_id, one.leader_epoch, one.is_online)
            for one in topic.partitions
        ),
    )
