"""A node for random tests: disks and processes as simple values, and a Controller of few words.

The world carries the machine's instructions out, in any order, late, and sometimes in vain. It
checks each by what is so in the world, not by what the machine believes: nobody opens a folder that
another actor has, and nobody takes a folder away under an actor.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

from raylog.actors.control import (
    Create,
    DirReport,
    DirState,
    End,
    LogId,
    LogReport,
    Move,
    Order,
    Orders,
    ReadBack,
    Remove,
    Report,
    Serve,
    SetAside,
)
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.confirmed_logs import CONFIRMED_FOR_MS
from raylog.actors.node.events import (
    ActorGone,
    ActorSaid,
    DirFailed,
    DirsRead,
    Event,
    Finished,
    Folder,
    IdentityLost,
    Ordered,
    Served,
    Started,
    Tick,
    UpkeepSeen,
)
from raylog.actors.node.instructions import (
    Adopt,
    CloseDir,
    Configure,
    Copy,
    Doom,
    DropCopy,
    EndLog,
    GiveUpCopy,
    Instruction,
    KillActor,
    MakeFolder,
    PutAside,
    ReadDir,
    RunUpkeep,
    SendReport,
    StartLog,
    UnlockDir,
    Work,
    WriteEpoch,
    WriteIdentity,
)
from raylog.actors.node.machine import NodeMachine
from raylog.storage.config import LogConfig
from raylog.storage.errors import DiskFull, LogMissing, RaylogError, StorageError
from raylog.storage.names import TopicPartition

DIRS = ("A", "B", "C")
PARTITIONS = tuple(TopicPartition("orders", number) for number in range(3))
CONFIG = LogConfig()
LIMIT = 2  # num.recovery.threads.per.data.dir


@dataclass
class Disk:
    """One log dir."""

    is_broken: bool = False
    is_hanging: bool = False
    epoch: int = -1
    folders: dict[TopicPartition, str | None] = field(default_factory=dict)
    copies: dict[LogId, bool] = field(default_factory=dict)  # whether it is whole


@dataclass
class Actor:
    """A LogActor that lives."""

    log: LogId
    directory_id: str
    version: int


@dataclass
class Wanted:
    """What the Controller has written down of a log."""

    version: int = 1
    directory_id: str | None = None
    target_id: str | None = None
    is_removing: bool = False


class World:
    """See the module's head."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.disks = {name: Disk() for name in DIRS}
        self.actors: dict[TopicPartition, Actor] = {}
        self.wanted: dict[LogId, Wanted] = {}
        self.to_read_back: set[str] = set()
        self.answered: dict[LogId, int] = {}  # the config version that a report has shown
        self.late: list[Orders] = []
        self.now_ms, self.lives, self.topics = 0, 0, 0
        self.epoch, self.number = 1, 0
        self.fault_rate = 0.1
        self.events = 0
        self.counts: dict[str, int] = {}
        self.start()

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- the machine -------------------------------------------------------------------------------

    def start(self) -> None:
        """Another life of the LogManager: what was in flight is lost, actors live on."""
        self.lives += 1
        self.life = f"life {self.lives}"
        self.in_flight: list[Work] = []
        self.given_up: set[int] = set()  # the tokens of copies
        self.unkilled: set[TopicPartition] = set()  # what could not be killed
        self.locked = set(self.sound_dirs())
        self.closed: set[str] = set()  # of these, those that are not used any more
        self.obeyed = -1
        self.report: Report | None = None
        self.last_word_ms: int | None = None
        config = BrokerConfig.parse(
            {"num.recovery.threads.per.data.dir": LIMIT, "log.retention.check.interval.ms": 1}
        )
        self.machine = NodeMachine(node="n", life=self.life, config=config)
        known = [actor for actor in self.actors.values() if self.chance.random() < 0.9]
        strangers = [log for log, actor in self.actors.items() if actor not in known]
        self.tell(
            Started(
                dirs=tuple(self.dir_report(name) for name in DIRS),
                folders=tuple(self.folders_of(*self.sound_dirs())),
                controller_epoch=max(self.disks[name].epoch for name in DIRS),
                served=tuple(self.served(actor) for actor in known),
                strangers=tuple(strangers),
            )
        )

    def sound_dirs(self) -> list[str]:
        return [name for name in DIRS if not self.disks[name].is_broken]

    def dir_report(self, name: str) -> DirReport:
        state: DirState = "offline" if self.disks[name].is_broken else "online"
        return DirReport(directory_id=name, path=f"/disk/{name}", state=state, why="")

    def folders_of(self, *names: str) -> Iterator[Folder]:
        for name in names:
            for partition, topic_id in self.disks[name].folders.items():
                yield Folder(partition=partition, topic_id=topic_id, directory_id=name)
            for log in self.disks[name].copies:
                yield Folder(
                    partition=log.partition,
                    topic_id=log.topic_id,
                    directory_id=name,
                    is_copy=True,
                )

    def served(self, actor: Actor) -> Served:
        return Served(
            log=actor.log,
            directory_id=actor.directory_id,
            config=CONFIG,
            config_version=actor.version,
        )

    def tell(self, event: Event) -> None:
        if isinstance(event, Ordered):
            self.last_word_ms = self.now_ms
        self.events += 1
        instructions = self.machine.handle(event, self.now_ms)
        self.note_obeyed(instructions)
        for instruction in instructions:
            match instruction:
                case SendReport():
                    self.hear(instruction.report)
                case GiveUpCopy():
                    self.given_up.add(instruction.copy_token)
                case CloseDir():
                    self.close_dir(instruction.directory_id)
                case UnlockDir():
                    self.unlock_dir(instruction.directory_id)
                case RunUpkeep():
                    self.count("upkeep")
                    self.check_upkeep(instruction)
                case _ if isinstance(instruction, Work):
                    self.check_epoch(instruction)
                    self.in_flight.append(instruction)
        self.machine.validate()

    def note_obeyed(self, instructions: list[Instruction]) -> None:
        """The report of this event tells the epoch of which orders were obeyed by now."""
        for instruction in instructions:
            if isinstance(instruction, SendReport) and instruction.report.orders >= 0:
                self.obeyed = instruction.report.controller_epoch

    def check_epoch(self, work: Work) -> None:
        """No dir is used under orders of an epoch that it does not have."""
        if isinstance(work, WriteEpoch | ReadDir | KillActor):
            return
        is_unasked = isinstance(work, DropCopy) and work.topic_id is None
        for name in self.dirs_of(work):
            assert is_unasked or self.disks[name].epoch >= self.obeyed, f"{work}: no epoch"

    @staticmethod
    def dirs_of(work: Work) -> list[str]:
        names = [getattr(work, key, None) for key in ("directory_id", "target_id")]
        return [name for name in names if name is not None]

    def unlock_dir(self, name: str) -> None:
        assert name in self.closed, "a dir was unlocked that is in use"
        self.closed.discard(name)
        self.locked.discard(name)
        serving = [actor for actor in self.actors.values() if actor.directory_id == name]
        assert not serving, "a dir was unlocked while an actor serves from it"
        writing = [work for work in self.in_flight if name in self.dirs_of(work)]
        assert not writing, "a dir was unlocked while it is written to"

    def close_dir(self, name: str) -> None:
        """Who writes to it is killed before; nothing is begun in it any more."""
        assert name in self.locked - self.closed, "a dir was closed twice"
        self.closed.add(name)
        killed = {work.partition for work in self.in_flight if isinstance(work, KillActor)}
        killed |= self.unkilled
        for partition, actor in self.actors.items():
            assert actor.directory_id != name or partition in killed, "an actor was forgotten"

    def check_upkeep(self, run: RunUpkeep) -> None:
        """The Controller has spoken of late; and an alter that was answered holds for ever."""
        if run.confirmed:
            assert self.last_word_ms is not None
            assert self.now_ms - self.last_word_ms < CONFIRMED_FOR_MS
        for log, version in run.confirmed.items():
            assert version >= self.answered.get(log, 0), "upkeep under an older config"

    def hear(self, report: Report) -> None:
        self.report = report
        for entry in report.logs:
            if entry.log is not None and entry.state == "serving":
                before = self.answered.get(entry.log, 0)
                self.answered[entry.log] = max(before, entry.config_version)

    # -- instructions ------------------------------------------------------------------------------

    def carry_out(self, work: Work) -> None:
        """One that is in flight ends, well or not; unless its disk hangs."""
        if any(self.disks[name].is_hanging for name in self.dirs_of(work)):
            self.count("hanging")
            return
        self.in_flight.remove(work)
        self.count(type(work).__name__)
        if isinstance(work, WriteEpoch):
            self.write_epoch(work)
            return
        if isinstance(work, ReadDir):
            self.read_back(work)
            return
        error = self.fault(work)
        result = None
        if error is None:
            error, result = self.do(work)
        elif isinstance(work, KillActor):
            self.unkilled.add(work.partition)
        elif isinstance(work, StartLog):
            self.end_own_actor(work.log)  # the promise of StartLog: no actor after an error
        self.tell(Finished(token=work.token, result=result, error=error))

    def fault(self, work: Work) -> RaylogError | None:
        """Something goes wrong by itself, or the disk is broken."""
        name = getattr(work, "directory_id", None)
        if name is not None and self.disks[name].is_broken:
            return StorageError(f"/disk/{name}/file", "input/output error")
        target = getattr(work, "target_id", None)
        if target is not None and self.disks[target].is_broken:
            return StorageError(f"/disk/{target}/file", "input/output error")
        if self.chance.random() < self.fault_rate:
            return self.chance.choice([DiskFull("/disk/A/file"), LogMissing("folder", "it is not")])
        return None

    def do(self, work: Work) -> tuple[RaylogError | None, Served | None]:
        match work:
            case StartLog():
                return self.open(work)
            case Configure():
                return self.configure(work), None
            case EndLog():
                return self.end(work), None
            case KillActor():
                self.actors.pop(work.partition, None)
                self.unkilled.discard(work.partition)
            case MakeFolder():
                folders = self.disks[work.directory_id].folders
                assert work.log.partition not in folders, "two folders of one name"
                folders[work.log.partition] = work.log.topic_id
            case Doom():
                self.take_away(work.log.partition, work.log.topic_id, work.directory_id)
            case PutAside():
                self.take_away(work.partition, work.topic_id, work.directory_id)
            case WriteIdentity():
                folders = self.disks[work.directory_id].folders
                folders[work.log.partition] = work.log.topic_id
            case Copy():
                return self.copy(work), None
            case Adopt():
                self.adopt(work)
            case DropCopy():
                copies = self.disks[work.directory_id].copies
                copies.pop(LogId(partition=work.partition, topic_id=str(work.topic_id)), None)
        return None, None

    def open(self, work: StartLog) -> tuple[RaylogError | None, Served | None]:
        disk, partition = self.disks[work.directory_id], work.log.partition
        if partition not in disk.folders or disk.folders[partition] != work.log.topic_id:
            self.end_own_actor(work.log)
            return LogMissing("folder", "it is not there"), None
        actor = self.actors.get(partition)
        if actor is None:
            actor = Actor(work.log, work.directory_id, work.config_version)
            self.actors[partition] = actor
        assert (actor.log, actor.directory_id) == (work.log, work.directory_id), "two of one name"
        actor.version = max(actor.version, work.config_version)
        return None, self.served(actor)

    def end_own_actor(self, log: LogId) -> None:
        actor = self.actors.get(log.partition)
        if actor is not None and actor.log == log:
            del self.actors[log.partition]

    def configure(self, work: Configure) -> RaylogError | None:
        actor = self.actors.get(work.log.partition)
        if actor is None:
            return LogMissing("actor", "it is gone")
        assert actor.log == work.log
        actor.version = max(actor.version, work.config_version)
        return None

    def end(self, work: EndLog) -> RaylogError | None:
        if self.actors.pop(work.log.partition, None) is None:
            return LogMissing("actor", "it is gone")
        return None

    def take_away(self, partition: TopicPartition, topic_id: str | None, name: str) -> None:
        """A folder is renamed; nobody may be writing to it."""
        actor = self.actors.get(partition)
        assert actor is None or actor.directory_id != name, "a folder was taken away while served"
        folders = self.disks[name].folders
        if partition in folders:
            assert folders[partition] in (topic_id, None), "another topic's folder was taken away"
            del folders[partition]

    def copy(self, work: Copy) -> RaylogError | None:
        if work.token in self.given_up:
            return LogMissing("copy", "it was given up")
        actor = self.actors.get(work.log.partition)
        assert not work.is_last or actor is None, "the rest of a log is copied while it is served"
        self.disks[work.target_id].copies[work.log] = work.is_last
        return None

    def adopt(self, work: Adopt) -> None:
        disk = self.disks[work.directory_id]
        assert disk.copies.pop(work.log), "a copy that is not whole was adopted"
        assert work.log.partition not in disk.folders, "two folders of one name"
        disk.folders[work.log.partition] = work.log.topic_id

    def write_epoch(self, work: WriteEpoch) -> None:
        disk = self.disks[work.directory_id]
        if (error := self.fault(work)) is None:
            disk.epoch = max(work.controller_epoch, disk.epoch)
        elif not disk.is_broken:
            error = DiskFull(f"/disk/{work.directory_id}/controller-epoch")
        self.tell(Finished(token=work.token, error=error))

    def read_back(self, work: ReadDir) -> None:
        name = work.directory_id
        partitions = {actor.log.partition for actor in self.actors.values()}
        in_use = {p for p in partitions if self.actors[p].directory_id == name}
        assert not in_use, "a dir is read back while actors write to it"
        assert name not in self.locked, "a dir is read back that is locked"
        if self.disks[name].is_broken:
            self.tell(Finished(token=work.token, error=StorageError("/disk", "still broken")))
            return
        self.locked.add(name)
        self.tell(
            DirsRead(
                dirs=(replace(self.dir_report(name), is_read_back=True),),
                folders=tuple(self.folders_of(name)),
                controller_epoch=self.disks[name].epoch,
            )
        )
        self.to_read_back.discard(name)
        self.tell(Finished(token=work.token))

    # -- the Controller ----------------------------------------------------------------------------

    def entries(self, log: LogId) -> list[LogReport]:
        assert self.report is not None
        return [entry for entry in self.report.logs if entry.log == log]

    def plan(self) -> list[Order]:
        """What follows from what is written down and the last report."""
        orders: list[Order] = [ReadBack(directory_id=name) for name in sorted(self.to_read_back)]
        assert self.report is not None
        heard = self.report.controller_epoch, self.report.orders
        is_heard = heard == (self.epoch, self.number)
        is_whole = all(dir.state == "online" for dir in self.report.dirs)
        for log, wanted in list(self.wanted.items()):
            entries = self.entries(log)
            if wanted.is_removing:
                orders.append(Remove(log=log))
                if not entries and is_heard and is_whole:
                    self.wanted.pop(log)
                continue
            orders += self.plan_log(log, wanted, entries, is_heard=is_heard)
        homes = {(log.partition, wanted.directory_id) for log, wanted in self.wanted.items()}
        for entry in self.report.logs:
            is_wanted = (
                entry.log in self.wanted
                if entry.log
                else ((entry.partition, entry.directory_id) in homes)
            )
            if not is_wanted and entry.log and entry.state in ("opening", "serving", "moved"):
                orders.append(End(log=entry.log))
                self.count("ended")
            elif not is_wanted and entry.directory_id:
                orders.append(
                    SetAside(
                        partition=entry.partition,
                        topic_id=entry.topic_id,
                        directory_id=entry.directory_id,
                    )
                )
        return orders

    def plan_log(
        self, log: LogId, wanted: Wanted, entries: list[LogReport], *, is_heard: bool
    ) -> Iterator[Order]:
        for entry in entries:
            if wanted.directory_id is None and entry.directory_id:
                wanted.directory_id = entry.directory_id
            if entry.moved_to is not None and entry.moved_to == wanted.target_id and is_heard:
                wanted.directory_id, wanted.target_id = entry.moved_to, None
                self.count("moved")
        if wanted.directory_id is None:
            yield Create(log=log)
        elif wanted.target_id is not None:
            yield Move(
                log=log,
                directory_id=wanted.directory_id,
                target_id=wanted.target_id,
                config=CONFIG,
                config_version=wanted.version,
            )
        else:
            yield Serve(
                log=log,
                directory_id=wanted.directory_id,
                config=CONFIG,
                config_version=wanted.version,
            )

    def send(self) -> None:
        """The Controller's next orders; they may come late, and twice."""
        assert self.report is not None
        orders = tuple(self.plan())
        self.number += 1
        envelope = Orders(
            controller_epoch=self.epoch,
            number=self.number,
            node="n",
            life=self.life,
            report=self.report.number,
            orders=orders,
        )
        if self.chance.random() < 2 * self.fault_rate:
            self.late.append(envelope)
        if self.chance.random() > self.fault_rate:
            self.tell(Ordered(orders=envelope))

    def decide(self) -> None:
        """Somebody wants something else."""
        partition = self.chance.choice(PARTITIONS)
        logs = [log for log in self.wanted if log.partition == partition]
        living = [log for log in logs if not self.wanted[log].is_removing]
        if not living:
            self.topics += 1
            self.wanted[LogId(partition=partition, topic_id=f"t{self.topics}")] = Wanted()
            return
        wanted = self.wanted[living[0]]
        match self.chance.choice(["alter", "remove", "move", "cancel"]):
            case "alter":
                wanted.version += 1
            case "remove":
                wanted.is_removing = True
            case "move" if wanted.directory_id is not None and wanted.target_id is None:
                others = [name for name in DIRS if name != wanted.directory_id]
                wanted.target_id = self.chance.choice(others)
            case "cancel":
                wanted.target_id = None

    # -- chance ------------------------------------------------------------------------------------

    def step(self) -> None:
        """Anything happens."""
        what = self.chance.random()
        if what < 0.5 and self.in_flight:
            self.carry_out(self.chance.choice(self.in_flight))
        elif what < 0.72:
            self.send()
        elif what < 0.8:
            self.decide()
        elif what < 0.86:
            self.now_ms += self.chance.choice([100, 1_000, 5_000, 50_000])
            self.tell(Tick())
        elif what < 0.9 and self.late:
            self.tell(Ordered(orders=self.chance.choice(self.late)))
        else:
            self.fault_happens()

    def fault_happens(self) -> None:
        faults = "gone, false news, reborn, disk, hang, life, epoch, identity, upkeep"
        match self.chance.choice(faults.split(", ")):
            case "gone" if self.actors:
                partition = self.chance.choice(sorted(self.actors))
                del self.actors[partition]
                self.tell(ActorGone(partition=partition))
            case "false news":
                self.tell(ActorGone(partition=self.chance.choice(PARTITIONS)))
            case "disk" if self.chance.random() < 0.3:
                name = self.chance.choice(DIRS)
                self.disks[name].is_broken = True
                self.tell(DirFailed(directory_id=name, why="input/output error"))
            case "hang":
                disk = self.disks[self.chance.choice(DIRS)]
                disk.is_hanging = not disk.is_hanging
            case "life" if self.chance.random() < 0.3:
                self.start()
            case "epoch":
                self.epoch += 1
                self.number = 0
            case "identity" if self.actors:
                actor = self.actors[self.chance.choice(sorted(self.actors))]
                disk = self.disks[actor.directory_id]
                if actor.log.partition in disk.folders:
                    disk.folders[actor.log.partition] = None
                    self.tell(
                        IdentityLost(partition=actor.log.partition, directory_id=actor.directory_id)
                    )
            case "reborn" if self.actors:
                # Ray has started it again, as it was started first.
                actor = self.actors[self.chance.choice(sorted(self.actors))]
                actor.version = self.chance.choice([1, actor.version])
                self.tell(ActorSaid(served=self.served(actor)))
            case "upkeep":
                self.tell(UpkeepSeen(kinds=self.chance.choice([(), ("retention",)])))

    # -- healing -----------------------------------------------------------------------------------

    def heal(self) -> None:
        """Nothing fails any more; orders come until nothing is left to do."""
        self.fault_rate = 0.0
        self.late.clear()
        for name, disk in self.disks.items():
            disk.is_hanging = False
            if disk.is_broken:
                disk.is_broken = False
                self.to_read_back.add(name)
        self.mend_identities()
        for _ in range(60):
            self.send()
            self.tell(Tick())
            while self.in_flight:
                self.carry_out(self.in_flight[0])
            self.now_ms += 1_000

    def mend_identities(self) -> None:
        """What was damaged and is not served any more is mended by hand, before the next start."""
        owners = {}
        for log, wanted in self.wanted.items():
            owners[log.partition, wanted.directory_id] = log.topic_id
        is_mended = False
        for name, disk in self.disks.items():
            for partition, topic_id in list(disk.folders.items()):
                if topic_id is None and (partition, name) in owners:
                    disk.folders[partition] = owners[partition, name]
                    is_mended = True
        if is_mended:
            self.start()
