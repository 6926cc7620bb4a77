"""``raylog log-dirs identify``: a lost meta.properties comes back, and nothing is made up."""

import re
import shlex
from pathlib import Path

import pytest

from raylog.storage.errors import IdentityMissing
from raylog.storage.state.properties import read_meta
from tests.harness.real_dirs import CLUSTER_ID, FS, make, start, stop
from tests.harness.shell import run_here


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def lose(disk: Path) -> str:
    """A log dir with a partition, whose identity is lost; returns its directory id."""
    log_dir = start(disk)
    stop(log_dir, make(log_dir))
    (disk / "meta.properties").unlink()
    return log_dir.directory_id


def test_the_command_that_the_error_names_writes_it_again(disk: Path) -> None:
    directory_id = lose(disk)
    with pytest.raises(IdentityMissing) as raised:
        start(disk)
    (command,) = re.findall("`raylog ([^`]*)`", raised.value.advice)
    other = disk.parent / "other"
    running = start(other)
    options = ["--directory-id", directory_id, "--like", str(other)]
    refused = run_here(*shlex.split(command), *options)
    assert (refused.returncode, read_meta(FS, str(disk))) == (1, None)
    assert f"{other} is locked by another process; stop the broker" in refused.stderr
    running.close(clean=True)
    done = run_here(*shlex.split(command), *options)
    assert done.lines() == [f"{disk} is log dir {directory_id} of node 1 in cluster {CLUSTER_ID}"]
    assert start(disk).directory_id == directory_id


def test_without_the_directory_id_nothing_is_written(disk: Path) -> None:
    lose(disk)
    done = run_here("log-dirs", "identify", str(disk), "--cluster-id", "c", "--node-id", "1")
    assert (done.returncode, read_meta(FS, str(disk))) == (2, None)
    assert "--directory-id" in done.stderr


def test_a_log_dir_that_has_an_identity_keeps_it(disk: Path) -> None:
    directory_id = lose(disk)
    arguments = ["log-dirs", "identify", str(disk), "--directory-id", directory_id]
    arguments += ["--cluster-id", CLUSTER_ID, "--node-id", "1"]
    assert run_here(*arguments).returncode == 0
    again = run_here(*arguments)
    assert again.returncode == 1
    assert f"it has a meta.properties: its id is {directory_id}" in again.stderr


def test_that_the_log_dir_is_in_use_is_said_before_more_is_asked_for(disk: Path) -> None:
    running = start(disk)
    done = run_here("log-dirs", "identify", str(disk), "--directory-id", running.directory_id)
    assert (done.returncode, "--like" in done.stderr) == (1, False)
    assert f"{disk} is locked by another process; stop the broker" in done.stderr
    running.close(clean=True)


def test_what_is_refused_changes_nothing(disk: Path) -> None:
    directory_id = lose(disk)
    (disk / ".lock").unlink(missing_ok=True)
    before = sorted(path.name for path in disk.iterdir())
    done = run_here("log-dirs", "identify", str(disk), "--directory-id", directory_id)
    assert (done.returncode, "--like" in done.stderr) == (1, True)
    assert sorted(path.name for path in disk.iterdir()) == before
