"""How long a Controller whose metadata has failed waits before it begins again.

The next life reads the metadata back from the disk and writes its epoch. Where the disk fails for
good it fails there again, and each try costs the nodes and the disk something: so the pauses grow.
In the pause the Controller that failed stays: it answers look-ups, and says why nothing else goes.
"""

import logging
import time
from collections.abc import Callable

from raylog.actors.events import warn

logger = logging.getLogger(__name__)

# The first pause is long enough for its last answers to arrive, and for health to see it.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 3.0, 60.0
# After a life as long as this the disk is taken for a good one.
GOOD_LIFE_S = 120.0


class Lives:
    """The lives of a Controller in one process. ``clock``: seconds that never go back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = 0.0
        self._pause_s = FIRST_PAUSE_S

    def begin(self) -> None:
        """Another one begins."""
        self._began_s = self._clock()

    def end(self) -> float:
        """It has failed; returns how many seconds the pause before the next one takes."""
        if self._clock() - self._began_s >= GOOD_LIFE_S:
            self._pause_s = FIRST_PAUSE_S
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return pause_s


def begin_again(
    end: Callable[[], bool], begin: Callable[[], object], end_process: Callable[[], object]
) -> None:
    """End a life, and begin the next one in this process if the end was in order.

    ``end``: whether it was. Where it was not, or raises anything, the process is ended: what the
    life has left, a lock or a thread, goes with that only.
    """
    try:
        is_in_order = end()
    except Exception as error:
        warn(logger, "controller-not-ended", trace=True, why=error)
        is_in_order = False
    if is_in_order:
        begin()
    else:
        end_process()
