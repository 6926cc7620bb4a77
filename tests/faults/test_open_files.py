"""How many descriptors a log needs, and what happens where there are no more."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from raylog.storage.config import LogConfig
from raylog.storage.files import MAX_SEALED_OPEN, MAX_UNFLUSHED, RealFileSystem
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.names import TopicPartition
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.logs import batch_of_size, offsets_of
from tests.harness.paths import ROOT

CONFIG = LogConfig(
    segment_bytes=400,
    index_interval_bytes=0,
    retention_bytes=1600,
    retention_ms=-1,
    file_delete_delay_ms=0,
)
PER_SEGMENT = 4
# Those of sealed files, those that wait for a flush, and those of the active segment.
MOST_OPEN = MAX_SEALED_OPEN + MAX_UNFLUSHED + 4


def opened(folder: Path, *, is_clean: bool = True, max_sealed: int = MAX_SEALED_OPEN) -> Log:
    return open_log(
        RealFileSystem(max_sealed),
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
    assert counts[1] == counts[2] == counts[3]
    assert counts[3] <= MOST_OPEN
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


# -- a process with few of them, and then with none ------------------------------------------------

PROGRAM = """
import os, resource, sys
from pathlib import Path
from tests.faults.test_open_files import appended, made, opened, taking_all
from raylog.storage.errors import OutOfResources
from raylog.storage.testing.logs import batch_of_size, offsets_of

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
folder = made(Path(sys.argv[1]))
log = appended(opened(folder), 300)
assert len(log.segments) == 300
assert offsets_of(log) == list(range(1200))

# Those that are only kept make room for what is needed.
with taking_all():
    appended(log, 2)
log.close()

log = opened(folder, is_clean=False, max_sealed=0)
assert offsets_of(log) == list(range(1208))
log.append(batch_of_size(100))
assert len(log.segments) == 303

with taking_all():
    log.append(batch_of_size(100))
    for _ in range(3):
        try:
            log.append(batch_of_size(400))
        except OutOfResources as error:
            assert "ulimit -n" in str(error) and not error.is_disk_failure
        else:
            raise AssertionError("a roll without descriptors")
    log.append(batch_of_size(100))
    assert log.log_end_offset == 1211
log.append(batch_of_size(400))
assert len(log.segments) == 304
assert offsets_of(log) == list(range(1212))

log.append(batch_of_size(300))
with taking_all():
    try:
        deleted = log.delete_old_segments()
    except OutOfResources:
        deleted = 0
deleted += log.delete_old_segments()
log.purge_deleted()
assert deleted >= 290, deleted
assert offsets_of(log) == list(range(log.log_start_offset, 1213))
log.close()
assert offsets_of(opened(folder)) == list(range(log.log_start_offset, 1213))
print("done")
"""


@contextmanager
def taking_all() -> Iterator[None]:
    """Take every descriptor that this process may still have."""
    taken: list[int] = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        pass
    try:
        yield
    finally:
        for number in taken:
            os.close(number)


def test_a_log_lives_with_256_descriptors_and_survives_having_none(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "orders-0")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr
