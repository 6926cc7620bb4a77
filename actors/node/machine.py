"""What a LogManager does next: a pure machine. Events and the time in, instructions out.

::

    Controller --Orders--> epoch gate --> what is wanted of each log --+
                                                                      +--> steps --> instructions
    disks, LogActors ----> events    --> what is so ------------------+        |
                                                                               +--> report

It is made of these, each with a state of its own:

=====================  ============================================================================
``epoch_gate.py``      whose orders are obeyed
``dir_epochs.py``      in which log dirs
``log_orders.py``      what they want of each log
``log_events.py``      what is found, has ended, has failed
``log_steps.py``       what is done next for a log; the table is in ``log_states.py``
``log_book.py``        the logs, and the dirs in which they lie (``places.py``)
``confirmed_logs.py``  which config versions the Controller has confirmed of late
``upkeep_schedule.py`` when retention and compaction have their rounds
``report_maker.py``    the report
=====================  ============================================================================

The shell carries the instructions out and tells what became of them. It knows the disks, the
processes and Ray; it decides nothing.
"""

from raylog.actors.control import (
    Confirmed,
    End,
    KeepOut,
    LogId,
    ObeyConfig,
    Orders,
    ReadBack,
    Remove,
    Stop,
)
from raylog.actors.levels import LEVELS, Levels
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.config_digests import digest_at_once, digest_by_start, taken_at_once
from raylog.actors.node.confirmed_logs import ConfirmedLogs
from raylog.actors.node.epoch_gate import EpochGate
from raylog.actors.node.events import (
    ActorGone,
    ActorSaid,
    ActorSeen,
    DirFailed,
    DirsRead,
    Event,
    Finished,
    IdentityFound,
    IdentityLost,
    Measured,
    Ordered,
    ReportWanted,
    Served,
    Started,
    Tick,
    UpkeepKind,
    UpkeepSeen,
)
from raylog.actors.node.instructions import (
    CloseDir,
    EndNode,
    Instruction,
    Refuse,
    RetireDir,
    SendReport,
    TakeConfig,
    WriteEpoch,
)
from raylog.actors.node.log_book import LogBook
from raylog.actors.node.log_events import LogEvents
from raylog.actors.node.log_orders import LogOrders
from raylog.actors.node.log_states import ALIVE, NodeLog
from raylog.actors.node.log_steps import LogSteps
from raylog.actors.node.node_promises import validate_work
from raylog.actors.node.outbox import Outbox
from raylog.actors.node.places import Places
from raylog.actors.node.report_maker import ReportMaker, reports_of
from raylog.actors.node.upkeep_schedule import UpkeepSchedule
from raylog.actors.node_messages import LogOrder
from raylog.storage.errors import DiskFull, OutOfResources, RaylogError
from raylog.storage.names import TopicPartition


class NodeMachine:
    """See the module's head. The first event is ``Started``."""

    def __init__(
        self,
        *,
        node: str,
        life: str,
        config: BrokerConfig,
        software: str = "",
        levels: Levels = LEVELS,
    ) -> None:
        """``node``: its key. ``life``: another one for each machine.

        ``software``, ``levels``: the version of raylog and what it knows, as its reports tell it.
        """
        self._gate = EpochGate(node, life)
        self._out = Outbox()
        self._places = Places()
        self._book = LogBook(self._places, self._out)
        self._orders = LogOrders(self._book)
        self._events = LogEvents(self._book)
        self._config = config
        self._most_openings = config.num_recovery_threads_per_data_dir
        self._steps = LogSteps(self._book, self._most_openings)
        self._reports = ReportMaker(node, life, software, levels)
        self._confirmations = ConfirmedLogs()
        self._upkeep = UpkeepSchedule(config)
        self._config_digest, self._start_digest = digest_at_once(config), digest_by_start(config)
        self._room = -1
        self._is_restarted = False
        self._is_started = self._is_ending = False

    def handle(self, event: Event, now_ms: int) -> list[Instruction]:
        """What is to be done. ``now_ms``: of a clock that never goes back."""
        assert self._is_started != isinstance(event, Started), "Started is the first event, once"
        self._take(event, now_ms)
        self._write_epochs(now_ms)
        self._obey_held(now_ms)
        self._advance()
        self._report(now_ms)
        if isinstance(event, Started | UpkeepSeen | Tick):
            self._keep_up(now_ms)
        return self._out.take()

    # -- look-ups ----------------------------------------------------------------------------------

    @property
    def controller_epoch(self) -> int:
        """The highest epoch of a Controller that a log dir has; -1 for none.

        What is ordered was ordered by this one, or by one before it.
        """
        return self._gate.on_disk

    def rights(self, now_ms: int) -> dict[LogId, Confirmed]:
        """The rights to remove records, of the logs that obey what the Controller has confirmed."""
        rights: dict[LogId, Confirmed] = {}
        for log in self._book.logs.values():
            right = self._confirmations.right(log.id, now_ms)
            if right is None or log.served is None or isinstance(log.want, Remove | End):
                continue
            if not self._places.takes_orders(log.home):
                continue
            if right.config_version == log.served.config_version == log.config_version:
                rights[log.id] = right
        return rights

    def order_of(self, log: LogId) -> LogOrder | None:
        """What an actor of this log that Ray has started again shall obey.

        None: it shall not serve, or nobody has ordered or confirmed it in this life: an actor that
        was adopted serves on, but the next one needs the Controller's word. ``config_version``: of
        what was ordered last.
        """
        serve = self._book.order_of(log)
        if serve is None:
            return None
        return LogOrder(
            log=log,
            directory_id=serve.directory_id,
            config=serve.config,
            config_version=serve.config_version,
            controller_epoch=self.controller_epoch,
        )

    def served(self) -> tuple[Served, ...]:
        """The logs that are served, as their actors have told last."""
        return tuple(
            log.served
            for log in self._book.logs.values()
            if log.served is not None and log.state in ("serving", "copied")
        )

    # -- events ------------------------------------------------------------------------------------

    def _take(self, event: Event, now_ms: int) -> None:
        """Note what the event says."""
        match event:
            case Started():
                self._start(event, now_ms)
            case Ordered():
                self._judge(event.orders, now_ms)
            case Finished():
                self._finish(event)
            case DirFailed():
                self._fail_dir(event.directory_id, event.why)
            case DirsRead():
                self._read_again(event)
            case ActorGone():
                self._events.actor_gone(event.partition)
            case ActorSaid():
                self._events.actor_said(event.served)
            case ActorSeen():
                self._events.actor_seen(event.log, event.directory_id)
            case IdentityLost():
                self._events.identity_lost(event.partition, event.directory_id)
            case IdentityFound():
                self._events.identity_found(event.folder)
            case UpkeepSeen():
                self._see_upkeep(event)
            case Measured():
                self._places.measure(event.usable_bytes)
                self._room = event.room
            case ReportWanted():
                self._reports.node_changed()
            case Tick():
                self._places.epochs.try_again()
                self._book.try_again()

    def _start(self, event: Started, now_ms: int) -> None:
        self._is_started = True
        self._gate.read(event.controller_epoch)
        self._room, self._is_restarted = event.room, event.is_restarted
        self._upkeep.started(event.upkeep, now_ms)
        self._events.read(event.dirs, event.folders)
        self._events.adopt(event.served)
        for partition in event.strangers:
            self._book.kill(partition)

    def _read_again(self, event: DirsRead) -> None:
        """Dirs were read anew, or late; what is in those that are online is known better."""
        back = [dir for dir in event.dirs if not self._places.is_online(dir.directory_id)]
        ids = {dir.directory_id for dir in back}
        self._gate.read(event.controller_epoch)
        self._events.read(
            back,
            [folder for folder in event.folders if folder.directory_id in ids],
        )
        self._reports.node_changed()

    def _finish(self, event: Finished) -> None:
        work = self._out.in_flight.pop(event.token, None)
        if work is None:
            return  # told twice
        if isinstance(work, WriteEpoch):
            self._epoch_written(work, event.error)
            return
        if isinstance(work, RetireDir):
            self._events.retired(work, event.error)
            self._reports.node_changed()
            return
        blamed = self._events.blamed(work, event.error)
        self._events.ended(work, event.result, event.error)
        if event.error is not None:
            self._out.note("not-done", work=work, why=event.error)
        if blamed is not None and event.error is not None:
            self._fail_dir(blamed, event.error.problem)

    def _fail_dir(self, directory_id: str, why: str) -> None:
        self._events.dir_failed(directory_id, why)
        self._reports.node_changed()

    def _see_upkeep(self, event: UpkeepSeen) -> None:
        if event.kinds != self._upkeep.running:
            self._reports.node_changed()
        self._upkeep.seen(event.kinds)

    # -- orders ------------------------------------------------------------------------------------

    def _judge(self, orders: Orders, now_ms: int) -> None:
        """Obey an envelope, or hold it until its epoch is on the disks, or refuse it."""
        before = self._gate.seen
        verdict = self._gate.judge(orders)
        if self._gate.seen != before:
            self._reports.node_changed()
        match verdict:
            case "obey":
                self._obey(orders, now_ms)
            case "refuse":
                self._out.say(Refuse(controller_epoch=self._gate.seen))
            case "drop":
                self._out.note("orders-dropped", number=orders.number, life=orders.life)

    def _obey(self, orders: Orders, now_ms: int) -> None:
        self._places.epochs.obeyed = self._gate.obeyed
        for order in orders.orders:
            match order:
                case ReadBack():
                    self._events.read_back(order.directory_id)
                case KeepOut(in_order=True):
                    self._events.retire(order.directory_id, order.why)
                case KeepOut():
                    self._events.dir_failed(order.directory_id, order.why)
                case Stop():
                    self._end()
                case ObeyConfig():
                    self._obey_config(order.config, now_ms)
                case _:
                    self._orders.obey(order, orders.report)
        for id in self._confirmations.obeyed(orders):
            self._orders.confirm(id)
        self._reports.node_changed()  # it says which orders were obeyed

    def _obey_config(self, wanted: BrokerConfig, now_ms: int) -> None:
        """Take what can be taken while the node serves; the order may come twice."""
        config = taken_at_once(wanted, self._config)
        if config == self._config:
            return
        self._config, self._config_digest = config, digest_at_once(config)
        self._upkeep.obey(config, now_ms)
        self._steps.openings_at_once = config.num_recovery_threads_per_data_dir
        self._most_openings = max(self._most_openings, self._steps.openings_at_once)
        self._out.say(TakeConfig(config=config))

    def _end(self) -> None:
        """End once, however often it is ordered; no life of a node goes on after that."""
        if not self._is_ending:
            self._is_ending = True
            self._out.say(EndNode())

    def _write_epochs(self, now_ms: int) -> None:
        epoch = self._gate.wanted
        for directory_id in self._places.epochs.to_write(self._places.open(), epoch, now_ms):
            self._out.work(
                WriteEpoch(
                    token=self._out.token(), controller_epoch=epoch, directory_id=directory_id
                )
            )

    def _epoch_written(self, write: WriteEpoch, error: RaylogError | None) -> None:
        """A dir that could not take the epoch must not be used under it.

        A full disk and a shortage of descriptors are no failure of the dir: its orders wait.
        """
        epochs, directory_id = self._places.epochs, write.directory_id
        if error is None:
            self._gate.read(write.controller_epoch)
            if epochs.written(directory_id):
                self._book.touch_all()
                self._reports.node_changed()
            return
        self._out.note("not-done", work=write, why=error)
        is_short = isinstance(error, DiskFull | OutOfResources)
        epochs.not_written(directory_id, is_short=is_short)
        if not is_short:
            self._fail_dir(directory_id, error.problem)

    def _obey_held(self, now_ms: int) -> None:
        """Obey what waited for the log dirs, once those have the epoch that answer."""
        if self._places.epochs.pass_time(now_ms):
            self._reports.node_changed()
        is_settled = self._places.epochs.is_settled(self._places.open(), self._gate.wanted)
        if not self._gate.is_holding or not is_settled:
            return
        for orders in self._gate.open():
            self._judge(orders, now_ms)

    # -- what follows ------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Say what is next for every log that was touched, and for those that waited for it."""
        touched: dict[TopicPartition, None] = {}
        while (partition := self._next_partition()) is not None:
            touched[partition] = None
            self._steps.run(partition)
        for directory_id in self._places.take_to_close():
            self._out.say(CloseDir(directory_id=directory_id))
        self._steps.free_dirs()
        for partition in touched:
            self._update_report(partition)

    def _next_partition(self) -> TopicPartition | None:
        touched = self._book.next_touched()
        return self._steps.next_waiting() if touched is None else touched

    def _update_report(self, partition: TopicPartition) -> None:
        reports = reports_of(self._book, partition)
        self._reports.update(partition, reports)
        self._confirmations.show(partition, reports, self._reports.number + 1)

    def _report(self, now_ms: int) -> None:
        if not self._reports.is_due(now_ms):
            return
        report = self._reports.make(
            now_ms,
            controller_epoch=self._gate.seen,
            orders=self._gate.number,
            dirs=self._places.reports(),
            upkeep=self._upkeep.running,
            upkeep_needed=self._upkeep.needed,
            room=self._room,
            is_restarted=self._is_restarted,
            is_ending=self._is_ending,
            config_digest=self._config_digest,
            start_digest=self._start_digest,
        )
        self._book.next_report = report.number + 1
        self._confirmations.report_made(report.number, now_ms)
        self._out.say(SendReport(report=report))

    # -- upkeep ------------------------------------------------------------------------------------

    def _keep_up(self, now_ms: int) -> None:
        """Start the upkeep that is needed and missing; have the rounds done that are due."""
        logs: dict[UpkeepKind, set[LogId]] = {}
        for log in self._book.logs.values():
            kind = self._kind_of(log)
            if kind is not None:
                logs.setdefault(kind, set()).add(log.id)
        for start in self._upkeep.starts(logs.keys()):
            self._out.say(start)
        if not self._upkeep.is_due(now_ms):
            return
        confirmed: dict[UpkeepKind, dict[LogId, int]] = {}
        for id, right in self.rights(now_ms).items():
            kind = self._kind_of(self._book.logs[id])
            if kind is not None:
                confirmed.setdefault(kind, {})[id] = right.config_version
        for round in self._upkeep.rounds(logs, confirmed, now_ms):
            self._out.say(round)

    def _kind_of(self, log: NodeLog) -> UpkeepKind | None:
        """The upkeep that a log needs that is served or is to be."""
        if log.config is None or log.want is None or isinstance(log.want, Remove | End):
            return None
        return self._upkeep.kind_of(log.config)

    # -- promises ----------------------------------------------------------------------------------

    def validate(self) -> None:
        """Assert what the machine promises; for tests, after each event."""
        self._gate.validate()
        self._book.validate()
        validate_work(self._book, self._most_openings)
        for id in self.rights(0):
            assert self._book.logs[id].state in ALIVE, f"{id} has upkeep and is not served"
