"""The demo's stage: what is printed, what is checked, what goes into the report, and what all acts
share."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from examples.demo.cluster import DemoCluster
from examples.demo.digest import Digest
from examples.demo.report import Report
from examples.demo.source import Flights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from raylog import Broker

# Where a line of plain output may end; a terminal has its own width.
PLAIN_WIDTH = 120


class CheckFailed(Exception):
    """The demo found something that is not as it must be."""


class NotInTime(Exception):
    """Something took longer than the demo waits for it. Nothing was found that is wrong."""


class Stage:
    """The screen and the report. Everything said on the screen is in the report, too."""

    def __init__(self, screen: TextIO, report: Report) -> None:
        width = None if screen.isatty() else PLAIN_WIDTH
        self._console = Console(file=screen, width=width, highlight=False)
        self.report = report
        self.checks = 0

    def act(self, number: int | str, title: str) -> None:
        self.line()
        self._console.print(f"[bold]{number}. {escape(title)}[/bold]")
        self.report.heading(f"{number}. {title}")

    def say(self, text: str) -> None:
        self._console.print(f"   {escape(text)}", soft_wrap=True)
        self.report.bullet(text)

    def line(self, text: str = "") -> None:
        """On the screen only."""
        self._console.print(escape(text), soft_wrap=True)

    def failed(self, text: str) -> None:
        self._console.print(f"[bold red]{escape(text)}[/bold red]", soft_wrap=True)
        self.report.text(f"**{text}**")

    def check(self, holds: bool, claim: str) -> None:
        """Print a claim that holds; end the demo at one that does not."""
        if not holds:
            raise CheckFailed(claim)
        self.checks += 1
        self._console.print(f"   [green]ok[/green] {escape(claim)}", soft_wrap=True)
        self.report.bullet(f"**ok** {claim}")

    @contextmanager
    def progress(self, label: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """A progress bar, gone when the step is over; the value is called with how much more is
        done."""
        counted = [BarColumn(), MofNCompleteColumn()] if total else [SpinnerColumn()]
        columns = [TextColumn("   {task.description}"), *counted, TimeElapsedColumn()]
        bar = Progress(
            *columns, console=self._console, transient=True, disable=not self._console.is_terminal
        )
        with bar:
            task = bar.add_task(label, total=total)
            yield lambda done: bar.advance(task, done)


@dataclass
class Demo:
    """What the acts share."""

    stage: Stage
    output: Path  # for what people want to see
    data: Path  # for log dirs, logs, checkpoints
    cluster: DemoCluster
    is_quick: bool
    flights: Flights
    expected: list[Digest] = field(default_factory=list)  # of ``flights``, by partition
    broker: "Broker | None" = None
    spark: "SparkSession | None" = None

    @property
    def running_broker(self) -> "Broker":
        assert self.broker is not None, "act 1 starts the broker"
        return self.broker

    @property
    def running_spark(self) -> "SparkSession":
        assert self.spark is not None, "act 4 starts Spark"
        return self.spark


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start


def rate(count: float, seconds: float) -> str:
    """``12,345/s``."""
    return f"{count / max(seconds, 1e-9):,.0f}/s"


def megabytes(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"


def bandwidth(size_bytes: float, seconds: float) -> str:
    return f"{size_bytes / 1e6 / max(seconds, 1e-9):,.0f} MB/s"
