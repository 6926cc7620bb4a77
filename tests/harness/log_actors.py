"""LogActors of a test: a node that starts, asks and kills them, without Ray and without time."""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from raylog.actors.control import LogId
from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.messages import OpeningReport, PartitionOffsets
from raylog.actors.node.processes import LogProcess
from raylog.actors.node_messages import LifeState, LogOrder, LogSays
from raylog.actors.partition.spec import LogSpec
from raylog.storage.config import LogConfig
from raylog.storage.errors import RaylogError
from raylog.storage.log_dir import CheckpointedOffsets
from raylog.storage.names import TopicPartition

HERE, ELSEWHERE, AWAY = "node-here", "node-elsewhere", "node-away"
ORDERS = LogId(partition=TopicPartition("orders", 0), topic_id="id-orders")
OTHERS = LogId(partition=TopicPartition("others", 0), topic_id="id-others")
A, B = "dir-a", "dir-b"
OFFSETS = PartitionOffsets(log_start_offset=0, recovery_point=5, high_watermark=7, log_end_offset=7)


class QuickTimer:
    """A timer whose waits are over at once: its time goes on by what was to be waited."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now_s = 0.0

    def now_s(self) -> float:
        with self._lock:
            return self._now_s

    def wait(self, ended: threading.Event, seconds: float) -> bool:
        with self._lock:
            self._now_s += seconds
        return ended.is_set()


def says(log: LogId = ORDERS, state: LifeState = "serving", **more: object) -> LogSays:
    """What an actor of this node says. ``more``: other fields of LogSays."""
    facts: dict[str, object] = {
        "directory_id": A,
        "folder": folder_of(A, log.partition),
        "node_id": HERE,
        "config": LogConfig(),
        "config_version": 0,
        "offsets": OFFSETS if state == "serving" else None,
        **more,
    }
    return LogSays(log=log, state=state, **facts)  # type: ignore[arg-type]


def folder_of(directory_id: str, partition: TopicPartition) -> str:
    return f"/{directory_id}/{partition}"


@dataclass(slots=True)
class FakeLog:
    """An actor. It says ``states`` one after the other, the last again and again."""

    said: LogSays
    states: list[LifeState] = field(default_factory=lambda: ["serving"])
    is_silent: bool = False
    close_error: RaylogError | None = None

    def says(self) -> LogSays:
        if self.is_silent:
            raise RequestTimedOut(str(self.said.log.partition), 10_000)
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        offsets = OFFSETS if state == "serving" else None
        return replace(self.said, state=state, offsets=offsets)


class FakeLogActors:
    """See ``actors/node/log_actors.py``. ``made``: the specs of all that were started."""

    def __init__(self) -> None:
        self.living: dict[TopicPartition, FakeLog] = {}
        self.made: list[LogSpec] = []
        self.killed: list[TopicPartition] = []
        self.learned: list[LogOrder] = []
        self.rolled: list[TopicPartition] = []
        self.up = {HERE, ELSEWHERE}
        # How the next actors behave; none: they serve at once.
        self.next: list[Callable[[LogSpec], FakeLog]] = []
        # Those that do not end when they are killed.
        self.immortal: set[TopicPartition] = set()
        # Those whose process does not end by itself; and whether it waits for a disk.
        self.standing_still: set[TopicPartition] = set()
        self.waits_for_disk = False

    def outliving(self) -> "FakeLogActors":
        """These actors for the next LogManager, where the one before has died.

        That one is a dead process. What its threads still do in the test is done to others.
        """
        left = FakeLogActors()
        for partition, log in self.living.items():
            left.living[partition] = replace(log, states=list(log.states))
        return left

    def start(self, spec: LogSpec) -> None:
        if spec.partition in self.living:
            return
        self.made.append(spec)
        make = self.next.pop(0) if self.next else serving
        self.living[spec.partition] = make(spec)

    def says(self, partition: TopicPartition, timeout_s: float = 10.0) -> LogSays | None:
        log = self.living.get(partition)
        return None if log is None else log.says()

    def says_all(
        self, partitions: Collection[TopicPartition], timeout_s: float = 10.0
    ) -> Mapping[TopicPartition, LogSays | RaylogError | None]:
        answers: dict[TopicPartition, LogSays | RaylogError | None] = {}
        for partition in partitions:
            try:
                answers[partition] = self.says(partition)
            except RaylogError as error:
                answers[partition] = error
        return answers

    def learn(self, order: LogOrder) -> LogSays:
        self.learned.append(order)
        log = self._log(order.log.partition)
        if log.states[0] == "learning":
            log.states = ["opening", "serving"]
        return self._obey(log, order)

    def reconfigure(self, order: LogOrder) -> LogSays:
        return self._obey(self._log(order.log.partition), order)

    def _obey(self, log: FakeLog, order: LogOrder) -> LogSays:
        if order.config_version > log.said.config_version:
            log.said = replace(log.said, config=order.config, config_version=order.config_version)
        return log.says()

    def roll(self, partition: TopicPartition) -> None:
        self.rolled.append(partition)

    def close(self, partition: TopicPartition, timeout_s: float) -> PartitionOffsets:
        log = self._log(partition)
        if log.close_error is not None:
            raise log.close_error
        log.states = ["ended"]
        return OFFSETS

    def close_all(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, PartitionOffsets | RaylogError]:
        answers: dict[TopicPartition, PartitionOffsets | RaylogError] = {}
        for partition in partitions:
            try:
                answers[partition] = self.close(partition, timeout_s)
            except RaylogError as error:
                answers[partition] = error
        return answers

    def kill(self, partition: TopicPartition) -> None:
        self.killed.append(partition)
        if partition not in self.immortal:
            self.living.pop(partition, None)

    def is_there(self, partition: TopicPartition) -> bool:
        return partition in self.living

    def process(self, partition: TopicPartition) -> LogProcess | None:
        return LogProcess(4711, 1) if partition in self.standing_still else None

    def is_running(self, process: LogProcess) -> bool:
        return bool(self.standing_still)

    def end_at_once(self, process: LogProcess) -> None:
        if not self.waits_for_disk:
            self.standing_still.clear()

    def running(self) -> set[TopicPartition]:
        return set(self.living)

    def nodes(self) -> set[str]:
        return set(self.up)

    def _log(self, partition: TopicPartition) -> FakeLog:
        if partition not in self.living:
            raise NotLeader(str(partition), "its LogActor is not running")
        return self.living[partition]


def serving(spec: LogSpec) -> FakeLog:
    """An actor that opens its log at once."""
    return FakeLog(
        said=says(
            spec.log,
            directory_id=spec.directory_id,
            folder=spec.folder,
            config=spec.config,
            config_version=spec.config_version,
        )
    )


def through(*states: LifeState, **more: object) -> Callable[[LogSpec], FakeLog]:
    """An actor that says these states. ``more``: other fields of what it says."""

    def make(spec: LogSpec) -> FakeLog:
        log = serving(spec)
        log.states = list(states)
        log.said = replace(log.said, **more)  # type: ignore[arg-type]
        return log

    return make


class FakeDisk:
    """What the hands of LogActors need of the disks. ``calls``: what was recorded, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []

    def folder(self, directory_id: str, partition: TopicPartition) -> str:
        return folder_of(directory_id, partition)

    def checkpointed(self, directory_id: str, partition: TopicPartition) -> CheckpointedOffsets:
        return CheckpointedOffsets(3, 1, 4)

    def record_offsets(self, log: LogId, directory_id: str, offsets: PartitionOffsets) -> None:
        self.calls.append(("offsets", log))

    def settle_losses(self, log: LogId, directory_id: str, offsets: PartitionOffsets) -> None:
        self.calls.append(("losses", log))

    def began_opening(self, log: LogId, directory_id: str) -> None:
        self.calls.append(("began", log))

    def opened(self, directory_id: str, partition: TopicPartition) -> None:
        self.calls.append(("opened", partition))


NOTHING_LOST = OpeningReport()
