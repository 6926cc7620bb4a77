"""A full disk: a named error, nothing half-made, and appends again when there is space."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raylog.storage.clock import SystemClock
from raylog.storage.config import LogConfig
from raylog.storage.errors import DiskFull
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.testing.logs import (
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
    """Fault by fault, with rolls and without: the log, its files and its producers stay as they were."""
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
    after.open().segments[0].check_indexes()


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
    with pytest.raises(DiskFull, match="no space left on the device: free some"):
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
