"""A worker that reads: consumers that begin anywhere, follow all topics for a while, and are
followed by others."""

import time
from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa

from raylog.cluster.client.consumer import Consumer
from raylog.storage.errors import OffsetOutOfRange, RaylogError
from tests.soak.clients import STOP_READING, Worker, identity_of, key_of
from tests.soak.history import Ended, Partition, Poll, ints
from tests.soak.plan import Stable

LIFE_S = (10.0, 60.0)
# A new consumer begins so far behind a partition's end, at most.
BEHIND = 20_000
DRAIN_S = 180.0
Row = tuple[str, int, int, int, int]  # topic, partition, offset, id, key


def consume(worker: Worker, topics: list[Stable]) -> None:
    """Read until told to stop, then to the end."""
    lives = 0
    while not worker.is_over(STOP_READING):
        lives += 1
        try:
            with Reader(worker, topics, f"{worker.name}.{lives}") as reader:
                end = time.monotonic() + worker.rng.uniform(*LIFE_S)
                while time.monotonic() < end and not worker.is_over(STOP_READING):
                    reader.poll()
                if worker.is_over(STOP_READING):
                    reader.drain()
        except Exception as error:
            worker.surprise(error)
            time.sleep(1)


class Reader:
    """One consumer, whose every answer is taken down."""

    def __init__(self, worker: Worker, topics: list[Stable], name: str) -> None:
        self._worker, self._name = worker, name
        self._partitions = {
            (topic.name, number): Partition(topic.name, topic.topic_id, number)
            for topic in topics
            for number in range(topic.partitions)
        }
        self._stretch = dict.fromkeys(self._partitions, 0)  # a seek begins another
        self._as_arrow = worker.rng.random() < 0.5
        names = [topic.name for topic in topics]
        self._consumer: Consumer = worker.patiently(
            lambda: worker.broker.consumer(*names, from_="latest", auto_offset_reset="none")
        )
        for key in self._partitions:
            end = worker.patiently(partial(self._consumer.position, *key))
            if worker.rng.random() < 0.7:
                self._consumer.seek(*key, max(end - worker.rng.randrange(BEHIND), 0))

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def name_of(self, key: tuple[str, int]) -> str:
        return f"{self._name}/{self._stretch[key]}"

    def poll(self) -> None:
        invoked = time.monotonic_ns()
        try:
            rows = self._rows()
        except OffsetOutOfRange as error:
            self._seek(error)
            return
        except RaylogError as error:
            if not error.retriable:
                raise
            print(f"{self._name}: {error}", flush=True)
            return
        for key, found in _by_partition(rows):
            self._worker.writer.write(
                Poll(
                    self.name_of(key),
                    self._partitions[key],
                    invoked,
                    time.monotonic_ns(),
                    ints(row[2] for row in found),
                    ints(row[3] for row in found),
                    ints(row[4] for row in found),
                )
            )

    def _rows(self) -> list[Row]:
        if self._as_arrow:
            return list(_of_table(self._consumer.poll_arrow(500)))
        return [
            (
                one.topic,
                one.partition,
                one.offset,
                identity_of(one.value, one.headers),
                key_of(one.key),
            )
            for one in self._consumer.poll(500)
        ]

    def _seek(self, error: OffsetOutOfRange) -> None:
        """Retention was faster: go on at the log's start."""
        partition, _, log_start_offset, _ = error.args
        topic, _, number = str(partition).rpartition("-")
        key = (topic, int(number))
        self._stretch[key] += 1
        self._consumer.seek(*key, log_start_offset)

    def drain(self) -> None:
        """Read on to the end of every partition, or as far as one comes in time."""
        broker = self._worker.broker
        ends = self._worker.patiently(
            lambda: broker.list_offsets(dict.fromkeys(self._partitions, -1))
        )
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline and any(
            self._consumer.position(*key) < (end or 0) for key, end in ends.items()
        ):
            self.poll()
        for key, partition in self._partitions.items():
            self._worker.writer.write(
                Ended(self.name_of(key), partition, self._consumer.position(*key))
            )


def _of_table(table: pa.Table) -> Iterator[Row]:
    values, headers = table.column("value").to_pylist(), None
    if None in values:
        headers = table.column("headers").to_pylist()
    columns = [table.column(name).to_pylist() for name in ("topic", "partition", "offset", "key")]
    for n, (topic, partition, offset, key) in enumerate(zip(*columns, strict=True)):
        marks = (
            [(one["key"], one["value"]) for one in headers[n]]
            if headers and values[n] is None
            else ()
        )
        yield topic, partition, offset, identity_of(values[n], marks), key_of(key)


def _by_partition(rows: Iterable[Row]) -> Iterator[tuple[tuple[str, int], list[Row]]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row[0], row[1]), []).append(row)
    yield from found.items()


def read_all(
    worker: Worker,
    topic: str,
    topic_id: str,
    number: int,
    name: str = "final",
    *,
    is_final: bool = True,
) -> None:
    """Read a partition from its start to what is its end now."""
    partition = Partition(topic, topic_id, number)
    consumer = worker.patiently(
        lambda: worker.broker.consumer(topic, partitions=[number], from_="earliest", to="latest")
    )
    while not consumer.is_at_end:
        invoked = time.monotonic_ns()
        rows = worker.patiently(consumer.poll)
        worker.writer.write(
            Poll(
                name,
                partition,
                invoked,
                time.monotonic_ns(),
                ints(one.offset for one in rows),
                ints(identity_of(one.value, one.headers) for one in rows),
                ints(key_of(one.key) for one in rows),
                is_final,
            )
        )
