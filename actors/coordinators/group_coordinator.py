"""The coordinator of groups in the process of its partition: a shell around ``group_machine.py``.

One lock makes events follow each other. Whoever brings one carries the machine's instructions out
before it gives the lock back: it appends, and puts answers where their askers wait. A request whose
answer comes later (JoinGroup, SyncGroup) waits in its connection's thread (``plane/parking.py``).

Whoever has an answer waits, without the lock, until all that was written before is durable, with
one fsync for all who wait: also an answer that changes nothing may tell of what a power loss would
forget. What nobody waits for is brought to the disk with the next record, or after a moment.

A thread of its own first reads the log. Then it waits for the machine's alarms. Where the log
cannot be read, nothing is served, and one line of the process's log says why: what is in it cannot
be trusted, and is not touched.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, Protocol

from raylog.actors.coordinators.codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
)
from raylog.actors.coordinators.coordinator_log import ReadBatch
from raylog.actors.coordinators.group import Token
from raylog.actors.coordinators.group_config import GroupConfig
from raylog.actors.coordinators.group_machine import (
    AlarmRings,
    Appended,
    AppendFailed,
    Asked,
    Event,
    GroupMachine,
    Loaded,
    TransactionEnded,
)
from raylog.actors.coordinators.group_messages import GroupAnswer, GroupRequest
from raylog.actors.coordinators.group_turn import Append, Reply
from raylog.actors.coordinators.log_record import LogRecord, Producer
from raylog.actors.coordinators.refusals import NotServed, code_for_clients
from raylog.actors.events import event, warn
from raylog.actors.metrics import Exporter
from raylog.actors.partition.transaction_end import TransactionEnd
from raylog.storage.clock import Clock
from raylog.storage.errors import InvalidRecord, RaylogError

logger = logging.getLogger(__name__)

# A clock that was set is looked at again after this.
LONGEST_SLEEP_S: Final = 60.0
# What nobody waits for is on its way to the disk after this at the latest.
SETTLE_AFTER_S: Final = 1.0
# Committed offsets that are exported as metrics: each costs Ray some microseconds.
MOST_EXPORTED: Final = 2000


class CoordinatorLog(Protocol):
    """``coordinator_log.py``."""

    def append(
        self, records: Sequence[LogRecord], now_ms: int, producer: Producer | None = None
    ) -> int: ...
    def end(self, end: TransactionEnd) -> None: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def is_settled(self) -> bool: ...
    def settle(self, up_to: int) -> None: ...
    def read(self) -> Iterator[ReadBatch]: ...


class Place(Protocol):
    """Where a request's thread waits for its answer: ``plane/parking.py``."""

    def prepare(self) -> None: ...
    def wake(self) -> None: ...
    def wait(self, timeout_ms: int) -> Literal["woken", "time is up", "peer is gone"]: ...


@dataclass(slots=True)
class _Asker:
    place: Place
    waits: bool = False  # in its place; before that the answer has come at once
    answer: GroupAnswer | None = None
    up_to: int = 0  # what the answer rests on is before this offset


class GroupCoordinator:
    """See the module's head."""

    def __init__(
        self,
        name: str,
        log: CoordinatorLog,
        clock: Clock,
        wall: Clock,
        config: GroupConfig,
        on_failure: Callable[[BaseException], object],
    ) -> None:
        """``name``: of the partition. ``clock``: the ``SteadyClock``; ``wall``: the system's.

        ``on_failure``: hears of an error that is not raylog's.
        """
        self._name, self._log = name, log
        self._clock, self._wall = clock, wall
        self._on_failure = on_failure
        self._machine = GroupMachine(config)
        self._changed = threading.Condition()  # its lock is held while an event is handled
        self._state: Literal["loads", "serves", "failed", "stopped"] = "loads"
        self._askers: dict[Token, _Asker] = {}
        self._last_token = 0
        self._is_refused = False  # by the log; one line says it, and another when it is over
        self._is_unsettled = False  # what is written; one line says it

    def begin(self) -> None:
        """Read the log, and serve."""
        name = f"coordinator of {self._name}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def stop(self) -> None:
        """Answer nothing any more."""
        with self._changed:
            self._state = "stopped"
            self._changed.notify_all()

    def ask(self, request: GroupRequest, place: Place) -> GroupAnswer | NotServed | None:
        """The answer to a request, when it is there; None if its asker has gone meanwhile."""
        with self._changed:
            if self._state == "loads":
                return NotServed(COORDINATOR_LOAD_IN_PROGRESS)
            if self._state != "serves":
                return NotServed(COORDINATOR_NOT_AVAILABLE)
            self._last_token += 1
            token, asker = self._last_token, _Asker(place)
            self._askers[token] = asker
            self._handle(Asked(token, request))
            if asker.answer is None:
                self._park(token, asker)
        while asker.answer is None:
            if place.wait(int(LONGEST_SLEEP_S * 1000)) == "peer is gone":
                with self._changed:
                    self._askers.pop(token, None)
                return None  # an answer that came meanwhile may not be on the disk
        return self._settle(asker.up_to) or asker.answer

    def end_transaction(self, end: TransactionEnd) -> NotServed | None:
        """Write a transaction's marker; the offsets that it commits count when this returns.

        Raises RaylogError: the marker is not in the log.
        """
        with self._changed:
            if self._state != "serves":
                return NotServed(NOT_COORDINATOR)
            self._log.end(end)
            self._handle(TransactionEnded(end.producer_id, end.is_commit))
            end_offset = self._log.end_offset
        self._log.settle(end_offset)
        return None

    def _park(self, token: Token, asker: _Asker) -> None:
        """With the lock held. Raises OutOfResources; its answer is nobody's then."""
        try:
            asker.place.prepare()
        except RaylogError:
            del self._askers[token]
            raise
        asker.waits = True

    def export(self, exporter: Exporter) -> None:
        """Export where the groups stand."""
        with self._changed:
            standings = list(self._machine.standings()) if self._state == "serves" else []
        left = MOST_EXPORTED
        for group, members, offsets in standings:
            exporter.gauge("raylog_group_members", members, group=group)
            for place, committed in islice(offsets.items(), left):
                where = {"topic": place.topic, "partition": str(place.partition)}
                exporter.gauge(
                    "raylog_group_committed_offset", committed.offset, group=group, **where
                )
            left = max(left - len(offsets), 0)

    # -- events ------------------------------------------------------------------------------------

    def _handle(self, what: Event) -> None:
        """With the lock held."""
        for instruction in self._machine.handle(what, self._clock.now_ms(), self._wall.now_ms()):
            if isinstance(instruction, Append):
                self._handle(self._append(instruction))
            else:
                self._reply(instruction)
        self._changed.notify_all()  # the next alarm may be another one

    def _append(self, append: Append) -> Event:
        try:
            base_offset = self._log.append(append.records, self._wall.now_ms(), append.producer)
        except RaylogError as error:
            if not self._is_refused:
                warn(logger, "coordinator-append-failed", partition=self._name, error=str(error))
            self._is_refused = True
            return AppendFailed(append, code_for_clients(error))
        if self._is_refused:
            event(logger, "coordinator-appends-again", partition=self._name)
        self._is_refused = False
        return Appended(append, base_offset)

    def _settle(self, up_to: int) -> NotServed | None:
        """Wait for the disk, without the lock; what failed, as clients are told it."""
        try:
            self._log.settle(up_to)
        except RaylogError as error:
            if not self._is_unsettled:
                warn(logger, "coordinator-not-settled", partition=self._name, error=str(error))
            self._is_unsettled = True
            return NotServed(code_for_clients(error))
        self._is_unsettled = False
        return None

    def _reply(self, reply: Reply) -> None:
        asker = self._askers.pop(reply.token, None)
        if asker is not None:  # else it has gone
            asker.up_to = self._log.end_offset
            asker.answer = reply.answer  # last: its thread looks at it without the lock
            if asker.waits:
                asker.place.wake()

    # -- its thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            if self._load():
                self._ring()
        except BaseException as error:
            self._on_failure(error)
            raise

    def _load(self) -> bool:
        """Whether the log could be read."""
        began_ms, records = self._clock.now_ms(), 0
        try:
            for batch in self._log.read():
                self._replay(batch)
                records += len(batch.records)
        except RaylogError as error:
            warn(logger, "coordinator-not-loaded", partition=self._name, error=str(error))
            with self._changed:
                self._state = "failed"
            return False
        took_ms = self._clock.now_ms() - began_ms
        event(logger, "coordinator-loaded", partition=self._name, records=records, took_ms=took_ms)
        with self._changed:
            if self._state == "loads":
                self._state = "serves"
                self._handle(Loaded())
        return True

    def _replay(self, batch: ReadBatch) -> None:
        if batch.marker is not None and batch.producer_id is not None:
            is_commit = not batch.marker.is_abort
            self._machine.replay_end(batch.producer_id, is_commit=is_commit)
        for record in batch.records:
            if record.key is None:
                raise InvalidRecord(f"{self._name}: record {record.offset} has no key")
            self._machine.replay(record.key, record.value, record.offset, batch.producer_id)

    def _ring(self) -> None:
        while self._rest():
            self._settle(self._log.end_offset)

    def _rest(self) -> bool:
        """Whether something is to be brought to the disk now; False: it is stopped."""
        settle_ms: float | None = None  # when it is time for what nobody waits for
        with self._changed:
            while self._state == "serves":
                now_ms, due_ms = self._clock.now_ms(), self._machine.next_alarm_ms
                if due_ms is not None and due_ms <= now_ms:
                    self._handle(AlarmRings())
                    continue
                sleep_s = LONGEST_SLEEP_S if due_ms is None else (due_ms - now_ms) / 1000
                if not self._log.is_settled:
                    settle_ms = settle_ms or now_ms + SETTLE_AFTER_S * 1000
                    if now_ms >= settle_ms:
                        return True
                    sleep_s = min(sleep_s, (settle_ms - now_ms) / 1000)
                else:
                    settle_ms = None
                self._changed.wait(min(sleep_s, LONGEST_SLEEP_S))
        return False
