"""The coordinator of transactions in the process of its partition: a shell around ``machine.py``.

One lock makes events follow each other. Whoever brings one carries the machine's instructions out
before it gives the lock back: it appends, and notes the answer and the markers. Then, without the
lock, it waits until all that is written is durable, with one fsync for all who wait, before it
answers or hands the markers to whoever sends them. Also an answer that changes nothing waits: it
may tell of what a power loss would forget. So would a marker: some partitions would have committed,
and the timeout would abort the others. What nobody waits for (the record that all markers are
written) is brought to the disk with the next record, or after a moment.

A fresh producer id is asked for without the lock, and the request is asked again with it.

A thread of its own first reads the log. Then it waits for the machine's alarms. Where the log
cannot be read, nothing is served, and one line of the process's log says why.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, Protocol

from raylog.actors.coordinators.codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
)
from raylog.actors.coordinators.coordinator_log import ReadBatch
from raylog.actors.coordinators.log_record import LogRecord
from raylog.actors.coordinators.refusals import NotServed, code_for_clients
from raylog.actors.coordinators.transactions.config import TransactionConfig
from raylog.actors.coordinators.transactions.machine import (
    AlarmRings,
    Appended,
    AppendFailed,
    Asked,
    Event,
    Loaded,
    Marked,
    TransactionMachine,
)
from raylog.actors.coordinators.transactions.messages import (
    EndRequest,
    InitRequest,
    ProducerIdNeeded,
    TransactionAnswer,
    TransactionRequest,
)
from raylog.actors.coordinators.transactions.turn import Append, Reply, SendMarkers, Token
from raylog.actors.events import event, warn
from raylog.storage.clock import Clock
from raylog.storage.errors import InvalidRecord, RaylogError
from raylog.storage.names import TopicPartition

logger = logging.getLogger(__name__)

# A clock that was set is looked at again after this.
LONGEST_SLEEP_S: Final = 60.0
# What nobody waits for is on its way to the disk after this at the latest. So is, again, what a
# want of descriptors or of memory kept from it.
SETTLE_AFTER_S: Final = 1.0


class CoordinatorLog(Protocol):
    """``coordinator_log.py``."""

    def append(self, records: Sequence[LogRecord], now_ms: int) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def is_settled(self) -> bool: ...
    def settle(self, up_to: int) -> None: ...
    def flush(self, up_to: int) -> None: ...
    def read(self) -> Iterator[ReadBatch]: ...


class Sender(Protocol):
    """Who sends markers, until each is done: ``plane/transactions/markers.py``."""

    def send(self, markers: SendMarkers) -> None: ...


class TransactionCoordinator:
    """See the module's head."""

    def __init__(
        self,
        name: str,
        log: CoordinatorLog,
        clock: Clock,
        wall: Clock,
        config: TransactionConfig,
        sender: Sender,
        fresh_producer_id: Callable[[], int],
        on_failure: Callable[[BaseException], object],
    ) -> None:
        """``name``: of the partition. ``clock``: the ``SteadyClock``; ``wall``: the system's.

        ``fresh_producer_id``: one that nobody has had; raises RaylogError. ``on_failure``: hears of
        an error that is not raylog's.
        """
        self._name, self._log = name, log
        self._clock, self._wall = clock, wall
        self._sender, self._fresh_producer_id = sender, fresh_producer_id
        self._on_failure = on_failure
        self._machine = TransactionMachine(config)
        self._changed = threading.Condition()  # its lock is held while an event is handled
        self._state: Literal["loads", "serves", "failed", "stopped"] = "loads"
        self._answers: dict[Token, TransactionAnswer] = {}
        self._last_token = 0
        self._unsent: list[SendMarkers] = []  # their decisions may not be on the disk yet
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

    def ask(self, request: TransactionRequest) -> TransactionAnswer | NotServed:
        """The answer to a request."""
        answer = self._ask(request)
        if not isinstance(answer, ProducerIdNeeded):
            return answer
        assert isinstance(request, InitRequest | EndRequest), request
        try:
            fresh = self._fresh_producer_id()
        except RaylogError:
            return NotServed(COORDINATOR_LOAD_IN_PROGRESS)  # the code that clients wait with
        return self._ask(request._replace(fresh_producer_id=fresh))

    def _ask(self, request: TransactionRequest) -> TransactionAnswer | NotServed:
        with self._changed:
            if self._state == "loads":
                return NotServed(COORDINATOR_LOAD_IN_PROGRESS)
            if self._state != "serves":
                return NotServed(COORDINATOR_NOT_AVAILABLE)
            self._last_token += 1
            self._handle(Asked(self._last_token, request))
            answer = self._answers.pop(self._last_token)
            end_offset, decided = self._log.end_offset, self._take_unsent()
        return self._settle(end_offset, decided) or answer

    def marked(self, markers: SendMarkers, partition: TopicPartition) -> None:
        """A partition has its marker, or is gone."""
        with self._changed:
            if self._state == "serves":
                self._handle(Marked(markers, partition))

    # -- events ------------------------------------------------------------------------------------

    def _handle(self, what: Event) -> None:
        """With the lock held."""
        for instruction in self._machine.handle(what, self._clock.now_ms(), self._wall.now_ms()):
            if isinstance(instruction, Append):
                self._handle(self._append(instruction))
            elif isinstance(instruction, Reply):
                self._answers[instruction.token] = instruction.answer
            else:
                self._unsent.append(instruction)
        self._changed.notify_all()  # the next alarm may be another one

    def _append(self, append: Append) -> Event:
        try:
            self._log.append(append.records, self._wall.now_ms())
        except RaylogError as error:
            if not self._is_refused:
                warn(logger, "coordinator-append-failed", partition=self._name, error=str(error))
            self._is_refused = True
            return AppendFailed(append, code_for_clients(error))
        if self._is_refused:
            event(logger, "coordinator-appends-again", partition=self._name)
        self._is_refused = False
        return Appended(append)

    def _take_unsent(self) -> list[SendMarkers]:
        """With the lock held."""
        unsent, self._unsent = self._unsent, []
        return unsent

    def _settle(self, up_to: int, decided: Sequence[SendMarkers]) -> NotServed | None:
        """Wait for the disk, then send the markers; what failed, as clients are told it.

        ``up_to``: what the answer rests on is before it. Without the lock. A shortage passes: then
        the markers are sent. Where the disk has failed, the partition's next life sends them.
        """
        try:
            self._log.settle(up_to)
            if decided:
                self._log.flush(up_to)
        except RaylogError as error:
            with self._changed:
                self._unsent += decided
                self._changed.notify_all()  # its thread tries again
                is_first, self._is_unsettled = not self._is_unsettled, True
            if is_first:
                warn(logger, "coordinator-not-settled", partition=self._name, error=str(error))
            return NotServed(code_for_clients(error))
        self._is_unsettled = False
        for markers in decided:
            self._sender.send(markers)
        return None

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
                for record in batch.records:
                    if record.key is None:
                        raise InvalidRecord(f"{self._name}: record {record.offset} has no key")
                    self._machine.replay(record.key, record.value)
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
            end_offset, decided = self._log.end_offset, self._take_unsent()
        self._settle(end_offset, decided)
        return True

    def _ring(self) -> None:
        while self._rest():
            with self._changed:
                end_offset, decided = self._log.end_offset, self._take_unsent()
            self._settle(end_offset, decided)

    def _rest(self) -> bool:
        """Whether something is to be brought to the disk now; False: it is stopped."""
        settle_ms: float | None = None  # when it is time for what nobody waits for
        with self._changed:
            while self._state == "serves":
                now_ms, due_ms = self._clock.now_ms(), self._machine.next_alarm_ms
                if due_ms is not None and due_ms <= now_ms:
                    self._handle(AlarmRings())
                    return True
                sleep_s = LONGEST_SLEEP_S if due_ms is None else (due_ms - now_ms) / 1000
                if self._unsent or not self._log.is_settled:
                    settle_ms = settle_ms or now_ms + SETTLE_AFTER_S * 1000
                    if now_ms >= settle_ms:
                        return True
                    sleep_s = min(sleep_s, (settle_ms - now_ms) / 1000)
                else:
                    settle_ms = None
                self._changed.wait(min(sleep_s, LONGEST_SLEEP_S))
        return False
