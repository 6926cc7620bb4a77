"""Nobody waits for a disk that another's work has to wait for: each kind of slow work hangs, and
the others go on."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from raylog.actors.partition.partition import Partition
from raylog.storage.records.encode import encode_records
from raylog.storage.segment import Segment
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, batch, offsets_of
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.testing.waiting import DEADLINE_S, wait_for

# A batch of one record with a key, of 100 bytes: a segment of its own.
ONE = bytes(encode_records([(T0, b"k", b"x" * 31, ())]))
assert len(ONE) == 100


class Hang:
    """A kind of operation of the disk that does not end until it is let go."""

    def __init__(self, verb: str, part_of_path: str = "") -> None:
        self.verb, self.part_of_path = verb, part_of_path
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def at(self, verb: str, path: str) -> None:
        if verb == self.verb and self.part_of_path in path:
            self.has_begun.set()
            assert self.may_end.wait(DEADLINE_S), "a test that let nobody go"


@contextmanager
def hanging(monkeypatch: pytest.MonkeyPatch, hang: Hang) -> Iterator[None]:
    real = MemoryFileSystem.change

    def change(fs: MemoryFileSystem, verb: str, path: str) -> None:
        hang.at(verb, path)
        real(fs, verb, path)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "change", change)
        try:
            yield
        finally:
            hang.may_end.set()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as executor:
        yield executor


def partition_on(disk: Disk, **config: Any) -> Partition:
    """Ten segments of one record, of which retention would keep two, and an eleventh that is
    empty."""
    settings: dict[str, Any] = {
        "segment_bytes": 100,
        "retention_bytes": 200,
        "file_delete_delay_ms": 0,
        **config,
    }
    partition = Partition(disk.open(**settings), disk.clock)
    for _ in range(10):
        partition.append(ONE)
    partition.roll()
    return partition


def swap(partition: Partition) -> None:
    """What the CompactionActor asks for: here the new segment is a copy of the first of the old."""
    log = partition.log
    view = partition.cleaning_view()
    old = log.segments[0]
    fresh = Segment(
        log._fs, log.folder, old.base_offset, log.config, create=True, suffix=".cleaned"
    )
    fresh.log.append([old.log.read(100, 0)])
    fresh.flush()
    partition.replace_segments([segment.id for segment in log.segments[:2]], view.round_id)


def slow_work() -> dict[str, tuple[Hang, Callable[[Partition], object]]]:
    return {
        "retention syncs the folder": (Hang("sync_dir"), Partition.delete_old_segments),
        "retention renames": (Hang("rename"), Partition.delete_old_segments),
        "retention removes a snapshot": (
            Hang("remove", ".snapshot"),
            Partition.delete_old_segments,
        ),
        "a swap syncs the folder": (Hang("sync_dir"), swap),
        "a swap renames": (Hang("rename"), swap),
        "a flush syncs a segment": (Hang("flush", ".log"), Partition.flush),
        "upkeep flushes": (
            Hang("flush", ".log"),
            lambda partition: partition.maintain(ProducerExpiration(1000)),
        ),
        "delete_records flushes": (
            Hang("flush", ".log"),
            lambda partition: partition.delete_records(5),
        ),
        "deleted files are removed": (Hang("remove", ".deleted"), purge),
    }


def purge(partition: Partition) -> None:
    partition.flush()
    partition.delete_old_segments()
    partition.maintain(ProducerExpiration(1000))


@pytest.mark.parametrize("work", slow_work())
def test_appends_rolls_and_fetches_go_on_while(
    work: str, disk: Disk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: dict[str, Any] = {"cleanup_policy": "compact"} if "swap" in work else {}
    partition = partition_on(disk, **config)
    hang, call = slow_work()[work]
    with hanging(monkeypatch, hang):
        slow = pool.submit(call, partition)
        wait_for(hang.has_begun.is_set)
        end = partition.log.log_end_offset
        assert pool.submit(append_and_read, partition).result(DEADLINE_S) == [end, end + 1, end + 2]
        assert not slow.done()
    slow.result(DEADLINE_S)
    kept = partition.log.segments
    assert [one.base_offset for one in kept] == sorted({one.base_offset for one in kept})
    assert offsets_of(partition.log)[-3:] == [end, end + 1, end + 2], (
        "nothing of it is lost by the slow one"
    )
    partition.close()
    assert disk.open(segment_bytes=100, **config).log_end_offset == end + 3


def append_and_read(partition: Partition) -> list[int]:
    """Three appends, each in a segment of its own, and a fetch of each."""
    found = []
    for _ in range(3):
        offset = partition.append(ONE).base_offset
        assert partition.fetch(offset).records is not None
        found.append(offset)
    return found


def test_fetches_go_on_while_an_append_hangs(
    disk: Disk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_on(disk)
    hang = Hang("append", ".log")
    with hanging(monkeypatch, hang):
        slow = pool.submit(partition.append, batch())
        wait_for(hang.has_begun.is_set)
        assert pool.submit(partition.fetch, 9).result(DEADLINE_S).records is not None
        assert pool.submit(partition.fetch, 10).result(DEADLINE_S).records is None
        end = pool.submit(partition.offset_for_timestamp, -1).result(DEADLINE_S)
        assert end is not None
        assert end.offset == 10
        assert not slow.done()
    assert slow.result(DEADLINE_S).base_offset == 10


def test_retention_of_a_log_that_is_old_as_a_whole_takes_no_append_that_comes_meanwhile(
    disk: Disk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The active segment is found old; before it can be rolled, a fresh record is appended to
    it."""
    partition = partition_on(disk, segment_bytes=1000, retention_ms=1000, retention_bytes=-1)
    partition.append(batch())
    disk.clock.advance(5000)
    with partition._append_lock:
        retention = pool.submit(partition.delete_old_segments)
        wait_for(lambda: partition._old_lock.locked())
        fresh = partition.log.append(batch(timestamp=disk.clock.now_ms()), partition.leader_epoch)
    assert retention.result(DEADLINE_S).segments > 0
    assert offsets_of(partition.log)[-1] == fresh.base_offset


def test_a_segment_that_is_deleted_while_it_is_flushed_is_no_failure(
    disk: Disk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_on(disk)
    hang = Hang("flush", ".log")
    with hanging(monkeypatch, hang):
        flush = pool.submit(partition.flush)
        wait_for(hang.has_begun.is_set)
        partition.delete_old_segments()
        with partition._purge_lock:
            partition.log.purge_deleted()
    flush.result(DEADLINE_S)
    assert not partition.is_offline
    assert partition.log.recovery_point == partition.log.log_end_offset


def test_one_fsync_serves_many_appends_that_wait_for_it(
    disk: Disk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition(disk.open(flush_messages=1), disk.clock)
    hang = Hang("flush", ".log")
    with hanging(monkeypatch, hang):
        appends: list[Future[Any]] = [pool.submit(partition.append, batch()) for _ in range(20)]
        wait_for(lambda: partition.log.log_end_offset == 20)
    assert {append.result(DEADLINE_S).base_offset for append in appends} == set(range(20))
    assert len(partition.meters.fsyncs) <= 3, (
        "the first, those that came meanwhile, and one that came just then"
    )
