"""Questions about a partition's records, each to the leader of one partition."""

from typing import Any, Final
from uuid import UUID

from raylog.actors.plane.apis.records import (
    DELETE_RECORDS,
    DESCRIBE_PRODUCERS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from raylog.storage.schemas.types import Value
from tests.kafka.differential.batches import CODECS, NO_PRODUCER, SPOILT, T0, Batch, rows
from tests.kafka.differential.question import ASTRAY, Draw, Epoch, Place, Question, TopicId

# The topics whose records are compared, with their partitions and what they set.
PLAIN: Final = "plain"
RECORD_TOPICS: Final[dict[str, tuple[int, dict[str, str]]]] = {
    PLAIN: (2, {}),
    "small": (1, {"max.message.bytes": "1000"}),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime"}),
    "compacted": (1, {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}),
    "packed": (1, {"compression.type": "gzip"}),
}
# One whose configs change and that gets partitions, and is never deleted.
KEPT: Final = "kept"
LASTING_TOPICS: Final = RECORD_TOPICS | {KEPT: (1, {})}
PLACES: Final[tuple[Place, ...]] = tuple(
    (name, number) for name, (count, _) in RECORD_TOPICS.items() for number in range(count)
)
UNKNOWN_ID: Final = UUID(int=(1 << 100) + 7)
MAX_LONG: Final = 2**63 - 1
FIRST_WITH_IDS: Final = 13
PRODUCERS: Final = 4


def place(draw: Draw) -> Place:
    return draw.usually((PLAIN, 0), *PLACES)


def _asked(draw: Draw, at: Place) -> Place:
    """The partition that is served there; seldom one that is not there at all."""
    return draw.usually(at, at, at, ("no-such", 0), (at[0], 9), (at[0], -1), ("", 0), ("a b", 0))


def _epoch(draw: Draw, at: Place) -> Any:
    return draw.usually(-1, Epoch(*at), Epoch(*at, 1), Epoch(*at, -1), -2, 1_000_000)


def _offset(draw: Draw) -> int:
    return draw.one(0, 1, 2, 3, draw.random.randrange(40), -1, -2, MAX_LONG)


def list_offsets(draw: Draw) -> Question:
    at = place(draw)
    name, number = _asked(draw, at)
    times = (-1, -2, -3, -4, -5, -6, -7, -(2**63), 0, T0, MAX_LONG)
    time_ms = draw.one(*times, T0 + draw.random.randrange(1000))
    part = {
        "partitionIndex": number,
        "currentLeaderEpoch": _epoch(draw, at),
        "timestamp": time_ms,
    }
    parts = [part] * draw.usually(1, 2, 0)
    body = {
        "replicaId": draw.usually(-1, -2),
        "isolationLevel": draw.one(0, 1),
        "topics": [{"name": name, "partitions": parts}],
        "timeoutMs": 1000,
    }
    return Question(LIST_OFFSETS, draw.version(LIST_OFFSETS), body, at)


def offset_for_leader_epoch(draw: Draw) -> Question:
    at = place(draw)
    name, number = _asked(draw, at)
    part = {
        "partition": number,
        "currentLeaderEpoch": _epoch(draw, at),
        "leaderEpoch": draw.one(Epoch(*at), Epoch(*at), Epoch(*at, 1), Epoch(*at, -1), -1, -2, 99),
    }
    body = {
        "replicaId": draw.usually(-1, -2),
        "topics": [{"topic": name, "partitions": [part] * draw.usually(1, 2, 0)}],
    }
    version = draw.version(OFFSET_FOR_LEADER_EPOCH)
    return Question(OFFSET_FOR_LEADER_EPOCH, version, body, at)


def _named(draw: Draw, name: str, version: int, field: str) -> Value:
    """What names a topic in Produce and Fetch."""
    if version < FIRST_WITH_IDS:
        return {field: name}
    known: Any = TopicId(name) if name in RECORD_TOPICS else UNKNOWN_ID
    return {"topicId": draw.usually(known, known, known, UUID(int=0))}


def fetch(draw: Draw) -> Question:
    at, version = place(draw), draw.version(FETCH)
    name, number = _asked(draw, at)
    part = {
        "partition": number,
        "currentLeaderEpoch": _epoch(draw, at) if version >= 9 else -1,
        "fetchOffset": _offset(draw),
        "lastFetchedEpoch": draw.usually(-1, Epoch(*at), Epoch(*at, 1)) if version >= 12 else -1,
        "logStartOffset": draw.usually(-1, 0, 5),
        "partitionMaxBytes": draw.usually(1 << 20, 0, 1, 150, 1 << 30),  # below 0 Kafka fails
    }
    topics = [{**_named(draw, name, version, "topic"), "partitions": [part]}]
    has_session = version >= 7
    body = {
        "maxWaitMs": draw.usually(0, 30, -1),
        "minBytes": draw.usually(1, 0, 1 << 30, -1),
        "maxBytes": draw.usually(1 << 20, 0, 1, 150, 2**31 - 1),  # as above
        "isolationLevel": draw.one(0, 1),
        "sessionId": draw.usually(0, 12345) if has_session else 0,
        "sessionEpoch": draw.usually(-1, 0, 1) if has_session else -1,
        "topics": draw.usually(topics, []),
        "forgottenTopicsData": [],
        "rackId": draw.usually("", "rack") if version >= 11 else "",
    }
    return Question(FETCH, version, body, at)


def batch(draw: Draw) -> Batch:
    """Mostly a good one, by an idempotent producer as often as not."""
    content = rows(draw)
    if draw.chance(0.4):
        how = draw.one(*SPOILT)
        return Batch(content, how, codec=draw.usually("none", *CODECS))
    codec = draw.usually("none", *CODECS)
    if draw.chance(0.5):
        return Batch(content, codec=codec)
    return Batch(
        content,
        codec=codec,
        producer=draw.usually(draw.random.randrange(PRODUCERS), NO_PRODUCER),
        epoch=draw.usually(0, 1, 2, 3),
        sequence=draw.one(0, 0, 1, 2, 3, 5, -1),
        is_transactional=draw.usually(False, True),
    )


def produce(draw: Draw) -> Question:
    at, version = place(draw), draw.version(PRODUCE)
    name, number = _asked(draw, at)
    records = batch(draw)  # never null: Kafka does not answer that
    parts = [{"index": number, "records": records}]
    acks = draw.usually(-1, 1, 0, 2, -2)
    body = {
        "transactionalId": draw.usually(None, None, None, ""),
        "acks": acks,
        "timeoutMs": draw.usually(30_000, 0),
        "topicData": draw.usually(
            [{**_named(draw, name, version, "name"), "partitionData": parts}],
            [],
        ),
    }
    return Question(PRODUCE, version, body, at, is_answered=acks != 0)


def init_producer_id(draw: Draw) -> Question:
    version = draw.version(INIT_PRODUCER_ID)
    has_ids = version >= 3
    body = {
        "transactionalId": draw.usually(None, "", ASTRAY),
        "transactionTimeoutMs": draw.usually(60_000, 0, -1, 2**31 - 1),
        "producerId": draw.usually(-1, 5, -2) if has_ids else -1,
        "producerEpoch": draw.usually(-1, 0, -2) if has_ids else -1,
    }
    return Question(INIT_PRODUCER_ID, version, body, draw.one(None, (PLAIN, 0)))


def delete_records(draw: Draw) -> Question:
    at = draw.one(*PLACES)
    name, number = _asked(draw, at)
    part = {
        "partitionIndex": number,
        "offset": draw.one(-1, 0, 1, 2, draw.random.randrange(20), -2, MAX_LONG),
    }
    body = {
        "topics": [{"name": name, "partitions": [part] * draw.usually(1, 0)}],
        "timeoutMs": draw.usually(30_000, 0),
    }
    return Question(DELETE_RECORDS, draw.version(DELETE_RECORDS), body, at)


def describe_producers(draw: Draw) -> Question:
    at = place(draw)
    name, number = _asked(draw, at)
    body = {"topics": [{"name": name, "partitionIndexes": [number] * draw.usually(1, 0, 2)}]}
    return Question(DESCRIBE_PRODUCERS, draw.version(DESCRIBE_PRODUCERS), body, at)
