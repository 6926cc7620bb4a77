"""An older copy of the metadata is put in the place of the newest one."""

import os
from pathlib import Path

import pytest

from raylog.actors.metadata_history import DIGEST_BYTES
from raylog.cluster.controller.copies import Copy, SurveyedDir
from raylog.cluster.controller.witness import Mark
from tests.soak.old_metadata import OldMetadata, have_all

METADATA = "__cluster_metadata-0"
LOG = "00000000000000000000.log"


def log_dirs(disk: Path) -> list[str]:
    for name in ("a", "b"):
        (disk / name).mkdir(parents=True, exist_ok=True)
    return [str(disk / name) for name in ("a", "b")]


def put_in_place(
    old: OldMetadata,
    dirs: list[str],
    done: list[str] | None = None,
    *,
    have_others_all: bool = True,
) -> Path | None:
    steps: list[str] = [] if done is None else done
    return old.put_in_place(
        dirs,
        stop=lambda: steps.append("stop"),
        have_others_all=lambda: have_others_all,
        go_on=lambda: steps.append("go on"),
        end=lambda: steps.append("end"),
    )


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
        have_others_all=lambda: True,
        go_on=lambda: done.append(("go on", b"")),
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
    assert put_in_place(old, dirs) == newest
    assert (newest / LOG).read_bytes() == b"newest"


def test_a_copy_is_replaced_by_a_later_one(tmp_path: Path) -> None:
    dirs = log_dirs(tmp_path)
    folder = write(tmp_path, "a", b"1", written_at=1)
    old = OldMetadata(tmp_path / "kept")
    assert old.take(dirs)
    put_in_place(old, dirs)
    write(tmp_path, "a", b"2", written_at=2)
    assert old.take(dirs)
    assert not old.is_used
    write(tmp_path, "a", b"3", written_at=3)
    put_in_place(old, dirs)
    assert (folder / LOG).read_bytes() == b"2"


def test_where_nothing_lies_nothing_is_done(tmp_path: Path) -> None:
    old = OldMetadata(tmp_path / "kept")
    dirs = log_dirs(tmp_path / "head")
    done: list[str] = []
    assert not old.take(dirs)
    assert not old.is_there
    assert put_in_place(old, dirs, done) is None
    assert done == []


def test_where_another_node_may_lack_anything_the_writer_goes_on(tmp_path: Path) -> None:
    dirs = log_dirs(tmp_path)
    done: list[str] = []
    folder = write(tmp_path, "a", b"old", written_at=1)
    old = OldMetadata(tmp_path / "kept")
    assert old.take(dirs)
    write(tmp_path, "a", b"old and new", written_at=2)
    assert put_in_place(old, dirs, done, have_others_all=False) is None
    assert done == ["stop", "go on"]
    assert (folder / LOG).read_bytes() == b"old and new"
    assert not old.is_used
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "kept"]


def copied(node: str, *, epoch: int = 4, records: int = 70, copies_at: int = 62) -> SurveyedDir:
    digests = b"".join(number.to_bytes(DIGEST_BYTES, "big") for number in range(records))
    copy = Copy(
        cluster_id="c", controller_epoch=epoch, digests=digests, in_sync={}, copies_at=copies_at
    )
    return SurveyedDir(node_id=node, path=f"/{node}", node=node, copy=copy)


LEVEL = [copied("head"), copied("one"), copied("two")]
ASKED_BEFORE, NEVER_ASKED = [Mark(epoch=3, asked_at=60)], [Mark(epoch=3)]


@pytest.mark.parametrize("marks", [ASKED_BEFORE, NEVER_ASKED])
def test_copies_that_are_the_same_have_all(marks: list[Mark]) -> None:
    assert have_all(LEVEL, marks, 3)
    assert have_all([copied("one", epoch=2, records=9), *LEVEL], marks, 3), "one of long ago"


@pytest.mark.parametrize(
    ("dirs", "marks"),
    [
        (LEVEL[:2], NEVER_ASKED),
        ([*LEVEL[:2], copied("two", records=69)], NEVER_ASKED),
        ([*LEVEL[:2], SurveyedDir(node_id="two", path="/two", node="two")], NEVER_ASKED),
        # the Controller was about to leave a copy out, or has not begun with this Ray
        (LEVEL, [Mark(epoch=3, asked_at=70)]),
        (LEVEL, []),
    ],
)
def test_where_a_copy_may_lack_anything_it_is_known(
    dirs: list[SurveyedDir], marks: list[Mark]
) -> None:
    assert not have_all(dirs, marks, 3)
