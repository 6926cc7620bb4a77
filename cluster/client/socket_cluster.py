"""What a client asks of a cluster, without Ray: by socket, in Kafka's protocol.

It stands in the place of ``ray_connection.py``. Each question is asked in the background, by a
connection of its own: they are few. Where a partition is that has no name on this machine, Ray's
side says, which is joined then; who knows addresses alone has Metadata.
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from raylog.actors.errors import (
    BrokerUnreachable,
    NeededActorAway,
    NotLeader,
    UnknownTopicOrPartition,
)
from raylog.actors.messages import DataAddress
from raylog.actors.plane.apis.configs import DESCRIBE_CONFIGS
from raylog.actors.plane.apis.records import INIT_PRODUCER_ID
from raylog.actors.plane.codes import INVALID_TOPIC, UNKNOWN_TOPIC_OR_PARTITION
from raylog.cluster.client.background import BACKGROUND
from raylog.cluster.client.bootstrap import Bootstrap, metadata_of, places_of
from raylog.cluster.client.connection import PartitionMetadata, TopicMetadata
from raylog.cluster.client.deadlines import DEADLINES, end, fail
from raylog.cluster.client.ray_connection import RayConnection
from raylog.cluster.client.sockets.cluster_socket import ClusterSocket
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.types import Value
from raylog.storage.state.properties import id_text

Answer = TypeVar("Answer")

_TOPIC: Final = 2  # Kafka's type of a resource
_MOST_BYTES: Final = "max.message.bytes"
_NOBODY: Final = (
    "no process serves it now: it may be starting, or its log dir or node is away; `raylog health` "
    "says why"
)


class SocketCluster:
    """See the module's head, and ``socket_connection.Cluster``. Safe for threads."""

    namespace = ""

    def __init__(self, bootstrap: Bootstrap, by_ray: RayConnection | None = None) -> None:
        """``by_ray``: to who has no name here; None: Metadata says where partitions are."""
        self._bootstrap, self._by_ray = bootstrap, by_ray
        self.deadlines = DEADLINES
        self._topics: dict[str, TopicMetadata] = {}  # as they were described last

    def __reduce__(self) -> Any:
        return (SocketCluster, (self._bootstrap, self._by_ray))

    def broker_id(self, cluster_id: str) -> str:
        """See ``socket_connection.Cluster``."""
        known = self._bootstrap.known
        return "" if known is None else known.broker

    def metadata(self, topic: str, *, timeout_s: float) -> "Future[TopicMetadata]":
        """See ``connection.Connection``."""
        return self._ask(f"the metadata of {topic}", timeout_s, partial(self._described, topic))

    def list_topics(self, *, timeout_s: float) -> "Future[list[str]]":
        """See ``connection.Connection``."""
        return self._ask("the names of topics", timeout_s, self._names)

    def new_producer_id(self, *, timeout_s: float) -> "Future[int]":
        """See ``connection.Connection``."""
        return self._ask("a producer id", timeout_s, self._producer_id)

    def data_address(
        self, partition: TopicPartition, topic_id: str, *, timeout_s: float
    ) -> "Future[DataAddress]":
        """See ``socket_connection.Cluster``."""
        if self._by_ray is not None:
            return self._by_ray.data_address(partition, topic_id, timeout_s=timeout_s)
        return self._ask(str(partition), timeout_s, partial(self._address, partition))

    def forget(self, topic: str, partition: int) -> None:
        """See ``connection.Connection``."""
        if self._by_ray is not None:
            self._by_ray.forget(topic, partition)

    # -- in the background -------------------------------------------------------------------------

    def _ask(self, what: str, timeout_s: float, ask: Callable[[float], Answer]) -> "Future[Answer]":
        """``ask`` gets how long it may wait."""
        future: Future[Answer] = Future()
        self.deadlines.watch(future, what, timeout_s, is_read=True)
        BACKGROUND.run(partial(_settle, future, partial(ask, timeout_s)))
        return future

    def _described(self, topic: str, timeout_s: float) -> TopicMetadata:
        """The topic; while nobody can be asked, as it was described last."""
        try:
            self._topics[topic] = self._asked_for(topic, timeout_s)
        except NotLeader:
            if topic not in self._topics:
                raise
        except UnknownTopicOrPartition:
            self._topics.pop(topic, None)
            raise
        return self._topics[topic]

    def _asked_for(self, topic: str, timeout_s: float) -> TopicMetadata:
        def both(cluster: ClusterSocket) -> tuple[Value, Value]:
            body = metadata_of(cluster, [topic])
            _topic_of(body, topic)
            return body, cluster.ask(DESCRIBE_CONFIGS, _config_of(topic))

        body, configs = self._bootstrap.ask(both, timeout_s)
        found = _topic_of(body, topic)
        return TopicMetadata(
            topic,
            id_text(found["topicId"]),
            tuple(_partition_of(part) for part in found["partitions"]),
            _most_bytes(configs, topic),
            body["clusterId"],
        )

    def _names(self, timeout_s: float) -> list[str]:
        body = self._bootstrap.ask(metadata_of, timeout_s)
        return sorted(topic["name"] for topic in body["topics"])

    def _producer_id(self, timeout_s: float) -> int:
        body = self._bootstrap.ask(
            lambda cluster: cluster.ask(INIT_PRODUCER_ID, _NEW_PRODUCER), timeout_s
        )
        if body["errorCode"]:
            raise NeededActorAway("a producer id", _away(body["errorCode"]))
        return int(body["producerId"])

    def _address(self, partition: TopicPartition, timeout_s: float) -> DataAddress:
        body = self._bootstrap.ask(
            lambda cluster: metadata_of(cluster, [partition.topic]), timeout_s
        )
        for place in places_of(body).get(partition.topic, ()):
            if place.number == partition.partition and place.host:
                return DataAddress(place.host, place.port, "")
        raise NotLeader(str(partition), _NOBODY)


_NEW_PRODUCER: Final[Value] = {
    "transactionalId": None,
    "transactionTimeoutMs": 0,
    "producerId": -1,
    "producerEpoch": -1,
}


def _config_of(topic: str) -> Value:
    resource = {
        "resourceType": _TOPIC,
        "resourceName": topic,
        "configurationKeys": [_MOST_BYTES],
    }
    return {"resources": [resource], "includeSynonyms": False, "includeDocumentation": False}


def _away(error_code: int) -> str:
    return f"the Controller does not answer (error code {error_code} of Kafka's protocol)"


def _settle(future: "Future[Any]", ask: Callable[[], Any]) -> None:
    if future.done():
        return  # its time was up while it waited for its turn
    try:
        end(future, ask())
    except Exception as error:  # also one of ours: who waits must hear of it
        fail(future, error)


def _topic_of(body: Value, topic: str) -> Value:
    """The one that was asked for. Raises UnknownTopicOrPartition, BrokerUnreachable."""
    if len(body["topics"]) != 1:
        raise BrokerUnreachable("its socket", f"it describes {len(body['topics'])} topics")
    (found,) = body["topics"]
    if found["errorCode"] in (UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC):
        raise UnknownTopicOrPartition(topic, None, "the topic does not exist")
    if found["errorCode"]:
        raise NeededActorAway(f"the metadata of {topic}", _away(found["errorCode"]))
    return found


def _partition_of(part: Value) -> PartitionMetadata:
    leader = part["leaderId"]
    node = None if leader < 0 else str(leader)
    return PartitionMetadata(part["partitionIndex"], part["leaderEpoch"], node)


def _most_bytes(body: Value, topic: str) -> int:
    """``max.message.bytes`` of a topic. Raises NeededActorAway."""
    (result,) = body["results"]
    if result["errorCode"] == UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopicOrPartition(topic, None, "the topic does not exist")
    values = [int(one["value"]) for one in result["configs"] if one["name"] == _MOST_BYTES]
    if result["errorCode"] or not values:
        raise NeededActorAway(f"the config of {topic}", _away(result["errorCode"]))
    return values[0]
