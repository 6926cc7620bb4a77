"""The loop around the Controller's machine: one inbox, one thread, and who carries out what.

Everybody puts events into the inbox; only the loop's thread touches the machine. An instruction is
handed to somebody who never waits (``Hands``), so the loop never does. After each event it
publishes a snapshot, from which look-ups are answered in any thread::

    reports, node watch, users --put--> inbox --> machine.handle --> Hands: appender, managers, ...
                                                        |
                                                        +--> snapshot --> look-ups

A mistake of our own (an assertion) and a metadata log that has failed both end the Controller: its
next life reads the log afresh. Older metadata does not end it: the next life would read the same.
"""

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from raylog.actors.events import event as log_event
from raylog.actors.events import warn
from raylog.cluster.controller.describe import Snapshot, without_upkeep
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.events import Event, NodesSeen, Tick
from raylog.cluster.controller.instructions import (
    Answer,
    Append,
    AskWhether,
    Instruction,
    MakeReserve,
    MakeSnapshot,
    Note,
    Push,
    StartManager,
    Tell,
)
from raylog.cluster.controller.machine import ControllerMachine
from raylog.storage.clock import Clock

logger = logging.getLogger(__name__)

TICK_S = 0.5
# Notes of something that somebody should look at.
_WARNINGS = {
    "metadata-failed",
    "metadata-reserve-given-up",
    "metadata-snapshot-damaged",
    "metadata-snapshot-failed",
    "older-metadata",
    "log-dir-offline",
}


class Hands(Protocol):
    """Who carries out the machine's instructions. No method waits, and none raises."""

    def append(self, append: Append) -> None:
        """Write records: ``Appended`` or ``AppendFailed`` follows."""

    def make_reserve(self) -> None:
        """Make the metadata's reserve whole: ``ReserveMade`` follows."""

    def make_snapshot(self, wanted: MakeSnapshot) -> None:
        """Save a snapshot of the metadata: ``SnapshotMade`` follows."""

    def start_manager(self, node: str) -> None:
        """Have a LogManager run on the node with this key."""

    def tell(self, tell: Tell) -> None:
        """Send orders to a node's LogManager."""

    def push(self, push: Push) -> None:
        """Send a node's copy what follows in the metadata: ``Kept`` or ``PushFailed`` follows."""

    def ask_whether(self, question: AskWhether) -> None:
        """Ask Ray whether this is still the Controller: ``Whether`` follows."""

    def answer(self, answer: Answer) -> None:
        """Answer a request."""


class ControllerLoop:
    """The machine's inbox and its thread.

    ``failed``: called once, in the loop's thread, with why nothing can go on. ``clock``: one that
    never goes back. ``published``: called in the loop's thread after each new snapshot.
    """

    def __init__(
        self,
        machine: ControllerMachine,
        hands: Hands,
        clock: Clock,
        failed: Callable[[BaseException], None],
        published: Callable[[], None] = lambda: None,
    ) -> None:
        self._machine, self._hands, self._clock, self._failed = machine, hands, clock, failed
        self._published = published
        self._inbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="controller-loop", daemon=True)
        self._has_failed = False
        self._desired: Desired = machine.desired.copy()
        self._counted = machine.counted  # so many records are in that
        self._node_ids: Mapping[str, str] = {}
        self._without_upkeep: dict[str, int] = {}
        self._snapshot = Snapshot(desired=self._desired, config=machine.config)

    # -- for everybody -----------------------------------------------------------------------------

    def put(self, event: Event) -> None:
        """Something happened. Returns at once."""
        self._inbox.put(event)

    @property
    def snapshot(self) -> Snapshot:
        """What the machine knew after the last event."""
        return self._snapshot

    def start(self) -> None:
        """Begin to handle events."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End behind the events that are in the inbox now, or after a while."""
        self._inbox.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    # -- the loop ----------------------------------------------------------------------------------

    def _run(self) -> None:
        next_tick_ms = self._clock.now_ms()
        while True:
            event = self._next(next_tick_ms)
            if event is None:
                return
            try:
                self.handle(event)
            except Exception as error:
                warn(logger, "controller-failed", trace=True, why=error)
                self._fail(error)
                return
            if isinstance(event, Tick):  # after it: however long it took, events come in between
                next_tick_ms = self._clock.now_ms() + round(TICK_S * 1000)

    def _next(self, next_tick_ms: int) -> Event | None:
        """The next event; a tick that is due comes first, however full the inbox is."""
        wait_s = (next_tick_ms - self._clock.now_ms()) / 1000
        if wait_s <= 0:
            return Tick()
        try:
            return self._inbox.get(timeout=wait_s)
        except queue.Empty:
            return Tick()

    def handle(self, event: Event) -> None:
        """Let the machine handle one event, and have its instructions carried out.

        The loop's thread does it; without that thread, a test.
        """
        if isinstance(event, NodesSeen):
            self._node_ids = dict(event.nodes)
        instructions = self._machine.handle(event, self._clock.now_ms())
        # Before anybody is answered: who looks then sees what he was told.
        self._publish(event)
        for instruction in instructions:
            self._carry_out(instruction)
        if self._machine.failure is not None and self._machine.doubt is None:
            self._fail(self._machine.failure)

    def _publish(self, event: Event) -> None:
        if self._machine.counted != self._counted:
            self._desired, self._counted = self._machine.desired.copy(), self._machine.counted
        observed = dict(self._machine.watched.nodes)
        now_ms = self._clock.now_ms()
        self._without_upkeep = {
            key: self._without_upkeep.get(key, now_ms) for key in without_upkeep(observed)
        }
        self._snapshot = Snapshot(
            desired=self._desired,
            observed=observed,
            node_ids=self._node_ids,
            without_upkeep=self._without_upkeep,
            failure=self._machine.failure,
            reserve_problem=self._machine.reserve_problem,
            snapshot_problem=self._machine.saving.problem,
            damaged_snapshots=self._machine.saving.damaged,
            is_in_charge=self._machine.is_in_charge,
            copies=self._machine.copies,
            one_copy_since_ms=self._machine.one_copy_since_ms,
            controller=self._machine.node,
            now_ms=now_ms,
            config=self._machine.config,
        )
        self._published()

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Append():
                self._hands.append(instruction)
            case MakeReserve():
                self._hands.make_reserve()
            case MakeSnapshot():
                self._hands.make_snapshot(instruction)
            case StartManager():
                self._hands.start_manager(instruction.node)
            case Tell():
                self._hands.tell(instruction)
            case Push():
                self._hands.push(instruction)
            case AskWhether():
                self._hands.ask_whether(instruction)
            case Answer():
                self._hands.answer(instruction)
            case Note():
                _log(instruction)

    def _fail(self, error: BaseException) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._failed(error)


def _log(note: Note) -> None:
    level = logging.WARNING if note.name in _WARNINGS else logging.INFO
    fields: dict[str, Any] = dict(note.fields)
    log_event(logger, note.name, level=level, **fields)
