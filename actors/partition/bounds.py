"""How much one partition takes on at once by Ray call. The rest is refused by name.

What comes by socket waits instead: ``plane/room.py``.

::

    produce   32 threads   appends of 16 MB in all, and one append of any size   else TooManyAppends
    poll      72 threads   64 parked fetches                                     else TooManyPolls

Whatever may wait long has threads of its own, so that it keeps nothing else waiting::

    says       2 threads   what the actor serves: answered from memory, even while the disk hangs
    admin      2 threads   look-ups, which may read
    control    4 threads   what changes the log, and may wait for an fsync
    removal    2 threads   delete_records, which waits until the Controller confirms the config
    upkeep     4 threads   retention, compaction's swap

There are more threads for polls than places, so that a refusal waits in no queue. Calls beyond the
threads wait in Ray: up to about 100 KB inside of the actor's process, larger arguments in the
object store, which spills to disk. So an actor's own memory is bounded by the two limits and by 100
KB for each call whose caller does not wait for the answer. A program that calls a bare handle
without waiting is not limited: Ray's ``max_pending_calls`` is for that, but in Ray 2.60 handles
that are found by name do not have it.
"""

import threading

from raylog.actors.errors import TooManyAppends

# A batch has at most 1 MB unless a topic allows more, and a partition makes at most one copy of it.
# So this is a quarter of the memory that a partition's process takes without any append.
IN_FLIGHT_BYTES = 16 << 20
# Each parked fetch holds a thread.
PARKED_FETCHES = 64
# Threads. With batches of half a MB and more, the bytes are the limit; with smaller ones, the
# threads, behind which Ray keeps the rest. All appends that are under way share one fsync.
APPENDS_AT_ONCE = 32
FETCHES_AT_ONCE = 8
REFUSALS_AT_ONCE = 8  # of polls
SAYS_AT_ONCE = 2
LOOKUPS_AT_ONCE = 2
CONTROLS_AT_ONCE = 4
REMOVALS_AT_ONCE = 2
UPKEEP_AT_ONCE = 4


class InFlight:
    """The bytes of requests that have entered and are not answered."""

    def __init__(self, partition: str, most_bytes: int = IN_FLIGHT_BYTES) -> None:
        self._partition, self._most_bytes = partition, most_bytes
        self._lock = threading.Lock()
        self.size_bytes = 0

    def enter(self, size_bytes: int) -> None:
        """Count a request from now on. Raises TooManyAppends, but never if none is under way."""
        with self._lock:
            if self.size_bytes and self.size_bytes + size_bytes > self._most_bytes:
                raise TooManyAppends(self._partition, self.size_bytes, self._most_bytes)
            self.size_bytes += size_bytes

    def leave(self, size_bytes: int) -> None:
        """Count a request no longer: it is answered."""
        with self._lock:
            self.size_bytes -= size_bytes
