"""raylog's own producer of transactions: copies exactly once, whatever is killed meanwhile."""

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.actors.runtime.names import log_actor_name
from raylog.cluster.broker import Broker
from raylog.errors import CommitFailed, ProducerFenced, RequestTimedOut, TransactionFailed
from raylog.storage.names import TopicPartition
from raylog.storage.testing.waiting import wait_for
from tests.harness.faults import kill, pid_of, wait_for_another
from tests.harness.librdkafka import DEADLINE_S, Librdkafka, running

PARTITIONS = 2
IN_TURN = ("__transaction_state", "source", "target", "__consumer_offsets")


@pytest.fixture
def broker(local_ray: None, tmp_path: Path) -> Iterator[Broker]:
    with running([str(tmp_path / "a")], f"transactions-{uuid.uuid4().hex[:8]}") as broker:
        for topic in ("source", "target"):
            broker.create_topic(topic, PARTITIONS)
        kafka = Librdkafka(broker)
        wait_for(lambda: len(kafka.leaders("target")) == PARTITIONS, DEADLINE_S, "all listen")
        yield broker


def write(broker: Broker, numbers: range) -> None:
    with broker.producer() as producer:
        for number in numbers:
            producer.send("source", b"%d" % number, partition=number % PARTITIONS)


def committed(broker: Broker, topic: str = "target") -> list[int]:
    """The numbers that a reader of committed records sees now, sorted."""
    table = broker.read_table(topic, isolation_level="read_committed")
    return sorted(int(value) for value in table.column("value").to_pylist())


class Copier:
    """Copies from source to target, in a thread of its own, until it is closed."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.error: BaseException | None = None
        self.failures: list[str] = []  # of transactions that were aborted
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_closing.is_set():
                self._live()
        except BaseException as error:
            self.error = error

    def _live(self) -> None:
        """One producer, until it is fenced."""
        reading = self.broker.consumer(
            "source", group_id="copies", from_="earliest", enable_auto_commit=False
        )
        with reading as consumer, self.broker.producer(transactional_id="copy-0") as producer:
            producer.init_transactions(DEADLINE_S)
            while not self._is_closing.is_set():
                records = consumer.poll(100)
                producer.begin_transaction()
                try:
                    for record in records:
                        producer.send("target", record.value, partition=record.partition)
                    group = consumer.group_metadata()
                    producer.send_offsets_to_transaction(records, group, DEADLINE_S)
                    producer.commit_transaction(DEADLINE_S)
                except ProducerFenced as error:
                    self.failures.append(repr(error))
                    return
                except (CommitFailed, RequestTimedOut, TransactionFailed) as error:
                    self.failures.append(repr(error))
                    producer.abort_transaction(DEADLINE_S)
                    consumer.seek_to_committed()

    def close(self) -> None:
        self._is_closing.set()
        self._thread.join()
        assert self.error is None, self.failures


def test_each_record_is_copied_once_whatever_is_killed(broker: Broker) -> None:
    copier = Copier(broker)
    written = 0
    try:
        for topic in ("", *IN_TURN):
            write(broker, range(written, written + 50))
            written += 50
            if topic:
                name = log_actor_name(TopicPartition(topic, 0))
                pid = pid_of(broker, name)
                kill(pid)
                write(broker, range(written, written + 50))
                written += 50
                wait_for_another(broker, name, pid)
            wait_for(lambda: len(committed(broker)) >= written, DEADLINE_S, "all is copied")  # noqa: B023
    finally:
        copier.close()
    assert committed(broker) == list(range(written)), copier.failures
    assert [one.lag for one in broker.groups().offsets("copies")] == [0] * PARTITIONS


def test_what_a_producer_left_open_is_aborted_by_who_takes_its_id(broker: Broker) -> None:
    first = broker.producer(transactional_id="one")
    first.init_transactions()
    first.begin_transaction()
    first.send("target", b"1").result()
    with broker.producer(transactional_id="one") as second:
        second.init_transactions()
        second.begin_transaction()
        for number in range(2, 10):
            second.send("target", b"%d" % number)
        second.commit_transaction()
        with pytest.raises(ProducerFenced):
            first.commit_transaction()
    first.close()
    wait_for(lambda: committed(broker) == list(range(2, 10)), DEADLINE_S, "markers are written")


def test_kafkas_readers_of_committed_records_see_what_counts(broker: Broker) -> None:
    with broker.producer(transactional_id="one") as producer:
        producer.init_transactions()
        for number in range(20):
            producer.begin_transaction()
            sent = producer.send("target", b"%d" % number, partition=0)
            if number % 2:
                sent.result()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    # read_committed is librdkafka's default
    assert Librdkafka(broker).values("target", 10) == [b"%d" % n for n in range(0, 20, 2)]
