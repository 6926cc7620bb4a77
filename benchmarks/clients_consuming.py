"""What the consumer costs by itself: over a connection that answers at once, in one thread.

Each record has a value of 100 bytes and no key, in batches of 1,000, 8 MB a fetch. ``poll`` gives
500 records at a time, as Kafka's ``max.poll.records``; the iteration gives them one by one;
``poll_arrow`` gives tables of up to 32 MiB.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from benchmarks.measure import Times, rate, steady
from raylog.cluster.client.connection import (
    FetchAnswer,
    FetchRequest,
    OffsetAnswer,
    OffsetRequest,
    PartitionMetadata,
    TopicMetadata,
)
from raylog.cluster.client.consumer import Consumer
from raylog.storage.records.batch import stamp
from raylog.storage.records.encode import encode_records
from raylog.storage.state.epochs import EpochEnd

T0 = 1_700_000_000_000
BATCHES, RECORDS_A_BATCH = 70, 1_000
RECORDS_A_FETCH = BATCHES * RECORDS_A_BATCH


class InstantAnswer:
    """The same batches, as of another offset."""

    high_watermark = last_stable_offset = 1 << 60
    log_start_offset = 0
    aborted: tuple[tuple[int, int], ...] | None = None
    end_offset = -1
    leader_epoch = 0
    diverging: EpochEnd | None = None

    def __init__(self, records: bytes) -> None:
        self._records = records

    def read(self) -> bytes:
        return self._records


class InstantConnection:
    """An endless partition."""

    max_in_flight = 1

    def __init__(self) -> None:
        rows = [(T0 + n, None, b"%0100d" % n, ()) for n in range(RECORDS_A_BATCH)]
        self._fetch = bytearray(bytes(encode_records(rows)) * BATCHES)
        self._batch_bytes = len(self._fetch) // BATCHES

    def metadata(self, topic: str, *, timeout_s: float) -> "Future[Any]":
        partitions = (PartitionMetadata(0, -1, None),)
        return _ended(TopicMetadata(topic, "id", partitions, 1 << 20))

    def list_offset(self, request: OffsetRequest, *, timeout_s: float) -> "Future[Any]":
        return _ended(OffsetAnswer(0, T0, 0))

    def fetch(self, request: FetchRequest, *, timeout_s: float) -> "Future[FetchAnswer]":
        for number in range(BATCHES):
            first = request.offset + number * RECORDS_A_BATCH
            stamp(self._fetch, first, 0, number * self._batch_bytes)
        answer: FetchAnswer = InstantAnswer(bytes(self._fetch))
        return _ended(answer)

    def forget(self, topic: str, partition: int) -> None:
        pass


def _ended(answer: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


def run(quick: bool = False) -> list[dict[str, Any]]:
    """One dict for each figure: name, value, unit, target."""
    times = Times.of(quick)
    return [
        _figure("poll", 1.5e6, _poll, times),
        _figure("iteration", 1.5e6, _iterate, times),
        _figure("poll_arrow", 15e6, _poll_arrow, times),
    ]


def _figure(
    name: str, target: float, read: Callable[[Consumer, int], int], times: Times
) -> dict[str, Any]:
    with Consumer(InstantConnection(), "t", from_="earliest") as consumer:  # type: ignore[arg-type]
        (median,) = steady(times, lambda: read(consumer, RECORDS_A_FETCH))
    what = f"{name}, 100-byte values, client alone"
    return rate(what, median / 1e6, "million/s", "wanted", target / 1e6)


def _poll(consumer: Consumer, wanted: int) -> int:
    count = 0
    while count < wanted:
        count += len(consumer.poll())
    return count


def _iterate(consumer: Consumer, wanted: int) -> int:
    count = 0
    for _ in consumer:
        count += 1
        if count == wanted:
            break
    return count


def _poll_arrow(consumer: Consumer, wanted: int) -> int:
    count = 0
    while count < wanted:
        count += consumer.poll_arrow().num_rows
    return count
