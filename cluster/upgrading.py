"""An upgrade of a broker that serves: how far it is, its Controller's restart, and its end."""

import time
from collections.abc import Collection
from functools import partial

from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.levels import LEVELS, Levels
from raylog.actors.runtime.calls import CALL_TIMEOUT_S
from raylog.cluster.broker import Broker
from raylog.cluster.client.commands import asking, shall_be
from raylog.cluster.controller.stub import ControllerStub
from raylog.cluster.controller.upgrade import UpgradeStatus

# Ray starts a process within seconds; the next Controller waits up to 12 s for a copy of the
# metadata that is silent, and hears the nodes.
RESTART_TIMEOUT_S = 120.0
_INTERVAL_S = 0.5


def upgrade_status(broker: Broker) -> UpgradeStatus:
    """What the nodes and the Controller run, and the level of the cluster."""
    command = asking(ControllerStub.upgrade_status)
    asked = broker.connection().command("the releases of the nodes", CALL_TIMEOUT_S, command)
    return asked.result()


def finalize(broker: Broker, without: Collection[str] = (), levels: Levels = LEVELS) -> int:
    """Have the cluster write the newest level that this raylog or its Controller knows.

    Returns the level that it has then; nothing undoes it. ``without``: nodes that do not report and
    need not. ``levels``: those that this raylog knows. Raises UpgradeRefused with nothing changed.
    """
    wanted = max(levels.newest, upgrade_status(broker).levels.newest)
    ask = partial(ControllerStub.finalize_upgrade, level=wanted, without=tuple(without))
    command = shall_be(ask)
    asked = broker.connection().command(f"going to level {wanted}", CALL_TIMEOUT_S, command)
    return asked.result()


def restart_controller(broker: Broker, timeout_s: float = RESTART_TIMEOUT_S) -> UpgradeStatus:
    """End the Controller's process in order; returns when another one is in charge.

    That runs the raylog that is installed on its node. Partitions serve meanwhile. Raises
    RequestTimedOut where none answers within ``timeout_s``: Ray goes on starting it.
    """
    before = upgrade_status(broker)
    restart = shall_be(partial(ControllerStub.restart, life=before.life))
    what = "restarting the Controller"
    broker.connection().command(what, CALL_TIMEOUT_S, restart).result()
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        time.sleep(_INTERVAL_S)
        try:
            now = upgrade_status(broker)
        except (NotLeader, RequestTimedOut):
            continue
        if now.life != before.life:
            return now
    raise RequestTimedOut(what, round(timeout_s * 1000))
