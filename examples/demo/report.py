"""The Markdown report, collected while the demo runs and written at its end, also if it failed."""

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from raylog.storage.records.kernel import KERNEL

PACKAGES = ("raylog", "ray", "pyspark", "raydp", "pyarrow", "numpy", "pandas")


class Report:
    """Blocks of Markdown in the order in which they came."""

    def __init__(self, title: str) -> None:
        self._blocks = [f"# {title}"]

    def heading(self, text: str) -> None:
        self._blocks.append(f"## {text}")

    def text(self, text: str) -> None:
        self._blocks.append(text)

    def bullet(self, text: str) -> None:
        """One line of a list; lines in a row make one list."""
        line = f"- {text}"
        if self._blocks[-1].startswith("- "):
            self._blocks[-1] += f"\n{line}"
        else:
            self._blocks.append(line)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table; numbers stand to the right."""
        is_number = [
            all(isinstance(row[n], int | float) for row in rows) for n in range(len(header))
        ]
        rule = ["---:" if number else "---" for number in is_number]
        lines = [list(header), rule, *([cell(value) for value in row] for row in rows)]
        self._blocks.append("\n".join(f"| {' | '.join(line)} |" for line in lines))

    def code(self, text: str) -> None:
        self._blocks.append(f"```\n{text.rstrip()}\n```")

    def markdown(self) -> str:
        return "\n\n".join(self._blocks) + "\n"


def cell(value: object) -> str:
    """A value as a table shows it."""
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("|", "\\|")


def machine_facts() -> list[tuple[str, str]]:
    """What the figures of a report depend on."""
    facts = [
        (
            "machine",
            f"{processor()}, {os.cpu_count()} CPUs, {memory_gb():.0f} GB, {platform.system()}",
        ),
        ("load at the end", f"{os.getloadavg()[0]:.1f} (1 minute)"),
        ("Python", f"{platform.python_version()}, record kernel: {KERNEL}"),
    ]
    return [*facts, ("packages", ", ".join(f"{name} {_version(name)}" for name in PACKAGES))]


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
