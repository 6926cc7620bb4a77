"""How much one partition takes on at once. What is beyond is refused by name, and clients come
again in a moment.

::

    produce   32 threads   appends of 16 MB in all, and one append of any size   else TooManyAppends
    poll      72 threads   64 parked fetches                                     else TooManyPolls

A thread more than places: whoever is refused is answered at once, and waits in no queue. Calls
beyond the threads wait in Ray: up to about 100 KB inside of the actor's process, larger arguments
in the object store, which spills to disk. So an actor's own memory is bounded by the two limits and
by 100 KB for each call that its callers do not wait for. raylog's clients have one under way a
partition. Nothing holds a program back that calls a bare handle without waiting: Ray's
``max_pending_calls`` is for that, but in Ray 2.60 handles that are found by name do not have it.
"""

import threading

from raylog.actors.errors import TooManyAppends

# A batch is 1 MB at the most unless a topic allows more; what a partition needs for one is a copy
# at the most, so this is a quarter of what a partition's process takes without any.
IN_FLIGHT_BYTES = 16 << 20
# Each parked fetch holds a thread.
PARKED_FETCHES = 64
# Threads. With batches of half a MB and more the bytes are the limit, with smaller ones the
# threads, behind which Ray keeps the rest; so many appends share one fsync.
APPENDS_AT_ONCE = 32
FETCHES_AT_ONCE = 8
REFUSALS_AT_ONCE = 8  # of polls


class InFlight:
    """The bytes of requests that have entered and are not answered."""

    def __init__(self, partition: str, most_bytes: int = IN_FLIGHT_BYTES) -> None:
        self._partition, self._most_bytes = partition, most_bytes
        self._lock = threading.Lock()
        self.size_bytes = 0

    def enter(self, size_bytes: int) -> None:
        """Count a request from now on. Raises TooManyAppends; one that is alone always enters."""
        with self._lock:
            if self.size_bytes and self.size_bytes + size_bytes > self._most_bytes:
                raise TooManyAppends(self._partition, self.size_bytes, self._most_bytes)
            self.size_bytes += size_bytes

    def leave(self, size_bytes: int) -> None:
        """Count it no longer: it is answered."""
        with self._lock:
            self.size_bytes -= size_bytes
