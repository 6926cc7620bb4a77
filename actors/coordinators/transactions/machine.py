"""The coordinator of transactions: events in, instructions out.

It knows the transactional ids of one partition of ``__transaction_state``. Each change is a record
of that partition: it is appended first, applied when it is in the log by replaying it, as after a
restart, and answered last. Markers are sent when their decision is in the log. In memory alone is
which partitions have theirs: after a restart all get them again.

The shell hands in each event with the time, and carries the instructions out before the next one;
``next_alarm_ms`` says when it shall come without one. Nothing here waits, reads a clock, or throws
dice. Source: ``TransactionCoordinator`` and ``TransactionStateManager`` of Kafka; KIP-98, KIP-890.
"""

from typing import NamedTuple, TypeAlias

from raylog.actors.coordinators.timers import Timers
from raylog.actors.coordinators.transactions import (
    adding,
    beginning,
    ending,
    expiry,
    listing,
    marking,
)
from raylog.actors.coordinators.transactions.config import TransactionConfig
from raylog.actors.coordinators.transactions.messages import (
    AddPartitionsRequest,
    Changed,
    DescribeRequest,
    EndAnswer,
    EndRequest,
    InitAnswer,
    InitRequest,
    ListRequest,
    PrepareRequest,
    TransactionRequest,
    VerifyRequest,
)
from raylog.actors.coordinators.transactions.table import TransactionTable
from raylog.actors.coordinators.transactions.turn import (
    Alarm,
    Answered,
    Append,
    Completed,
    CompletionIsDue,
    ExpiryIsDue,
    Instruction,
    SendMarkers,
    TimeoutsAreDue,
    Token,
    Turn,
)
from raylog.storage.buffers import Buffer
from raylog.storage.names import TopicPartition


class Loaded(NamedTuple):
    """All that was in the log has been replayed."""


class Asked(NamedTuple):
    """A request; its answer names the token."""

    token: Token
    request: TransactionRequest


class Appended(NamedTuple):
    """The records are in the log."""

    append: Append


class AppendFailed(NamedTuple):
    """Nothing of them is in the log; ``code``: what whoever asked is told."""

    append: Append
    code: int


class Marked(NamedTuple):
    """A partition has its marker, or is gone."""

    markers: SendMarkers
    partition: TopicPartition


class AlarmRings(NamedTuple):
    """The time of ``next_alarm_ms`` has come."""


Event: TypeAlias = Loaded | Asked | Appended | AppendFailed | Marked | AlarmRings


class TransactionMachine:
    """See the module's head."""

    def __init__(self, config: TransactionConfig) -> None:
        self._config = config
        self._table = TransactionTable()
        self._timers: Timers[Alarm] = Timers()

    def replay(self, key: Buffer, value: Buffer | None) -> None:
        """A record of the log, before ``Loaded``. Raises InvalidRecord."""
        self._table.replay(key, value)

    @property
    def next_alarm_ms(self) -> int | None:
        """When ``AlarmRings`` is due."""
        return self._timers.next_ms()

    def handle(self, event: Event, now_ms: int, wall_ms: int) -> list[Instruction]:
        """What is to be done now.

        ``now_ms``: of a clock that is never set; ``next_alarm_ms`` is of it, too. ``wall_ms``: ms
        since the epoch, which records, timeouts and the ages of ids go by.
        """
        turn = Turn(now_ms, wall_ms, self._timers, self._config)
        if isinstance(event, Asked):
            self._asked(event.request, event.token, turn)
        elif isinstance(event, Appended):
            self._appended(event.append, turn)
        elif isinstance(event, AppendFailed):
            self._append_failed(event, turn)
        elif isinstance(event, Marked):
            marking.marked(self._table, event.markers, event.partition, turn)
        elif isinstance(event, AlarmRings):
            for alarm in self._timers.due(now_ms):
                self._rang(alarm, turn)
        else:
            self._loaded(turn)
        return turn.instructions

    def _loaded(self, turn: Turn) -> None:
        """What has been decided gets its markers, maybe for the second time."""
        turn.timers.set(TimeoutsAreDue(), turn.now_ms + self._config.abort_interval_ms)
        turn.timers.set(ExpiryIsDue(), turn.now_ms + self._config.expiry_interval_ms)
        for transaction in self._table.transactions.values():
            if transaction.state.is_decided:
                marking.mark(self._table, transaction, turn)

    def _asked(self, request: TransactionRequest, token: Token, turn: Turn) -> None:
        if isinstance(request, DescribeRequest):
            turn.reply(token, listing.describe(self._table, request))
            return
        if isinstance(request, ListRequest):
            turn.reply(token, listing.list_transactions(self._table, request, turn.wall_ms))
            return
        known = self._table.transactions.get(request.owner.transactional_id)
        if isinstance(request, InitRequest):
            beginning.begin(known, request, token, turn)
        elif isinstance(request, AddPartitionsRequest):
            adding.add(known, request, token, turn)
        elif isinstance(request, VerifyRequest):
            turn.reply(token, adding.verify(known, request))
        elif isinstance(request, PrepareRequest):
            adding.prepare(known, request, token, turn)
        else:
            assert isinstance(request, EndRequest), request
            ending.end(known, request, token, turn)

    def _appended(self, append: Append, turn: Turn) -> None:
        for record in append.records:
            transaction = self._table.replay(record.key, record.value)
            if transaction is not None and transaction.state.is_decided:
                marking.mark(self._table, transaction, turn)
        if isinstance(append.then, Answered):
            turn.reply(append.then.token, append.then.answer)

    def _append_failed(self, event: AppendFailed, turn: Turn) -> None:
        then = event.append.then
        if isinstance(then, Answered):
            turn.reply(then.token, _failed(then.answer, event.code))
        elif isinstance(then, Completed):
            marking.complete_later(then.transactional_id, turn)

    def _rang(self, alarm: Alarm, turn: Turn) -> None:
        if isinstance(alarm, TimeoutsAreDue):
            expiry.abort_timed_out(self._table, turn)
        elif isinstance(alarm, ExpiryIsDue):
            expiry.remove_unused(self._table, turn)
        else:
            assert isinstance(alarm, CompletionIsDue), alarm
            marking.complete_now(self._table, alarm.transactional_id, turn)

    def validate(self) -> None:
        """Assert what is true between two events, when nothing is about to be appended."""
        self._table.validate()


def _failed(answer: Changed, code: int) -> Changed:
    """What was to be done was not."""
    if isinstance(answer, InitAnswer):
        return InitAnswer(code)
    if isinstance(answer, EndAnswer):
        return EndAnswer(code)
    return answer._replace(error_code=code)
