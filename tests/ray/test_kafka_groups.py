"""Groups of Kafka's consumers on a broker: they share partitions, commit, and go on after kills."""

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from raylog.actors.runtime.names import log_actor_name
from raylog.cluster.broker import Broker
from raylog.storage.names import TopicPartition as Partition
from raylog.storage.testing.waiting import wait_for
from tests.harness.faults import kill, pid_of, wait_for_another
from tests.harness.librdkafka import DEADLINE_S, PARTITIONS, Librdkafka, once_all_listen, running

COORDINATOR = log_actor_name(Partition("__consumer_offsets", 0))


@pytest.fixture
def broker(local_ray: None, tmp_path: Path) -> Iterator[Broker]:
    with running([str(tmp_path / "a")], f"groups-{uuid.uuid4().hex[:8]}") as broker:
        broker.create_topic("orders", PARTITIONS)
        once_all_listen(broker)
        yield broker


class Member:
    """A consumer of a group that polls until it is closed, in a thread of its own."""

    def __init__(self, broker: Broker, group: str, **settings: Any) -> None:
        self.seen: list[tuple[int, int]] = []
        self.assigned: set[int] = set()
        self._consumer = Librdkafka(broker).member(group, **settings)
        self._consumer.subscribe(["orders"])
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_closing.is_set():
            for message in self._consumer.consume(100, 0.1):
                partition, offset = message.partition(), message.offset()
                if message.error() is None and partition is not None and offset is not None:
                    self.seen.append((partition, offset))
            self.assigned = {one.partition for one in self._consumer.assignment()}
        self._consumer.close()

    def close(self) -> None:
        self._is_closing.set()
        self._thread.join()


def write(broker: Broker, count: int) -> None:
    producer = Librdkafka(broker).producer()
    for number in range(count):
        producer.produce("orders", b"record", partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


def committed(broker: Broker, group: str) -> list[int]:
    consumer = Librdkafka(broker).member(group)
    partitions = [TopicPartition("orders", number) for number in range(PARTITIONS)]
    found = consumer.committed(partitions, timeout=DEADLINE_S)
    consumer.close()
    return [one.offset for one in found]


def test_a_group_shares_the_partitions_and_reads_each_record_once(broker: Broker) -> None:
    ann, bob = Member(broker, "readers"), Member(broker, "readers")
    try:
        wait_for(
            lambda: len(ann.assigned) == 1 and len(bob.assigned) == 1, DEADLINE_S, "they share"
        )
        assert ann.assigned | bob.assigned == {0, 1}
        write(broker, 100)
        wait_for(lambda: len(ann.seen) + len(bob.seen) >= 100, DEADLINE_S, "all is read")
        bob.close()
        wait_for(lambda: len(ann.assigned) == 2, DEADLINE_S, "ann reads all")
        write(broker, 100)
        wait_for(lambda: len(ann.seen) + len(bob.seen) >= 200, DEADLINE_S, "all is read")
    finally:
        ann.close()
        bob.close()
    assert sorted(ann.seen + bob.seen) == [(p, o) for p in range(2) for o in range(100)]
    assert committed(broker, "readers") == [100, 100]


def test_what_was_committed_is_there_after_a_kill_and_after_a_restart_of_the_broker(
    local_ray: None, tmp_path: Path
) -> None:
    namespace = f"groups-{uuid.uuid4().hex[:8]}"
    with running([str(tmp_path / "a")], namespace) as broker:
        broker.create_topic("orders", PARTITIONS)
        once_all_listen(broker)
        write(broker, 20)
        member = Member(broker, "readers")
        wait_for(lambda: len(member.seen) == 20, DEADLINE_S, "all is read")
        member.close()
        pid = pid_of(broker, COORDINATOR)
        kill(pid)
        wait_for_another(broker, COORDINATOR, pid)
        assert committed(broker, "readers") == [10, 10]
    with running([str(tmp_path / "a")], namespace) as broker:
        once_all_listen(broker)
        assert committed(broker, "readers") == [10, 10]


def test_a_killed_coordinator_costs_its_members_no_rebalance(broker: Broker) -> None:
    member = Member(broker, "readers")
    try:
        wait_for(lambda: len(member.assigned) == 2, DEADLINE_S, "it has all")
        group = described(broker)
        pid = pid_of(broker, COORDINATOR)
        kill(pid)
        wait_for_another(broker, COORDINATOR, pid)
        write(broker, 20)
        wait_for(lambda: len(member.seen) == 20, DEADLINE_S, "all is read")
        assert described(broker).members[0].member_id == group.members[0].member_id
    finally:
        member.close()
    assert committed(broker, "readers") == [10, 10]


def described(broker: Broker) -> Any:
    admin = Librdkafka(broker).admin()
    return admin.describe_consumer_groups(["readers"])["readers"].result(DEADLINE_S)


def test_an_administrator_lists_resets_and_deletes_groups(broker: Broker) -> None:
    member = Member(broker, "readers")
    try:
        wait_for(lambda: len(member.assigned) == 2, DEADLINE_S, "it has all")
        admin = Librdkafka(broker).admin()
        listed = admin.list_consumer_groups().result(DEADLINE_S)
        assert [one.group_id for one in listed.valid] == ["readers"]
        assert not listed.errors
        group = described(broker)
        assert str(group.state).endswith("STABLE")
        assert len(group.members[0].assignment.topic_partitions) == 2
        with pytest.raises(KafkaException):
            admin.delete_consumer_groups(["readers"])["readers"].result(DEADLINE_S)
    finally:
        member.close()
    write(broker, 20)
    wanted = [TopicPartition("orders", 0, 3), TopicPartition("orders", 1, 4)]
    request = [ConsumerGroupTopicPartitions("readers", wanted)]
    admin.alter_consumer_group_offsets(request)["readers"].result(DEADLINE_S)
    assert committed(broker, "readers") == [3, 4]
    admin.delete_consumer_groups(["readers"])["readers"].result(DEADLINE_S)
    assert committed(broker, "readers") == [-1001, -1001]


def test_nobody_else_writes_to_the_topic_of_the_offsets(broker: Broker) -> None:
    committed(broker, "readers")
    kafka = Librdkafka(broker)
    wait_for(lambda: kafka.leaders("__consumer_offsets"), DEADLINE_S, "it is there")
    failures: list[Any] = []
    producer = kafka.producer()
    producer.produce(
        "__consumer_offsets", b"x", partition=0, on_delivery=lambda error, _: failures.append(error)
    )
    producer.flush(DEADLINE_S)
    assert [error.name() for error in failures] == ["TOPIC_EXCEPTION"]
    assert isinstance(kafka.member("any"), Consumer)
