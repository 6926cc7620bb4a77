"""A loss of power at every step of a truncation, of every part of what was not flushed.

What is found afterwards opens; it is a beginning of what was there, at least up to where the log
was to be cut.
"""

from collections.abc import Callable
from typing import Any

import pytest

from raylog.storage.errors import CleaningAborted, CorruptRecord, LogClosed, OffsetOutOfRange
from raylog.storage.log import Log
from raylog.storage.records.decode import decode_records
from raylog.storage.recovery import check_indexes
from raylog.storage.testing.logs import Disk, batch, of_producer, offsets_of, records_of
from raylog.storage.testing.memory import MemoryFileSystem, Stopped

WAYS = [("all", "all"), ("flushed", "flushed"), ("torn", "torn"), ("all", "flushed")]
WAYS += [("flushed", "all")]


class Checkpoints:
    """What the log dir's checkpoint says; it is written when a truncation asks for it."""

    def __init__(self, log: Log) -> None:
        self.recovery_point = log.recovery_point
        self.lowered: list[int] = []

    def lower(self, offset: int) -> None:
        self.lowered.append(offset)
        self.recovery_point = min(self.recovery_point, offset)


def filled(disk: Disk, *, is_flushed: bool) -> Log:
    """Offsets 0 ... 11 in batches of two, two batches a segment."""
    log = disk.open(index_interval_bytes=0, file_delete_delay_ms=0)
    for number in range(6):
        if number in (2, 4):
            log.roll()
        log.append(of_producer(2 * number, 2, timestamp=1000 + number), leader_epoch=number // 2)
    if is_flushed:
        log.flush()
    return log


def cuts() -> dict[str, tuple[int, Callable[[Log, Checkpoints], Any]]]:
    def to(offset: int) -> tuple[int, Callable[[Log, Checkpoints], Any]]:
        return offset, lambda log, points: log.truncate_to(offset, points.lower)

    def fully(offset: int) -> tuple[int, Callable[[Log, Checkpoints], Any]]:
        return offset, lambda log, points: log.truncate_fully(offset, points.lower)

    return {
        **{f"to {offset}": to(offset) for offset in (0, 1, 4, 5, 6, 8, 9, 10, 11)},
        **{f"fully {offset}": fully(offset) for offset in (0, 4, 8, 3, 20)},
    }


@pytest.mark.parametrize("is_flushed", [True, False])
@pytest.mark.parametrize("name", cuts())
def test_a_loss_of_power_in_a_truncation_leaves_a_beginning(name: str, is_flushed: bool) -> None:
    offset, cut = cuts()[name]
    operation = 0
    while True:
        disk = Disk()
        log = filled(disk, is_flushed=is_flushed)
        points = Checkpoints(log)
        disk.fs.stop_at(disk.fs.operations + operation)
        has_ended = True
        try:
            cut(log, points)
        except Stopped:
            has_ended = False
        assert log.recovery_point <= log.log_end_offset
        for seed, (survives, names) in enumerate(WAYS * 2):
            fs = disk.fs.crash(survives, names=names, seed=seed)  # type: ignore[arg-type]
            check(fs, points.recovery_point, offset, name, is_flushed)
        if has_ended:
            assert points.lowered == [lowered(name, offset)]
            assert operation > 1
            return
        operation += 1


def lowered(name: str, offset: int) -> int:
    """Where records end that cannot be cut: behind a whole batch."""
    return min(offset // 4 * 4, 8) if name.startswith("fully") else offset // 2 * 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_flush_after_a_cut_within_a_batch_promises_no_record_that_is_not_there(
    is_clean: bool,
) -> None:
    disk = Disk()
    log = filled(disk, is_flushed=True)
    log.truncate_to(5)
    assert (log.recovery_point, log.log_end_offset) == (4, 5)
    log.flush()
    assert log.recovery_point == 4
    if is_clean:
        log.close()
    again = Disk(disk.fs.crash("flushed")).open(is_clean=is_clean, recovery_point=4)
    assert offsets_of(again) == [0, 1, 2, 3]
    assert log.recovery_point <= again.log_end_offset
    if not is_clean:
        log.append(batch())
        log.flush()
        assert log.recovery_point == log.log_end_offset == 6


def check(
    fs: MemoryFileSystem, recovery_point: int, offset: int, name: str, is_flushed: bool
) -> None:
    disk = Disk(fs)
    again = disk.open(is_clean=False, recovery_point=recovery_point)
    offsets = offsets_of(again)
    assert offsets == list(range(again.log_start_offset, again.log_start_offset + len(offsets)))
    assert again.log_start_offset + len(offsets) in (again.log_end_offset, 12, offset)
    if is_flushed and name.startswith("to"):
        batches = offset // 2 * 2
        assert offsets[:batches] == list(range(batches))
    assert again.recovery_point <= again.log_end_offset
    end = again.log_end_offset
    assert again.append(batch()).base_offset == end
    assert offsets_of(again)[-1] == end
    again.close()
    assert disk.open().log_end_offset == end + 1


@pytest.mark.parametrize("name", cuts())
def test_checkpoints_are_lowered_before_anything_is_cut(name: str) -> None:
    disk = Disk()
    log = filled(disk, is_flushed=True)
    _, cut = cuts()[name]
    before = {each: disk.read(each) for each in disk.names()}
    seen = []

    class Look(Checkpoints):
        def lower(self, offset: int) -> None:
            seen.append({each: disk.read(each) for each in disk.names()})
            assert log.recovery_point <= offset
            assert log.log_end_offset == 12
            super().lower(offset)

    cut(log, Look(log))
    assert seen == [before]


def test_what_cannot_be_recorded_is_not_cut() -> None:
    disk = Disk()
    log = filled(disk, is_flushed=True)

    def fail(offset: int) -> None:
        raise LogClosed("/logs")

    for cut in (log.truncate_to, log.truncate_fully):
        with pytest.raises(LogClosed):
            cut(5, fail)
    assert offsets_of(log) == list(range(12))


def test_rounds_of_compaction_that_began_before_cannot_swap() -> None:
    for cut in (Log.truncate_to, Log.truncate_fully):
        log = filled(Disk(), is_flushed=True)
        round_id = log.begin_round()
        first = log.segments[0].id
        log.check_unchanged([first], round_id)
        cut(log, 8)
        with pytest.raises(CleaningAborted):
            log.check_unchanged([first], round_id)


@pytest.mark.parametrize("name", cuts())
def test_readers_during_a_truncation_see_what_was_there_or_that_it_is_gone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    log = filled(disk, is_flushed=True)
    _, cut = cuts()[name]
    old = dict(enumerate(records_of(log)))
    real, counts = MemoryFileSystem.change, [0]

    def change(fs: MemoryFileSystem, verb: str, path: str) -> None:
        for offset in range(12):
            for max_bytes in (1, 1000):
                try:
                    found = log.read(offset, max_bytes)
                    records = decode_records(found.read(), start_offset=offset)
                except OffsetOutOfRange:
                    continue
                assert found.high_watermark <= found.log_end_offset
                if records:
                    assert records[0] == old[offset]
                    counts[0] += 1
        real(fs, verb, path)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "change", change)
        cut(log, Checkpoints(log))
    assert counts[0] or name in ("to 0", "to 1", "fully 3", "fully 20", "fully 0")


def test_a_mapped_index_is_not_cut_in_its_place() -> None:
    """A reader that touches a page that was cut from under its map would end the process."""
    disk = Disk()
    filled(disk, is_flushed=True).close()
    log = disk.open()
    segment = log.segments[0]
    mapped = segment.offset_index._loaded()
    assert isinstance(mapped, memoryview)
    before = disk.fs.stat(disk.path("00000000000000000000.index"))
    begin = disk.fs.operations
    log.truncate_to(2)
    after = disk.fs.stat(disk.path("00000000000000000000.index"))
    assert before is not None
    assert after is not None
    assert after.inode != before.inode
    done = disk.fs.log[begin:]
    assert f"truncate {disk.path('00000000000000000000.index')}" not in done
    assert len(segment.offset_index) == 0


def test_damage_behind_the_cut_does_not_keep_a_log_from_being_cut() -> None:
    disk = Disk()
    log = filled(disk, is_flushed=True)
    content = disk.read("00000000000000000008.log")
    disk.write("00000000000000000008.log", content[:16] + b"\xff" * 50 + content[66:])
    with pytest.raises(CorruptRecord):
        log.read(8, 1000)
    log.truncate_to(8)
    assert offsets_of(log) == list(range(8))
    assert log.append(batch()).base_offset == 8


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_does_not_keep_a_log_from_being_cut(suffix: str) -> None:
    disk = Disk()
    filled(disk, is_flushed=True).close()
    log = disk.open(index_interval_bytes=0)
    disk.damage("00000000000000000000" + suffix, lambda content: content + b"?")
    log.truncate_to(2)
    assert offsets_of(log) == [0, 1]
    log.append(batch(timestamp=5000))
    assert log.offset_for_timestamp(5000) == (5000, 2)
    check_indexes(log.segments[0])
