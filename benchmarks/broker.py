"""A broker under one client: produce and fetch, records/s and MB/s, and the waits; beside Kafka and
Ray's queue.

Every cell is measured in turn with a real Kafka on the same machine, where one can be had
(``tests/kafka`` knows how), driven by confluent-kafka with the same linger.ms and batch.size.
``fsynced`` is ``flush.messages=1`` on the topic, in both. Clients and brokers share the machine's
cores.

One send at a time waits for its acknowledgement, then pauses, so that nothing queues. End to end is
from before ``send`` to after the ``poll`` that brings the record, in a thread of the same process.
"""

import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import ray
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]
from ray.util.queue import Queue

import raylog
from benchmarks.measure import alternate, rate, seconds
from raylog.cluster.broker import Broker
from raylog.storage.testing.waiting import wait_for
from tests.harness.clusters import local_ray
from tests.kafka.broker import KafkaBroker
from tests.kafka.clients import admin
from tests.kafka.distribution import NotHere, find_kafka

PARTITIONS = (1, 4, 16)
SIZES = {"100 B": 100, "1 KB": 1000}
LINGER_MS, BATCH_BYTES = 5, 1_000_000
PAUSE_S = 0.004
DURABILITIES: dict[str, dict[str, Any]] = {"acks=1": {}, "fsynced": {"flush.messages": 1}}
QUICK_PARTITIONS = (1,)
TOPIC = "measured"
COMPACTED = "compacted"
# An operator's throttle: so the compaction lasts as long as it is looked at.
BROKER = {"log.cleaner.backoff.ms": 100, "log.cleaner.io.max.bytes.per.second": 25_000_000}
# A faster machine is not looked at beside compaction.
MOST_COMPACTED_BYTES = 2_000_000_000
QUEUE_BATCH, QUEUE_SHARE = 100, 20


class Cell(NamedTuple):
    """One kind of topic and record."""

    partitions: int
    size: str
    durability: str

    def __str__(self) -> str:
        many = "partition" if self.partitions == 1 else "partitions"
        return f"{self.partitions} {many}, {self.size}, {self.durability}"


class Amount(NamedTuple):
    """How much is measured."""

    record_bytes: int  # of values, in one run of a throughput
    waits: int
    rounds: int
    compacted_bytes: int


FULL = Amount(20_000_000, 150, 3, 500_000_000)
QUICK = Amount(2_000_000, 30, 1, 200_000_000)


class System(Protocol):
    """A broker that is measured, through a client of its own."""

    def create(self, topic: str, partitions: int, config: dict[str, Any]) -> None: ...

    def delete(self, topic: str) -> None: ...

    def produce(self, topic: str, partitions: int, values: Sequence[bytes]) -> None:
        """Returns when all are acknowledged. Records go to the partitions in turn."""

    def fetch(self, topic: str, partitions: int, count: int) -> None:
        """Read ``count`` records from each partition's start."""

    def sending(self, topic: str) -> AbstractContextManager[Callable[[bytes], None]]:
        """What sends one record to partition 0 and waits for its acknowledgement."""

    def polling(self, topic: str) -> AbstractContextManager[Callable[[], list[bytes]]]:
        """What waits for partition 0's new records."""


class Raylog:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def create(self, topic: str, partitions: int, config: dict[str, Any]) -> None:
        self._broker.create_topic(topic, partitions, config)

    def delete(self, topic: str) -> None:
        self._broker.delete_topic(topic)

    def produce(self, topic: str, partitions: int, values: Sequence[bytes]) -> None:
        with self._broker.producer(linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
            send = producer.send
            for partition, value in zip(cycle(range(partitions)), values, strict=False):
                send(topic, value, partition=partition)

    def fetch(self, topic: str, partitions: int, count: int) -> None:
        with self._broker.consumer(topic, from_="earliest") as consumer:
            while count > 0:
                count -= len(consumer.poll())

    @contextmanager
    def sending(self, topic: str) -> Iterator[Callable[[bytes], None]]:
        with self._broker.producer(linger_ms=0) as producer:
            yield lambda value: (producer.send(topic, value, partition=0).result(), None)[1]

    @contextmanager
    def polling(self, topic: str) -> Iterator[Callable[[], list[bytes]]]:
        with self._broker.consumer(topic, partitions=[0]) as consumer:
            consumer.poll(0)
            yield lambda: [record.value or b"" for record in consumer.poll()]


class Librdkafka:
    """Driven by confluent-kafka, which is librdkafka: a client in C."""

    def __init__(self, address: str) -> None:
        self.address, self._admin = address, admin(address)

    def create(self, topic: str, partitions: int, config: dict[str, Any]) -> None:
        new = NewTopic(
            topic, partitions, 1, config={key: str(value) for key, value in config.items()}
        )
        for made in self._admin.create_topics([new]).values():
            made.result()

    def delete(self, topic: str) -> None:
        for gone in self._admin.delete_topics([topic]).values():
            gone.result()

    def address_of(self, topic: str, partition: int) -> tuple[str, int]:
        """Host and port of the leader."""
        found = self._admin.list_topics(topic, timeout=30)
        leader = found.brokers[found.topics[topic].partitions[partition].leader]
        return str(leader.host), leader.port

    def produce(self, topic: str, partitions: int, values: Sequence[bytes]) -> None:
        settings = {
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 100_000,
        }
        producer = self._producer(**settings)
        for partition, value in zip(cycle(range(partitions)), values, strict=False):
            while True:
                try:
                    producer.produce(topic, value, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.01)
        assert producer.flush(60) == 0, "all is acknowledged"

    def _producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.address, "acks": 1, **settings})

    def _consumer(self) -> Consumer:
        settings = {"group.id": "bench", "enable.auto.commit": False, "fetch.max.bytes": 64 << 20}
        return Consumer({"bootstrap.servers": self.address, **settings})

    def fetch(self, topic: str, partitions: int, count: int) -> None:
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
        while count > 0:
            count -= len([message.value() for message in consumer.consume(10_000, 1.0)])
        consumer.close()

    @contextmanager
    def sending(self, topic: str) -> Iterator[Callable[[bytes], None]]:
        producer = self._producer(**{"linger.ms": 0})

        def send(value: bytes) -> None:
            producer.produce(topic, value, partition=0)
            assert producer.flush(60) == 0, "acknowledged"

        yield send

    @contextmanager
    def polling(self, topic: str) -> Iterator[Callable[[], list[bytes]]]:
        consumer = self._consumer()
        place = TopicPartition(topic, 0)
        _, place.offset = consumer.get_watermark_offsets(place, timeout=30)
        consumer.assign([place])

        def poll() -> list[bytes]:
            message = consumer.poll(1.0)
            return [] if message is None or message.error() else [message.value() or b""]

        try:
            yield poll
        finally:
            consumer.close()


# -- what is measured ------------------------------------------------------------------------------


def run(quick: bool = False) -> list[dict[str, Any]]:
    amount = QUICK if quick else FULL
    with (
        local_ray() as folder,
        raylog.start([f"{folder}/log"], config=BROKER) as broker,
        real_kafka(folder / "kafka") as kafka,
    ):
        ours = Raylog(broker)
        cells = [
            (Cell(partitions, size, durability), config)
            for partitions in (QUICK_PARTITIONS if quick else PARTITIONS)
            for durability, config in DURABILITIES.items()
            for size in SIZES
        ]
        figures: list[dict[str, Any]] = []
        for cell, config in cells:
            print(f"  {cell}", flush=True)  # a cell takes half a minute
            figures += measured(ours, kafka, cell, config, amount)
        figures += _beside_a_call(broker, ours, amount) + _queue(ours, amount)
        for cell, config in cells:
            print(f"  {cell}, beside compaction", flush=True)
            figures += _beside_compaction(broker, ours, cell, config, amount)
        return figures


@contextmanager
def real_kafka(folder: Path, **settings: object) -> Iterator[Librdkafka | None]:
    """A real Kafka, or None where none can be had. ``settings``: of its node."""
    try:
        found = find_kafka()
    except NotHere as why:
        print(f"Kafka is not measured: {why}")
        yield None
        return
    folder.mkdir()
    broker = KafkaBroker(found, folder, **settings)
    broker.start()
    try:
        yield Librdkafka(broker.address)
    finally:
        broker.kill()


def measured(
    ours: System, kafka: Librdkafka | None, cell: Cell, config: dict[str, Any], amount: Amount
) -> list[dict[str, Any]]:
    """All figures of one kind of topic, raylog's and Kafka's in turn."""
    systems: list[System] = [ours] if kafka is None else [ours, kafka]
    for system in systems:
        system.create(TOPIC, cell.partitions, {"retention.ms": -1, **config})
    size_bytes = SIZES[cell.size]
    value = b"x" * size_bytes
    values = [value] * (amount.record_bytes // size_bytes)
    produce = [partial(_rate, system.produce, TOPIC, cell.partitions, values) for system in systems]
    fetch = [partial(_fetch_rate, system, cell.partitions, len(values)) for system in systems]
    waits = [partial(_waits, system, value, amount.waits) for system in systems]
    figures = _throughput(cell, "produce", size_bytes, alternate(amount.rounds, *produce))
    if not config:  # reading is the same thing, fsynced or not
        figures += _throughput(cell, "fetch", size_bytes, alternate(amount.rounds, *fetch))
    figures += _latencies(
        cell, [wait() for _ in range(amount.rounds) for wait in waits], len(systems)
    )
    for system in systems:
        system.delete(TOPIC)
    return figures


def _rate(work: Callable[..., None], topic: str, partitions: int, values: Sequence[bytes]) -> float:
    return len(values) / seconds(lambda: work(topic, partitions, values))


def _fetch_rate(system: System, partitions: int, count: int) -> float:
    return count / seconds(lambda: system.fetch(TOPIC, partitions, count))


def _throughput(
    cell: Cell, what: str, size_bytes: int, medians: list[float]
) -> list[dict[str, Any]]:
    ours, kafka = [*medians, math.nan][:2]
    mb = [median * size_bytes / 1e6 for median in (ours, kafka)]
    return [
        rate(f"{what}, {cell}", ours, "records/s", "Kafka", kafka),
        rate(f"{what}, {cell}", mb[0], "MB/s", "Kafka", mb[1]),
    ]


class Waits(NamedTuple):
    """ms, one a record."""

    acknowledged: list[float]
    end_to_end: list[float]


def _waits(system: System, value: bytes, count: int) -> Waits:
    """Send one record at a time, with a pause behind each; a thread polls them meanwhile."""
    acknowledged, arrived, is_over = [], {}, threading.Event()
    names = [(b"%d|" % n) + value[:-8] for n in range(count + 1)]
    with system.sending(TOPIC) as send, system.polling(TOPIC) as poll:

        def follow() -> None:
            while not is_over.is_set():
                for record in poll():
                    arrived[record] = time.perf_counter()

        thread = threading.Thread(target=follow)
        thread.start()
        begun = {}
        for name in names:
            begun[name] = time.perf_counter()
            send(name)
            acknowledged.append(time.perf_counter() - begun[name])
            time.sleep(PAUSE_S)
        wait_for(lambda: len(arrived) == len(names), what="all records came")
        is_over.set()
        thread.join()
    # The first finds nothing ready: connections are made, handles looked up.
    ends = [arrived[name] - begun[name] for name in names[1:]]
    return Waits([took * 1000 for took in acknowledged[1:]], [took * 1000 for took in ends])


def _latencies(cell: Cell, taken: list[Waits], systems: int) -> list[dict[str, Any]]:
    figures = []
    for what in Waits._fields:
        for percent in (50, 99):
            found = [
                statistics.median(
                    float(np.percentile(getattr(one, what), percent)) for one in taken[n::systems]
                )
                for n in range(systems)
            ]
            ours, kafka = [*found, math.nan][:2]
            name = f"{what.replace('_', ' ')} p{percent}, {cell}"
            figures.append(rate(name, ours, "ms", "Kafka", kafka))
    return figures


# -- Ray's own call and queue ----------------------------------------------------------------------


def _beside_a_call(broker: Broker, ours: Raylog, amount: Amount) -> list[dict[str, Any]]:
    """What of a wait for an acknowledgement is Ray's: a call that only asks, with the same
    pauses."""
    ours.create(TOPIC, 1, {"retention.ms": -1})
    actor, value = broker.partition(TOPIC, 0), b"x" * 100
    with ours.sending(TOPIC) as send:
        works: list[Callable[[], object]] = [
            partial(send, value),
            lambda: ray.get(actor.offsets.remote()),
        ]
        taken = [[_paused(work, amount.waits) for work in works] for _ in range(amount.rounds)]
    ours.delete(TOPIC)
    figures = []
    for percent in (50, 99):
        sent, asked = (
            statistics.median(float(np.percentile(w, percent)) for w in ws)
            for ws in zip(*taken, strict=True)
        )
        figures.append(
            rate(f"acknowledged p{percent}, nobody reads", sent, "ms", "an empty Ray call", asked)
        )
    return figures


def _paused(work: Callable[[], object], count: int) -> list[float]:
    """How long each call takes, in ms, but the first."""
    taken = []
    for _ in range(count + 1):
        taken.append(seconds(work) * 1000)
        time.sleep(PAUSE_S)
    return taken[1:]


def _queue(ours: Raylog, amount: Amount) -> list[dict[str, Any]]:
    """One partition beside an actor that keeps Python objects in memory."""
    ours.create(TOPIC, 1, {"retention.ms": -1})
    figures = []
    for name, size_bytes in SIZES.items():
        values = [b"x" * size_bytes] * (amount.record_bytes // size_bytes)
        few = values[::QUEUE_SHARE]
        send, put = alternate(
            amount.rounds,
            partial(_rate, ours.produce, TOPIC, 1, values),
            partial(_queue_rate, few, _put),
        )
        fetch, get = alternate(
            amount.rounds,
            partial(_fetch_rate, ours, 1, len(values)),
            partial(_queue_rate, few, _put_and_get),
        )
        figures.append(
            rate(f"produce, 1 partition, {name}", send, "records/s", "Ray's queue, by 100", put)
        )
        get = 1 / max(1 / get - 1 / put, 1e-9)  # without the putting
        figures.append(
            rate(f"fetch, 1 partition, {name}", fetch, "records/s", "Ray's queue, by 100", get)
        )
    ours.delete(TOPIC)
    return figures


def _queue_rate(values: Sequence[bytes], work: Callable[[Queue, Sequence[bytes]], None]) -> float:
    queue = Queue(actor_options={"num_cpus": 0})
    queue.size()  # it has started
    taken = seconds(lambda: work(queue, values))
    queue.shutdown(force=True)
    return len(values) / taken


def _put(queue: Queue, values: Sequence[bytes]) -> None:
    for start in range(0, len(values), QUEUE_BATCH):
        queue.put_nowait_batch(list(values[start : start + QUEUE_BATCH]))


def _put_and_get(queue: Queue, values: Sequence[bytes]) -> None:
    _put(queue, values)
    for start in range(0, len(values), QUEUE_BATCH):
        queue.get_nowait_batch(min(QUEUE_BATCH, len(values) - start))


# -- compaction meanwhile --------------------------------------------------------------------------


def _beside_compaction(
    broker: Broker, ours: Raylog, cell: Cell, config: dict[str, Any], amount: Amount
) -> list[dict[str, Any]]:
    """The same records with and without a compaction of another topic on the same node.

    A compaction that is over too soon is repeated with more bytes.
    """
    ours.create(TOPIC, cell.partitions, {"retention.ms": -1, **config})
    without = _rounds(ours, cell, amount, lambda: True)
    size_bytes = amount.compacted_bytes
    during = _while_compacting(broker, ours, cell, amount, size_bytes)
    while not during and size_bytes < MOST_COMPACTED_BYTES:
        size_bytes *= 2
        during = _while_compacting(broker, ours, cell, amount, size_bytes)
    ours.delete(TOPIC)
    figures = []
    for (what, unit), alone in without.items():
        name = f"{what}, {cell}, beside compaction"
        if not during:
            name += " (too fast to measure beside)"
        figures.append(rate(name, during.get((what, unit), math.nan), unit, "without", alone))
    return figures


def _while_compacting(
    broker: Broker, ours: Raylog, cell: Cell, amount: Amount, size_bytes: int
) -> dict[tuple[str, str], float]:
    """Medians of the rounds during a compaction of so many bytes; none if no round was."""
    _fill(broker, size_bytes)
    broker.alter_topic_config(COMPACTED, {"cleanup.policy": "compact"})

    def is_running() -> bool:
        return any(status.is_running for status in broker.compaction())

    def has_begun() -> bool:
        return any(
            status.is_running or status.last_round is not None for status in broker.compaction()
        )

    wait_for(has_begun, what="compaction begins", poll_s=0.01)
    during = _rounds(ours, cell, amount, is_running)
    ours.delete(COMPACTED)
    return during


def _fill(broker: Broker, size_bytes: int) -> None:
    """A topic that nobody has compacted yet: ten records a key."""
    broker.create_topic(COMPACTED, 1, {"retention.ms": -1, "segment.bytes": 16 << 20})
    rows = size_bytes // 1000
    keys = pa.array([b"%d" % (n % (rows // 10)) for n in range(rows)], pa.binary())
    table = pa.table({"key": keys, "value": pa.array([b"x" * 1000] * rows, pa.binary())})
    with broker.producer() as producer:
        producer.send_arrow(COMPACTED, table)


def _rounds(
    ours: Raylog, cell: Cell, amount: Amount, holds: Callable[[], bool]
) -> dict[tuple[str, str], float]:
    """Medians of one kind of topic, of the rounds at whose end ``holds`` is true; none without
    such a round."""
    value = b"x" * SIZES[cell.size]
    values = [value] * (amount.record_bytes // len(value))
    taken: list[tuple[float, float, Waits]] = []
    for _ in range(amount.rounds):
        produced = _rate(ours.produce, TOPIC, cell.partitions, values)
        fetched = _fetch_rate(ours, cell.partitions, len(values))
        waits = _waits(ours, value, amount.waits)
        if holds():
            taken.append((produced, fetched, waits))
    if not taken:
        return {}
    return _medians(taken)


def _medians(taken: list[tuple[float, float, Waits]]) -> dict[tuple[str, str], float]:
    produced, fetched, waits = zip(*taken, strict=True)
    return {
        ("produce", "records/s"): statistics.median(produced),
        ("fetch", "records/s"): statistics.median(fetched),
        **{
            (f"{what.replace('_', ' ')} p{percent}", "ms"): statistics.median(
                float(np.percentile(getattr(one, what), percent)) for one in waits
            )
            for what in Waits._fields
            for percent in (50, 99)
        },
    }
