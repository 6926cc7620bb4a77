"""Produce by precompiled structs: a request's records in place, and its answer in one piece.

A request, by version, one topic and one partition; lengths and counts are int32 up to version 8,
and unsigned varints plus one since version 9::

    transactional id | acks (2) | timeout ms (4) | count of topics
      name, or id (16) since version 13 | count of partitions
        index (4) | length of records | records | tags 9+
      tags 9+
    tags 9+

Records are not copied: they are a part of the received frame.

``read_produce`` reads what producers send by a few structs, and anything else (a transactional id,
tagged fields, 127 topics, bytes that are wrong) by the schema, which also knows the error. Answers
are the same: partitions with an offset or a plain error by structs, the rest by the schema. Both
ways are equal to the byte, and a test compares them. Source: ``ProduceRequest.json``,
``ProduceResponse.json`` of Kafka 4.3; KIP-467, KIP-516, KIP-951.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from raylog.actors.plane.frames import Request, answer, answer_head, read_body
from raylog.actors.plane.hot.parts import (
    FIRST_VERSION_OF_IDS,
    NO_TAGS,
    NO_TOPIC_ID,
    ONE_BYTE,
    Endpoint,
    Leader,
    Tags,
    Topic,
    compact_size,
    compact_string,
    endpoint_value,
    leader_value,
    topic_value,
)
from raylog.storage.schemas.types import UNKNOWN_TAGS, Value

_OLD_HEAD: Final = Struct(">hhii")  # transactional id, acks, timeout, topics
_OLD_PARTITION: Final = Struct(">ii")  # index, length
_HEAD: Final = Struct(">BhiB")
_INDEX: Final = Struct(">i")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_UUID_BYTES: Final = 16


class PartitionRecords(NamedTuple):
    """What a producer sends to one partition."""

    partition: int
    records: memoryview | None  # null is no right request, and is answered by an error


class ProduceBody(NamedTuple):
    """A Produce request."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[Topic[PartitionRecords]]


def read_produce(request: Request) -> ProduceBody:
    """The body of a Produce request. Raises MalformedRequest."""
    read = _read_compact if request.api.is_flexible(request.version) else _read_old
    body = read(request.frame, request.body_position, request.version)
    return _from_value(read_body(request)) if body is None else body


def _from_value(value: Value) -> ProduceBody:
    topics = [
        Topic(
            topic["name"],
            topic["topicId"].bytes,
            [PartitionRecords(part["index"], part["records"]) for part in topic["partitionData"]],
        )
        for topic in value["topicData"]
    ]
    return ProduceBody(value["transactionalId"], value["acks"], value["timeoutMs"], topics)


def _read_compact(content: memoryview, at: int, version: int) -> ProduceBody | None:
    """A body of version 9 or later; None for what is rare or wrong.

    Behind every slice a byte is read, so a slice that is cut short by the end is an IndexError.
    """
    has_ids = version >= FIRST_VERSION_OF_IDS
    topics = []
    try:
        transactional_id_size, acks, timeout_ms, topic_count = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        if transactional_id_size or not 0 < topic_count < ONE_BYTE:
            return None
        for _ in range(topic_count - 1):
            name, topic_id = "", NO_TOPIC_ID
            if has_ids:
                end = at + _UUID_BYTES
                topic_id = bytes(content[at:end])
            else:
                name_size = content[at]
                if not 0 < name_size < ONE_BYTE:
                    return None
                end = at + name_size
                name = str(content[at + 1 : end], "utf-8")
            partition_count = content[end]
            if not 0 < partition_count < ONE_BYTE:
                return None
            at = end + 1
            partitions = []
            for _ in range(partition_count - 1):
                (index,) = _INDEX.unpack_from(content, at)
                size, start = _unsigned(content, at + _INDEX.size)
                end = start + size - 1
                if size == 0 or content[end]:
                    return None
                partitions.append(PartitionRecords(index, content[start:end]))
                at = end + 1
            if content[at]:
                return None
            at += 1
            topics.append(Topic(name, topic_id, partitions))
        return None if content[at] else ProduceBody(None, acks, timeout_ms, topics)
    except (StructError, IndexError, UnicodeDecodeError):
        return None


def _read_old(content: memoryview, at: int, version: int) -> ProduceBody | None:
    """A body of versions 3 to 8; None for what is rare or wrong."""
    topics = []
    try:
        transactional_id_size, acks, timeout_ms, topic_count = _OLD_HEAD.unpack_from(content, at)
        at += _OLD_HEAD.size
        if transactional_id_size != -1 or not 0 <= topic_count < ONE_BYTE:
            return None
        for _ in range(topic_count):
            (name_size,) = _INT16.unpack_from(content, at)
            if name_size < 0:
                return None
            start = at + _INT16.size
            end = start + name_size
            (partition_count,) = _INT32.unpack_from(content, end)
            if not 0 <= partition_count < ONE_BYTE:
                return None
            name = str(content[start:end], "utf-8")
            at = end + _INT32.size
            partitions = []
            for _ in range(partition_count):
                index, size = _OLD_PARTITION.unpack_from(content, at)
                start = at + _OLD_PARTITION.size
                at = start + size
                if size < 0 or at > len(content):
                    return None
                partitions.append(PartitionRecords(index, content[start:at]))
            topics.append(Topic(name, NO_TOPIC_ID, partitions))
        return ProduceBody(None, acks, timeout_ms, topics)
    except (StructError, UnicodeDecodeError):
        return None


def _unsigned(content: memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint, and where it ends; 0, which is null, for one that is too large."""
    number = 0
    for shift in (0, 7, 14, 21, 28):
        byte = content[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < ONE_BYTE:
            return (number if number <= len(content) else 0), at
    return 0, at


class ProducedPartition(NamedTuple):
    """What became of the records for one partition."""

    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()  # index in the batch, and why
    error_message: str | None = None
    current_leader: Leader | None = None
    more_tags: Tags | None = None  # of flexible versions: ``own_clients.py``


# By version: index, error, base offset, log append time, and what follows up to the end of the
# partition: the log start, no record errors, no message, no tags.
_ANSWER_3: Final = Struct(">ihqq")
_ANSWER_5: Final = Struct(">ihqqq")
_ANSWER_8: Final = Struct(">ihqqqih")
_ANSWER_9: Final = Struct(">ihqqqBBB")
_NO_THROTTLE: Final = bytes(4)
_NO_RECORD_ERRORS: Final = 0
_NULL: Final = -1
_COMPACT_NO_ERRORS, _COMPACT_NULL, _COMPACT_NO_TAGS = 1, 0, 0


def produce_answer(
    request: Request,
    topics: Sequence[Topic[ProducedPartition]],
    endpoints: Sequence[Endpoint] = (),
) -> bytes:
    """The frame that answers a Produce request.

    ``endpoints``: of every leader that is named; left out where the version has no such field, as
    are the leaders.
    """
    write = _compact_answer if request.api.is_flexible(request.version) else _old_answer
    body = None if endpoints else write(topics, request.version)
    if body is None:
        return answer(request, _answer_value(request, topics, endpoints))
    return answer_head(request, len(body)) + body


def _is_rare(part: ProducedPartition) -> bool:
    return bool(
        part.record_errors
        or part.error_message is not None
        or part.current_leader
        or part.more_tags
    )


def _answer_value(
    request: Request, topics: Sequence[Topic[ProducedPartition]], endpoints: Sequence[Endpoint]
) -> Value:
    return {
        "responses": [
            {
                **topic_value(topic, "name"),
                "partitionResponses": [
                    _partition_value(part, request.api.is_flexible(request.version))
                    for part in topic.partitions
                ],
            }
            for topic in topics
        ],
        "throttleTimeMs": 0,
        "nodeEndpoints": [endpoint_value(endpoint) for endpoint in endpoints],
    }


def _partition_value(part: ProducedPartition, is_flexible: bool) -> Value:
    more = {UNKNOWN_TAGS: part.more_tags} if is_flexible and part.more_tags else {}
    return {
        **more,
        "index": part.partition,
        "errorCode": part.error_code,
        "baseOffset": part.base_offset,
        "logAppendTimeMs": part.log_append_time_ms,
        "logStartOffset": part.log_start_offset,
        "recordErrors": [
            {"batchIndex": index, "batchIndexErrorMessage": why}
            for index, why in part.record_errors
        ],
        "errorMessage": part.error_message,
        "currentLeader": leader_value(part.current_leader),
    }


def _compact_answer(topics: Sequence[Topic[ProducedPartition]], version: int) -> bytes | None:
    """A body of version 9 or later; None for what is rare."""
    pieces = [compact_size(len(topics))]
    for topic in topics:
        has_id = version >= FIRST_VERSION_OF_IDS
        pieces.append(topic.topic_id if has_id else compact_string(topic.name))
        pieces.append(compact_size(len(topic.partitions)))
        for part in topic.partitions:
            if _is_rare(part):
                return None
            pieces.append(
                _ANSWER_9.pack(*part[:5], _COMPACT_NO_ERRORS, _COMPACT_NULL, _COMPACT_NO_TAGS)
            )
        pieces.append(NO_TAGS)
    pieces.append(_NO_THROTTLE + NO_TAGS)
    return b"".join(pieces)


def _old_answer(topics: Sequence[Topic[ProducedPartition]], version: int) -> bytes | None:
    """A body of versions 3 to 8; None for what is rare."""
    pieces = [_INT32.pack(len(topics))]
    for topic in topics:
        name = topic.name.encode()
        pieces += (_INT16.pack(len(name)), name, _INT32.pack(len(topic.partitions)))
        for part in topic.partitions:
            if _is_rare(part):
                return None
            if version < 5:
                pieces.append(_ANSWER_3.pack(*part[:4]))
            elif version < 8:
                pieces.append(_ANSWER_5.pack(*part[:5]))
            else:
                pieces.append(_ANSWER_8.pack(*part[:5], _NO_RECORD_ERRORS, _NULL))
    pieces.append(_NO_THROTTLE)
    return b"".join(pieces)
