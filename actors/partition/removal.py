"""The right to remove records from a log. Knows no Ray.

Retention, compaction's swap and ``delete_records`` need a config that the Controller has confirmed
(``actors/node/confirmed_logs.py``), and that is the one which the log obeys at this moment.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from raylog.actors.control import Confirmed, LogId
from raylog.actors.errors import ConfigUnconfirmed
from raylog.storage.clock import Clock

Answer = TypeVar("Answer")
# Called with the version of the config that the log obeys, with the lock held that a change of the
# config takes. It raises ConfigUnconfirmed where nothing may be removed under it.
Permit = Callable[[int], None]

# How long a user's removal waits for its config to be confirmed, and how often it looks. Of a topic
# that was just made it is within a second; while a Controller starts anew it takes several.
PATIENCE_S = 10.0
INTERVAL_S = 0.2


def any_version(obeyed: int) -> None:
    """The permit of whoever owns the log alone, and its config with it."""


def permit(log: LogId, confirmed: Confirmed | None, clock: Clock) -> Permit:
    """The permit that ``confirmed`` gives for a log. ``clock``: the node's ``SteadyClock``."""
    return partial(_check, log, confirmed, clock)


def once_confirmed(
    remove: Callable[[], Answer],
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer:
    """Try a removal until its config is confirmed; raises ConfigUnconfirmed after PATIENCE_S."""
    deadline_s = now() + PATIENCE_S
    while True:
        try:
            return remove()
        except ConfigUnconfirmed:
            if now() >= deadline_s:
                raise
        sleep(INTERVAL_S)


def _check(log: LogId, confirmed: Confirmed | None, clock: Clock, obeyed: int) -> None:
    if confirmed is None or confirmed.log != log:
        why = "the Controller has not confirmed its config within the last seconds"
    elif confirmed.config_version != obeyed:
        wanted = confirmed.config_version
        why = f"it obeys version {obeyed} of its config, and version {wanted} is wanted"
    elif clock.now_ms() >= confirmed.until_ms:
        why = "the confirmation of its config is too old"
    else:
        return
    raise ConfigUnconfirmed(str(log.partition), why)
