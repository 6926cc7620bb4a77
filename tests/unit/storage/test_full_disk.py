"""A full disk: a named error, nothing half-made, and appends again when there is space."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.partition.partition import Partition
from raylog.storage.clock import SystemClock
from raylog.storage.config import LogConfig
from raylog.storage.errors import DiskFull, OutOfResources, RaylogError, SwapUnfinished
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.records.batch import iter_batches
from raylog.storage.records.encode import encode_records
from raylog.storage.recovery import check_indexes
from raylog.storage.state import refusals
from raylog.storage.state.epochs import LeaderEpochs
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.state.refusals import REMEMBERED_MS
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import (
    FOLDER,
    PARTITION,
    TOPIC_ID,
    Disk,
    batch,
    batch_of_size,
    of_producer,
    offsets_of,
)

CONFIG: dict[str, Any] = {"segment_bytes": 400, "index_interval_bytes": 0}


def test_every_operation_of_an_append_may_find_the_disk_full() -> None:
    """Fault by fault, with rolls and without: the log, its files and its producers stay as they
    were."""
    failures = 0
    for batches in range(1, 9):
        for fault in range(20):
            disk = Disk()
            log = disk.open(**CONFIG)
            for sequence in range(batches):
                log.append(of_producer(sequence, value=b"x" * 30))
            disk.fs.fail_at(disk.fs.operations + fault, DiskFull)
            try:
                log.append(of_producer(batches, value=b"x" * 30))
                break
            except DiskFull:
                failures += 1
            assert log.log_end_offset == batches
            assert offsets_of(log) == list(range(batches))
            killed = Disk(disk.fs.crash()).open(is_clean=False, **CONFIG)
            assert offsets_of(killed) == list(range(batches))
            assert log.append(of_producer(batches)).base_offset == batches
            assert log.append(of_producer(batches)).is_duplicate
            reopened = Disk(disk.fs.crash()).open(is_clean=False, **CONFIG)
            assert offsets_of(reopened) == list(range(batches + 1))
            log.close()
            assert offsets_of(disk.open(**CONFIG)) == list(range(batches + 1))
    assert failures > 20


def test_a_smaller_batch_after_a_failed_roll_does_not_strand_an_empty_segment() -> None:
    """Its name would be below the end that the old segment then reaches."""
    failures = 0
    for fault in range(20):
        disk = Disk()
        log = disk.open(segment_bytes=400)
        log.append(batch_of_size(300))
        disk.fs.fail_at(disk.fs.operations + fault, DiskFull)
        try:
            log.append(batch_of_size(150))
            break
        except DiskFull:
            failures += 1
        assert log.append(batch_of_size(100)).base_offset == 1
        again = Disk(disk.fs.crash()).open(is_clean=False, segment_bytes=400)
        assert offsets_of(again) == [0, 1]
    assert failures > 3


def test_a_crashed_log_on_a_full_disk_can_be_opened_and_read(disk: Disk) -> None:
    log = disk.open(index_interval_bytes=0)
    for _ in range(5):
        log.append(batch())
    after = Disk(disk.fs.crash())
    with after.fs.failing(DiskFull, "append"):
        again = after.open(is_clean=False, index_interval_bytes=0)
        assert offsets_of(again) == list(range(5))
    assert again.append(batch()).base_offset == 5
    again.close()
    assert offsets_of(after.open()) == list(range(6))
    check_indexes(after.open().segments[0])


# -- a partition -----------------------------------------------------------------------------------


def epochs_of(log: Log) -> list[int]:
    """The leader epoch of each batch."""
    found = log.read(0, 1 << 20)
    return [header.leader_epoch for _, header in iter_batches(found.read())]


def test_a_partition_opens_on_a_full_disk_is_read_and_has_its_retention(disk: Disk) -> None:
    partition = Partition(disk.open(segment_bytes=100, retention_bytes=100), disk.clock)
    for _ in range(3):
        partition.append(batch_of_size(100))
    after = Disk(disk.fs.crash())
    with after.fs.failing(DiskFull, "append"):
        log = after.open(
            is_clean=False, segment_bytes=100, retention_bytes=100, file_delete_delay_ms=0
        )
        again = Partition(log, after.clock)
        assert again.fetch(0).records is not None
        for _ in range(2):
            with pytest.raises(DiskFull):
                again.append(batch())
        assert again.delete_old_segments().segments == 2
        assert again.delete_records(3) == 3
        again.maintain(ProducerExpiration(10**9))
        assert after.names(".deleted") == []
        assert not again.is_offline
    assert again.append(batch()).base_offset == 3
    assert not log.epochs.is_stale


def test_a_start_that_was_raised_without_descriptors_cuts_the_epochs_in_memory_and_then_on_disk(
    disk: Disk,
) -> None:
    def out_of_descriptors(path: str) -> OutOfResources:
        return OutOfResources(path, "this process has no file descriptor left")

    log = disk.open(segment_bytes=100, retention_bytes=100)
    for epoch in range(4):
        log.append(batch_of_size(100), leader_epoch=epoch)
    log.flush()
    file = disk.path("leader-epoch-checkpoint.tmp")
    with disk.fs.failing(out_of_descriptors, "create", under=file):
        assert log.delete_old_segments() == 3
        assert log.epochs.entries == ((3, 3),)
        assert disk.names(".snapshot") == ["00000000000000000003.snapshot"]
        with pytest.raises(OutOfResources):
            log.append(batch_of_size(100))
        assert log.delete_records(4) == 4
    assert log.epochs.entries == ((3, 4),)
    log.append(batch_of_size(100))
    assert LeaderEpochs(disk.fs, FOLDER).entries == ((3, 4),)


def test_no_two_lives_write_batches_in_one_epoch_however_full_the_disk_was(disk: Disk) -> None:
    """The epoch is on the disk before the first batch that carries it."""
    for life in range(6):
        full = disk.fs.failing(DiskFull, "append") if life % 2 else nullcontext()
        with full:
            partition = Partition(disk.open(is_clean=False), disk.clock)
        for _ in range(2):
            partition.append(batch())
        disk = Disk(disk.fs.crash())
        assert LeaderEpochs(disk.fs, FOLDER).latest == partition.leader_epoch
    assert epochs_of(disk.open()) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_an_epoch_in_which_nothing_was_written_leaves_nothing(disk: Disk) -> None:
    with disk.fs.failing(DiskFull, "append"):
        first = Partition(disk.open(), disk.clock)
        with pytest.raises(DiskFull):
            first.append(batch())
    disk = Disk(disk.fs.crash())
    assert Partition(disk.open(is_clean=False), disk.clock).append(batch()).leader_epoch == 0


def test_retention_of_everything_takes_all_but_the_last_segment_where_there_is_no_room_for_another(
    disk: Disk,
) -> None:
    partition = Partition(disk.open(segment_bytes=100, retention_bytes=0), disk.clock)
    for _ in range(3):
        partition.append(batch_of_size(100))
    with disk.fs.failing(DiskFull, "create"):
        assert partition.delete_old_segments().segments == 2
    assert offsets_of(partition.log) == [2]
    assert partition.delete_old_segments().segments == 1
    assert partition.append(batch()).base_offset == 3


def test_a_full_disk_keeps_no_partition_from_its_orderly_end(disk: Disk) -> None:
    """A move off the disk is one: what it has no room for the next opening makes again."""
    config: dict[str, Any] = {"index_interval_bytes": 0, "segment_bytes": 400}
    partition = Partition(disk.open(**config), disk.clock)
    for sequence in range(10):
        partition.append(of_producer(sequence))
    with disk.fs.failing(DiskFull, "append"):
        partition.close()
    assert (partition.is_closed, partition.is_stuck) == (True, False)
    again = Partition(
        Disk(disk.fs.crash("flushed", names="flushed")).open(is_clean=True, **config), disk.clock
    )
    assert offsets_of(again.log) == list(range(10))
    assert again.append(of_producer(9)).is_duplicate
    for segment in again.log.segments:
        check_indexes(segment)


def test_a_compaction_that_no_room_is_left_for_in_its_swap_is_no_failure_of_the_disk(
    disk: Disk,
) -> None:
    log = disk.open(segment_bytes=100, cleanup_policy="compact")
    partition = Partition(log, disk.clock)
    for _ in range(3):
        partition.append(encode_records([(T0, b"k", b"x" * 31, ())]))
    partition.roll()
    first = log.segments[0]
    for suffix in (".log", ".index", ".timeindex"):
        disk.write(f"{0:020d}{suffix}.cleaned", disk.read(f"{0:020d}{suffix}"))
    view = partition.cleaning_view()
    with disk.fs.failing(DiskFull, "sync_dir"), pytest.raises(SwapUnfinished):
        partition.replace_segments([first.id], view.round_id)
    assert (partition.is_stuck, partition.disk_failure) == (True, None)
    with pytest.raises(SwapUnfinished):
        partition.fetch(0)
    assert offsets_of(Disk(disk.fs.crash()).open(is_clean=False)) == [0, 1, 2]


# -- a real one ------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(log: Log) -> None:
    while True:
        log.append(batch(value=os.urandom(7_000)))


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    fs, folder = RealFileSystem(), str(small_disk / "orders-0")
    create_log(fs, folder, TOPIC_ID)
    config = LogConfig(segment_bytes=60_000)
    log = open_log(fs, SystemClock(), folder, PARTITION, config, is_clean=True)
    descriptors = len(os.listdir("/proc/self/fd"))
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 100_000)
    with pytest.raises(DiskFull, match="no space left on the device; free some"):
        fill(log)
    end = log.log_end_offset
    for _ in range(50):
        with pytest.raises(DiskFull):
            log.append(batch(value=os.urandom(59_000)))
    assert len(os.listdir("/proc/self/fd")) < descriptors + 40
    assert log.log_end_offset == end
    assert offsets_of(log) == list(range(end))
    recovered = open_log(fs, SystemClock(), folder, PARTITION, config, is_clean=False)
    assert offsets_of(recovered) == list(range(end))
    ballast.unlink()
    assert log.append(batch(value=os.urandom(7_000))).base_offset == end
    log.close()
    again = open_log(fs, SystemClock(), folder, PARTITION, config, is_clean=True)
    assert offsets_of(again) == list(range(end + 1))


# -- batches behind one that was refused -----------------------------------------------------------


def refused(log: Log, sequence: int, *, producer: int = 7, epoch: int = 0) -> str:
    """Why a batch of one record is refused."""
    with pytest.raises(RaylogError) as error:
        log.append(of_producer(sequence, producer=producer, epoch=epoch))
    return type(error.value).__name__


def full_once(disk: Disk, log: Log, sequence: int) -> None:
    """The disk is full for one batch of producer 7, which had written one."""
    log.append(of_producer(sequence - 1))
    disk.fs.fail_at(disk.fs.operations, DiskFull)
    assert refused(log, sequence) == "DiskFull"


def test_batches_behind_one_that_a_full_disk_refused_are_refused_for_the_same_reason() -> None:
    """Else librdkafka goes on with another epoch, and other partitions have records twice."""
    disk = Disk()
    log = disk.open()
    full_once(disk, log, 1)
    assert log.append(of_producer(0)).is_duplicate
    assert [refused(log, sequence) for sequence in (2, 3, 4)] == ["DiskFull"] * 3
    assert refused(log, 3, epoch=1) == "OutOfOrderSequence", "another epoch begins with 0"
    assert refused(log, -1) == "InvalidRecord"
    assert [log.append(of_producer(sequence)).base_offset for sequence in (1, 2)] == [1, 2]
    assert refused(log, 4) == "OutOfOrderSequence", "nothing that was refused is missing"
    log.append(of_producer(0, producer=8))
    assert refused(log, 2, producer=8) == "OutOfOrderSequence"


def test_what_lies_before_the_refused_batch_is_out_of_order_all_the_same() -> None:
    disk = Disk()
    log = disk.open()
    for sequence in range(8):
        log.append(of_producer(sequence))
    full_once(disk, log, 9)
    assert refused(log, 0) == "OutOfOrderSequence"
    assert refused(log, 10) == "DiskFull"


def test_sequences_that_begin_again_at_0_lie_behind_the_largest() -> None:
    disk = Disk()
    log = disk.open()
    full_once(disk, log, 2**31 - 1)
    assert [refused(log, sequence) for sequence in (0, 1)] == ["DiskFull"] * 2
    assert refused(log, 2**31 - 5) == "OutOfOrderSequence"


def test_a_refused_batch_that_does_not_come_again_is_a_gap_at_last() -> None:
    disk = Disk()
    log = disk.open()
    full_once(disk, log, 1)
    disk.clock.advance(REMEMBERED_MS)
    assert refused(log, 2) == "DiskFull"
    disk.clock.advance(1)
    assert refused(log, 2) == "OutOfOrderSequence"
    disk.fs.fail_at(disk.fs.operations, DiskFull)
    assert refused(log, 1) == "DiskFull", "it is sent again"
    assert refused(log, 2) == "DiskFull"


def test_only_so_many_producers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "MOST", 1)
    disk = Disk()
    log = disk.open()
    for producer in (7, 8):
        log.append(of_producer(0, producer=producer))
    for producer in (7, 8):
        disk.fs.fail_at(disk.fs.operations, DiskFull)
        assert refused(log, 1, producer=producer) == "DiskFull"
    assert refused(log, 2, producer=7) == "OutOfOrderSequence"
    assert refused(log, 2, producer=8) == "DiskFull"
