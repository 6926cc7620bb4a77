"""The metadata log as the machine sees it: one append at a time, and what a failed one means.

While an append is under way, nobody is told anything about what it touches: a decision counts when
it is on the disk. After a failed fsync nobody knows whether it is, and so that lasts until the next
Controller has read the log.

**A full disk.** What the Controller writes by itself, and what makes room, may use the metadata's
reserve (``reserve.py``). What makes the cluster grow may not, and is refused while the reserve is
given up. After a record that may use it has met a full disk all the same, nothing can be decided
until there is room: ``stuck`` says why, to those who would wait for that.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from raylog.actors.control import LogId
from raylog.cluster.controller.commands import AddPartitions, Command, CreateTopic
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.records import (
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
    """For whom records are appended: a ``request``'s command, or to undo it for its ``error``."""

    request: int
    command: Command | None = None
    error: RaylogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """An append that is not answered yet. ``purpose``: None where it only follows from the plan."""

    token: int
    records: tuple[Record, ...]
    purpose: Purpose | None
    touched: frozenset[LogId]

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
        self._in_flight: InFlight | None = None
        self._token = 0
        self._not_before_ms = 0

    @property
    def is_free(self) -> bool:
        """Whether nothing is under way and the log is not lost."""
        return self._in_flight is None and self.failure is None

    def is_ready(self, now_ms: int) -> bool:
        """Whether it is free, and no full disk is waited for."""
        return self.is_free and now_ms >= self._not_before_ms

    @property
    def withheld(self) -> frozenset[LogId]:
        """The logs about which nobody may be told anything."""
        return frozenset() if self._in_flight is None else self._in_flight.touched

    def begin(
        self, records: Iterable[Record], desired: Desired, purpose: Purpose | None = None
    ) -> InFlight:
        """Append these: the caller gives the instruction."""
        assert self.is_free, "one append at a time"
        kept = tuple(records)
        assert kept, "nothing to append"
        self._token += 1
        touched = frozenset(log for record in kept for log in _touched(record, desired))
        self._in_flight = InFlight(
            token=self._token, records=kept, purpose=purpose, touched=touched
        )
        return self._in_flight

    def appended(self, token: int, shortage: DiskFull | None, now_ms: int) -> InFlight:
        """It is on the disk. ``shortage``: why the reserve was given up for it."""
        done = self._ended(token)
        self._in_flight = None
        self.stuck = None
        if shortage is not None:
            self.reserve.given_up(shortage, now_ms)
        return done

    def failed(self, token: int, error: RaylogError, now_ms: int) -> InFlight:
        """It is not, or nobody knows."""
        done = self._ended(token)
        if isinstance(error, DiskFull | OutOfResources):
            self._in_flight = None
            self._not_before_ms = now_ms + RETRY_MS
        else:
            self.failure = error
        if isinstance(error, DiskFull) and done.may_use_reserve:
            self.stuck = error
            self.reserve.given_up(error, now_ms)
        return done

    def _ended(self, token: int) -> InFlight:
        assert self._in_flight is not None, "nothing was being appended"
        assert self._in_flight.token == token, "another append was being done"
        assert self.failure is None, "it has ended already"
        return self._in_flight


def _touched(record: Record, desired: Desired) -> Iterable[LogId]:
    match record:
        case PartitionRecord() | PartitionRemovedRecord():
            return (record.log,)
        case TopicRecord():
            return desired.logs_of(record.topic_id)
    return ()
