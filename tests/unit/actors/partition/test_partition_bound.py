"""What consumers may see of a partition while an fsync is under way, and who mends its indexes."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from raylog.actors.partition.partition import Partition
from raylog.storage.config import LogConfig
from raylog.storage.errors import DiskFull, OffsetOutOfRange, StorageError
from raylog.storage.recovery import check_indexes
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, batch, batch_of_size, flip, of_producer
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.testing.waiting import DEADLINE_S, wait_for
from tests.unit.actors.partition.test_partition_locks import Hang, hanging

EXPIRATION = ProducerExpiration(10**9)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as executor:
        yield executor


def partition_on(disk: Disk, **config: Any) -> Partition:
    return Partition(disk.open(**config), disk.clock)


def end_of(partition: Partition) -> int:
    found = partition.offset_for_timestamp(-1)
    assert found is not None
    return found.offset


@pytest.mark.parametrize("flush_messages", [1, 3])
def test_nobody_sees_or_is_woken_by_what_waits_for_its_fsync(
    disk: Disk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, flush_messages: int
) -> None:
    partition = partition_on(disk, flush_messages=flush_messages)
    for _ in range(flush_messages - 1):
        partition.append(batch())
    begin = flush_messages - 1
    poll = pool.submit(partition.fetch, begin, 1000, 1, 60_000)
    wait_for(lambda: partition.waiting == 1)
    hang = Hang("flush", ".log")
    with hanging(monkeypatch, hang):
        append = pool.submit(partition.append, batch())
        wait_for(hang.has_begun.is_set)
        found = partition.fetch(begin)
        assert (found.records, found.high_watermark) == (None, begin)
        assert end_of(partition) == partition.offsets().high_watermark == begin
        assert partition.offsets().log_end_offset == begin + 1
        assert partition.waiting == 1
        assert not poll.done()
        assert not append.done()
    assert append.result(DEADLINE_S).base_offset == begin
    assert poll.result(DEADLINE_S).records is not None
    assert partition.fetch(begin).high_watermark == end_of(partition) == begin + 1


def test_delete_records_goes_by_what_is_readable(
    disk: Disk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_on(disk, flush_messages=1)
    partition.append(batch())
    hang = Hang("flush", ".log")
    with hanging(monkeypatch, hang):
        append = pool.submit(partition.append, batch())
        wait_for(hang.has_begun.is_set)
        with partition.log.locks.old, pytest.raises(OffsetOutOfRange, match=r"\[0, 1\)"):
            partition.log.delete_records(2)  # the append has the lock of the flush
    append.result(DEADLINE_S)
    assert partition.delete_records() == 2


def test_a_duplicate_is_acknowledged_after_the_fsync_of_its_first_copy(
    disk: Disk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_on(disk, flush_messages=1)
    hang = Hang("flush", ".log")
    with hanging(monkeypatch, hang):
        first = pool.submit(partition.append, of_producer(0))
        wait_for(hang.has_begun.is_set)
        again = pool.submit(partition.append, of_producer(0))
        wait_for(lambda: partition.in_flight_bytes > 100)
        assert not again.done()
        assert not first.done()
    assert first.result(DEADLINE_S).base_offset == 0
    assert again.result(DEADLINE_S).is_duplicate


def test_what_is_acknowledged_is_readable_though_upkeep_flushed_the_segment_before_it(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_on(disk, flush_messages=3, segment_bytes=150)
    partition.append(batch())
    partition.append(batch())
    take = partition.log._log_end._publish

    def publish_then_upkeep(*arguments: Any) -> Any:
        answer = take(*arguments)
        with partition.log.locks.flush:
            partition.log.flush_due()
        return answer

    monkeypatch.setattr(partition.log._log_end, "_publish", publish_then_upkeep)
    assert partition.append(batch()).base_offset == 2
    assert partition.log.segments[-1].base_offset == 2
    assert partition.log.high_watermark == 3
    assert partition.fetch(2).records is not None


def test_a_duplicate_of_what_is_readable_waits_for_nothing(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_on(disk, flush_messages=3)
    partition.append(of_producer(0))
    begin = disk.fs.operations
    assert partition.append(of_producer(0)).is_duplicate
    assert disk.fs.operations == begin


def test_after_a_failed_fsync_nothing_of_it_is_read(disk: Disk) -> None:
    partition = partition_on(disk, flush_messages=1)
    partition.append(batch())
    disk.fs.fail_at(disk.fs.operations + 1, lambda path: StorageError(path, "Input/output error"))
    with pytest.raises(StorageError):
        partition.append(batch())
    assert disk.fs.log[-1].startswith("flush")
    assert partition.is_offline
    assert partition.log.high_watermark == 1
    with pytest.raises(StorageError):
        partition.fetch(1)


def test_appends_that_wait_share_an_fsync_also_when_one_of_them_rolled(
    disk: Disk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_on(disk, flush_messages=1, segment_bytes=300)
    hang = Hang("flush", ".log")
    with hanging(monkeypatch, hang):
        appends = [pool.submit(partition.append, batch()) for _ in range(12)]
        wait_for(lambda: partition.log.log_end_offset == 12)
    assert {append.result(DEADLINE_S).base_offset for append in appends} == set(range(12))
    assert partition.log.high_watermark == 12
    assert len(partition.meters.fsyncs) <= 3


def test_a_config_that_asks_for_no_fsync_any_more_lets_everything_be_read(disk: Disk) -> None:
    partition = partition_on(disk, flush_messages=1)
    partition.append(batch())
    partition.reconfigure(LogConfig(), 1)
    partition.append(batch())
    assert (end_of(partition), partition.log.recovery_point) == (2, 1)
    partition.reconfigure(LogConfig(flush_messages=1), 2)
    partition.append(batch())
    assert (end_of(partition), partition.log.recovery_point) == (3, 3)


# -- indexes ---------------------------------------------------------------------------------------


def with_a_lie(disk: Disk, segment: str, change: Any = None) -> Partition:
    log = disk.open(index_interval_bytes=100)
    for number in range(60):
        if number in (20, 40):
            log.roll()
        log.append(batch_of_size(100, timestamp=T0 + number))
    log.close()
    log = disk.open(index_interval_bytes=100)
    disk.damage(segment + ".index", change or (lambda content: content[:-3]))
    for each in log.segments:
        each.offset_index._held = {}
    return Partition(log, disk.clock)


def held_locks(partition: Partition) -> tuple[bool, bool, bool]:
    locks = partition._old_lock, partition._flush_lock, partition._append_lock
    return tuple(lock.locked() for lock in locks)  # type: ignore[return-value]


def test_upkeep_makes_a_lying_index_again_under_its_owners_locks(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = with_a_lie(disk, "00000000000000000000")
    partition.flush()
    assert partition.fetch(5).records is not None
    assert partition.log.wrong_indexes == {partition.log.segments[0]}
    locks = []
    real = MemoryFileSystem.change

    def change(fs: MemoryFileSystem, verb: str, path: str) -> None:
        if ".index" in path:
            locks.append(held_locks(partition))
        real(fs, verb, path)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "change", change)
        partition.maintain(EXPIRATION)
    assert set(locks) == {(True, True, False)}
    check_indexes(partition.log.segments[0])
    assert not partition.log.wrong_indexes
    assert held_locks(partition) == (False, False, False)


def test_the_active_segments_index_is_made_again_after_a_roll(disk: Disk) -> None:
    partition = with_a_lie(disk, "00000000000000000000")
    log = partition.log
    active = log.segments[-1]
    log.wrong_indexes.add(active)
    partition.maintain(EXPIRATION)
    assert log.segments[-1] is not active
    check_indexes(active)
    assert not log.wrong_indexes
    assert partition.append(batch()).base_offset == 60


def test_a_full_disk_does_not_keep_upkeep_from_making_room(disk: Disk) -> None:
    partition = with_a_lie(disk, "00000000000000000000")
    partition.reconfigure(LogConfig(retention_bytes=0, file_delete_delay_ms=0), 1)
    partition.flush()
    assert partition.delete_old_segments().segments > 0
    partition.append(batch())
    partition.log.wrong_indexes.add(partition.log.segments[-1])
    with disk.fs.failing(DiskFull, "create"), pytest.raises(DiskFull):
        partition.maintain(EXPIRATION)
    assert disk.names(".deleted") == []
    assert not partition.is_offline
    partition.maintain(EXPIRATION)
    assert not partition.log.wrong_indexes


def test_a_damaged_log_does_not_make_upkeep_fail(disk: Disk) -> None:
    partition = with_a_lie(disk, "00000000000000000000")
    disk.damage("00000000000000000000.log", flip(100 * 7 + 16, 3))
    partition.log.wrong_indexes.add(partition.log.segments[0])
    partition.maintain(EXPIRATION)
    assert not partition.is_offline
    assert partition.fetch(20).records is not None


def test_readers_and_retention_beside_a_lying_index_take_nothing_offline(
    disk: Disk, pool: ThreadPoolExecutor
) -> None:
    partition = with_a_lie(disk, "00000000000000000000")
    partition.reconfigure(LogConfig(index_interval_bytes=100, retention_bytes=3000), 1)
    is_over, fetches = threading.Event(), [0, 0, 0]

    def read(number: int) -> None:
        while not is_over.is_set():
            try:
                partition.fetch(fetches[number] % 60, 200)
            except OffsetOutOfRange:
                pass
            fetches[number] += 1

    readers = [pool.submit(read, number) for number in range(len(fetches))]

    def all_have_read(times: int) -> bool:
        return min(fetches) >= times or any(reader.done() for reader in readers)

    try:
        for times in range(20):
            wait_for(partial(all_have_read, times))
            partition.maintain(EXPIRATION)
            partition.delete_old_segments()
            partition.append(batch_of_size(100))
    finally:
        is_over.set()
    for reader in readers:
        reader.result(DEADLINE_S)
    assert not partition.is_offline
