"""When a snapshot of the metadata is due, and what came of the last one. Pure.

::

    records  ...... snapshot ......................... due
                    |<-- metadata.log.max.record. --->|
                         bytes.between.snapshots

So the log, and what a start reads, have a bound. Where the newest snapshot is damaged, another one
is due at once: until then the one before it is the only one. That is found out when a Controller
begins, and when a copy is to get it. One that fails is tried again, and one that a bad disk damages
again and again is not made more often. The log goes on without it: only a failure of the log itself
ends the Controller, when it is appended to.

What a snapshot is made of, and when all records count, the machine knows.
"""

from raylog.storage.errors import RaylogError

# A snapshot that failed, or was damaged since, is made again so long after the last try: each try
# writes the whole file.
RETRY_MS = 60_000


class Saving:
    """``problem``: why the last try failed; None where it did not. ``damaged``: why snapshots that
    lie there cannot be read."""

    def __init__(self) -> None:
        self.problem: RaylogError | None = None
        self.damaged: tuple[str, ...] = ()
        self._is_needed = False  # whatever the records are
        self._begun_bytes: int | None = None  # the size of the history when it began; None: not now
        self._saved_bytes = 0  # and when the newest one was made
        # of the newest one; 0 and None: it was made before this life
        self._begun_end = self._saved_end = 0  # how many records it is of
        self._made_ms: int | None = None
        self._not_before_ms = 0

    def start(self, damaged: tuple[str, ...]) -> None:
        """The log was read. ``damaged``: snapshots newer than that from which it was read."""
        self.damaged, self._is_needed = damaged, bool(damaged)

    def found(self, end: int, why: str) -> bool:
        """The one of ``end`` records cannot be read; returns whether that is news.

        Where a newer one is there, or is being made, nobody needs that.
        """
        if self._begun_bytes is not None or end < self._saved_end:
            return False
        self._is_needed = True
        if self._made_ms is not None:
            self._not_before_ms = max(self._not_before_ms, self._made_ms + RETRY_MS)
        if why in self.damaged:
            return False
        self.damaged = (*self.damaged, why)
        return True

    def is_due(self, size_bytes: int, most_bytes: int, now_ms: int) -> bool:
        """Whether to make one now. ``size_bytes``: of the history's records."""
        if self._begun_bytes is not None or now_ms < self._not_before_ms:
            return False
        return self._is_needed or size_bytes - self._saved_bytes >= most_bytes

    def begin(self, size_bytes: int, end: int) -> None:
        """One of ``end`` records is being made. ``size_bytes``: as of ``is_due``."""
        self._begun_bytes, self._begun_end = size_bytes, end

    def made(self, problem: RaylogError | None, damaged: tuple[str, ...], now_ms: int) -> None:
        """It is saved, or ``problem``. ``damaged``: older ones that are still there."""
        assert self._begun_bytes is not None, "none was being made"
        begun_bytes, self._begun_bytes = self._begun_bytes, None
        self.problem = problem
        if problem is not None:
            self._not_before_ms = now_ms + RETRY_MS
            return
        self.damaged, self._is_needed, self._saved_bytes = damaged, False, begun_bytes
        self._saved_end, self._made_ms = self._begun_end, now_ms
