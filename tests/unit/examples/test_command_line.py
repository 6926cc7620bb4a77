"""The demo's command line: what it takes, and what it does to its output folder."""

import io
import signal
import sys
from pathlib import Path

import pytest

from examples.demo.__main__ import DATA, alone_in, arguments, prepare_output
from examples.demo.play import _guarded
from examples.demo.report import Report
from examples.demo.stage import Stage


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


def test_a_signal_to_end_is_told_and_a_reader_that_went_away_is_not() -> None:
    def ended(code: int) -> tuple[int, str]:
        screen = io.StringIO()
        stage = Stage(screen, Report("a report"))
        return _guarded(stage, lambda: sys.exit(code)), screen.getvalue()

    assert ended(signal.SIGTERM) == (130, "interrupted: stopping in order\n")
    assert ended(1) == (1, "")
