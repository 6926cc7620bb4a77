"""How many more logs a node can hold, by the memory and the processes that it has left.

Each log is a process of its own: an actor of Ray, with Ray's threads. A node that runs out of
memory has its processes killed, of raylog's and of others; one that runs out of threads cannot even
start the processes that would end others. So the Controller places no more logs than this says.

======================================  =========================================================
what limits                             where it is read
======================================  =========================================================
the machine's memory                    ``/proc/meminfo``: MemAvailable
the container's memory                  cgroup: ``memory.max``, ``memory.current`` (v1:
                                        ``memory.limit_in_bytes``, ``memory.usage_in_bytes``);
                                        cached file pages count as free
the machine's threads                   ``/proc/sys/kernel/threads-max`` and ``pid_max``; those
                                        that run: ``/proc/loadavg``
the container's threads                 cgroup: ``pids.max``, ``pids.current``
======================================  =========================================================

A group's limit counts for the groups in it, so those of all groups above are read, too.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator

# Of a LogActor at rest, and of what it needs while it serves.
LOG_BYTES = 60_000_000
# Of a LogActor: Ray's, those of gRPC and of its concurrency groups.
LOG_THREADS = 160
UNKNOWN = -1
_CGROUPS = "/sys/fs/cgroup"

Read = Callable[[str], str | None]


def room(*, memory_free_bytes: int | None, threads_free: int | None) -> int:
    """How many more logs fit; -1 where nobody knows. None: a limit that is not known."""
    by_limit: list[int] = []
    if memory_free_bytes is not None:
        by_limit.append(memory_free_bytes // LOG_BYTES)
    if threads_free is not None:
        by_limit.append(threads_free // LOG_THREADS)
    return max(0, min(by_limit)) if by_limit else UNKNOWN


def read_file(path: str) -> str | None:
    """The text of a file of the system; None if it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def measured_room(read: Read = read_file) -> int:
    """How many more logs this node can hold now; -1 where nobody knows."""
    memory = [_machine_memory(read), *_group_memory(read)]
    threads = [_machine_threads(read), *_group_threads(read)]
    return room(memory_free_bytes=_least(memory), threads_free=_least(threads))


def _least(limits: Iterable[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _machine_memory(read: Read) -> int | None:
    found = re.search(r"^MemAvailable:\s+(\d+) kB", read("/proc/meminfo") or "", re.MULTILINE)
    return None if found is None else int(found.group(1)) * 1024


def _machine_threads(read: Read) -> int | None:
    running = re.search(r"\d+/(\d+)", read("/proc/loadavg") or "")
    most = _least(_number(read, f"/proc/sys/kernel/{name}") for name in ("threads-max", "pid_max"))
    return None if running is None or most is None else most - int(running.group(1))


def _group_memory(read: Read) -> Iterator[int | None]:
    """What each cgroup of this process may still use."""
    for folder in _groups(read, "memory"):
        for most, used, stat in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, current = _number(read, f"{folder}/{most}"), _number(read, f"{folder}/{used}")
            if limit is not None and current is not None:
                cached = re.search(
                    rf"^{stat} (\d+)", read(f"{folder}/memory.stat") or "", re.MULTILINE
                )
                yield limit - current + (0 if cached is None else int(cached.group(1)))


def _group_threads(read: Read) -> Iterator[int | None]:
    for folder in _groups(read, "pids"):
        limit = _number(read, f"{folder}/pids.max")
        current = _number(read, f"{folder}/pids.current")
        if limit is not None and current is not None:
            yield limit - current


def _groups(read: Read, controller: str) -> Iterator[str]:
    """The folders of the cgroups of this process for this controller, from the inmost outwards."""
    for line in (read("/proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        is_v2 = number == "0" and not controllers
        if not is_v2 and controller not in controllers.split(","):
            continue
        root = _CGROUPS if is_v2 else f"{_CGROUPS}/{controller}"
        while path not in ("", "/"):
            yield root + path
            path = os.path.dirname(path)
        yield root


def _number(read: Read, path: str) -> int | None:
    """The number in a file; None where there is none, as for ``max``."""
    text = (read(path) or "").strip()
    return int(text) if text.isdigit() else None
