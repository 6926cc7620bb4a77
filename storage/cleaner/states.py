"""Which logs are being compacted, which must be left alone, and which cannot be compacted: without threads.

::

    free ----begin----> cleaning ----end----> free          the round counts: its end offset is written down
     |                     | pause
     | pause               v
     |                  aborted ----end----> paused(1)      the round does not count
     v                                          ^ |
    paused(1) <---- pause, resume ----> paused(2), ...

Who truncates, deletes or moves a log pauses it, waits until it is quiet, does it, and resumes it. A round asks
:meth:`CleaningStates.check` at every chunk. A log whose round fails for another reason than its disk or a pause
is *uncleanable* until the next start: it would fail again at once, for ever, and keep the others waiting.

Whoever shares an object of this between threads holds a lock. Source: ``LogCleanerManager`` of Kafka.
"""

from collections.abc import Collection, Iterable
from typing import Generic, TypeVar

from raylog.storage.errors import CleaningAborted

LogName = TypeVar("LogName")


class CleaningStates(Generic[LogName]):
    """The states of the logs of one node. A log that nothing was said of is free."""

    def __init__(self) -> None:
        self._running: dict[LogName, bool] = {}  # those with a round; True: it is to be given up
        self._pauses: dict[LogName, int] = {}
        self._uncleanable: dict[LogName, str] = {}

    @property
    def uncleanable(self) -> dict[LogName, str]:
        """The logs that are not compacted any more, and why."""
        return dict(self._uncleanable)

    def free(self, names: Iterable[LogName]) -> list[LogName]:
        """Of these, the logs that a round may begin with."""
        taken = {*self._running, *self._pauses, *self._uncleanable}
        return [name for name in names if name not in taken]

    def begin(self, name: LogName) -> None:
        """A round over a free log begins."""
        assert self.free([name]), f"{name} is not free"
        self._running[name] = False

    def check(self, name: LogName) -> None:
        """Raise CleaningAborted if the round of this log is to be given up."""
        if self._running[name]:
            raise CleaningAborted(str(name), "the log is about to be truncated, deleted or moved")

    def end(self, name: LogName) -> bool:
        """The round ended, in whatever way; returns whether what it did may be written down."""
        return not self._running.pop(name)

    def pause(self, name: LogName) -> bool:
        """Let no round begin, and the one that runs be given up; returns whether the log is quiet already."""
        self._pauses[name] = self._pauses.get(name, 0) + 1
        if name in self._running:
            self._running[name] = True
        return self.is_quiet(name)

    def is_quiet(self, name: LogName) -> bool:
        """Whether no round runs over this log."""
        return name not in self._running

    def resume(self, name: LogName) -> None:
        """Take back one pause."""
        assert self._pauses.get(name), f"{name} is not paused"
        self._pauses[name] -= 1
        if not self._pauses[name]:
            del self._pauses[name]

    def mark_uncleanable(self, name: LogName, why: str) -> None:
        """Leave this log alone from now on."""
        self._uncleanable[name] = why

    def keep(self, names: Collection[LogName]) -> None:
        """Forget uncleanable logs that are no longer there: one of the same name may come."""
        self._uncleanable = {name: why for name, why in self._uncleanable.items() if name in names}
