"""What a person decides about a log's records outlives a loss of power."""

import pytest

from raylog.storage.state.properties import CLEAN_SHUTDOWN
from raylog.storage.testing.logs import FOLDER, Disk, flip, offsets_of
from raylog.storage.tools.decide import restore
from tests.harness.small_logs import SECOND, SMALL, fill


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
