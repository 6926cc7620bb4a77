"""Groups of raylog's own consumers, also beside Kafka's; with kills of the coordinator."""

import asyncio
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.runtime.names import log_actor_name
from raylog.cluster.broker import Broker
from raylog.cluster.client.consumer import Consumer
from raylog.storage.names import TopicPartition
from raylog.storage.testing.waiting import wait_for
from tests.harness.faults import kill, pid_of, wait_for_another
from tests.harness.librdkafka import DEADLINE_S, Librdkafka, running

PARTITIONS = 4
COORDINATOR = log_actor_name(TopicPartition("__consumer_offsets", 0))
EVERYTHING = set(range(PARTITIONS))


@pytest.fixture
def broker(local_ray: None, tmp_path: Path) -> Iterator[Broker]:
    with running([str(tmp_path / "a")], f"groups-{uuid.uuid4().hex[:8]}") as broker:
        broker.create_topic("orders", PARTITIONS)
        kafka = Librdkafka(broker)
        wait_for(lambda: len(kafka.leaders("orders")) == PARTITIONS, DEADLINE_S, "all listen")
        yield broker


class Member:
    """A consumer that polls in a thread of its own until it is closed."""

    def __init__(self, broker: Broker, **settings: Any) -> None:
        self.seen: list[tuple[int, int]] = []
        self.error: BaseException | None = None
        self.consumer: Consumer = broker.consumer(
            "orders", group_id="readers", from_="earliest", **settings
        )
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self.consumer:
                while not self._is_closing.is_set():
                    for record in self.consumer.poll(100):
                        self.seen.append((record.partition, record.offset))
        except BaseException as error:
            self.error = error

    @property
    def assigned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment}

    def close(self) -> None:
        self._is_closing.set()
        self._thread.join()
        assert self.error is None


def write(broker: Broker, count: int) -> None:
    with broker.producer() as producer:
        for number in range(count):
            producer.send("orders", b"%d" % number, partition=number % PARTITIONS)


def offsets_up_to(end: int) -> list[tuple[int, int]]:
    return [(number, offset) for number in range(PARTITIONS) for offset in range(end)]


def test_a_group_shares_the_partitions_and_reads_each_record_once(broker: Broker) -> None:
    ann, bob = Member(broker), Member(broker)
    try:
        wait_for(lambda: len(ann.assigned) == len(bob.assigned) == 2, DEADLINE_S, "they share")
        assert ann.assigned | bob.assigned == EVERYTHING
        write(broker, 100)
        wait_for(lambda: len(ann.seen) + len(bob.seen) >= 100, DEADLINE_S, "all is read")
        described = broker.groups().describe("readers")
        assert (described.state, len(described.members)) == ("Stable", 2)
        bob.close()
        wait_for(lambda: ann.assigned == EVERYTHING, DEADLINE_S, "ann reads all")
        write(broker, 100)
        wait_for(lambda: len(ann.seen) + len(bob.seen) >= 200, DEADLINE_S, "all is read")
    finally:
        ann.close()
        bob.close()
    assert sorted(ann.seen + bob.seen) == offsets_up_to(50)
    assert [each.lag for each in broker.groups().offsets("readers")] == [0] * PARTITIONS


def test_a_coordinator_that_is_killed_costs_no_record_and_no_rebalance(broker: Broker) -> None:
    ann, bob = Member(broker), Member(broker)
    try:
        wait_for(lambda: len(ann.assigned) == len(bob.assigned) == 2, DEADLINE_S, "they share")
        before = ann.assigned
        pid = pid_of(broker, COORDINATOR)
        kill(pid)
        write(broker, 100)
        wait_for_another(broker, COORDINATOR, pid)
        wait_for(lambda: len(ann.seen) + len(bob.seen) >= 100, DEADLINE_S, "all is read")
        assert ann.assigned == before
    finally:
        ann.close()
        bob.close()
    assert sorted(ann.seen + bob.seen) == offsets_up_to(25)
    with broker.consumer("orders", group_id="readers", from_="earliest") as again:
        assert again.poll(2000) == []


def test_a_leader_of_a_partition_that_is_killed_is_waited_for(broker: Broker) -> None:
    ann = Member(broker)
    try:
        write(broker, 40)
        wait_for(lambda: len(ann.seen) == 40, DEADLINE_S, "all is read")
        name = log_actor_name(TopicPartition("orders", 1))
        pid = pid_of(broker, name)
        kill(pid)
        wait_for_another(broker, name, pid)
        write(broker, 40)
        wait_for(lambda: len(ann.seen) >= 80, DEADLINE_S, "all is read")
    finally:
        ann.close()
    assert sorted(ann.seen) == offsets_up_to(20)


def test_raylogs_consumers_and_librdkafkas_share_a_group(broker: Broker) -> None:
    settings = {"partition_assignment_strategy": "cooperative-sticky"}
    ann = Member(broker, **settings)
    other = Librdkafka(broker).member(
        "readers", **{"partition.assignment.strategy": "cooperative-sticky"}
    )
    other.subscribe(["orders"])
    seen: list[tuple[int, int]] = []

    def both_read() -> bool:
        for message in other.consume(100, 0.1):
            partition, offset = message.partition(), message.offset()
            if message.error() is None and partition is not None and offset is not None:
                seen.append((partition, offset))
        return len(other.assignment()) == len(ann.assigned) == 2

    try:
        wait_for(both_read, DEADLINE_S, "they share")
        write(broker, 100)
        wait_for(lambda: both_read() and len(seen + ann.seen) >= 100, DEADLINE_S, "all is read")
    finally:
        other.close()
        ann.close()
    assert sorted(seen + ann.seen) == offsets_up_to(25)


def test_an_asyncio_member_commits(broker: Broker) -> None:
    write(broker, 20)

    async def read() -> int:
        count = 0
        async with broker.async_consumer(
            "orders", group_id="async", from_="earliest", enable_auto_commit=False
        ) as consumer:
            async for _ in consumer:
                count += 1
                if count == 20:
                    await consumer.commit()
                    return count
        return count

    assert asyncio.run(asyncio.wait_for(read(), DEADLINE_S)) == 20
    assert [each.committed.offset for each in broker.groups().offsets("async")] == [5] * PARTITIONS


def test_a_group_is_moved_and_deleted(broker: Broker) -> None:
    write(broker, 20)
    with broker.consumer("orders", group_id="readers", from_="earliest") as consumer:
        found = 0
        while found < 20:
            found += len(consumer.poll(1000))
    groups = broker.groups()
    assert [one.group for one in groups.list_groups()] == ["readers"]
    groups.seek("readers", "earliest")
    with broker.consumer("orders", group_id="readers") as consumer:
        found = 0
        while found < 20:
            found += len(consumer.poll(1000))
    groups.delete("readers")
    assert groups.list_groups() == []
