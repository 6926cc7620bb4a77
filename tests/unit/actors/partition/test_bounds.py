"""What a partition does not take on, and what clients make of being refused."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from raylog.actors.errors import THROTTLED, TooManyAppends, TooManyPolls
from raylog.actors.partition.bounds import InFlight
from raylog.actors.partition.partition import MAX_REST_S, Partition
from raylog.storage.errors import DiskFull, RaylogError
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.testing.logs import Disk, batch, batch_of_size, of_producer
from raylog.storage.testing.waiting import DEADLINE_S, wait_for

LONG_MS = 300_000  # the cap of a poll, far beyond DEADLINE_S: a poll that ends was woken


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(40) as executor:
        yield executor


def test_every_refusal_is_kafkas_throttling_and_may_be_retried() -> None:
    for kind in THROTTLED:
        assert (kind.code, kind.error_name, kind.retriable) == (
            89,
            "THROTTLING_QUOTA_EXCEEDED",
            True,
        )


# -- appends ---------------------------------------------------------------------------------------


def test_appends_beyond_the_bytes_in_flight_are_refused_and_nothing_is_written(
    disk: Disk, pool: ThreadPoolExecutor
) -> None:
    partition = Partition(disk.open(flush_messages=1), disk.clock, in_flight_bytes=300)
    with partition._flush_lock:  # a disk that syncs for ever
        waiting: list[Future[Any]] = [
            pool.submit(partition.append, batch_of_size(100)) for _ in range(3)
        ]
        wait_for(lambda: partition.log.log_end_offset == 3)
        assert partition.in_flight_bytes == 300
        with pytest.raises(TooManyAppends) as refused:
            partition.append(batch_of_size(100))
        assert (refused.value.in_flight_bytes, refused.value.most_bytes) == (300, 300)  # type: ignore[attr-defined]
        assert partition.log.log_end_offset == 3
        assert not any(one.done() for one in waiting)
    assert [one.result(DEADLINE_S).is_duplicate for one in waiting] == [False] * 3
    assert partition.in_flight_bytes == 0
    assert partition.append(batch_of_size(100)).base_offset == 3


def test_a_batch_larger_than_the_limit_enters_alone() -> None:
    in_flight = InFlight("t-0", most_bytes=100)
    in_flight.enter(1000)
    with pytest.raises(TooManyAppends):
        in_flight.enter(1)
    assert in_flight.size_bytes == 1000
    in_flight.leave(1000)
    for size_bytes in (60, 40):
        in_flight.enter(size_bytes)
    assert in_flight.size_bytes == 100


def test_what_fails_is_in_flight_no_longer(disk: Disk) -> None:
    partition = Partition(disk.open(), disk.clock)
    for bad in (b"short", None, "text"):
        with pytest.raises(RaylogError):
            partition.append(bad)  # type: ignore[arg-type]
    assert partition.in_flight_bytes == 0


# -- polls -----------------------------------------------------------------------------------------


def test_a_poll_that_finds_no_place_is_refused_at_once_and_others_are_served(
    disk: Disk, pool: ThreadPoolExecutor
) -> None:
    partition = Partition(disk.open(), disk.clock, parked_fetches=3)
    polls = [pool.submit(partition.fetch, 0, max_wait_ms=LONG_MS) for _ in range(3)]
    wait_for(lambda: partition.waiting == 3)
    with pytest.raises(TooManyPolls, match="3 fetches are already waiting"):
        partition.fetch(0, max_wait_ms=LONG_MS)
    assert partition.fetch(0).records is None, "who does not wait needs no place"
    partition.append(batch())
    assert partition.fetch(0, max_wait_ms=LONG_MS).records is not None, (
        "nor does one who finds records"
    )
    assert all(poll.result(DEADLINE_S).records is not None for poll in polls)
    late = pool.submit(partition.fetch, 1, max_wait_ms=LONG_MS)
    wait_for(lambda: partition.waiting == 1)
    partition.append(batch())
    assert late.result(DEADLINE_S).records is not None


# -- idleness --------------------------------------------------------------------------------------


def test_an_idle_partition_rests_until_something_is_due(disk: Disk) -> None:
    partition = Partition(disk.open(segment_bytes=100, retention_bytes=0), disk.clock)
    a_day = ProducerExpiration(86_400_000)
    assert partition.rest_s(a_day) == MAX_REST_S, "of an empty one nothing is ever due"
    partition.append(batch_of_size(100))
    partition.append(batch_of_size(100))
    assert partition.rest_s(a_day) == 0, "a sealed segment is to be flushed"
    partition.maintain(a_day)
    assert partition.rest_s(a_day) == MAX_REST_S
    partition.delete_old_segments()
    assert partition.rest_s(a_day) == 60, "file.delete.delay.ms"
    disk.clock.advance(60_000)
    partition.maintain(a_day)
    assert disk.names(".deleted") == []
    partition.append(of_producer(0))
    partition.maintain(ProducerExpiration(5000))
    assert partition.rest_s(ProducerExpiration(5000)) == 5, "then the producer is forgotten"
    disk.clock.advance(5000)
    partition.maintain(ProducerExpiration(5000))
    assert partition.rest_s(ProducerExpiration(5000)) == MAX_REST_S


def test_flush_ms_is_due_while_records_are_unflushed(disk: Disk) -> None:
    partition = Partition(disk.open(flush_ms=2000), disk.clock)
    assert partition.rest_s(ProducerExpiration(10**9)) == MAX_REST_S
    partition.append(batch())
    assert partition.rest_s(ProducerExpiration(10**9)) == 2
    disk.clock.advance(2000)
    partition.maintain(ProducerExpiration(10**9))
    assert partition.log.recovery_point == 1
    assert partition.rest_s(ProducerExpiration(10**9)) == MAX_REST_S


@pytest.mark.parametrize(
    "call",
    [
        lambda partition: partition.append(batch()),
        lambda partition: partition.fetch(0),
        lambda partition: partition.delete_old_segments(),
        lambda partition: partition.roll(),
    ],
)
def test_whatever_is_asked_ends_the_rest(disk: Disk, pool: ThreadPoolExecutor, call: Any) -> None:
    partition = Partition(disk.open(retention_bytes=0), disk.clock)
    partition.append(batch())
    partition.maintain(ProducerExpiration(10**12))
    resting = pool.submit(partition.rest, ProducerExpiration(10**12))
    call(partition)
    resting.result(DEADLINE_S)


def test_a_retention_that_removes_nothing_asks_for_no_upkeep(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition(disk.open(), disk.clock)
    partition.append(batch())
    partition.maintain(ProducerExpiration(10**12))
    asked: list[int] = []
    monkeypatch.setattr(partition, "_ask_for_upkeep", lambda: asked.append(1))
    assert partition.delete_old_segments().segments == 0
    assert asked == []


def test_rest_has_an_end_for_those_who_show_how_a_partition_stands(disk: Disk) -> None:
    partition = Partition(disk.open(), disk.clock)
    partition.maintain(ProducerExpiration(10**12))
    assert partition.rest_s(ProducerExpiration(10**12)) == MAX_REST_S
    partition.rest(ProducerExpiration(10**12), 0.0)  # returns


def test_a_partition_that_is_offline_is_looked_after_without_rest(disk: Disk) -> None:
    partition = Partition(disk.open(), disk.clock)
    partition.append(batch())
    with disk.fs.failing(DiskFull, "flush"), pytest.raises(DiskFull):
        partition.flush()
    partition.maintain(ProducerExpiration(10**12))
    partition.rest(ProducerExpiration(10**12))  # returns
    assert partition.is_stuck
