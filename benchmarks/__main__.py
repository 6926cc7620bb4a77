"""``./dev bench [NAMES] [--quick]``: measure speed, and compare each figure with a limit or with
another system. Prints tables, and writes JSON to bench-output/."""

import argparse
import importlib
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

NAMES = (
    "codec",
    "frames",
    "append",
    "reading",
    "compaction",
    "clients",
    "cluster",
    "control",
    "groups",
    "transactions",
    "broker",
    "plane",
    "durable",
    "memory",
    "spark",
)
GROUPS = {"storage": ("append", "reading", "compaction")}
OUTPUT = Path("bench-output")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"one of {', '.join((*NAMES, *GROUPS))}; default: all",
    )
    parser.add_argument("--quick", action="store_true", help="less data and fewer rounds")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {*NAMES, *GROUPS}
    if unknown:
        parser.error(
            f"unknown benchmark {sorted(unknown)[0]!r}: use one of {', '.join((*NAMES, *GROUPS))}"
        )
    names = [name for given in arguments.names or NAMES for name in GROUPS.get(given, (given,))]
    console = Console()
    figures: list[dict[str, Any]] = []
    for name in names:
        console.print(f"measuring {name} ...", style="dim")
        measured = importlib.import_module(f"benchmarks.{name}").run(arguments.quick)
        console.print(_table(name, measured))
        figures += measured
    OUTPUT.mkdir(exist_ok=True)
    path = OUTPUT / time.strftime("bench-%Y%m%d-%H%M%S.json")
    machine = {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    path.write_text(
        json.dumps({"machine": machine, "quick": arguments.quick, "figures": figures}, indent=1)
    )
    console.print(f"written to {path}")


def _table(name: str, figures: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{name}: medians of alternating runs", title_justify="left")
    for column in ("figure", "raylog", "compared with", "its value", "ratio", "target"):
        table.add_column(
            column, justify="left" if column in ("figure", "compared with") else "right"
        )
    for figure in figures:
        unit = figure["unit"]
        table.add_row(
            figure["name"],
            f"{_number(figure['value'])} {unit}",
            figure["limit_name"],
            f"{_number(figure['limit_value'])} {unit}",
            f"{figure['ratio']:.2f}",
            str(figure["target"]),
        )
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


main()
