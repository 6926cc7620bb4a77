"""A worker that sends: bursts of records to random partitions, by producers of ever new
settings."""

import time
from collections import deque
from typing import NamedTuple

from raylog.cluster.client.producer import Producer, SentRecord
from raylog.storage.errors import RaylogError
from tests.soak.clients import STOP_SENDING, Worker, to_bytes
from tests.soak.history import FAIL, INFO, NEVER, NO_KEY, OK, Partition, Send, ints
from tests.soak.plan import KEYS, Stable

# A producer lives so long; then another, with other settings, takes over.
LIFE_S = (5.0, 30.0)
MOST_A_BURST = 60
MOST_WAITING = 400  # bursts
TOMBSTONES = 0.1
SETTLE_S = 0.02


class Burst(NamedTuple):
    """Records on their way to one partition, in the order of sending."""

    op: Send
    records: list[SentRecord]


def produce(worker: Worker, topics: list[Stable], records_a_second: float) -> None:
    """Send until told to stop; returns when the fate of all records is known, or never will be."""
    lives = 0
    while not worker.is_over(STOP_SENDING):
        lives += 1
        try:
            _live(worker, topics, f"{worker.name}.{lives}", records_a_second)
        except Exception as error:
            worker.surprise(error)
            time.sleep(1)


def _live(worker: Worker, topics: list[Stable], name: str, records_a_second: float) -> None:
    rng = worker.rng
    worker.ask_for_producer_id()  # as the producer does by itself, which does not tell its own
    producer = worker.patiently(
        lambda: worker.broker.producer(
            batch_size=rng.choice([1, 1000, 16_384, 200_000]),
            linger_ms=rng.choice([0, 5, 100]),
            compression_type=rng.choice(["none", "none", "lz4", "zstd"]),
            delivery_timeout_ms=rng.choice([2_000, 20_000, 120_000]),
        )
    )
    waiting: deque[Burst] = deque()
    end = time.monotonic() + rng.uniform(*LIFE_S)
    try:
        while time.monotonic() < end and not worker.is_over(STOP_SENDING):
            count = rng.randint(1, MOST_A_BURST)
            if len(waiting) < MOST_WAITING:
                waiting.append(_burst(worker, producer, name, rng.choice(topics), count))
            _settle_all(worker, waiting)
            time.sleep(count / records_a_second)
        while waiting:  # one by one, since each tells how long its partition was silent
            _settle_all(worker, waiting)
            time.sleep(SETTLE_S)
    finally:
        try:
            producer.close()
        except RaylogError:
            pass  # each record tells its own fate
        _settle_all(worker, waiting)


def _burst(worker: Worker, producer: Producer, name: str, topic: Stable, count: int) -> Burst:
    op = begun(worker, name, topic, count)
    partition = op.partition
    sent = []
    for identity, key in zip(op.values.tolist(), op.keys.tolist(), strict=True):
        value, headers = to_bytes(identity, topic.padding)
        try:
            one = worker.patiently(
                lambda value=value, key=key, headers=headers: producer.send(  # type: ignore[misc]
                    topic.name,
                    value,
                    key=None if key == NO_KEY else b"%d" % key,
                    headers=headers,
                    partition=partition.number,
                )
            )
        except RaylogError as error:  # no room: nothing of it was taken in
            print(f"{partition}: not taken in: {error}", flush=True)
            break
        sent.append(one)
    if len(sent) < count:
        tell(worker, op, slice(len(sent), count), FAIL, [])
    return Burst(op, sent)


def begun(worker: Worker, name: str, topic: Stable, count: int) -> Send:
    """New records for a random partition, taken down before they are sent."""
    rng = worker.rng
    partition = Partition(topic.name, topic.topic_id, rng.randrange(topic.partitions))
    keys = [rng.randrange(KEYS) if topic.is_keyed else NO_KEY for _ in range(count)]
    identities = [next(worker.ids) for _ in range(count)]
    if topic.is_keyed:
        identities = [-one if rng.random() < TOMBSTONES else one for one in identities]
    op = Send(
        name, partition, time.monotonic_ns(), NEVER, INFO, ints(identities), ints(keys), ints()
    )
    worker.writer.write(op)
    return op


def _settle_all(worker: Worker, waiting: deque[Burst]) -> None:
    """Take down the fate of all bursts that have one. One partition's wait does not hold up the
    others'."""
    for _ in range(len(waiting)):
        burst = waiting.popleft()
        if all(record.done() for record in burst.records):
            settle(worker, burst)
        else:
            waiting.append(burst)


def settle(worker: Worker, burst: Burst) -> None:
    """Take down the fates of a burst whose records all have one."""
    offsets: list[int | None] = []
    for record in burst.records:
        try:
            offsets.append(record.result(0).offset)
        except RaylogError:
            offsets.append(None)
    tell_fates(worker, burst.op, offsets)


def tell_fates(worker: Worker, op: Send, offsets: list[int | None]) -> None:
    """Take down where the first records of a burst are; None: nobody knows.

    A burst may lie in several batches, each with a fate of its own.
    """
    start = 0
    for at in range(1, len(offsets) + 1):
        if at == len(offsets) or (offsets[at] is None) != (offsets[start] is None):
            known = [offset for offset in offsets[start:at] if offset is not None]
            tell(worker, op, slice(start, at), OK if known else INFO, known)
            start = at


def tell(worker: Worker, op: Send, rows: slice, outcome: str, offsets: list[int]) -> None:
    worker.writer.write(
        op._replace(
            completed=time.monotonic_ns(),
            outcome=outcome,
            values=op.values[rows],
            keys=op.keys[rows],
            offsets=ints(offsets),
        )
    )
