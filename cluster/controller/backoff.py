"""When to try again what has failed: after a second, then after twice as long each time.

Each try to open a partition costs a new process, and so does each try of a node to join.
"""

from collections.abc import Callable, Hashable, Set
from typing import NamedTuple

FIRST_DELAY_S = 1.0
# What was mended is noticed within a minute.
LONGEST_DELAY_S = 60.0


class _Retry(NamedTuple):
    at_s: float
    delay_s: float


class Backoff:
    """The times of the next tries. ``clock``: seconds that never go back. Not safe for threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._retries: dict[Hashable, _Retry] = {}

    def failed(self, key: Hashable) -> None:
        """It is due again later than it was the last time."""
        last = self._retries.get(key)
        delay_s = FIRST_DELAY_S if last is None else min(2 * last.delay_s, LONGEST_DELAY_S)
        self._retries[key] = _Retry(self._clock() + delay_s, delay_s)

    def is_due(self, key: Hashable) -> bool:
        retry = self._retries.get(key)
        return retry is None or self._clock() >= retry.at_s

    def reset(self, key: Hashable) -> None:
        """It went well, or the cause of the failure is over: it is due at once."""
        self._retries.pop(key, None)

    def keep(self, keys: Set[Hashable]) -> None:
        """Forget all others."""
        self._retries = {key: retry for key, retry in self._retries.items() if key in keys}
