"""Shared by the commands: options, the connection, ``key=value`` pairs, tables and JSON."""

import json
import math
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raylog.actors.runtime.names import NAMESPACE as NAMESPACE  # for all commands
from raylog.cluster.cli.interrupts import end_on_sigterm

if TYPE_CHECKING:
    from raylog.cluster.admin import Admin
    from raylog.cluster.broker import Broker
    from raylog.cluster.controller.node_states import NodeDescription
    from raylog.cluster.health.facts import Finding

Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        envvar="RAY_ADDRESS",
        help="Address of the Ray cluster. Default: the cluster on this machine.",
    ),
]
Namespace = Annotated[
    str, typer.Option(metavar="NAME", help="Namespace of the broker in the Ray cluster.")
]

Partitions = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        "-p",
        min=0,
        metavar="N",
        help="Only this partition of each topic. Repeat for more. Default: all.",
    ),
]
ValidateOnly = Annotated[
    bool, typer.Option("--validate-only", help="Only check whether it could be done now.")
]


class Output(StrEnum):
    table = "table"
    json = "json"


Format = Annotated[
    Output,
    typer.Option(
        "--format",
        help="table: a table on a terminal, tab-separated lines in a pipe. json: one document.",
    ),
]
TABLE = Output.table
# Partitions that do not serve are named up to this many.
NAMED_AT_MOST = 20
# Width of a line on a terminal: longer than any path, so that no cell is shortened.
MAX_WIDTH = 10_000


def connected(address: str | None, namespace: str) -> "Broker":
    """The broker that the command works on."""
    quiet_ray()
    from raylog.cluster.start import connect

    return connect(address, namespace=namespace)


def admin_of(broker: "Broker") -> "Admin":
    """For work that may take days, by a Controller that answers: see ``commanding.py``."""
    from raylog.cluster.admin import Admin
    from raylog.cluster.client.commanding import PATIENCE_S

    return Admin(broker.client_connection(), most_patience_s=PATIENCE_S)


def quiet_ray() -> None:
    """Hide Ray's messages for developers from the user of the command, also at a SIGTERM."""
    end_on_sigterm()  # before Ray has a handler: see ``clusters.py``
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_LOG_TO_DRIVER", "0")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # tracebacks of other processes
    import logging

    logging.getLogger("ray").setLevel(logging.ERROR)
    from raylog.actors.runtime.ray_private import take_messages

    take_messages(lambda message: note(in_short(message)))


def in_short(message: str) -> str:
    """The first sentence of a message of Ray, which is a paragraph, and where to look."""
    from raylog.actors.runtime.ray_texts import first_sentence

    sentence = first_sentence(message.strip().partition("\n")[0])
    return f"Ray: {sentence}; `raylog health` says whether anything is wrong"


def pairs(given: Sequence[str]) -> dict[str, str]:
    """``key=value`` arguments as a map."""
    split = [text.partition("=") for text in given]
    for key, equals, _ in split:
        if not key or not equals:
            raise typer.BadParameter(f"{key!r} does not have the form key=value")
    return {key: value for key, _, value in split}


def note(text: str) -> None:
    """A line for the person at the terminal: it goes to stderr, not into the output."""
    typer.echo(text, err=True)


def note_not_serving(not_serving: Mapping[str, str]) -> None:
    """Name the partitions that do not serve, and why."""
    for partition, why in list(not_serving.items())[:NAMED_AT_MOST]:
        note(f"{partition} does not serve: {why}")
    if len(not_serving) > NAMED_AT_MOST:
        note(f"and {len(not_serving) - NAMED_AT_MOST} more; see `raylog health`")


def note_silent(names: Sequence[str]) -> None:
    """Say whose answers a command waits for."""
    from raylog.cluster.naming import named

    note(f"waiting: {named(names)} to answer")


def note_stopped(nodes: "Iterable[NodeDescription]") -> None:
    """Say of each node that an operator has stopped why nothing of it is shown."""
    from raylog.cluster.controller.spread import short_key

    for node in nodes:
        if node.state in ("stopping", "stopped"):
            name = short_key(node.node)
            note(
                f"node {name} is {node.state}: its log dirs and partitions are used again after "
                f"`raylog node start {name}`"
            )


def names_of(nodes: "Iterable[NodeDescription]") -> dict[str, str]:
    """Ray's id of each node that is there -> its name for people, which is a NODE of commands."""
    from raylog.cluster.controller.spread import short_key

    return {node.node_id: short_key(node.node) for node in nodes if node.node_id is not None}


def tell(findings: "Sequence[Finding]", *, with_advice: bool = False) -> None:
    """Print the problems on stderr. `raylog health` says of each what to do.

    ``with_advice``: of errors it is said here, too.
    """
    for finding in findings:
        note(f"{finding.severity}: {finding.subject}: {finding.what}")
        if with_advice and finding.severity == "error":
            note(f"  -> {finding.todo}")


class Bytes(int):
    """A cell: ``1.2 GB`` on a terminal, the number in a pipe."""

    def for_people(self) -> str:
        size, unit = float(self), "B"
        for larger in ("kB", "MB", "GB", "TB", "PB"):
            if abs(size) < 1000:
                break
            size, unit = size / 1000, larger
        return f"{int(size)} B" if unit == "B" else f"{size:.1f} {unit}"


class Seconds(float):
    """A cell: ``3 h`` on a terminal, the number in a pipe."""

    def for_people(self) -> str:
        for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
            if self >= 2 * size:
                return f"{self / size:.0f} {unit}"
        return f"{self:.0f} s" if self >= 10 else f"{self:.2g} s"


class Ago(int):
    """A cell: how long ago a time was, on a terminal; the time in ms since the epoch, in a pipe."""

    def for_people(self) -> str:
        return Seconds(max(time.time() - self / 1000, 0)).for_people() + " ago" if self > 0 else "-"


def show_json(document: object) -> None:
    """One JSON document. Named tuples are objects with their fields' names."""
    print(json.dumps(plain(document), indent=2), flush=True)


def plain(value: Any) -> Any:
    """``value`` in JSON's types. NaN and infinity, which JSON does not have, become null."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain(cell) for key, cell in value.items()}
    if isinstance(value, list | tuple):
        return [plain(cell) for cell in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def show(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """On a terminal, a table; in a pipe, tab-separated lines below a line of column names.

    What is said on stderr after that comes after it, also where both go to one file.
    """
    if not sys.stdout.isatty():
        for row in (columns, *rows):
            print("\t".join(map(_for_pipes, row)))
        sys.stdout.flush()
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, column in enumerate(columns):
        is_number = any(isinstance(row[number], int | float) for row in rows)
        table.add_column(column, no_wrap=True, justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(Text(_for_people(cell)) for cell in row))
    console = Console()
    # The terminal folds long lines. We must not fold or shorten a path, so that it can be copied.
    needed = console.measure(table, options=console.options.update(max_width=MAX_WIDTH)).maximum
    console.width = max(console.width, needed)
    console.print(table, soft_wrap=True)


def _for_pipes(cell: object) -> str:
    if cell is None:
        return "-"
    return f"{cell:.6f}" if isinstance(cell, float) else str(cell)


def _for_people(cell: object) -> str:
    if cell is None:
        return "-"
    return cell.for_people() if isinstance(cell, Bytes | Seconds | Ago) else str(cell)
