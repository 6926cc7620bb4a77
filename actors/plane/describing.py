"""Answers what the cluster is, from its image: Metadata and its younger kin.

What each version asks and is answered is in the tables of ``apis/cluster.py``. Where a topic is not
there, the answer for it has an error, and the others are answered all the same. Topics are never
created here by asking for them: there is no ``auto.create.topics.enable``. No partition is ever
being reassigned. Source: ``KafkaApis``, ``DescribeTopicPartitionsRequestHandler`` of Kafka 4.3.
"""

from collections.abc import Iterable, Set
from typing import Final
from uuid import UUID

from raylog.actors.plane.codes import (
    INVALID_REQUEST,
    INVALID_TOPIC,
    LEADER_NOT_AVAILABLE,
    MISMATCHED_ENDPOINT_TYPE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_ENDPOINT_TYPE,
)
from raylog.actors.plane.image import NO_NODE, ClusterImage, PartitionImage, TopicImage
from raylog.storage.errors import InvalidTopic
from raylog.storage.names import check_topic_name
from raylog.storage.schemas.types import Value

NO_ID: Final = UUID(int=0)
NOT_ASKED: Final = -(2**31)
# What somebody may do whom nobody restricts, by the numbers of Kafka's operations: of a topic, READ
# WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS; of the cluster, CREATE ALTER
# DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE.
TOPIC_OPERATIONS: Final = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
# Kafka's bound of one DescribeTopicPartitions answer.
MAX_DESCRIBED_PARTITIONS: Final = 2000
_BROKERS, _CONTROLLERS = 1, 2  # endpoint types
_FIRST_WITH_IDS: Final = 12  # of Metadata requests that may name a topic by its id


def metadata(version: int, body: Value, image: ClusterImage) -> Value:
    """The answer to a Metadata request."""
    asks_topics = body["includeTopicAuthorizedOperations"]
    topics = [
        {**topic, "topicAuthorizedOperations": _operations(topic) if asks_topics else NOT_ASKED}
        for topic in _topics(version, body["topics"], image)
    ]
    asks_cluster = body["includeClusterAuthorizedOperations"]
    answer: Value = {
        "throttleTimeMs": 0,
        "brokers": [
            {"nodeId": one.node_id, "host": one.host, "port": one.port, "rack": one.rack}
            for one in image.brokers
        ],
        "clusterId": image.cluster_id,
        "controllerId": image.controller,
        "topics": topics,
        "errorCode": 0,
    }
    if 8 <= version <= 10:
        answer["clusterAuthorizedOperations"] = CLUSTER_OPERATIONS if asks_cluster else NOT_ASKED
    return answer


def _operations(topic: Value) -> int:
    """What somebody may do with a topic; of an id that no topic has nobody knows it."""
    is_nameless = topic["errorCode"] in (UNKNOWN_TOPIC_ID, INVALID_REQUEST)
    return NOT_ASKED if is_nameless else TOPIC_OPERATIONS


def _topics(version: int, asked: list[Value] | None, image: ClusterImage) -> list[Value]:
    is_all = asked is None or (version == 0 and not asked)
    if is_all:
        return [_topic(topic, image) for topic in image.topics.values()]
    assert asked is not None
    if version < _FIRST_WITH_IDS and any(one["topicId"] != NO_ID for one in asked):
        return [_no_topic(one["name"] or "", one["topicId"], INVALID_REQUEST) for one in asked]
    found: dict[object, Value] = {}
    for one in asked:
        name, topic_id = one["name"], one["topicId"]
        if topic_id != NO_ID:
            found.setdefault(topic_id, _by_id(topic_id, image))
        else:
            found.setdefault(name, _by_name(name, image))
    return list(found.values())


def _by_id(topic_id: UUID, image: ClusterImage) -> Value:
    topic = image.topics_by_id.get(topic_id)
    return _no_topic(None, topic_id, UNKNOWN_TOPIC_ID) if topic is None else _topic(topic, image)


def _by_name(name: str | None, image: ClusterImage) -> Value:
    topic = image.topics.get(name or "")
    if topic is not None:
        return _topic(topic, image)
    return _no_topic(name, NO_ID, _why_no_topic(name))


def _why_no_topic(name: str | None) -> int:
    """The error code for a name that no topic has."""
    try:
        check_topic_name(name or "")
    except InvalidTopic:
        return INVALID_TOPIC
    return UNKNOWN_TOPIC_OR_PARTITION


def _no_topic(name: str | None, topic_id: UUID, error_code: int) -> Value:
    return {
        "errorCode": error_code,
        "name": name,
        "topicId": topic_id,
        "isInternal": False,
        "partitions": [],
    }


def _topic(topic: TopicImage, image: ClusterImage) -> Value:
    return {
        "errorCode": 0,
        "name": topic.name,
        "topicId": topic.topic_id,
        "isInternal": topic.is_internal,
        "partitions": [
            _partition(number, partition, image.node_ids)
            for number, partition in enumerate(topic.partitions)
        ],
    }


def _partition(number: int, partition: PartitionImage, nodes: Set[int]) -> Value:
    leader = partition.leader
    is_led = partition.is_online and leader in nodes
    return {
        "errorCode": 0 if is_led else LEADER_NOT_AVAILABLE,
        "partitionIndex": number,
        "leaderId": leader if is_led else NO_NODE,
        "leaderEpoch": partition.leader_epoch,
        "replicaNodes": [leader],
        "isrNodes": [leader],
        "offlineReplicas": [] if is_led else [leader],
    }


def cluster(version: int, body: Value, image: ClusterImage) -> Value:
    """The answer to a DescribeCluster request."""
    if body["endpointType"] != _BROKERS:
        is_known = body["endpointType"] == _CONTROLLERS
        return {
            "throttleTimeMs": 0,
            "errorCode": MISMATCHED_ENDPOINT_TYPE if is_known else UNSUPPORTED_ENDPOINT_TYPE,
            "errorMessage": "This is a broker's address, and no controller's.",
            **({"endpointType": _BROKERS} if version else {}),
            "clusterId": "",
            "controllerId": NO_NODE,
            "brokers": [],
            "clusterAuthorizedOperations": NOT_ASKED,
        }
    fenced = {"isFenced": False} if version >= 2 else {}
    asks = body["includeClusterAuthorizedOperations"]
    return {
        "throttleTimeMs": 0,
        "errorCode": 0,
        "errorMessage": None,
        **({"endpointType": _BROKERS} if version else {}),
        "clusterId": image.cluster_id,
        "controllerId": image.controller,
        "brokers": [
            {
                "brokerId": one.node_id,
                "host": one.host,
                "port": one.port,
                "rack": one.rack,
                **fenced,
            }
            for one in image.brokers
        ],
        "clusterAuthorizedOperations": CLUSTER_OPERATIONS if asks else NOT_ASKED,
    }


def topic_partitions(body: Value, image: ClusterImage) -> Value:
    """The answer to a DescribeTopicPartitions request: topics by name, cut where it is too long."""
    asked = {topic["name"] for topic in body["topics"]}
    names: Iterable[str] = asked or image.topics
    cursor = body["cursor"]
    first_name, first_number = "", 0
    if cursor is not None:
        first_name, first_number = cursor["topicName"], cursor["partitionIndex"]
        if first_number < 0 or (asked and first_name not in asked):
            refused = [_no_topic(one["name"], NO_ID, INVALID_REQUEST) for one in body["topics"]]
            return _described_all([_described(one, [], NOT_ASKED) for one in refused], None)
    left = max(1, min(body["responsePartitionLimit"], MAX_DESCRIBED_PARTITIONS))
    topics: list[Value] = []
    for name in sorted(names):
        if name < first_name:
            continue
        if not left:
            return _described_all(topics, {"topicName": name, "partitionIndex": 0})
        topic = _by_name(name, image)
        start = first_number if name == first_name else 0
        some = topic["partitions"][start : start + left]
        if len(some) < len(topic["partitions"]) - start:
            cursor_at = start + len(some)
            if some:
                topics.append(_described(topic, some))
            return _described_all(topics, {"topicName": name, "partitionIndex": cursor_at})
        topics.append(_described(topic, some))
        left -= len(some)
    return _described_all(topics, None)


def _described(topic: Value, partitions: list[Value], operations: int = TOPIC_OPERATIONS) -> Value:
    without: Value = {"eligibleLeaderReplicas": [], "lastKnownElr": []}
    return {
        **topic,
        "partitions": [{**partition, **without} for partition in partitions],
        "topicAuthorizedOperations": operations,
    }


def _described_all(topics: list[Value], cursor: Value | None) -> Value:
    return {"throttleTimeMs": 0, "topics": topics, "nextCursor": cursor}


def reassignments() -> Value:
    """The answer to a ListPartitionReassignments request: with one replica there are none."""
    return {"throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "topics": []}
