"""Answers DeleteRecords: records below an offset are unreadable from then on.

The answer's low watermark is the log start offset. Source: ``ReplicaManager.deleteRecords`` of
Kafka; KIP-107.
"""

from typing import Final

from raylog.actors.plane.admin import fault_of
from raylog.actors.plane.frames import Request, answer, read_body
from raylog.actors.plane.hosts import Hosts
from raylog.actors.plane.hot.parts import NO_TOPIC_ID
from raylog.storage.errors import RaylogError
from raylog.storage.schemas.types import Value

_NO_OFFSET: Final = -1


def delete_records(request: Request, hosts: Hosts) -> bytes:
    """The answer to a DeleteRecords request."""
    topics = [
        {
            "name": topic["name"],
            "partitions": [_removed(hosts, topic["name"], part) for part in topic["partitions"]],
        }
        for topic in read_body(request)["topics"]
    ]
    return answer(request, {"throttleTimeMs": 0, "topics": topics})


def _removed(hosts: Hosts, name: str, part: Value) -> Value:
    index = part["partitionIndex"]
    host = hosts.find(name, NO_TOPIC_ID, index)
    if isinstance(host, int):
        return _not_removed(index, host)
    try:
        low_watermark = host.remove(part["offset"])
    except RaylogError as error:
        return _not_removed(index, fault_of(error).code)
    return {"partitionIndex": index, "lowWatermark": low_watermark, "errorCode": 0}


def _not_removed(index: int, error_code: int) -> Value:
    return {"partitionIndex": index, "lowWatermark": _NO_OFFSET, "errorCode": error_code}
