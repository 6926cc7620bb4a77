"""The Controller's machine on a stage: events in, and what it wants done as lines to read.

::

    append: topic t v1.0, t-0 creating at a      records; ``play.appended()`` says that it is done
                                                 (v1.0: the first config version of epoch 1)
    tell a: create t-0                           orders; ``play.obeys("a")`` has the node do them
    tell a: -                                    orders without any: what it reports is confirmed
    answer 1: t                                  or ``answer 1: DiskFull``
    start a                                      have a LogManager run there
    note in-charge
    make the reserve                             of the metadata; ``play.makes_reserve()``
    make a snapshot of 7                         of so many records; ``play.makes_snapshot()``
    push b 3-5                                   the records 3 and 4; ``play.keeps("b")``. Shown of
                                                 nodes in ``play.followed``, as are
    probe b                                      pushes without records
    am I the Controller?                         ``play.says_whether(True)``
    am I the Controller? a copy is left out      the same
    am I the Controller? no copy is left out     the same: none was since that was asked
"""

from collections.abc import Callable
from typing import Any

from raylog.actors.control import (
    Create,
    End,
    KeepOut,
    Move,
    ObeyConfig,
    Order,
    Orders,
    ReadBack,
    Remove,
    Serve,
    SetAside,
    Stop,
)
from raylog.actors.levels import LEVELS
from raylog.actors.metadata_history import HistoryPoint, MetadataHistory
from raylog.actors.metadata_snapshot import MetadataSnapshot, to_bytes
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.metadata_copy import MetadataCopy
from raylog.cluster.controller.commands import Command, CreateTopic
from raylog.cluster.controller.desired import VERSION_SHIFT, Desired
from raylog.cluster.controller.events import (
    Appended,
    AppendFailed,
    Asked,
    Event,
    Kept,
    NodesSeen,
    PushFailed,
    Reported,
    ReserveMade,
    SnapshotDamaged,
    SnapshotMade,
    Started,
    Stopping,
    Tick,
    Whether,
)
from raylog.cluster.controller.instructions import (
    Altered,
    Answer,
    Append,
    Applied,
    AskWhether,
    Instruction,
    MakeReserve,
    MakeSnapshot,
    Note,
    Push,
    StartManager,
    Tell,
)
from raylog.cluster.controller.machine import ControllerMachine
from raylog.cluster.controller.pushing import LACKS_SNAPSHOT, message_of
from raylog.cluster.controller.records import (
    BrokerConfigRecord,
    ControllerRecord,
    CopiesRecord,
    DirRecord,
    LevelRecord,
    NodeRecord,
    PartitionRecord,
    PartitionRemovedRecord,
    ProducerIdsRecord,
    Record,
    StoppedRecord,
    TopicRecord,
    TopicRemovedRecord,
    decode,
    encode,
)
from raylog.cluster.controller.snapshots import desired_of, snapshot_of
from raylog.storage.errors import CorruptCheckpoint, DiskFull, RaylogError
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.clock import T0, ManualClock
from raylog.storage.testing.memory import MemoryFileSystem
from tests.harness.control_nodes import PerfectNode

TICK_MS = 1_000
CLUSTER = ""  # of the metadata in plays: nobody has given it an id


class Play:
    """A Controller, its disk, its nodes, and what is on the way between them."""

    def __init__(self, *nodes: PerfectNode) -> None:
        self.nodes = {node.key: node for node in nodes}
        self.disk: list[bytes] = []
        self.batches: list[tuple[int, bytes]] = []  # on the disk: first record, and its bytes
        self.snapshots: list[MetadataSnapshot] = []  # the last two
        self.damaged: list[MetadataSnapshot] = []  # of these
        self.followed: set[str] = set()  # nodes whose copies of the metadata take part
        self.copies: dict[str, MetadataCopy] = {}
        self.config, self.start_id = BrokerConfig(), "start-1"  # as the broker was started
        self.now_ms = 0
        self.request = 0
        self.answers: dict[int, Answer] = {}
        self.silent: set[str] = set()  # nodes that hang
        self.away: set[str] = set()  # nodes that are not in the Ray cluster
        self.levels = LEVELS  # that the raylog of the next Controller knows
        self.begin()

    def begin(
        self,
        *,
        accepts_older: bool = False,
        least_epoch: int = -1,
        damaged_snapshots: tuple[str, ...] = (),
    ) -> None:
        """A new Controller reads the disk; what was on the way to and from the old one is lost.

        ``accepts_older``: it may be older metadata, as somebody has said. ``least_epoch``: of its
        own node's log dirs.
        """
        self.machine = ControllerMachine(self.config, self.start_id, self.levels)
        self.mail: dict[str, Orders] = {}
        self.pushes: dict[str, Push] = {}
        self.is_asking = False
        self.appending: Append | None = None
        self.is_reserve_wanted = False
        self.saving: MakeSnapshot | None = None
        desired, history = Desired(), MetadataHistory()
        if self.snapshots:
            newest = self.snapshots[-1]
            desired = desired_of(newest, self.levels)
            history = MetadataHistory(begin=newest.point)
        for value in self.disk[history.start :]:
            desired.apply(decode(value, self.levels))
            history.add(value)
        self.does(
            Started(
                desired=desired,
                node="a",
                folder="/metadata",
                least_epoch=least_epoch,
                accepts_older=accepts_older,
                history=history,
                directory_id="a1",
                damaged_snapshots=damaged_snapshots,
            )
        )

    # -- one event ---------------------------------------------------------------------------------

    def does(self, event: Event) -> list[str]:
        """What the machine wants done after an event."""
        instructions = self.machine.handle(event, self.now_ms)
        self.machine.validate()
        for instruction in instructions:
            self._take(instruction)
        shown = self.followed
        return [
            told(instruction)
            for instruction in instructions
            if not isinstance(instruction, Push) or instruction.node in shown
        ]

    def _take(self, instruction: Instruction) -> None:
        match instruction:
            case Append():
                assert self.appending is None, "two appends at once"
                self.appending = instruction
            case Tell():
                self.mail[instruction.node] = instruction.orders
            case Push():
                self.pushes[instruction.node] = instruction
            case AskWhether():
                assert not self.is_asking, "it is asked already"
                self.is_asking = True
            case StartManager():
                if self.nodes[instruction.node].ended:
                    if self.nodes[instruction.node].config is not None:
                        self.nodes[instruction.node].config = self.machine.config
                    self.nodes[instruction.node].restart()
            case MakeReserve():
                assert not self.is_reserve_wanted, "it is made already"
                self.is_reserve_wanted = True
            case MakeSnapshot():
                assert self.saving is None, "two snapshots at once"
                assert self.appending is None, "a snapshot of records that are not written"
                self.saving = instruction
            case Answer():
                assert instruction.request not in self.answers, "answered twice"
                self.answers[instruction.request] = instruction

    def asks(self, command: Command) -> list[str]:
        """The next request; the first one is 1."""
        self.request += 1
        return self.does(Asked(request=self.request, command=command))

    def appended(self, shortage: DiskFull | None = None) -> list[str]:
        """``shortage``: why the reserve was given up for it."""
        append = self.appending
        assert append is not None, "nothing is being appended"
        self.appending = None
        self._write(append)
        assert shortage is None or append.may_use_reserve, "it may not use the reserve"
        return self.does(Appended(token=append.token, shortage=shortage))

    def _write(self, append: Append) -> None:
        values = [encode(record) for record in append.records]
        rows = [(T0, None, value, ()) for value in values]
        batch = bytes(encode_records(rows, base_offset=len(self.disk)))
        self.batches.append((len(self.disk), batch))
        self.disk += values

    def keeps(self, key: str) -> list[str]:
        """The node's copy takes the push that is on the way, and answers."""
        push = self.pushes.pop(key)
        found: list[SnapshotDamaged] = []
        message = message_of(push, CLUSTER, PlayLog(self), found.append)
        lines = [line for event in found for line in self.does(event)]
        if message is None:
            return lines + self.does(PushFailed(token=push.token, node=key, why=LACKS_SNAPSHOT))
        kept = self.copy_of(key).take(message)
        return lines + self.does(Kept(token=push.token, node=key, kept=kept))

    def push_fails(self, key: str) -> list[str]:
        """The push is not answered."""
        push = self.pushes.pop(key)
        return self.does(PushFailed(token=push.token, node=key, why="no answer"))

    def copy_of(self, key: str) -> MetadataCopy:
        """The copy of a node: in memory, in its first log dir."""
        if key not in self.copies:
            self.copy_begins(key, f"{key}1")
        return self.copies[key]

    def copy_begins(self, key: str, directory_id: str) -> None:
        """A node has its copy in this log dir from now on, and nothing of it yet."""
        self.copies[key] = MetadataCopy(
            MemoryFileSystem(),
            ManualClock(),
            "/disk",
            cluster_id=CLUSTER,
            node=key,
            life=self.nodes[key].report().life,
            directory_id=directory_id,
        )

    def says_whether(self, is_still: bool | None) -> list[str]:
        """Ray says whether this is still the Controller; None: it does not answer."""
        assert self.is_asking, "nobody asks"
        self.is_asking = False
        return self.does(Whether(is_still=is_still))

    def stops(self) -> list[str]:
        """Somebody stops the broker in order."""
        return self.does(Stopping())

    def has_stopped(self) -> bool:
        """Whether the disk says that the broker was stopped in order."""
        return bool(self.disk) and decode(self.disk[-1]) == StoppedRecord()

    def loses(self, records: int) -> None:
        """The Controller's disk is rolled back: the last records are gone."""
        del self.disk[-records:]
        self.batches = [entry for entry in self.batches if entry[0] < len(self.disk)]

    def append_fails(self, error: RaylogError, *, is_written: bool = False) -> list[str]:
        """``is_written``: the records are on the disk all the same."""
        append = self.appending
        assert append is not None, "nothing is being appended"
        self.appending = None
        if is_written:
            self._write(append)
        return self.does(AppendFailed(token=append.token, error=error))

    def makes_reserve(self, problem: RaylogError | None = None) -> list[str]:
        """The metadata's reserve is whole, or ``problem``."""
        assert self.is_reserve_wanted, "nobody wants it"
        self.is_reserve_wanted = False
        return self.does(ReserveMade(problem=problem))

    def makes_snapshot(
        self, problem: RaylogError | None = None, damaged: tuple[str, ...] = ()
    ) -> list[str]:
        """The snapshot is saved, or ``problem``. ``damaged``: others that lie there."""
        wanted, self.saving = self.saving, None
        assert wanted is not None, "nobody wants it"
        if problem is None:
            made = snapshot_of(wanted.desired, wanted.point)
            before = self.snapshots[-1:]
            if before and before[0].id == made.id:
                before = self.snapshots[:-1]  # the file is written anew
            self.snapshots = [*before, made]
            self.damaged = [each for each in self.damaged if each in before]
            damaged = damaged or tuple(each.id.file_name for each in self.damaged)
        return self.does(SnapshotMade(problem=problem, damaged=damaged))

    def sees(self) -> list[str]:
        """Ray tells which nodes are there."""
        present = sorted(set(self.nodes) - self.away)
        names = [name for key in present for name in self.nodes[key].actors()]
        nodes = {key: f"ray-{key}" for key in present}
        return self.does(NodesSeen(nodes=nodes, actors=frozenset(names)))

    def reports(self, key: str) -> list[str]:
        return self.does(Reported(report=self.nodes[key].report()))

    def obeys(self, key: str) -> list[str]:
        """The node does what it was told last, and reports."""
        self.nodes[key].obey(self.mail.pop(key))
        return self.reports(key)

    def passes(self, ms: int = TICK_MS) -> list[str]:
        """Time passes."""
        self.now_ms += ms
        return self.does(Tick())

    # -- many events -------------------------------------------------------------------------------

    def settle(self, ms: int = 3_000) -> None:
        """Everything that can happen does, for a while; silent nodes do nothing."""
        end_ms = self.now_ms + ms
        tick_ms = max(TICK_MS, ms // 100)
        self.sees()
        while True:
            self._flow()
            if self.now_ms >= end_ms:
                return
            self.passes(min(tick_ms, end_ms - self.now_ms))
            if any(node.ended for node in self.nodes.values()):
                self.sees()
            for key in sorted(set(self.nodes) - self.silent - self.away):
                self.reports(key)

    def settle_node(self, key: str) -> None:
        """Records reach the disk, and this node does what it is told; the others hear nothing."""
        self.reports(key)
        while self.appending is not None or key in self.mail:
            if self.appending is not None:
                self.appended()
            else:
                self.obeys(key)

    def _flow(self) -> None:
        """What is on the way arrives, until nothing is."""
        while True:
            ready = sorted(set(self.mail) - self.silent - self.away)
            if self.appending is not None:
                self.appended()
            elif self.is_reserve_wanted:
                self.makes_reserve()
            elif self.saving is not None:
                self.makes_snapshot()
            elif ready:
                self.obeys(ready[0])
            elif pushed := self._pushed():
                self.keeps(pushed)
            elif self.is_asking:
                self.says_whether(True)
            else:
                return

    def _pushed(self) -> str:
        """A node whose copy can take a push."""
        ready = (set(self.pushes) & self.followed) - self.silent - self.away
        return min(ready, default="")

    def until(self, is_so: Callable[[], bool]) -> None:
        """As ``settle``, one event after the other, and not beyond what is waited for."""
        self.sees()
        for _ in range(1_000):
            if is_so():
                return
            ready = sorted(set(self.mail) - self.silent - self.away)
            if self.appending is not None:
                self.appended()
            elif ready:
                self.obeys(ready[0])
            elif pushed := self._pushed():
                self.keeps(pushed)
            else:
                self.passes()
                for key in sorted(set(self.nodes) - self.silent - self.away):
                    self.reports(key)
        raise AssertionError("it never came to that")

    # -- shortcuts ---------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, **config: Any) -> None:
        """A topic, whose partitions serve; its id is ``id-<name>``, or another if that is used."""
        keys = {key.replace("_", "."): value for key, value in config.items()}
        topic_id = f"id-{name}"
        while self.desired.logs_of(topic_id):
            topic_id += "-again"
        self.asks(CreateTopic(name=name, topic_id=topic_id, partitions=partitions, config=keys))
        self.settle()
        assert self.answer is not None
        assert self.answer.error is None, self.answer.error

    @property
    def answer(self) -> Answer | None:
        """The answer to the last request."""
        return self.answers.get(self.request)

    @property
    def desired(self) -> Desired:
        return self.machine.desired

    def states(self) -> dict[str, str]:
        """What shall be of each partition."""
        return {
            str(log.partition): partition_line(record)
            for log, record in self.desired.partitions.items()
        }


class PlayLog:
    """The disk of a play, as pushes read it (``pushing.BatchLog``)."""

    def __init__(self, play: Play) -> None:
        self._play = play

    def batches(self, first: int, end: int, most_bytes: int) -> tuple[bytes, ...]:
        return tuple(batch for base, batch in self._play.batches if first <= base < end)

    @property
    def start(self) -> int:
        return self._play.snapshots[0].point.end if len(self._play.snapshots) > 1 else 0

    @property
    def newest(self) -> HistoryPoint | None:
        return self._play.snapshots[-1].point if self._play.snapshots else None

    def snapshot_file(self, of: HistoryPoint) -> bytes:
        wanted = next(each for each in self._play.snapshots if each.point == of)
        if any(each is wanted for each in self._play.damaged):
            raise CorruptCheckpoint(wanted.id.file_name, "a record batch of it is damaged")
        return to_bytes(wanted, T0)


def begun(*nodes: PerfectNode, accepts_older: bool = False) -> Play:
    """A Controller that all nodes obey, and that has nothing to do."""
    play = Play(*nodes)
    play.begin(accepts_older=accepts_older)
    play.settle()
    return play


# -- as lines --------------------------------------------------------------------------------------


def told(instruction: Instruction) -> str:
    match instruction:
        case Append():
            return "append: " + ", ".join(record_line(record) for record in instruction.records)
        case Tell():
            lines = [order_line(order) for order in instruction.orders.orders]
            return f"tell {instruction.node}: {', '.join(lines) or '-'}"
        case Answer():
            return f"answer {instruction.request}: {answer_line(instruction)}"
        case StartManager():
            return f"start {instruction.node}"
        case Note():
            return f"note {instruction.name}"
        case MakeReserve():
            return "make the reserve"
        case MakeSnapshot():
            return f"make a snapshot of {instruction.point.end}"
        case Push():
            is_probe = instruction.base == instruction.end
            span = f"{instruction.base}-{instruction.end}"
            return f"probe {instruction.node}" if is_probe else f"push {instruction.node} {span}"
        case AskWhether(leaves_out=True):
            return "am I the Controller? a copy is left out"
        case AskWhether(copies_at=None):
            return "am I the Controller?"
        case AskWhether():
            return "am I the Controller? no copy is left out"


def order_line(order: Order) -> str:
    match order:
        case Create():
            return f"create {order.log.partition}"
        case Serve():
            where = f"{order.log.partition} in {order.directory_id}"
            return f"serve {where} {version_line(order.config_version)}"
        case Move():
            return f"move {order.log.partition} from {order.directory_id} to {order.target_id}"
        case Remove():
            return f"remove {order.log.partition}"
        case End():
            return f"end {order.log.partition}"
        case SetAside():
            return f"set aside {order.partition} in {order.directory_id}"
        case ReadBack():
            return f"read back {order.directory_id}"
        case KeepOut():
            return f"keep out {order.directory_id}{', in order' * order.in_order}"
        case Stop():
            return "stop"
        case ObeyConfig():
            return "obey the config"


def record_line(record: Record) -> str:
    match record:
        case ControllerRecord():
            return f"controller {record.epoch}"
        case NodeRecord():
            return f"node {record.key}" + ("" if record.state == "online" else f" {record.state}")
        case DirRecord():
            return f"dir {record.directory_id} {record.state} at {record.node}"
        case TopicRecord():
            return f"topic {record.name} {version_line(record.version)}"
        case PartitionRecord():
            return f"{record.log.partition} {partition_line(record)}"
        case PartitionRemovedRecord():
            return f"{record.log.partition} removed"
        case TopicRemovedRecord():
            return f"topic removed {record.topic_id}"
        case ProducerIdsRecord():
            return f"ids of {record.epoch}"
        case CopiesRecord():
            return f"copies at {' '.join(record.nodes)}"
        case BrokerConfigRecord():
            return f"config {version_line(record.version)}"
        case StoppedRecord():
            return "stopped"
        case LevelRecord():
            return f"level {record.level}"
    return str(record)


def version_line(version: int) -> str:
    """A config version: the epoch in which it was made, and how many of it were before."""
    epoch, count = divmod(version, 1 << VERSION_SHIFT)
    return f"v{epoch}.{count}"


def partition_line(record: PartitionRecord) -> str:
    place = f"in {record.directory}" if record.directory else f"at {record.node}"
    target = f" to {record.target}" if record.target else ""
    return f"{record.state} {place}{target}"


def answer_line(answer: Answer) -> str:
    value = answer.value
    if answer.error is not None:
        return type(answer.error).__name__
    if isinstance(value, TopicRecord):
        return value.name
    if isinstance(value, Altered):
        behind = ", ".join(str(entry.partition) for entry in value.behind)
        altered = f"{value.topic.name} {version_line(value.topic.version)}"
        return altered + (f" but {behind}" if behind else "")
    if isinstance(value, Applied):
        changed = ", ".join(f"{change.key} {change.how}" for change in value.changes) or "nothing"
        return changed + (f" but {', '.join(sorted(value.behind))}" if value.behind else "")
    if isinstance(value, PartitionRecord | DirRecord | NodeRecord):
        return record_line(value)
    return str(value)
