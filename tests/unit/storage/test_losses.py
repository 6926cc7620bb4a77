"""Fsynced records that are missing are noticed; who accepts that says so once."""

import pytest

from raylog.storage.errors import CorruptCheckpoint, LogMissing, LogShorterThanFlushed
from raylog.storage.losses import accept_loss
from raylog.storage.state.checkpoints import (
    ACCEPTED_LOSSES,
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
    lost = accept_loss(disk.fs, FOLDER)
    assert lost is not None
    assert lost[:5] == ("lost", THIRD, 0, 50, 60)
    assert disk.read(ACCEPTED_LOSSES) == b"0\n1\n50 60\n"
    log = disk.open(is_clean=False, recovery_point=60, **SMALL)
    assert (log.log_end_offset, log.recovery_point) == (50, 50)
    assert lost in log.mended
    assert disk.names(".aside-0") == [THIRD + ".aside-0"]
    assert log.append(batch(timestamp=T0)).base_offset == 50


def test_a_loss_is_accepted_once_and_survives(disk: Disk) -> None:
    fill(disk)
    disk.damage(THIRD, flip(550))
    checkpoint(disk, 60)
    first = accept_loss(disk.fs, FOLDER)
    disk.fs = disk.fs.crash("flushed", names="flushed")
    assert accept_loss(disk.fs, FOLDER) == first
    assert disk.read(ACCEPTED_LOSSES) == b"0\n1\n50 60\n"
    for _ in range(3):  # the checkpoint of the recovery point may be written late
        log = disk.open(is_clean=False, recovery_point=60, **SMALL)
        log.append(batch(timestamp=T0))
    assert log.log_end_offset == 53


def test_the_next_loss_is_noticed_again(disk: Disk) -> None:
    fill(disk)
    disk.damage(THIRD, flip(550))
    checkpoint(disk, 60)
    accept_loss(disk.fs, FOLDER)
    log = disk.open(is_clean=False, recovery_point=60, **SMALL)
    for number in range(10):
        log.append(batch_of_size(100, 2, T0 + number))
    log.close()
    assert log.recovery_point == 70
    disk.damage(f"{60:020d}.log", lambda content: content[:200])
    with pytest.raises(LogShorterThanFlushed, match="everything below 70"):
        disk.open(is_clean=False, recovery_point=70, **SMALL)
    checkpoint(disk, 70)
    accept_loss(disk.fs, FOLDER)
    assert disk.read(ACCEPTED_LOSSES) == b"0\n2\n50 60\n64 70\n"


def test_an_accepted_loss_covers_no_other_one_below_its_end(disk: Disk) -> None:
    fill(disk)
    disk.damage(THIRD, lambda content: content[:200])
    checkpoint(disk, 60)
    accept_loss(disk.fs, FOLDER)
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
    assert accept_loss(disk.fs, FOLDER)
    assert disk.open(is_clean=False, recovery_point=54, **SMALL).log_end_offset == 52


def test_a_log_that_is_whole_has_nothing_to_accept(disk: Disk) -> None:
    fill(disk)
    assert accept_loss(disk.fs, FOLDER) is None
    checkpoint(disk, 60)
    assert accept_loss(disk.fs, FOLDER) is None
    checkpoint(disk, 45)
    disk.damage(THIRD, flip(550))
    assert accept_loss(disk.fs, FOLDER) is None
    assert ACCEPTED_LOSSES not in disk.names()


def test_what_is_no_log_has_nothing_to_accept(disk: Disk) -> None:
    with pytest.raises(LogMissing):
        accept_loss(disk.fs, "/logs/other")
    disk.fs.write_file(f"/logs/{RECOVERY_POINTS}", b"garbage")
    with pytest.raises(CorruptCheckpoint):
        accept_loss(disk.fs, FOLDER)


# -- what is no loss -------------------------------------------------------------------------------


def test_records_below_the_log_start_are_no_loss(disk: Disk) -> None:
    """Kafka raises the recovery point to the log start, flushed or not."""
    fill(disk)
    disk.damage(THIRD, flip(550))
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
    accept_loss(disk.fs, FOLDER)
    assert disk.open(is_clean=False, recovery_point=46, **SMALL).log_end_offset == 40


def test_a_newer_copy_beside_an_older_checkpoint_opens(disk: Disk) -> None:
    fill(disk, 20)
    assert disk.open(is_clean=False, recovery_point=12, **SMALL).log_end_offset == 40
