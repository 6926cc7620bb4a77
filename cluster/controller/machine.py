"""The Controller's machine: events in, instructions out. Nothing here waits, or has a clock.

::

    Asked ------> pending.py ---+                                 +--> pending.py --> Answer
                                +--> records --> Append ~~~~~~~~> Appended, Kept
    Reported ---> plan.py ------+                                 +--> fold (desired.py)
                     |                                                     |
                     +------------------ orders <--------------------------+
                                           |
                                      telling.py --> Tell

A decision is a record first. There is one append at a time, and nobody is told of what is not on
the disks (``journal.py``): those of the Controller and of all copies of the metadata that are in
sync (``following.py``). What a node reports is judged by the state of now (``observed.py``), so a
late answer does no harm.

**In charge.** The first record of a Controller is its epoch, which is higher than every one in the
log and on the log dirs of its node. It writes it when all nodes that answer have reported, and
nobody obeys it before. Commands wait until these nodes have obeyed.

**Older metadata.** A node obeys an epoch only when it is in the log, fsynced. So one that has seen
a higher epoch than the log has, or this one but not from here, tells that the metadata was rolled
back. Then nothing is decided any more (OlderMetadata): the nodes serve on, and a person decides.
Where somebody has accepted the older metadata, the Controller begins a new era instead
(``metadata_history.py``): nothing of it may look like what the lost one did, or did later alone.

What is done elsewhere: reading and writing the log, finding the nodes, sending (the Ray shell).
"""

import os
from collections.abc import Iterable
from dataclasses import replace

from raylog.actors.control import LogId, Order, Report
from raylog.actors.errors import NotLeader, OlderMetadata
from raylog.actors.levels import LEVELS, Levels
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.names import log_manager_name
from raylog.cluster.controller.charge import Charge
from raylog.cluster.controller.describe import BROKER_STOPS
from raylog.cluster.controller.desired import VERSION_SHIFT, Desired
from raylog.cluster.controller.events import (
    Appended,
    AppendFailed,
    Asked,
    Event,
    Kept,
    NodesSeen,
    PushFailed,
    Refused,
    Reported,
    ReserveMade,
    Silent,
    SnapshotDamaged,
    SnapshotMade,
    Started,
    Stopping,
    Tick,
    Whether,
)
from raylog.cluster.controller.following import CopyStatus, Following
from raylog.cluster.controller.instructions import (
    Answer,
    Append,
    AskWhether,
    Instruction,
    MakeReserve,
    MakeSnapshot,
    Note,
    StartManager,
    Tell,
)
from raylog.cluster.controller.journal import InFlight, Journal, Purpose
from raylog.cluster.controller.observed import SUSPECT_MS, Watched
from raylog.cluster.controller.pending import Pending
from raylog.cluster.controller.plan import BrokerPlan, Configs, Plan, plan
from raylog.cluster.controller.records import (
    BrokerConfigRecord,
    ControllerRecord,
    CopiesRecord,
    DirRecord,
    LevelRecord,
    NodeRecord,
    NodeState,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    StoppedRecord,
    TopicRecord,
    TopicRemovedRecord,
)
from raylog.cluster.controller.rolling import Digests, digests_of, lacks_record
from raylog.cluster.controller.saving import Saving
from raylog.cluster.controller.starts import Starts, is_left_running
from raylog.cluster.controller.telling import Telling
from raylog.cluster.controller.turns import Turns
from raylog.storage.errors import RaylogError


class ControllerMachine:
    """The Controller.

    ``config``: that the broker was started with; ``start``: the id of that start. It counts unless
    the metadata has a newer one of this start. ``levels``: those that this raylog knows.
    """

    def __init__(self, config: BrokerConfig, start: str = "", levels: Levels = LEVELS) -> None:
        self._given, self._start_id = config, start
        self._digests: tuple[BrokerConfig, Digests] = config, digests_of(config)
        self.desired = Desired()
        self.watched = Watched()
        self._configs = Configs(config.topic_defaults)
        self._journal = Journal()
        self._following = Following()
        self.saving = Saving()
        self._replaced: NotLeader | None = None  # this is not the Controller any more
        self._is_stopping = False
        self.counted = 0  # so many records count: all copies in sync have them
        self._telling = Telling()
        self._turns = Turns(self.watched, self._telling)
        self._charge = Charge(self.watched, self._telling)
        self._is_gathered = False  # whether commands may begin
        self._in_charge_ms = 0  # when it got its epoch
        self._starts = Starts()
        self._is_turn_of_plan = False  # after a command: they must not keep each other waiting
        self._dirty: set[str] = set()  # nodes for which something else may follow now
        self._orders: dict[str, tuple[Order, ...]] = {}  # by the last plan, as are the doubts
        self._doubts: dict[str, frozenset[LogId]] = {}
        self._now_ms = 0
        self._out: list[Instruction] = []
        self._pending = Pending(
            lambda: self.config,
            digests=lambda: self._digests[1],
            start=start,
            journal=self._journal,
            charge=self._charge,
            watched=self.watched,
            say=self._say,
            levels=levels,
            metadata_dir=lambda: self._following.directory_id,
        )

    @property
    def node(self) -> str:
        """The key of the node that it runs on; empty before it has started."""
        return self._charge.node

    @property
    def config(self) -> BrokerConfig:
        """The broker's config."""
        record = self.desired.broker
        is_newer = record is not None and record.start == self._start_id
        return record.config if record is not None and is_newer else self._given

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
        return self.doubt or self._replaced or self._journal.failure

    @property
    def reserve_problem(self) -> RaylogError | None:
        """Why the metadata's reserve is not whole; None while it is."""
        return self._journal.reserve.problem

    @property
    def one_copy_since_ms(self) -> int | None:
        """Since when no node has a copy of the metadata that is in sync."""
        return self._following.alone_since_ms

    @property
    def copies(self) -> tuple[CopyStatus, ...]:
        """The copies of the metadata, its own log first."""
        return tuple(
            replace(entry, problem="its node is stopped") if self._is_to_stop(entry.node) else entry
            for entry in self._following.statuses()
        )

    def _is_to_stop(self, key: str) -> bool:
        """Whether a node's copy of the metadata is not to be kept up, since that is stopped."""
        return key != self._charge.node and self._is_stopped(key)

    def _is_stopped(self, key: str) -> bool:
        """Whether a node shall not run, or not as it does."""
        return self.desired.is_stopped(key) or key == self._turns.node

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
                self._pending.ask(event)
            case Appended():
                self._written(event)
            case AppendFailed():
                self._append_failed(event)
            case ReserveMade():
                self._journal.reserve.made(event.problem, self._now_ms)
            case SnapshotMade():
                self._saved(event)
            case SnapshotDamaged():
                if self.saving.found(event.end, event.why):
                    self._note_damaged(event.why)
            case Kept():
                self._following.hear(event.token, event.node, event.kept, self._now_ms)
                self._charge.hear_record(*self._following.higher_record)
            case PushFailed():
                self._following.fail(event.token, event.node, event.why, self._now_ms)
            case Whether():
                self._hear_whether(event.is_still)
            case Stopping():
                self._is_stopping = True
                self._following.ask_all()
            case Tick():
                pass
        self._count()
        self._note_news(reserve_problem, doubt)
        self._go_on()
        return self._out

    def _say(self, instruction: Instruction) -> None:
        self._out.append(instruction)

    # -- events ------------------------------------------------------------------------------------

    def _start(self, event: Started) -> None:
        self.desired, self.counted = event.desired, event.history.end
        if not event.directory_id and self.desired.is_stopped(event.node):
            # Its LogManager, which would report it, does not run.
            known = self.desired.dir_at(event.node, os.path.dirname(event.folder))
            event = replace(event, directory_id=known)
        self._use_config()
        self._charge.start(event)
        self._pending.start(self.desired)
        members = dict(zip(self.desired.copy_dirs, self.desired.copies, strict=True))
        self._following.start(event.node, event.history, members, event.directory_id, self._now_ms)
        self.saving.start(event.damaged_snapshots)
        for why in event.damaged_snapshots:
            self._note_damaged(why)

    def _see(self, event: NodesSeen) -> None:
        for key in self.watched.see(event.nodes, self._now_ms):
            self._orders.pop(key, None)
            self._doubts.pop(key, None)
            self._starts.forget(key)
            self._charge.forget(key)
            if key in self.watched.nodes:
                self._starts.begin(key, self._now_ms)
        self._following.see(self.watched.nodes)
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
        self._following.hear_report(report, self._charge.folder)

    def _written(self, event: Appended) -> None:
        """Records are on the own disk; they count when the copies have them."""
        records = self._journal.being_written(event.token)
        self._following.wrote(records, self._now_ms)
        end = self._following.history.end
        self._journal.written(event.token, event.shortage, end, self._now_ms)

    def _count(self) -> None:
        """Take in what all copies in sync have by now."""
        while (done := self._journal.counting(self._following.counts_to)) is not None:
            assert done.end is not None, "it was written"
            self.counted = done.end
            self._appended(done)

    def _hear_whether(self, is_still: bool | None) -> None:
        self._charge.outrank(self._following.told(is_still, self._now_ms))
        if is_still is False:
            self._replaced = NotLeader("the broker", "another process is its Controller now")

    def _appended(self, done: InFlight) -> None:
        for record in done.records:
            self._apply(record)
        self._pending.appended(done, self._now_ms)

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
            case BrokerConfigRecord():
                self._use_config()
                self._dirty |= set(self.watched.nodes)
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
            case LevelRecord():
                self._out.append(Note(name="level", fields={"level": record.level}))
            case CopiesRecord():
                self._dirty |= set(self.watched.nodes)
                self._out.append(Note(name="metadata-copies", fields={"nodes": record.nodes}))
            case ProducerIdsRecord():
                self._pending.ids.written(record)

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
        if self._replaced is not None:
            self._refuse_if_failed()
            return
        self._start_managers()
        if self.doubt is not None:
            self._refuse_if_failed()
            return  # the nodes serve on as they did
        if self._following.higher_promise > self._charge.epoch:
            self._ask_whether()
            return
        self._follow()
        if self._is_stopping:
            self._stop()
            return
        self._refuse_if_stuck()
        if self._charge.is_outranked:
            self._refuse_if_failed()
            self._begin_epoch()
            return  # nobody obeys the epoch that it has
        if self._journal.reserve.is_due(self._now_ms):
            self._journal.reserve.begin()
            self._out.append(MakeReserve())
        self._save()
        self._pending.look(self._now_ms)
        self._refuse_if_failed()
        self._gather()
        if self._is_turn_of_plan:
            self._follow_plan()
            self._next_command()
        else:
            self._next_command()
            self._follow_plan()
        self._tell_nodes()

    def _ask_whether(self) -> None:
        """A copy has promised to another Controller: Ray knows whether that one has begun."""
        self._refuse_if_failed()
        question = self._following.ask(self._now_ms)
        if question is not None:
            self._out.append(question)
        self._push()

    def _begin_epoch(self) -> None:
        """Write its epoch, also behind records that wait for a copy which takes no lower one."""
        is_written = self._following.epoch == self._charge.epoch
        is_informed = self.is_in_charge or self._charge.has_heard_all(self._now_ms)
        if is_informed and not is_written and self._journal.is_idle(self._now_ms):
            self._append(self._first_records())

    def _follow(self) -> None:
        self._change_copies()
        self._push()

    def _push(self) -> None:
        self._out += self._following.pushes(
            self.watched.nodes, self._now_ms, level=self.desired.level
        )

    def _first_records(self) -> list[Record]:
        """Its epoch, and the config of this start where the metadata has another one."""
        record, first = self._charge.record(), self.desired.broker
        if first is None or first.config == self.config:
            return [record]
        return [record, self._config_record(record.epoch << VERSION_SHIFT)]

    def _config_record(self, least_version: int = 0) -> Record:
        version = max(self.desired.next_broker_version(), least_version)
        return BrokerConfigRecord(config=self.config, version=version, start=self._start_id)

    def _use_config(self) -> None:
        config = self.config
        self._configs.use(config.topic_defaults)
        self._digests = config, digests_of(config)

    def _change_copies(self) -> None:
        """Write down which copies are in sync; one is dropped while records wait for it, too."""
        if not self._journal.is_idle(self._now_ms):
            return
        may_join = self._journal.is_free and self.is_in_charge
        change = self._following.change(
            self._now_ms,
            may_join=may_join,
            is_stopped=self._is_stopped,
            is_taken_offline=self.desired.is_taken_offline,
        )
        if isinstance(change, AskWhether):
            self._out.append(change)
        elif change is not None:
            self._append([change])

    def _stop(self) -> None:
        """Write nothing any more but that the broker was stopped in order.

        Not before every copy in sync has answered once more: where another Controller has begun
        with one of them, this is not the end of the metadata.
        """
        self._pending.refuse_commands(NotLeader("the broker", BROKER_STOPS))
        is_ready = self._journal.is_ready(self._now_ms)
        is_ready = is_ready and self.is_in_charge and self._following.have_answered
        if is_ready and not self.desired.is_all_stopped:
            self._append([StoppedRecord()])

    def _start_managers(self) -> None:
        for key in self._starts.due(self.desired, self._now_ms):
            self._out.append(StartManager(node=key))

    def _refuse_if_failed(self) -> None:
        """Where nothing can be changed any more: tell everybody who waits for it."""
        if self.failure is not None:
            self._pending.fail(self.failure)

    def _refuse_if_stuck(self) -> None:
        """Commands that wait for records which the disk has no room for need not wait."""
        if self._journal.stuck is not None and not self._is_gathered:
            self._pending.refuse_commands(self._journal.stuck)

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
        wanted = self._pending.next(self._now_ms, may_begin=self._is_gathered)
        if wanted is not None:
            self._append(wanted.records, wanted.purpose)

    # -- snapshots ---------------------------------------------------------------------------------

    def _save(self) -> None:
        """Have a snapshot made where one is due: of records that all count, and of all of them."""
        history = self._following.history
        is_settled = self._journal.is_free and self.counted == history.end
        if not (self.is_in_charge and is_settled and history.is_chained):
            return
        most_bytes = self.config.metadata_log_max_record_bytes_between_snapshots
        if self.saving.is_due(history.size_bytes, most_bytes, self._now_ms):
            self.saving.begin(history.size_bytes, history.end)
            self._out.append(MakeSnapshot(desired=self.desired.copy(), point=history.point()))

    def _note_damaged(self, why: str) -> None:
        self._out.append(Note(name="metadata-snapshot-damaged", fields={"why": why}))

    def _saved(self, event: SnapshotMade) -> None:
        self.saving.made(event.problem, event.damaged, self._now_ms)
        if event.problem is None:
            self._out.append(Note(name="metadata-snapshot-made"))
        else:
            fields = {"why": event.problem}
            self._out.append(Note(name="metadata-snapshot-failed", fields=fields))

    # -- the plan ----------------------------------------------------------------------------------

    def _follow_plan(self) -> None:
        """Plan for the nodes where something is new, and append what has come true."""
        self._dirty |= self._turns.choose(self.desired, self._now_ms, self._digests[1])
        self._dirty &= set(self.watched.nodes)
        made = self._plan()
        self._orders.update(made.orders)
        self._doubts.update(made.doubts)
        records = made.records
        if not records and lacks_record(self.desired, self.watched.nodes, self._digests[1]):
            records = (self._config_record(),)
        if not records:
            self._dirty.clear()
        elif self._journal.is_ready(self._now_ms):
            self._dirty.clear()
            self._append(records)

    def _plan(self) -> Plan:
        nodes = sorted(self._dirty)
        config, digests = self._digests
        broker = BrokerPlan(config=config, digests=digests, replaced=self._turns.node)
        return plan(self.desired, self.watched.nodes, self._now_ms, self._configs, nodes, broker)

    def _tell_nodes(self) -> None:
        may_confirm = self.failure is None and not self._following.is_cut_off(self._now_ms)
        for key, seen in self.watched.nodes.items():
            if seen.report is None:
                continue
            is_known = seen.obeys(self.desired.controller_epoch)
            # A node ends when no record waits for its copy of the metadata any more.
            is_told = is_known and not (self._is_to_stop(key) and self.desired.keeps_copy(key))
            orders = self._telling.orders(
                seen.report,
                self._orders.get(key, ()) if is_told else (),
                self.desired.controller_epoch,
                self._now_ms,
                doubts=self._doubts.get(key, frozenset()),
                withheld=self._journal.withheld,
                confirms=is_known and may_confirm,
                level=self.desired.level,
            )
            if orders is not None:
                self.watched.under_way(key, self._telling.under_way(seen.report))
                self._out.append(Tell(node=key, orders=orders))

    # -- promises ----------------------------------------------------------------------------------

    def validate(self) -> None:
        """Assert what holds after every event."""
        self.desired.validate()
        self._following.validate()
        self.watched.validate()
        self._telling.validate()
        self._pending.validate(has_failed=self.failure is not None)
        for key, orders in self._orders.items():
            assert key in self.watched.nodes, "orders for a node that is away"
            logs = list(orders)
            assert len(set(logs)) == len(logs), "an order is there twice"
