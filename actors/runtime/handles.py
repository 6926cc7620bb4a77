"""Actors by name: find them, start them on a node, end them."""

from typing import Any

import ray
from ray.exceptions import RayError
from ray.util import list_named_actors

from raylog.actors.runtime.calls import named_error
from raylog.actors.runtime.clusters import check_connected
from raylog.actors.runtime.names import Node
from raylog.actors.runtime.nodes import pinned_to, preferring


def find(name: str, namespace: str) -> Any | None:
    """The handle of a named actor, or None if there is none.

    Raises RequestTimedOut or NotLeader where Ray's head does not answer: then nobody knows. Raises
    RayNotFound where this process is not connected to Ray.
    """
    check_connected()
    try:
        return ray.get_actor(name, namespace=namespace)
    except ValueError:
        return None
    except RayError as error:
        raise named_error(error, name) from error


def running(namespace: str) -> set[str]:
    """The names of all actors of a namespace that live or are being restarted.

    Raises as ``find`` does.
    """
    check_connected()
    try:
        named = list_named_actors(all_namespaces=True)
    except RayError as error:
        raise named_error(error, "the names of the actors") from error
    return {entry["name"] for entry in named if entry["namespace"] == namespace}


def create(
    actor: Any,
    name: str,
    namespace: str,
    node: Node,
    *args: Any,
    is_bound: bool = True,
    **options: Any,
) -> Any:
    """Start a named, detached actor on one node.

    ``is_bound``: nowhere else; otherwise Ray starts it again on any node when this one is gone.
    Returns the handle, also of an actor that has the name already.
    """
    return actor.options(
        name=name,
        namespace=namespace,
        lifetime="detached",
        get_if_exists=True,
        **(pinned_to(node) if is_bound else preferring(node)),
        **options,
    ).remote(*args)


def kill(name: str, namespace: str) -> None:
    """End a named actor for good; fine if it is gone."""
    handle = find(name, namespace)
    if handle is not None:
        ray.kill(handle, no_restart=True)


def end_own_actor() -> None:
    """End for good the actor that this process is."""
    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
