"""Disks that are filled and lost: the kernel says no, and what was there is there again."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.disks import OWN_MOUNTS, own_mounts, put_back, small_disks, take_away

FILLS = """
import errno, sys
from pathlib import Path
from tests.soak.disks import small_disks

with small_disks(Path(sys.argv[1]), ["one"]) as disks:
    file = Path(sys.argv[1], "one", "file")
    open_file = file.open("ab", buffering=0)
    open_file.write(b"before")
    for _ in range(2):
        disks["one"].fill()
        try:
            open_file.write(b"x" * 8192)
            while open_file.write(b"x" * 8192):
                pass
        except OSError as error:
            print(errno.errorcode[error.errno])
        disks["one"].make_room()
        open_file.truncate(6)
    open_file.write(b" and behind")
    open_file.close()
"""


def test_a_log_dir_that_is_lost_cannot_be_made_again_and_comes_back_as_it_was(
    tmp_path: Path,
) -> None:
    log_dir = tmp_path / "a"
    log_dir.mkdir()
    with (log_dir / "file").open("ab", buffering=0) as file:
        file.write(b"before")
        take_away(log_dir)
        file.write(b", meanwhile")  # who has it open goes on
        with pytest.raises(NotADirectoryError):
            (log_dir / "file").open("ab")
        with pytest.raises(FileExistsError):
            log_dir.mkdir()
        put_back(log_dir)
    assert (log_dir / "file").read_bytes() == b"before, meanwhile"
    assert os.listdir(tmp_path) == ["a"]


def test_a_small_disk_is_really_full_and_its_contents_stay(tmp_path: Path) -> None:
    command = own_mounts()
    if command is None:
        pytest.skip("this user may not mount a file system")
    done = subprocess.run(
        [*command, sys.executable, "-c", FILLS, str(tmp_path)],
        env=os.environ | {OWN_MOUNTS: "1", "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [errno.errorcode[errno.ENOSPC]] * 2
    assert os.listdir(tmp_path) == ["one"]
    assert (tmp_path / "one" / "file").read_bytes() == b"before and behind"


def test_without_mounts_of_its_own_a_program_has_no_disk_to_fill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(OWN_MOUNTS, raising=False)
    with small_disks(tmp_path, ["one"]) as disks:
        assert disks == {}
