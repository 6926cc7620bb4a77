"""The thread that runs a node's machine: events in, instructions to the hands, look-ups beside it.

::

    any thread --tell(event)--> queue --> the loop --handle()--> instructions --> hands
                                            ^                                       |
                                            +---------- tell(Finished) -------------+

The hands carry an instruction out in threads of their own, so the loop never waits. A look-up is
answered from the machine's memory. It takes the machine's lock, which is held only while the
machine thinks: no disk, actor or network is waited for with it.
"""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Protocol

from raylog.actors.control import Confirmed, DirReport, LogId, Report
from raylog.actors.events import event as log_event
from raylog.actors.node.events import Event, Finished, Served, Started
from raylog.actors.node.instructions import Instruction, SendReport, Work
from raylog.actors.node.machine import NodeMachine
from raylog.actors.node_messages import LogOrder
from raylog.storage.clock import Clock
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition

logger = logging.getLogger(__name__)


class Hands(Protocol):
    """Who carries instructions out."""

    def carry_out(self, instruction: Instruction) -> None:
        """Begin to; returns at once. What has a token ends with one ``Finished``."""


class NodeShell:
    """See the module's head."""

    def __init__(
        self, machine: NodeMachine, clock: Clock, end_process: Callable[[], object]
    ) -> None:
        """``clock``: one that never goes back.

        ``end_process``: called where the machine fails, or a hand with an error that is not
        raylog's: its state cannot be trusted. Ray starts the process again.
        """
        self._machine = machine
        self._clock = clock
        self._end_process = end_process
        self._lock = threading.Lock()  # of the machine
        self._inbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._report: Report | None = None
        self._is_begun = False
        self._thread: threading.Thread | None = None

    # -- events ------------------------------------------------------------------------------------

    def begin(self, started: Started, hands: Hands) -> None:
        """Begin the machine's life; what was told before comes after ``started``."""
        assert self._thread is None, "a machine begins once"
        self._thread = threading.Thread(
            target=self._run, args=(started, hands), name="node-machine", daemon=True
        )
        self._thread.start()

    def tell(self, event: Event) -> None:
        """Have the machine told; from any thread, returns at once."""
        self._inbox.put(event)

    def stop(self) -> None:
        """Return when the machine is told nothing more, and nothing more is to be carried out."""
        self._inbox.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self, started: Started, hands: Hands) -> None:
        event: Event | None = started
        while event is not None:
            try:
                self._handle(event, hands)
            except BaseException:
                log_event(
                    logger,
                    "node-machine-failed",
                    level=logging.CRITICAL,
                    trace=True,
                    what=type(event).__name__,
                )
                self._end_process()
                return
            event = self._inbox.get()

    def _handle(self, event: Event, hands: Hands) -> None:
        with self._lock:
            instructions = self._machine.handle(event, self._clock.now_ms())
            self._is_begun = True
        for instruction in instructions:
            if isinstance(instruction, SendReport):
                self._report = instruction.report
            self._carry_out(instruction, hands)

    def _carry_out(self, instruction: Instruction, hands: Hands) -> None:
        """Have it carried out. A hand that cannot begin to is told as the end of its work.

        The machine would wait for that end, and do nothing else for the log.
        """
        try:
            hands.carry_out(instruction)
        except RaylogError as error:
            what = type(instruction).__name__
            log_event(logger, "not-begun", level=logging.ERROR, what=what, why=error)
            if isinstance(instruction, Work):
                self.tell(Finished(token=instruction.token, error=error))

    # -- look-ups ----------------------------------------------------------------------------------

    def rights(self) -> dict[LogId, Confirmed]:
        """The logs from which records may be removed, and until when."""
        with self._lock:
            return dict(self._machine.rights(self._clock.now_ms())) if self._is_begun else {}

    def order_of(self, log: LogId) -> LogOrder | None:
        """What the log's actor shall obey; None where nobody ordered it in this life."""
        with self._lock:
            return self._machine.order_of(log) if self._is_begun else None

    def served(self) -> tuple[Served, ...]:
        """What the LogActors serve, as the machine has heard it last."""
        with self._lock:
            return tuple(self._machine.served()) if self._is_begun else ()

    @property
    def controller_epoch(self) -> int:
        """The highest epoch of a Controller that the node has seen; -1 for none."""
        with self._lock:
            return self._machine.controller_epoch

    def home_of(self, log: LogId) -> str | None:
        """The directory id from which the log is served, or shall be."""
        for served in self.served():
            if served.log == log:
                return served.directory_id
        order = self.order_of(log)
        return None if order is None else order.directory_id

    def dirs(self) -> tuple[DirReport, ...]:
        """The log dirs, as the last report has them."""
        return () if self._report is None else self._report.dirs

    @property
    def last_report(self) -> Report | None:
        """The last one that was made; None before the first."""
        return self._report

    def reported_logs(self) -> set[LogId]:
        """The logs whose folders lie in the dirs, as the last report has them."""
        if self._report is None:
            return set()
        return {log.log for log in self._report.logs if log.log is not None}

    def opening_in(self, directory_id: str) -> set[TopicPartition] | None:
        """The partitions that are to be opened in a dir, as the last report has it.

        None before anything was ordered in this life: nobody knows then.
        """
        report = self._report
        if report is None or report.orders < 0:
            return None
        return {
            log.partition
            for log in report.logs
            if log.state == "opening" and log.directory_id == directory_id
        }

    def offline_logs(self) -> int:
        """How many logs lie in dirs that are offline, as the last report has it."""
        report = self._report
        if report is None:
            return 0
        offline = {dir.directory_id for dir in report.dirs if dir.state == "offline"}
        ended = ("failed", "closing")  # the LogActor of some may still be ending
        return sum(log.state in ended and log.directory_id in offline for log in report.logs)
