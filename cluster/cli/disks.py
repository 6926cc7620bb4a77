"""``raylog log-dirs`` and ``raylog partition move``: the disks and their partitions."""

from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cluster.cli.common import (
    NAMESPACE,
    TABLE,
    Address,
    Bytes,
    Format,
    Namespace,
    Output,
    connected,
    show,
    show_json,
)

if TYPE_CHECKING:
    from raylog.actors.messages import LogDirStatus

app = typer.Typer(help="Move partitions between the log dirs of their node.", no_args_is_help=True)
COLUMNS = ("node", "log dir", "state", "partitions", "records", "disk", "free", "directory id")


def log_dirs(
    output: Format = TABLE, address: Address = None, namespace: Namespace = NAMESPACE
) -> None:
    """Show the log dirs of all nodes.

    For each log dir: its state, its partitions, and the free space of its disk.
    """
    dirs = sorted(connected(address, namespace).log_dirs(), key=lambda one: (one.node_id, one.path))
    if output is Output.json:
        show_json({"log_dirs": dirs})
        return
    show(COLUMNS, [_row(log_dir) for log_dir in dirs])


def _row(log_dir: "LogDirStatus") -> tuple[object, ...]:
    return (
        log_dir.node_id[:8],
        log_dir.path,
        _state(log_dir),
        log_dir.partitions,
        Bytes(log_dir.size_bytes),
        Bytes(log_dir.total_bytes),
        Bytes(log_dir.usable_bytes),
        log_dir.directory_id,
    )


def _state(log_dir: "LogDirStatus") -> str:
    if not log_dir.is_online:
        return f"OFFLINE: {log_dir.problem}"
    return (
        "online"
        if log_dir.loaded == log_dir.to_load
        else f"loading {log_dir.loaded} of {log_dir.to_load}"
    )


@app.command()
def move(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0)],
    log_dir: Annotated[
        str,
        typer.Argument(
            metavar="LOG_DIR", help="Path or directory id of another log dir of the same node."
        ),
    ],
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Move a partition to another log dir of its node while it serves.

    Returns when the partition serves in the new log dir. It serves while its files are copied;
    clients wait only while the last part is copied.
    """
    moved = connected(address, namespace).move_partition(topic, partition, log_dir)
    typer.echo(f"{topic}-{partition} is in {moved.folder}")
