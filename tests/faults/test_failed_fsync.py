"""An fsync fails, the process starts again, and later the power fails.

After a failed fsync Linux keeps what it could not write, and takes it for written: everybody reads
it, and the next fsync has nothing to do. A start that believed what it reads would raise the
recovery point above records that are not on the disk. So

- what was opened once, and flushed, is there after a loss of power;
- what the disk lacks is missing at once, and the log says so;
- what had been flushed before is never missing.
"""

from contextlib import suppress

import pytest

from raylog.storage.errors import StorageError
from raylog.storage.log import Log
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, batch_of_size, of_producer, offsets_of
from raylog.storage.testing.memory import MemoryFileSystem, Stopped
from raylog.storage.validation import COORDINATOR
from tests.harness.small_logs import SMALL


def broken(path: str) -> StorageError:
    return StorageError(path, "Input/output error during an fsync")


def append(log: Log, batches: int) -> None:
    """Batches of 2 records; ten make a segment."""
    for _ in range(batches):
        log.append(batch_of_size(100, 2, T0 + log.log_end_offset), leader_epoch=0)


def flushes(fs: MemoryFileSystem) -> list[int]:
    return [number for number, done in enumerate(fs.log) if done.startswith("flush ")]


def written_over_a_broken_disk(flushed: int, batches: int) -> Disk:
    """Batches of which the first are flushed, and what a kill of the process leaves of them."""
    disk = Disk()
    log = disk.open(**SMALL)
    append(log, flushed)
    log.flush()
    append(log, batches - flushed)
    with disk.fs.failing(broken, "flush"), pytest.raises(StorageError):
        log.flush()
    return Disk(disk.fs.crash("all"))


@pytest.mark.parametrize("flushed", [0, 4, 10, 14])
@pytest.mark.parametrize("batches", [3, 13, 25])
def test_what_a_start_publishes_and_flushes_survives_a_loss_of_power(
    flushed: int, batches: int
) -> None:
    batches += flushed
    disk = written_over_a_broken_disk(flushed, batches)
    log = disk.open(is_clean=False, recovery_point=2 * flushed, **SMALL)
    published = offsets_of(log)
    assert published[: 2 * flushed] == [*range(2 * flushed)], "flushed before"
    log.flush()
    after = Disk(disk.fs.crash("flushed", names="flushed"))
    again = after.open(is_clean=False, recovery_point=log.recovery_point, **SMALL)
    assert offsets_of(again) == published
    assert {mended.kind for mended in again.mended} <= {"rebuilt", "removed"}, "indexes, snapshots"


def test_what_the_disk_lacks_is_told() -> None:
    disk = written_over_a_broken_disk(4, 8)
    log = disk.open(is_clean=False, recovery_point=8, **SMALL)
    assert log.log_end_offset == 8
    assert [(mended.kind, mended.size_bytes) for mended in log.mended][:1] == [("cut", 400)]


def test_new_records_behind_a_failed_fsync_are_not_believed_with_a_hole_before_them() -> None:
    """Another partition's process did not see the error, or the log was flushed once more."""
    disk = Disk()
    log = disk.open(**SMALL)
    append(log, 2)
    with disk.fs.failing(broken, "flush"), pytest.raises(StorageError):
        log.flush()
    file = disk.fs.open(log.segments[0].path)
    file.append([batch_of_size(100, 2)])
    file.flush()
    disk = Disk(disk.fs.crash("all"))
    log = disk.open(is_clean=False, **SMALL)
    assert log.log_end_offset == 0
    assert [mended.kind for mended in log.mended if mended.kept_as] == ["cut"]


def test_a_disk_that_is_still_broken_refuses_the_log() -> None:
    disk = Disk()
    log = disk.open(**SMALL)
    append(log, 3)
    found = Disk(disk.fs.crash("all"))
    with found.fs.failing(broken, "flush"), pytest.raises(StorageError) as raised:
        found.open(is_clean=False, **SMALL)
    assert raised.value.is_disk_failure


def test_each_flush_that_fails_leaves_a_log_that_survives_the_loss_of_power() -> None:
    whole = Disk()
    write_and_flush(whole.open(**SMALL))
    for failing in flushes(whole.fs):
        disk = Disk()
        log = disk.open(**SMALL)
        disk.fs.fail_at(failing, broken)
        with suppress(StorageError):
            write_and_flush(log)
        promised = log.recovery_point
        disk = Disk(disk.fs.crash("all"))
        log = disk.open(is_clean=False, recovery_point=promised, **SMALL)
        published = offsets_of(log)
        assert published[:promised] == [*range(promised)]
        log.flush()
        after = Disk(disk.fs.crash("flushed", names="flushed"))
        again = after.open(is_clean=False, recovery_point=log.recovery_point, **SMALL)
        assert offsets_of(again) == published, f"flush {failing}"


def test_wherever_a_process_is_killed_what_the_next_flushes_survives_the_loss_of_power() -> None:
    whole = Disk()
    write_and_flush(whole.open(**SMALL))
    for stop in range(whole.fs.operations):
        disk = Disk()
        log = disk.open(**SMALL)
        disk.fs.stop_at(stop)
        with suppress(Stopped):
            write_and_flush(log)
        disk = Disk(disk.fs.crash("all"))
        log = disk.open(is_clean=False, recovery_point=log.recovery_point, **SMALL)
        published = offsets_of(log)
        log.flush()
        after = Disk(disk.fs.crash("flushed", names="flushed"))
        again = after.open(is_clean=False, recovery_point=log.recovery_point, **SMALL)
        assert offsets_of(again) == published, f"stop {stop}"


def write_and_flush(log: Log) -> None:
    for count in (3, 9, 1, 12):
        append(log, count)
        log.flush()


@pytest.mark.parametrize("fails", [False, True])
def test_the_aborted_transactions_are_on_the_disk_when_the_recovery_point_is_behind_them(
    fails: bool,
) -> None:
    """Nothing would tell of the second one: the file is whole without it."""
    disk = Disk()
    log = disk.open(**SMALL)
    abort_a_transaction(log, 0)
    log.flush()
    abort_a_transaction(log, 1)
    aborted = log.segments[0].txn_index.entries
    assert len(aborted) == 2
    if fails:
        log.segments[0].log.flush()
        with disk.fs.failing(broken, "flush"), pytest.raises(StorageError):
            log.segments[0].txn_index.flush()
    disk = Disk(disk.fs.crash("all"))
    log = disk.open(is_clean=False, recovery_point=2, **SMALL)
    assert log.segments[0].txn_index.entries == aborted
    append(log, 12)
    log.flush()
    assert log.segments[-1].base_offset < log.recovery_point
    after = Disk(disk.fs.crash("flushed", names="flushed"))
    again = after.open(is_clean=False, recovery_point=log.recovery_point, **SMALL)
    assert again.segments[0].txn_index.entries == aborted


def abort_a_transaction(log: Log, sequence: int) -> None:
    log.append(of_producer(sequence, 1, transactional=True))
    marker = encode_marker(Marker(True, 0, T0), producer_id=7, producer_epoch=0)
    log.append(marker, origin=COORDINATOR)
