"""Cells: words for a person, numbers for a pipe and for JSON."""

import json
import time

import pytest

from raylog.actors.messages import PartitionOffsets
from raylog.cluster.cli.common import Ago, Bytes, Seconds, plain, show, show_json


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1_250_000_000, "1.2 GB"),
        (10**19, "10000.0 PB"),
    ],
)
def test_bytes_for_people(size: int, shown: str) -> None:
    assert Bytes(size).for_people() == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.0123, "0.012 s"),
        (1.26, "1.3 s"),
        (99, "99 s"),
        (150, "2 min"),
        (7200, "2 h"),
        (9e5, "10 d"),
    ],
)
def test_seconds_for_people(seconds: float, shown: str) -> None:
    assert Seconds(seconds).for_people() == shown


def test_how_long_ago_a_time_was() -> None:
    assert Ago((time.time() - 3 * 3600) * 1000).for_people() == "3 h ago"
    assert Ago(0).for_people() == "-"


def test_a_pipe_gets_tabs_and_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    show(
        ("what", "size", "took", "none"),
        [("t-0", Bytes(1_250_000_000), Seconds(0.00012345678), None)],
    )
    assert capsys.readouterr().out == "what\tsize\ttook\tnone\nt-0\t1250000000\t0.000123\t-\n"


def test_named_tuples_are_objects_and_what_is_no_number_is_null(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_json({"offsets": [PartitionOffsets(1, 2, 3, 4)], "size": Bytes(5), "ratio": float("nan")})
    assert json.loads(capsys.readouterr().out) == {
        "offsets": [
            {"log_start_offset": 1, "recovery_point": 2, "high_watermark": 3, "log_end_offset": 4},
        ],
        "size": 5,
        "ratio": None,
    }
    assert plain((1, "a")) == [1, "a"]
