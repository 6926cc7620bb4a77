"""Backups as docs/OPERATIONS.md says: a copy of a log that goes on opens, without lost records."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raylog.storage.errors import LogShorterThanFlushed
from raylog.storage.files import RealFileSystem
from raylog.storage.log import Log
from raylog.storage.log_dir import LogDir
from raylog.storage.testing.logs import offsets_of
from raylog.storage.tools.verify import verify_folder
from tests.harness.operations_page import PAGE, back_up
from tests.harness.real_dirs import PARTITION, append, checkpoint, make, open_partition, start, stop
from tests.harness.shell import run_here

RECOVERY_POINTS = "recovery-point-offset-checkpoint"


class Served:
    """A log dir whose partition is written while it is copied."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log_dir: LogDir = start(path)
        self.log: Log = make(self.log_dir)

    def goes_on(self) -> None:
        """Records come, segments roll, the log is flushed, and the checkpoints say so."""
        append(self.log, 7)
        checkpoint(self.log_dir, self.log)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "logs")
    served.goes_on()
    yield served
    stop(served.log_dir, served.log)


def opened(path: Path) -> list[int]:
    """The offsets of the log in a copy, as the next broker finds them; it stops in order."""
    log_dir = start(path)
    try:
        log = open_partition(log_dir)
    except BaseException:
        log_dir.close(clean=False)
        raise
    found = offsets_of(log)
    stop(log_dir, log)
    return found


def is_prefix(found: list[int], at_least: int, at_most: int) -> bool:
    return found == list(range(len(found))) and at_least <= len(found) <= at_most


def copy_in_turn(
    paths: list[Path], source: Path, target: Path, between: Callable[[], None]
) -> None:
    """Copy files one after the other; the log goes on between two of them."""
    for path in paths:
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            shutil.copy2(path, copy)
        between()


def names_in_the_manual(sentence: str) -> list[str]:
    """The names of files in a sentence of the manual that begins so."""
    text = " ".join(PAGE.split())
    (found,) = re.findall(re.escape(sentence) + r"[^.]*?((?:`[^`]+`[^`]*?)+)\. [A-Z]", text)
    return re.findall(r"`([^`]+)`", found)


def test_the_script_copies_a_log_that_goes_on(served: Served, tmp_path: Path) -> None:
    at_begin = served.log.log_end_offset
    (copy,) = back_up([served.path], tmp_path / "copies", tmp_path)
    served.goes_on()
    assert opened(copy) == list(range(at_begin))


@pytest.mark.parametrize("is_backwards", [False, True])
def test_any_tool_may_copy_in_the_order_of_the_manual(
    served: Served, tmp_path: Path, is_backwards: bool
) -> None:
    first = names_in_the_manual("Any tool that copies files may be used while the broker runs")
    left_out = names_in_the_manual("Leave out")
    assert RECOVERY_POINTS in left_out
    folder, copy = served.path / str(PARTITION), tmp_path / "copy"
    in_folder = sorted(folder.iterdir(), reverse=is_backwards)
    files = [served.path / name for name in first if (served.path / name).is_file()]
    at_begin = served.log.log_end_offset
    copy_in_turn([*files, *in_folder], served.path, copy, served.goes_on)
    assert {path.name for path in copy.iterdir()}.isdisjoint(left_out)
    assert is_prefix(opened(copy), at_begin, served.log.log_end_offset)


def naive_copy(served: Served, copy: Path) -> None:
    """As ``cp -a`` of the whole log dir, in alphabetical order: the checkpoints come last."""
    folder = served.path / str(PARTITION)
    files = [*sorted(folder.iterdir()), served.path / RECOVERY_POINTS]
    copy_in_turn(files, served.path, copy, served.goes_on)
    shutil.copy2(served.path / "meta.properties", copy)


def test_a_copy_whose_recovery_point_is_newer_says_so_and_opens_without_it(
    served: Served, tmp_path: Path
) -> None:
    copy, at_begin = tmp_path / "copy", served.log.log_end_offset
    naive_copy(served, copy)
    with pytest.raises(LogShorterThanFlushed):
        opened(copy)
    (copy / RECOVERY_POINTS).unlink()
    assert is_prefix(opened(copy), at_begin, served.log.log_end_offset)


def test_one_folder_of_a_copy_is_restored_by_accepting_what_it_does_not_have(
    served: Served, tmp_path: Path
) -> None:
    folder, copy = served.path / str(PARTITION), tmp_path / "copy"
    shutil.copytree(folder, copy)
    at_copy = served.log.log_end_offset
    served.goes_on()
    stop(served.log_dir, served.log)
    shutil.move(folder, tmp_path / "broken")
    shutil.copytree(copy, folder)
    with pytest.raises(LogShorterThanFlushed):
        opened(served.path)
    done = run_here("log", "accept-loss", str(folder), "--yes")
    assert done.lines()[0].startswith(f"offsets {at_copy} to {at_copy + 6} were on the disk")
    assert opened(served.path) == list(range(at_copy))
    served.log_dir = start(served.path)
    served.log = open_partition(served.log_dir)


def test_a_restored_copy_is_whole(served: Served, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    naive_copy(served, copy)
    (copy / RECOVERY_POINTS).unlink()
    opened(copy)
    reports = verify_folder(RealFileSystem(), str(copy / str(PARTITION)))
    assert [problem for report in reports for problem in report.problems] == []
