"""A roll that fails: the log goes on in the old segment; nothing of the new one returns."""

from typing import Any

import pytest

from raylog.actors.partition.partition import Partition
from raylog.storage.asides import list_asides
from raylog.storage.errors import (
    CorruptRecord,
    DiskFull,
    OutOfResources,
    StorageError,
    UndoInterrupted,
)
from raylog.storage.recovery import check_indexes
from raylog.storage.segment import Segment
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import FOLDER, Disk, batch, batch_of_size, flip, offsets_of
from raylog.storage.tools.verify import verify_folder

CONFIG: dict[str, Any] = {"segment_bytes": 400, "flush_messages": 1}


def test_a_name_that_a_failed_roll_took_back_does_not_return_with_the_power() -> None:
    """It would end the log below what was fsynced since."""
    failures = 0
    for fault in range(8):
        for seed in range(12):
            disk = Disk()
            partition = Partition(disk.open(**CONFIG), disk.clock)
            partition.append(batch_of_size(300))
            disk.fs.fail_at(disk.fs.operations + fault, DiskFull)
            try:
                partition.append(batch_of_size(150))
                continue
            except DiskFull:
                failures += 1
            assert partition.append(batch_of_size(90)).base_offset == 1
            after = Disk(disk.fs.crash("flushed", names="torn", seed=seed))
            log = after.open(is_clean=False, recovery_point=partition.log.recovery_point, **CONFIG)
            assert offsets_of(log) == [0, 1]
    assert failures


@pytest.mark.parametrize("file", ["index", "timeindex"])
def test_a_roll_that_had_no_room_for_the_last_entries_repeats_none(file: str, disk: Disk) -> None:
    log = disk.open(index_interval_bytes=100)
    for number in range(6):
        log.append(batch(timestamp=T0 + number // 5))
    assert log.segments[0].time_index.last == (T0, 0), "the newest time has no entry yet"
    path = disk.path(f"{0:020d}.{file}")
    with disk.fs.failing(DiskFull, "append", path), pytest.raises(DiskFull):
        log.roll()
    for _ in range(3):
        log.append(batch(timestamp=T0))
    log.roll()
    check_indexes(log.segments[0])
    assert log.segments[0].time_index.last == (T0 + 1, 5)


@pytest.mark.parametrize("file", ["log", "offset_index", "time_index"])
def test_a_segment_that_could_not_be_sealed_goes_on(
    file: str, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open(index_interval_bytes=0)
    log.append(batch())

    def no_descriptor(*_: object) -> None:
        raise OutOfResources(file, "none left")

    part = getattr(log.segments[0], file)
    monkeypatch.setattr(part, "seal" if file == "log" else "drop", no_descriptor)
    with pytest.raises(OutOfResources):
        log.roll()
    monkeypatch.undo()
    for number in range(1, 4):
        log.append(batch(timestamp=T0 + number))
    moment = log.offset_for_timestamp(T0 + 3)
    assert moment is not None
    assert moment.offset == 3
    log.roll()
    assert log.segments[0].max_timestamp == (T0 + 3, 3)
    log.close()
    again = disk.open(index_interval_bytes=0)
    assert all(mended.kind != "rebuilt" for mended in again.mended)
    assert len(again.segments[0].offset_index) == 3


def test_a_new_segment_that_can_be_neither_used_nor_removed_stops_the_log(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches behind its base offset would be cut off by the next recovery."""
    partition = Partition(disk.open(), disk.clock)
    partition.append(batch())

    def fails(segment: Segment) -> None:
        raise OutOfResources(segment.path, "none left")

    monkeypatch.setattr(Segment, "seal", fails)
    monkeypatch.setattr(Segment, "delete", fails)
    with pytest.raises(UndoInterrupted):
        partition.roll()
    monkeypatch.undo()
    with pytest.raises(StorageError):
        partition.append(batch())
    assert offsets_of(disk.open(is_clean=False)) == [0]


# -- the segment before one that came back ---------------------------------------------------------

FIRST, SECOND = (f"{base:020d}.log" for base in (0, 5))
TORN = bytes(batch_of_size(90))[:70]


def fill(disk: Disk) -> None:
    """Five records in five batches, all flushed."""
    log = disk.open()
    for number in range(5):
        log.append(batch_of_size(100, 1, T0 + number), leader_epoch=0)
    log.flush()
    disk.fs = disk.fs.crash("flushed", names="flushed")


def check_usable(disk: Disk, expected: list[int]) -> None:
    """The log goes on, and all of its files agree."""
    log = disk.open(recovery_point=len(expected))
    assert offsets_of(log) == expected
    assert log.append(batch(timestamp=T0 + 10), leader_epoch=9).base_offset == len(expected)
    log.close()
    assert [report.problems for report in verify_folder(disk.fs, FOLDER)] == [(), ()]


@pytest.mark.parametrize(
    "surplus",
    [TORN, b"\0" * 33, bytes(batch_of_size(100)), bytes(batch(timestamp=T0, base_offset=5)) + TORN],
    ids=["torn", "zeros", "old", "overlapping"],
)
@pytest.mark.parametrize("is_empty", [True, False])
def test_what_lies_behind_the_batch_that_leads_to_the_recovery_point_is_cut(
    disk: Disk, surplus: bytes, is_empty: bool
) -> None:
    """A roll and an fsync failed, and the name of the new segment came back with the power."""
    fill(disk)
    disk.damage(FIRST, lambda content: content + surplus)
    disk.write(SECOND, b"" if is_empty else bytes(batch(timestamp=T0 + 5, base_offset=5)))
    expected = list(range(5 if is_empty else 6))
    log = disk.open(is_clean=False, recovery_point=5)
    assert offsets_of(log) == expected
    assert [mended.size_bytes for mended in log.mended if mended.kind == "cut"] == [len(surplus)]
    assert len(disk.read(FIRST)) == 500
    kept = [aside.size_bytes for aside in list_asides(disk.fs, FOLDER)]
    assert kept == ([len(surplus)] if any(surplus) else [])
    log.close()
    check_usable(disk, expected)


@pytest.mark.parametrize(
    "damage",
    [flip(450), lambda content: content[:470], lambda content: flip(450)(content) + TORN],
)
def test_flushed_records_that_are_damaged_there_keep_no_log_from_opening(
    disk: Disk, damage: Any
) -> None:
    fill(disk)
    disk.damage(FIRST, damage)
    disk.write(SECOND, bytes(batch(timestamp=T0 + 5, base_offset=5)))
    log = disk.open(is_clean=False, recovery_point=5)
    assert offsets_of(log, 5) == [5]
    with pytest.raises(CorruptRecord):
        offsets_of(log)
