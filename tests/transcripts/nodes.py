"""A node's machine as a transcript: what it is told and what it says, as short sentences.

::

    node = Node("A", "B")                     # a life of a LogManager with two log dirs
    node.orders(create(ORDERS))               # -> ["write epoch 1 to A", "write epoch 1 to B"]
    node.done("write epoch 1 to A")           # -> []
    node.done("write epoch 1 to B")           # -> ["make orders-0 of old in A"]
"""

from collections.abc import Mapping, Sequence

from raylog.actors.control import (
    Create,
    DirReport,
    LogId,
    LogReport,
    Move,
    Order,
    Orders,
    Remove,
    Report,
    Serve,
)
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.events import Event, Finished, Folder, Ordered, Served, Started, Tick
from raylog.actors.node.instructions import (
    Adopt,
    CloseDir,
    Configure,
    Copy,
    Doom,
    DropCopy,
    EndLog,
    EndNode,
    ForgetLog,
    GiveUpCopy,
    Instruction,
    KillActor,
    MakeFolder,
    Note,
    PutAside,
    ReadDir,
    Refuse,
    RetireDir,
    RunUpkeep,
    SendReport,
    StartLog,
    StartUpkeep,
    TakeConfig,
    UnlockDir,
    Work,
    WriteEpoch,
    WriteIdentity,
)
from raylog.actors.node.machine import NodeMachine
from raylog.storage.config import LogConfig
from raylog.storage.errors import OutOfResources, RaylogError, StorageError
from raylog.storage.names import TopicPartition

CONFIG = LogConfig()
COMPACTED = LogConfig(cleanup_policy="compact")
PARTITION, OTHER_PARTITION = TopicPartition("orders", 0), TopicPartition("orders", 1)
# A topic, and the one that has its name after it was deleted.
ORDERS = LogId(partition=PARTITION, topic_id="old")
NEW_ORDERS = LogId(partition=PARTITION, topic_id="new")
OTHERS = LogId(partition=OTHER_PARTITION, topic_id="old")
HANGS = OutOfResources("a log", "it does not answer")
BROKEN = StorageError("/disk/A/orders-0", "input/output error")


# -- short forms of what is told -------------------------------------------------------------------


def dir_report(name: str, usable_bytes: int = -1) -> DirReport:
    return DirReport(
        directory_id=name, path=f"/disk/{name}", state="online", usable_bytes=usable_bytes
    )


def folder(log: LogId, directory_id: str, *, is_clean: bool = False) -> Folder:
    return Folder(
        partition=log.partition,
        topic_id=log.topic_id,
        directory_id=directory_id,
        is_clean=is_clean,
    )


def unnamed(directory_id: str, partition: TopicPartition = PARTITION) -> Folder:
    """A folder whose ``partition.metadata`` cannot be read."""
    return Folder(partition=partition, topic_id=None, directory_id=directory_id)


def served(
    log: LogId, directory_id: str, version: int = 1, end: int = 0, config: LogConfig = CONFIG
) -> Served:
    return Served(
        log=log,
        directory_id=directory_id,
        config=config,
        config_version=version,
        leader_epoch=1,
        log_start_offset=0,
        log_end_offset=end,
    )


def create(log: LogId = ORDERS) -> Create:
    return Create(log=log)


def serve(
    log: LogId = ORDERS, directory_id: str = "A", version: int = 1, config: LogConfig = CONFIG
) -> Serve:
    return Serve(log=log, directory_id=directory_id, config=config, config_version=version)


def move(log: LogId = ORDERS, source: str = "A", target: str = "B", version: int = 1) -> Move:
    return Move(
        log=log, directory_id=source, target_id=target, config=CONFIG, config_version=version
    )


def remove(log: LogId = ORDERS) -> Remove:
    return Remove(log=log)


# -- what is said, in words ------------------------------------------------------------------------


def name_of(log: LogId) -> str:
    return f"{log.partition} of {log.topic_id}"


def in_words(said: Instruction) -> str:
    match said:
        case WriteEpoch():
            return f"write epoch {said.controller_epoch} to {said.directory_id}"
        case ReadDir():
            return f"read {said.directory_id} back"
        case RetireDir():
            clean = ", ".join(sorted(map(str, said.clean)))
            return f"retire {said.directory_id} with {clean or 'nothing'} clean"
        case CloseDir():
            return f"close {said.directory_id}"
        case UnlockDir():
            return f"unlock {said.directory_id}"
        case Refuse():
            return f"refuse, epoch {said.controller_epoch} was seen"
        case EndNode():
            return "end the node"
        case MakeFolder():
            return f"make {name_of(said.log)} in {said.directory_id}"
        case Doom():
            return f"doom {name_of(said.log)} in {said.directory_id}"
        case PutAside():
            return f"put {said.partition} of {said.topic_id} in {said.directory_id} aside"
        case WriteIdentity():
            return f"write the identity of {name_of(said.log)} in {said.directory_id}"
        case Copy():
            what = "the rest of " if said.is_last else ""
            return f"copy {what}{name_of(said.log)} from {said.directory_id} to {said.target_id}"
        case GiveUpCopy():
            return f"give up the copy of {name_of(said.log)}"
        case Adopt():
            return f"adopt {name_of(said.log)} in {said.directory_id}"
        case DropCopy():
            return f"drop the copy of {said.partition} of {said.topic_id} in {said.directory_id}"
        case StartLog():
            how = f"{', clean' * said.is_clean}{', first' * said.is_first}"
            where = f"in {said.directory_id} with config {said.config_version}"
            return f"start {name_of(said.log)} {where}{how}"
        case Configure():
            return f"configure {name_of(said.log)} with {said.config_version}"
        case EndLog():
            return f"end {name_of(said.log)}{', closed in order' * said.must_close}"
        case KillActor():
            return f"kill {said.partition}"
        case StartUpkeep():
            return f"start {said.kind}"
        case RunUpkeep():
            logs = [f"{name_of(log)} with {version}" for log, version in said.confirmed.items()]
            logs += [f"not {name_of(log)}" for log in sorted(said.others)]
            return f"run {said.kind}: {', '.join(logs) or 'nothing'}"
        case TakeConfig():
            return "take the config"
        case SendReport() | Note() | ForgetLog():
            return ""


def shown(log: LogReport) -> str:
    """What a report says of a log."""
    what = f"{log.partition} of {log.topic_id} in {log.directory_id or 'no dir'}: {log.state}"
    if log.config_version >= 0:
        what += f" with config {log.config_version}"
    if log.moved_to is not None:
        what += f" to {log.moved_to}"
    if log.problem is not None:
        what += f" ({type(log.problem).__name__})"
    return what


class Node:
    """See the module's head. Every answer is what was said that changes anything."""

    def __init__(
        self,
        *dirs: str | DirReport,
        folders: Sequence[Folder] = (),
        served: Sequence[Served] = (),
        strangers: Sequence[TopicPartition] = (),
        controller_epoch: int = -1,
        life: str = "first",
        is_restarted: bool = False,
        config: Mapping[str, str | int] | None = None,
    ) -> None:
        self.machine = NodeMachine(node="n", life=life, config=BrokerConfig.parse(config or {}))
        self.life, self.now_ms, self.epoch, self.number = life, 0, 1, 0
        self.reports: list[Report] = []
        self.notes: list[Note] = []
        self.forgotten: list[LogId] = []
        self.in_flight: dict[str, Work] = {}
        reports = [dir if isinstance(dir, DirReport) else dir_report(dir) for dir in dirs]
        self.began = self.told(
            Started(
                dirs=tuple(reports),
                folders=tuple(folders),
                served=tuple(served),
                strangers=tuple(strangers),
                controller_epoch=controller_epoch,
                is_restarted=is_restarted,
            )
        )

    # -- what it is told ---------------------------------------------------------------------------

    def told(self, event: Event) -> list[str]:
        said = self.machine.handle(event, self.now_ms)
        self.machine.validate()
        for instruction in said:
            if isinstance(instruction, SendReport):
                self.reports.append(instruction.report)
            elif isinstance(instruction, Note):
                self.notes.append(instruction)
            elif isinstance(instruction, ForgetLog):
                self.forgotten.append(instruction.log)
            elif isinstance(instruction, Work):
                words = in_words(instruction)
                assert words not in self.in_flight, f"{words}: twice at once"
                self.in_flight[words] = instruction
        return [words for instruction in said if (words := in_words(instruction))]

    def envelope(self, *orders: Order, report: int | None = None) -> Orders:
        """The Controller's next one, made from the newest report."""
        self.number += 1
        return Orders(
            controller_epoch=self.epoch,
            number=self.number,
            node="n",
            life=self.life,
            report=self.report.number if report is None else report,
            orders=orders,
        )

    def orders(self, *orders: Order) -> list[str]:
        return self.told(Ordered(orders=self.envelope(*orders)))

    def obeys(self, *orders: Order) -> list[str]:
        """The same, of a Controller whose epoch is written as soon as that is to be done."""
        said = self.orders(*orders)
        writes = [words for words in said if words.startswith("write epoch")]
        for words in writes:
            said = self.done(words)
        return said

    def done(self, words: str, result: Served | None = None) -> list[str]:
        """What was said has ended well. ``result``: by default what was wanted."""
        work = self.in_flight.pop(words)
        if isinstance(work, StartLog) and result is None:
            result = served(work.log, work.directory_id, work.config_version, config=work.config)
        return self.told(Finished(token=work.token, result=result))

    def failed(self, words: str, error: RaylogError) -> list[str]:
        return self.told(Finished(token=self.in_flight.pop(words).token, error=error))

    def later(self, ms: int) -> list[str]:
        """Time passes, without a word from anybody."""
        self.now_ms += ms
        return self.told(Tick())

    # -- what it shows -----------------------------------------------------------------------------

    @property
    def report(self) -> Report:
        return self.reports[-1]

    @property
    def logs(self) -> list[str]:
        return sorted(shown(log) for log in self.report.logs)


def serving(*dirs: str, config: Mapping[str, str | int] | None = None) -> Node:
    """A node that serves ORDERS from its first dir, as its Controller of epoch 1 wants it."""
    node = Node(*dirs, folders=[folder(ORDERS, dirs[0])], config=config)
    node.obeys(serve(ORDERS, dirs[0]))
    node.done(f"start orders-0 of old in {dirs[0]} with config 1, first")
    return node
