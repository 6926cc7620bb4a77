"""What a person decides about a log's records outlives a loss of power."""

import pytest

from raylog.storage.state.checkpoints import RECOVERY_POINTS, write_offsets
from raylog.storage.state.properties import CLEAN_SHUTDOWN
from raylog.storage.testing.logs import FOLDER, PARTITION, Disk, flip, offsets_of
from raylog.storage.tools.decide import accept, look_for_loss, restore
from tests.harness.small_logs import FIRST, SECOND, SMALL, THIRD, fill


@pytest.mark.parametrize("names", ["flushed", "all"])
def test_after_a_restore_no_loss_of_power_brings_the_marker_of_a_clean_stop_back(
    disk: Disk, names: str
) -> None:
    """Under it the next start would not read what was restored."""
    fill(disk, 20)
    disk.damage(SECOND, flip(550))
    disk.open(is_clean=False, **SMALL).close()
    disk.fs.write_file(f"/logs/{CLEAN_SHUTDOWN}", b"{}")
    disk.fs.sync_dir("/logs")
    restore(disk.fs, FOLDER, SECOND + ".aside-0", allow_gap=True)
    after = Disk(disk.fs.crash("flushed", names=names))  # type: ignore[arg-type]
    assert not after.fs.exists(f"/logs/{CLEAN_SHUTDOWN}")
    assert offsets_of(after.open(is_clean=False, **SMALL)) == [*range(30), *range(32, 40)]


@pytest.mark.parametrize("has_third", [True, False])
def test_with_a_recovery_point_where_a_segment_begins_a_loss_is_a_gap_or_the_end(
    disk: Disk, has_third: bool
) -> None:
    """If the segment is there, the log does not end before it: only the gap's records are looked
    for. If it is gone, also those behind the end."""
    fill(disk)
    whole = disk.read(SECOND) + disk.read(THIRD)
    disk.write(SECOND + ".aside-0", whole)
    disk.damage(SECOND, lambda content: content[:700])
    if not has_third:
        disk.fs.remove(disk.path(THIRD))
    write_offsets(disk.fs, f"/logs/{RECOVERY_POINTS}", {PARTITION: 40})
    loss = look_for_loss(disk.fs, FOLDER, is_compacted=False)
    assert [lost[3:5] for lost in loss.lost] == [(34, 40)]
    assert loss.kept == ((SECOND + ".aside-0", 34, 40 if has_third else 60),)
    assert FIRST in disk.names(".log")


def test_a_renamed_segment_is_shown_and_a_file_of_no_offset_is_left_alone(disk: Disk) -> None:
    fill(disk)
    disk.fs.rename(disk.path(SECOND), disk.path(SECOND + ".deleted"))
    disk.write("20.log", disk.read(FIRST))
    disk.write("notes.log", b"")
    write_offsets(disk.fs, f"/logs/{RECOVERY_POINTS}", {PARTITION: 60})
    disk.fs.write_file(f"/logs/{CLEAN_SHUTDOWN}", b"{}")
    loss = look_for_loss(disk.fs, FOLDER, is_compacted=False)
    assert [lost[3:5] for lost in loss.lost] == [(20, 40)]
    assert loss.kept == ((SECOND + ".deleted", 20, 40),)


def test_what_is_accepted_after_an_orderly_stop_is_what_was_shown(disk: Disk) -> None:
    """The marker of the stop says what is lost where the checkpoint says nothing, and goes."""
    fill(disk)
    disk.fs.remove(disk.path(SECOND))
    disk.fs.write_file(f"/logs/{CLEAN_SHUTDOWN}", b"{}")
    loss = look_for_loss(disk.fs, FOLDER, is_compacted=False)
    assert [lost[3:5] for lost in loss.lost] == [(20, 40)]
    accept(disk.fs, FOLDER, is_compacted=False)
    assert not disk.fs.exists(f"/logs/{CLEAN_SHUTDOWN}")
    log = disk.open(is_clean=False, **SMALL)
    assert offsets_of(log) == [*range(20), *range(40, 60)]
    assert disk.names(".aside-0") == []
