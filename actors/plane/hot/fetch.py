"""Fetch requests by precompiled structs.

A request, by version; counts and lengths are int32 up to version 11, and one byte or more since
version 12. All numbers of the head, and all of a partition, stand in a row, so each takes one
struct::

    replica id (4) up to 14 | max wait ms (4) | min bytes (4) | max bytes (4) | isolation (1)
    session id (4) 7+ | session epoch (4) 7+ | count of topics
      name, or id (16) since version 13 | count of partitions
        index (4) | current leader epoch (4) 9+ | offset (8) | last fetched epoch (4) 12+
        log start offset (8) 5+ | max bytes (4) | tags 12+
      tags 12+
    forgotten topics 7+ | rack 11+ | tags 12+

``read_fetch`` reads what consumers send by these structs, and anything else (tagged fields, which
followers send, forgotten topics, 127 topics, bytes that are wrong) by the schema, which also knows
the error. Both ways are equal, and a test compares them.

What only fetch sessions and followers need is not kept: there are none of either (KIP-227: an
answer with session id 0 says so). Source: ``FetchRequest.json`` of Kafka 4.3; KIP-320, KIP-392,
KIP-516, KIP-595, KIP-903.
"""

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from raylog.actors.plane.frames import Request, read_body
from raylog.actors.plane.hot.parts import (
    FIRST_VERSION_OF_IDS,
    NO_TOPIC_ID,
    ONE_BYTE,
    Topic,
)
from raylog.storage.schemas.types import Value

CONSUMER: Final = -1  # the replica id of who is no follower
_FIRST_WITH_RACK: Final = 11
_FIRST_COMPACT: Final = 12
_FIRST_WITHOUT_REPLICA: Final = 15
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_UUID_BYTES: Final = 16


class PartitionFetch(NamedTuple):
    """From where one partition is to be read. An epoch of -1 is not known."""

    partition: int
    current_leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int  # a follower's
    max_bytes: int


class FetchBody(NamedTuple):
    """A Fetch request."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    topics: list[Topic[PartitionFetch]]
    rack: str


def read_fetch(request: Request) -> FetchBody:
    """The body of a Fetch request. Raises MalformedRequest."""
    read = _read_compact if request.version >= _FIRST_COMPACT else _read_old
    body = read(request.frame, request.body_position, request.version)
    return _from_value(read_body(request)) if body is None else body


def _from_value(value: Value) -> FetchBody:
    follower = value["replicaState"]["replicaId"]
    return FetchBody(
        replica_id=value["replicaId"] if follower == CONSUMER else follower,
        max_wait_ms=value["maxWaitMs"],
        min_bytes=value["minBytes"],
        max_bytes=value["maxBytes"],
        isolation=value["isolationLevel"],
        session_id=value["sessionId"],
        session_epoch=value["sessionEpoch"],
        topics=[
            Topic(
                topic["topic"],
                topic["topicId"].bytes,
                [_partition_from_value(part) for part in topic["partitions"]],
            )
            for topic in value["topics"]
        ],
        rack=value["rackId"],
    )


def _partition_from_value(part: Value) -> PartitionFetch:
    return PartitionFetch(
        partition=part["partition"],
        current_leader_epoch=part["currentLeaderEpoch"],
        offset=part["fetchOffset"],
        last_fetched_epoch=part["lastFetchedEpoch"],
        log_start_offset=part["logStartOffset"],
        max_bytes=part["partitionMaxBytes"],
    )


_COMPACT_HEAD: Final = Struct(">iiiibiiB")  # with the count of topics
_COMPACT_HEAD_15: Final = Struct(">iiibiiB")
_COMPACT_PARTITION: Final = Struct(">iiqiqiB")  # with its tags


def _read_compact(content: memoryview, at: int, version: int) -> FetchBody | None:
    """A body of version 12 or later; None for what is rare or wrong.

    Behind every slice a byte is read, so a slice that is cut short by the end is an IndexError.
    """
    has_ids = version >= FIRST_VERSION_OF_IDS
    replica_id = CONSUMER
    topics = []
    try:
        if version < _FIRST_WITHOUT_REPLICA:
            replica_id, *head, topic_count = _COMPACT_HEAD.unpack_from(content, at)
            at += _COMPACT_HEAD.size
        else:
            *head, topic_count = _COMPACT_HEAD_15.unpack_from(content, at)
            at += _COMPACT_HEAD_15.size
        if not 0 < topic_count < ONE_BYTE:
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
                *part, tags = _COMPACT_PARTITION.unpack_from(content, at)
                if tags:
                    return None
                partitions.append(PartitionFetch(*part))
                at += _COMPACT_PARTITION.size
            if content[at]:
                return None
            at += 1
            topics.append(Topic(name, topic_id, partitions))
        forgotten_count, rack_size = content[at], content[at + 1]
        if forgotten_count != 1 or not 0 < rack_size < ONE_BYTE:
            return None
        end = at + 1 + rack_size
        rack = str(content[at + 2 : end], "utf-8")
        return None if content[end] else FetchBody._make((replica_id, *head, topics, rack))
    except (StructError, IndexError, UnicodeDecodeError):
        return None


_OLD_HEAD: Final = Struct(">iiiibi")  # with the count of topics
_OLD_HEAD_7: Final = Struct(">iiiibiii")
_OLD_PARTITION: Final = Struct(">iqi")  # index, offset, max bytes
_OLD_PARTITION_5: Final = Struct(">iqqi")  # the log start before the max bytes
_OLD_PARTITION_9: Final = Struct(">iiqqi")  # the leader epoch before the offset
_NO_EPOCH: Final = -1
_NO_SESSION: Final = (0, -1)


def _read_old(content: memoryview, at: int, version: int) -> FetchBody | None:
    """A body of versions 4 to 11; None for what is rare or wrong."""
    topics = []
    try:
        form = _OLD_HEAD if version < 7 else _OLD_HEAD_7
        *head, topic_count = form.unpack_from(content, at)
        at += form.size
        if version < 7:
            head += _NO_SESSION
        if not 0 <= topic_count < ONE_BYTE:
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
                partitions.append(_old_partition(content, at, version))
                at += _old_partition_form(version).size
            topics.append(Topic(name, NO_TOPIC_ID, partitions))
        rack = ""
        if version >= 7:
            (forgotten_count,) = _INT32.unpack_from(content, at)
            at += _INT32.size
            if forgotten_count:
                return None
        if version >= _FIRST_WITH_RACK:
            (rack_size,) = _INT16.unpack_from(content, at)
            start = at + _INT16.size
            if rack_size < 0 or start + rack_size > len(content):
                return None
            rack = str(content[start : start + rack_size], "utf-8")
        return FetchBody._make((*head, topics, rack))
    except (StructError, UnicodeDecodeError):
        return None


def _old_partition_form(version: int) -> Struct:
    if version < 5:
        return _OLD_PARTITION
    return _OLD_PARTITION_5 if version < 9 else _OLD_PARTITION_9


def _old_partition(content: memoryview, at: int, version: int) -> PartitionFetch:
    numbers = _old_partition_form(version).unpack_from(content, at)
    if version < 5:
        index, offset, max_bytes = numbers
        return PartitionFetch(index, _NO_EPOCH, offset, _NO_EPOCH, -1, max_bytes)
    if version < 9:
        index, offset, log_start_offset, max_bytes = numbers
        return PartitionFetch(index, _NO_EPOCH, offset, _NO_EPOCH, log_start_offset, max_bytes)
    index, epoch, offset, log_start_offset, max_bytes = numbers
    return PartitionFetch(index, epoch, offset, _NO_EPOCH, log_start_offset, max_bytes)
