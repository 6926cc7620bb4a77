"""A node of the simulation: its log dirs, and the process of its LogManager over the real machine.

The process carries out what the machine says, after some time; a process that dies leaves its work
done or not done, or stops in the middle of it, and its answers are unsaid. What it does on its
disks (``node_disks.py``), how it begins and how it asks its actors is the broker's own code.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from raylog.actors.control import LogId, MetadataKept, MetadataPush, Orders, Report
from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.levels import Levels
from raylog.actors.messages import PartitionOffsets
from raylog.actors.node import instructions as do
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.dirs import Found
from raylog.actors.node.events import (
    DirFailed,
    Event,
    Finished,
    IdentityFound,
    IdentityLost,
    Measured,
    Ordered,
    Served,
    Started,
    Tick,
    UpkeepKind,
    UpkeepSeen,
)
from raylog.actors.node.log_actors import served_of
from raylog.actors.node.machine import NodeMachine
from raylog.actors.node.say_round import SayRound
from raylog.actors.node.starting import dirs_read, started
from raylog.actors.node_messages import LogOrder
from raylog.storage.errors import RaylogError, StorageError
from raylog.storage.names import TopicPartition
from raylog.storage.wire import RELEASE
from tests.simulation.actors import PATIENCE_MS, SimActor, ray_id
from tests.simulation.disks import SimDir, SimDisks
from tests.simulation.node_disks import NodeDisks
from tests.simulation.upgrades import OLD

if TYPE_CHECKING:
    from tests.simulation.world import World

# How often it looks at its dirs, asks its actors, looks at the room on its disks, writes
# checkpoints, and looks whose each folder is.
TICK_MS, SAY_MS, MEASURE_MS, CHECKPOINT_MS, IDENTITY_MS = 1000, 3000, 5000, 15_000, 30_000
# How long an orderly end takes at the most, where nothing hangs.
END_MS = 3_000
# Until Ray tries again to start a LogManager that could not begin.
BEGIN_MS = 500
# Work on a disk, an opening, a round of a copy; a few take this long, most far less.
WORK_MS, OPENING_MS, COPY_MS = 400, 8000, 20_000

Result = Served | int | None


@dataclass(slots=True, eq=False, kw_only=True)
class SimNode:
    """A machine with disks, on which a LogManager runs, or will.

    ``most``: how many LogActors it can hold.
    """

    key: str
    dirs: list[SimDir]
    disks: SimDisks = field(default_factory=SimDisks)
    most: int = 1000
    # with which Ray starts its LogManager again
    config: BrokerConfig = field(default_factory=BrokerConfig)
    manager: "Manager | None" = None
    is_up: bool = True
    upkeep: set[UpkeepKind] = field(default_factory=set)
    # Whether what its disks have is read from the disks, and not from a page cache: after a start.
    is_fresh: bool = True
    # When something was wrong with it or a disk of it.
    trouble_ms: int = 0
    levels: Levels = OLD  # of the raylog that is installed

    def dir(self, directory_id: str) -> SimDir:
        return next(dir for dir in self.dirs if dir.directory_id == directory_id)

    def is_calm(self, since_ms: int) -> bool:
        """Whether nothing was wrong with it since then."""
        if not self.is_up or self.manager is None or not self.manager.is_answering:
            return False
        return max(self.trouble_ms, self.manager.began_ms) < since_ms

    def missing_upkeep(self) -> list[UpkeepKind]:
        """The upkeep that logs need that are served here, and that does not run."""
        served = () if self.manager is None else self.manager.machine.served()
        needed: list[UpkeepKind] = ["retention"] if served else []
        return [kind for kind in needed if kind not in self.upkeep]


class Manager:
    """One life of a node's LogManager."""

    def __init__(self, world: "World", node: SimNode, life: str, config: BrokerConfig) -> None:
        self.world, self.node, self.life = world, node, life
        self.is_alive, self.is_paused = True, False
        self.is_started = False
        self.began_ms = world.clockwork.now_ms
        self.levels = node.levels
        self.machine = NodeMachine(
            node=node.key, life=life, config=config, software=RELEASE, levels=self.levels
        )
        self._disks = NodeDisks(world, node)
        self._say_round = SayRound(
            world.ray,
            self._disks.work,
            node_id=ray_id(node.key),
            served=self.machine.served,
            order_of=self.machine.order_of,
            tell=self.tell,
            teach=lambda job: job(),
        )
        self._waiting: list[Event] = []  # while it is paused
        self._usable_bytes: dict[str, int] = {}
        self.report: Report | None = None  # the last one
        self._touched: set[LogId] = set()  # that it has opened, or tried to
        self.obeyed_epoch = -1  # the highest of which it has obeyed orders
        self._copies: dict[int, Callable[[], None]] = {}  # by their token
        self._works: dict[int, do.Work] = {}  # on its disks, by their token
        # what an actor is asked or started for, and how that fails when the actor is killed
        self._asking: dict[TopicPartition, list[Callable[[RaylogError], None]]] = {}
        world.truth.began(node.key, life, is_fresh=node.is_fresh)
        self._start()

    # -- events ------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Give the machine an event, now or when the process goes on."""
        if not self.is_alive:
            return
        if self.is_paused or not (self.is_started or isinstance(event, Started)):
            self._waiting.append(event)
            return
        self.world.clockwork.note(self.node.key, event)
        instructions = self.machine.handle(event, self.world.clockwork.now_ms)
        self.machine.validate()
        self._note_obeyed(instructions)
        for instruction in instructions:
            self.world.clockwork.note(self.node.key, f"-> {instruction}")
            self._carry_out(instruction)

    def _note_obeyed(self, instructions: Sequence[do.Instruction]) -> None:
        """The report of an event tells of which epoch orders were obeyed with it."""
        for instruction in instructions:
            if isinstance(instruction, do.SendReport) and instruction.report.orders >= 0:
                self.obeyed_epoch = instruction.report.controller_epoch

    def resume(self) -> None:
        self.is_paused = False
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self.tell(event)

    def die(self) -> None:
        """The process is gone, and its locks with it."""
        self.is_alive = False
        self._disks.close_all()

    def lose_power(self) -> None:
        """The process stops with its machine, in the middle of whatever it does."""
        self.is_alive = False
        self._disks.is_over = True
        for work in self._works.values():
            if self.world.clockwork.chance.random() < 0.5:
                self._disks.stop_within(work)  # type: ignore[arg-type]

    def _start(self) -> None:
        """Take the dirs into use, as soon as one of them can be, and begin."""
        if not self.is_alive:
            return
        first = self._begin()
        if first is None:
            self.world.clockwork.after(BEGIN_MS, self._start)
            return
        self._disks.check_dirs()
        if self.node.is_fresh:  # nobody has written anything since the machine was started
            for dir in self._disks.dirs():
                dir.read_ms = self.world.clockwork.now_ms
        for served in first.served:
            self.world.ray.named[served.log.partition].is_adopted = True
            self._disks.work.began_opening(served.log, served.directory_id)
            self._touched.add(served.log)
        self.is_started, self.is_paused = True, False
        self.tell(first)
        self.resume()
        self._every(TICK_MS, self._tick)
        self._every(SAY_MS, self._say_round)
        self._every(MEASURE_MS, self._measure)
        self._every(CHECKPOINT_MS, self._checkpoint)
        self._every(IDENTITY_MS, self.look_at_identities)

    def _begin(self) -> Started | None:
        """The first event; None: it cannot begin yet."""
        if self._disks.is_waiting(self.world.clockwork.now_ms - self.began_ms):
            return None
        is_restarted = not self.node.is_fresh

        def late(found: Found) -> None:
            self._disks.check_dirs()
            self.world.truth.situations["a dir answers late"] += 1
            self.tell(dirs_read(found, is_restarted=is_restarted))

        try:
            found = self._disks.work.open([dir.path for dir in self.node.dirs], late)
        except RaylogError:
            return None
        return started(
            found,
            disk=self._disks.work,
            actors=self.world.ray,
            node_id=ray_id(self.node.key),
            upkeep=tuple(sorted(self.node.upkeep)),
            room=self._room(),
            is_restarted=is_restarted,
        )

    def _room(self) -> int:
        named = self.world.ray.named.values()
        return max(0, self.node.most - sum(actor.node == self.node.key for actor in named))

    # -- what is done again and again --------------------------------------------------------------

    def _every(self, interval_ms: int, task: Callable[[], object]) -> None:
        """Have a task done from now on, while the process runs."""
        if not self.is_alive:
            return
        if not self.is_paused:
            task()
        self.world.clockwork.after(interval_ms, lambda: self._every(interval_ms, task))

    def _tick(self) -> None:
        self._note_trouble()
        self.tell(Tick())
        for dir in self._disks.answering():
            why = self._disks.work.check(dir.directory_id)
            if why is not None or dir.broken:  # whoever writes there tells it
                self.tell(DirFailed(directory_id=dir.directory_id, why=why or "an fsync failed"))
        self.tell(UpkeepSeen(kinds=tuple(sorted(self.node.upkeep))))

    def _note_trouble(self) -> None:
        is_cut = any(key == self.node.key for key, _ in self.world.cuts)
        now_ms = self.world.clockwork.now_ms
        if is_cut or any(not dir.is_well(now_ms) for dir in self.node.dirs):
            self.node.trouble_ms = now_ms

    def _measure(self) -> None:
        """Tell how much room there is: a dir that was full need not be full for ever."""
        for dir in self._disks.answering():
            usable_bytes = self._disks.work.usable_bytes(dir.directory_id)
            self._usable_bytes[dir.directory_id] = usable_bytes
        self.tell(Measured(usable_bytes=dict(self._usable_bytes), room=self._room()))

    def _checkpoint(self) -> None:
        for dir in self._disks.answering():
            try:
                self._disks.work.write_recovery_points(dir.directory_id)
                self._disks.work.write_log_start_offsets(dir.directory_id)
                self._disks.work.remove_deleted(dir.directory_id)
            except StorageError as error:
                if error.is_disk_failure:
                    self.tell(DirFailed(directory_id=dir.directory_id, why=error.problem))

    def look_at_identities(self) -> None:
        """Tell which folders do not say any more whose they are, and which say it again."""
        for dir in self._disks.answering():
            try:
                lost = self._disks.work.lost_identities(dir.directory_id)
                found = self._disks.work.identities_found(dir.directory_id)
            except StorageError:
                continue
            for partition in lost:
                self.tell(IdentityLost(partition=partition, directory_id=dir.directory_id))
            for folder in found:
                self.world.truth.situations["IdentityFound"] += 1
                self.tell(IdentityFound(folder=folder))

    def take_push(self, push: MetadataPush, answer: Callable[[MetadataKept], None]) -> None:
        """A push of the metadata has come. Whoever hangs, or whose disk does, says nothing."""

        def take() -> None:
            copy = self._disks.metadata_copy(self.life) if self.is_answering else None
            if copy is not None:
                kept = copy.take(push)
                self.world.truth.copy_answered(kept)
                answer(kept)

        self.world.clockwork.soon(take, most_ms=WORK_MS)

    # -- instructions ------------------------------------------------------------------------------

    def _carry_out(self, instruction: do.Instruction) -> None:
        match instruction:
            case do.EndNode():
                self.world.clockwork.soon(self._end_in_order, most_ms=END_MS)
            case do.SendReport(report=report):
                self.report = report
                self.world.truth.reported(report)
                self.world.send_report(self, report)
            case do.Refuse(controller_epoch=epoch):
                self.world.send_refusal(self, epoch)
            case do.Note() | do.TakeConfig():
                pass
            case do.ForgetLog(log=log):
                self._disks.work.forget(log)
            case do.GiveUpCopy(copy_token=token):
                give_up = self._copies.get(token)
                if give_up is not None:
                    self.world.clockwork.soon(give_up, most_ms=WORK_MS)
            case do.CloseDir(directory_id=where):
                self._disks.close_dir(where)
            case do.UnlockDir(directory_id=where):
                self._disks.unlock_dir(where)
            case do.StartUpkeep(kind=kind):
                self.world.clockwork.soon(lambda: self.node.upkeep.add(kind), most_ms=WORK_MS)
            case do.RunUpkeep(kind=kind, confirmed=confirmed):
                self._run_upkeep(kind, confirmed)
            case _:
                self._work(instruction)

    def _run_upkeep(self, kind: UpkeepKind, confirmed: Mapping[LogId, int]) -> None:
        """The upkeep actor asks for the rights and the LogActors, one by one, at its own pace."""
        if kind in self.node.upkeep:
            for log in confirmed:
                ask = partial(self.world.ask_for_right, self.node, log)
                self.world.clockwork.soon(ask, most_ms=30_000)

    def check_epoch(self, instruction: do.Work) -> None:
        """Nothing is done in a dir under orders of an epoch that it does not have."""
        for dir in self._disks.used(instruction):
            is_known = self.node.disks.controller_epoch(dir) >= self.obeyed_epoch
            self.world.expect(is_known, f"{instruction}: its dir lacks the epoch of the orders")

    @property
    def is_answering(self) -> bool:
        return self.is_alive and self.is_started and not self.is_paused

    def _work(self, instruction: do.Work) -> None:
        """Have it done at some moment, and answered a little later."""
        self.world.check_instruction(self, instruction)
        if isinstance(instruction, do.MakeFolder):
            self.world.nemesis.folder_is_ordered(self.node)
        is_over = False
        self._works[instruction.token] = instruction

        def finish(error: RaylogError | None = None) -> None:
            nonlocal is_over
            if is_over:
                return
            until_ms = self._disks.waits_until_ms(instruction)
            if error is None and until_ms is not None:
                self.world.clockwork.after(until_ms - self.world.clockwork.now_ms, finish)
                return
            is_over = True
            self._end_work(instruction, error)

        if isinstance(instruction, do.Copy):
            self._copies[instruction.token] = lambda: finish(NotLeader("copy", "it was given up"))
        if isinstance(instruction, do.StartLog | do.Configure | do.EndLog):
            self._asking.setdefault(instruction.log.partition, []).append(finish)
        self.world.clockwork.after(self.world.clockwork.some(_most_ms(instruction)), finish)

    def _end_work(self, instruction: do.Work, error: RaylogError | None) -> None:
        """Do it now, unless it has failed already, and answer."""
        self._works.pop(instruction.token)
        self._copies.pop(instruction.token, None)
        result: Result = None
        if not self.is_alive:
            self._end_dying(instruction)
            return
        if error is None:
            try:
                result = self._effect(instruction)
            except RaylogError as failure:
                error = failure
        if isinstance(result, int):  # the process lingers so long
            finished = Finished(token=instruction.token)
            self.world.clockwork.after(result, lambda: self.tell(finished))
            return
        event = Finished(token=instruction.token, result=result, error=error)
        self.world.clockwork.soon(lambda: self.tell(event), most_ms=WORK_MS)

    def _end_dying(self, instruction: do.Work) -> None:
        """A process that is about to end may still do some of it, while it has the locks of its
        dirs; but it starts no actor, and ends none. Nor does it read a dir back: the lock that it
        has by half would stay."""
        is_of_actor = isinstance(instruction, do.StartLog | do.Configure | do.EndLog | do.KillActor)
        is_locking = isinstance(instruction, do.ReadDir)
        if is_of_actor or is_locking or self._disks.are_off or not self._disks.dirs():
            return
        if self.world.clockwork.chance.random() < 0.5:
            self._disks.stop_within(instruction)  # type: ignore[arg-type]

    def _effect(self, instruction: do.Work) -> Result:
        match instruction:
            case do.StartLog():
                return self._start_or_end(instruction)
            case do.Configure():
                return self._configure(instruction)
            case do.EndLog():
                self._end_log(instruction)
            case do.KillActor(partition=partition):
                return self._kill(partition)
            case _:
                read = self._disks.carry_out(instruction)
                if read is not None:
                    self.tell(read)
        return None

    def _start_or_end(self, instruction: do.StartLog) -> Served:
        """After an error no actor of the log lives on this node: Ray may have started it again."""
        try:
            return self._start_log(instruction)
        except RaylogError:
            running = self.world.ray.named.get(instruction.log.partition)
            if running is not None and running.node == self.node.key:
                self.world.ray.vanish(running)
            raise

    def _start_log(self, instruction: do.StartLog) -> Served:
        self._touched.add(instruction.log)
        log, dir = instruction.log, self.node.dir(instruction.directory_id)
        running = self.world.ray.named.get(log.partition)
        # One that waits for another topic's log is of no use to anybody.
        is_needed = running is not None and (not running.is_learning or running.log == log)
        if running is not None and is_needed and running.node != self.node.key:
            raise NotLeader(str(log.partition), f"node {running.node} has its actor")
        # Raises LogDirOffline where the dir is not in use.
        point = self._disks.work.checkpointed(dir.directory_id, log.partition).recovery_point
        self._disks.work.began_opening(log, dir.directory_id)
        if running is not None and running.log == log and running.dir is dir and running.is_alive:
            return self._configured(running, instruction)
        if running is not None:
            self.world.ray.vanish(running)  # the shell waits until its process is gone
        folder = self.node.disks.find(dir, log.partition)
        if folder is not None:
            is_clean = folder.is_clean or not instruction.is_clean
            self.world.expect(is_clean, f"{log} was opened as clean, and is not")
            is_its = folder.topic_id != log.topic_id or point <= folder.lives
            self.world.expect(is_its, f"{log} has a checkpoint at {point}, and less records")
        actor = SimActor(
            log=log,
            node=self.node.key,
            disks=self.node.disks,
            dir=dir,
            config=instruction.config,
            config_version=instruction.config_version,
        )
        self.world.ray.start(actor)
        self._disks.work.opened(dir.directory_id, log.partition)
        return served_of(actor.says())

    def _configure(self, instruction: do.Configure) -> Served:
        actor = self.world.ray.named.get(instruction.log.partition)
        if actor is None or actor.log != instruction.log or not actor.is_alive:
            raise NotLeader(str(instruction.log), "its actor is gone")
        return self._configured(actor, instruction)

    def _configured(self, actor: SimActor, wanted: do.StartLog | do.Configure) -> Served:
        order = LogOrder(
            log=wanted.log,
            directory_id=actor.dir.directory_id,
            config=wanted.config,
            config_version=wanted.config_version,
            controller_epoch=self.machine.controller_epoch,
        )
        return served_of(self.world.ray.learn(order))

    def _kill(self, partition: TopicPartition) -> int:
        """How long the process lives on. Whoever waits for an answer of it gets an error."""
        for fail in self._asking.pop(partition, []):
            fail(NotLeader(str(partition), "its actor was killed"))
        actor = self.world.ray.named.get(partition)
        if actor is None or actor.node != self.node.key:
            return 0
        return self.world.ray.kill(actor)

    def _end_log(self, instruction: do.EndLog) -> None:
        log = instruction.log
        actor = self.world.ray.named.get(log.partition)
        if actor is None or actor.log != log or actor.node != self.node.key:
            if instruction.must_close:
                raise NotLeader(str(log), "its actor is gone")
            return
        if actor.is_paused or not actor.is_alive:
            raise RequestTimedOut(str(log), PATIENCE_MS / 1000)
        if actor.is_learning:
            raise NotLeader(str(log), "its log is not open")
        self.world.ray.close(actor)

    def _end_in_order(self) -> None:
        """By order: close what is served, write checkpoints and marks, tell it, and end."""
        if not self.is_alive:
            return
        now_ms = self.world.clockwork.now_ms
        until_ms = max(dir.hangs_until_ms for dir in self.node.dirs)
        if self.is_paused or until_ms > now_ms:
            self.world.clockwork.after(max(WORK_MS, until_ms - now_ms), self._end_in_order)
            return
        self._disks.release_copy()
        closed = self._close_all()
        assert self.report is not None
        lying = {log.log for log in self.report.logs if log.log is not None}
        is_clean = self._disks.work.unlock(closed, lying - self._touched)
        self.is_alive = False
        last = replace(
            self.report,
            number=self.report.number + 1,
            logs=(),
            ended="in order" if is_clean else "not in order",
        )
        self.world.manager_ended(self)
        self.world.send_report(self, last)

    def _close_all(self) -> dict[LogId, PartitionOffsets]:
        """Close what can be closed, and end the rest."""
        closed: dict[LogId, PartitionOffsets] = {}
        served = {facts.log for facts in self.machine.served()}
        for actor in list(self.world.ray.named.values()):
            if actor.node != self.node.key:
                continue
            offsets = actor.says().offsets
            try:
                self._end_log(do.EndLog(token=0, log=actor.log))
            except RaylogError:
                self.world.ray.vanish(actor)
                continue
            if offsets is not None and actor.log in served:
                closed[actor.log] = offsets
        return closed

    # -- what happens to it ------------------------------------------------------------------------

    def hear_orders(self, orders: Orders) -> None:
        self.tell(Ordered(orders=orders))


def _most_ms(instruction: do.Work) -> int:
    if isinstance(instruction, do.StartLog):
        return OPENING_MS
    return COPY_MS if isinstance(instruction, do.Copy) else WORK_MS
