"""``raylog upgrade``: a newer raylog, node by node, while the broker serves."""

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
    show,
    show_json,
)
from raylog.cluster.cli.interrupts import told_if_interrupted
from raylog.cluster.cli.waiting import told_while_waiting

if TYPE_CHECKING:
    from raylog.actors.levels import Levels
    from raylog.cluster.controller.upgrade import UpgradeStatus

app = typer.Typer(help="Upgrade raylog node by node while the broker serves.", no_args_is_help=True)
COLUMNS = ("node", "raylog", "levels", "partitions", "state")


@app.command()
def status(
    output: Format = TABLE, address: Address = None, namespace: Namespace = NAMESPACE
) -> None:
    """Show which raylog each node runs, the level of the cluster, and what to do next.

    LEVELS: what that raylog can read and write. The cluster writes the level that `raylog upgrade
    finalize` has set last, so that the nodes of an older raylog can read everything.
    """
    from raylog.cluster.upgrading import upgrade_status

    found = upgrade_status(connected(address, namespace))
    if output is Output.json:
        show_json(found)
        return
    show(COLUMNS, _rows(found))
    note(f"the cluster is of level {found.level}")
    for line in next_steps(found):
        note(line)


def _rows(found: "UpgradeStatus") -> list[tuple[object, ...]]:
    from raylog.cluster.controller.spread import short_key

    rows: list[tuple[object, ...]] = []
    for node in found.nodes:
        is_known = bool(node.release)
        levels = _range(node.levels) if is_known else None
        state = node.problem or "reports"
        rows.append((short_key(node.node), node.release or None, levels, node.wanted, state))
    where = f"Controller on {short_key(found.controller)}"
    rows.append((where, found.release, _range(found.levels), None, "reports"))
    return rows


def _range(levels: "Levels") -> str:
    oldest, newest = levels
    return str(newest) if oldest == newest else f"{oldest}-{newest}"


def next_steps(found: "UpgradeStatus") -> list[str]:
    """What is to be done next, one line each."""
    from raylog import __version__
    from raylog.cluster.controller.spread import short_key

    older = [node for node in found.nodes if not node.problem and node.release != __version__]
    steps = []
    for node in older:
        name = short_key(node.node)
        steps.append(
            f"node {name} runs raylog {node.release}, and this command {__version__}: on that node "
            f"`pip install` the one that you want, then `raylog node stop {name}` and `raylog node "
            f"start {name}`"
        )
    for node in found.nodes:
        if node.problem:
            name = short_key(node.node)
            steps.append(
                f"node {name} is {node.problem}, and nobody knows what it runs: start it; or, if "
                f"it does not come back, `raylog upgrade finalize --without {name}`"
            )
    if not older and found.release != __version__:
        steps.append(
            f"the Controller runs raylog {found.release}, and this command {__version__}: `raylog "
            "upgrade restart-controller`"
        )
    if not steps and not found.is_final:
        steps.append("all run the same raylog: `raylog upgrade finalize`")
    return steps or ["nothing is to be done"]


@app.command("restart-controller")
def restart_controller(address: Address = None, namespace: Namespace = NAMESPACE) -> None:
    """Restart the Controller, so that it runs the raylog that is installed on its node.

    Returns when another one answers. Partitions serve meanwhile; commands wait for seconds.
    """
    from raylog.cluster.controller.spread import short_key
    from raylog.cluster.upgrading import restart_controller as restart

    broker = connected(address, namespace)
    with (
        told_if_interrupted("it restarts all the same; see `raylog upgrade status`"),
        told_while_waiting(lambda: "another Controller to answer"),
    ):
        now = restart(broker)
    typer.echo(f"the Controller runs raylog {now.release} on node {short_key(now.controller)}")


@app.command()
def finalize(
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE",
            help="Do not wait for this node, which does not report and does not come back. If it "
            "does, with an older raylog, it is refused. Repeat for more.",
        ),
    ] = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Have the cluster write what only the newer raylog can read. There is no way back.

    Refused while a node runs an older raylog, or does not report.
    """
    from raylog.cluster.upgrading import finalize as finalize_upgrade

    broker = connected(address, namespace)
    with told_if_interrupted("it may be done all the same; see `raylog upgrade status`"):
        level = finalize_upgrade(broker, without or ())
    typer.echo(f"the cluster is of level {level}")
