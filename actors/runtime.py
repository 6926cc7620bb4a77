"""All of raylog's calls to Ray's actor machinery: names, placement, lookup, and errors on their way back.

Every actor is named and detached, in the broker's namespace, and pinned to the node that has its disk::

    Controller                  one a broker
    LogManager:<node>           one a node
    Compaction:<node>           one a node that has compacted partitions
    Retention:<node>            one a node that has others
    Log:<topic>-<partition>     one a partition

**Nodes.** A Ray node's id is a new one after each of its starts. A node that was started with the label
``raylog/log-node`` is known by that: its actors wait, restarting, while it is away, and serve again where the label
comes back. One without is known by its id: its actors die with it, and the Controller makes new ones where the
disk comes back. Two nodes that are up with one label would get each other's actors: the second takes no part.
"""

from typing import Any, NamedTuple

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util import list_named_actors
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raylog.actors.messages import LabelShared, NotLeader, RequestTimedOut
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition

NAMESPACE = "raylog"
CONTROLLER = "Controller"
# With a node's key behind it.
LOG_MANAGER, COMPACTION, RETENTION = "LogManager:", "Compaction:", "Retention:"
# A call that neither waits for records nor moves data: an actor that is well answers in milliseconds.
CALL_TIMEOUT_S = 30.0
# Opening after a crash reads every unflushed byte back.
OPEN_TIMEOUT_S = 600.0
# What takes as long as the disk does: to move 20 TB at 30 MB/s, to open what a crash has left of thousands of logs. An
# actor that dies over it is heard of at once.
WORK_TIMEOUT_S = 7 * 86_400.0
# The label by which a node with disks is known from one of its lives to the next.
NODE_LABEL = "raylog/log-node"
_OURS = (LOG_MANAGER, "Log:", COMPACTION, RETENTION)


class Node(NamedTuple):
    """A Ray node that is up. ``label`` is empty where it has none."""

    node_id: str
    label: str = ""
    is_alone: bool = True  # no other node that is up carries the label

    @property
    def key(self) -> str:
        """What it is known by, from one of its lives to the next if it has a label."""
        return self.label or self.node_id

    def __str__(self) -> str:
        return self.label or self.node_id[:8]

    def check_alone(self) -> None:
        """Raise LabelShared: Ray may have put an actor of this label on the wrong node."""
        if not self.is_alone:
            raise LabelShared(self.node_id, NODE_LABEL, self.label)


def log_actor_name(partition: TopicPartition) -> str:
    return f"Log:{partition}"


def log_manager_name(node: str) -> str:
    """``node``: its key."""
    return LOG_MANAGER + node


def is_ours(name: str) -> bool:
    """Whether a broker's actors other than the Controller have names like this."""
    return name.startswith(_OURS)


def compaction_actor_name(node: str) -> str:
    return COMPACTION + node


def retention_actor_name(node: str) -> str:
    return RETENTION + node


def find(name: str, namespace: str) -> Any | None:
    """The handle of a named actor, or None if there is none.

    Raises RequestTimedOut or NotLeader where Ray's head does not answer: then nobody knows.
    """
    try:
        return ray.get_actor(name, namespace=namespace)
    except ValueError:
        return None
    except RayError as error:
        raise named_error(error, name) from error


def running(namespace: str) -> set[str]:
    """The names of all actors of a namespace that live or are being restarted. Raises as ``find`` does."""
    try:
        named = list_named_actors(all_namespaces=True)
    except RayError as error:
        raise named_error(error, "the names of the actors") from error
    return {entry["name"] for entry in named if entry["namespace"] == namespace}


def create(actor: Any, name: str, namespace: str, node: Node, *args: Any, **options: Any) -> Any:
    """Start a named, detached actor on one node, and nowhere else; or get the one that has the name."""
    return actor.options(
        name=name,
        namespace=namespace,
        lifetime="detached",
        get_if_exists=True,
        **pinned_to(node),
        **options,
    ).remote(*args)


def pinned_to(node: Node) -> dict[str, Any]:
    """The options that keep an actor or a task on a node: the label's, where that leads nowhere else."""
    if node.label and node.is_alone:
        return {"label_selector": {NODE_LABEL: node.label}}
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node.node_id, soft=False)}


def kill(name: str, namespace: str) -> None:
    """End a named actor for good; fine if it is gone."""
    handle = find(name, namespace)
    if handle is not None:
        ray.kill(handle, no_restart=True)


def wait_for(reference: Any, what: str, timeout_s: float = CALL_TIMEOUT_S) -> Any:
    """The answer to a call, or the error that it ended with, by raylog's names."""
    try:
        return ray.get(reference, timeout=timeout_s)
    except Exception as error:
        raise named_error(error, what, timeout_s) from error


def named_error(error: BaseException, what: str, timeout_s: float = CALL_TIMEOUT_S) -> BaseException:
    """Ray's way of saying it, turned into raylog's: a restarting actor, a time-out, the error of the actor."""
    if isinstance(error, RayTaskError) and isinstance(error.cause, RaylogError):
        return error.cause
    if isinstance(error, GetTimeoutError):
        return RequestTimedOut(what, int(timeout_s * 1000))
    if isinstance(error, RayError) and not isinstance(error, RayTaskError):
        return NotLeader(what, _summary(error))  # the actor, its node or its owner died, or cannot be placed
    return error


def _summary(error: BaseException) -> str:
    """The line of Ray's story that tells: the last of a failed start (the error raised there), else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1] if "creation task" in lines[0] else lines[0]


def own_node_id() -> str:
    """The Ray node that this process runs on."""
    return str(ray.get_runtime_context().get_node_id())


def own_name() -> str:
    """The name of the actor that this process is; empty if it is none."""
    context = ray.get_runtime_context()
    return str(context.get_actor_name() or "") if context.get_actor_id() else ""


def is_restarted() -> bool:
    """Whether this process is an actor that Ray has started again."""
    context = ray.get_runtime_context()
    return context.get_actor_id() is not None and bool(context.was_current_actor_reconstructed)


def alive_nodes() -> list[Node]:
    """The nodes that are up, by their ids."""
    alive = {
        node["NodeID"]: (node.get("Labels") or {}).get(NODE_LABEL, "")
        for node in ray.nodes()
        if node["Alive"]
    }
    labels = list(alive.values())
    return [
        Node(node_id, label, labels.count(label) == 1 or not label)
        for node_id, label in sorted(alive.items())
    ]


def own_node() -> Node:
    """The node that this process runs on, as it is now."""
    node_id = own_node_id()
    return next((node for node in alive_nodes() if node.node_id == node_id), Node(node_id))
