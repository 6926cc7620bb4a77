"""What stands behind a partition's doors: long polls, group commit, going offline."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from raylog.actors.errors import InvalidRequest
from raylog.actors.messages import FetchResult
from raylog.actors.partition.partition import MAX_REST_S, Partition
from raylog.storage.errors import (
    DiskFull,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageError,
    UndoInterrupted,
)
from raylog.storage.records.decode import decode_records
from raylog.storage.state import producers
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.testing.logs import Disk, batch, batch_of_size, of_producer
from raylog.storage.testing.memory import MemoryFile
from raylog.storage.testing.waiting import DEADLINE_S, wait_for

LONG_MS = 300_000  # the cap of a poll, far beyond DEADLINE_S: a poll that ends was woken


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(40) as threads:
        yield threads


def partition_on(disk: Disk, **config: Any) -> Partition:
    return Partition(disk.open(**config), disk.clock)


def offsets(result: FetchResult) -> list[int]:
    if result.records is None:
        return []
    return [record.offset for record in decode_records(result.records)]  # type: ignore[arg-type]


# -- append and fetch ------------------------------------------------------------------------------


def test_what_is_appended_is_fetched(disk: Disk) -> None:
    partition = partition_on(disk)
    answer = partition.append(batch(3))
    assert (answer.base_offset, answer.last_offset, answer.leader_epoch) == (0, 2, 0)
    result = partition.fetch(0)
    assert offsets(result) == [0, 1, 2]
    assert (result.high_watermark, result.log_start_offset) == (3, 0)
    assert partition.offsets() == (0, 0, 3, 3)


def test_the_end_is_empty_at_once_and_beyond_is_an_error(disk: Disk) -> None:
    partition = partition_on(disk)
    assert partition.fetch(0) == FetchResult(None, 0, 0, -1, 0, leader_epoch=0)
    with pytest.raises(OffsetOutOfRange):
        partition.fetch(1, max_wait_ms=LONG_MS)


def test_every_opening_begins_an_epoch(disk: Disk) -> None:
    for epoch in range(3):
        partition = partition_on(disk)
        assert partition.append(batch()).leader_epoch == epoch
        partition.close()


def test_an_epoch_is_not_begun_again_when_retention_has_taken_its_batches(disk: Disk) -> None:
    first = partition_on(disk, retention_ms=1000)
    first.append(batch())
    disk.clock.advance(10_000)
    assert first.delete_old_segments().segments == 1
    first.close()
    again = Partition(disk.open(recovery_point=1, log_start_offset=1), disk.clock)
    assert (first.leader_epoch, again.leader_epoch) == (0, 1)


def test_an_epoch_is_not_begun_again_when_a_loss_of_power_has_taken_its_batches(disk: Disk) -> None:
    first = partition_on(disk)
    first.append(batch())
    assert first.fetch(0).records is not None, "readers know offset 0 of epoch 0"
    disk.fs = disk.fs.crash("flushed", names="flushed")
    again = Partition(disk.open(is_clean=False), disk.clock)
    assert (again.log.log_end_offset, again.leader_epoch) == (0, 1)


@pytest.mark.parametrize(
    "arguments",
    [{"offset": "0"}, {"offset": None}, {"offset": 1.5}, {"max_bytes": "1"}, {"max_wait_ms": None}],
)
def test_an_argument_that_is_no_integer_is_refused(disk: Disk, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="must be an integer"):
        partition_on(disk).fetch(**{"offset": 0, **arguments})


def test_odd_sizes_still_give_one_batch(disk: Disk) -> None:
    partition = partition_on(disk)
    partition.append(batch())
    for max_bytes in (-5, 0, 1, 2**62):
        assert offsets(partition.fetch(0, max_bytes, max_bytes)) == [0]


# -- long polls ------------------------------------------------------------------------------------


def test_a_poll_wakes_when_records_come(disk: Disk, pool: ThreadPoolExecutor) -> None:
    partition = partition_on(disk)
    poll = pool.submit(partition.fetch, 0, max_wait_ms=LONG_MS)
    wait_for(lambda: partition.waiting == 1)
    partition.append(batch(2))
    assert offsets(poll.result(DEADLINE_S)) == [0, 1]
    assert partition.waiting == 0


def test_a_poll_that_has_enough_does_not_wait(disk: Disk, pool: ThreadPoolExecutor) -> None:
    partition = partition_on(disk)
    partition.append(batch_of_size(100))
    both: list[dict[str, Any]] = [{"min_bytes": 100}, {"max_bytes": 50, "min_bytes": 10**6}]
    for sizes in both:
        poll = pool.submit(partial(partition.fetch, 0, max_wait_ms=LONG_MS, **sizes))
        assert offsets(poll.result(DEADLINE_S)) == [0]


def test_a_poll_wakes_exactly_when_its_bytes_are_there(
    disk: Disk, pool: ThreadPoolExecutor
) -> None:
    partition = partition_on(disk)
    partition.append(batch_of_size(100))
    polls = {
        size: pool.submit(partition.fetch, 0, min_bytes=size, max_wait_ms=LONG_MS)
        for size in (101, 300, 301)
    }
    wait_for(lambda: partition.waiting == 3)
    partition.append(batch_of_size(100))
    assert offsets(polls.pop(101).result(DEADLINE_S)) == [0, 1]
    assert partition.waiting == 2
    partition.append(batch_of_size(100))
    assert offsets(polls.pop(300).result(DEADLINE_S)) == [0, 1, 2]
    assert partition.waiting == 1
    partition.append(batch_of_size(100))
    assert offsets(polls.pop(301).result(DEADLINE_S)) == [0, 1, 2, 3]


def test_who_watches_is_called_once_when_the_bytes_are_there(disk: Disk) -> None:
    partition = partition_on(disk)
    calls: list[int] = []
    for number, size_bytes in enumerate((150, 100)):
        partition.waiters.add(size_bytes, partial(calls.append, number))
    partition.append(batch_of_size(100))
    assert calls == [1]
    for _ in range(2):
        partition.append(batch_of_size(100))
    assert (calls, partition.waiting) == ([1, 0], 0)


def test_who_watches_for_bytes_that_are_there_is_called_at_once(disk: Disk) -> None:
    partition = partition_on(disk)
    partition.append(batch_of_size(100))
    calls: list[str] = []
    partition.waiters.add(100, partial(calls.append, "there"))
    partition.close()
    partition.waiters.add(10**6, partial(calls.append, "closed"))
    assert (calls, partition.waiting) == (["there", "closed"], 0)


def test_who_does_not_watch_any_more_is_not_called(disk: Disk) -> None:
    partition = partition_on(disk)
    calls: list[int] = []
    waiter = partition.waiters.add(100, partial(calls.append, 1))
    for _ in range(2):
        partition.waiters.remove(waiter)
    partition.append(batch_of_size(100))
    assert (calls, partition.waiting) == ([], 0)


def test_a_poll_ends_when_its_time_is_up(disk: Disk) -> None:
    partition = partition_on(disk)
    partition.append(batch_of_size(100))
    assert offsets(partition.fetch(1, max_wait_ms=1)) == []
    assert offsets(partition.fetch(0, min_bytes=5000, max_wait_ms=1)) == [0]
    assert partition.waiting == 0


def test_many_polls_wake_together(disk: Disk, pool: ThreadPoolExecutor) -> None:
    partition = partition_on(disk)
    polls = [pool.submit(partition.fetch, 0, max_wait_ms=LONG_MS) for _ in range(40)]
    wait_for(lambda: partition.waiting == 40)
    partition.append(batch())
    assert all(offsets(poll.result(DEADLINE_S)) == [0] for poll in polls)


def test_a_duplicate_wakes_nobody(disk: Disk, pool: ThreadPoolExecutor) -> None:
    partition = partition_on(disk)
    partition.append(of_producer(0))
    poll = pool.submit(partition.fetch, 1, max_wait_ms=LONG_MS)
    wait_for(lambda: partition.waiting == 1)
    assert partition.append(of_producer(0)).is_duplicate
    with pytest.raises(OutOfOrderSequence):
        partition.append(of_producer(9))
    assert partition.waiting == 1
    partition.append(of_producer(1))
    assert offsets(poll.result(DEADLINE_S)) == [1]


def test_a_poll_behind_the_active_segment_does_not_wait_for_what_is_there(
    disk: Disk, pool: ThreadPoolExecutor
) -> None:
    partition = partition_on(disk)
    partition.append(batch_of_size(100))
    partition.roll()
    partition.append(batch_of_size(5000))
    poll = pool.submit(partition.fetch, 0, min_bytes=1000, max_wait_ms=LONG_MS)
    assert offsets(poll.result(DEADLINE_S)) == [0]


# -- group commit ----------------------------------------------------------------------------------


class Gate:
    """Holds every fsync of a .log file until it is opened, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passes = threading.Event()
        self.waiting = self.flushes = 0
        real = MemoryFile.flush

        def flush(file: MemoryFile) -> None:
            if file.path.endswith(".log"):
                self.waiting += 1
                assert self.passes.wait(DEADLINE_S)
                self.flushes += 1
            real(file)

        monkeypatch.setattr(MemoryFile, "flush", flush)


def test_an_ack_means_fsynced_and_concurrent_appends_share_it(
    disk: Disk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_on(disk, flush_messages=1)
    gate = Gate(monkeypatch)
    appends = [pool.submit(partition.append, batch()) for _ in range(30)]
    wait_for(lambda: partition.log.log_end_offset == 30)
    wait_for(lambda: gate.waiting == 1)
    assert not any(append.done() for append in appends)
    gate.passes.set()
    assert {append.result(DEADLINE_S).base_offset for append in appends} == set(range(30))
    assert gate.flushes <= 3  # the first, and those who came while it ran
    after = Disk(disk.fs.crash("flushed", names="flushed"))
    assert after.open(is_clean=False).log_end_offset == 30


def test_every_ack_of_flush_messages_survives_power(disk: Disk, pool: ThreadPoolExecutor) -> None:
    partition = partition_on(disk, flush_messages=1, segment_bytes=500)
    for _ in range(20):
        answer = partition.append(batch_of_size(100))
        after = Disk(disk.fs.crash("flushed", names="flushed"))
        assert after.open(is_clean=False).log_end_offset == answer.last_offset + 1


def test_a_fsync_comes_once_so_many_records_are_unflushed(disk: Disk) -> None:
    partition = partition_on(disk, flush_messages=5)
    points = []
    for _ in range(12):
        partition.append(batch(1))
        points.append(partition.log.recovery_point)
    assert points == [0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10, 10]


def test_a_duplicate_is_acknowledged_only_when_the_first_is_fsynced(disk: Disk) -> None:
    partition = partition_on(disk)
    partition.append(of_producer(0))
    partition.log.config = partition.log.config.__class__(flush_messages=1)
    assert partition.append(of_producer(0)).is_duplicate
    assert partition.log.recovery_point == 1


# -- offline ---------------------------------------------------------------------------------------


def failing(path: str) -> StorageError:
    return StorageError(path, "Input/output error")


def test_upkeep_that_waited_for_an_fsync_that_failed_makes_no_second_one(
    disk: Disk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would succeed, since the pages are gone, and the recovery point would lie."""
    partition = partition_on(disk, flush_messages=1, flush_ms=0)
    is_hanging, may_fail = threading.Event(), threading.Event()
    flushed: list[str] = []

    def flush(file: MemoryFile) -> None:
        flushed.append(file.path)
        if len(flushed) == 1:
            is_hanging.set()
            assert may_fail.wait(DEADLINE_S)
            raise failing(file.path)

    monkeypatch.setattr(MemoryFile, "flush", flush)
    append = pool.submit(partition.append, batch())
    assert is_hanging.wait(DEADLINE_S)
    lock = WatchedLock(partition.log.locks.flush)
    partition._flush_lock = lock  # type: ignore[assignment]
    upkeep = pool.submit(partition.maintain, ProducerExpiration(1000))
    assert lock.is_wanted.wait(DEADLINE_S)
    may_fail.set()
    with pytest.raises(StorageError, match="Input/output error"):
        append.result(DEADLINE_S)
    upkeep.result(DEADLINE_S)
    assert len(flushed) == 1
    assert (partition.log.recovery_point, partition.log.high_watermark) == (0, 0)


class WatchedLock:
    """A lock that tells when somebody wants it."""

    def __init__(self, lock: Any) -> None:
        self.is_wanted = threading.Event()
        self._lock = lock

    def __enter__(self) -> None:
        self.is_wanted.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


EVERY_CALL: dict[str, Callable[[Partition], object]] = {
    "append": lambda partition: partition.append(batch()),
    "fetch": lambda partition: partition.fetch(0),
    "time": lambda partition: partition.offset_for_timestamp(-1),
    "flush": lambda partition: partition.flush(10**6),
    "retention": lambda partition: partition.delete_old_segments(),
    "roll": lambda partition: partition.roll(),
    "close": lambda partition: partition.close(),
}


def failed(disk: Disk) -> Partition:
    partition = partition_on(disk, flush_messages=1)
    disk.fs.fail_at(disk.fs.operations + 1, failing)  # the append, then the fsync
    with pytest.raises(StorageError, match="Input/output error"):
        partition.append(batch())
    assert partition.is_offline
    return partition


@pytest.mark.parametrize("call", EVERY_CALL)
def test_after_a_failed_fsync_every_call_answers_with_it(disk: Disk, call: str) -> None:
    partition = failed(disk)
    operations = disk.fs.operations
    for _ in range(2):
        with pytest.raises(StorageError, match="Input/output error"):
            EVERY_CALL[call](partition)
    partition.maintain(ProducerExpiration(1000))
    assert disk.fs.operations == operations


@pytest.mark.parametrize("call", EVERY_CALL)
def test_a_closed_partition_answers_that_it_is(disk: Disk, call: str) -> None:
    partition = partition_on(disk)
    partition.append(batch())
    partition.close()
    with pytest.raises(StorageError, match="the partition's log is closed"):
        EVERY_CALL[call](partition)
    assert partition.offsets() == (0, 1, 1, 1)
    assert disk.open().log_end_offset == 1


@pytest.mark.parametrize("end", ["close", "fail"])
def test_parked_polls_are_told_when_a_partition_ends(
    disk: Disk, pool: ThreadPoolExecutor, end: str
) -> None:
    partition = partition_on(disk)
    polls: list[Future[FetchResult]] = [
        pool.submit(partition.fetch, 0, max_wait_ms=LONG_MS) for _ in range(5)
    ]
    wait_for(lambda: partition.waiting == 5)
    if end == "close":
        partition.close()
    else:
        with partition.log.locks.end:
            partition.log.append(batch())
        with disk.fs.failing(failing), pytest.raises(StorageError):
            partition.flush()
    for poll in polls:
        with pytest.raises(StorageError):
            poll.result(DEADLINE_S)


def test_a_poll_that_finds_the_partition_offline_leaves_no_waiter(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_on(disk)
    read = partition.log.read

    def read_and_go_offline(*arguments: Any) -> Any:
        found = read(*arguments)
        with disk.fs.failing(failing, "append"), pytest.raises(StorageError):
            partition.append(batch())
        return found

    monkeypatch.setattr(partition.log, "read", read_and_go_offline)
    with pytest.raises(StorageError, match="Input/output error"):
        partition.fetch(0, max_wait_ms=LONG_MS)
    assert partition.waiting == 0


def test_a_write_that_could_not_be_undone_takes_the_partition_offline() -> None:
    outcomes = []
    for good_operations in range(12):
        disk = Disk()
        partition = partition_on(disk, segment_bytes=100)
        partition.append(batch_of_size(100))
        # a roll fails half-way, and so does its undoing
        for operation in range(good_operations, 40):
            disk.fs.fail_at(disk.fs.operations + operation, DiskFull)
        try:
            partition.append(batch_of_size(100))
            break
        except StorageError as error:
            outcomes.append((type(error), partition.is_offline))
    assert set(outcomes) == {(DiskFull, False), (UndoInterrupted, True)}


def test_a_write_that_the_disk_fails_takes_the_partition_offline_and_tells_whose_fault_it_was(
    disk: Disk,
) -> None:
    partition = partition_on(disk)
    assert partition.disk_failure is None
    with disk.fs.failing(failing, "append"), pytest.raises(StorageError):
        partition.append(batch())
    assert partition.is_offline
    assert isinstance(partition.disk_failure, StorageError)


def test_a_partition_that_is_offline_keeps_nothing_of_the_requests_that_it_refuses(
    disk: Disk,
) -> None:
    """An error that is raised again and again itself keeps the frames of all, and their records."""
    partition = partition_on(disk)
    with disk.fs.failing(failing, "append"), pytest.raises(StorageError):
        partition.append(batch())
    depths: list[int] = []
    for _ in range(3):
        with pytest.raises(StorageError) as caught:
            partition.append(batch())
        depths.append(len(caught.traceback))
    assert depths[0] == depths[-1]


def test_a_partition_that_was_closed_blames_no_disk(disk: Disk) -> None:
    partition = partition_on(disk)
    partition.close()
    assert (partition.is_offline, partition.disk_failure) == (True, None)


def test_a_full_disk_does_not_take_it_offline(disk: Disk) -> None:
    partition = partition_on(disk)
    with disk.fs.failing(DiskFull), pytest.raises(DiskFull):
        partition.append(batch())
    assert not partition.is_offline
    assert partition.append(batch()).base_offset == 0


def test_upkeep_purges_flushes_and_forgets(disk: Disk) -> None:
    partition = partition_on(disk, segment_bytes=100, retention_bytes=0, file_delete_delay_ms=10)
    for sequence in range(3):
        partition.append(of_producer(sequence))
    assert partition.log.recovery_point == 0
    partition.maintain(ProducerExpiration(1000))
    assert partition.log.recovery_point == 2
    size_bytes = partition.log.size_bytes
    assert partition.delete_old_segments()[:2] == (3, size_bytes)
    disk.clock.advance(1000)
    partition.maintain(ProducerExpiration(1000))
    assert disk.names(".deleted") == []
    assert partition.append(of_producer(77)).base_offset == 3


class CountedLock:
    """A lock that counts how often it was taken."""

    def __init__(self) -> None:
        self.taken, self._lock = 0, threading.Lock()

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> None:
        self._lock.acquire()
        self.taken += 1

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_an_append_may_come_between_two_slices_of_producers_that_are_forgotten(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "EXPIRED_AT_ONCE", 2)
    partition = partition_on(disk)
    for producer in range(5):
        partition.append(of_producer(0, producer=producer))
    disk.clock.advance(1000)
    lock = CountedLock()
    monkeypatch.setattr(partition, "_append_lock", lock)
    monkeypatch.setattr(partition.log.locks, "end", lock)
    partition.maintain(ProducerExpiration(1000))
    assert lock.taken == 3, "two, two and one"
    assert partition.rest_s(ProducerExpiration(1000)) == MAX_REST_S
