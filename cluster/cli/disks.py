"""``raylog log-dirs`` and ``raylog partition move``: the disks and their partitions."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    names_of,
    note,
    note_not_serving,
    note_stopped,
    show,
    show_json,
)
from raylog.cluster.cli.interrupts import told_if_interrupted
from raylog.cluster.cli.paths import path_given
from raylog.cluster.cli.waiting import log_dir_waits_for, told_while_waiting

if TYPE_CHECKING:
    from raylog.actors.messages import LogDirStatus
    from raylog.cluster.broker import Broker
    from raylog.cluster.controller.log_dir_states import LogDirDescription

app = typer.Typer(help="Move partitions between the log dirs of their node.", no_args_is_help=True)
dirs_app = typer.Typer(help="Show the log dirs of all nodes, or mend one.")
COLUMNS = ("node", "log dir", "state", "partitions", "bytes", "disk", "free", "directory id")


@dirs_app.callback(invoke_without_command=True)
def log_dirs(
    context: typer.Context,
    output: Format = TABLE,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show the log dirs of all nodes.

    For each log dir: its state, its partitions, the bytes of their files, and the size and the free
    space of its disk (- while it is offline, or its node does not answer; the partitions are those
    that have their place there then). Those of a stopped node are not shown; standard error names
    the node.
    """
    if context.invoked_subcommand is not None:
        return
    broker = connected(address, namespace)
    dirs = sorted(broker.log_dirs(), key=lambda one: (one.node_id, one.path))
    if output is Output.json:
        show_json({"log_dirs": dirs})
        return
    nodes = broker.describe_nodes()
    names = names_of(nodes)
    show(COLUMNS, [_row(log_dir, names) for log_dir in dirs])
    note_stopped(nodes)


LogDir = Annotated[
    str,
    typer.Argument(
        metavar="LOG_DIR",
        callback=path_given,
        help="Path or directory id of a log dir. A relative path counts from the folder that "
        "you are in; of another machine, give the whole path, or the id.",
    ),
]
NodeOfDir = Annotated[
    str | None,
    typer.Option(
        metavar="NODE",
        help="Its node, where several have a log dir at this path: label, Ray's id, or the "
        "beginning of that.",
    ),
]


@dirs_app.command()
def online(
    log_dir: LogDir,
    node: NodeOfDir = None,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="How long to wait until its partitions serve. It goes on all the same.",
        ),
    ] = 120,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Use a log dir again that was offline, when its disk is repaired.

    Also one that its node could not read when it began: the node looks at it afresh.
    Its logs are read back from the disk first; then its partitions open. Returns when they serve.
    Exit status 1: some do not serve, and why.
    """
    broker = connected(address, namespace)
    what = "the log dir may be used again all the same; see `raylog log-dirs`"
    with _told(broker, log_dir, what):
        used = broker.log_dir_online(log_dir, node, timeout_s=timeout)
    for dir in used:
        _tell_used(dir)
    if not all(_is_used(dir) for dir in used):
        raise typer.Exit(1)


def _is_used(dir: "LogDirDescription") -> bool:
    return not (dir.why or dir.waits_for or dir.not_serving)


def _tell_used(dir: "LogDirDescription") -> None:
    """What has become of a log dir that is to be used again."""
    if dir.waits_for:
        note(
            f"{dir.path} is not wholly in use yet: {dir.waits_for}. It goes on by itself; the same "
            "command waits again"
        )
    elif dir.why:
        note(f"{dir.path} is not in use: {dir.why}")
    else:
        note_not_serving(dir.not_serving)
    count = dir.serving + len(dir.not_serving)
    typer.echo(f"{dir.path} is {dir.state}; {dir.serving} of its {count} partitions serve")


@contextmanager
def _told(broker: "Broker", log_dir: str, if_interrupted: str) -> Iterator[None]:
    """Say what the order for the log dir waits for, and what becomes of it after a signal."""
    with (
        told_if_interrupted(if_interrupted),
        told_while_waiting(lambda: log_dir_waits_for(broker, log_dir)),
    ):
        yield


@dirs_app.command()
def offline(
    log_dir: LogDir,
    node: NodeOfDir = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Take a log dir out of use in order, to check or swap its disk, while all others serve.

    Its partitions cannot be used until `raylog log-dirs online`, or until its node or the broker is
    started again. Returns when the disk can be unmounted. Refused for the log dir with the metadata
    that the Controller writes, and for the last one of a node: stop the broker, or the node.
    """
    broker = connected(address, namespace)
    with _told(broker, log_dir, "it goes offline all the same; see `raylog log-dirs`"):
        taken = broker.log_dir_offline(log_dir, node)
    if taken.waits_for:
        note(
            f"{taken.path} is still in use: {taken.waits_for}. It goes on by itself; the same "
            "command waits again"
        )
        raise typer.Exit(1)
    back = f"`raylog log-dirs online {taken.argument}` brings it back"
    typer.echo(f"{taken.path} is offline ({taken.why}), and not in use; {back}")
    if taken.was_clean is False:
        note("not all of its logs were closed in order: these are recovered when it is back")


@dirs_app.command()
def identify(
    log_dir: Annotated[
        str,
        typer.Argument(
            metavar="LOG_DIR", callback=path_given, help="Log dir whose meta.properties is lost."
        ),
    ],
    directory_id: Annotated[
        str, typer.Option(metavar="ID", help="Directory id that the log dir had.")
    ],
    like: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Another log dir of the same node, for the other ids. Else give both.",
        ),
    ] = None,
    cluster_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Id of the cluster, as other log dirs have it.")
    ] = None,
    node_id: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Number of the node in other log dirs.")
    ] = None,
) -> None:
    """Write the lost meta.properties of a log dir again. The broker must be stopped.

    The directory id must be the one that the log dir had: its partitions are bound to it. `raylog
    log dump --cluster-metadata-decoder --files FILE` shows it with each partition, where FILE is a
    .log file in __cluster_metadata-0. A damaged meta.properties is kept as meta.properties.corrupt.
    """
    from raylog.storage.files import RealFileSystem
    from raylog.storage.tools.identify import identify as write_identity

    meta = write_identity(
        RealFileSystem(),
        log_dir,
        directory_id,
        like=like,
        cluster_id=cluster_id,
        node_id=node_id,
    )
    typer.echo(
        f"{log_dir} is log dir {meta.directory_id} of node {meta.node_id} in cluster "
        f"{meta.cluster_id}"
    )


def _row(log_dir: "LogDirStatus", names: Mapping[str, str]) -> tuple[object, ...]:
    is_measured = log_dir.total_bytes > 0
    return (
        names.get(log_dir.node_id, log_dir.node_id[:8]),
        log_dir.path,
        _state(log_dir),
        log_dir.partitions,
        Bytes(log_dir.size_bytes) if is_measured else None,
        Bytes(log_dir.total_bytes) if is_measured else None,
        Bytes(log_dir.usable_bytes) if is_measured else None,
        log_dir.directory_id,
    )


def _state(log_dir: "LogDirStatus") -> str:
    if not log_dir.is_online:
        return f"OFFLINE: {log_dir.problem}"
    if log_dir.problem is not None:
        return f"SUSPECT: {log_dir.problem}"
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
            metavar="LOG_DIR",
            callback=path_given,
            help="Path or directory id of another log dir of the same node. A relative path "
            "counts from the folder that you are in (write ./NAME to be sure that it is no id); of "
            "another machine, give the whole path, or the id.",
        ),
    ],
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Move a partition to another log dir of its node while it serves.

    Returns when the partition serves in the new log dir. It serves while its files are copied;
    clients wait only while the last part is copied.
    """
    broker = connected(address, namespace)
    what = f"the move may go on; see `raylog topic describe {topic}`"
    to_be = f"{topic}-{partition} to be copied to {log_dir}, and opened there"
    with told_if_interrupted(what), told_while_waiting(lambda: to_be):
        moved = broker.move_partition(topic, partition, log_dir)
    typer.echo(f"{topic}-{partition} is in {moved.folder}")
