"""Transactions: how many a second, and what exactly-once costs; beside a real Kafka.

==================== =============================================== ===============================
what                 measured                                        beside
==================== =============================================== ===============================
transactions         begin, 1 or 100 records, commit, one after the  librdkafka's on Kafka
                     other: librdkafka's, and raylog's own
an exactly-once copy from topic to topic: records and the group's    the same copy at least once:
                     offsets in a transaction for each poll          flush, then commit the offsets
==================== =============================================== ===============================
"""

import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from confluent_kafka import Producer

import raylog
from benchmarks.broker import real_kafka
from benchmarks.measure import Figure, alternate
from raylog.cluster.broker import Broker
from tests.harness.clusters import local_ray

TOPIC, SOURCE, TARGET = "written", "source", "target"
PARTITIONS = 4
VALUE = bytes(100)
SIZES = (1, 100)
TRANSACTIONS, QUICK_TRANSACTIONS = 200, 20
COPIED, QUICK_COPIED = 200_000, 20_000
POLLS = (500, 10_000)  # records of a poll, at most
ROUNDS, QUICK_ROUNDS = 3, 1
DEADLINE_S = 60.0


def run(quick: bool = False) -> list[dict[str, Any]]:
    with (
        local_ray() as folder,
        raylog.start([f"{folder}/log"]) as broker,
        real_kafka(folder / "kafka") as kafka,
    ):
        for topic in (TOPIC, SOURCE, TARGET):
            broker.create_topic(topic, PARTITIONS)
        theirs = None if kafka is None else kafka.address
        if kafka is not None:
            kafka.create(TOPIC, PARTITIONS, {})
        return _rates(broker, theirs, quick) + _copies(broker, quick)


# -- transactions a second -------------------------------------------------------------------------


def _rates(broker: Broker, theirs: str | None, quick: bool) -> list[dict[str, Any]]:
    count = QUICK_TRANSACTIONS if quick else TRANSACTIONS
    figures = []
    for size in SIZES:
        with ExitStack() as stack:
            works = [
                _librdkafka(broker.bootstrap_servers, size, count),
                _own(stack, broker, size, count),
            ]
            if theirs is not None:
                works.append(_librdkafka(theirs, size, count))
            taken = alternate(QUICK_ROUNDS if quick else ROUNDS, *works)
        beside = "librdkafka's on Kafka" if theirs is not None else "-"
        other = count / taken[-1]
        for name, seconds in zip(("librdkafka's", "raylog's"), taken[:2], strict=True):
            rate = count / seconds
            what = f"transactions of {size} records, {name}"
            figures.append(Figure(what, rate, "/s", beside, other, rate / other, "1").as_dict())
    return figures


def _librdkafka(address: str, size: int, count: int) -> Callable[[], float]:
    settings = {"bootstrap.servers": address, "transactional.id": uuid.uuid4().hex, "linger.ms": 0}
    producer = Producer({**settings, "log_level": 0})
    producer.init_transactions(DEADLINE_S)

    def work() -> float:
        started = time.perf_counter()
        for _ in range(count):
            producer.begin_transaction()
            for _ in range(size):
                producer.produce(TOPIC, VALUE, partition=0)
            producer.commit_transaction(DEADLINE_S)
        return time.perf_counter() - started

    return work


def _own(stack: ExitStack, broker: Broker, size: int, count: int) -> Callable[[], float]:
    settings = {"transactional.id": uuid.uuid4().hex, "linger.ms": 0}
    producer = stack.enter_context(broker.producer(settings))
    producer.init_transactions()

    def work() -> float:
        started = time.perf_counter()
        for _ in range(count):
            producer.begin_transaction()
            for _ in range(size):
                producer.send(TOPIC, VALUE, partition=0)
            producer.commit_transaction()
        return time.perf_counter() - started

    return work


# -- copies ----------------------------------------------------------------------------------------


def _copies(broker: Broker, quick: bool) -> list[dict[str, Any]]:
    count = QUICK_COPIED if quick else COPIED
    with broker.producer() as producer:
        for number in range(count):
            producer.send(SOURCE, VALUE, partition=number % PARTITIONS)
    figures = []
    for most in POLLS:
        once, least = alternate(
            QUICK_ROUNDS if quick else ROUNDS,
            partial(_exactly_once, broker, count, most),
            partial(_at_least_once, broker, count, most),
        )
        what = f"an exactly-once copy, {most} records a transaction"
        rate, other = count / once, count / least
        figures.append(
            Figure(what, rate, "records/s", "at least once", other, rate / other, "0.8").as_dict()
        )
    return figures


def _reading(broker: Broker, most: int) -> Any:
    return broker.consumer(
        SOURCE,
        partitions=range(PARTITIONS),
        group_id=uuid.uuid4().hex,
        from_="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
        max_poll_records=most,
    )


def _exactly_once(broker: Broker, count: int, most: int) -> float:
    with (
        _reading(broker, most) as consumer,
        broker.producer(transactional_id=uuid.uuid4().hex) as producer,
    ):
        producer.init_transactions()
        copied, started = 0, time.perf_counter()
        while copied < count:
            records = consumer.poll()
            producer.begin_transaction()
            for record in records:
                producer.send(TARGET, record.value, partition=record.partition)
            producer.send_offsets_to_transaction(records, consumer.group_metadata())
            producer.commit_transaction()
            copied += len(records)
        return time.perf_counter() - started


def _at_least_once(broker: Broker, count: int, most: int) -> float:
    with _reading(broker, most) as consumer, broker.producer() as producer:
        copied, started = 0, time.perf_counter()
        while copied < count:
            records = consumer.poll()
            for record in records:
                producer.send(TARGET, record.value, partition=record.partition)
            producer.flush()
            consumer.commit(records)
            copied += len(records)
        return time.perf_counter() - started
