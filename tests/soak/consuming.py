"""A worker that reads: consumers that begin anywhere, follow all topics for a while, and are
followed by others."""

import time
from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa

from raylog.cluster.client.consumer import Consumer
from raylog.storage.errors import OffsetOutOfRange, RaylogError
from tests.soak.clients import STOP_READING, Worker, identity_of, key_of, may_pass
from tests.soak.history import Ended, EndOffset, Partition, Poll, ints
from tests.soak.plan import Stable

LIFE_S = (10.0, 60.0)
# A new consumer begins so far behind a partition's end, at most.
BEHIND = 20_000
DRAIN_S = 300.0
# A reader asks so often for the end of one partition, and waits so long for the answer.
ASK_EVERY_S, ANSWER_S = 0.5, 5.0
LATEST = -1
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
                    reader.ask_for_an_end()
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
        self._asked_s = 0.0
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

    def ask_for_an_end(self) -> None:
        """Now and then, the end of one partition: of the actor that this process has known."""
        if time.monotonic() < self._asked_s + ASK_EVERY_S:
            return
        self._asked_s = time.monotonic()
        broker = self._worker.broker
        topic, number = self._worker.rng.choice(list(self._partitions))
        invoked = time.monotonic_ns()
        try:
            log_actor = broker.log_actor(topic, number, timeout_s=0)
            end = log_actor.offset_for_timestamp(LATEST).get(ANSWER_S)
        except RaylogError as error:
            if not may_pass(error):
                raise
            broker.forget(topic, number)
            return
        if end is not None:
            told(self._worker, self._name, self._partitions[topic, number], invoked, end.offset)

    def _ends(self) -> dict[tuple[str, int], int | None]:
        """Of all partitions, asked for at once."""
        invoked = time.monotonic_ns()
        ends = self._worker.broker.list_offsets(dict.fromkeys(self._partitions, LATEST))
        for key, end in ends.items():
            told(self._worker, self._name, self._partitions[key], invoked, end or 0)
        return ends

    def drain(self) -> None:
        """Read on to the end of every partition, or as far as one comes in time."""
        ends = self._worker.patiently(self._ends)
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline and any(
            self._consumer.position(*key) < (end or 0) for key, end in ends.items()
        ):
            self.poll()
        for key, partition in self._partitions.items():
            self._worker.writer.write(
                Ended(self.name_of(key), partition, self._consumer.position(*key))
            )


def told(worker: Worker, asker: str, partition: Partition, invoked: int, end: int) -> None:
    """Take down a log's end as it was told just now."""
    worker.writer.write(EndOffset(asker, partition, invoked, time.monotonic_ns(), end))


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
    """Read a partition from its start to what is its end now, and take down where that is.

    Not in the last read (``is_final``), where compaction may have dropped the last records: then
    the look-up of the end tells.
    """
    partition = Partition(topic, topic_id, number)
    began = time.monotonic_ns()
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
    if not is_final:
        told(worker, name, partition, began, consumer.position(topic, number))
