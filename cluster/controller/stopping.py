"""The orderly end of a broker's nodes: every LogManager at once, then what is left of actors."""

import logging

from raylog.actors.events import warn
from raylog.actors.runtime.calls import OPEN_TIMEOUT_S, gather
from raylog.actors.runtime.handles import kill
from raylog.actors.runtime.names import log_manager_name
from raylog.actors.runtime.stubs import find_log_manager
from raylog.cluster.running import running_parts

logger = logging.getLogger(__name__)


def stop_nodes(namespace: str, timeout_s: float = OPEN_TIMEOUT_S) -> bool:
    """Stop every LogManager in order, then end what is left; returns whether all was in order.

    Left are actors of nodes that are away, and those of a LogManager that died while it stopped.
    ``timeout_s``: for all of them together.
    """
    nodes = running_parts(namespace).log_managers
    # All of them are found before any is stopped: a look-up that fails leaves nothing half done.
    managers = {node: find_log_manager(node, namespace) for node in nodes}
    calls = {node: manager.shutdown() for node, manager in managers.items() if manager is not None}
    gathered = gather(calls, timeout_s)
    ends: dict[str, bool | Exception] = {**gathered.answers, **gathered.errors}
    not_in_order = {node: end for node, end in ends.items() if end is not True}
    for node, end in not_in_order.items():
        warn(logger, "node-not-stopped-in-order", node=log_manager_name(node), why=end)
    for name in running_parts(namespace).others:
        kill(name, namespace)
    return not not_in_order
