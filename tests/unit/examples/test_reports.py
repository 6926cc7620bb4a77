"""The report is Markdown that a person reads: lists, tables, code; the picture's query agrees with
itself."""

from pathlib import Path

import pandas as pd

from examples.demo.act4_spark import Delays, agree, delays_by_pandas
from examples.demo.act7_restart import describe_files
from examples.demo.report import Report


def test_a_report_is_blocks_in_order() -> None:
    report = Report("A title")
    report.heading("1. Act")
    report.bullet("one")
    report.bullet("two")
    report.table(("call", "records"), [("`send`", 336776), ("a|b", 7)])
    report.code("tree\n")
    assert report.markdown() == (
        "# A title\n\n## 1. Act\n\n- one\n- two\n\n"
        "| call | records |\n| --- | ---: |\n| `send` | 336,776 |\n| a\\|b | 7 |\n\n"
        "```\ntree\n```\n"
    )


def test_means_leave_out_flights_that_never_left() -> None:
    flights = pd.DataFrame(
        {
            "carrier": ["UA", "UA", "AA"],
            "hour": [5, 6, 6],
            "dep_delay": pd.array([4, None, -2], "Int64"),
        }
    )
    delays = delays_by_pandas(flights)
    assert delays == Delays([("UA", "", 1, 4.0), ("AA", "", 1, -2.0)], [(5, 1, 4.0), (6, 1, -2.0)])
    assert agree(delays, delays)
    assert not agree(delays, delays._replace(by_hour=[(5, 1, 4.0), (6, 2, -2.0)]))


def test_a_folder_is_shown_with_one_line_for_each_kind_of_file(tmp_path: Path) -> None:
    for base in (0, 40):
        (tmp_path / f"{base:020d}.log").write_bytes(b"x" * 10)
    (tmp_path / "partition.metadata").write_bytes(b"y")
    first, second = describe_files(tmp_path, "")
    assert first.split()[:6] == ["00000000000000000000.log", "and", "1", "more", "20", "B"]
    assert second.split()[:3] == ["partition.metadata", "1", "B"]
