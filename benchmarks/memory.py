"""What a partition costs: private memory and CPU while nothing happens, beside a bare Ray actor;
and private memory while 64 producers press batches of 1 MB on a log whose disk is slow.

Private memory is what would be free again if the process ended (``Private_*`` of
``/proc/<pid>/smaps_rollup``); VmRSS would count the object store and shared libraries once a
process. Linux only.
"""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray

import raylog
from benchmarks.measure import Figure, alternate
from raylog.actors.errors import TooManyAppends
from raylog.actors.partition.log_actor import OPTIONS, LogActorImpl, LogSpec
from raylog.actors.runtime.calls import Call
from raylog.cluster.broker import Broker
from raylog.storage.config import LogConfig
from raylog.storage.files import RealFile, RealFileSystem
from raylog.storage.loader import create_log
from raylog.storage.names import TopicPartition
from raylog.storage.records.encode import encode_records
from tests.harness.bare_logs import bare_spec, settled
from tests.harness.clusters import local_ray
from tests.harness.nodes import private_bytes

MB = 1 << 20
IDLE_S = 30
PRODUCERS = 64
FSYNC_S = 0.05


class BareImpl:
    """The least that a Ray actor can be."""

    def pid(self) -> int:
        return os.getpid()


Bare = ray.remote(num_cpus=0)(BareImpl)


def run(quick: bool = False) -> list[dict[str, Any]]:
    with local_ray() as folder, raylog.start([f"{folder}/log"]) as broker:
        bare = Bare.remote()
        pid = ray.get(bare.pid.remote())
        figures = [
            _of(broker, partitions, pid) for partitions in ((1, 4) if quick else (1, 16, 64))
        ]
        return [
            *figures,
            _idle(broker, 5 if quick else IDLE_S),
            _under_pressure(str(folder), 2 if quick else 8),
        ]


class SlowImpl(LogActorImpl):
    """A LogActor whose disk takes its time."""

    def __init__(self, spec: LogSpec) -> None:
        flush = RealFile.flush

        def slow(file: RealFile) -> None:
            time.sleep(FSYNC_S)
            flush(file)

        RealFile.flush = slow  # type: ignore[assignment, method-assign]
        super().__init__(spec)


class ProducerImpl:
    """Sends one batch after another, and one again where it is refused."""

    def send(self, log: Any, batches: int) -> tuple[int, int]:
        """(batches that were acknowledged, refusals)"""
        batch = np.frombuffer(encode_records([(1, None, os.urandom(1_000_000), ())]), np.uint8)
        sent = refused = 0
        while sent < batches:
            try:
                Call(log.append.remote(batch), "append").get()
                sent += 1
            except TooManyAppends:
                refused += 1
                time.sleep(0.05)
        return sent, refused


Producers = ray.remote(num_cpus=0, max_concurrency=PRODUCERS)(ProducerImpl)


def _under_pressure(folder: str, batches: int) -> dict[str, Any]:
    """The most private memory of the LogActor meanwhile, beside what it had before."""
    path = f"{folder}/pressed/pressed-0"
    create_log(RealFileSystem(), path, "5eGdu6PVSRS-s9xHKXlyPg")
    spec = bare_spec(
        TopicPartition("pressed", 0),
        "5eGdu6PVSRS-s9xHKXlyPg",
        path,
        LogConfig(flush_messages=1),
    )
    log = ray.remote(**OPTIONS)(SlowImpl).remote(spec)
    assert settled(log).state == "serving"
    pid = ray.get(log.status.remote()).pid
    before = most = private_bytes(pid)
    producers = Producers.remote()
    left = [producers.send.remote(log, batches) for _ in range(PRODUCERS)]
    sent = refused = 0
    while left:
        done, left = ray.wait(left, num_returns=len(left), timeout=0.02)
        most = max(most, private_bytes(pid))
        for one in ray.get(done):
            sent, refused = sent + one[0], refused + one[1]
    Call(log.close.remote(), "close").get()
    ray.kill(log)
    name = f"private memory while {PRODUCERS} send 1 MB ({sent} sent, {refused} refusals)"
    return Figure(
        name, most / MB, "MB", "before", before / MB, most / before, "at most 1.5"
    ).as_dict()


def _of(broker: Broker, partitions: int, bare: int) -> dict[str, Any]:
    for before in broker.list_topics():
        broker.delete_topic(before)
    topic = f"idle-{partitions}"
    broker.create_topic(topic, partitions=partitions)
    for number in range(partitions):
        broker.partition(topic, number)
    pids = _pids(broker, topic)
    assert len(pids) == partitions
    ours, least = alternate(
        3, lambda: sum(map(private_bytes, pids)) / MB, lambda: private_bytes(bare) / MB
    )
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
