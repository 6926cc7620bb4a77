"""What the commands share: their options, the connection, ``key=value`` pairs, tables for people and for pipes."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from raylog.cluster.broker import Broker

Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", envvar="RAY_ADDRESS", help="Ray cluster; default: the one on this machine."
    ),
]
Namespace = Annotated[str, typer.Option(metavar="NAME", help="Which broker of the cluster.")]
NAMESPACE = "raylog"
# Of a line on a terminal: more than any path, so that no cell is shortened.
MAX_WIDTH = 10_000


def connected(address: str | None, namespace: str) -> "Broker":
    """The broker that the command is for."""
    quiet_ray()
    from raylog.cluster.broker import connect

    return connect(address, namespace=namespace)


def quiet_ray() -> None:
    """Ray's notes to developers are not for somebody at a shell."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_LOG_TO_DRIVER", "0")
    import logging

    logging.getLogger("ray").setLevel(logging.ERROR)


def pairs(given: Sequence[str]) -> dict[str, str]:
    """``key=value`` arguments as a map."""
    split = [text.partition("=") for text in given]
    for key, equals, _ in split:
        if not key or not equals:
            raise typer.BadParameter(f"{key!r} is not of the form key=value")
    return {key: value for key, _, value in split}


def note(text: str) -> None:
    """A line for the person at the terminal, not for who reads our output."""
    typer.echo(text, err=True)


def show(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table for a terminal; for a pipe, lines of fields between tabs under a line of names."""
    if not sys.stdout.isatty():
        for row in (columns, *rows):
            print("\t".join(map(str, row)))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, column in enumerate(columns):
        is_number = bool(rows) and isinstance(rows[0][number], int)
        table.add_column(column, no_wrap=True, justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console = Console()
    # A line that is too long is the terminal's to fold: a folded or shortened path cannot be copied.
    needed = console.measure(table, options=console.options.update(max_width=MAX_WIDTH)).maximum
    console.width = max(console.width, needed)
    console.print(table, soft_wrap=True)
