"""``raylog node``: look at the nodes, and operate one of them while the rest serves."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cluster.cli.common import (
    NAMESPACE,
    TABLE,
    Address,
    Format,
    Namespace,
    Output,
    connected,
    note,
    note_not_serving,
    show,
    show_json,
)
from raylog.cluster.cli.interrupts import told_if_interrupted
from raylog.cluster.cli.waiting import node_waits_for, told_while_waiting

if TYPE_CHECKING:
    from raylog.cluster.broker import Broker
    from raylog.cluster.controller.node_states import NodeDescription

app = typer.Typer(
    help="Show the nodes; drain, stop or start one while the others serve.", no_args_is_help=True
)
COLUMNS = (
    "node",
    "host",
    "state",
    "serving",
    "wanted",
    "raylog",
    "life",
    "log dirs",
    "node id",
    "why",
)

Node = Annotated[
    str,
    typer.Argument(
        metavar="NODE",
        help="Label of the node, or Ray's id of it, or the beginning of that; see `raylog node "
        "list`.",
    ),
]


@app.command("list")
def list_nodes(
    output: Format = TABLE, address: Address = None, namespace: Namespace = NAMESPACE
) -> None:
    """Show the nodes: their state, their log dirs, and how many of their partitions serve.

    States: online; draining (it gets no new partition); stopping, stopped; starting; suspect (its
    LogManager does not answer); apart (it takes no part, "why" says the reason); away (it is not
    in the Ray cluster).
    """
    nodes = connected(address, namespace).describe_nodes()
    if output is Output.json:
        show_json({"nodes": nodes})
        return
    show(COLUMNS, [_row(node) for node in nodes])


def _row(node: "NodeDescription") -> tuple[object, ...]:
    # Of a suspect node, what it waits for says less.
    why = node.why if node.state == "suspect" else node.waits_for or node.why
    return (
        _name(node),
        node.host or None,
        node.state,
        node.serving,
        node.wanted,
        node.version or None,
        node.life[:8] or None,
        ",".join(node.log_dirs) or None,
        None if node.node_id is None else node.node_id[:8],
        why or None,
    )


def _name(node: "NodeDescription") -> str:
    """A label, or the beginning of an id: each is a NODE."""
    from raylog.cluster.controller.spread import short_key

    return short_key(node.node)


@app.command()
def drain(
    node: Node,
    undo: Annotated[bool, typer.Option("--undo", help="Give it new partitions again.")] = False,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Give a node no new partition. What it has it keeps and serves.

    Partitions are not moved to other nodes.
    """
    broker = connected(address, namespace)
    what = "the node may be drained all the same; see `raylog node list`"
    with _told(broker, node, what):
        drained = broker.drain_node(node, undo=undo)
    _fail_if_waiting(drained)
    name = _name(drained)
    if undo:
        typer.echo(f"node {name} gets new partitions again")
    else:
        typer.echo(f"node {name} gets no new partition; it serves {drained.serving}")


@app.command()
def stop(node: Node, address: Address = None, namespace: Namespace = NAMESPACE) -> None:
    """Close every partition of a node in order, and have nothing run there. The others serve.

    The node stays stopped until `raylog node start`, also after a restart of the broker. One
    without a label (raylog/log-node) is so only until its next `ray start`: it has another id then.
    Its partitions cannot be used until then: they have no replica on another node.
    """
    from raylog.cluster.controller.spread import NODE_ID_CHARS

    broker = connected(address, namespace)
    with _told(broker, node, "the stop goes on; see `raylog node list`"):
        stopped = broker.stop_node(node)
    _fail_if_waiting(stopped)
    name = _name(stopped)
    how = "stopped" if stopped.node_id is not None else "away, and stopped when it is back"
    typer.echo(f"node {name} is {how}; `raylog node start {name}` starts it")
    if len(stopped.node) == NODE_ID_CHARS:
        note("it has no label: after its next `ray start` it is another node, and is used at once")
    if stopped.was_clean is False:
        note("its next start recovers the logs that were not closed in order")
    if stopped.wanted:
        note(f"its {stopped.wanted} partitions cannot be used until then")


@app.command()
def start(node: Node, address: Address = None, namespace: Namespace = NAMESPACE) -> None:
    """Use a node again that was stopped or drained; returns when its partitions serve.

    Exit status 1: some do not serve, and why.
    """
    broker = connected(address, namespace)
    with _told(broker, node, "the start goes on; see `raylog node list`"):
        started = broker.start_node(node)
    note_not_serving(started.not_serving)
    if started.node_id is None:
        note(f"node {_name(started)} is away; it is used when it is back")
        if started.not_serving:
            raise typer.Exit(1)
        return
    _fail_if_waiting(started)
    typer.echo(f"node {_name(started)} serves {started.serving} of {started.wanted} partitions")
    if started.not_serving:
        raise typer.Exit(1)


@contextmanager
def _told(broker: "Broker", node: str, if_interrupted: str) -> Iterator[None]:
    """Say what the order for the node waits for, and what becomes of it after a signal."""
    with (
        told_if_interrupted(if_interrupted),
        told_while_waiting(lambda: node_waits_for(broker, node)),
    ):
        yield


def _fail_if_waiting(node: "NodeDescription") -> None:
    """Exit status 1 where the node is not yet what it shall be."""
    if not node.waits_for:
        return
    why = f" ({node.why})" if node.state in ("suspect", "apart") else ""
    note(
        f"node {_name(node)} is {node.state}{why}: {node.waits_for}. It goes on by itself; the "
        "same command waits again, and `raylog node list` shows it"
    )
    raise typer.Exit(1)
