"""Which logs are being compacted, must be left alone, or cannot be compacted. No threads here.

::

    free ----begin----> cleaning ----end----> free      the round counts: its end is checkpointed
                           | abort
                           v
                        aborted ----end----> free       the round does not count

Who deletes or moves a log, or takes compaction from it, has its round aborted; whether a round that
begins after that may swap, the log itself decides. A round asks :meth:`CleaningStates.check` at
every chunk. A log whose round fails for another reason than its disk or an abort is *uncleanable*
until the next start: it would fail again at once, for ever, and keep the others waiting.

Whoever shares an object of this between threads holds a lock. Source: ``LogCleanerManager`` of
Kafka.
"""

from collections.abc import Collection, Iterable
from typing import Generic, TypeVar

from raylog.storage.errors import CleaningAborted

LogName = TypeVar("LogName")


class CleaningStates(Generic[LogName]):
    """The states of the logs of one node. A log that nothing was said of is free."""

    def __init__(self) -> None:
        self._running: dict[LogName, bool] = {}  # those with a round; True: it is to be given up
        self._uncleanable: dict[LogName, str] = {}

    @property
    def uncleanable(self) -> dict[LogName, str]:
        """The logs that are not compacted any more, and why."""
        return dict(self._uncleanable)

    def free(self, names: Iterable[LogName]) -> list[LogName]:
        """Of these, the logs that a round may begin with."""
        taken = {*self._running, *self._uncleanable}
        return [name for name in names if name not in taken]

    def begin(self, name: LogName) -> None:
        """A round over a free log begins."""
        assert self.free([name]), f"{name} is not free"
        self._running[name] = False

    def check(self, name: LogName) -> None:
        """Raise CleaningAborted if the round of this log is to be given up."""
        if self._running[name]:
            raise CleaningAborted(
                str(name),
                "the log will be deleted or moved, or its cleanup.policy no longer has compact",
            )

    def end(self, name: LogName) -> bool:
        """The round ended, in whatever way; returns whether what it did may be written down."""
        return not self._running.pop(name)

    def abort(self, name: LogName) -> None:
        """Have the round given up that runs over this log, if one does."""
        if name in self._running:
            self._running[name] = True

    def is_quiet(self, name: LogName) -> bool:
        """Whether no round runs over this log."""
        return name not in self._running

    def mark_uncleanable(self, name: LogName, why: str) -> None:
        """Leave this log alone from now on."""
        self._uncleanable[name] = why

    def keep(self, names: Collection[LogName]) -> None:
        """Only these logs are still there, and the same: one of the same name may come.

        What is known of others is forgotten, and their rounds are given up.
        """
        for name in self._running.keys() - {*names}:
            self.abort(name)
        self._uncleanable = {name: why for name, why in self._uncleanable.items() if name in names}
