"""Waiting for a condition, with a deadline: what a test does in the place of sleeping."""

import time
from collections.abc import Callable

POLL_S = 0.001
# Long enough for a machine that is busy with something else: only a test that fails waits so long.
DEADLINE_S = 60.0


def wait_for(
    condition: Callable[[], object],
    deadline_s: float = DEADLINE_S,
    what: str = "the condition",
    poll_s: float = POLL_S,
) -> None:
    """Return once ``condition()`` is true; AssertionError if it is not within the deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {deadline_s} s")
        time.sleep(poll_s)
