"""Who may change a log, as locks.

Storage starts no threads. Who has several makes the locks: ``log.locks.use(threading.Lock)``. Alone
in one thread everybody is the owner of everything.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol


class Lock(Protocol):
    """As ``threading.Lock``."""

    def locked(self) -> bool: ...
    def __enter__(self) -> bool: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class NoLock:
    """The lock of one thread, which always has it."""

    def locked(self) -> bool:
        return True

    def __enter__(self) -> bool:
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass


class LogLocks:
    """The locks of one log, in the order in which they may be taken.

    ``old``: owns the old segments: retention, compaction's swap. ``flush``: owns the fsync.
    ``end``: owns the end: append, roll; nothing under it waits for a disk to sync. ``list``: the
    list of segments, for two assignments.
    """

    def __init__(self) -> None:
        self.use(NoLock)

    def use(self, make: Callable[[], Lock]) -> None:
        """Have other locks, while nobody holds one. All parts of the log share this object."""
        self.old, self.flush, self.end, self.list = make(), make(), make(), make()
