"""The metadata log as the machine sees it: one append at a time, and what a failed one means.

While an append is under way, nobody is told anything about what it touches: a decision counts when
it is on the disk. After a failed fsync nobody knows whether it is, and so that lasts until the next
Controller has read the log.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from raylog.actors.control import LogId
from raylog.cluster.controller.commands import Command
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


class Journal:
    """What is being appended."""

    def __init__(self) -> None:
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

    def appended(self, token: int) -> InFlight:
        """It is on the disk."""
        done = self._ended(token)
        self._in_flight = None
        return done

    def failed(self, token: int, error: RaylogError, now_ms: int) -> InFlight:
        """It is not, or nobody knows."""
        done = self._ended(token)
        if isinstance(error, DiskFull | OutOfResources):
            self._in_flight = None
            self._not_before_ms = now_ms + RETRY_MS
        else:
            self.failure = error
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
