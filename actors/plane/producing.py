"""Answers Produce: each partition's batch is appended, in the order of the request.

A batch lies in the buffer of its frame and is written from there. ``acks`` 1 and -1 are one thing
with one replica: an answer means what the topic's ``flush.messages`` asks for. With ``acks`` 0
there is no answer; where something went wrong the connection is closed, which is all that such a
producer can be told. Source: ``KafkaApis.handleProduceRequest`` of Kafka.
"""

from typing import Final

from raylog.actors.plane.codes import INVALID_RECORD, INVALID_REQUIRED_ACKS, code_of
from raylog.actors.plane.errors import NotAcknowledged
from raylog.actors.plane.frames import Request
from raylog.actors.plane.hosts import Host, Hosts
from raylog.actors.plane.hot.parts import Topic
from raylog.actors.plane.hot.produce import (
    PartitionRecords,
    ProduceBody,
    ProducedPartition,
    produce_answer,
    read_produce,
)
from raylog.actors.plane.own_clients import error_tags
from raylog.storage.errors import RaylogError
from raylog.storage.records.layout import HEADER_SIZE

NO_ANSWER, OF_THE_LEADER, OF_ALL = 0, 1, -1
_NO_OFFSET: Final = -1


def produce(request: Request, hosts: Hosts) -> bytes | None:
    """The answer to a Produce request; None for ``acks`` 0. Raises NotAcknowledged."""
    body = read_produce(request)
    topics = [
        Topic(
            topic.name,
            topic.topic_id,
            [_append(request, body, topic, p, hosts) for p in topic.partitions],
        )
        for topic in body.topics
    ]
    if body.acks != NO_ANSWER:
        return produce_answer(request, topics)
    for topic in topics:
        for part in topic.partitions:
            if part.error_code:
                raise NotAcknowledged(topic.name, part.partition, part.error_code)
    return None


def _append(
    request: Request,
    body: ProduceBody,
    topic: Topic[PartitionRecords],
    part: PartitionRecords,
    hosts: Hosts,
) -> ProducedPartition:
    if body.acks not in (NO_ANSWER, OF_THE_LEADER, OF_ALL):
        return ProducedPartition(part.partition, INVALID_REQUIRED_ACKS, _NO_OFFSET)
    host = hosts.find(topic.name, topic.topic_id, part.partition)
    if isinstance(host, int):
        return ProducedPartition(part.partition, host, _NO_OFFSET)
    if part.records is None or len(part.records) < HEADER_SIZE:
        return ProducedPartition(part.partition, INVALID_RECORD, _NO_OFFSET)
    try:
        result = host.partition.append_admitted(part.records)
    except RaylogError as error:
        return _refused(request, host, error)
    return ProducedPartition(
        part.partition,
        0,
        result.base_offset,
        result.log_append_time,
        result.log_start_offset,
    )


def _refused(request: Request, host: Host, error: RaylogError) -> ProducedPartition:
    return ProducedPartition(
        partition=host.number,
        error_code=code_of(error),
        base_offset=_NO_OFFSET,
        log_start_offset=host.partition.log.log_start_offset,
        error_message=str(error),
        more_tags=error_tags(request, error),
    )
