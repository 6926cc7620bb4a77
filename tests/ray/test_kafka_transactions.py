"""Transactions of Kafka's producers on a broker: all or nothing, also after kills."""

import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from raylog.actors.runtime.names import log_actor_name
from raylog.cluster.broker import Broker
from raylog.storage.names import TopicPartition as Partition
from raylog.storage.testing.waiting import wait_for
from tests.harness.faults import kill, pid_of, wait_for_another
from tests.harness.librdkafka import DEADLINE_S, PARTITIONS, Librdkafka, once_all_listen, running

COORDINATOR = log_actor_name(Partition("__transaction_state", 0))
QUICK = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 200}


@pytest.fixture
def broker(local_ray: None, tmp_path: Path) -> Iterator[Broker]:
    namespace = f"transactions-{uuid.uuid4().hex[:8]}"
    with running([str(tmp_path / "a")], namespace, **QUICK) as broker:
        broker.create_topic("orders", PARTITIONS)
        once_all_listen(broker)
        yield broker


def begun(broker: Broker, name: str = "writer", timeout_ms: int = 60_000) -> Producer:
    """A producer that has its transactional id."""
    producer = Librdkafka(broker).producer(transactional_id=name, transaction_timeout_ms=timeout_ms)
    producer.init_transactions(DEADLINE_S)
    return producer


def write(producer: Producer, *values: bytes) -> None:
    """To each partition."""
    for value in values:
        for number in range(PARTITIONS):
            producer.produce("orders", value, partition=number)
    assert producer.flush(DEADLINE_S) == 0


class Reader:
    """Reads committed records, or all, and remembers them by partition."""

    def __init__(self, broker: Broker, isolation: str = "read_committed") -> None:
        settings = {"isolation.level": isolation, "enable.auto.commit": False}
        self._consumer = Librdkafka(broker).member("reader", **settings)
        self._consumer.assign([TopicPartition("orders", number, 0) for number in range(PARTITIONS)])
        self.seen: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}

    def poll(self) -> None:
        for message in self._consumer.consume(1000, 0.2):
            partition, value = message.partition(), message.value()
            if message.error() is None and partition is not None and value is not None:
                self.seen[partition].append(value)

    def has(self, *values: bytes) -> bool:
        """Whether both partitions have these, and nothing else."""
        self.poll()
        return all(found == list(values) for found in self.seen.values())

    def close(self) -> None:
        self._consumer.close()


def is_seen(broker: Broker, *values: bytes) -> None:
    """These are seen by who reads committed records, and nothing else."""
    reader = Reader(broker)
    wait_for(lambda: reader.has(*values), DEADLINE_S, f"{values} are seen")
    reader.close()


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(broker: Broker) -> None:
    producer = begun(broker)
    for value, ends in ((b"a", "commit"), (b"b", "abort"), (b"c", "commit")):
        producer.begin_transaction()
        write(producer, value)
        if ends == "commit":
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)
    is_seen(broker, b"a", b"c")
    every = Reader(broker, "read_uncommitted")
    wait_for(lambda: every.has(b"a", b"b", b"c"), DEADLINE_S, "all are there")
    every.close()


def test_an_open_transaction_is_not_seen_before_it_ends(broker: Broker) -> None:
    producer = begun(broker)
    producer.begin_transaction()
    write(producer, b"open")
    plain = Librdkafka(broker).producer()
    write(plain, b"behind")
    every = Reader(broker, "read_uncommitted")
    wait_for(lambda: every.has(b"open", b"behind"), DEADLINE_S, "all are there")
    every.close()
    reader = Reader(broker)
    assert reader.has(), "not even what is behind it"
    producer.commit_transaction(DEADLINE_S)
    wait_for(lambda: reader.has(b"open", b"behind"), DEADLINE_S, "it is seen")
    reader.close()


def test_who_takes_the_id_fences_who_had_it_and_aborts_his_transaction(broker: Broker) -> None:
    first = begun(broker)
    first.begin_transaction()
    write(first, b"lost")
    second = begun(broker)
    second.begin_transaction()
    write(second, b"kept")
    second.commit_transaction(DEADLINE_S)
    with pytest.raises(KafkaException) as failure:
        first.commit_transaction(DEADLINE_S)
    assert failure.value.args[0].fatal()
    is_seen(broker, b"kept")


def test_a_transaction_that_nobody_ends_is_aborted(broker: Broker) -> None:
    producer = begun(broker, timeout_ms=10_000)
    producer.begin_transaction()
    write(producer, b"late")
    write(Librdkafka(broker).producer(), b"behind")
    is_seen(broker, b"behind")
    with pytest.raises(KafkaException):
        producer.commit_transaction(DEADLINE_S)


def test_offsets_are_committed_with_what_was_made_of_the_records(broker: Broker) -> None:
    write(Librdkafka(broker).producer(), b"in")
    settings = {"isolation_level": "read_committed", "enable_auto_commit": False}
    consumer = Librdkafka(broker).member("copier", **settings)
    consumer.subscribe(["orders"])
    wait_for(lambda: _assigned(consumer), DEADLINE_S, "it has its partitions")
    producer = begun(broker)
    for number, (ends, expected) in enumerate((("abort", -1001), ("commit", 1))):
        producer.begin_transaction()
        write(producer, b"out %d" % number)
        producer.send_offsets_to_transaction(
            [TopicPartition("orders", 0, 1)], consumer.consumer_group_metadata(), DEADLINE_S
        )
        if ends == "abort":
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
        wait_for(partial(_has_committed, consumer, expected), DEADLINE_S, f"{expected}")
    consumer.close()
    is_seen(broker, b"in", b"out 1")


def _assigned(consumer: Consumer) -> bool:
    consumer.poll(0.2)
    return len(consumer.assignment()) == PARTITIONS


def _has_committed(consumer: Consumer, expected: int) -> bool:
    (found,) = consumer.committed([TopicPartition("orders", 0)], timeout=DEADLINE_S)
    return bool(found.offset == expected)


@pytest.mark.parametrize("victim", ["coordinator", "partition"])
def test_a_kill_in_the_middle_loses_and_doubles_nothing(broker: Broker, victim: str) -> None:
    name = COORDINATOR if victim == "coordinator" else log_actor_name(Partition("orders", 0))
    producer = begun(broker)
    producer.begin_transaction()
    write(producer, b"first")
    producer.commit_transaction(DEADLINE_S)
    producer.begin_transaction()
    write(producer, b"second")
    pid = pid_of(broker, name)
    kill(pid)
    write(producer, b"third")
    producer.commit_transaction(DEADLINE_S)
    wait_for_another(broker, name, pid)
    producer.begin_transaction()
    write(producer, b"fourth")
    producer.commit_transaction(DEADLINE_S)
    is_seen(broker, b"first", b"second", b"third", b"fourth")


def test_a_broker_that_is_started_again_goes_on(local_ray: None, tmp_path: Path) -> None:
    namespace = f"transactions-{uuid.uuid4().hex[:8]}"
    with running([str(tmp_path / "a")], namespace, **QUICK) as broker:
        broker.create_topic("orders", PARTITIONS)
        once_all_listen(broker)
        producer = begun(broker)
        producer.begin_transaction()
        write(producer, b"first")
        producer.commit_transaction(DEADLINE_S)
        producer.begin_transaction()
        write(producer, b"lost")
    with running([str(tmp_path / "a")], namespace, **QUICK) as broker:
        once_all_listen(broker)
        again = begun(broker)
        again.begin_transaction()
        write(again, b"second")
        again.commit_transaction(DEADLINE_S)
        is_seen(broker, b"first", b"second")
