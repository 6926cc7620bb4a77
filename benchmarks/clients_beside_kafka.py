"""raylog's clients on a broker, and confluent-kafka on a real Kafka, in turn in one run.

Records have values of 100 bytes and go to one partition, from and to which each system has one
client. A sender's round is so many records, acknowledged. A reader's round is so many records of a
topic that is read again and again. Clients and brokers share the machine's cores.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import confluent_kafka
import pyarrow as pa

import raylog
from benchmarks.broker import Librdkafka, real_kafka
from benchmarks.measure import Figure, Times, rate, steady
from raylog.cluster.broker import Broker
from tests.harness.clusters import local_ray

SENT, READ = "sent", "read"
VALUE = b"x" * 100
ROWS_A_ROUND = 20_000
CONSUME = 1000
CONFIG = {"retention.ms": -1}


class Client(NamedTuple):
    """What a client does in a round, and how long it took until its first record."""

    start_s: float
    work: Callable[[], int]


def run(quick: bool = False) -> list[dict[str, Any]]:
    rows = 200_000 if quick else 1_000_000
    with (
        local_ray() as folder,
        raylog.start([f"{folder}/log"]) as broker,
        real_kafka(folder / "kafka") as kafka,
    ):
        if kafka is None:
            return []
        for topic in (SENT, READ):
            broker.create_topic(topic, 1, CONFIG)
            kafka.create(topic, 1, CONFIG)
        _fill(broker, rows)
        kafka.produce(READ, 1, [VALUE] * rows)
        return _sending(broker, kafka, quick) + _reading(broker, kafka, rows, quick)


def _fill(broker: Broker, rows: int) -> None:
    values = pa.array([VALUE] * 10_000, pa.binary())
    with broker.producer() as producer:
        for _ in range(rows // 10_000):
            producer.send_arrow(READ, pa.table({"value": values}))


# -- senders ---------------------------------------------------------------------------------------


def _sending(broker: Broker, kafka: Librdkafka, quick: bool) -> list[dict[str, Any]]:
    with _our_producer(broker) as ours, _their_producer(kafka) as theirs:
        rates = steady(Times.of(quick), ours.work, theirs.work)
    return [
        rate("send, on a broker", rates[0], "records/s", "confluent-kafka", rates[1], "0.7"),
        _start("a producer's first acknowledgement", ours, theirs),
    ]


@contextmanager
def _our_producer(broker: Broker) -> Iterator[Client]:
    began = time.perf_counter()
    with broker.producer() as producer:
        producer.send(SENT, VALUE).result()
        took_s = time.perf_counter() - began

        def work() -> int:
            send = producer.send
            for _ in range(ROWS_A_ROUND):
                send(SENT, VALUE)
            producer.flush()
            return ROWS_A_ROUND

        yield Client(took_s, work)


@contextmanager
def _their_producer(kafka: Librdkafka) -> Iterator[Client]:
    began = time.perf_counter()
    settings = {"acks": 1, "queue.buffering.max.messages": 1_000_000}
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.address, **settings})
    producer.produce(SENT, VALUE)
    assert producer.flush(60) == 0, "acknowledged"
    took_s = time.perf_counter() - began

    def work() -> int:
        for _ in range(ROWS_A_ROUND):
            producer.produce(SENT, VALUE)
        assert producer.flush(60) == 0, "all is acknowledged"
        return ROWS_A_ROUND

    yield Client(took_s, work)


# -- readers ---------------------------------------------------------------------------------------


def _reading(broker: Broker, kafka: Librdkafka, rows: int, quick: bool) -> list[dict[str, Any]]:
    with (
        _our_consumer(broker, rows, _polled) as rowwise,
        _our_consumer(broker, rows, _polled_arrow) as arrow,
        _their_consumer(kafka, rows) as theirs,
    ):
        poll, poll_arrow, consume = steady(Times.of(quick), rowwise.work, arrow.work, theirs.work)
    beside = f"confluent-kafka, consume({CONSUME})"
    return [
        rate("poll, on a broker", poll, "records/s", beside, consume, "2"),
        rate("poll_arrow, on a broker", poll_arrow, "records/s", beside, consume, "40"),
        _start("a consumer's first record", rowwise, theirs),
    ]


def _polled(consumer: Any) -> tuple[int, int]:
    """How many records, and the offset behind them."""
    polled = consumer.poll()
    return len(polled), polled[-1].offset + 1 if polled else 0


def _polled_arrow(consumer: Any) -> tuple[int, int]:
    table = consumer.poll_arrow()
    return table.num_rows, consumer.position(READ, 0)


@contextmanager
def _our_consumer(
    broker: Broker, rows: int, poll: Callable[[Any], tuple[int, int]]
) -> Iterator[Client]:
    began = time.perf_counter()
    with broker.consumer(READ, from_="earliest") as consumer:
        assert consumer.poll_one(60_000) is not None
        took_s = time.perf_counter() - began

        def work() -> int:
            count = 0
            while count < ROWS_A_ROUND:
                some, behind = poll(consumer)
                count += some
                if behind >= rows:
                    consumer.seek(READ, 0, 0)
            return count

        yield Client(took_s, work)


@contextmanager
def _their_consumer(kafka: Librdkafka, rows: int) -> Iterator[Client]:
    began = time.perf_counter()
    settings = {"group.id": "bench", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.address, **settings})
    start = confluent_kafka.TopicPartition(READ, 0, 0)
    consumer.assign([start])
    assert consumer.consume(1, 60.0)
    took_s = time.perf_counter() - began

    def work() -> int:
        count = 0
        while count < ROWS_A_ROUND:
            messages = consumer.consume(CONSUME, 1.0)
            count += len([message.value() for message in messages])
            if messages and (messages[-1].offset() or 0) + 1 >= rows:
                consumer.seek(start)
        return count

    yield Client(took_s, work)
    consumer.close()


def _start(what: str, ours: Client, theirs: Client) -> dict[str, Any]:
    own, other = ours.start_s * 1000, theirs.start_s * 1000
    return Figure(what, own, "ms", "confluent-kafka", other, own / other, "").as_dict()
