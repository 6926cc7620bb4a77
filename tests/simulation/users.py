"""Users of a simulated cluster: they ask for anything, and remember what they were answered."""

from typing import TYPE_CHECKING

from raylog.actors.errors import TooManyPartitions
from raylog.cluster.controller.commands import (
    AddPartitions,
    AllocateProducerId,
    AlterTopic,
    ApplyConfig,
    CancelMove,
    Command,
    CreateTopic,
    DeleteTopic,
    DrainNode,
    LogDirOnline,
    MovePartition,
    StartNode,
    StopNode,
)
from raylog.cluster.controller.instructions import Altered, Answer, Applied
from raylog.storage.errors import DiskFull, LogDirOffline
from raylog.storage.names import TopicPartition
from tests.simulation.disks import sim_id
from tests.simulation.invariants import expect
from tests.simulation.metadata_disk import PATH, SNAPSHOT_BYTES

if TYPE_CHECKING:
    from tests.simulation.controllers import SimController
    from tests.simulation.world import World

NAMES = ("a", "b", "c", "d")
ASK_MS = 3_000
MANY_PARTITIONS = 100
# A producer id takes no longer: each of four copies that fall silent one after the other holds up
# what is written for 12 s, and what was asked before comes first. A node is calm where nothing was
# wrong for so long.
ID_MS, CALM_MS = 60_000, 20_000
# How long a node is stopped at the most.
STOPPED_MS = 60_000
ROUND_MS = 5_000  # of retention, as the broker is started with
RETENTIONS = (-1, 3_600_000, 60_000)


class Users:
    """They ask until they are told that it is over."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = world.clockwork.chance
        self._requests = 0
        self._asked: dict[int, tuple[Command, SimController]] = {}
        self._asked_ms: dict[int, int] = {}
        self.are_over = False
        # This one stays as it is at the end.
        self.kept_stopped = {self._chance.choice(world.nodes).key}

    def begin(self) -> None:
        self._world.clockwork.soon(self._ask, most_ms=ASK_MS)

    def _ask(self) -> None:
        if self.are_over:
            return
        if self._chance.random() < 0.05:
            self._world.metadata.back_up()
        self.ask(self._choose())
        self.begin()

    def ask(self, command: Command) -> None:
        controller = self._world.controller
        if controller is None:
            return
        self._requests += 1
        self._asked[self._requests] = (command, controller)
        self._asked_ms[self._requests] = self._world.clockwork.now_ms
        controller.ask(self._requests, command)

    def _choose(self) -> Command:
        chance, name = self._chance, self._chance.choice(NAMES)
        match chance.randint(0, 11):
            case 0 | 1:
                self._requests += 1
                return CreateTopic(
                    name=name,
                    topic_id=sim_id(f"{name}{self._requests}"),
                    partitions=self._some_partitions(),
                )
            case 2:
                return DeleteTopic(name=name)
            case 3:
                return AddPartitions(name=name, total=chance.randint(2, 6))
            case 4 | 5:
                return AlterTopic(name=name, changes={"retention.ms": chance.choice(RETENTIONS)})
            case 6:
                return self.some_move() or AllocateProducerId()
            case 7:
                return CancelMove(name=name, number=chance.randint(0, 2))
            case 8:
                dir = chance.choice(chance.choice(self._world.nodes).dirs)
                return LogDirOnline(log_dir=dir.directory_id)
            case 9:
                return self._some_operation()
            case 10:
                return self._some_config()
            case _:
                return AllocateProducerId()

    def _some_config(self) -> ApplyConfig:
        """Of the broker; a few need a new LogManager on each node."""
        config: dict[str, object] = {
            "log.retention.check.interval.ms": ROUND_MS,
            "log.retention.ms": self._chance.choice(RETENTIONS),
            SNAPSHOT_BYTES: self._world.snapshot_bytes,
        }
        if self._chance.random() < 0.3:
            config["producer.id.expiration.ms"] = self._chance.choice((1_000, 2_000))
        return ApplyConfig(config=config)

    def _some_partitions(self) -> int:
        """A few; more than there can be only where nodes are small."""
        if self._world.are_nodes_small and self._chance.random() < 0.2:
            return MANY_PARTITIONS
        return self._chance.randint(1, 4)

    def some_move(self) -> MovePartition | None:
        """Of a partition that there is, to a log dir of its node."""
        desired = self._world.truth.desired
        logs = [log for log, record in desired.partitions.items() if record.directory is not None]
        if not logs:
            return None
        log = self._chance.choice(logs)
        here = desired.partitions[log].directory
        nodes = self._world.nodes
        dirs = next(n.dirs for n in nodes if here in [dir.directory_id for dir in n.dirs])
        target = self._chance.choice(dirs).directory_id
        return MovePartition(
            name=log.partition.topic, number=log.partition.partition, log_dir=target
        )

    def _some_operation(self) -> Command:
        """Of a node; each is started again after a while, or at the end."""
        chance, node = self._chance, self._chance.choice(self._world.nodes).key
        match chance.randint(0, 4):
            case 0:
                return DrainNode(node=node, is_undone=chance.random() < 0.3)
            case 1 | 2:
                start = StartNode(node=node)
                self._world.clockwork.after(
                    chance.randint(100, STOPPED_MS), lambda: self.ask(start)
                )
                return StopNode(node=node)
            case _:
                return StartNode(node=node)

    def bring_nodes_online(self) -> None:
        """The maintenance of most nodes is over; the operator looks again whether they are used."""
        for record in list(self._world.truth.desired.nodes.values()):
            if record.state != "online" and record.key not in self.kept_stopped:
                self.ask(StartNode(node=record.key))
        self._world.clockwork.after(20_000, self.bring_nodes_online)

    def create_everywhere(self) -> None:
        """Ask for a topic with a partition on about every node."""
        self._requests += 1
        taken = {topic.name for topic in self._world.truth.desired.topics.values()}
        name = self._chance.choice([name for name in NAMES if name not in taken] or NAMES)
        topic_id = sim_id(f"{name}{self._requests}")
        self.ask(CreateTopic(name=name, topic_id=topic_id, partitions=len(self._world.nodes)))

    def alter_all(self) -> None:
        """Alter each topic that there is."""
        for topic in list(self._world.truth.desired.topics.values()):
            changes = {"retention.ms": self._chance.choice(RETENTIONS)}
            self.ask(AlterTopic(name=topic.name, changes=changes))

    def bring_dirs_online(self) -> None:
        """The operator has looked at every disk, and now and then looks which dirs are offline."""
        for record in list(self._world.truth.desired.dirs.values()):
            if record.state == "offline":
                self.ask(LogDirOnline(log_dir=record.directory_id))
        for report in self._world.truth.reports.values():
            for dir in report.dirs:
                if dir.directory_id is None:
                    self._start_again(dir.path)
        self._world.clockwork.after(20_000, self.bring_dirs_online)

    # -- answers -----------------------------------------------------------------------------------

    def hear(self, answer: Answer) -> None:
        command, controller = self._asked.pop(answer.request)
        asked_ms = self._asked_ms.pop(answer.request)
        self._check_time(command, max(asked_ms, controller.trouble_ms))
        is_creation = isinstance(command, CreateTopic | AddPartitions)
        if is_creation and isinstance(answer.error, DiskFull) and answer.error.path != PATH:
            # A Controller that was paused meanwhile decides by reports that waited for it.
            roomy = self._world.nodes_with_room(asked_ms - CALM_MS)
            expect(not roomy, f"{command} is refused, since a disk is full; {roomy} have room")
        if isinstance(command, LogDirOnline) and isinstance(answer.error, LogDirOffline):
            self._start_again(answer.error.path)
        truth = self._world.truth
        kind = type(command).__name__
        truth.situations[f"{kind}: {'refused' if answer.error else 'done'}"] += 1
        if isinstance(answer.error, TooManyPartitions):
            truth.situations["TooManyPartitions"] += 1
        if isinstance(command, AllocateProducerId) and isinstance(answer.value, int):
            self._take_id(answer.value)
        if isinstance(answer.value, Altered):
            self._altered(answer.value)
        if isinstance(answer.value, Applied):
            self._applied(answer.value)

    def _start_again(self, path: str) -> None:
        """Only the next start of its node looks at a log dir again that nobody could read."""
        for node in self._world.nodes:
            if any(dir.path == path for dir in node.dirs) and self.are_over and node.is_up:
                self._world.truth.situations["started again for a log dir"] += 1
                self._world.node_goes(node)
                self._world.node_comes(node)

    def _take_id(self, producer_id: int) -> None:
        """Each is given once. One exception is known: the metadata is rolled back while every node
        hangs that has the epoch of the lost records; so most nodes have to be well after that."""
        world = self._world
        since_ms = world.clockwork.now_ms - CALM_MS
        calm = [node for node in world.nodes if node.is_calm(since_ms)]
        if not world.metadata.was_restored or 2 * len(calm) > len(world.nodes):
            world.truth.producer_id(producer_id)

    def _check_time(self, command: Command, since_ms: int) -> None:
        """Ids need no node in particular: none that hangs may hold them up for long."""
        took_ms = self._world.clockwork.now_ms - since_ms
        if isinstance(command, AllocateProducerId) and not self._world.are_links_late:
            expect(took_ms <= ID_MS, f"a producer id took {took_ms} ms")

    def _altered(self, altered: Altered) -> None:
        """From now on nothing is removed under an older version, also where one is behind: the
        right to that has run out."""
        topic = altered.topic
        answered = self._world.truth.answered
        answered[topic.topic_id] = max(topic.version, answered.get(topic.topic_id, 0))

    def _applied(self, applied: Applied) -> None:
        """The same for every topic that there was when the config was written."""
        truth = self._world.truth
        for topic in truth.desired.topics.values():
            if applied.version <= truth.desired.config_version(topic.topic_id):
                before = truth.answered.get(topic.topic_id, 0)
                truth.answered[topic.topic_id] = max(applied.version, before)

    def are_asking_for_dir(self, directory_id: str) -> bool:
        """Whether somebody has asked to use a log dir again, and has no answer yet."""
        asked = [command for command, _ in self._asked.values()]
        return any(
            isinstance(command, LogDirOnline) and command.log_dir == directory_id
            for command in asked
        )

    def unanswered(self) -> list[str]:
        """Requests that a Controller has, which lives, and has not answered."""
        return [
            f"request {number} ({type(command).__name__}) has no answer"
            for number, (command, controller) in self._asked.items()
            if controller is self._world.controller and not self._is_hopeless(command)
        ]

    def _is_hopeless(self, command: Command) -> bool:
        """A move waits until its log is served, which nobody does whose folder has no identity, and
        a start until the logs are open."""
        if isinstance(command, StartNode):
            desired = self._world.truth.desired
            records = [desired.partitions[log] for log in desired.logs_at(command.node)]
            return any(map(self._world.is_unservable, records))
        if not isinstance(command, MovePartition):
            return False
        folders = [
            node.disks.find(dir, TopicPartition(command.name, command.number))
            for node in self._world.nodes
            for dir in node.dirs
        ]
        return any(folder is not None and folder.read_id is None for folder in folders)
