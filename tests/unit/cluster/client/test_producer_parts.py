"""Parts of a producer by themselves: its timers, and the failures that nobody has seen."""

import gc
import weakref
from types import SimpleNamespace
from typing import Any

from raylog.cluster.client.producer.delivery import Delivery, Outcome
from raylog.cluster.client.producer.failures import MOST_FAILURES, Failures
from raylog.cluster.client.producer.timers import FEWEST_TIMERS, Timers


class Partition:
    due_at: float | None = None


def test_a_partition_is_due_once_and_at_its_last_time() -> None:
    timers: Timers[Partition] = Timers()
    first, second = Partition(), Partition()
    assert timers.next_at is None
    timers.schedule(first, 5.0)
    timers.schedule(second, 3.0)
    timers.schedule(second, 4.0)
    timers.schedule(second, 4.0)
    assert list(timers.take_due(3.0)) == []
    assert list(timers.take_due(4.0)) == [second]
    assert timers.next_at == 5.0
    assert list(timers.take_due(9.0)) == [first]
    assert timers.next_at is None
    timers.schedule(first, 5.0)
    assert list(timers.take_due(9.0)) == [first]


def test_void_times_are_cleared_and_valid_ones_kept() -> None:
    timers: Timers[Partition] = Timers()
    kept, moved, gone = Partition(), Partition(), Partition()
    timers.schedule(gone, 0.5)
    assert list(timers.take_due(0.5)) == [gone]
    forgotten = weakref.ref(gone)
    for later in range(FEWEST_TIMERS):
        timers.schedule(moved, 1000.0 + later)
        timers.schedule(kept, 2.0)
    del gone
    gc.collect()
    assert forgotten() is None
    assert timers.next_at == 2.0
    assert len(timers._heap) <= 2
    assert list(timers.take_due(2.0)) == [kept]
    assert list(timers.take_due(999.0 + FEWEST_TIMERS)) == [moved]


def test_times_that_are_valid_are_not_looked_through_again_and_again() -> None:
    timers: Timers[Partition] = Timers()
    partitions = [Partition() for _ in range(3 * FEWEST_TIMERS)]
    for partition in partitions:
        timers.schedule(partition, 1.0)
    assert timers._most > 2 * FEWEST_TIMERS
    assert list(timers.take_due(1.0)) == partitions


def test_beyond_the_most_failures_their_records_are_still_counted() -> None:
    failures = Failures()
    partition: Any = SimpleNamespace(name="t-0")
    deliveries = []
    for number in range(MOST_FAILURES + 2):
        delivery = Delivery(partition, created_at=0.0)
        deliveries.append(delivery)
        failures.add(delivery, Outcome(0, 3, -1, -1, OSError(str(number))))
    first, records = failures.untold()
    assert str(getattr(first, "cause", None)) == "0"
    assert records == 3 * (MOST_FAILURES + 2)
    deliveries[-1].was_told(2)
    assert failures.untold()[1] == records - 1
    assert len(failures._batches) == MOST_FAILURES
    assert Failures().untold() == (None, 0)
