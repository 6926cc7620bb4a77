"""Produce and Fetch messages as the schemas have them, and the same as ``hot/`` has them."""

import uuid
from collections.abc import Sequence
from typing import Any, Final

from raylog.actors.plane.apis.records import FETCH, PRODUCE
from raylog.actors.plane.hot.fetch import FetchBody, PartitionFetch
from raylog.actors.plane.hot.parts import Topic
from raylog.actors.plane.hot.produce import PartitionRecords, ProduceBody
from tests.unit.actors.plane.bodies import entries, filled

PRODUCED: Final = range(PRODUCE.first_version, PRODUCE.last_version + 1)
FETCHED: Final = range(FETCH.first_version, FETCH.last_version + 1)

_PRODUCED_TOPIC: Final = entries(PRODUCE.request.struct, "topicData")
_PRODUCED_PARTITION: Final = entries(_PRODUCED_TOPIC, "partitionData")
_FETCHED_TOPIC: Final = entries(FETCH.request.struct, "topics")
_FETCHED_PARTITION: Final = entries(_FETCHED_TOPIC, "partitions")


def topic_of(version: int, number: int, field: str) -> dict[str, Any]:
    """What names a topic: since version 13 its id, before its name."""
    if version >= 13:
        return {"topicId": uuid.UUID(int=number + 1)}
    return {field: f"topic-{number}"}


def produce_value(version: int, counts: Sequence[int], records: bytes = b"records") -> Any:
    """A request as producers send it: so many partitions of each topic."""
    topics = [
        filled(
            _PRODUCED_TOPIC,
            **topic_of(version, number, "name"),
            partitionData=[
                filled(_PRODUCED_PARTITION, index=index, records=records) for index in range(count)
            ],
        )
        for number, count in enumerate(counts)
    ]
    return filled(PRODUCE.request.struct, acks=-1, timeoutMs=30_000, topicData=topics)


def fetch_value(version: int, counts: Sequence[int]) -> Any:
    """A request as consumers send it: so many partitions of each topic."""
    topics = [
        filled(
            _FETCHED_TOPIC,
            **topic_of(version, number, "topic"),
            partitions=[_fetched_partition(version, index) for index in range(count)],
        )
        for number, count in enumerate(counts)
    ]
    session = {"sessionId": 3, "sessionEpoch": 4} if version >= 7 else {}
    return filled(
        FETCH.request.struct,
        maxWaitMs=500,
        minBytes=1,
        maxBytes=1 << 20,
        isolationLevel=1,
        rackId="rack" if version >= 11 else "",
        topics=topics,
        **session,
    )


def _fetched_partition(version: int, index: int) -> Any:
    fields = {"partition": index, "fetchOffset": 1 << 40, "partitionMaxBytes": 1 << 16}
    if version >= 5:
        fields["logStartOffset"] = 2
    if version >= 9:
        fields["currentLeaderEpoch"] = 5
    if version >= 12:
        fields["lastFetchedEpoch"] = 6
    return filled(_FETCHED_PARTITION, **fields)


def produce_body(value: Any) -> ProduceBody:
    """What ``read_produce`` gives for a request that the schema reads as ``value``."""
    return ProduceBody(
        transactional_id=value["transactionalId"],
        acks=value["acks"],
        timeout_ms=value["timeoutMs"],
        topics=[
            Topic(
                name=topic["name"],
                topic_id=topic["topicId"].bytes,
                partitions=[
                    PartitionRecords(part["index"], part["records"])
                    for part in topic["partitionData"]
                ],
            )
            for topic in value["topicData"]
        ],
    )


def fetch_body(value: Any) -> FetchBody:
    """What ``read_fetch`` gives for a request that the schema reads as ``value``."""
    return FetchBody(
        replica_id=max(value["replicaId"], value["replicaState"]["replicaId"], key=_is_follower),
        max_wait_ms=value["maxWaitMs"],
        min_bytes=value["minBytes"],
        max_bytes=value["maxBytes"],
        isolation=value["isolationLevel"],
        session_id=value["sessionId"],
        session_epoch=value["sessionEpoch"],
        topics=[
            Topic(
                name=topic["topic"],
                topic_id=topic["topicId"].bytes,
                partitions=[
                    PartitionFetch(
                        part["partition"],
                        part["currentLeaderEpoch"],
                        part["fetchOffset"],
                        part["lastFetchedEpoch"],
                        part["logStartOffset"],
                        part["partitionMaxBytes"],
                    )
                    for part in topic["partitions"]
                ],
            )
            for topic in value["topics"]
        ],
        rack=value["rackId"],
    )


def _is_follower(replica_id: int) -> bool:
    return replica_id != -1
