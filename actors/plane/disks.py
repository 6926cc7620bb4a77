"""Answers DescribeLogDirs: what lies on the disks of the broker that is asked.

A client asks every broker, and adds up. So a LogActor tells of its own partition and the log dir
that has it, and a LogManager tells of all log dirs of its node, and of no partition. Source:
``ReplicaManager.describeLogDirs`` of Kafka; KIP-113, KIP-827.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Final

from raylog.actors.messages import LogDirStatus
from raylog.actors.plane.codes import STORAGE_ERROR
from raylog.actors.plane.frames import Request, answer, read_body
from raylog.actors.plane.hosts import Host, Hosts
from raylog.storage.schemas.types import Value

_UNKNOWN: Final = -1


def of_partitions(request: Request, hosts: Hosts) -> bytes:
    """The answer of a process that has partitions."""
    wanted = _wanted(read_body(request))
    by_dir: dict[str, list[Host]] = {}
    for host in hosts:
        if wanted is None or (host.topic, host.number) in wanted:
            by_dir.setdefault(os.path.dirname(host.partition.log.folder), []).append(host)
    results = [_dir_of(path, served) for path, served in sorted(by_dir.items())]
    return _answered(request, results)


def _wanted(body: Value) -> set[tuple[str, int]] | None:
    """The partitions that are asked for; None for all."""
    if body["topics"] is None:
        return None
    return {(topic["topic"], index) for topic in body["topics"] for index in topic["partitions"]}


def _dir_of(path: str, hosts: Iterable[Host]) -> Value:
    online = [host for host in hosts if not host.partition.is_offline]
    if not online:
        return _dir(path, STORAGE_ERROR)
    topics: dict[str, list[Value]] = {}
    for host in online:
        part = {
            "partitionIndex": host.number,
            "partitionSize": host.partition.log.size_bytes,
            "offsetLag": 0,
            "isFutureKey": False,
        }
        topics.setdefault(host.topic, []).append(part)
    try:
        disk = os.statvfs(path)
    except OSError:
        return _dir(path, STORAGE_ERROR)
    named = [{"name": name, "partitions": parts} for name, parts in topics.items()]
    return _dir(path, 0, named, disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize)


def of_node(request: Request, log_dirs: Sequence[LogDirStatus]) -> bytes:
    """The answer of a LogManager."""
    read_body(request)
    results = [
        _dir(one.path, 0, [], one.total_bytes, one.usable_bytes)
        if one.is_online
        else _dir(one.path, STORAGE_ERROR)
        for one in log_dirs
    ]
    return _answered(request, results)


def _dir(
    path: str,
    error_code: int,
    topics: Sequence[Value] = (),
    total_bytes: int = _UNKNOWN,
    usable_bytes: int = _UNKNOWN,
) -> Value:
    return {
        "errorCode": error_code,
        "logDir": path,
        "topics": list(topics),
        "totalBytes": total_bytes,
        "usableBytes": usable_bytes,
        "isCordoned": False,
    }


def _answered(request: Request, results: list[Value]) -> bytes:
    return answer(request, {"throttleTimeMs": 0, "errorCode": 0, "results": results})
