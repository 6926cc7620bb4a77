"""All of raylog's calls to Ray's actor machinery: names, placement, lookup, and errors on their way back.

Every actor is named and detached, in the broker's namespace, and pinned to the node that has its disk::

    Controller                  one a broker
    LogManager:<Ray node id>    one a node
    Compaction:<Ray node id>    one a node that has compacted partitions
    Retention:<Ray node id>     one a node that has others
    Log:<topic>-<partition>     one a partition
"""

from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util import list_named_actors
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raylog.actors.messages import NotLeader, RequestTimedOut
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition

NAMESPACE = "raylog"
CONTROLLER = "Controller"
# With a Ray node's id behind it.
COMPACTION, RETENTION = "Compaction:", "Retention:"
# A call that neither waits for records nor moves data: an actor that is well answers in milliseconds.
CALL_TIMEOUT_S = 30.0
# Opening after a crash reads every unflushed byte back.
OPEN_TIMEOUT_S = 600.0


def log_actor_name(partition: TopicPartition) -> str:
    return f"Log:{partition}"


def log_manager_name(node_id: str) -> str:
    return f"LogManager:{node_id}"


def compaction_actor_name(node_id: str) -> str:
    return COMPACTION + node_id


def retention_actor_name(node_id: str) -> str:
    return RETENTION + node_id


def find(name: str, namespace: str) -> Any | None:
    """The handle of a named actor, or None if there is none."""
    try:
        return ray.get_actor(name, namespace=namespace)
    except ValueError:
        return None


def running(namespace: str) -> set[str]:
    """The names of all actors of a namespace that live or are being restarted."""
    return {
        entry["name"] for entry in list_named_actors(all_namespaces=True) if entry["namespace"] == namespace
    }


def create(actor: Any, name: str, namespace: str, node_id: str, *args: Any, **options: Any) -> Any:
    """Start a named, detached actor on one node, and nowhere else; or get the one that has the name."""
    pinned = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return actor.options(
        name=name,
        namespace=namespace,
        lifetime="detached",
        scheduling_strategy=pinned,
        get_if_exists=True,
        **options,
    ).remote(*args)


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


def alive_nodes() -> Mapping[str, str]:
    """Node id -> address, of the nodes that are up."""
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
