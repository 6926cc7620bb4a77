"""A LogActor's log through its life: carries out what the machine in ``life.py`` instructs.

The Ray methods are in ``log_actor.py``. This knows no Ray: what is around it (the process, the
LogManager, the clock, the log's opening) comes as arguments.

Threads: one opens the log, so that the actor's constructor returns at once and ``says`` is answered
meanwhile. After a restart one asks for the log's order first. Another, which lives as long as the
process, tells the machine of the time. The machine is called with
``_life_lock`` held, and no instruction is carried out under it.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from raylog.actors.cluster_image import Endpoint
from raylog.actors.control import Confirmed
from raylog.actors.errors import InternalTopic, LabelShared, LogRefused, NotLeader, UnknownTopicId
from raylog.actors.events import event, warn
from raylog.actors.listeners import LOOPBACK
from raylog.actors.messages import DataAddress, PartitionOffsets
from raylog.actors.metrics import EXPORT_INTERVAL_S, IDLE_EXPORT_INTERVAL_S, Exporter
from raylog.actors.node_messages import LogOrder, LogSays
from raylog.actors.partition.bounds import REMOVALS_AT_ONCE
from raylog.actors.partition.exports import export_opening, export_partition
from raylog.actors.partition.life import (
    AskConfig,
    Closed,
    Created,
    DiskFailed,
    Distrusted,
    EndForGood,
    EndProcess,
    Event,
    Heard,
    Instruction,
    Learned,
    Life,
    LookAfter,
    Misplaced,
    Note,
    NotHeard,
    NotLearned,
    Opened,
    OpenLog,
    Refused,
    Report,
    Restarted,
    Stuck,
    Tick,
)
from raylog.actors.partition.log_opening import OpenedLog
from raylog.actors.partition.obedience import Obedience, first_order
from raylog.actors.partition.partition import Partition
from raylog.actors.partition.removal import Permit, any_version, once_confirmed, permit
from raylog.actors.partition.spec import LogSpec
from raylog.storage.clock import Clock
from raylog.storage.errors import LogClosed, RaylogError, StorageError
from raylog.storage.log import HIGH_WATERMARK
from raylog.storage.names import INTERNAL_TOPICS
from raylog.storage.report import Progress

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

# Upkeep and metrics of a partition that is busy; one that is idle rests until something is due.
UPKEEP_INTERVAL_S = 1.0
# Between two questions where to listen, twice as long each time: it may be told to listen nowhere.
FIRST_ASK_PAUSE_MS, LONGEST_ASK_PAUSE_MS = 1_000, 60_000
# Between two looks at who else has this node's label, where Ray's head does not answer.
PLACE_INTERVAL_S = 1.0


class Process(Protocol):
    """The process of the actor: ``process.py``.

    ``node_id``: Ray's id of the node on which it runs. ``host``: the node's address.
    ``is_restart``: whether Ray has started the actor again.
    """

    node_id: str
    host: str
    is_restart: bool

    def check_alone(self) -> None:
        """Raise LabelShared if Ray may have put the actor on a node that is not its own."""

    def spawn(self, name: str, work: Callable[[], None]) -> None:
        """Do ``work`` in a thread of its own."""

    def end_actor(self) -> None:
        """End the actor for good."""

    def end(self) -> None:
        """End the process at once; Ray starts another."""


class Manager(Protocol):
    """The LogManager, as its LogActors see it: ``manager_link.py``."""

    def order(self, timeout_s: float) -> LogOrder: ...
    def endpoint(self) -> Endpoint | None: ...
    def confirmed(self) -> Confirmed | None: ...
    def record_log_start(self, offsets: PartitionOffsets) -> None: ...
    def say(self, says: LogSays) -> None: ...
    def report(self, error: StorageError, *, is_loud: bool = True) -> bool: ...
    def tell_progress(self, progress: Progress | None) -> None: ...


class Listening(Protocol):
    """Its sockets: ``plane/log_sockets.py``. ``port``: where it listens; 0: nowhere."""

    @property
    def port(self) -> int: ...
    @property
    def is_everywhere(self) -> bool: ...
    def begin(
        self,
        partition: Partition,
        remove: Callable[[int], int],
        on_failure: Callable[[BaseException], object],
    ) -> None: ...
    def keep_up(self, ask: Callable[[], Endpoint | None]) -> None: ...
    def open_inner(self, host: str) -> tuple[int, str]: ...
    def export(self, exporter: Exporter) -> None: ...
    def close(self) -> None: ...


class Opening(Protocol):
    """``log_opening.open_partition``."""

    def __call__(
        self, spec: LogSpec, tell: Callable[[Progress | None], object], *, is_restart: bool
    ) -> OpenedLog: ...


class LivingLog:
    """See the module's head. ``clock``: the node's ``SteadyClock``."""

    def __init__(
        self,
        spec: LogSpec,
        process: Process,
        manager: Manager,
        clock: Clock,
        open_log: Opening,
        exporter: Exporter,
        sleep: Callable[[float], None] = time.sleep,
        sockets: Listening | None = None,
    ) -> None:
        """``sockets``: None where clients reach it by Ray alone."""
        self.spec, self.process = spec, process
        self._sockets = sockets
        self._manager, self._clock = manager, clock
        self._open_log, self._exporter, self._sleep = open_log, exporter, sleep
        self._life, self._life_lock = Life(), threading.Lock()
        self._obedience = Obedience(spec)
        # Without a LogManager nobody knows a newer config, nor a node that could be a wrong one.
        self._must_ask = process.is_restart and bool(spec.node)
        self._is_place_known = not process.is_restart
        self._next_ask_ms, self._ask_pause_ms = 0, FIRST_ASK_PAUSE_MS
        self._removals = threading.BoundedSemaphore(REMOVALS_AT_ONCE)
        self._next_export_ms, self._is_exported = 0, False
        self.opened: OpenedLog | None = None

    def begin(self) -> None:
        """Begin to live, in threads of its own; returns at once."""
        if self._must_ask:
            instructions = self._step(Restarted())
            self.process.spawn("asking", partial(self._carry_out, instructions))
        else:
            self._handle(Created())
        self.process.spawn("upkeep", self._keep_up)

    # -- what it serves ----------------------------------------------------------------------------

    @property
    def partition(self) -> Partition:
        """The partition. Raises NotLeader while its log is not open."""
        if self.opened is None:
            raise self.not_leader()
        return self.opened.partition

    @property
    def log(self) -> OpenedLog:
        """The log. Raises NotLeader while it is not open."""
        if self.opened is None:
            raise self.not_leader()
        return self.opened

    def not_leader(self) -> NotLeader:
        """The error of a request while the log is not open."""
        return NotLeader(str(self.spec.partition), self._life.why_not_serving)

    def says(self) -> LogSays:
        """What it serves, and how far it is: from memory, with no lock that work holds."""
        # In this order: a log that serves is open.
        state, problem = self._life.state, self._life.problem
        opened, order = self.opened, self._obedience.order
        says = LogSays(
            log=self.spec.log,
            directory_id=self.spec.directory_id,
            folder=self.spec.folder,
            node_id=self.process.node_id,
            state=state,
            controller_epoch=self._obedience.controller_epoch,
            problem=problem,
        )
        if order is not None:
            says = replace(says, config=order.config, config_version=order.config_version)
        if opened is None:
            return says
        return replace(
            says,
            leader_epoch=opened.partition.leader_epoch,
            offsets=opened.partition.offsets(),
            opening=opened.report,
            problem=problem or opened.partition.disk_failure,
            port=0 if self._sockets is None else self._sockets.port,
        )

    def data_address(self, topic_id: str, reader_node: str) -> DataAddress:
        """Where a client finds the partition, which begins to listen there.

        ``reader_node``: Ray's id of the client's node; on the same one it is the loopback.

        Raises NotLeader while its log is not open, or its process cannot listen; UnknownTopicId.
        """
        partition = self.spec.partition
        if topic_id != self.spec.topic_id:
            raise UnknownTopicId(str(partition), topic_id, self.spec.topic_id)
        if self.opened is None:
            raise self.not_leader()
        if self._sockets is None:
            raise NotLeader(str(partition), "it is no broker's, and opens no sockets")
        host = LOOPBACK if reader_node == self.process.node_id else self.process.host
        port, token = self._sockets.open_inner(host)
        return DataAddress(host, port, token)

    # -- orders ------------------------------------------------------------------------------------

    def learn(self, order: LogOrder) -> LogSays:
        """Begin to open the log with this config if it waits for one; returns at once.

        Raises UnsupportedVersion, and NotLeader for an order that is not this log's.
        """
        if self._obedience.accept(order):
            self._handle(Learned(order))
        return self.says()

    def reconfigure(self, order: LogOrder) -> LogSays:
        """Obey another config from the next append on, unless a newer one came before.

        What is being removed under the one before is gone when this returns, and nothing more is.
        Raises as ``learn``, and NotLeader while the log is not open.
        """
        partition = self.partition
        if self._obedience.accept(order):
            config, version = order.config, order.config_version
            self.or_end(lambda: partition.reconfigure(config, version))
            self._obedience.obeyed(order)
        return self.says()

    def close(self) -> PartitionOffsets:
        """Flush everything, close the files, unlock the folder; returns the last offsets.

        Fine if it is closed.
        """
        opened = self.log
        try:
            self.or_end(opened.partition.close)
        except LogClosed:
            return opened.partition.offsets()
        if self._sockets is not None:
            self._sockets.close()
        opened.lock.release()
        self._handle(Closed())
        offsets = opened.partition.offsets()
        event(
            logger,
            "log-closed",
            partition=self.spec.partition,
            log_end_offset=offsets.log_end_offset,
        )
        return offsets

    def permit(self, confirmed: Confirmed | None) -> Permit:
        """The right to remove records that the LogManager has given to an upkeep actor."""
        return permit(self.spec.log, confirmed, self._clock)

    def own_permit(self) -> Permit:
        """The right to remove records now.

        Without a LogManager there is no newer config than the log's own.
        """
        if not self.spec.node:
            return any_version
        return self.permit(self._manager.confirmed())

    def delete_records(self, before_offset: int) -> int:
        """Make records below an offset unreadable; returns the log start offset.

        See ``LogActorImpl.delete_records``.
        """
        if self.spec.partition.topic in INTERNAL_TOPICS:
            raise InternalTopic(self.spec.partition.topic)
        with self._removals:
            high_watermark = self.partition.offsets().high_watermark
            if before_offset == HIGH_WATERMARK:  # once: a later try must not take newer records
                before_offset = high_watermark
            return once_confirmed(lambda: self._delete_records(before_offset))

    def _delete_records(self, before_offset: int) -> int:
        may_remove = self.own_permit()
        partition = self.partition
        start = self.or_end(lambda: partition.delete_records(before_offset, may_remove))
        if self.spec.node:  # without a LogManager nobody keeps it
            self._manager.record_log_start(partition.offsets())
        return start

    # -- life --------------------------------------------------------------------------------------

    def or_end(self, call: Callable[[], Answer]) -> Answer:
        """Let raylog's errors through; end the process on any other: its state is not trusted."""
        try:
            return call()
        except RaylogError:
            raise
        except BaseException:
            self._handle(Distrusted())
            raise

    def tick(self) -> None:
        """Tell the machine of the time, and do what is due."""
        try:
            self.or_end(partial(self._handle, Tick()))
        except RaylogError:
            warn(logger, "upkeep-failed", trace=True, partition=self.spec.partition)

    def _keep_up(self) -> None:
        """Tick as long as the process lives.

        A partition that is idle rests: its metrics are exported less often.
        """
        while True:
            if self._is_exported:
                self.partition.rest(self.spec.producer_expiration, IDLE_EXPORT_INTERVAL_S)
            self._sleep(UPKEEP_INTERVAL_S)
            self._is_exported = False
            self.tick()

    def _step(self, happened: Event) -> list[Instruction]:
        with self._life_lock:
            return self._life.handle(happened, self._clock.now_ms())

    def _handle(self, happened: Event) -> None:
        """Tell the machine what happened, and do what follows from it."""
        self._carry_out(self._step(happened))

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            outcome = self._execute(instruction)
            if outcome is not None:
                self._handle(outcome)

    def _execute(self, instruction: Instruction) -> Event | None:
        """Do what the machine instructs; returns what came of it."""
        match instruction:
            case AskConfig():
                return self._ask_order(instruction.timeout_ms / 1000)
            case OpenLog():
                order = instruction.order or first_order(self.spec)
                self._obedience.obeyed(order)
                self.process.spawn("opening", partial(self._open, order))
            case Report():
                is_heard = self._manager.report(instruction.error, is_loud=instruction.is_loud)
                return Heard() if is_heard else NotHeard()
            case LookAfter():
                return self._look_after()
            case Note():
                fields = instruction.fields
                warn(logger, instruction.name, partition=self.spec.partition, **fields)
            case EndForGood():
                self._end_for_good()
            case EndProcess():
                self._end_process(is_error=instruction.is_error)
        return None

    def _ask_order(self, timeout_s: float) -> Event:
        try:
            self._check_place()
        except LabelShared as error:
            return Misplaced(error)
        except Exception as error:  # whatever Ray raises: it is asked again
            return NotLearned(f"nobody tells which nodes are up ({error})")
        try:
            order = self._manager.order(timeout_s)
            if self._obedience.accept(order):
                return Learned(order)
        except RaylogError as error:
            return NotLearned(str(error.problem))
        except Exception as error:  # whatever Ray raises: it is asked again
            return NotLearned(f"its LogManager cannot be asked ({error})")
        return NotLearned("its LogManager has only an order of an older Controller")

    def _check_place(self) -> None:
        """Raise LabelShared if this is not the actor's own node; else Ray is not asked again."""
        if not self._is_place_known:
            self.process.check_alone()
            self._is_place_known = True

    def _open(self, order: LogOrder) -> None:
        outcome = self._try_to_open(order)
        if self._sockets is not None and isinstance(outcome, Opened):
            self._sockets.begin(
                self.partition, self.delete_records, lambda _: self._handle(Distrusted())
            )
            self._sockets.keep_up(lambda: self.spec.endpoint)  # nobody is asked before it serves
        self._handle(outcome)
        if isinstance(outcome, Opened):
            self._listen()

    def _listen(self) -> None:
        """Listen for clients, if it does not do so yet, and have its LogManager know that."""
        now_ms = self._clock.now_ms()
        sockets = self._sockets
        if sockets is None or sockets.is_everywhere or now_ms < self._next_ask_ms:
            return
        had_port = bool(sockets.port)
        sockets.keep_up(self._endpoint)
        if sockets.port and not had_port:
            self._manager.say(self.says())
        if sockets.is_everywhere:
            return
        self._next_ask_ms = now_ms + self._ask_pause_ms
        self._ask_pause_ms = min(2 * self._ask_pause_ms, LONGEST_ASK_PAUSE_MS)

    def _try_to_open(self, order: LogOrder) -> Event:
        """Open the log; returns what came of it."""
        try:
            self._wait_for_place()
        except LabelShared as error:
            return Misplaced(error)
        spec = replace(self.spec, config=order.config, config_version=order.config_version)
        try:
            self.opened = self._open_log(
                spec, self._manager.tell_progress, is_restart=self.process.is_restart
            )
        except RaylogError as error:
            return Refused(error)
        except Exception as error:
            # Another process would meet it again: the LogManager decides when to try.
            warn(logger, "opening-failed", trace=True, partition=self.spec.partition)
            return Refused(_refusal(self.spec, error))
        return Opened()

    def _endpoint(self) -> Endpoint | None:
        """What it is to clients; None while nobody knows it.

        The LogManager is asked where need be: to find it costs a process that has not done so yet
        the import of its class.
        """
        return self.spec.endpoint or self._manager.endpoint()

    def _wait_for_place(self) -> None:
        """Return when this is known to be the actor's own node. Raises LabelShared."""
        while True:
            try:
                return self._check_place()
            except LabelShared:
                raise
            except Exception as error:  # whatever Ray raises: its head is away
                warn(logger, "place-unknown", partition=self.spec.partition, why=error)
            self._sleep(PLACE_INTERVAL_S)

    def _look_after(self) -> Event | None:
        partition = self.partition
        if partition.is_stuck:
            return Stuck()
        failure = partition.disk_failure
        if failure is not None and self._life.state == "serving":
            return DiskFailed(failure)
        self._listen()
        partition.maintain(self.spec.producer_expiration)
        now_ms = self._clock.now_ms()
        if now_ms >= self._next_export_ms:
            self._export()
            self._next_export_ms = now_ms + round(EXPORT_INTERVAL_S * 1000)
            self._is_exported = True
        return None

    def _export(self) -> None:
        try:
            export_partition(self.partition, self._exporter)
            export_opening(self.log.report, self._exporter)
            if self._sockets is not None:
                self._sockets.export(self._exporter)
        except Exception:  # whatever Ray raises: metrics are not worth a partition
            warn(logger, "metrics-failed", trace=True, partition=self.spec.partition)

    def _end_for_good(self) -> None:
        try:
            self.process.end_actor()
        except Exception as error:  # whatever Ray raises: it is tried again at the next tick
            warn(logger, "actor-not-ended", partition=self.spec.partition, why=error)

    def _end_process(self, *, is_error: bool) -> None:
        event(
            logger,
            "process-ended",
            level=logging.CRITICAL if is_error else logging.ERROR,
            trace=is_error,
            todo="none: the next process recovers the log",
        )
        self.process.end()


def _refusal(spec: LogSpec, error: Exception) -> LogRefused:
    todo = "see the log of this actor, and report it with it"
    return LogRefused(str(spec.partition), type(error).__name__, str(error), todo)
