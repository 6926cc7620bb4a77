"""Which release of raylog each node runs, and whether the cluster may go to a newer level. Pure.

::

    every node runs release N ---> one after the other runs N + 1 ---> all do ---> finalize
    level L                        level L                             level L     level L + 1

A node that does not report may run any release, so it counts as one that is not ready. One that was
left out (``without``) and comes back with an older release refuses the orders of the Controller
(UnsupportedLevel), and takes no part. What the levels are is in ``actors/levels.py``.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from raylog.actors.levels import FIRST_LEVELS, LEVELS, Levels
from raylog.cluster.controller.describe import Snapshot
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.observed import Observed
from raylog.cluster.controller.spread import short_key
from raylog.storage.wire import RELEASE, message


@message
class NodeRelease(NamedTuple):
    """What a node runs. ``release``, ``levels``: as it reported last.

    ``problem``: why nobody knows what it runs now; empty where it reports. ``wanted``: so many
    partitions shall be there.
    """

    node: str
    release: str
    levels: Levels
    problem: str = ""
    wanted: int = 0


@message
class UpgradeStatus(NamedTuple):
    """How far an upgrade has come.

    ``level``: of the cluster. ``release``, ``levels``: of the Controller, which runs on the node
    ``controller``, as the node's key. ``life``: of its process; another one after each restart.
    """

    level: int
    release: str
    levels: Levels
    controller: str
    nodes: tuple[NodeRelease, ...]
    life: str = ""

    @property
    def is_final(self) -> bool:
        """Whether the cluster is of the newest level of its Controller."""
        return self.level == self.levels.newest

    def why_not(self, level: int) -> str:
        """Why the cluster cannot go to a level now; empty if it can."""
        return why_not_ready(self.nodes, level)


def upgrade_status(snapshot: Snapshot, levels: Levels = LEVELS) -> UpgradeStatus:
    """``levels``: those that the Controller knows."""
    nodes = releases_of(snapshot.desired, snapshot.observed, snapshot.now_ms)
    return UpgradeStatus(
        level=snapshot.desired.level,
        release=RELEASE,
        levels=levels,
        controller=snapshot.controller,
        nodes=nodes,
    )


def releases_of(
    desired: Desired, observed: Mapping[str, Observed], now_ms: int
) -> tuple[NodeRelease, ...]:
    """The nodes that take part or have taken part, by their keys.

    One of which nothing is recorded has never taken part: it is refused if its release is too old.
    """
    keys = {key for key, seen in observed.items() if seen.report is not None}
    keys |= {key for key in desired.nodes if desired.is_missed(key)}
    return tuple(_release_of(key, desired, observed.get(key), now_ms) for key in sorted(keys))


def _release_of(key: str, desired: Desired, seen: Observed | None, now_ms: int) -> NodeRelease:
    report = None if seen is None else seen.report
    return NodeRelease(
        node=key,
        release="" if report is None else report.software,
        levels=FIRST_LEVELS if report is None else report.levels,
        problem=_why_unknown(key, desired, seen, now_ms),
        wanted=len(desired.logs_at(key)),
    )


def _why_unknown(key: str, desired: Desired, seen: Observed | None, now_ms: int) -> str:
    if desired.is_stopped(key):
        return "stopped"
    if seen is None:
        return "away"
    if seen.report is None:
        return "starting"
    return "silent" if seen.is_suspect(now_ms) else ""


def why_not_ready(nodes: Collection[NodeRelease], level: int, without: Collection[str] = ()) -> str:
    """Why not all nodes can read what is written at a level; empty if they can.

    ``without``: keys of nodes that need not say it, as they do not report.
    """
    older = [
        f"node {short_key(node.node)} runs raylog {node.release or 'of an unknown version'}"
        for node in nodes
        if not node.problem and not node.levels.has(level)
    ]
    unknown = [
        f"node {short_key(node.node)} is {node.problem}, and nobody knows what it runs"
        for node in nodes
        if node.problem and node.node not in without
    ]
    return "; ".join([*older, *unknown])
