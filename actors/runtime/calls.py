"""Actors by name, and calls to them: find, start, end, ask, and the errors of Ray by raylog's
names."""

from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util import list_named_actors

from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.runtime.names import Node
from raylog.actors.runtime.nodes import pinned_to
from raylog.storage.errors import RaylogError

# A call that neither waits for records nor moves data: an actor that is well answers in
# milliseconds.
CALL_TIMEOUT_S = 30.0
# Opening after a crash reads every unflushed byte back.
OPEN_TIMEOUT_S = 600.0
# What takes as long as the disk does: to move 20 TB at 30 MB/s, to open what a crash has left of
# thousands of logs. An actor that dies over it is noticed at once.
WORK_TIMEOUT_S = 7 * 86_400.0


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
    """The names of all actors of a namespace that live or are being restarted. Raises as ``find``
    does."""
    try:
        named = list_named_actors(all_namespaces=True)
    except RayError as error:
        raise named_error(error, "the names of the actors") from error
    return {entry["name"] for entry in named if entry["namespace"] == namespace}


def create(actor: Any, name: str, namespace: str, node: Node, *args: Any, **options: Any) -> Any:
    """Start a named, detached actor on one node, and nowhere else; or get the one that has the
    name."""
    return actor.options(
        name=name,
        namespace=namespace,
        lifetime="detached",
        get_if_exists=True,
        **pinned_to(node),
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


def named_error(
    error: BaseException, what: str, timeout_s: float = CALL_TIMEOUT_S
) -> BaseException:
    """Ray's way of saying it, turned into raylog's: a restarting actor, a time-out, the error of
    the actor."""
    if isinstance(error, RayTaskError) and isinstance(error.cause, RaylogError):
        return error.cause
    if isinstance(error, GetTimeoutError):
        return RequestTimedOut(what, int(timeout_s * 1000))
    if isinstance(error, RayError) and not isinstance(error, RayTaskError):
        # the actor, its node or its owner died, or cannot be placed
        return NotLeader(what, _summary(error))
    return error


def _summary(error: BaseException) -> str:
    """The line of Ray's story that tells: the last of a failed start (the error raised there), else
    the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [
        type(error).__name__
    ]
    return lines[-1] if "creation task" in lines[0] else lines[0]
