"""Answers ListOffsets and OffsetForLeaderEpoch: where records are, by time and by leader epoch.

===============  ======================  =====================================================
timestamp        since ListOffsets       answer: offset, and its leader epoch
===============  ======================  =====================================================
-1 latest        1                       the end of what the reader may see; the current epoch
-2 earliest      1                       the log start
-3 maximum       7                       the record with the largest timestamp
-4, -5, -6       8, 9, 11                the log start; nothing; nothing: no record is elsewhere
0 and later      1                       the first record at this time or later
===============  ======================  =====================================================

Nothing is -1 everywhere, and no error. Source: ``KafkaApis`` and ``UnifiedLog`` of Kafka; KIP-320.
"""

from collections import Counter
from typing import Final

from raylog.actors.plane.codes import INVALID_REQUEST, UNSUPPORTED_VERSION, code_of
from raylog.actors.plane.frames import Request, answer, read_body
from raylog.actors.plane.hosts import Hosts, check_epoch
from raylog.actors.plane.hot.parts import NO_TOPIC_ID
from raylog.actors.plane.own_clients import error_tags
from raylog.storage.errors import RaylogError
from raylog.storage.readable import (
    COMMITTED,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    LOG_END,
    MAX_TIMESTAMP,
    Isolation,
)
from raylog.storage.schemas.types import UNKNOWN_TAGS, Value
from raylog.storage.state.epochs import NO_EPOCH

DEBUGGING: Final = -2  # the replica id of who sees to the log's end
_READ_COMMITTED: Final = 1
_NOTHING: Final[Value] = {"timestamp": -1, "offset": -1, "leaderEpoch": -1}
# The first version of ListOffsets that may ask for a special timestamp; the others always may.
_FIRST_WITH_EPOCHS: Final = 4  # of ListOffsets
_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


def list_offsets(request: Request, hosts: Hosts) -> bytes:
    """The answer to a ListOffsets request."""
    body = read_body(request)
    asked = Counter(
        (topic["name"], part["partitionIndex"])
        for topic in body["topics"]
        for part in topic["partitions"]
    )
    topics = []
    for topic in body["topics"]:
        name = topic["name"]
        parts = []
        for part in topic["partitions"]:
            index = part["partitionIndex"]
            if not asked[name, index]:
                continue  # it was asked for twice, and is answered once
            if asked.pop((name, index)) > 1:
                found: Value = {"errorCode": INVALID_REQUEST}
            else:
                found = _offset(request, hosts, body, name, part)
            parts.append({"partitionIndex": index, "errorCode": 0, **_NOTHING, **found})
        topics.append({"name": name, "partitions": parts})
    return answer(request, {"throttleTimeMs": 0, "topics": topics})


def _offset(request: Request, hosts: Hosts, body: Value, name: str, part: Value) -> Value:
    timestamp = part["timestamp"]
    if timestamp < EARLIEST_PENDING_UPLOAD or request.version < _SINCE.get(timestamp, 0):
        return {"errorCode": UNSUPPORTED_VERSION}
    host = hosts.find(name, NO_TOPIC_ID, part["partitionIndex"])
    if isinstance(host, int):
        return {"errorCode": host}
    try:
        check_epoch(host, part["currentLeaderEpoch"])
    except RaylogError as error:
        return {"errorCode": code_of(error), UNKNOWN_TAGS: error_tags(request, error)}
    partition = host.partition
    try:
        place = partition.offset_for_timestamp(timestamp, _isolation(body))
    except RaylogError as error:
        return {"errorCode": code_of(error), UNKNOWN_TAGS: error_tags(request, error)}
    if place is None:
        return {}
    found: Value = {"timestamp": place.timestamp, "offset": place.offset}
    if request.version >= _FIRST_WITH_EPOCHS:
        is_latest = timestamp == LATEST
        epochs = partition.log.epochs
        found["leaderEpoch"] = (
            partition.leader_epoch if is_latest else epochs.epoch_at(place.offset)
        )
    return found


def _isolation(body: Value) -> Isolation:
    if body["replicaId"] == DEBUGGING:
        return LOG_END
    return COMMITTED if body["isolationLevel"] == _READ_COMMITTED else "high_watermark"


def offsets_for_leader_epochs(request: Request, hosts: Hosts) -> bytes:
    """The answer to an OffsetForLeaderEpoch request."""
    topics = []
    for topic in read_body(request)["topics"]:
        parts = [_epoch_end(hosts, topic["topic"], part) for part in topic["partitions"]]
        topics.append({"topic": topic["topic"], "partitions": parts})
    return answer(request, {"throttleTimeMs": 0, "topics": topics})


def _epoch_end(hosts: Hosts, name: str, part: Value) -> Value:
    index = part["partition"]
    nothing: Value = {"partition": index, "leaderEpoch": NO_EPOCH, "endOffset": -1}
    host = hosts.find(name, NO_TOPIC_ID, index)
    if isinstance(host, int):
        return {**nothing, "errorCode": host}
    try:
        check_epoch(host, part["currentLeaderEpoch"])
    except RaylogError as error:
        return {**nothing, "errorCode": code_of(error)}
    log = host.partition.log
    end = log.epochs.end_offset_for(part["leaderEpoch"], log.log_end_offset)
    return {**nothing, "errorCode": 0, "leaderEpoch": end.epoch, "endOffset": end.offset}
