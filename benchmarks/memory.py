"""What a partition costs while nothing happens: private memory, and CPU over half a minute, beside a bare Ray actor.

Private memory is what would be free again if the process ended (``Private_*`` of ``/proc/<pid>/smaps_rollup``);
VmRSS would count the object store and shared libraries once a process. Linux only.
"""

import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import ray

import raylog
from benchmarks.measure import Figure, alternate
from raylog.cluster.broker import Broker

MB = 1 << 20
IDLE_S = 30


class BareImpl:
    """The least that a Ray actor can be."""

    def pid(self) -> int:
        return os.getpid()


Bare = ray.remote(num_cpus=0)(BareImpl)


def run(quick: bool = False) -> list[dict[str, Any]]:
    folder = tempfile.mkdtemp(prefix="rl-", dir="/tmp")
    broker = raylog.start([f"{folder}/log"], ray_options={"_temp_dir": f"{folder}/ray"})
    try:
        bare = Bare.remote()
        pid = ray.get(bare.pid.remote())
        figures = [_of(broker, partitions, pid) for partitions in ((1, 4) if quick else (1, 16, 64))]
        return [*figures, _idle(broker, 5 if quick else IDLE_S)]
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _of(broker: Broker, partitions: int, bare: int) -> dict[str, Any]:
    topic = f"idle-{partitions}"
    broker.create_topic(topic, partitions=partitions)
    for number in range(partitions):
        broker.partition(topic, number)
    pids = _pids(broker, topic)
    assert len(pids) == partitions
    ours, least = alternate(3, lambda: sum(map(_private_bytes, pids)) / MB, lambda: _private_bytes(bare) / MB)
    if partitions < 64:
        broker.delete_topic(topic)
    name = f"private memory of {partitions} partitions"
    return Figure(
        name,
        ours,
        "MB",
        "a bare Ray actor each",
        least * partitions,
        ours / least / partitions,
        "at most 1.1",
    ).as_dict()


def _pids(broker: Broker, topic: str) -> list[int]:
    return [each.pid for each in broker.status() if each.partition.startswith(f"{topic}-")]


def _private_bytes(pid: int) -> int:
    kilobytes = re.findall(r"Private_\w+:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text())
    return 1024 * sum(map(int, kilobytes))


def _idle(broker: Broker, for_s: int) -> dict[str, Any]:
    """CPU of all partitions together while nobody asks them anything."""
    pids = [each.pid for each in broker.status()]
    actors = [Bare.remote() for _ in range(4)]
    bare = ray.get([each.pid.remote() for each in actors])
    before = _cpu_s(pids), _cpu_s(bare)
    time.sleep(for_s)
    ours, least = (_cpu_s(pids) - before[0]) / len(pids), (_cpu_s(bare) - before[1]) / len(bare)
    name = f"CPU of each of {len(pids)} idle partitions"
    return Figure(
        name,
        1000 * ours / for_s,
        "ms/s",
        "a bare Ray actor",
        1000 * least / for_s,
        ours / max(least, 1e-9),
        "",
    ).as_dict()


def _cpu_s(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
