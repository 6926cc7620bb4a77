"""Has nodes look afresh at a log dir that they could not use when they began.

Such a dir is not known by its id, so the Controller cannot order anything for it: its path may be a
file, its identity may be lost, its disk may not be mounted. Its node is asked to look again.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from raylog.actors.errors import InvalidRequest, UnknownLogDir
from raylog.actors.messages import LogDirStatus
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, gather
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.cluster.controller.spread import short_key
from raylog.storage.errors import LogDirOffline, RaylogError

logger = logging.getLogger(__name__)

Ordered = TypeVar("Ordered")

# A look at the log dirs of a node; one whose disk hangs is told from memory.
TOLD_TIMEOUT_S = 5.0
# Until the Controller has heard of a log dir that a node has just read.
HEARD_TIMEOUT_S = 10.0
RETRY_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What the nodes say that have looked at a log dir.

    ``used``: the keys of those that use it now. ``refused``: why it still cannot be used, by key.
    """

    used: Sequence[str]
    refused: Mapping[str, str]


def online_again(
    log_dir: str,
    known: Sequence[LogDirStatus],
    managers: Mapping[str, LogManagerStub],
    order: Callable[[str | None], Ordered],
    node: str | None = None,
) -> list[Ordered]:
    """Have a log dir used again; what ``order`` returns. Raises as that does.

    ``order``: has the Controller use it again, at the node with this key; None: at the only node
    that has it. ``node``: the key of its node; None: another node may have a log dir at the same
    path. One that still cannot be used is refused with InvalidRequest only where the Controller has
    none to use either.
    """
    asked = {key: manager for key, manager in managers.items() if node in (None, key)}
    looked = look_again(log_dir, known, asked)
    if looked.used:
        return _ordered(order, looked.used)
    try:
        return [order(node)]
    except (InvalidRequest, LogDirOffline) as error:
        if looked.refused:
            raise InvalidRequest("log_dir", log_dir, _why(looked.refused)) from error
        raise


def _ordered(order: Callable[[str | None], Ordered], nodes: Sequence[str]) -> list[Ordered]:
    """The answers for these nodes; each is ordered as soon as the Controller has heard of it.

    Raises the first problem, when every other node has its order.
    """
    deadline = time.monotonic() + HEARD_TIMEOUT_S
    answers: list[Ordered] = []
    problems: dict[str, RaylogError] = {}
    left = list(nodes)
    while left:
        unheard = []
        for node in left:
            try:
                answers.append(order(node))
                problems.pop(node, None)
            except RaylogError as error:
                problems[node] = error
                if _is_unheard(error):
                    unheard.append(node)
        left = unheard
        if time.monotonic() >= deadline:
            break
        if left:
            time.sleep(RETRY_INTERVAL_S)
    for problem in problems.values():
        raise problem
    return answers


def _is_unheard(error: RaylogError) -> bool:
    """Whether the Controller may not have heard yet that the node has read the log dir."""
    return isinstance(error, UnknownLogDir | LogDirOffline)


def _why(refused: Mapping[str, str]) -> str:
    whys = ", ".join(f"node {short_key(node)}: {why}" for node, why in refused.items())
    return f"cannot be used yet: {whys}; mend that first"


def look_again(
    log_dir: str, known: Sequence[LogDirStatus], managers: Mapping[str, LogManagerStub]
) -> Looked:
    """Have the nodes look at the log dir that could not use it before.

    ``log_dir``: a path or a directory id. ``known``: the log dirs as the Controller knows them; an
    id means the one log dir that has it, a path means that of each node. A node that does not tell
    its log dirs is not asked to look, and is logged.
    """
    places = {_place(dir) for dir in known if dir.directory_id == log_dir}
    told = gather({node: manager.log_dirs() for node, manager in managers.items()}, TOLD_TIMEOUT_S)
    for node, problem in told.errors.items():
        logger.warning("the LogManager of node %s does not answer: %s", node, problem)
    looks = {
        node: managers[node].look_again(dir.path)
        for node, dirs in told.answers.items()
        for dir in unread(dirs)
        if _place(dir) in places or os.path.normpath(dir.path) == log_dir
    }
    looked = gather(looks, CALL_TIMEOUT_S)
    looked.raise_faults()
    refused = {node: why for node, why in looked.answers.items() if why}
    for node, error in looked.errors.items():
        assert isinstance(error, RaylogError), error
        refused[node] = error.problem
    used = [node for node, why in looked.answers.items() if not why]
    return Looked(used=used, refused=refused)


def _place(dir: LogDirStatus) -> tuple[str, str]:
    """The node, by Ray's id, and the path."""
    return dir.node_id, os.path.normpath(dir.path)


def unread(dirs: Sequence[LogDirStatus]) -> list[LogDirStatus]:
    """Those of a node that it could not read."""
    return [dir for dir in dirs if not dir.is_online and not dir.directory_id]
