"""Kafka's protocol on sockets: librdkafka on a raylog broker, and on a real Kafka, in turn.

The same client does the same on both, so what differs is the broker. The cells are those of
``broker.py``. Then, what connections cost the process of a partition that say nothing.
"""

import socket
from contextlib import ExitStack
from typing import Any

import psutil

import raylog
from benchmarks.broker import (
    DURABILITIES,
    FULL,
    PARTITIONS,
    QUICK,
    QUICK_PARTITIONS,
    SIZES,
    Cell,
    Librdkafka,
    measured,
    real_kafka,
)
from benchmarks.measure import rate
from raylog.actors.messages import PartitionStatus
from raylog.cluster.broker import Broker
from tests.harness.clusters import local_ray

TOPIC = "idle"
CONNECTIONS = 900  # a listener takes 1,000


def run(quick: bool = False) -> list[dict[str, Any]]:
    amount = QUICK if quick else FULL
    with (
        local_ray() as folder,
        raylog.start([f"{folder}/log"]) as broker,
        real_kafka(folder / "kafka") as kafka,
    ):
        if kafka is None:
            return []
        ours = Librdkafka(broker.bootstrap_servers)
        figures: list[dict[str, Any]] = []
        for partitions in QUICK_PARTITIONS if quick else PARTITIONS:
            for durability, config in DURABILITIES.items():
                for size in SIZES:
                    cell = Cell(partitions, size, durability)
                    print(f"  {cell}", flush=True)
                    figures += measured(ours, kafka, cell, config, amount)
        return figures + _idle_connections(broker, ours)


def _idle_connections(broker: Broker, ours: Librdkafka) -> list[dict[str, Any]]:
    ours.create(TOPIC, 1, {})
    ours.produce(TOPIC, 1, [b"x"])
    pid = _status(broker).pid
    before = _memory_mb(pid)
    address = ours.address_of(TOPIC, 0)
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection(address))
        ours.produce(TOPIC, 1, [b"x"])  # they are accepted by now, and one more is served
        after = _memory_mb(pid)
    ours.delete(TOPIC)
    return [
        rate(
            f"memory of a LogActor with {CONNECTIONS} silent connections",
            after,
            "MB",
            "without",
            before,
        )
    ]


def _status(broker: Broker) -> PartitionStatus:
    (status,) = [one for one in broker.status() if one.partition == f"{TOPIC}-0"]
    return status


def _memory_mb(pid: int) -> float:
    return float(psutil.Process(pid).memory_full_info().uss / 1e6)
