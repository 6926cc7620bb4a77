"""Fsynced records that are missing are noticed; who accepts that says so once."""

import pytest

from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    CorruptCheckpoint,
    DiskFull,
    FlushedRecordsMissing,
    LogMissing,
    LogShorterThanFlushed,
)
from raylog.storage.gaps import Gaps
from raylog.storage.losses import accept_losses, drop_settled
from raylog.storage.recovery import LOOK_BYTES, end_by_index
from raylog.storage.segment import Segment
from raylog.storage.state.checkpoints import (
    ACCEPTED_LOSSES,
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    write_offsets,
)
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import (
    FOLDER,
    PARTITION,
    Disk,
    batch,
    batch_of_size,
    flip,
    offsets_of,
)
from raylog.storage.testing.memory import MemoryFile
from tests.harness.small_logs import FIRST, SECOND, SMALL, THIRD, content, fill


def checkpoint(disk: Disk, recovery_point: int, log_start_offset: int = 0) -> None:
    write_offsets(disk.fs, f"/logs/{RECOVERY_POINTS}", {PARTITION: recovery_point})
    write_offsets(disk.fs, f"/logs/{LOG_START_OFFSETS}", {PARTITION: log_start_offset})


DAMAGES = {
    "a tail cut": (THIRD, lambda content: content[:500], 50),
    "a batch that rotted": (THIRD, flip(550), 50),
    "an emptied file": (THIRD, lambda content: b"", 40),
    "zeros": (THIRD, lambda content: b"\0" * len(content), 40),
}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_log_shorter_than_its_recovery_point_is_refused_with_nothing_changed(
    disk: Disk, damage: str, is_clean: bool
) -> None:
    name, change, end = DAMAGES[damage]
    if is_clean and damage == "a batch that rotted":
        return  # after an orderly stop no CRC is looked at; readers are told
    fill(disk)
    disk.damage(name, change)
    before = content(disk)
    with pytest.raises(LogShorterThanFlushed, match=f"ends at offset {end}, but") as caught:
        disk.open(is_clean=is_clean, recovery_point=60, **SMALL)
    assert (caught.value.end_offset, caught.value.recovery_point) == (end, 60)
    assert content(disk) == before


def test_a_segment_that_is_gone_is_noticed(disk: Disk) -> None:
    fill(disk)
    disk.fs.remove(disk.path(THIRD))
    for is_clean in (True, False):
        with pytest.raises(LogShorterThanFlushed, match="ends at offset 40, but"):
            Disk(disk.fs.crash()).open(is_clean=is_clean, recovery_point=60, **SMALL)


def test_a_log_that_is_empty_now_is_noticed(disk: Disk) -> None:
    with pytest.raises(LogShorterThanFlushed, match="ends at offset 0, but"):
        disk.open(is_clean=False, recovery_point=12)


def test_an_accepted_loss_opens_the_log_and_is_told(disk: Disk) -> None:
    fill(disk)
    disk.damage(THIRD, flip(550))
    checkpoint(disk, 60)
    (lost,) = accept_losses(disk.fs, FOLDER)
    assert lost[:5] == ("lost", THIRD, 0, 50, 60)
    assert disk.read(ACCEPTED_LOSSES) == b"0\n1\n50 60\n"
    log = disk.open(is_clean=False, recovery_point=60, **SMALL)
    assert (log.log_end_offset, log.recovery_point) == (50, 50)
    assert lost in log.mended
    assert disk.names(".aside-0") == [THIRD + ".aside-0"]
    assert log.append(batch(timestamp=T0)).base_offset == 50


def test_the_loss_of_a_whole_last_segment_is_told_as_that_segments(disk: Disk) -> None:
    fill(disk)
    disk.write(THIRD, b"")
    checkpoint(disk, 60)
    (lost,) = accept_losses(disk.fs, FOLDER)
    assert lost[:5] == ("lost", THIRD, 0, 40, 60)
    assert lost in disk.open(is_clean=False, recovery_point=60, **SMALL).mended


def test_a_loss_is_accepted_once_and_survives(disk: Disk) -> None:
    fill(disk)
    disk.damage(THIRD, flip(550))
    checkpoint(disk, 60)
    first = accept_losses(disk.fs, FOLDER)
    disk.fs = disk.fs.crash("flushed", names="flushed")
    assert accept_losses(disk.fs, FOLDER) == first
    assert disk.read(ACCEPTED_LOSSES) == b"0\n1\n50 60\n"
    for _ in range(3):  # the checkpoint of the recovery point may be written late
        log = disk.open(is_clean=False, recovery_point=60, **SMALL)
        log.append(batch(timestamp=T0))
    assert log.log_end_offset == 53


def test_the_next_loss_is_noticed_again(disk: Disk) -> None:
    fill(disk)
    disk.damage(THIRD, flip(550))
    checkpoint(disk, 60)
    accept_losses(disk.fs, FOLDER)
    log = disk.open(is_clean=False, recovery_point=60, **SMALL)
    for number in range(10):
        log.append(batch_of_size(100, 2, T0 + number))
    log.close()
    assert log.recovery_point == 70
    disk.damage(f"{60:020d}.log", lambda content: content[:200])
    with pytest.raises(LogShorterThanFlushed, match="everything below 70"):
        disk.open(is_clean=False, recovery_point=70, **SMALL)
    checkpoint(disk, 70)
    accept_losses(disk.fs, FOLDER)
    assert disk.read(ACCEPTED_LOSSES) == b"0\n2\n50 60\n64 70\n"


def test_an_accepted_loss_covers_no_other_one_below_its_end(disk: Disk) -> None:
    fill(disk)
    disk.damage(THIRD, lambda content: content[:200])
    checkpoint(disk, 60)
    accept_losses(disk.fs, FOLDER)
    log = disk.open(is_clean=False, recovery_point=60, **SMALL)
    assert log.log_end_offset == 44
    for number in range(5):
        log.append(batch_of_size(100, 2, T0 + number))
    log.close()
    assert log.recovery_point == 54
    checkpoint(disk, 54)
    disk.damage(THIRD, lambda content: content[:-100])
    for is_clean in (True, False):
        with pytest.raises(LogShorterThanFlushed, match=r"ends at offset 52, but .* below 54"):
            disk.open(is_clean=is_clean, recovery_point=54, **SMALL)
    assert accept_losses(disk.fs, FOLDER)
    assert disk.open(is_clean=False, recovery_point=54, **SMALL).log_end_offset == 52


@pytest.mark.parametrize("is_dropped_at_once", [True, False])
def test_the_same_records_produced_again_and_lost_again_are_another_loss(
    disk: Disk, is_dropped_at_once: bool
) -> None:
    """A crash may come between the checkpoint and the end of the acceptance."""
    fill(disk)
    disk.damage(THIRD, lambda content: content[:500])
    checkpoint(disk, 60)
    accept_losses(disk.fs, FOLDER)
    log = disk.open(is_clean=False, recovery_point=60, **SMALL)
    checkpoint(disk, log.recovery_point)
    if is_dropped_at_once:
        drop_settled(disk.fs, FOLDER, log.log_end_offset)
    else:
        disk.fs = disk.fs.crash()
        log = disk.open(is_clean=False, recovery_point=50, **SMALL)
    assert disk.read(ACCEPTED_LOSSES) == b"0\n0\n"
    for number in range(5):
        log.append(batch_of_size(100, 2, T0 + number))
    log.close()
    assert log.recovery_point == 60
    checkpoint(disk, 60)
    disk.damage(THIRD, lambda content: content[:500])
    for is_clean in (True, False):
        with pytest.raises(LogShorterThanFlushed, match="ends at offset 50"):
            disk.open(is_clean=is_clean, recovery_point=60, **SMALL)


def test_a_loss_that_is_restored_after_all_is_not_accepted_any_more(disk: Disk) -> None:
    fill(disk)
    whole = disk.read(THIRD)
    disk.damage(THIRD, lambda content: content[:500])
    checkpoint(disk, 60)
    accept_losses(disk.fs, FOLDER)
    disk.write(THIRD, whole)
    assert disk.open(is_clean=False, recovery_point=60, **SMALL).log_end_offset == 60
    disk.damage(THIRD, lambda content: content[:500])
    with pytest.raises(LogShorterThanFlushed):
        disk.open(is_clean=False, recovery_point=60, **SMALL)


def test_a_log_that_is_whole_has_nothing_to_accept(disk: Disk) -> None:
    fill(disk)
    assert accept_losses(disk.fs, FOLDER) == []
    checkpoint(disk, 60)
    assert accept_losses(disk.fs, FOLDER) == []
    checkpoint(disk, 45)
    disk.damage(THIRD, flip(550))
    assert accept_losses(disk.fs, FOLDER) == []
    assert ACCEPTED_LOSSES not in disk.names()


def test_what_is_no_log_has_nothing_to_accept(disk: Disk) -> None:
    with pytest.raises(LogMissing):
        accept_losses(disk.fs, "/logs/other")
    disk.fs.write_file(f"/logs/{RECOVERY_POINTS}", b"garbage")
    with pytest.raises(CorruptCheckpoint):
        accept_losses(disk.fs, FOLDER)


# -- a segment that is missing in the middle -------------------------------------------------------


def lose_second(disk: Disk, *left: str) -> None:
    """The files of the second segment are gone, but for those with these suffixes."""
    for name in disk.names():
        if name.startswith(SECOND[:20]) and not name.endswith(left or ("-",)):
            disk.fs.remove(disk.path(name))


@pytest.mark.parametrize("left", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_segment_that_is_gone_in_the_middle_is_refused_with_nothing_changed(
    disk: Disk, left: str
) -> None:
    """Its index or snapshot tells of it, also after an orderly stop."""
    fill(disk)
    for suffix in (".snapshot", ".txnindex"):
        disk.write(f"{20:020d}{suffix}", b"any")
    lose_second(disk, left)
    before = content(disk)
    for is_clean in (True, False):
        with pytest.raises(FlushedRecordsMissing, match="from 20 on, before 40") as caught:
            disk.open(is_clean=is_clean, recovery_point=60, **SMALL)
        assert (caught.value.first_offset, caught.value.end_offset) == (20, 40)
        assert content(disk) == before


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("batch_position", [500, 900])
def test_it_is_refused_behind_a_damaged_segment_too(
    disk: Disk, batch_position: int, is_clean: bool
) -> None:
    fill(disk)
    disk.damage(FIRST, flip(batch_position + 11))
    lose_second(disk, ".timeindex")
    with pytest.raises(FlushedRecordsMissing, match="from 20 on, before 40"):
        disk.open(is_clean=is_clean, recovery_point=60, **SMALL)
    checkpoint(disk, 60)
    assert [entry[3:5] for entry in accept_losses(disk.fs, FOLDER)] == [(20, 40)]
    for _ in range(2):  # the index may come back with a loss of power
        assert disk.open(is_clean=is_clean, recovery_point=60, **SMALL).log_end_offset == 60
        disk.fs = disk.fs.crash("flushed", names="flushed")


@pytest.mark.parametrize("is_clean", [True, False])
def test_two_segments_that_are_gone_behind_a_damaged_one_are_both_told(
    disk: Disk, is_clean: bool
) -> None:
    fill(disk)
    disk.damage(FIRST, flip(500 + 11))
    lose_second(disk, ".index")
    disk.write(f"{30:020d}.index", b"")
    with pytest.raises(FlushedRecordsMissing, match="from 20 on, before 40"):
        disk.open(is_clean=is_clean, recovery_point=60, **SMALL)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("recovery_point", [40, 41, 60])
def test_it_is_noticed_without_any_trace(disk: Disk, recovery_point: int, is_clean: bool) -> None:
    fill(disk)
    lose_second(disk)
    before = content(disk)
    with pytest.raises(FlushedRecordsMissing, match="from 20 on, before 40"):
        disk.open(is_clean=is_clean, recovery_point=recovery_point, **SMALL)
    assert content(disk) == before


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_tail_of_a_flushed_segment_that_is_gone_is_noticed(disk: Disk, is_clean: bool) -> None:
    fill(disk)
    disk.damage(SECOND, lambda content: content[:700])
    with pytest.raises(FlushedRecordsMissing, match="from 34 on, before 40"):
        disk.open(is_clean=is_clean, recovery_point=60, **SMALL)


@pytest.mark.parametrize("is_compacted", [True, False])
@pytest.mark.parametrize("cut", [700, 740])
def test_a_loss_in_the_segment_of_the_recovery_point_is_shown_and_accepted(
    disk: Disk, cut: int, is_compacted: bool
) -> None:
    """Between two batches, or within one: the segment behind it does not say that all is there."""
    if is_compacted and cut == 700:
        return  # the gap may be compaction's
    config = {**SMALL, "cleanup_policy": "compact" if is_compacted else "delete"}
    fill(disk)
    disk.damage(SECOND, lambda content: content[:cut])
    checkpoint(disk, 36)
    with pytest.raises(LogShorterThanFlushed, match="ends at offset 34, but"):
        disk.open(is_clean=False, recovery_point=36, **config)
    (lost,) = accept_losses(disk.fs, FOLDER, is_compacted=is_compacted)
    assert lost[:5] == ("lost", SECOND, 0, 34, 36)
    log = disk.open(is_clean=False, recovery_point=36, **config)
    assert offsets_of(log) == list(range(34))


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("left", [".index", ".log"])  # .log: nothing is left
def test_a_segment_that_is_missing_opens_once_that_is_accepted(
    disk: Disk, left: str, is_clean: bool
) -> None:
    fill(disk)
    lose_second(disk)
    if left == ".index":
        disk.write(SECOND.replace(".log", ".index"), b"")
    checkpoint(disk, 60)
    (lost,) = accept_losses(disk.fs, FOLDER)
    assert lost[:5] == ("lost", SECOND, 0, 20, 40)
    assert disk.read(ACCEPTED_LOSSES) == b"0\n1\n20 40\n"
    disk.fs = disk.fs.crash("flushed", names="flushed")
    log = disk.open(is_clean=is_clean, recovery_point=60, **SMALL)
    assert offsets_of(log) == [*range(20), *range(40, 60)]
    assert lost in log.mended
    assert log.append(batch(timestamp=T0)).base_offset == 60
    log.close()
    again = disk.open(is_clean=False, recovery_point=61, **SMALL)
    assert offsets_of(again) == [*range(20), *range(40, 61)]
    assert accept_losses(disk.fs, FOLDER) == [lost]
    assert disk.read(ACCEPTED_LOSSES) == b"0\n1\n20 40\n"


def test_an_acceptance_outlives_an_index_entry_at_the_end_of_a_shorter_file(disk: Disk) -> None:
    """The index of the longer file has an entry exactly where the file ends now."""
    fill(disk)
    entries = disk.open(recovery_point=60, **SMALL).segments[1].offset_index
    position = entries[len(entries) - 1].position
    disk.damage(SECOND, lambda content: content[:position])
    checkpoint(disk, 60)
    (lost,) = accept_losses(disk.fs, FOLDER)
    assert (lost.first_offset, lost.end_offset) == (20 + position // 50, 40)
    for _ in range(3):
        log = disk.open(is_clean=False, recovery_point=60, **SMALL)
        assert offsets_of(log) == [*range(20 + position // 50), *range(40, 60)]
        log.close()


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_an_emptied_segment_is_noticed_after_an_orderly_stop(disk: Disk, name: str) -> None:
    """Its size tells, without a read."""
    fill(disk)
    disk.write(name, b"")
    before = content(disk)
    with pytest.raises(FlushedRecordsMissing) as caught:
        disk.open(recovery_point=60, **SMALL)
    base = int(name[:20])
    assert (caught.value.first_offset, caught.value.end_offset) == (base, base + 20)
    assert content(disk) == before


def test_all_that_is_lost_is_accepted_at_once_and_stays_as_long_as_it_is_needed(
    disk: Disk,
) -> None:
    fill(disk)
    lose_second(disk)
    disk.damage(THIRD, lambda content: content[:500])
    checkpoint(disk, 60)
    lost = accept_losses(disk.fs, FOLDER)
    assert [(entry.first_offset, entry.end_offset) for entry in lost] == [(20, 40), (50, 60)]
    operations = disk.fs.operations
    drop_settled(disk.fs, FOLDER, 50)
    assert disk.fs.operations == operations
    disk.open(is_clean=False, recovery_point=60, **SMALL)
    assert disk.read(ACCEPTED_LOSSES) == b"0\n2\n20 40\n50 60\n"


def test_a_gap_that_ends_at_the_recovery_point_is_accepted(disk: Disk) -> None:
    fill(disk)
    lose_second(disk)
    checkpoint(disk, 40)
    assert [entry[3:5] for entry in accept_losses(disk.fs, FOLDER)] == [(20, 40)]
    log = disk.open(is_clean=False, recovery_point=40, **SMALL)
    assert offsets_of(log) == [*range(20), *range(40, 60)]


def test_a_segment_that_retention_has_renamed_is_nothing_to_accept(disk: Disk) -> None:
    fill(disk)
    disk.fs.rename(disk.path(SECOND), disk.path(SECOND + ".deleted"))
    checkpoint(disk, 60)
    assert accept_losses(disk.fs, FOLDER) == []


def test_an_acceptance_that_cannot_be_read_or_dropped_keeps_no_whole_log_closed(
    disk: Disk,
) -> None:
    fill(disk)
    checkpoint(disk, 60)
    for accepted in (b"garbage", b"0\n1\n50 60\n"):
        disk.write(ACCEPTED_LOSSES, accepted)
        with disk.fs.failing(DiskFull, "append"):
            assert disk.open(recovery_point=60, **SMALL).log_end_offset == 60
        assert disk.read(ACCEPTED_LOSSES) == accepted


def test_a_larger_gap_than_the_accepted_one_is_another_loss(disk: Disk) -> None:
    fill(disk, 40)
    lose_second(disk)
    checkpoint(disk, 80)
    accept_losses(disk.fs, FOLDER)
    disk.fs.remove(disk.path(THIRD))
    for is_clean in (True, False):
        with pytest.raises(FlushedRecordsMissing, match="from 20 on, before 60"):
            disk.open(is_clean=is_clean, recovery_point=80, **SMALL)
    accept_losses(disk.fs, FOLDER)
    log = disk.open(is_clean=False, recovery_point=80, **SMALL)
    assert offsets_of(log) == [*range(20), *range(60, 80)]
    assert disk.read(ACCEPTED_LOSSES) == b"0\n1\n20 60\n"


def test_an_acceptance_goes_with_its_gap(disk: Disk) -> None:
    fill(disk)
    second = {name: data for name, data in content(disk).items() if name.startswith(SECOND[:20])}
    lose_second(disk)
    checkpoint(disk, 60)
    accept_losses(disk.fs, FOLDER)
    for name, data in second.items():  # restored from a copy after all
        disk.write(name, data)
    log = disk.open(is_clean=False, recovery_point=60, **SMALL)
    assert offsets_of(log) == list(range(60))
    assert disk.read(ACCEPTED_LOSSES) == b"0\n0\n"


def test_an_acceptance_outlives_damage_that_hides_its_gap(disk: Disk) -> None:
    fill(disk)
    lose_second(disk)
    checkpoint(disk, 60)
    accept_losses(disk.fs, FOLDER)
    disk.damage(FIRST, flip(911))
    disk.open(is_clean=False, recovery_point=60, **SMALL)
    disk.damage(FIRST, flip(911))  # restored
    log = disk.open(is_clean=False, recovery_point=60, **SMALL)
    assert offsets_of(log) == [*range(20), *range(40, 60)]


def test_a_segment_that_is_restored_without_its_indexes_mends_the_log(disk: Disk) -> None:
    fill(disk)
    second = disk.read(SECOND)
    lose_second(disk, ".timeindex")
    with pytest.raises(FlushedRecordsMissing):
        disk.open(recovery_point=60, **SMALL)
    disk.write(SECOND, second)
    assert offsets_of(disk.open(is_clean=False, recovery_point=60, **SMALL)) == list(range(60))


def test_an_orderly_stop_has_flushed_everything_whatever_the_checkpoint_says(disk: Disk) -> None:
    """So nothing behind a gap is set aside: where it comes from, somebody has to say."""
    fill(disk)
    lose_second(disk, ".index")
    before = disk.names()
    with pytest.raises(FlushedRecordsMissing):
        disk.open(is_clean=True, recovery_point=0, **SMALL)
    assert disk.names() == before


def test_an_index_without_its_log_where_nothing_is_missing_is_a_leftover(disk: Disk) -> None:
    fill(disk)
    disk.write(f"{10:020d}.index", b"")
    disk.write(f"{10:020d}.snapshot", b"")
    for is_clean in (True, False):
        log = Disk(disk.fs.crash()).open(is_clean=is_clean, recovery_point=60, **SMALL)
        assert offsets_of(log) == list(range(60))
        told = [mended.file for mended in log.mended if mended.kind == "removed"]
        # Each orderly stop leaves a snapshot that the next one makes useless: that is not told.
        snapshot = [] if is_clean else [f"{10:020d}.snapshot"]
        assert told == [f"{10:020d}.index", *snapshot]


def test_a_gap_below_the_log_start_is_no_loss(disk: Disk) -> None:
    fill(disk)
    lose_second(disk, ".index")
    for is_clean in (True, False):
        again = Disk(disk.fs.crash())
        log = again.open(is_clean=is_clean, recovery_point=60, log_start_offset=40, **SMALL)
        assert offsets_of(log) == list(range(40, 60))
    checkpoint(disk, 60, 40)
    assert accept_losses(disk.fs, FOLDER) == []
    checkpoint(disk, 60, 39)
    assert len(accept_losses(disk.fs, FOLDER)) == 1


def test_a_gap_of_compaction_below_the_recovery_point_is_no_loss(disk: Disk) -> None:
    fill(disk)
    lose_second(disk, ".index")
    for is_clean in (True, False):
        again = Disk(disk.fs.crash())
        log = again.open(is_clean=is_clean, recovery_point=60, cleanup_policy="compact", **SMALL)
        assert offsets_of(log) == [*range(20), *range(40, 60)]
    checkpoint(disk, 60)
    assert accept_losses(disk.fs, FOLDER, is_compacted=True) == []


@pytest.mark.parametrize("is_damaged", [True, False])
def test_an_index_behind_a_damaged_segment_that_was_compacted_proves_no_loss(
    disk: Disk, is_damaged: bool
) -> None:
    """Compaction put two segments into one. A crash brought back the name of the second's index.

    Where the damage hides how far the first one reaches, the same files could tell of a loss.
    """
    write_offsets(disk.fs, f"/logs/{CLEANER_OFFSETS}", {PARTITION: 0})
    disk.write(FIRST, b"".join(bytes(batch(2, base_offset=base)) for base in (0, 8, 18, 38)))
    disk.write(THIRD, bytes(batch(20, base_offset=40)))
    disk.write(f"{20:020d}.index", b"")
    if is_damaged:
        size = len(batch(2))
        disk.damage(FIRST, flip(2 * size + 11))  # its length: what is behind it cannot be found
    log = disk.open(recovery_point=60, cleanup_policy="compact")
    assert log.log_end_offset == 60
    assert [entry.file for entry in log.mended if entry.kind == "removed"] == [f"{20:020d}.index"]


def test_below_where_compaction_has_come_no_segment_is_read_for_gaps(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a gap behind nearly every segment, and each would be read to its end."""
    fill(disk)
    lose_second(disk)
    write_offsets(disk.fs, f"/logs/{CLEANER_OFFSETS}", {PARTITION: 40})
    read: list[str] = []
    real = MemoryFile.read

    def noted(file: MemoryFile, size_bytes: int, position: int) -> bytes:
        read.append(file.path)
        return real(file, size_bytes, position)

    monkeypatch.setattr(MemoryFile, "read", noted)
    gaps = Gaps(disk.fs, FOLDER, is_compacted=True)
    assert gaps.missing_behind(Segment(disk.fs, FOLDER, 0, LogConfig()), 40) is None
    assert read == []


def rename_second(disk: Disk, *left: str) -> None:
    """The files of the second segment are renamed, but for those with these suffixes."""
    for name in disk.names():
        if name.startswith(SECOND[:20]) and not name.endswith(left or ("-",)):
            disk.fs.rename(disk.path(name), disk.path(name + ".deleted"))


@pytest.mark.parametrize("left", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_segment_that_somebody_renamed_after_an_orderly_stop_is_refused(
    disk: Disk, left: str
) -> None:
    """Retention renames the indexes, too, and removes the snapshot: all before a stop ends."""
    fill(disk)
    for suffix in (".snapshot", ".txnindex"):
        disk.write(f"{20:020d}{suffix}", b"any")
    rename_second(disk, left)
    before = content(disk)
    with pytest.raises(FlushedRecordsMissing, match="from 20 on, before 40"):
        disk.open(recovery_point=60, **SMALL)
    assert content(disk) == before
    checkpoint(disk, 60)
    disk.fs.write_file("/logs/.kafka_cleanshutdown", b"")
    assert [entry[3:5] for entry in accept_losses(disk.fs, FOLDER)] == [(20, 40)]
    assert offsets_of(disk.open(recovery_point=60, **SMALL)) == [*range(20), *range(40, 60)]


@pytest.mark.parametrize("is_clean", [True, False])
def test_one_that_may_be_retentions_is_kept_and_told(disk: Disk, is_clean: bool) -> None:
    fill(disk)
    rename_second(disk)
    for _ in range(2):
        log = disk.open(is_clean=is_clean, recovery_point=60, **SMALL)
        (gap,) = (entry for entry in log.mended if entry.kind == "gap")
        assert gap[:5] == ("gap", SECOND + ".deleted", 1000, 20, 40)
        log.close()
    assert disk.names(".deleted") == [SECOND + ".deleted"]


def test_a_segment_that_somebody_renamed_is_kept_above_the_recovery_point_too(disk: Disk) -> None:
    fill(disk)
    rename_second(disk, ".index")
    before = disk.read(SECOND + ".deleted")
    with pytest.raises(FlushedRecordsMissing):
        disk.open(recovery_point=20, **SMALL)
    assert disk.read(SECOND + ".deleted") == before


def test_what_stays_of_it_after_a_crash_is_not_taken_for_somebodys(disk: Disk) -> None:
    """An index that kept its name is removed for good when the log opens after the crash."""
    fill(disk)
    rename_second(disk, ".index")
    disk.open(is_clean=False, recovery_point=60, **SMALL).close()
    disk.fs = disk.fs.crash("flushed", names="flushed")
    assert disk.open(recovery_point=60, **SMALL).log_end_offset == 60


def test_a_segment_that_retention_was_renaming_is_no_loss(disk: Disk) -> None:
    """A crash came before its indexes were renamed, too."""
    fill(disk)
    for name in (FIRST, SECOND):
        disk.fs.rename(disk.path(name), disk.path(name + ".deleted"))
    log = disk.open(is_clean=False, recovery_point=60, **SMALL)
    assert offsets_of(log) == list(range(40, 60))


@pytest.mark.parametrize("is_clean", [True, False])
def test_of_a_flushed_segment_only_the_end_is_read_for_gaps(disk: Disk, is_clean: bool) -> None:
    """The last index entry, and what lies behind it."""
    fill(disk)
    disk.damage(FIRST, flip(300))  # in the middle: a look at all batches would end there
    assert disk.open(is_clean=is_clean, recovery_point=60, **SMALL).log_end_offset == 60


@pytest.mark.parametrize("left", [b"", b"1234567", bytes(8), b"\x7f" * 8])
def test_an_index_that_leads_nowhere_does_not_tell_where_a_segment_ends(
    disk: Disk, left: bytes
) -> None:
    fill(disk)
    disk.write(f"{20:020d}.index", left)
    disk.write(SECOND, disk.read(SECOND) + b"torn")
    segment = Segment(disk.fs, FOLDER, 20, LogConfig(**SMALL))
    assert end_by_index(segment) is None
    segment.close()


def test_a_last_batch_that_is_larger_than_the_look_tells_where_it_ends(disk: Disk) -> None:
    disk.write(FIRST, bytes(batch(2)) + bytes(batch(3, value=bytes(LOOK_BYTES), base_offset=2)))
    segment = Segment(disk.fs, FOLDER, 0, LogConfig())
    disk.write(f"{0:020d}.index", b"")
    assert end_by_index(segment) == 5
    segment.close()
    disk.damage(FIRST, lambda content: content[:-1])
    segment = Segment(disk.fs, FOLDER, 0, LogConfig())
    assert end_by_index(segment) is None
    segment.close()


# -- what is no loss -------------------------------------------------------------------------------


def test_records_below_the_log_start_are_no_loss(disk: Disk) -> None:
    """Kafka raises the recovery point to the log start, flushed or not."""
    fill(disk)
    disk.damage(THIRD, flip(550))
    checkpoint(disk, 58, 58)
    assert accept_losses(disk.fs, FOLDER) == []
    log = disk.open(is_clean=False, recovery_point=58, log_start_offset=58, **SMALL)
    assert (log.log_start_offset, log.log_end_offset) == (58, 58)


def test_a_log_that_retention_emptied_is_whole(disk: Disk) -> None:
    log = disk.open(retention_ms=1, file_delete_delay_ms=0)
    log.append(batch(5, timestamp=T0))
    disk.clock.advance(10**9)
    assert log.delete_old_segments()
    log.purge_deleted()
    log.flush()
    assert log.recovery_point == 5
    for is_clean in (True, False):
        again = Disk(disk.fs.crash())
        opened = again.open(is_clean=is_clean, recovery_point=5, log_start_offset=5)
        assert (opened.log_end_offset, opened.mended) == (5, ()) or not is_clean


def test_deleted_records_are_no_loss(disk: Disk) -> None:
    log = disk.open()
    log.append(batch(5))
    log.delete_records(5)
    assert log.recovery_point == 5
    again = Disk(disk.fs.crash("flushed", names="flushed"))
    opened = again.open(is_clean=False, recovery_point=5, log_start_offset=5)
    assert (opened.log_start_offset, opened.log_end_offset) == (5, 5)


def test_a_recovery_point_in_a_gap_of_compaction_is_no_loss(disk: Disk) -> None:
    disk.write(FIRST, bytes(batch(2)) + bytes(batch(2, base_offset=7)))
    disk.write(SECOND, bytes(batch(2, base_offset=20)))
    log = disk.open(is_clean=False, recovery_point=15)
    assert offsets_of(log) == [0, 1, 7, 8, 20, 21]


def test_a_copy_of_files_without_checkpoints_opens(disk: Disk) -> None:
    """The documented backup: the partition's folder, without what was flushed."""
    fill(disk)
    disk.damage(THIRD, lambda content: content[:550])
    log = disk.open(is_clean=False, **SMALL)
    assert offsets_of(log) == list(range(50))


def test_an_older_copy_beside_a_newer_checkpoint_is_refused_until_it_is_accepted(
    disk: Disk,
) -> None:
    log = fill(disk, 20)
    old = content(disk)
    log = disk.open(**SMALL)
    log.append(batch(6, timestamp=T0))
    log.close()
    checkpoint(disk, 46)
    for name in disk.names():
        disk.fs.remove(disk.path(name))
    for name, data in old.items():
        disk.write(name, data)
    with pytest.raises(LogShorterThanFlushed, match="ends at offset 40, but everything below 46"):
        disk.open(is_clean=False, recovery_point=46, **SMALL)
    accept_losses(disk.fs, FOLDER)
    assert disk.open(is_clean=False, recovery_point=46, **SMALL).log_end_offset == 40


def test_a_newer_copy_beside_an_older_checkpoint_opens(disk: Disk) -> None:
    fill(disk, 20)
    assert disk.open(is_clean=False, recovery_point=12, **SMALL).log_end_offset == 40


def test_a_log_of_one_segment_that_is_whole_has_nothing_to_accept(disk: Disk) -> None:
    fill(disk, 5)
    checkpoint(disk, 10)
    assert accept_losses(disk.fs, FOLDER) == []


def test_a_first_segment_that_somebody_renamed_after_an_orderly_stop_is_refused(
    disk: Disk,
) -> None:
    """Nobody else would notice: retention takes the first segments, too, but renames all files."""
    fill(disk)
    disk.fs.rename(disk.path(FIRST), disk.path(FIRST + ".deleted"))
    before = content(disk)
    with pytest.raises(FlushedRecordsMissing, match="from 0 on, before 20"):
        disk.open(recovery_point=60, **SMALL)
    assert content(disk) == before
    checkpoint(disk, 60)
    disk.fs.write_file("/logs/.kafka_cleanshutdown", b"")
    assert [entry[3:5] for entry in accept_losses(disk.fs, FOLDER)] == [(0, 20)]
    assert offsets_of(disk.open(recovery_point=60, **SMALL)) == [*range(20, 60)]


def test_below_the_log_start_a_renamed_first_segment_is_nothing(disk: Disk) -> None:
    fill(disk)
    disk.fs.rename(disk.path(FIRST), disk.path(FIRST + ".deleted"))
    log = disk.open(recovery_point=60, log_start_offset=20, **SMALL)
    assert offsets_of(log) == [*range(20, 60)]


def test_after_an_orderly_stop_a_gap_is_accepted_whatever_the_checkpoint_says(disk: Disk) -> None:
    """Such a log is refused, too: the way out must not need the checkpoint that is lost."""
    fill(disk)
    lose_second(disk)
    disk.fs.write_file("/logs/.kafka_cleanshutdown", b"")
    with pytest.raises(FlushedRecordsMissing):
        disk.open(**SMALL)
    assert [entry[3:5] for entry in accept_losses(disk.fs, FOLDER)] == [(20, 40)]
    assert offsets_of(disk.open(is_clean=False, **SMALL)) == [*range(20), *range(40, 60)]
    assert disk.names(".aside-0") == []
