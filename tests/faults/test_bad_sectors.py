"""Each read of a file fails in turn, as of a bad sector: in readers, recovery, upkeep and cleaning.

- Either the work is done all the same (an index is made again), or its error names the disk, or
  what is short: nobody takes it for corrupt records.
- Nothing is lost: once the file can be read again, the log has every record.
"""

from collections.abc import Callable

import pytest

from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.errors import OutOfResources, RaylogError, StorageError
from raylog.storage.log import Log
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, offsets_of
from tests.faults.test_failed_fsync import abort_a_transaction
from tests.harness.small_logs import SMALL, written

BUFFERS = Buffers(dedupe_bytes=1 << 12, load_factor=0.9, chunk_bytes=4096)


Fault = Callable[[str], StorageError]


def bad_sector(path: str) -> StorageError:
    return StorageError(path, "Input/output error")


def no_memory(path: str) -> OutOfResources:
    return OutOfResources(path, "no memory is left")


def recover(disk: Disk) -> None:
    disk.open(is_clean=False, recovery_point=30, **SMALL)


def recover_all(disk: Disk) -> None:
    disk.open(is_clean=False, **SMALL)


def open_in_order(disk: Disk) -> None:
    disk.open(recovery_point=62, **SMALL)


def read(disk: Disk) -> None:
    log = disk.open(recovery_point=62, **SMALL)
    assert offsets_of(log, max_bytes=250) == EXPECTED
    log.offset_for_timestamp(T0 + 15_000)
    log.aborted()


def keep_up(disk: Disk) -> None:
    log = disk.open(recovery_point=62, **SMALL)
    log.wrong_indexes.update(log.segments[:-1])
    log.mend_indexes()
    log.roll()
    log.delete_old_segments()
    log.flush_due()


def compact(disk: Disk) -> None:
    log = disk.open(recovery_point=62, cleanup_policy="compact", **SMALL)
    bound = log.segments[-1].base_offset
    section = Cleanable(first_dirty_offset=0, bound=bound, clean_bytes=0, cleanable_bytes=1)
    clean(disk.fs, disk.clock, log, section, BUFFERS)


EXPECTED = [*range(61)]  # and a marker
WORKS: dict[str, Callable[[Disk], None]] = {
    work.__name__: work for work in (recover, recover_all, open_in_order, read, keep_up, compact)
}


def closed_log() -> Disk:
    disk = Disk()
    log: Log = written(disk, 30)
    abort_a_transaction(log, 0)
    log.close()
    return disk


@pytest.mark.parametrize("fault", [bad_sector, no_memory])
@pytest.mark.parametrize("name", WORKS)
def test_a_file_that_cannot_be_read_is_the_disks_fault_and_loses_nothing(
    name: str, fault: Fault
) -> None:
    found = closed_log().fs
    whole = Disk(found.crash())
    WORKS[name](whole)
    refused = 0
    assert whole.fs.reads > 5
    for number in range(whole.fs.reads):
        disk = Disk(found.crash())
        disk.fs.fail_read_at(number, fault)
        error = error_of(WORKS[name], disk)
        if error is not None:
            assert isinstance(error, StorageError), f"read {number}: {error!r}"
            assert error.is_disk_failure == fault("").is_disk_failure, f"read {number}: {error!r}"
            refused += 1
        after = Disk(disk.fs.crash("flushed", names="flushed"))
        again = after.open(is_clean=False, recovery_point=62, **SMALL)
        assert again.log_end_offset == 62, f"read {number}"
        if name != "compact":
            assert offsets_of(again) == EXPECTED, f"read {number}"
    assert refused


def error_of(work: Callable[[Disk], None], disk: Disk) -> RaylogError | None:
    try:
        work(disk)
    except RaylogError as error:
        return error
    return None
