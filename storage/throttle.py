"""How fast compaction and moves may read and write: a number of bytes a second.

Bytes are counted as they are read and written. After some time, when they were more than the rate
allows for it, whoever counts sleeps until they are not, and the count begins anew. Source:
``Throttler`` of Kafka.
"""

from collections.abc import Callable

# Shorter sleeps would cost more than they smooth.
CHECK_SECONDS = 0.3


class Throttle:
    """Told of bytes, it sleeps. ``now``: seconds that never go back, as ``time.monotonic``.

    ``rate``: bytes a second; it may be changed at any time.
    """

    def __init__(
        self, bytes_per_second: float, now: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self.rate, self._now, self._sleep = bytes_per_second, now, sleep
        self._begin, self._bytes = now(), 0

    def __call__(self, size_bytes: int) -> None:
        """So many bytes were read and written."""
        self._bytes += size_bytes
        elapsed = self._now() - self._begin
        if elapsed <= CHECK_SECONDS:
            return
        too_fast_by = self._bytes / self.rate - elapsed
        if too_fast_by > 0:
            self._sleep(too_fast_by)
        self._begin, self._bytes = self._now(), 0
