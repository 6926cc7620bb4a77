"""From where a log is opened: its recovery point and its start."""

from dataclasses import replace
from pathlib import Path

import pytest

from raylog.actors.partition.log_opening import checkpointed_offsets, open_partition
from raylog.actors.partition.spec import LogSpec
from raylog.storage.errors import LogMissing
from raylog.storage.files import RealFileSystem
from raylog.storage.state.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS, write_offsets
from raylog.storage.testing.logs import PARTITION
from tests.harness.log_alone import SPEC


@pytest.fixture
def spec(tmp_path: Path) -> LogSpec:
    """Of a first start, since which the checkpoints have moved on."""
    for name, offset in ((LOG_START_OFFSETS, 40), (RECOVERY_POINTS, 90)):
        write_offsets(RealFileSystem(), str(tmp_path / name), {PARTITION: offset})
    return replace(SPEC, folder=str(tmp_path / "t-0"), recovery_point=9, log_start_offset=4)


def test_a_first_start_goes_by_what_its_log_manager_has_read(spec: LogSpec) -> None:
    assert checkpointed_offsets(spec, is_restart=False) == (9, 4)


def test_a_restart_reads_the_checkpoints_again(spec: LogSpec) -> None:
    assert checkpointed_offsets(spec, is_restart=True) == (90, 40)


def test_a_restart_brings_no_deleted_records_back(spec: LogSpec, tmp_path: Path) -> None:
    (tmp_path / LOG_START_OFFSETS).unlink()
    (tmp_path / RECOVERY_POINTS).unlink()
    assert checkpointed_offsets(spec, is_restart=True) == (0, 4)


def test_of_a_damaged_checkpoint_of_log_starts_the_whole_lines_are_used(
    spec: LogSpec, tmp_path: Path
) -> None:
    for name in (LOG_START_OFFSETS, RECOVERY_POINTS):
        (tmp_path / name).write_text(f"0\n9\n{PARTITION.topic} {PARTITION.partition} 40\n")
    assert checkpointed_offsets(spec, is_restart=True) == (0, 40)


@pytest.mark.parametrize("is_restart", [False, True])
def test_a_folder_that_is_missing_is_a_log_that_is_missing(spec: LogSpec, is_restart: bool) -> None:
    with pytest.raises(LogMissing, match="does not exist"):
        open_partition(spec, lambda progress: None, is_restart=is_restart)
    assert not RealFileSystem().exists(spec.folder)
