"""The demo's command line: what it takes, and what it does to its output folder."""

import io
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.demo.__main__ import DATA, alone_in, arguments, prepare_output
from examples.demo.play import _guarded
from examples.demo.report import Report
from examples.demo.stage import NotInTime, Stage


def test_two_demos_do_not_write_to_one_folder(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with alone_in(output):
        with pytest.raises(BlockingIOError), alone_in(output):
            raise AssertionError("not reached")
        with alone_in(tmp_path / "other"):
            pass
    with alone_in(output):
        pass


def test_only_the_data_of_an_earlier_run_is_removed(tmp_path: Path) -> None:
    (tmp_path / DATA / "log-dir-1").mkdir(parents=True)
    (tmp_path / "mine.txt").write_text("kept")
    prepare_output(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", DATA]
    assert [path.name for path in (tmp_path / DATA).iterdir()] == ["logs"]


def test_one_node_or_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert arguments([]).nodes == 1
    assert arguments(["--nodes", "2"]).nodes == 2
    with pytest.raises(SystemExit):
        arguments(["--nodes", "3"])
    assert "--nodes" in capsys.readouterr().err


def ended(what: Callable[[], None]) -> tuple[int, str]:
    """The exit status, and the screen."""
    screen = io.StringIO()
    return _guarded(Stage(screen, Report("a report")), what), screen.getvalue()


def test_a_signal_to_end_is_told_and_a_reader_that_went_away_is_not() -> None:
    told = (130, "interrupted: stopping in order\n")
    assert ended(lambda: sys.exit(signal.SIGTERM)) == told
    assert ended(lambda: sys.exit(1)) == (1, "")


def test_what_takes_too_long_is_no_check_that_does_not_hold() -> None:
    def act() -> None:
        raise NotInTime("7 of 9 records are read")

    assert ended(act) == (1, "NOT FINISHED: 7 of 9 records are read\n")
