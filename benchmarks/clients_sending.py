"""What a producer costs by itself: over a connection that answers at once, in one process."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from benchmarks.measure import Times, rate, steady
from raylog.cluster.client.connection import (
    PartitionMetadata,
    ProduceAnswer,
    ProduceRequest,
    TopicMetadata,
)
from raylog.cluster.client.producer import Producer

TOPIC = "measured"
PARTITIONS = 4
VALUE = b"x" * 100
KEY = b"k" * 10
HEADERS = [("name", b"value")]
ROWS_A_ROUND = 100_000

Sending = Callable[[Producer, int], object]


class AtOnce:
    """A connection whose partitions acknowledge every batch at once, and keep none."""

    max_in_flight = 1

    def metadata(self, topic: str, *, timeout_s: float) -> "Future[TopicMetadata]":
        places = tuple(PartitionMetadata(number, 0, None) for number in range(PARTITIONS))
        return _done(TopicMetadata(topic, "id", places, 1_048_588))

    def produce(self, request: ProduceRequest, *, timeout_s: float) -> "Future[ProduceAnswer]":
        return _done(ProduceAnswer(0, -1, 0))

    def new_producer_id(self, *, timeout_s: float) -> "Future[int]":
        return _done(1)

    def forget(self, topic: str, partition: int) -> None:
        pass

    def ask(self, request: Any, *, timeout_s: float) -> Any:
        raise NotImplementedError("this measures what is sent")

    def fetch(self, request: Any, *, timeout_s: float) -> Any:
        raise NotImplementedError("this measures what is sent")

    list_offset = fetch

    def list_topics(self, *, timeout_s: float) -> "Future[list[str]]":
        return _done(["t"])


def _done(answer: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


def run(quick: bool = False) -> list[dict[str, Any]]:
    times = Times.of(quick)
    plain = _rate(_plain, times)
    figures = [
        ("send, 100-byte values", plain, "3,000,000/s"),
        ("send, and keep the receipts", _rate(_kept, times), "3,000,000/s"),
        ("send with a 10-byte key", _rate(_keyed, times), "2,000,000/s"),
        ("send with one header", _rate(_headed, times), "2,000,000/s"),
        ("send with a bytearray (careful)", _rate(_careful, times), ""),
        ("send_arrow, 100-byte values", _rate(_table, times), ""),
    ]
    return [
        rate(name, value, "records/s", "send, 100-byte values", plain, target)
        for name, value, target in figures
    ]


def _rate(send: Sending, times: Times) -> float:
    """Records/s from the first send to the last acknowledgement, the median of the rounds."""
    with Producer(AtOnce(), linger_ms=5, buffer_memory=256 << 20) as producer:

        def send_some() -> int:
            send(producer, ROWS_A_ROUND)
            producer.flush()
            return ROWS_A_ROUND

        (median,) = steady(times, send_some)
        return median


def _plain(producer: Producer, rows: int) -> None:
    send = producer.send
    for _ in range(rows):
        send(TOPIC, VALUE)


def _kept(producer: Producer, rows: int) -> None:
    send = producer.send
    receipts = [send(TOPIC, VALUE) for _ in range(rows)]
    assert len(receipts) == rows


def _keyed(producer: Producer, rows: int) -> None:
    send = producer.send
    for _ in range(rows):
        send(TOPIC, VALUE, key=KEY)


def _headed(producer: Producer, rows: int) -> None:
    send = producer.send
    for _ in range(rows):
        send(TOPIC, VALUE, headers=HEADERS)


def _careful(producer: Producer, rows: int) -> None:
    send, value = producer.send, bytearray(VALUE)
    for _ in range(rows):
        send(TOPIC, value)


def _table(producer: Producer, rows: int) -> None:
    producer.send_arrow(TOPIC, _TABLE).result()


_TABLE = pa.table({"value": pa.array([VALUE] * ROWS_A_ROUND, pa.binary())})
