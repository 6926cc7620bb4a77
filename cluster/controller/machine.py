"""The Controller's machine: events in, instructions out. Nothing here waits, or has a clock.

::

    Asked ------> commands.py --+                                 +--> waiting.py --> Answer
                                +--> records --> Append ~~~~~~~~> Appended
    Reported ---> plan.py ------+                                 +--> fold (desired.py)
                     |                                                     |
                     +------------------ orders <--------------------------+
                                           |
                                      telling.py --> Tell

A decision is a record first. There is one append at a time, a command is judged by the state of the
moment it is appended, and nobody is told of what is not on the disk (``journal.py``). What a node
reports is judged by the state of now (``observed.py``), so a late answer does no harm.

**In charge.** The first record of a Controller is its epoch, which is higher than every one in the
log and on the log dirs of its node. It writes it when all nodes that answer have reported, and
nobody obeys it before. Commands wait until these nodes have obeyed.

**Older metadata.** A node obeys an epoch only when it is in the log, fsynced. So one that has seen
a higher epoch than the log has, or this one but not from here, tells that the metadata was rolled
back. Then nothing is decided any more (OlderMetadata): the nodes serve on, and a person decides.
Where somebody has accepted the older metadata, the Controller begins a higher epoch instead:
nothing of it may look like what the lost one did.

What is done elsewhere: reading and writing the log, finding the nodes, sending (the Ray shell).
"""

from collections import deque
from collections.abc import Iterable
from copy import copy

from raylog.actors.control import LogId, Order, Report
from raylog.actors.errors import NoLogDirs, NotController, OlderMetadata
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.names import log_manager_name
from raylog.cluster.controller.begun import Begun, partition_named
from raylog.cluster.controller.charge import Charge
from raylog.cluster.controller.commands import (
    AllocateProducerId,
    AlterTopic,
    CancelMove,
    Command,
    Commands,
    LogDirOnline,
    removing,
)
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.events import (
    Appended,
    AppendFailed,
    Asked,
    Event,
    NodesSeen,
    Refused,
    Reported,
    ReserveMade,
    Silent,
    Started,
    Tick,
)
from raylog.cluster.controller.instructions import (
    Answer,
    Answered,
    Append,
    Instruction,
    MakeReserve,
    Note,
    StartManager,
    Tell,
)
from raylog.cluster.controller.journal import GROWING, InFlight, Journal, Purpose
from raylog.cluster.controller.observed import SUSPECT_MS, Watched
from raylog.cluster.controller.plan import Configs, Plan, plan
from raylog.cluster.controller.producer_ids import ProducerIds
from raylog.cluster.controller.records import (
    ControllerRecord,
    DirRecord,
    NodeRecord,
    NodeState,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    TopicRecord,
    TopicRemovedRecord,
)
from raylog.cluster.controller.starts import Starts, is_left_running
from raylog.cluster.controller.telling import Telling
from raylog.cluster.controller.waiting import (
    Altering,
    Creating,
    Ended,
    View,
    Waiting,
)
from raylog.storage.errors import DiskFull, RaylogError


class ControllerMachine:
    """The Controller. ``config``: the broker's."""

    def __init__(self, config: BrokerConfig) -> None:
        self.desired = Desired()
        self.watched = Watched()
        self._config = config
        self._configs = Configs(config.topic_defaults)
        self._journal = Journal()
        self._telling = Telling()
        self._ids = ProducerIds()
        self._charge = Charge(self.watched, self._telling)
        self._is_gathered = False  # whether commands may begin
        self._in_charge_ms = 0  # when it got its epoch
        self._commands: deque[Asked] = deque()
        self._undo: deque[tuple[Purpose, Creating]] = deque()
        self._waiting: dict[int, Waiting] = {}
        self._starts = Starts()
        self._is_turn_of_plan = False  # after a command: they must not keep each other waiting
        self._dirty: set[str] = set()  # nodes for which something else may follow now
        self._orders: dict[str, tuple[Order, ...]] = {}  # by the last plan, as are the doubts
        self._doubts: dict[str, frozenset[LogId]] = {}
        self._now_ms = 0
        self._out: list[Instruction] = []

    @property
    def is_in_charge(self) -> bool:
        """Whether the metadata's epoch is its own."""
        return self._charge.is_taken

    @property
    def doubt(self) -> OlderMetadata | None:
        """Why it decides nothing, in this life."""
        return self._charge.doubt

    @property
    def failure(self) -> RaylogError | None:
        """Why nothing can be changed any more; None while all is well."""
        return self.doubt or self._journal.failure

    @property
    def reserve_problem(self) -> RaylogError | None:
        """Why the metadata's reserve is not whole; None while it is."""
        return self._journal.reserve.problem

    def handle(self, event: Event, now_ms: int) -> list[Instruction]:
        """What to do after this. ``now_ms``: never goes back."""
        self._now_ms = max(now_ms, self._now_ms)
        self._out = []
        reserve_problem, doubt = self.reserve_problem, self.doubt
        match event:
            case Started():
                self._start(event)
            case NodesSeen():
                self._see(event)
            case Reported():
                self._take(event.report)
            case Refused():
                self._charge.hear_refusal(event)
            case Silent():
                if event.is_refused:
                    self._charge.refuses(event.node)
                if event.node in self.watched.nodes:
                    self._starts.silent(event.node, self._now_ms)
            case Asked():
                self._commands.append(event)
            case Appended():
                done = self._journal.appended(event.token, event.shortage, self._now_ms)
                self._appended(done)
            case AppendFailed():
                self._append_failed(event)
            case ReserveMade():
                self._journal.reserve.made(event.problem, self._now_ms)
            case Tick():
                pass
        self._note_news(reserve_problem, doubt)
        self._go_on()
        return self._out

    # -- events ------------------------------------------------------------------------------------

    def _start(self, event: Started) -> None:
        self.desired = event.desired
        self._charge.start(event)

    def _see(self, event: NodesSeen) -> None:
        for key in self.watched.see(event.nodes, self._now_ms):
            self._orders.pop(key, None)
            self._doubts.pop(key, None)
            self._starts.forget(key)
            self._charge.forget(key)
            if key in self.watched.nodes:
                self._starts.begin(key, self._now_ms)
        if event.actors is not None:
            self._see_ends(event.actors)
        # Where a node has left, a log dir of it may be taken over by another one.
        self._dirty |= set(self.watched.nodes)

    def _see_ends(self, actors: frozenset[str]) -> None:
        """Which of the nodes that are stopped have ended: nothing of them runs."""
        for key, seen in list(self.watched.nodes.items()):
            if not self.desired.is_stopped(key):
                continue
            is_running = log_manager_name(key) in actors
            is_left = (
                not is_running
                and seen.is_clean is None
                and is_left_running(self.desired, self.watched.nodes, key, actors)
            )
            self._starts.close_left(key, is_needed=is_left)
            if not (is_running or is_left or seen.is_ended):
                self.watched.ended(key)
                self._out.append(Note(name="node-stopped", fields={"node": key}))

    def _take(self, report: Report) -> None:
        self._charge.hear_report(report)
        sent = self._telling.last_number
        if not self.watched.take(report, self._charge.epoch, sent, self._now_ms):
            return
        self._telling.ended(report.node, self.watched.past_lives(report.node))
        self._dirty.add(report.node)
        if self.watched.nodes[report.node].report is None:
            if not self.desired.is_stopped(report.node):
                self._starts.begin(report.node, self._now_ms)
            return  # these were the last words of its LogManager
        under_way = self._telling.heard(report, self._now_ms)
        self.watched.under_way(report.node, under_way)
        self._starts.forget(report.node)
        self._charge.forget(report.node)

    def _appended(self, done: InFlight) -> None:
        for record in done.records:
            self._apply(record)
        if done.purpose is None:
            return
        request, command = done.purpose.request, done.purpose.command
        if command is None:
            self._out.append(Answer(request=request, error=done.purpose.error))
        elif isinstance(command, AllocateProducerId) and (self._charge.is_outranked or self.doubt):
            # Its epoch may have been another Controller's: no id of it is handed out.
            self._commands.appendleft(Asked(request=request, command=command))
        else:
            self._begun(request, command, done.records)

    def _apply(self, record: Record) -> None:
        """Take it into what shall be, and note for whom something else follows from it."""
        log = getattr(record, "log", None)
        if log is not None and log in self.desired.partitions:
            self._dirty_at(self.desired.partitions[log])
        if isinstance(record, TopicRemovedRecord):
            self._configs.forget(record.topic_id)
        before = self.desired.state_of(getattr(record, "key", ""))
        self.desired.apply(record)
        match record:
            case NodeRecord() if record.state != before:
                self._operated(record, before)
            case PartitionRecord():
                self._dirty_at(record)
            case TopicRecord():
                for other in self.desired.logs_of(record.topic_id):
                    self._dirty_at(self.desired.partitions[other])
            case DirRecord():
                self._dirty |= set(self.watched.nodes)
                if record.state != "online":
                    fields = {"log_dir": record.path, "node": record.node, "why": record.why}
                    self._out.append(Note(name=f"log-dir-{record.state}", fields=fields))
            case ControllerRecord():
                self._charge.take(record.epoch)
                self._telling.new_epoch()
                self._orders.clear()
                self._doubts.clear()
                self._is_gathered, self._in_charge_ms = False, self._now_ms
                for key, seen in self.watched.nodes.items():
                    if seen.report is not None:
                        self._telling.heard(seen.report, self._now_ms)
                        self.watched.under_way(key, frozenset())
                self._dirty |= set(self.watched.nodes)
                self._out.append(Note(name="in-charge", fields={"epoch": record.epoch}))
            case ProducerIdsRecord():
                self._ids.written(record)

    def _operated(self, record: NodeRecord, before: NodeState) -> None:
        """An operator wants something else of a node than ``before``."""
        seen = self.watched.nodes.get(record.key)
        self._dirty.add(record.key)
        if record.state != "stopped" and seen is not None and seen.report is None:
            self.watched.begins(record.key, self._now_ms)
            self._starts.begin(record.key, self._now_ms)
            self._charge.forget(record.key)
        elif before == "stopped" and seen is not None:
            self.watched.is_wanted_again(record.key, self._telling.last_number)
        fields = {"node": record.key, "state": record.state}
        self._out.append(Note(name="node-operated", fields=fields))

    def _dirty_at(self, record: PartitionRecord) -> None:
        directory = self.desired.dirs.get(record.directory or "")
        self._dirty |= {record.node if directory is None else directory.node, *record.left}

    def _append_failed(self, event: AppendFailed) -> None:
        failed = self._journal.failed(event.token, event.error, self._now_ms)
        if self._journal.failure is not None:
            fields = {"why": event.error}
            self._out.append(Note(name="metadata-failed", fields=fields))
        self._dirty |= set(self.watched.nodes)
        if failed.purpose is not None:
            error = failed.purpose.error or event.error
            self._out.append(Answer(request=failed.purpose.request, error=error))

    def _note_news(self, before: RaylogError | None, doubt: OlderMetadata | None) -> None:
        """``before``, ``doubt``: the problem of the reserve and the doubt before this event."""
        if self.doubt is not doubt:
            self._out.append(Note(name="older-metadata", fields={"why": self.doubt}))
        now = self.reserve_problem
        if now is None and before is not None:
            self._out.append(Note(name="metadata-reserve-made"))
        elif now is not None and before is None:
            self._out.append(Note(name="metadata-reserve-given-up", fields={"why": now}))

    # -- going on ----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if not self._charge.node:
            return
        self._start_managers()
        if self.doubt is not None:
            self._refuse_if_failed()
            return  # the nodes serve on as they did
        self._refuse_if_stuck()
        if self._charge.is_outranked:
            self._refuse_if_failed()
            is_informed = self.is_in_charge or self._charge.has_heard_all(self._now_ms)
            if is_informed and self._journal.is_ready(self._now_ms):
                record = ControllerRecord(epoch=self._charge.epoch, node=self._charge.node)
                self._append([record])
            return  # nobody obeys the epoch that it has
        if self._journal.reserve.is_due(self._now_ms):
            self._journal.reserve.begin()
            self._out.append(MakeReserve())
        self._look_at_waiting()
        self._refuse_if_failed()
        self._gather()
        if self._is_turn_of_plan:
            self._follow_plan()
            self._next_command()
        else:
            self._next_command()
            self._follow_plan()
        self._tell_nodes()

    def _start_managers(self) -> None:
        for key in self._starts.due(self.desired, self._now_ms):
            self._out.append(StartManager(node=key))

    def _refuse_if_failed(self) -> None:
        """Where nothing can be changed any more: tell everybody who waits for it."""
        failure = self.failure
        if failure is None:
            return
        requests = [asked.request for asked in self._commands]
        requests += [purpose.request for purpose, _ in self._undo]
        for request, waiting in list(self._waiting.items()):
            needs_no_record = isinstance(waiting, Altering)
            if self.doubt is not None or not needs_no_record:
                del self._waiting[request]
                requests.append(request)
        self._commands.clear()
        self._undo.clear()
        # Itself, it would keep the frames of everybody who has raised it.
        self._out += [Answer(request=request, error=copy(failure)) for request in requests]

    def _refuse_if_stuck(self) -> None:
        """Commands that wait for records which the disk has no room for need not wait."""
        stuck = self._journal.stuck
        if stuck is None or self._is_gathered:
            return
        while self._commands:
            request = self._commands.popleft().request
            self._out.append(Answer(request=request, error=copy(stuck)))

    def _look_at_waiting(self) -> None:
        view = View(
            desired=self.desired,
            observed=self.watched.nodes,
            now_ms=self._now_ms,
            stuck=self._journal.stuck,
            refused=self._charge.refusing,
        )
        for request, waiting in list(self._waiting.items()):
            ended = waiting.look(view)
            if ended is None:
                continue
            del self._waiting[request]
            if ended.is_undone and isinstance(waiting, Creating):
                self._undo.append((Purpose(request=request, error=ended.error), waiting))
            else:
                self._answer(request, ended)

    def _answer(self, request: int, ended: Ended) -> None:
        self._out.append(Answer(request=request, value=ended.value, error=ended.error))

    def _gather(self) -> None:
        """Commands may begin when every node obeys that is not silent, and its dirs are known.

        A node that only reports, and hears nothing, holds them up as long as a silent one: the
        epoch that it has seen is known.
        """
        if self._is_gathered:
            return
        self._follow_plan()
        nodes = self.watched.nodes.values()
        epoch = self.desired.controller_epoch
        is_late = self._now_ms - self._in_charge_ms > SUSPECT_MS
        is_all = all(
            seen.obeys(epoch)
            or seen.is_ended
            or seen.is_suspect(self._now_ms)
            or (is_late and seen.report is not None)
            for seen in nodes
        )
        is_planned = not self._dirty and self._journal.is_free
        self._is_gathered = is_all and is_planned and bool(nodes)

    # -- appending ---------------------------------------------------------------------------------

    def _append(self, records: Iterable[Record], purpose: Purpose | None = None) -> None:
        begun = self._journal.begin(records, self.desired, purpose)
        append = Append(
            token=begun.token, records=begun.records, may_use_reserve=begun.may_use_reserve
        )
        self._out.append(append)
        self._is_turn_of_plan = purpose is not None

    def _next_command(self) -> None:
        """Go on to the next command that changes something, and append that."""
        while self._journal.is_free:
            if self._undo:
                purpose, creating = self._undo.popleft()
                self._append_undo(purpose, creating)
            elif self._commands and self._is_gathered:
                asked = self._commands.popleft()
                try:
                    self._begin(asked.request, asked.command)
                except RaylogError as error:
                    self._out.append(Answer(request=asked.request, error=error))
            else:
                return

    def _begin(self, request: int, command: Command) -> None:
        if isinstance(command, AllocateProducerId) and self._has_answered_id(request):
            return
        records = self._records(command)
        if getattr(command, "validate_only", False):
            topics = [record for record in records if isinstance(record, TopicRecord)]
            known = self.desired.topic_named(getattr(command, "name", ""))
            self._out.append(Answer(request=request, value=topics[0] if topics else known))
        elif records:
            if isinstance(command, AlterTopic):
                self._check_epoch_is_kept()
            self._append(records, Purpose(request=request, command=command))
        else:
            self._begun(request, command, ())
            self._look_at_waiting()  # nothing else may happen for a while

    def _records(self, command: Command) -> tuple[Record, ...]:
        """What the command changes. Raises DiskFull for what grows while there is no reserve."""
        commands = Commands(self.desired, self.watched.nodes, self._now_ms, self._config)
        shortage = self.reserve_problem
        if not (isinstance(command, GROWING) and isinstance(shortage, DiskFull)):
            return commands.records(command)
        try:
            records = commands.records(command)
        except NoLogDirs:  # since all are full
            raise copy(shortage) from None
        if records:
            raise copy(shortage)
        return records

    def _has_answered_id(self, request: int) -> bool:
        """Whether there was a producer id left. NotLeader where none may be handed out."""
        producer_id = self._ids.take(self.desired.controller_epoch)
        if producer_id is not None:
            self._out.append(Answer(request=request, value=producer_id))
            return True
        self._check_epoch_is_kept()
        return False

    def _check_epoch_is_kept(self) -> None:
        """Raise NotController where a lost history may repeat what is numbered by the epoch.

        That are ids and versions of configs. No disk but the metadata's has the epoch then.
        """
        epoch = self.desired.controller_epoch
        if not any(seen.keeps(epoch) for seen in self.watched.nodes.values()):
            raise NotController("the broker", "no log dir has the epoch of its Controller yet")

    def _append_undo(self, purpose: Purpose, creating: Creating) -> None:
        """Remove what was created in vain, as far as it is still there."""
        partitions = self.desired.partitions
        logs = [log for log in creating.logs if log in partitions]
        if creating.is_new_topic:  # with what somebody has added to it meanwhile
            logs = self.desired.logs_of(creating.topic_id)
        records: list[Record] = [
            *removing(self.desired, [log for log in logs if partitions[log].state != "removing"])
        ]
        if creating.is_new_topic and creating.topic_id in self.desired.topics:
            records.append(TopicRemovedRecord(topic_id=creating.topic_id))
        if records:
            self._append(records, purpose)
        else:
            self._out.append(Answer(request=purpose.request, error=purpose.error))

    def _begun(self, request: int, command: Command, records: tuple[Record, ...]) -> None:
        """The command's records are written; answer it, or wait for what the nodes report."""
        match command:
            case AllocateProducerId():
                self._out.append(Answer(request=request, value=self._first_id()))
            case CancelMove() | LogDirOnline():
                self._out.append(Answer(request=request, value=self._as_it_is(command)))
            case _:
                begun = Begun(self.desired, self._now_ms, self._config.num_partitions)
                self._waiting[request] = begun.waiting(command, records)

    def _first_id(self) -> int:
        producer_id = self._ids.take(self.desired.controller_epoch)
        assert producer_id is not None, "a block was written just now"
        return producer_id

    def _as_it_is(self, command: CancelMove | LogDirOnline) -> Answered:
        if isinstance(command, CancelMove):
            return partition_named(self.desired, command.name, command.number)
        commands = Commands(self.desired, self.watched.nodes, self._now_ms, self._config)
        return commands.log_dir(command)

    # -- the plan ----------------------------------------------------------------------------------

    def _follow_plan(self) -> None:
        """Plan for the nodes where something is new, and append what has come true."""
        self._dirty &= set(self.watched.nodes)
        made = self._plan()
        self._orders.update(made.orders)
        self._doubts.update(made.doubts)
        if not made.records:
            self._dirty.clear()
        elif self._journal.is_ready(self._now_ms):
            self._dirty.clear()
            self._append(made.records)

    def _plan(self) -> Plan:
        nodes = sorted(self._dirty)
        return plan(self.desired, self.watched.nodes, self._now_ms, self._configs, nodes)

    def _tell_nodes(self) -> None:
        for key, seen in self.watched.nodes.items():
            if seen.report is None:
                continue
            is_known = seen.obeys(self.desired.controller_epoch)
            orders = self._telling.orders(
                seen.report,
                self._orders.get(key, ()) if is_known else (),
                self.desired.controller_epoch,
                self._now_ms,
                doubts=self._doubts.get(key, frozenset()),
                withheld=self._journal.withheld,
                confirms=is_known and self.failure is None,
            )
            if orders is not None:
                self.watched.under_way(key, self._telling.under_way(seen.report))
                self._out.append(Tell(node=key, orders=orders))

    # -- promises ----------------------------------------------------------------------------------

    def validate(self) -> None:
        """Assert what holds after every event."""
        self.desired.validate()
        self.watched.validate()
        self._telling.validate()
        asked = [entry.request for entry in self._commands]
        undone = [purpose.request for purpose, _ in self._undo]
        requests = [*asked, *undone, *self._waiting]
        assert len(set(requests)) == len(requests), "a request is in two places"
        if self.failure is not None:
            assert not asked, "a command waits for a metadata log that has failed"
            assert not undone, "something waits for a metadata log that has failed"
        for key, orders in self._orders.items():
            assert key in self.watched.nodes, "orders for a node that is away"
            logs = list(orders)
            assert len(set(logs)) == len(logs), "an order is there twice"
