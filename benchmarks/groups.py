"""Groups: joining, committing, and what a thousand of them cost; beside a real Kafka.

=================== ================================================ ==============================
what                measured                                         beside
=================== ================================================ ==============================
joining             from the first subscription until each of N      the same members on Kafka
                    members has its share of the partitions, beyond
                    the wait for others that is configured
a commit            librdkafka's, one after the other, p50 and p99   the same on Kafka
a commit            that of raylog's consumer                        librdkafka's on Kafka
a thousand groups   memory of the coordinator's process that has     the process before
                    them; how long it takes to load them after a kill
=================== ================================================ ==============================

The members are librdkafka's on both sides, and raylog's own. Both brokers wait for others for a
second when the first member comes (``group.initial.rebalance.delay.ms``).
"""

import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import psutil
from confluent_kafka import Consumer, TopicPartition

import raylog
from benchmarks.broker import real_kafka
from benchmarks.measure import Figure, alternate
from raylog.actors.runtime.names import log_actor_name
from raylog.cluster.broker import Broker
from raylog.storage.names import TopicPartition as Place
from raylog.storage.testing.waiting import wait_for
from tests.harness.clusters import local_ray
from tests.harness.faults import kill, pid_of, wait_for_another

TOPIC = "shared"
PARTITIONS, QUICK_PARTITIONS = 20, 8
MEMBERS, QUICK_MEMBERS = (1, 10), (1, 3)
COMMITS, QUICK_COMMITS = 500, 50
GROUPS, QUICK_GROUPS = 1000, 50
ROUNDS, QUICK_ROUNDS = 3, 1
DEADLINE_S = 120.0
WAIT_S = 1.0
SETTINGS = {"group.initial.rebalance.delay.ms": round(WAIT_S * 1000)}
COORDINATOR = log_actor_name(Place("__consumer_offsets", 0))


def run(quick: bool = False) -> list[dict[str, Any]]:
    partitions = QUICK_PARTITIONS if quick else PARTITIONS
    with (
        local_ray() as folder,
        raylog.start([f"{folder}/log"], config=SETTINGS) as broker,
        real_kafka(folder / "kafka", **SETTINGS) as kafka,
    ):
        broker.create_topic(TOPIC, partitions)
        ours = broker.bootstrap_servers
        _join(ours, 1)  # the topic of the groups is made
        theirs = None if kafka is None else kafka.address
        if kafka is not None:
            kafka.create(TOPIC, partitions, {})
            _join(kafka.address, 1)
        figures = _joins(broker, ours, theirs, quick)
        figures += _commits(broker, ours, theirs, quick)
        return figures + _many(broker, QUICK_GROUPS if quick else GROUPS)


def _name() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


# -- joining ---------------------------------------------------------------------------------------


@contextmanager
def _members(address: str, count: int) -> Iterator[list[Consumer]]:
    settings = {
        "bootstrap.servers": address,
        "group.id": _name(),
        "enable.auto.commit": False,
        "partition.assignment.strategy": "range",
        "log_level": 0,
    }
    made = [Consumer(settings) for _ in range(count)]
    try:
        yield made
    finally:
        for one in made:
            one.close()


def _wait_for_shares(members: list[Consumer]) -> None:
    """Until each has something to read, and nothing changes any more."""

    def all_have() -> bool:
        for one in members:
            one.poll(0.001)
        return all(one.assignment() for one in members)

    wait_for(all_have, DEADLINE_S, "all have their shares", poll_s=0.001)


def _join(address: str, count: int) -> float:
    with _members(address, count) as members:
        started = time.perf_counter()
        for one in members:
            one.subscribe([TOPIC])
        _wait_for_shares(members)
        return time.perf_counter() - started - WAIT_S


def _own_join(broker: Broker, count: int) -> float:
    group = _name()
    with ExitStack() as stack:
        made = [
            stack.enter_context(
                broker.consumer(
                    group_id=group, enable_auto_commit=False, partition_assignment_strategy="range"
                )
            )
            for _ in range(count)
        ]
        started = time.perf_counter()
        for one in made:
            one.subscribe(TOPIC)

        def all_have() -> bool:
            for one in made:
                one.poll(1)
            return all(one.assignment for one in made)

        wait_for(all_have, DEADLINE_S, "all have their shares", poll_s=0.001)
        return time.perf_counter() - started - WAIT_S


def _joins(broker: Broker, ours: str, theirs: str | None, quick: bool) -> list[dict[str, Any]]:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    figures = []
    for count in QUICK_MEMBERS if quick else MEMBERS:
        works: list[Callable[[], float]] = [partial(_join, ours, count)]
        if theirs is not None:
            works.append(partial(_join, theirs, count))
        own_count = min(count, 10)
        works.append(partial(_own_join, broker, own_count))
        taken = alternate(rounds, *works)
        beside = ("librdkafka's on Kafka", taken[1]) if theirs is not None else ("-", taken[0])
        target = "under 1 s" if count == 10 else ""
        figures.append(_seconds(f"{count} of librdkafka's join", taken[0], *beside, target))
        if own_count == count:
            figures.append(_seconds(f"{count} of raylog's join", taken[-1], *beside, target))
    return figures


def _seconds(name: str, value: float, beside: str, other: float, target: str) -> dict[str, Any]:
    return Figure(name, value, "s", beside, other, value / other, target).as_dict()


# -- commits ---------------------------------------------------------------------------------------


def _commits(broker: Broker, ours: str, theirs: str | None, quick: bool) -> list[dict[str, Any]]:
    count = QUICK_COMMITS if quick else COMMITS
    with ExitStack() as stack:
        works = [_committing(stack, ours), _own_committing(stack, broker)]
        if theirs is not None:
            works.append(_committing(stack, theirs))
        waits: list[list[float]] = [[] for _ in works]
        for number in range(count + 1):
            for work, of_work in zip(works, waits, strict=True):
                started = time.perf_counter()
                work(number)
                if number:
                    of_work.append(time.perf_counter() - started)
    figures = []
    for name, of_work in zip(("librdkafka's", "raylog's"), waits[:2], strict=True):
        for what, take in (("p50", 0.5), ("p99", 0.99)):
            value = _quantile(of_work, take)
            other = _quantile(waits[-1], take)
            beside = "librdkafka's on Kafka" if theirs is not None else "-"
            figures.append(
                Figure(
                    f"a commit, {name}, {what}",
                    value * 1000,
                    "ms",
                    beside,
                    other * 1000,
                    value / other,
                    "under 1",
                ).as_dict()
            )
    return figures


def _quantile(waits: list[float], share: float) -> float:
    return statistics.quantiles(waits, n=100)[round(share * 100) - 1]


def _committing(stack: ExitStack, address: str) -> Callable[[int], object]:
    settings = {"bootstrap.servers": address, "group.id": _name(), "enable.auto.commit": False}
    consumer = Consumer({**settings, "log_level": 0})
    stack.callback(consumer.close)
    return lambda number: consumer.commit(
        offsets=[TopicPartition(TOPIC, 0, number)], asynchronous=False
    )


def _own_committing(stack: ExitStack, broker: Broker) -> Callable[[int], object]:
    consumer = stack.enter_context(
        broker.consumer(TOPIC, partitions=[0], group_id=_name(), enable_auto_commit=False)
    )
    return lambda number: consumer.commit({(TOPIC, 0): number})


# -- a thousand groups -----------------------------------------------------------------------------


def _many(broker: Broker, count: int) -> list[dict[str, Any]]:
    before = _memory(broker)
    prefix = _name()
    groups = broker.groups()
    for number in range(count):
        groups.seek(f"{prefix}-{number}", {Place(TOPIC, 0): 0, Place(TOPIC, 1): 0})
    kill(pid := pid_of(broker, COORDINATOR))
    started = time.perf_counter()
    wait_for_another(broker, COORDINATOR, pid)
    restarted_s = time.perf_counter() - started
    assert len(broker.groups().list_groups()) >= count
    served_s = time.perf_counter() - started
    after = _memory(broker)
    return [
        Figure(
            f"memory of a process that has loaded {count} groups",
            after / 2**20,
            "MiB",
            "before",
            before / 2**20,
            after / before,
            "",
        ).as_dict(),
        Figure(
            f"a killed coordinator lists its {count} groups",
            served_s,
            "s",
            "its process is there",
            restarted_s,
            served_s / restarted_s,
            "",
        ).as_dict(),
    ]


def _memory(broker: Broker) -> float:
    return float(psutil.Process(pid_of(broker, COORDINATOR)).memory_full_info().uss)
