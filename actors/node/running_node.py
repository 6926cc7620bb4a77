"""One life of a node: puts the machine, its shell, the hands and the tasks together.

::

    orders, failures --> NodeShell (machine) --instructions--> NodeHands --+--> DiskHands
                             ^                                             +--> ActorHands
                             |                                             +--> UpkeepHands
                             +--events-- tasks, hands                      +--> ControllerLink

It knows no Ray: what needs Ray comes as ports.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

from raylog.actors.control import VERSION, Confirmed, Ended, LogId, MetadataKept, Orders
from raylog.actors.errors import NotLeader, RequestTimedOut, UnsupportedVersion
from raylog.actors.events import event as log_event
from raylog.actors.events import warn
from raylog.actors.levels import LEVELS
from raylog.actors.messages import LogDirStatus, PartitionOffsets, Recovering
from raylog.actors.metrics import IDLE_EXPORT_INTERVAL_S, Exporter
from raylog.actors.node.actor_hands import CLOSE_TIMEOUT_S, ActorHands
from raylog.actors.node.addresses import Addresses, Listening
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.controller_link import ControllerLink, ControllerPort
from raylog.actors.node.dir_statuses import DirStatuses
from raylog.actors.node.dirs import Found
from raylog.actors.node.disk_hands import DiskHands
from raylog.actors.node.disk_work import DiskWork
from raylog.actors.node.events import (
    ActorGone,
    DirFailed,
    IdentityFound,
    IdentityLost,
    Measured,
    Ordered,
    ReportWanted,
    Started,
    Tick,
)
from raylog.actors.node.instructions import (
    CloseDir,
    Configure,
    EndLog,
    EndNode,
    ForgetLog,
    GiveUpCopy,
    Instruction,
    KillActor,
    Note,
    Refuse,
    RunUpkeep,
    SendReport,
    StartLog,
    StartUpkeep,
    TakeConfig,
    UnlockDir,
)
from raylog.actors.node.log_actors import LogActors
from raylog.actors.node.log_start import NodeFacts
from raylog.actors.node.machine import NodeMachine
from raylog.actors.node.metadata_keeper import MetadataKeeper
from raylog.actors.node.meters import export_dirs
from raylog.actors.node.recoveries import Recoveries
from raylog.actors.node.say_round import SayRound
from raylog.actors.node.shell import NodeShell
from raylog.actors.node.starting import dirs_read, started
from raylog.actors.node.stranger_round import StrangerRound
from raylog.actors.node.tasks import EachDir, Repeating
from raylog.actors.node.timer import Timer
from raylog.actors.node.upkeep_hands import UpkeepActors, UpkeepHands
from raylog.actors.node.workers import Pools, Workers
from raylog.actors.node_messages import LogOrder, LogSays
from raylog.storage.clock import Clock
from raylog.storage.errors import OutOfResources, RaylogError, StorageError
from raylog.storage.names import TopicPartition
from raylog.storage.report import Progress
from raylog.storage.wire import RELEASE

logger = logging.getLogger(__name__)

TICK_INTERVAL_S = 1.0
LOOK_INTERVAL_S = 1.0
SAY_INTERVAL_S = 3.0
UPKEEP_LOOK_INTERVAL_S = 3.0
MEASURE_INTERVAL_S = 5.0
# It reads the ``partition.metadata`` of every folder.
IDENTITY_INTERVAL_S = 30.0
# Actors that Ray has started again and that wait for their config: so many are told at once.
TAUGHT_AT_ONCE = 8
# For the write of a small file; a healthy disk takes milliseconds.
CLEANER_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePorts:
    """What a node needs of the world. ``clock``, ``timer``: never go back.

    ``room``: how many more logs the node can hold. ``end_process``: see ``NodeShell``.
    ``end_node``: have ``RunningNode.end`` called, in another thread; it returns at once.
    ``sockets``: for clients; None where there are none.
    """

    disk: DiskWork
    actors: LogActors
    upkeep: UpkeepActors
    controller: ControllerPort
    exporter: Exporter
    clock: Clock
    timer: Timer
    room: Callable[[], int]
    end_process: Callable[[], object]
    end_node: Callable[[], object]
    sockets: Listening | None = None


class NodeHands:
    """Gives each instruction to the hands for it."""

    def __init__(
        self,
        disks: DiskHands,
        actors: ActorHands,
        upkeep: UpkeepHands,
        link: ControllerLink,
        addresses: Addresses,
        end_node: Callable[[], object],
    ) -> None:
        self._addresses = addresses
        self._end_node = end_node
        self._disks = disks
        self._actors = actors
        self._upkeep = upkeep
        self._link = link

    def carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case StartLog() | Configure() | EndLog() | KillActor():
                self._actors.carry_out(instruction)
            case SendReport():
                self._link.send(self._addresses.told_in(instruction.report))
            case Refuse():
                self._link.refuse(instruction.controller_epoch)
            case EndNode():
                self._end_node()
            case StartUpkeep() | RunUpkeep():
                self._upkeep.carry_out(instruction)
            case TakeConfig():
                self._upkeep.carry_out(instruction)
                self._disks.obey(instruction)
            case Note():
                note(instruction)
            case CloseDir():
                self._disks.close_dir(instruction)
            case UnlockDir():
                self._disks.unlock_dir(instruction)
            case GiveUpCopy():
                self._disks.give_up_copy(instruction)
            case ForgetLog():
                self._actors.forget(instruction.log)
                self._disks.forget(instruction.log)
            case _:
                self._disks.carry_out(instruction)


# What somebody should look at; every other note is INFO.
_LEVELS = {
    "log-dir-offline": logging.ERROR,
    "log-not-opened": logging.WARNING,
    "not-done": logging.WARNING,
    "stranger-ended": logging.WARNING,
}


def note(instruction: Note) -> None:
    """Write a line of the operator's log."""
    level = _LEVELS.get(instruction.name, logging.INFO)
    log_event(logger, instruction.name, level=level, **instruction.fields)


def is_within(path: str, folder: str) -> bool:
    """Whether a path is the folder's, or that of something in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


class RunningNode:
    """See the module's head. ``begin`` is called once, before all else.

    ``metadata``: the node's copy of the metadata. ``addresses``: where clients find its processes.
    """

    def __init__(self, facts: NodeFacts, life: str, config: BrokerConfig, ports: NodePorts) -> None:
        """``life``: another one for each."""
        self._facts = facts
        self._config = config
        self._ports = ports
        self._disk = ports.disk
        self._actors = ports.actors
        machine = NodeMachine(node=facts.node, life=life, config=config, software=RELEASE)
        self._shell = shell = NodeShell(machine, ports.clock, ports.end_process)
        self._link = ControllerLink(ports.controller, facts.node)
        self.addresses = Addresses(
            facts.node, ports.sockets, self.want_report, has_ports=config.listens
        )
        self._actor_hands = ActorHands(
            ports.actors,
            ports.disk,
            facts,
            controller_epoch=lambda: shell.controller_epoch,
            tell=shell.tell,
            timer=ports.timer,
            endpoint_of=self.addresses.endpoint_of,
        )
        self._upkeep_hands = UpkeepHands(
            ports.upkeep,
            node=facts.node,
            life=life,
            served=shell.served,
            controller_epoch=lambda: shell.controller_epoch,
            folder=ports.disk.folder,
            tell=shell.tell,
        )
        self.metadata = MetadataKeeper(
            ports.disk.online,
            lambda directory_id: ports.disk.metadata_copy(
                directory_id, node=facts.node, life=life, steady=ports.clock
            ),
            MetadataKept(node=facts.node, life=life),
        )
        disk_hands = DiskHands(ports.disk, shell.tell, self.metadata.leave)
        self._hands = NodeHands(
            disk_hands,
            self._actor_hands,
            self._upkeep_hands,
            self._link,
            self.addresses,
            ports.end_node,
        )
        self._tasks = Repeating(ports.timer)
        self._each_dir = EachDir(ports.disk.online, shell.tell)
        self._statuses = DirStatuses(
            ports.disk,
            self._each_dir,
            node_id=facts.node_id,
            dirs=shell.dirs,
            opening=shell.opening_in,
        )
        self._say_round = SayRound(
            ports.actors,
            ports.disk,
            node_id=facts.node_id,
            served=shell.served,
            order_of=shell.order_of,
            tell=shell.tell,
            teach=Workers("teach-log", TAUGHT_AT_ONCE).run,
        )
        self._stranger_round = StrangerRound(
            ports.actors, node_id=facts.node_id, served=shell.served, tell=shell.tell
        )
        self._writes = Pools(1)  # of cleaner offsets, by log dir
        self._lock = threading.Lock()  # of what follows
        self._recoveries = Recoveries(ports.timer.now_s)
        self._usable_bytes: dict[str, int] = {}
        self._is_restarted = False

    # -- the beginning -----------------------------------------------------------------------------

    def begin(self, log_dirs: Sequence[str], *, is_restarted: bool) -> None:
        """Take the log dirs into use, adopt the actors that live on, and begin.

        Raises LogLocked, InconsistentClusterId, DuplicateLogDir, IdentityMissing, or why the first
        dir cannot be used where none can; NotLeader or RequestTimedOut where Ray does not answer;
        OutOfResources where a thread cannot be started. Nothing has begun then, and no dir is
        locked.
        """
        self._is_restarted = is_restarted
        try:
            found = self._disk.open(log_dirs, self._found_late)
        except BaseException:
            self._link.stop()
            raise
        try:
            first = started(
                found,
                disk=self._disk,
                actors=self._actors,
                node_id=self._facts.node_id,
                upkeep=self._ports.upkeep.running(),
                room=self._ports.room(),
                is_restarted=is_restarted,
            )
            self._begin(first)
        except BaseException:
            self._tasks.stop()
            self.addresses.stop()
            self._disk.let_go()
            self._link.stop()
            raise

    def _found_late(self, found: Found) -> None:
        self._shell.tell(dirs_read(found, is_restarted=self._is_restarted))

    def _begin(self, first: Started) -> None:
        """Begin, the machine last: where a thread is missing, nothing has been done yet."""
        try:
            self._begin_tasks()
            self._actor_hands.adopt(first.served)
            self._shell.begin(first, self._hands)
        except RuntimeError as error:  # of a thread's start
            raise OutOfResources(f"the LogManager of {self._facts.node}", str(error)) from error

    def _begin_tasks(self) -> None:
        every, config = self._tasks.every, self._config
        checkpoint_s = config.log_flush_offset_checkpoint_interval_ms / 1000
        start_checkpoint_s = config.log_flush_start_offset_checkpoint_interval_ms / 1000
        every(TICK_INTERVAL_S, "tick", self._tick)
        every(SAY_INTERVAL_S, "say", self._say_round)
        every(SAY_INTERVAL_S, "look-for-strangers", self._stranger_round)
        every(UPKEEP_LOOK_INTERVAL_S, "look-at-upkeep", self._upkeep_hands.look)
        every(LOOK_INTERVAL_S, "look-at-dirs", self._look_at_dirs)
        every(LOOK_INTERVAL_S, "remove-deleted", self._remove_deleted)
        every(IDENTITY_INTERVAL_S, "identities", self._look_at_identities)
        every(MEASURE_INTERVAL_S, "measure", self._measure)
        every(checkpoint_s, "checkpoint", self._checkpoint)
        every(start_checkpoint_s, "checkpoint-starts", self._checkpoint_starts)
        every(IDLE_EXPORT_INTERVAL_S, "metrics", self._export_metrics)
        self._statuses.measure()

    # -- tasks -------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self.addresses.keep_up()
        self._shell.tell(Tick())

    def _look_at_dirs(self) -> None:
        self._each_dir.run("look", self._look_at_dir)

    def _look_at_dir(self, directory_id: str) -> None:
        why = self._disk.check(directory_id)
        if why is not None:
            self._shell.tell(DirFailed(directory_id=directory_id, why=why))

    def _look_at_identities(self) -> None:
        self._each_dir.run("identities", self._look_at_identities_of)

    def _look_at_identities_of(self, directory_id: str) -> None:
        for partition in self._disk.lost_identities(directory_id):
            self._shell.tell(IdentityLost(partition=partition, directory_id=directory_id))
        for folder in self._disk.identities_found(directory_id):
            self._shell.tell(IdentityFound(folder=folder))

    def _remove_deleted(self) -> None:
        self._each_dir.run("remove-deleted", self._disk.remove_deleted)

    def _checkpoint(self) -> None:
        self._each_dir.run("checkpoint", self._disk.write_recovery_points)

    def _checkpoint_starts(self) -> None:
        self._each_dir.run("checkpoint-starts", self._disk.write_log_start_offsets)

    def _measure(self) -> None:
        """Tell what was measured last, and measure anew: a disk that hangs holds up only itself."""
        self._statuses.measure()
        self._each_dir.run("usable-bytes", self._measure_dir)
        with self._lock:
            usable_bytes = dict(self._usable_bytes)
        self._shell.tell(Measured(usable_bytes=usable_bytes, room=self._ports.room()))

    def _measure_dir(self, directory_id: str) -> None:
        usable_bytes = self._disk.usable_bytes(directory_id)
        with self._lock:
            self._usable_bytes[directory_id] = usable_bytes

    def _export_metrics(self) -> None:
        served, offline = len(self._shell.served()), self._shell.offline_logs()
        export_dirs(self._ports.exporter, self._statuses.remembered(), served, offline)
        self.addresses.export(self._ports.exporter)

    # -- what others say ---------------------------------------------------------------------------

    def want_report(self) -> None:
        """A Controller is there that waits for a report: send one now."""
        self._link.hurry()
        self._shell.tell(ReportWanted())

    def obey(self, orders: Orders) -> None:
        """Take orders in; returns at once. Raises UnsupportedVersion or UnsupportedLevel."""
        if orders.version > VERSION:
            raise UnsupportedVersion(self._facts.node, orders.version, VERSION)
        LEVELS.check(orders.level, f"node {self._facts.node}", orders.software)
        self._shell.tell(Ordered(orders=orders))

    def failed(self, log: LogId, error: StorageError) -> None:
        """A LogActor's log has failed. If its disk has, the whole dir goes offline."""
        directory_id = self._dir_of(log, error)
        if error.is_disk_failure and directory_id is not None:
            self._shell.tell(DirFailed(directory_id=directory_id, why=error.problem))

    def _dir_of(self, log: LogId, error: StorageError) -> str | None:
        """The dir in which the error happened: that of its path, or else the log's.

        The log may be served from another dir by now.
        """
        for dir in self._shell.dirs():
            if dir.directory_id is not None and is_within(error.path, dir.path):
                return dir.directory_id
        return self._shell.home_of(log)

    def said(self, says: LogSays) -> None:
        """What a LogActor says, before it is asked."""
        self._say_round.hear(says)

    def recovering(self, partition: TopicPartition, progress: Progress | None) -> None:
        """How far the recovery of a partition has come; None: it is over."""
        with self._lock:
            self._recoveries.record(partition, progress)

    def record_cleaner_offset(self, log: LogId, offset: int) -> None:
        """Write down where the compaction of a log goes on; nothing where it is not served.

        A disk that hangs is waited for only CLEANER_TIMEOUT_S.
        """
        directory_id = self._shell.home_of(log)
        if directory_id is None:
            return
        written = threading.Event()

        def write() -> None:
            try:
                self._disk.record_cleaner_offset(log, directory_id, offset)
            except StorageError as error:
                self.failed(log, error)
                warn(logger, "cleaner-offset-not-written", partition=log.partition, why=error)
            finally:
                written.set()

        self._writes.run(directory_id, write)
        written.wait(CLEANER_TIMEOUT_S)

    def record_log_start(self, log: LogId, offsets: PartitionOffsets) -> None:
        """Write down where a log begins; returns when that is on its disk.

        Raises NotLeader where it is not served here, RequestTimedOut where the disk hangs, and
        StorageError.
        """
        directory_id = self._shell.home_of(log)
        if directory_id is None:
            raise NotLeader(str(log.partition), "it is not served here")
        written: Future[None] = Future()

        def write() -> None:
            try:
                self._disk.record_log_start(log, directory_id, offsets)
            except RaylogError as error:
                if isinstance(error, StorageError):
                    self.failed(log, error)
                written.set_exception(error)
            else:
                written.set_result(None)

        self._writes.run(directory_id, write)
        try:
            written.result(CLEANER_TIMEOUT_S)
        except TimeoutError:
            what = f"writing down where {log.partition} begins"
            raise RequestTimedOut(what, CLEANER_TIMEOUT_S) from None

    def look_again(self, path: str) -> str:
        """Look afresh at a log dir that could not be used.

        Returns why it still cannot be used; empty where it is used.
        """
        return self._disk.look_again(path, self._found_late)

    # -- look-ups ----------------------------------------------------------------------------------

    def order_of(self, log: LogId) -> LogOrder | None:
        """What the log's actor shall obey; None where nobody has ordered it in this life.

        Only an actor asks that Ray has started again: the one before, if it was adopted, is gone.
        """
        order = self._shell.order_of(log)
        if order is None and any(served.log == log for served in self._shell.served()):
            self._shell.tell(ActorGone(partition=log.partition))
        return order

    def confirmed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Confirmed]:
        """The right to remove records, of those that have it."""
        wanted = set(partitions)
        rights = self._shell.rights().values()
        return {right.log.partition: right for right in rights if right.log.partition in wanted}

    def log_dirs(self) -> list[LogDirStatus]:
        """Every log dir of this node; of one whose disk hangs, as it was measured last."""
        return self._statuses.fresh()

    def recoveries(self) -> list[Recovering]:
        """The partitions whose recovery takes long, and how far it has come."""
        with self._lock:
            return self._recoveries.running()

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Where the compaction of each partition goes on."""
        return self._disk.cleaner_offsets()

    # -- the end -----------------------------------------------------------------------------------

    def shutdown(self) -> bool:
        """Close every log in order, write checkpoints and markers, unlock the dirs.

        Returns whether all of it was clean. Called once.
        """
        unfinished = self._stop_machine()
        self._link.stop()
        return self._close_all(unfinished)

    def _stop_machine(self) -> set[TopicPartition]:
        """Begin nothing more; returns the partitions whose start has not ended."""
        self._tasks.stop()
        self.addresses.stop()
        self.metadata.stop()
        # First, so that the machine hears of each start that has ended: its log is served.
        unfinished = set(self._actor_hands.stop())
        self._shell.stop()
        return unfinished

    def _close_all(self, unfinished: set[TopicPartition]) -> bool:
        with suppress(RaylogError):
            self._ports.upkeep.kill()
        logs = {served.log.partition: served.log for served in self._shell.served()}
        closed = self._close(logs)
        # Before the rest, which may fail: an actor that is closed must not be found again.
        for partition in unfinished | set(logs):
            with suppress(RaylogError):
                self._actors.kill(partition)
        clean = self._shell.reported_logs() - self._actor_hands.touched()
        return self._disk.unlock(closed, clean)

    def end(self) -> None:
        """``shutdown``, by the Controller's order: it is told what came of it. Called once.

        A LogActor that hangs holds this up for CLOSE_TIMEOUT_S, so it goes on reporting meanwhile.
        """
        unfinished = self._stop_machine()
        report = self._shell.last_report
        assert report is not None, "orders follow from reports"
        numbers = count(report.number + 1)
        ending = replace(report, is_ending=True)

        def say_ending() -> None:
            self._link.send(replace(ending, number=next(numbers)))

        reports = Repeating(self._ports.timer)
        reports.every(SAY_INTERVAL_S, "say-ending", say_ending)
        is_clean = self._close_all(unfinished)
        reports.stop()
        self._link.stop()
        self._kill_left()
        how: Ended = "in order" if is_clean else "not in order"
        if not is_clean:
            warn(logger, "node-not-stopped-in-order", node=self._facts.node)
        self._link.say_last(replace(ending, number=next(numbers), logs=(), ended=how))

    def _kill_left(self) -> None:
        """End actors of this node that did not serve: those wait for what they shall obey.

        Also those of a log dir that was never read, which say that they are here.
        """
        lying = {log.partition for log in self._shell.reported_logs()}
        with suppress(RaylogError):
            left = sorted(self._actors.running())
            for partition, says in self._actors.says_all(left).items():
                if isinstance(says, LogSays):
                    is_here = says.node_id == self._facts.node_id
                else:
                    is_here = partition in lying  # it is silent
                if is_here:
                    self._actors.kill(partition)

    def _close(self, logs: dict[TopicPartition, LogId]) -> dict[LogId, PartitionOffsets]:
        closed: dict[LogId, PartitionOffsets] = {}
        if not logs:
            return closed
        for partition, offsets in self._actors.close_all(list(logs), CLOSE_TIMEOUT_S).items():
            if isinstance(offsets, RaylogError):
                warn(logger, "log-not-closed", partition=partition, why=offsets)
            else:
                closed[logs[partition]] = offsets
        return closed
