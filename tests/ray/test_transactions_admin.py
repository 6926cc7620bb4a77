"""Transactions of a real broker as an administrator sees them: listed, aborted, found hanging."""

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from confluent_kafka import KafkaException, Producer

from raylog.actors.coordinators.errors import TransactionalIdNotFound, TransactionOpen
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import log_actor_name
from raylog.cluster.broker import Broker
from raylog.storage.names import TopicPartition
from raylog.storage.testing.logs import of_producer
from raylog.storage.testing.waiting import wait_for
from tests.harness.librdkafka import DEADLINE_S, PARTITIONS, Librdkafka, once_all_listen, running
from tests.harness.shell import run_here

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
STRANGE = 1_000_000  # a producer id that no coordinator has given


@pytest.fixture
def broker(local_ray: None, tmp_path: Path) -> Iterator[Broker]:
    with running([str(tmp_path / "a")], f"transactions-{uuid.uuid4().hex[:8]}") as broker:
        broker.create_topic("orders", PARTITIONS)
        once_all_listen(broker)
        yield broker


def begun(broker: Broker, name: str) -> Producer:
    """A producer whose transaction is open in both partitions."""
    producer = Librdkafka(broker).producer(transactional_id=name)
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for number in range(PARTITIONS):
        producer.produce("orders", b"x", partition=number)
    assert producer.flush(DEADLINE_S) == 0
    return producer


def hang(broker: Broker, partition: TopicPartition) -> None:
    """Begin a transaction in the process of a partition, of which no coordinator is asked."""
    actor: Any = find(log_actor_name(partition), broker.namespace)
    now_ms = int(time.time() * 1000)
    batch = bytes(of_producer(0, producer=STRANGE, transactional=True, timestamp=now_ms))
    ray.get(actor.__ray_call__.remote(appends_unverified(batch, STRANGE)), timeout=DEADLINE_S)


def appends_unverified(batch: bytes, producer_id: int) -> Callable[[Any], None]:
    def append(actor: Any) -> None:
        partition = actor._partition
        verification = partition.verifications.begin(producer_id, 0)
        verification.grant()
        partition.append(batch)
        partition.verifications.end(verification)

    return append


def ids(broker: Broker, **wanted: Any) -> list[str]:
    return [one.transactional_id for one in broker.transactions().list(**wanted)]


def committed(broker: Broker, count: int) -> None:
    """So many records are seen by who reads committed ones: nothing is open in front of them."""
    seen: list[Any] = []
    with broker.consumer("orders", from_="earliest", isolation_level="read_committed") as consumer:

        def are_seen() -> bool:
            seen.extend(consumer.poll(200))
            return len(seen) >= count

        wait_for(are_seen, DEADLINE_S, f"{count} records are seen")
    assert len(seen) == count


def test_an_open_transaction_is_listed_described_and_aborted(broker: Broker) -> None:
    admin = broker.transactions()
    assert admin.list() == ()
    with pytest.raises(TransactionalIdNotFound):
        admin.fence("writer")
    producer = begun(broker, "writer")
    assert ids(broker, states=["Ongoing"]) == ["writer"]
    assert ids(broker, older_than_ms=3_600_000) == []
    found = admin.describe("writer")
    assert (found.state, found.partitions, found.epoch) == ("Ongoing", (FIRST, SECOND), 0)
    assert found.age_ms is not None
    assert found.age_ms < 60_000
    (standing,) = admin.producers("orders", 0)
    assert (standing.producer_id, standing.transaction_start) == (found.producer_id, 0)
    assert admin.find_hanging(older_than_ms=0) == ()
    with pytest.raises(TransactionOpen):
        admin.abort("orders", 0, 0)

    assert admin.fence("writer").ended == "Abort"
    assert [one.transaction_start for one in admin.producers("orders", 0)] == [-1]
    with pytest.raises(KafkaException) as failure:
        producer.commit_transaction(DEADLINE_S)
    assert failure.value.args[0].fatal()
    begun(broker, "writer").commit_transaction(DEADLINE_S)
    committed(broker, PARTITIONS)


def test_a_transaction_that_hangs_is_found_and_ended_by_socket(broker: Broker) -> None:
    producer = begun(broker, "writer")
    hang(broker, SECOND)
    there = ("--bootstrap-servers", str(broker.bootstrap_servers))
    assert broker.transactions().find_hanging() == (), "it is not old enough"
    found = run_here("txn", "find-hanging", "--older-than", "0", *there).lines()
    assert [line.split("\t")[:3] for line in found[1:]] == [["orders-1", "1", f"{STRANGE}"]]
    producer.commit_transaction(DEADLINE_S)
    begun(broker, "next").commit_transaction(DEADLINE_S)

    place = ("--topic", "orders", "--partition", "1", "--start-offset", "1")
    ended = run_here("txn", "abort", *place, *there).lines()
    assert ended == [
        f"aborted the transaction of producer {STRANGE} that began at offset 1 of orders-1"
    ]
    assert broker.transactions().find_hanging(older_than_ms=0) == ()
    committed(broker, 2 * PARTITIONS)
    assert run_here("txn", "list", *there).lines()[1:] != []
    assert run_here("txn", "describe", "nobody", *there).returncode == 1
