"""Which log is compacted next, and how the last rounds ended: a node's decisions.

It is told what its logs look like, begins a round over the filthiest of those that are due, is told
how the round ended, and knows what there is to tell of it. An error that passes by itself (the log
is being opened, moved or deleted, its disk is full) is met again in the next look; any other makes
the log uncleanable (``states.py``).

A round that its disk ends (a full one, a sector that cannot be read) is tried again, too, but later
each time: it may have read gigabytes until then.

Whoever shares an object of this between threads holds a lock. Source: ``LogCleanerManager`` of
Kafka.
"""

from collections.abc import Collection, Mapping
from typing import Generic, NamedTuple

from raylog.storage.cleaner.cleanable import (
    Cleanable,
    LogFacts,
    LogName,
    cleanable,
    filthiest,
    first_dirty_offset,
    is_due,
)
from raylog.storage.cleaner.cleaner import Cleaned
from raylog.storage.cleaner.states import CleaningStates
from raylog.storage.config import LogConfig
from raylog.storage.errors import CleaningAborted, CorruptRecord, RaylogError, StorageError

# How long a log waits whose round its disk has ended: twice as long each time, up to the second.
FIRST_WAIT_MS, LONGEST_WAIT_MS = 15_000, 300_000


class Candidate(NamedTuple):
    """A log that could be compacted."""

    facts: LogFacts
    checkpoint: int | None  # where its last round ended
    config: LogConfig

    @property
    def corrected_checkpoint(self) -> int | None:
        """What must be written down in the place of a checkpoint that is out of the log."""
        right = first_dirty_offset(self.checkpoint, self.facts)
        return right if self.checkpoint is not None and right != self.checkpoint else None


class CompactionSchedule(Generic[LogName]):
    """The compacted logs of one node."""

    def __init__(self) -> None:
        self.states = CleaningStates[LogName]()
        self.cleanables: dict[LogName, Cleanable] = {}  # at the last look
        self.problems: dict[LogName, str] = {}  # of the last look or round, where it failed
        # the last round: when it ended, and what it did
        self.last_rounds: dict[LogName, tuple[int, Cleaned]] = {}
        self._waits: dict[LogName, tuple[int, int]] = {}  # until when, and how long that is, in ms

    def begin(self, candidates: Mapping[LogName, Candidate], now_ms: int) -> LogName | None:
        """Begin a round over the filthiest log that is due now; None if none is."""
        for name, candidate in candidates.items():
            self.cleanables[name] = cleanable(
                candidate.facts, candidate.checkpoint, candidate.config, now_ms
            )
            if not self._is_waiting(name, now_ms):
                self.problems.pop(name, None)
        free = [name for name in self.states.free(candidates) if not self._is_waiting(name, now_ms)]
        due = {
            name: self.cleanables[name]
            for name in free
            if is_due(self.cleanables[name], candidates[name].config)
        }
        chosen = filthiest(due)
        if chosen is not None:
            self.states.begin(chosen)
        return chosen

    def ended(self, name: LogName, done: Cleaned, now_ms: int) -> bool:
        """A round has ended well; returns whether its end may be written down."""
        self.last_rounds[name] = (now_ms, done)
        self._waits.pop(name, None)
        return self.states.end(name)

    def broken_off(self, name: LogName, error: Exception, now_ms: int) -> None:
        """A round has ended with an error. Whoever tells this tells :meth:`failed`, too."""
        self.states.end(name)
        if isinstance(error, StorageError):
            _, before_ms = self._waits.get(name, (0, 0))
            wait_ms = min(max(2 * before_ms, FIRST_WAIT_MS), LONGEST_WAIT_MS)
            self._waits[name] = (now_ms + wait_ms, wait_ms)

    def _is_waiting(self, name: LogName, now_ms: int) -> bool:
        until_ms, wait_ms = self._waits.get(name, (0, 0))
        return now_ms < until_ms <= now_ms + wait_ms  # a clock that was set back holds up nothing

    def failed(self, name: LogName, error: Exception) -> bool:
        """A look at a log, its round or its retention failed; returns whether this is news."""
        why = str(error) or repr(error)
        if not _may_pass(error):
            self.states.mark_uncleanable(name, why)
        is_news = self.problems.get(name) != why
        self.problems[name] = why
        return is_news

    def keep(self, names: Collection[LogName]) -> None:
        """Forget the logs that are no longer here."""
        self.states.keep(names)
        for by_name in (self.cleanables, self.problems, self.last_rounds, self._waits):
            for name in by_name.keys() - {*names}:
                by_name.pop(name, None)


def _may_pass(error: Exception) -> bool:
    """Whether a later look at the same log may end well."""
    if isinstance(error, CorruptRecord):  # a client may send its batch again; a disk has no other
        return False
    is_retriable = isinstance(error, RaylogError) and error.retriable
    return is_retriable or isinstance(error, CleaningAborted)
