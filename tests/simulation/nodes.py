"""A node of the simulation: its log dirs, and the process of its LogManager over the real machine.

The process carries out what the machine says, after some time; a process that dies leaves its work
done or not done, and its answers unsaid.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from raylog.actors.control import DirReport, LogId, Orders
from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.node import instructions as do
from raylog.actors.node.events import (
    ActorGone,
    ActorSaid,
    DirFailed,
    DirsRead,
    Event,
    Finished,
    Folder,
    IdentityLost,
    Measured,
    Ordered,
    Served,
    Started,
    Tick,
    UpkeepKind,
    UpkeepSeen,
)
from raylog.actors.node.machine import NodeMachine
from raylog.storage.errors import LogDirOffline, LogMissing, RaylogError
from raylog.storage.names import TopicPartition
from tests.simulation.actors import SimActor
from tests.simulation.disks import COPY, DOOMED, LOG, STRAY, SimDir, SimFolder

if TYPE_CHECKING:
    from tests.simulation.world import World

# How often it looks at its processes, at the room on its disks, and whose each folder is.
TICK_MS, MEASURE_MS, IDENTITY_MS = 1000, 5000, 30_000
# Of a dir that is not full, and of one that is.
MUCH_BYTES, NO_BYTES = 1 << 40, 0
# Work on a disk, an opening, a round of a copy; a few take this long, most far less.
WORK_MS, OPENING_MS, COPY_MS = 400, 8000, 20_000
# How long a LogManager waits for an actor that hangs.
PATIENCE_MS = 10_000


@dataclass(slots=True, eq=False)
class SimNode:
    """A machine with disks, on which a LogManager runs, or will."""

    key: str
    dirs: list[SimDir]
    room: int = 1000
    manager: "Manager | None" = None
    is_up: bool = True
    upkeep: set[UpkeepKind] = field(default_factory=set)
    # Whether what its disks have is read from the disks, and not from a page cache: after a start.
    is_fresh: bool = True
    # When something was wrong with it or a disk of it.
    trouble_ms: int = 0

    def is_calm(self, since_ms: int) -> bool:
        """Whether nothing was wrong with it since then."""
        if not self.is_up or self.manager is None or not self.manager.is_answering:
            return False
        if any(dir.is_full or dir.is_hanging or dir.failure for dir in self.dirs):
            return False
        return max(self.trouble_ms, self.manager.began_ms) < since_ms

    def missing_upkeep(self) -> list[UpkeepKind]:
        """The upkeep that logs need that are served here, and that does not run."""
        served = () if self.manager is None else self.manager.machine.served()
        needed: list[UpkeepKind] = ["retention"] if served else []
        return [kind for kind in needed if kind not in self.upkeep]


class Manager:
    """One life of a node's LogManager."""

    def __init__(self, world: "World", node: SimNode, life: str) -> None:
        self.world, self.node, self.life = world, node, life
        self.is_alive, self.is_paused = True, False
        self.is_started = False
        self.began_ms = world.clockwork.now_ms
        self.machine = NodeMachine(node=node.key, life=life, config=world.broker_config)
        self._waiting: list[Event] = []  # while it is paused
        self.obeyed_epoch = -1  # the highest of which it has obeyed orders
        self._closed: set[str] = set()  # the dirs that it has locked and does not use any more
        self._copies: dict[int, Callable[[], None]] = {}  # by their token
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
        self.is_alive = False
        for dir in self.node.dirs:
            if dir.owner is self:
                dir.owner = None

    def _start(self) -> None:
        """Lock the dirs; while an earlier life has one, try again."""
        if not self.is_alive:
            return
        if any(dir.owner is not None for dir in self.node.dirs):
            self.world.clockwork.after(500, self._start)
            return
        for dir in self._usable():
            dir.owner = self
        mine = [actor for actor in self.world.ray.named.values() if actor.node == self.node.key]
        living = [actor for actor in mine if actor.is_alive]
        answering = [actor for actor in living if not actor.is_paused and not actor.is_learning]
        self.is_started, self.is_paused = True, False
        self.tell(
            Started(
                dirs=tuple(self._report_of(dir) for dir in self.node.dirs),
                folders=tuple(self._folders(self._usable())),
                controller_epoch=max((dir.controller_epoch for dir in self._usable()), default=-1),
                served=tuple(actor.says() for actor in answering),
                strangers=tuple(actor.log.partition for actor in mine if actor not in answering),
                upkeep=tuple(sorted(self.node.upkeep)),
                room=self.node.room,
                is_restarted=not self.node.is_fresh,
            )
        )
        self.resume()
        self._tick()
        self.world.clockwork.after(MEASURE_MS, self._measure)
        self.world.clockwork.after(IDENTITY_MS, self._look_at_identities)

    def _measure(self) -> None:
        """Tell how much room there is: a dir that was full need not be full for ever."""
        if self.is_alive:
            usable_bytes = {dir.directory_id: _usable_bytes(dir) for dir in self._usable()}
            self.tell(Measured(usable_bytes=usable_bytes, room=self.node.room))
            self.world.clockwork.after(MEASURE_MS, self._measure)

    def _look_at_identities(self) -> None:
        """Tell which folders do not say any more whose they are."""
        if not self.is_alive:
            return
        for dir in self._usable():
            for folder in dir.folders:
                if folder.kind == LOG and folder.is_identity_lost and dir.owner is self:
                    self.identity_lost(dir, folder)
        self.world.clockwork.after(IDENTITY_MS, self._look_at_identities)

    def _tick(self) -> None:
        if self.is_alive:
            self._note_trouble()
            self.tell(Tick())
            for dir in self._failing():
                self.tell(DirFailed(directory_id=dir.directory_id, why=dir.failure))
            self.tell(UpkeepSeen(kinds=tuple(sorted(self.node.upkeep))))
            self.world.clockwork.after(TICK_MS, self._tick)

    def _note_trouble(self) -> None:
        is_cut = any(key == self.node.key for key, _ in self.world.cuts)
        is_full = any(dir.is_full or dir.is_hanging for dir in self.node.dirs)
        if self.is_paused or is_cut or is_full or self._failing():
            self.node.trouble_ms = self.world.clockwork.now_ms

    def _failing(self) -> list[SimDir]:
        return [dir for dir in self.node.dirs if dir.failure]

    def _usable(self) -> list[SimDir]:
        return [dir for dir in self.node.dirs if not dir.failure]

    def _report_of(self, dir: SimDir) -> DirReport:
        return DirReport(
            directory_id=dir.directory_id,
            path=dir.path,
            state="offline" if dir.failure else "online",
            why=dir.failure,
            usable_bytes=_usable_bytes(dir),
            is_read_back=self.node.is_fresh and not dir.failure,
        )

    def _folders(self, dirs: list[SimDir]) -> list[Folder]:
        return [
            Folder(
                partition=folder.partition,
                topic_id=folder.read_id,
                directory_id=dir.directory_id,
                is_clean=folder.is_clean,
                is_copy=folder.kind == COPY,
            )
            for dir in dirs
            for folder in dir.folders
            if folder.kind in (LOG, COPY)
        ]

    # -- instructions ------------------------------------------------------------------------------

    def _carry_out(self, instruction: do.Instruction) -> None:
        match instruction:
            case do.SendReport(report=report):
                self.world.truth.reported(report)
                self.world.send_report(self, report)
            case do.Refuse(controller_epoch=epoch):
                self.world.send_refusal(self, epoch)
            case do.Note() | do.ForgetLog():
                pass
            case do.GiveUpCopy(copy_token=token):
                give_up = self._copies.get(token)
                if give_up is not None:
                    self.world.clockwork.soon(give_up, most_ms=WORK_MS)
            case do.CloseDir(directory_id=where):
                self._close_dir(self.dir(where))
            case do.UnlockDir(directory_id=where):
                self._unlock_dir(self.dir(where))
            case do.StartUpkeep(kind=kind):
                self.world.clockwork.soon(lambda: self.node.upkeep.add(kind), most_ms=WORK_MS)
            case do.RunUpkeep(kind=kind, confirmed=confirmed):
                self._run_upkeep(kind, confirmed)
            case _:
                self._work(instruction)

    def _close_dir(self, dir: SimDir) -> None:
        """Write nothing more to it."""
        self.world.expect(dir.owner is self, "a log dir is closed that is not open")
        self._closed.add(dir.directory_id)

    def _unlock_dir(self, dir: SimDir) -> None:
        """Give its lock up."""
        self.world.expect(
            dir.directory_id in self._closed, "a log dir is unlocked that was not closed"
        )
        self._closed.discard(dir.directory_id)
        dir.owner = None

    def _run_upkeep(self, kind: UpkeepKind, confirmed: Mapping[LogId, int]) -> None:
        """The upkeep actor asks for the rights and the LogActors, one by one, at its own pace."""
        if kind in self.node.upkeep:
            for log in confirmed:
                ask = partial(self.world.ask_for_right, self.node, log)
                self.world.clockwork.soon(ask, most_ms=30_000)

    @property
    def is_answering(self) -> bool:
        return self.is_alive and self.is_started and not self.is_paused

    def _work(self, instruction: do.Work) -> None:
        """Have it done at some moment, and answered a little later."""
        self.world.check_instruction(self, instruction)
        delay_ms = self.world.clockwork.some(_most_ms(instruction))
        is_over = False

        def finish(error: RaylogError | None = None) -> None:
            nonlocal is_over
            if is_over:
                return
            if error is None and self._hangs(instruction):
                self.world.clockwork.after(WORK_MS, finish)
                return
            is_over = True
            if isinstance(instruction, do.Copy):
                self._copies.pop(instruction.token, None)
            result = None
            if error is None and self._is_done(instruction):
                try:
                    result = self._effect(instruction)
                except RaylogError as failure:
                    error = failure
            if isinstance(result, int):  # the process lingers so long
                self.world.clockwork.after(
                    result, lambda: self.tell(Finished(token=instruction.token))
                )
                return
            event = Finished(token=instruction.token, result=result, error=error)
            self.world.clockwork.soon(lambda: self.tell(event), most_ms=WORK_MS)

        if isinstance(instruction, do.Copy):
            self._copies[instruction.token] = lambda: finish(NotLeader("copy", "it was given up"))
        if isinstance(instruction, do.StartLog | do.Configure | do.EndLog):
            self._asking.setdefault(instruction.log.partition, []).append(finish)
        self.world.clockwork.after(delay_ms, finish)

    def _hangs(self, instruction: do.Work) -> bool:
        """Whether it waits for a disk."""
        return any(dir.is_hanging for dir in self.dirs_of(instruction))

    def dirs_of(self, instruction: do.Work) -> list[SimDir]:
        """The dirs in which it does something."""
        keys = ("directory_id", "target_id")
        ids = [getattr(instruction, key, None) for key in keys]
        return [dir for dir in self.node.dirs if dir.directory_id in ids]

    def _is_done(self, instruction: do.Work) -> bool:
        """Whether it comes to it. A process that is about to end may still do it, while it has the
        locks of its dirs; but it starts no actor."""
        if self.is_alive or isinstance(instruction, do.StartLog):
            return self.is_alive
        has_locks = any(dir.owner is self for dir in self.node.dirs)
        return has_locks and self.world.clockwork.chance.random() < 0.5

    def _locked(self, directory_id: str) -> SimDir:
        """A log dir that this process has locked, and whose disk works."""
        dir = self.dir(directory_id)
        if dir.owner is not self or directory_id in self._closed:
            raise LogDirOffline(dir.path, "it was closed")
        dir.check()
        return dir

    def _effect(self, instruction: do.Work) -> Served | int | None:
        match instruction:
            case do.WriteEpoch(controller_epoch=epoch, directory_id=where):
                dir = self._locked(where)
                dir.controller_epoch = max(dir.controller_epoch, epoch)
            case do.ReadDir(directory_id=where):
                self._read_dir(self.dir(where))
            case do.MakeFolder(log=log, directory_id=where):
                self._make(self._locked(where), log)
            case do.Doom(log=log, directory_id=where):
                self._rename(self._locked(where), log.partition, log.topic_id, DOOMED)
            case do.PutAside(partition=partition, topic_id=topic_id, directory_id=where):
                self._rename(self._locked(where), partition, topic_id, STRAY)
            case do.WriteIdentity(log=log, directory_id=where):
                self._write_identity(self._locked(where), log)
            case do.Copy():
                self._copy(instruction)
            case do.Adopt(log=log, directory_id=where):
                self._adopt(self._locked(where), log)
            case do.DropCopy(partition=partition, directory_id=where):
                dir = self._locked(where)
                dir.folders = [
                    folder
                    for folder in dir.folders
                    if not (folder.partition == partition and folder.kind == COPY)
                ]
            case do.StartLog():
                return self._start_or_end(instruction)
            case do.Configure():
                return self._configure(instruction)
            case do.EndLog(log=log):
                self._end_log(log)
            case do.KillActor(partition=partition):
                return self._kill(partition)
        return None

    def dir(self, directory_id: str) -> SimDir:
        return next(dir for dir in self.node.dirs if dir.directory_id == directory_id)

    def _read_dir(self, dir: SimDir) -> None:
        dir.check()
        self.world.expect(dir.owner is None, "a log dir is read back that was not closed")
        dir.owner, dir.read_ms = self, self.world.clockwork.now_ms
        self.tell(
            DirsRead(
                dirs=(self._report_of(dir),),
                folders=tuple(self._folders([dir])),
                controller_epoch=dir.controller_epoch,
            )
        )

    def _make(self, dir: SimDir, log: LogId) -> None:
        found = dir.find(log.partition)
        if found is None or found.topic_id != log.topic_id:
            dir.make(log.partition, log.topic_id)

    def _rename(
        self, dir: SimDir, partition: TopicPartition, topic_id: str | None, kind: str
    ) -> None:
        folder = dir.find(partition)
        if folder is None:
            return
        is_meant = folder.topic_id == topic_id if kind == DOOMED else folder.read_id == topic_id
        if is_meant:
            if folder.owner is not self.world.ray.named.get(partition):
                folder.owner = None  # it is about to end: the shell waits for the folder's lock
            self.world.check_renamed(dir, folder, kind)
            folder.kind = kind

    def _write_identity(self, dir: SimDir, log: LogId) -> None:
        folder = dir.find(log.partition)
        if folder is not None:
            self.world.expect(folder.topic_id == log.topic_id, "a folder got another topic's id")
            folder.is_identity_lost = False

    def _copy(self, instruction: do.Copy) -> None:
        source = self._locked(instruction.directory_id)
        target = self._locked(instruction.target_id)
        log = instruction.log
        folder = source.find(log.partition)
        if folder is None or folder.topic_id != log.topic_id:
            raise LogMissing(source.path, "it is not here")
        copy = target.find(log.partition, COPY) or target.make(log.partition, log.topic_id, COPY)
        copy.is_whole = instruction.is_last
        if instruction.is_last:
            self.world.expect(folder.owner is None, "the last round of a copy beside its writer")

    def _adopt(self, dir: SimDir, log: LogId) -> None:
        found = dir.find(log.partition)
        copy = dir.find(log.partition, COPY)
        if copy is None:
            if found is None or found.topic_id != log.topic_id:
                raise LogMissing(dir.path, f"there is no copy of {log}")
            return
        self.world.expect(found is None, "a copy took the place of a folder")
        self.world.expect(copy.is_whole, "a copy that is not whole became the log")
        copy.kind = LOG

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
        log, dir = instruction.log, self._locked(instruction.directory_id)
        running = self.world.ray.named.get(log.partition)
        if running is not None and running.node != self.node.key:
            raise NotLeader(str(log.partition), f"node {running.node} has its actor")
        if running is not None and running.log == log and running.dir is dir and running.is_alive:
            return self._configured(running, instruction)
        if running is not None:
            self.world.ray.vanish(running)  # the shell waits until its process is gone
        folder = dir.find(log.partition)
        if folder is None or folder.topic_id != log.topic_id:
            raise LogMissing(dir.path, f"{log} is not here")
        if folder.owner is not None:
            folder.owner = None  # the shell waits for the lock, and its owner is about to end
        self.world.expect(
            folder.is_clean or not instruction.is_clean, "a crashed log was opened as a clean one"
        )
        actor = SimActor(
            log=log,
            node=self.node.key,
            dir=dir,
            folder=folder,
            config=instruction.config,
            config_version=instruction.config_version,
        )
        self.world.ray.start(actor)
        return actor.says()

    def _configure(self, instruction: do.Configure) -> Served:
        actor = self.world.ray.named.get(instruction.log.partition)
        if actor is None or actor.log != instruction.log or not actor.is_alive:
            raise NotLeader(str(instruction.log), "its actor is gone")
        return self._configured(actor, instruction)

    def _configured(self, actor: SimActor, wanted: do.StartLog | do.Configure) -> Served:
        if actor.is_paused:
            raise RequestTimedOut(str(actor.log), PATIENCE_MS / 1000)
        actor.is_learning = False
        if wanted.config_version >= actor.config_version:
            actor.config, actor.config_version = wanted.config, wanted.config_version
        return actor.says()

    def _kill(self, partition: TopicPartition) -> int:
        """How long the process lives on. Whoever waits for an answer of it gets an error."""
        for fail in self._asking.pop(partition, []):
            fail(NotLeader(str(partition), "its actor was killed"))
        actor = self.world.ray.named.get(partition)
        if actor is None or actor.node != self.node.key:
            return 0
        return self.world.ray.kill(actor)

    def _end_log(self, log: LogId) -> None:
        actor = self.world.ray.named.get(log.partition)
        if actor is None or actor.log != log or actor.node != self.node.key:
            return
        if actor.is_paused:
            raise RequestTimedOut(str(log), PATIENCE_MS / 1000)
        if actor.is_alive:
            self.world.ray.close(actor)
        else:
            del self.world.ray.named[log.partition]

    # -- what happens to it ------------------------------------------------------------------------

    def hear_orders(self, orders: Orders) -> None:
        self.tell(Ordered(orders=orders))

    def actor_died(self, actor: SimActor) -> None:
        self.tell(ActorGone(partition=actor.log.partition))

    def actor_said(self, actor: SimActor) -> None:
        self.tell(ActorSaid(served=actor.says()))

    def identity_lost(self, dir: SimDir, folder: SimFolder) -> None:
        self.tell(IdentityLost(partition=folder.partition, directory_id=dir.directory_id))


def _usable_bytes(dir: SimDir) -> int:
    return NO_BYTES if dir.is_full else MUCH_BYTES


def _most_ms(instruction: do.Work) -> int:
    if isinstance(instruction, do.StartLog):
        return OPENING_MS
    return COPY_MS if isinstance(instruction, do.Copy) else WORK_MS
