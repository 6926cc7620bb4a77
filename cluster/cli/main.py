"""The command ``raylog``: brokers, topics, records and log files.

An error is one line on stderr and exit status 1. Wrong usage of a command is exit status 2.
"""

import os
import sys
from typing import Annotated, NoReturn

import typer

from raylog.actors.runtime.ray_texts import in_one_line, is_of_ray
from raylog.cluster.cli import (
    asides,
    broker,
    configs,
    consume,
    disks,
    groups,
    health,
    log,
    metadata,
    nodes,
    produce,
    status,
    topics,
    transactions,
    upgrade,
    upkeep,
    users,
)
from raylog.storage.errors import RaylogError

app = typer.Typer(
    help="A durable, partitioned, replayable log inside a Ray cluster, "
    "in Apache Kafka's on-disk format.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    # boxes only on a terminal
    rich_markup_mode="rich" if sys.stderr.isatty() and sys.stdout.isatty() else None,
)
app.command()(broker.start)
app.command()(broker.stop)
app.command()(status.status)
app.command()(health.health)
app.command()(upkeep.compaction)
app.command()(upkeep.retention)
app.add_typer(topics.app, name="topic")
app.add_typer(disks.app, name="partition")
app.add_typer(disks.dirs_app, name="log-dirs")
app.add_typer(nodes.app, name="node")
app.add_typer(upgrade.app, name="upgrade")
app.add_typer(groups.app, name="group")
app.add_typer(transactions.app, name="txn")
app.add_typer(users.app, name="user")
app.add_typer(configs.app, name="config")
app.add_typer(metadata.app, name="metadata")
app.command()(produce.produce)
app.command()(consume.consume)
log.app.add_typer(asides.app, name="aside")
log.app.command()(asides.accept_loss)
app.add_typer(log.app, name="log")


def _version(wanted: bool) -> None:
    if wanted:
        from raylog import __version__

        typer.echo(f"raylog {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command, and end with its exit status."""
    try:
        app()
    except RaylogError as error:
        lines = (line.strip() for line in str(error).splitlines())
        print("error:", " ".join(filter(None, lines)), file=sys.stderr)
        sys.exit(1)
    except OSError as error:  # the output cannot be written: its disk is full, for example
        if is_of_ray(error):  # it is a remote one
            _tell_of_ray(error)
        print("error:", error, file=sys.stderr)
        _forget_output()
        sys.exit(1)
    except Exception as error:
        if not is_of_ray(error):
            raise  # a fault of raylog's: its traceback is wanted
        _tell_of_ray(error)
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):  # which click turns into exit status 1
            raise
        _forget_output()  # its reader has closed the pipe
        sys.exit(0)


def _tell_of_ray(error: Exception) -> NoReturn:
    print(
        f"error: a call to the broker failed: {in_one_line(error)}; `raylog health` says what is "
        "wrong, and the actors' logs have the rest (docs/OPERATIONS.md, Logs)",
        file=sys.stderr,
    )
    sys.exit(1)


def _forget_output() -> None:
    """Python must not report at exit what it cannot write."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
