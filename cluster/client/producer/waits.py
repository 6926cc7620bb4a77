"""Says once that records wait, and why, while a producer goes on trying.

Without it whoever looks at a program, or at ``raylog produce``, learns only when
``delivery.timeout.ms`` is over that for example a disk is full. It is a warning of Python's
``logging``, which goes to stderr where the program does not say otherwise.
"""

import logging
import math
from typing import Final

from raylog.storage.errors import RaylogError

logger = logging.getLogger(__name__)

# A partition that restarts, or moves, is back in less time; nobody has to hear of that.
TELL_AFTER_S: Final = 5.0


class Waits:
    """What a producer has told of records that wait. Only its own thread uses it."""

    def __init__(self, producer: str, delivery_timeout_s: float) -> None:
        self._producer, self._timeout_s = producer, delivery_timeout_s
        self._told_at = -math.inf

    def refused(self, partition: str, error: BaseException, created_at: float, now: float) -> None:
        """An attempt to send a batch has failed. ``created_at``, ``now``: in seconds.

        It is told at most once in ``delivery.timeout.ms``, however many batches and partitions
        wait: one full disk has many of them.
        """
        if isinstance(error, RaylogError) and not error.retriable:
            return  # it fails now, and its error says why
        waited_s = now - created_at
        if not TELL_AFTER_S <= waited_s < self._timeout_s:
            return
        if now - self._told_at < self._timeout_s:
            return
        self._told_at = now
        logger.warning(
            "%s: %s: records have waited for %d s, and are sent again until delivery.timeout.ms "
            "(%g s) is over: %s",
            self._producer,
            partition,
            waited_s,
            self._timeout_s,
            error,
        )
