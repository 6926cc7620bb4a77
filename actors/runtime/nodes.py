"""Which nodes are up, which of them this process runs on, and what pins an actor to a node."""

import hashlib
import os
from typing import Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raylog.actors.runtime.clusters import check_connected
from raylog.actors.runtime.names import NODE_LABEL, Node
from raylog.actors.runtime.ray_private import actor_place, ray_cluster_id

# A socket's name has room for so many.
PLACE_CHARS: Final = 12


def alive_nodes() -> list[Node]:
    """The nodes that are up, by their ids. Raises RayNotFound without a connection to Ray."""
    check_connected()
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


def hosts() -> dict[str, str]:
    """The name of each node's machine, by the node's id."""
    check_connected()
    return {node["NodeID"]: str(node.get("NodeManagerHostname") or "") for node in ray.nodes()}


def own_node_id() -> str:
    """The id of the Ray node that this process runs on."""
    return str(ray.get_runtime_context().get_node_id())


def own_host() -> str:
    """The address of the Ray node that this process runs on, as other nodes reach it."""
    return str(ray.util.get_node_ip_address())


def broker_id(cluster_id: str, namespace: str) -> str:
    """What tells a broker from all others of its machine: its sockets' names begin with it.

    A copy of its disks has the same cluster id, and may be tried beside it, in another namespace or
    another Ray cluster. ``cluster_id``: of ``meta.properties``.
    """
    place = f"{namespace}\0{ray_cluster_id()}"
    return f"{cluster_id}/{hashlib.sha256(place.encode()).hexdigest()[:PLACE_CHARS]}"


def own_node() -> Node:
    """The node that this process runs on, as it is now."""
    node_id = own_node_id()
    return next((node for node in alive_nodes() if node.node_id == node_id), Node(node_id))


def own_name() -> str:
    """The name of the actor that this process is; empty if it is none."""
    context = ray.get_runtime_context()
    return str(context.get_actor_name() or "") if context.get_actor_id() else ""


def is_restarted() -> bool:
    """Whether this process is an actor that Ray has started again."""
    context = ray.get_runtime_context()
    return context.get_actor_id() is not None and bool(context.was_current_actor_reconstructed)


def is_still_own_actor() -> bool:
    """Whether Ray still takes this process for the actor that it is.

    It does not where it believed the process or its node dead, and has started the actor again.
    Raises what Ray raises; True where this Ray does not tell.
    """
    context = ray.get_runtime_context()
    place = actor_place(context.get_actor_id())
    return place is None or place == (own_node_id(), os.getpid())


def pinned_to(node: Node) -> dict[str, Any]:
    """The options that keep an actor or a task on a node: by its label, if no other has it."""
    if node.label and node.is_alone:
        return {"label_selector": {NODE_LABEL: node.label}}
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node.node_id, soft=False)}


def preferring(node: Node) -> dict[str, Any]:
    """The options that start an actor on a node while it is up, and else on any other.

    One byte of memory, since Ray places an actor that needs nothing on any node at once.
    """
    affinity = NodeAffinitySchedulingStrategy(node.node_id, soft=True)
    return {"scheduling_strategy": affinity, "memory": 1}
