"""The metadata log as the machine sees it: one append at a time, and what a failed one means.

::

    begin --> Append ~~~~> written, on the own disk ~~~~> counts, on the disks of all copies in sync

While an append is under way, nobody is told anything about what it touches: a decision counts when
it is on the disk, and in the copies (``following.py``). Only a record that says which copies these
are may be appended behind one that waits for them. After a failed fsync nobody knows whether it is,
and so that lasts until the next Controller has read the log.

**A full disk.** What the Controller writes by itself, and what makes room, may use the metadata's
reserve (``reserve.py``). What makes the cluster grow may not, and is refused while the reserve is
given up. After a record that may use it has met a full disk all the same, nothing can be decided
until there is room: ``stuck`` says why, to those who would wait for that.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from raylog.actors.control import LogId
from raylog.cluster.controller.commands import AddPartitions, Command, CreateTopic
from raylog.cluster.controller.config_changes import ConfigChange
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.records import (
    DirRecord,
    PartitionRecord,
    PartitionRemovedRecord,
    Record,
    TopicRecord,
)
from raylog.storage.errors import DiskFull, OutOfResources, RaylogError

# A full disk is tried again after this.
RETRY_MS = 1_000
# The reserve is made again after this, if there is room.
RESERVE_RETRY_MS = 10_000
# What makes the cluster grow. A move takes records, too, but it makes room where it comes from.
GROWING = (CreateTopic, AddPartitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """For whom records are appended: a ``request``'s command, or to undo it for its ``error``.

    ``changes``: of the broker's config, that the command makes.
    """

    request: int
    command: Command | None = None
    error: RaylogError | None = None
    changes: tuple[ConfigChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """An append that is not answered yet. ``purpose``: None where it only follows from the plan."""

    token: int
    records: tuple[Record, ...]
    purpose: Purpose | None
    touched: frozenset[LogId]
    end: int | None = None  # how many records there are with these; None before it is written

    @property
    def may_use_reserve(self) -> bool:
        """Whether it is written on a full disk, too, while there is a reserve."""
        return self.purpose is None or not isinstance(self.purpose.command, GROWING)


class ReserveState:
    """What is known of the metadata's reserve. ``problem``: why it is not whole.

    It is taken for whole until somebody says otherwise.
    """

    def __init__(self) -> None:
        self.problem: RaylogError | None = None
        self._is_wanted, self._is_being_made = True, False
        self._not_before_ms = 0

    def is_due(self, now_ms: int) -> bool:
        """Whether to make it now."""
        return self._is_wanted and not self._is_being_made and now_ms >= self._not_before_ms

    def begin(self) -> None:
        """It is being made."""
        self._is_being_made = True

    def made(self, problem: RaylogError | None, now_ms: int) -> None:
        """It is whole now, or ``problem``."""
        self._is_being_made, self._is_wanted = False, problem is not None
        self.problem, self._not_before_ms = problem, now_ms + RESERVE_RETRY_MS

    def given_up(self, why: DiskFull, now_ms: int) -> None:
        """A piece of it, or all that was left."""
        self._is_wanted = True
        self.problem, self._not_before_ms = why, now_ms + RESERVE_RETRY_MS


class Journal:
    """What is being appended."""

    def __init__(self) -> None:
        self.reserve = ReserveState()
        self.stuck: DiskFull | None = None  # why not even the reserve has room for a record
        self.failure: RaylogError | None = None  # after it nothing is appended any more
        self._in_flight: deque[InFlight] = deque()  # the last one may not be written yet
        self._token = 0
        self._not_before_ms = 0

    @property
    def is_free(self) -> bool:
        """Whether nothing is under way and the log is not lost."""
        return not self._in_flight and self.failure is None

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing is being written: what is under way waits for copies."""
        is_written = not self._in_flight or self._in_flight[-1].end is not None
        return is_written and self.failure is None and now_ms >= self._not_before_ms

    def is_ready(self, now_ms: int) -> bool:
        """Whether it is free, and no full disk is waited for."""
        return self.is_free and now_ms >= self._not_before_ms

    @property
    def withheld(self) -> frozenset[LogId]:
        """The logs about which nobody may be told anything."""
        return frozenset(log for entry in self._in_flight for log in entry.touched)

    def begin(
        self, records: Iterable[Record], desired: Desired, purpose: Purpose | None = None
    ) -> InFlight:
        """Append these: the caller gives the instruction."""
        assert self.is_idle(self._not_before_ms), "one is written at a time"
        kept = tuple(records)
        assert kept, "nothing to append"
        self._token += 1
        touched = frozenset(log for record in kept for log in _touched(record, desired))
        begun = InFlight(token=self._token, records=kept, purpose=purpose, touched=touched)
        self._in_flight.append(begun)
        return begun

    def written(self, token: int, shortage: DiskFull | None, end: int, now_ms: int) -> None:
        """It is on the own disk. ``shortage``: why the reserve was given up for it.

        ``end``: how many records there are now.
        """
        written = self._ended(token)
        self._in_flight[-1] = replace(written, end=end)
        self.stuck = None
        if shortage is not None:
            self.reserve.given_up(shortage, now_ms)

    def being_written(self, token: int) -> tuple[Record, ...]:
        """The records of the append that is being written."""
        return self._ended(token).records

    def counting(self, end: int) -> InFlight | None:
        """The next append that counts, since so many records do; it is under way no more."""
        first = self._in_flight[0] if self._in_flight else None
        if first is None or first.end is None or first.end > end:
            return None
        return self._in_flight.popleft()

    def give_up(self) -> list[int]:
        """The requests of what waits for copies: nobody waits for it any more."""
        requests = []
        for number, entry in enumerate(self._in_flight):
            if entry.end is not None and entry.purpose is not None:
                requests.append(entry.purpose.request)
                self._in_flight[number] = replace(entry, purpose=None)
        return requests

    def failed(self, token: int, error: RaylogError, now_ms: int) -> InFlight:
        """It is not, or nobody knows."""
        done = self._ended(token)
        if isinstance(error, DiskFull | OutOfResources):
            self._in_flight.pop()
            self._not_before_ms = now_ms + RETRY_MS
        else:
            self.failure = error
        if isinstance(error, DiskFull) and done.may_use_reserve:
            self.stuck = error
            self.reserve.given_up(error, now_ms)
        return done

    def _ended(self, token: int) -> InFlight:
        assert self._in_flight, "nothing was being appended"
        last = self._in_flight[-1]
        assert last.token == token, "another append was being done"
        assert last.end is None, "it has ended already"
        assert self.failure is None, "it has ended already"
        return last


def _touched(record: Record, desired: Desired) -> Iterable[LogId]:
    match record:
        case PartitionRecord() | PartitionRemovedRecord():
            return (record.log,)
        case TopicRecord():
            return desired.logs_of(record.topic_id)
        case DirRecord(state="offline"):
            return desired.logs_in(record.directory_id)
    return ()
