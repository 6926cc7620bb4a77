"""What a coordinator of transactions does in answer to one event: answers, records, markers.

The parts of the machine (beginning, adding, ending, ...) write into a ``Turn`` what is to be done.
The shell carries it out in this order, and before the next event. The fate of an ``Append`` is an
event of its own: what depends on it is in its ``then``, a value that the machine gets back.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from raylog.actors.coordinators.log_record import LogRecord
from raylog.actors.coordinators.timers import Timers
from raylog.actors.coordinators.transactions.config import TransactionConfig
from raylog.actors.coordinators.transactions.messages import Changed, TransactionAnswer
from raylog.actors.coordinators.transactions.records import transaction_record
from raylog.actors.coordinators.transactions.transaction import Transaction
from raylog.storage.names import TopicPartition

Token: TypeAlias = int


@dataclass(frozen=True, slots=True)
class TimeoutsAreDue:
    """Transactions that are open for too long are to be looked for."""


@dataclass(frozen=True, slots=True)
class ExpiryIsDue:
    """Ids that nobody has used for too long are to be looked for."""


@dataclass(frozen=True, slots=True)
class CompletionIsDue:
    """All markers are written, and the log did not take the record that says so."""

    transactional_id: str


Alarm: TypeAlias = TimeoutsAreDue | ExpiryIsDue | CompletionIsDue


class Answered(NamedTuple):
    """Whoever asked is answered when the record is in the log."""

    token: Token
    answer: Changed


class Completed(NamedTuple):
    """The record says that all markers of an id are written."""

    transactional_id: str


class ByItself(NamedTuple):
    """Nobody has asked: a timeout, or tombstones. What is not written is found again."""


Then: TypeAlias = Answered | Completed | ByItself


class Reply(NamedTuple):
    token: Token
    answer: TransactionAnswer


class Append(NamedTuple):
    """Records for one batch: all of them are written, or none is."""

    records: tuple[LogRecord, ...]
    then: Then


class SendMarkers(NamedTuple):
    """Write the end of a transaction into its partitions, as often as it takes.

    The record of the decision must be on the disk before the first of them leaves. Each that is
    done is an event (``Marked``).
    """

    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool
    version: int
    partitions: tuple[TopicPartition, ...]


Instruction: TypeAlias = Reply | Append | SendMarkers


class Turn:
    """See the module's head."""

    def __init__(
        self, now_ms: int, wall_ms: int, timers: Timers[Alarm], config: TransactionConfig
    ) -> None:
        """``now_ms``: of a clock that is never set; for alarms. ``wall_ms``: what records say."""
        self.now_ms, self.wall_ms = now_ms, wall_ms
        self.timers, self.config = timers, config
        self.instructions: list[Instruction] = []

    def reply(self, token: Token, answer: TransactionAnswer) -> None:
        self.instructions.append(Reply(token, answer))

    def append(self, records: tuple[LogRecord, ...], then: Then) -> None:
        self.instructions.append(Append(records, then))

    def change(self, transaction: Transaction, then: Then) -> None:
        """Write down an id as it shall be."""
        transaction.validate()
        self.append((transaction_record(transaction),), then)

    def send(self, markers: SendMarkers) -> None:
        self.instructions.append(markers)
