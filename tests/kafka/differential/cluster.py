"""Questions about the cluster and its topics, which any broker answers."""

from typing import Any, Final
from uuid import UUID

from raylog.actors.plane.apis.cluster import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    FIND_COORDINATOR,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
)
from raylog.actors.plane.apis.connection import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from raylog.actors.plane.apis.table import APIS
from raylog.actors.plane.apis.topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from raylog.storage.schemas.types import Value
from tests.kafka.differential.question import BrokerNumber, Draw, Place, Question, TopicId
from tests.kafka.differential.records import KEPT, PLAIN, RECORD_TOPICS, UNKNOWN_ID

# Topics that come and go. Two of them collide in the names of Kafka's metrics.
MADE: Final = ("made-a", "made-b", "made.c", "made_c")
WRONG_NAMES: Final = ("", ".", "..", "a b", "é", "a" * 249, "a" * 250, "a/b", "a:b")
NO_ID: Final = UUID(int=0)


def anywhere(draw: Draw) -> Place | None:
    """Any broker may be asked."""
    return draw.one(None, (PLAIN, 0), (PLAIN, 1))


def name(draw: Draw) -> str:
    return draw.usually(draw.one(*RECORD_TOPICS, KEPT, *MADE), "no-such", *WRONG_NAMES)


def metadata(draw: Draw) -> Question:
    version = draw.version(METADATA)

    def topic() -> Value:
        if version >= 10 and draw.chance(0.3):
            wanted: Any = draw.usually(TopicId(draw.one(*RECORD_TOPICS, *MADE)), UNKNOWN_ID)
            return {"topicId": wanted, "name": draw.usually(None, PLAIN)}
        return {"name": draw.usually(name(draw), None) if version >= 10 else name(draw)}

    topics: Any = draw.some(3, topic)
    if version and draw.chance(0.2):
        topics = None
    body = {
        "topics": topics,
        "allowAutoTopicCreation": draw.one(True, False),
        "includeClusterAuthorizedOperations": draw.one(True, False),
        "includeTopicAuthorizedOperations": draw.one(True, False),
    }
    return Question(METADATA, version, _of_version(METADATA.name, version, body), anywhere(draw))


def _of_version(api: str, version: int, body: Value) -> Value:
    """Without the fields that are too new, or gone."""
    assert api == METADATA.name
    if version < 4:
        del body["allowAutoTopicCreation"]
    if version < 8:
        del body["includeTopicAuthorizedOperations"]
    if not 8 <= version <= 10:
        del body["includeClusterAuthorizedOperations"]
    return body


def describe_cluster(draw: Draw) -> Question:
    version = draw.version(DESCRIBE_CLUSTER)
    body: Value = {"includeClusterAuthorizedOperations": draw.one(True, False)}
    if version >= 1:
        body["endpointType"] = draw.usually(1, 2, 0, 3)
    if version >= 2:
        body["includeFencedBrokers"] = draw.one(True, False)
    return Question(DESCRIBE_CLUSTER, version, body, anywhere(draw))


def describe_topic_partitions(draw: Draw) -> Question:
    cursor = {
        "topicName": draw.usually(name(draw), ""),
        "partitionIndex": draw.one(0, 0, 1, 5, -1),
    }
    # Kafka fails at an empty name. Of all topics it has some that raylog has not: no limit then.
    topics = [{"name": one} for one in draw.some(3, lambda: name(draw)) if one]
    limit = draw.usually(2000, 1, 2, 0, -1, 100_000)
    body = {
        "topics": topics,
        "responsePartitionLimit": limit if topics else 2000,
        "cursor": draw.usually(None, cursor),
    }
    return Question(DESCRIBE_TOPIC_PARTITIONS, 0, body, anywhere(draw))


def find_coordinator(draw: Draw) -> Question:
    version = draw.version(FIND_COORDINATOR)
    key = draw.usually("group", "")
    body: Value = {"coordinatorKeys": draw.some(2, lambda: key)} if version >= 4 else {"key": key}
    if version:
        body["keyType"] = draw.usually(0, 1, 2, 3, -1)
    return Question(FIND_COORDINATOR, version, body, anywhere(draw))


def list_partition_reassignments(draw: Draw) -> Question:
    topics = draw.some(2, lambda: {"name": name(draw), "partitionIndexes": [draw.one(0, 1, 7)]})
    body = {"timeoutMs": draw.usually(60_000, 0), "topics": draw.one(None, topics)}
    return Question(LIST_PARTITION_REASSIGNMENTS, 0, body, anywhere(draw))


def connection(draw: Draw) -> Question:
    """ApiVersions, requests of Sasl where nobody is asked who he is, and versions too new."""
    api = draw.one(API_VERSIONS, API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
    if api is SASL_HANDSHAKE:
        return Question(api, draw.version(api), {"mechanism": draw.one("PLAIN", "?")})
    if api is SASL_AUTHENTICATE:
        return Question(api, draw.version(api), {"authBytes": b"\0user\0password"})
    version = draw.version(api)
    if draw.chance(0.3):
        api = draw.one(*APIS.values())
        return Question(api, api.last_version + draw.one(1, 50), {}, anywhere(draw))
    body = {
        "clientSoftwareName": draw.usually("differential", "", "a b"),
        "clientSoftwareVersion": draw.usually("1", "", "-"),
    }
    return Question(api, version, body if version >= 3 else {}, anywhere(draw))


# -- topics that are made, extended, deleted -------------------------------------------------------

# Not "NaN": Kafka takes it for a share from 0 to 1.
CONFIGS: Final[tuple[tuple[str, str | None], ...]] = (
    ("retention.ms", "1000000"),
    ("retention.ms", "-1"),
    ("retention.ms", "-2"),
    ("retention.ms", "soon"),
    ("retention.ms", " 5000 "),
    ("retention.ms", ""),
    ("retention.ms", None),
    ("retention.ms", "9223372036854775808"),
    ("segment.bytes", "1048576"),
    ("segment.bytes", "1048575"),
    ("segment.bytes", "2147483648"),
    ("segment.bytes", "1e7"),
    ("segment.bytes", "0x100000"),
    ("segment.bytes", "1_048_576"),
    ("max.message.bytes", "0"),
    ("max.message.bytes", "-1"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact,delete"),
    ("cleanup.policy", " delete , compact "),
    ("cleanup.policy", "delete,delete"),
    ("cleanup.policy", ""),
    ("cleanup.policy", "delete,shred"),
    ("cleanup.policy", "DELETE"),
    ("cleanup.policy", None),
    ("compression.type", "zstd"),
    ("compression.type", "none"),
    ("compression.type", "ZSTD"),
    ("compression.type", "brotli"),
    ("compression.gzip.level", "0"),
    ("compression.gzip.level", "-1"),
    ("compression.gzip.level", "10"),
    ("compression.lz4.level", "18"),
    ("compression.zstd.level", "22"),
    ("preallocate", "true"),
    ("preallocate", "TRUE"),
    ("preallocate", "yes"),
    ("preallocate", "1"),
    ("min.cleanable.dirty.ratio", "0.25"),
    ("min.cleanable.dirty.ratio", "1.5"),
    ("min.cleanable.dirty.ratio", "1e-1"),
    ("min.cleanable.dirty.ratio", "-0.1"),
    ("message.timestamp.type", "LogAppendTime"),
    ("message.timestamp.type", "logappendtime"),
    ("min.compaction.lag.ms", "10"),
    ("max.compaction.lag.ms", "5"),
    ("max.compaction.lag.ms", "0"),
    ("flush.messages", "0"),
    ("flush.messages", "1"),
    ("segment.jitter.ms", "5"),
    ("segment.jitter.ms", "-5"),
    ("segment.ms", "0"),
    ("index.interval.bytes", "8192"),
    ("segment.index.bytes", "3"),
    ("segment.index.bytes", "4096"),
    ("file.delete.delay.ms", "100000"),
    ("delete.retention.ms", "7"),
    ("min.insync.replicas", "1"),
    ("min.insync.replicas", "0"),
    ("no.such.key", "1"),
    ("", "1"),
    ("log.retention.ms", "1"),
    ("num.partitions", "1"),
)


def _config(draw: Draw) -> Value:
    key, value = draw.one(*CONFIGS)
    return {"name": key, "value": value}


def create_topics(draw: Draw) -> Question:
    version = draw.version(CREATE_TOPICS)
    is_trial = draw.chance(0.4)
    new_name = name if is_trial else _made

    def topic() -> Value:
        assignments: list[Value] = []
        if draw.chance(0.1):
            broker: Any = draw.usually(BrokerNumber(), 77)
            assignments = [{"partitionIndex": draw.usually(0, 1), "brokerIds": [broker]}]
        return {
            "name": new_name(draw),
            "numPartitions": draw.usually(1, 2, -1, 0, -2, 10_001),
            "replicationFactor": draw.usually(draw.one(1, -1), 0, 2, -2, 300),
            "assignments": assignments,
            "configs": [_config(draw) for _ in range(draw.one(0, 0, 1, 2))],
        }

    topics = draw.some(2, topic)
    if draw.chance(0.05):
        topics *= 2
    body = {"topics": topics, "timeoutMs": 30_000, "validateOnly": is_trial}
    return Question(CREATE_TOPICS, version, body, anywhere(draw))


def _made(draw: Draw) -> str:
    return draw.usually(draw.one(*MADE), *WRONG_NAMES[:5], PLAIN)


def delete_topics(draw: Draw) -> Question:
    version = draw.version(DELETE_TOPICS)

    def wanted() -> str:
        return draw.usually(draw.one(*MADE), "no-such", "", "a b", "a" * 250)

    def topic() -> Value:
        if draw.chance(0.6):
            return {"name": wanted(), "topicId": NO_ID}
        own: Any = TopicId(draw.one(*MADE))
        return {
            "name": draw.usually(None, MADE[0]),
            "topicId": draw.usually(own, own, UNKNOWN_ID, NO_ID),
        }

    body: Value = {"timeoutMs": 30_000}
    if version >= 6:
        body["topics"] = draw.some(2, topic)
    else:
        body["topicNames"] = draw.some(2, wanted)
    return Question(DELETE_TOPICS, version, body, anywhere(draw))


def create_partitions(draw: Draw) -> Question:
    is_trial = draw.chance(0.6)

    def topic() -> Value:
        broker: Any = draw.usually(BrokerNumber(), 77)
        return {
            "name": draw.usually(draw.one(KEPT, KEPT, *MADE), "no-such", "", "a b"),
            "count": draw.one(1, 2, 2, 3, 0, -1, 10_001 if is_trial else 4),
            "assignments": draw.usually(None, None, None, [], [{"brokerIds": [broker]}]),
        }

    topics = draw.some(2, topic)
    if draw.chance(0.05):
        topics *= 2
    body = {"topics": topics, "timeoutMs": 30_000, "validateOnly": is_trial}
    return Question(CREATE_PARTITIONS, draw.version(CREATE_PARTITIONS), body, anywhere(draw))
