"""The files by which the command line finds the brokers of this machine."""

import errno
import os
from pathlib import Path

import pytest

from raylog.actors.known_brokers import BrokerFiles, KnownBroker

FIRST = KnownBroker(namespace="ns", ray_address="10.0.0.1:6379", broker="id/place", node="disk-1")
ELSEWHERE = FIRST._replace(ray_address="10.0.0.1:7000", broker="other/place")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "raylog-1"


def test_what_is_written_is_found_by_its_namespace_and_ray_cluster(folder: Path) -> None:
    files = BrokerFiles(str(folder))
    assert files.find("ns") == []
    files.write(FIRST)
    files.write(ELSEWHERE)
    assert set(files.find("ns")) == {FIRST, ELSEWHERE}
    assert files.find("ns", ELSEWHERE.ray_address) == [ELSEWHERE]
    assert files.find("other") == []
    assert folder.stat().st_mode & 0o077 == 0


def test_the_next_life_of_a_broker_takes_the_place_of_the_last(folder: Path) -> None:
    files = BrokerFiles(str(folder))
    files.write(FIRST)
    newer = FIRST._replace(broker="id/newer")
    files.write(newer)
    assert files.find("ns") == [newer]
    files.remove(FIRST)
    assert files.find("ns") == [newer], "another has written since"
    files.remove(newer)
    assert files.find("ns") == []
    assert list(folder.iterdir()) == []
    files.remove(newer)  # it is gone already


def test_a_folder_that_others_can_change_is_neither_read_nor_written(folder: Path) -> None:
    files = BrokerFiles(str(folder))
    files.write(FIRST)
    folder.chmod(0o777)
    assert files.find("ns") == []
    with pytest.raises(PermissionError):
        files.write(FIRST)


def test_nothing_is_removed_from_a_folder_that_others_can_change(folder: Path) -> None:
    """A pipe that somebody has put there would hold up whoever reads it: a stop of the broker."""
    files = BrokerFiles(str(folder))
    files.write(FIRST)
    (path,) = folder.iterdir()
    path.unlink()
    os.mkfifo(path)
    folder.chmod(0o777)
    files.remove(FIRST)
    assert [one.name for one in folder.iterdir()] == [path.name]


def test_another_users_folder_is_neither_read_nor_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = BrokerFiles(str(folder))
    files.write(FIRST)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert files.find("ns") == []
    with pytest.raises(PermissionError):
        files.write(FIRST)


def test_a_file_that_cannot_be_written_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    files = BrokerFiles(str(folder))
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        files.write(FIRST)
    assert list(folder.iterdir()) == []


def test_a_file_is_private_and_is_there_as_a_whole(folder: Path) -> None:
    files = BrokerFiles(str(folder))
    files.write(FIRST)
    (path,) = folder.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.stat().st_ino
    files.write(FIRST)
    assert path.stat().st_ino != before, "it is replaced, and never half written"


def test_a_link_in_the_place_of_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    real = tmp_path / "real"
    BrokerFiles(str(real)).write(FIRST)
    folder.symlink_to(real)
    files = BrokerFiles(str(folder))
    assert files.find("ns") == []
    with pytest.raises(PermissionError):
        files.write(FIRST)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"namespace": "ns", "node": 3}', "\udc80"])
def test_a_file_that_says_nothing_is_passed_over(folder: Path, content: str) -> None:
    files = BrokerFiles(str(folder))
    files.write(FIRST)
    (folder / "other.json").write_bytes(os.fsencode(content))
    (folder / "unfinished.json.7").write_text("{}")
    assert files.find("ns") == [FIRST]
