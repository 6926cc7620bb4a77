"""Says on stderr what a command waits for: after two seconds, and again when that changes.

::

    with told_while_waiting(lambda: node_waits_for(broker, node)):
        stopped = broker.stop_node(node)        waiting: node disk-1: t-0, t-1 to be closed

A thread looks; the command itself only waits. What cannot be looked at is not worth the command:
it is told as far as it has a name, and nothing fails for it. Partitions that do not answer a client
are named by ``silence.py``.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.cluster.cli.common import note
from raylog.storage.errors import RaylogError

if TYPE_CHECKING:
    from raylog.cluster.broker import Broker

logger = logging.getLogger(__name__)

# Most commands end before; and nobody reads more than a line in this time.
LOOK_INTERVAL_S: Final = 2.0
# The Controller answers from memory. The end of a command waits for a look that is under way.
LOOK_TIMEOUT_S: Final = 2.0


@contextmanager
def told_while_waiting(
    look: Callable[[], str], interval_s: float = LOOK_INTERVAL_S
) -> Iterator[None]:
    """Tell what ``look`` sees, each time that it is something else; empty: nothing is told."""
    ended = threading.Event()

    def run() -> None:
        told = ""
        while not ended.wait(interval_s):
            seen = _seen(look)
            if seen and seen != told and not ended.is_set():
                told = seen
                note(f"waiting: {seen}")

    thread = threading.Thread(target=run, name="raylog-waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(LOOK_TIMEOUT_S)


def _seen(look: Callable[[], str]) -> str:
    try:
        return look()
    except (NotLeader, RequestTimedOut) as error:
        return f"the Controller ({getattr(error, 'why', '') or 'it does not answer'})"
    except RaylogError:
        return ""
    except Exception as error:  # whatever Ray raises while it begins or ends
        logger.debug("nobody knows what is waited for: %s", error)
        return ""


# -- what is seen ----------------------------------------------------------------------------------


def node_waits_for(broker: "Broker", name: str) -> str:
    """What the last order for a node still needs."""
    from raylog.cluster.controller.node_states import meant_node
    from raylog.cluster.controller.spread import short_key

    nodes = broker.describe_nodes(timeout_s=LOOK_TIMEOUT_S)
    key = meant_node(nodes, name)
    return _joined(
        f"node {short_key(node.node)}: {node.waits_for}"
        for node in nodes
        if node.node == key and node.waits_for
    )


def nodes_wait_for(broker: "Broker") -> str:
    """What the nodes still need until they are what they shall be."""
    from raylog.cluster.controller.spread import short_key

    return _joined(
        f"node {short_key(node.node)}: {node.waits_for}"
        for node in broker.describe_nodes(timeout_s=LOOK_TIMEOUT_S)
        if node.waits_for
    )


def log_dir_waits_for(broker: "Broker", log_dir: str) -> str:
    """What the last order for a log dir still needs."""
    from raylog.cluster.controller.spread import short_key

    return _joined(
        f"{dir.path} of node {short_key(dir.node)}: {dir.waits_for}"
        for dir in broker.describe_log_dirs(log_dir, timeout_s=LOOK_TIMEOUT_S)
        if dir.waits_for
    )


def topic_waits_for(broker: "Broker", topic: str) -> str:
    """Which partitions of a topic do not serve yet."""
    from raylog.cluster.naming import named

    described = broker.describe_topic(topic, timeout_s=LOOK_TIMEOUT_S)
    missing = [f"{topic}-{found.partition}" for found in described.partitions if found.problem]
    return f"{named(missing)} to be opened" if missing else ""


def config_waits_for(broker: "Broker", topic: str) -> str:
    """Which partitions of a topic do not obey its config yet."""
    from raylog.cluster.naming import named

    described = broker.describe_topic(topic, timeout_s=LOOK_TIMEOUT_S)
    behind = [f"{topic}-{number}" for number in described.outdated]
    return f"{named(behind)} to obey it" if behind else ""


def start_waits_for(broker: "Broker") -> str:
    """What a broker that starts still needs. Ray may not run yet."""
    from raylog.actors.runtime.clusters import connected_throughout
    from raylog.cluster.controller.stub import find_controller

    with connected_throughout() as is_connected:
        if not is_connected:
            return "Ray to start"
        if find_controller(broker.namespace) is None:
            return "the log dirs of all nodes, which are looked at"
        return nodes_wait_for(broker)


def stop_waits_for(namespace: str) -> str:
    """What of a broker that stops still runs."""
    from raylog.actors.runtime.clusters import connected_throughout
    from raylog.cluster.controller.spread import short_key
    from raylog.cluster.naming import named
    from raylog.cluster.running import running_parts

    with connected_throughout() as is_connected:
        if not is_connected:
            return "Ray to end"
        running = running_parts(namespace)
    if running.logs:
        return f"{named(running.logs)} to be closed"
    nodes = named(short_key(node) for node in running.log_managers)
    return f"the log dirs of node {nodes} to be closed" if nodes else ""


def _joined(parts: Iterable[str]) -> str:
    return "; ".join(parts)
