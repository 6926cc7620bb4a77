"""Act 6: SIGKILL one partition's LogActor in the middle of producing, and go on.

Ray starts the actor's process again; it recovers the log from the disk and begins a new leader
epoch. The producer repeats what was not acknowledged with the same producer id and sequence, and
the log answers a repeat with the offset it gave the first time. So each record is there exactly
once. The proof: every value carries a number, every receipt says partition and offset, and all of
it is read back and compared.
"""

import os
import signal
from collections import Counter
from functools import partial
from typing import Any, NamedTuple

import ray

from examples.demo.stage import Demo, Stopwatch
from raylog.storage.records.murmur2 import partition_for_key

TOPIC, PARTITIONS, VICTIM = "flights-crash", 2, 0
RECORDS, QUICK_RECORDS = 100_000, 20_000
KILL_AT = 0.4  # of the records


class Kill(NamedTuple):
    """What was known when the process was killed."""

    pid: int
    epoch: int
    acknowledged: int
    sent: int


def run(demo: Demo) -> None:
    stage, broker = demo.stage, demo.running_broker
    rows = numbered_rows(demo, QUICK_RECORDS if demo.is_quick else RECORDS)
    stage.act(6, f"SIGKILL of a LogActor while {len(rows):,} records are produced")
    broker.create_topic(TOPIC, PARTITIONS)
    receipts: list[Any] = []
    middle = int(len(rows) * KILL_AT)
    watch = Stopwatch()
    with stage.progress("send", len(rows)) as done, broker.producer() as producer:
        send = partial(send_rows, producer, TOPIC, receipts=receipts, done=done)
        send(rows[: middle // 2])
        next(r for (key, _), r in zip(rows, receipts, strict=False) if _is_victims(key)).result()
        send(rows[middle // 2 : middle])
        killed = _kill(broker, receipts)
        since_kill = Stopwatch()
        send(rows[middle:])
        # Sent after the kill, so only the successor can have acknowledged it.
        next(
            r
            for (key, _), r in zip(rows[middle:], receipts[middle:], strict=True)
            if _is_victims(key)
        ).result()
        gap_s = since_kill.seconds
    stage.say(
        f"process {killed.pid}, the actor of {TOPIC}-{VICTIM}, was killed; {killed.sent:,} "
        f"records had been sent, {killed.acknowledged:,} of them were acknowledged"
    )
    after = ray.get(broker.partition(TOPIC, VICTIM).status.remote())
    stage.say(
        f"Ray started process {after.pid} in its place, with leader epoch {after.leader_epoch} "
        f"after {killed.epoch}; it acknowledged its first record {gap_s:.1f} s after the kill"
    )
    stage.check(
        after.pid != killed.pid and after.leader_epoch > killed.epoch,
        f"the producer continued by itself: {watch.seconds:.1f} s in total",
    )
    check_receipts(demo, TOPIC, [receipt.result() for receipt in receipts])


def numbered_rows(demo: Demo, count: int) -> list[tuple[bytes, bytes]]:
    """Flights whose value begins with a number of its own: ``{"n":17,"year":2013,...``."""
    table = demo.flights.table.slice(0, count)
    keys, values = (table.column(name).to_pylist() for name in ("key", "value"))
    return [
        (key, b'{"n":%d,' % n + value[1:])
        for n, (key, value) in enumerate(zip(keys, values, strict=True))
    ]


def number_of(value: bytes) -> int:
    return int(value[5 : value.index(b",")])


def _is_victims(key: bytes) -> bool:
    return partition_for_key(key, PARTITIONS) == VICTIM


def send_rows(
    producer: Any, topic: str, rows: list[tuple[bytes, bytes]], receipts: list[Any], done: Any
) -> None:
    """Send the rows, and keep the receipt of each."""
    for key, value in rows:
        receipts.append(producer.send(topic, value, key=key))
        if len(receipts) % 1000 == 0:
            done(1000)


def _kill(broker: Any, receipts: list[Any]) -> Kill:
    status = ray.get(broker.partition(TOPIC, VICTIM).status.remote())
    os.kill(status.pid, signal.SIGKILL)
    return Kill(
        status.pid, status.leader_epoch, sum(receipt.done() for receipt in receipts), len(receipts)
    )


def check_receipts(demo: Demo, topic: str, receipts: list[Any]) -> None:
    """Read everything: each number once, each where its receipt says."""
    where, found = {}, Counter[int]()
    with (
        demo.stage.progress("reading back", len(receipts)) as done,
        demo.running_broker.consumer(topic, from_="earliest", to="latest") as consumer,
    ):
        while not consumer.is_at_end:
            records = consumer.poll()
            for record in records:
                number = number_of(record.value or b"")
                found[number] += 1
                where[number] = (record.partition, record.offset)
            done(len(records))
    lost = [n for n in range(len(receipts)) if n not in found]
    twice = [n for n, times in found.items() if times > 1]
    demo.stage.check(
        not lost,
        f"no acknowledged record was lost: {len(receipts):,} receipts, {found.total():,} records",
    )
    demo.stage.check(not twice and found.total() == len(receipts), "no record was written twice")
    demo.stage.check(
        all(where[n] == (receipt.partition, receipt.offset) for n, receipt in enumerate(receipts)),
        "every record has the partition and offset of its receipt",
    )
