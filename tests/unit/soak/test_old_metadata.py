"""An older copy of the metadata is put in the place of the newest one."""

import os
from pathlib import Path

from tests.soak.old_metadata import OldMetadata

METADATA = "__cluster_metadata-0"
LOG = "00000000000000000000.log"


def log_dirs(disk: Path) -> list[str]:
    for name in ("a", "b"):
        (disk / name).mkdir(parents=True, exist_ok=True)
    return [str(disk / name) for name in ("a", "b")]


def write(disk: Path, log_dir: str, content: bytes, *, written_at: float) -> Path:
    folder = disk / log_dir / METADATA
    folder.mkdir(exist_ok=True)
    (folder / LOG).write_bytes(content)
    os.utime(folder / LOG, (written_at, written_at))
    return folder


def test_what_was_there_is_there_again_while_the_writer_stands_still(tmp_path: Path) -> None:
    dirs, done = log_dirs(tmp_path / "head"), []
    folder = write(tmp_path / "head", "b", b"old", written_at=1)
    old = OldMetadata(tmp_path / "kept")
    assert old.take(dirs)
    write(tmp_path / "head", "b", b"old and new", written_at=2)
    place = old.put_in_place(
        dirs,
        stop=lambda: done.append(("stop", (folder / LOG).read_bytes())),
        end=lambda: done.append(("end", (folder / LOG).read_bytes())),
    )
    assert place == folder
    assert done == [("stop", b"old and new"), ("end", b"old")]
    assert sorted(path.name for path in (tmp_path / "head").iterdir()) == ["a", "b"]
    assert old.is_used
    assert old.is_there, "it can be put there again"


def test_of_two_folders_the_one_that_was_written_last_counts(tmp_path: Path) -> None:
    dirs = log_dirs(tmp_path)
    write(tmp_path, "a", b"of long ago", written_at=1)
    newest = write(tmp_path, "b", b"newest", written_at=2)
    old = OldMetadata(tmp_path / "kept")
    assert old.take(dirs)
    write(tmp_path, "b", b"newest of all", written_at=3)
    assert old.put_in_place(dirs, lambda: None, lambda: None) == newest
    assert (newest / LOG).read_bytes() == b"newest"


def test_a_copy_is_replaced_by_a_later_one(tmp_path: Path) -> None:
    dirs = log_dirs(tmp_path)
    folder = write(tmp_path, "a", b"1", written_at=1)
    old = OldMetadata(tmp_path / "kept")
    assert old.take(dirs)
    old.put_in_place(dirs, lambda: None, lambda: None)
    write(tmp_path, "a", b"2", written_at=2)
    assert old.take(dirs)
    assert not old.is_used
    write(tmp_path, "a", b"3", written_at=3)
    old.put_in_place(dirs, lambda: None, lambda: None)
    assert (folder / LOG).read_bytes() == b"2"


def test_where_nothing_lies_nothing_is_done(tmp_path: Path) -> None:
    old = OldMetadata(tmp_path / "kept")
    dirs, done = log_dirs(tmp_path / "head"), []
    assert not old.take(dirs)
    assert not old.is_there
    assert old.put_in_place(dirs, lambda: done.append("stop"), lambda: done.append("end")) is None
    assert done == []
