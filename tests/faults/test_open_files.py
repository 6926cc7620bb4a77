"""How many descriptors a log needs, and what happens where there are no more."""

import os
from pathlib import Path

import pytest

from raylog.storage.config import LogConfig
from raylog.storage.files import MAX_SEALED_OPEN, MAX_UNFLUSHED, RealFileSystem
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.names import TopicPartition
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.logs import batch_of_size, offsets_of

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=0, retention_bytes=-1, retention_ms=-1)
PER_SEGMENT = 4
# Those of sealed files, those that wait for a flush, and those of the active segment.
MOST_OPEN = MAX_SEALED_OPEN + MAX_UNFLUSHED + 4


def opened(folder: Path, *, is_clean: bool = True) -> Log:
    return open_log(
        RealFileSystem(),
        ManualClock(),
        str(folder),
        TopicPartition("orders", 0),
        CONFIG,
        is_clean=is_clean,
    )


def made(folder: Path) -> Path:
    create_log(RealFileSystem(), str(folder), "5eGdu6PVSRS-s9xHKXlyPg")
    return folder


def count_open(folder: Path) -> int:
    count = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{number}").startswith(str(folder))
        except OSError:
            continue
    return count


def appended(log: Log, segments: int) -> Log:
    for _ in range(segments * PER_SEGMENT):
        log.append(batch_of_size(100))
    return log


@pytest.mark.parametrize("is_flushed", [True, False])
def test_the_number_of_descriptors_is_flat_in_the_number_of_segments(
    tmp_path: Path, is_flushed: bool
) -> None:
    log = opened(made(tmp_path / "orders-0"))
    counts = []
    for _ in range(4):
        appended(log, 50)
        if is_flushed:
            log.flush()
        assert offsets_of(log) == list(range(log.log_end_offset))
        counts.append(count_open(tmp_path))
    assert counts[0] == counts[1] == counts[2] == counts[3]
    assert counts[0] <= MOST_OPEN
    log.close()
    assert count_open(tmp_path) == 0


@pytest.mark.parametrize("is_clean", [True, False])
def test_opening_and_reading_a_log_needs_no_more(tmp_path: Path, is_clean: bool) -> None:
    folder = made(tmp_path / "orders-0")
    appended(opened(folder), 200).close()
    log = opened(folder, is_clean=is_clean)
    assert count_open(tmp_path) <= MOST_OPEN
    assert offsets_of(log) == list(range(200 * PER_SEGMENT))
    assert count_open(tmp_path) <= MOST_OPEN
    log.close()
    assert count_open(tmp_path) == 0


def test_what_is_sealed_is_open_read_only(tmp_path: Path) -> None:
    log = appended(opened(made(tmp_path / "orders-0")), 10)
    active = f"{log.segments[-1].base_offset:020d}"
    writable = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        flags = int(Path(f"/proc/self/fdinfo/{number}").read_text().split()[3], 8)
        if path.startswith(str(tmp_path)) and flags & os.O_ACCMODE != os.O_RDONLY:
            writable.add(os.path.basename(path))
    assert f"{active}.log" in writable
    assert all(name.startswith(active) for name in writable)
