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
    typer.Option(envvar="RAY_ADDRESS", help="Ray cluster (host:port); default: the one on this machine."),
]
Namespace = Annotated[str, typer.Option(help="Which broker of the cluster.")]
NAMESPACE = "raylog"


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


def show(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table for a terminal; for a pipe, lines of fields between tabs under a line of names."""
    if not sys.stdout.isatty():
        for row in (columns, *rows):
            print("\t".join(map(str, row)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*map(str, row))
    Console().print(table)
