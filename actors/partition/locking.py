"""Taking the lock of a folder from a process that is at its end. Knows no Ray."""

import time
from collections.abc import Callable
from typing import TypeVar

from raylog.storage.errors import LogLocked
from raylog.storage.lock_holders import holder_of

Locked = TypeVar("Locked")

# The process of an actor whose node was lost may outlive the node by a second.
LOCK_PATIENCE_S = 5.0
RETRY_INTERVAL_S = 0.05


def lock_patiently(
    take: Callable[[], Locked],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Locked:
    """Take a lock that a process at its end may still hold for a moment.

    Raises LogLocked, which names the process that holds it.
    """
    deadline_s = clock() + LOCK_PATIENCE_S
    while True:
        try:
            return take()
        except LogLocked as error:
            if clock() > deadline_s:
                holder = holder_of(error.path)
                if not holder:
                    raise
                raise LogLocked(error.path, holder) from error
            sleep(RETRY_INTERVAL_S)
