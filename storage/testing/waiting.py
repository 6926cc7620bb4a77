"""Waiting for a condition, with a deadline: what a test does in the place of sleeping."""

import time
from collections.abc import Callable

POLL_S = 0.001


def wait_for(
    condition: Callable[[], object],
    deadline_s: float = 10.0,
    what: str = "the condition",
    poll_s: float = POLL_S,
) -> None:
    """Return once ``condition()`` is true; AssertionError if it is not within the deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {deadline_s} s")
        time.sleep(poll_s)
