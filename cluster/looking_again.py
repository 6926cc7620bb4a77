"""Has nodes look afresh at a log dir that they could not use when they began.

Such a dir is not known by its id, so the Controller cannot order anything for it: its path may be a
file, its identity may be lost, its disk may not be mounted. Its node is asked to look again.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence

from raylog.actors.errors import InvalidRequest
from raylog.actors.messages import LogDirStatus
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, gather
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.storage.errors import LogDirOffline

# A look at the log dirs of a node; one whose disk hangs is told from memory.
TOLD_TIMEOUT_S = 5.0
# Until the Controller has heard of a log dir that a node has just read.
HEARD_TIMEOUT_S = 10.0
RETRY_INTERVAL_S = 0.1


def online_again(
    log_dir: str,
    known: Sequence[LogDirStatus],
    managers: Mapping[str, LogManagerStub],
    order: Callable[[], str],
) -> str:
    """The state of a log dir that is used again. Raises as ``look_again`` and ``order`` do.

    ``order``: has the Controller use it again; returns its state.
    """
    is_read = look_again(log_dir, known, managers)
    deadline = time.monotonic() + HEARD_TIMEOUT_S
    while True:
        try:
            return order()
        except (InvalidRequest, LogDirOffline):
            if not is_read or time.monotonic() >= deadline:
                raise
            time.sleep(RETRY_INTERVAL_S)


def look_again(
    log_dir: str, known: Sequence[LogDirStatus], managers: Mapping[str, LogManagerStub]
) -> bool:
    """Whether a node uses the log dir now that it could not use before.

    ``log_dir``: a path or a directory id. ``known``: the log dirs as the Controller knows them.
    Raises InvalidRequest where it still cannot be used.
    """
    paths = {os.path.normpath(dir.path) for dir in known if dir.directory_id == log_dir}
    paths.add(log_dir)
    told = gather({node: manager.log_dirs() for node, manager in managers.items()}, TOLD_TIMEOUT_S)
    looks = {
        (node, path): managers[node].look_again(path)
        for node, dirs in told.answers.items()
        for path in unread(dirs)
        if os.path.normpath(path) in paths
    }
    looked = gather(looks, CALL_TIMEOUT_S)
    looked.raise_faults()
    for error in looked.errors.values():
        raise error
    for (_, path), why in looked.answers.items():
        if why:
            raise InvalidRequest("log_dir", path, f"cannot be used yet: {why}; mend that first")
    return bool(looks)


def unread(dirs: Sequence[LogDirStatus]) -> list[str]:
    """The paths of those of a node that it could not read."""
    return [dir.path for dir in dirs if not dir.is_online and not dir.directory_id]
