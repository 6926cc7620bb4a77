"""A LogActor without Ray: its process, its LogManager and its disk are in memory."""

from collections.abc import Callable
from typing import Any

from raylog.actors.cluster_image import Endpoint
from raylog.actors.control import Confirmed, LogId
from raylog.actors.errors import NotLeader
from raylog.actors.messages import OpeningReport, PartitionOffsets
from raylog.actors.metrics import Exporter
from raylog.actors.node_messages import LogOrder, LogSays
from raylog.actors.partition.living import LivingLog
from raylog.actors.partition.log_actor import LogActorImpl
from raylog.actors.partition.log_opening import OpenedLog
from raylog.actors.partition.partition import Partition
from raylog.actors.partition.spec import LogSpec
from raylog.storage.config import LogConfig
from raylog.storage.errors import StorageError
from raylog.storage.report import Progress
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.logs import FOLDER, PARTITION, TOPIC_ID, Disk

LOG = LogId(partition=PARTITION, topic_id=TOPIC_ID)
SPEC = LogSpec(
    log=LOG,
    directory_id="dir",
    folder=FOLDER,
    config=LogConfig(retention_ms=1),
    config_version=1,
    controller_epoch=3,
    producer_expiration=ProducerExpiration(1000),
    node="n1",
)


def order_of(config_version: int, **fields: Any) -> LogOrder:
    """An order for the log of ``SPEC``."""
    given = {
        "log": LOG,
        "directory_id": "dir",
        "config": LogConfig(retention_ms=-1),
        "controller_epoch": 3,
        **fields,
    }
    return LogOrder(config_version=config_version, **given)


def right_of(config_version: int, until_ms: int = 10**12) -> Confirmed:
    """The right to remove records of the log of ``SPEC``."""
    return Confirmed(log=LOG, config_version=config_version, until_ms=until_ms)


class FakeProcess:
    """A process whose threads run when they are told to: ``run``. The upkeep's never does."""

    node_id = "here"

    def __init__(self, *, is_restart: bool) -> None:
        self.is_restart, self.host = is_restart, "10.0.0.7"
        self.places: list[Exception] = []  # what the next looks at the node's label raise
        self.waiting: dict[str, Callable[[], None]] = {}
        self.ended_for_good = 0
        self.ended = 0

    def check_alone(self) -> None:
        if self.places:
            raise self.places.pop(0)

    def spawn(self, name: str, work: Callable[[], None]) -> None:
        if name != "upkeep":
            self.waiting[name] = work

    def run(self) -> None:
        """Run the threads that wait, and those that they begin, until none is left."""
        while self.waiting:
            _, work = self.waiting.popitem()
            work()

    def end_actor(self) -> None:
        self.ended_for_good += 1

    def end(self) -> None:
        self.ended += 1


class FakeManager:
    """A LogManager as its LogActor sees it."""

    def __init__(self) -> None:
        self.answer: LogOrder | Exception = NotLeader("LogManager:n1", "it hangs")
        self.rights: list[Confirmed | None] = []
        self.asked = 0
        self.known_endpoint: Endpoint | None = None
        self.hears = True
        self.is_away = False  # for what begins a log
        self.said: list[LogSays] = []  # by itself
        self.starts: list[int] = []  # the log start offsets that it has written down
        self.reports: list[tuple[StorageError, bool]] = []  # the error, and whether it is loud

    def order(self, timeout_s: float) -> LogOrder:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def confirmed(self) -> Confirmed | None:
        return self.rights.pop(0) if len(self.rights) > 1 else self.rights[0]

    def endpoint(self) -> Endpoint | None:
        return self.known_endpoint

    def record_log_start(self, offsets: PartitionOffsets) -> None:
        if self.is_away:
            raise NotLeader("LogManager:n1", "it is not running")
        self.starts.append(offsets.log_start_offset)

    def say(self, says: LogSays) -> None:
        self.said.append(says)

    def report(self, error: StorageError, *, is_loud: bool = True) -> bool:
        self.reports.append((error, is_loud))
        return self.hears

    def tell_progress(self, progress: Progress | None) -> None:
        raise AssertionError("nothing is recovered here")


class FakeSockets:
    """Sockets that listen at the port that they are told."""

    def __init__(self) -> None:
        self.port = 0
        self.partition: Partition | None = None
        self.remove: Callable[[int], int] = lambda _: -1
        self.fail: Callable[[BaseException], object] = lambda _: None
        self.is_closed, self.exports = False, 0

    def begin(
        self,
        partition: Partition,
        remove: Callable[[int], int],
        on_failure: Callable[[BaseException], object],
    ) -> None:
        self.partition, self.remove, self.fail = partition, remove, on_failure

    def keep_up(self, ask: Callable[[], Endpoint | None]) -> None:
        endpoint = None if self.port or self.partition is None else ask()
        if endpoint is not None:
            self.port = endpoint.port

    @property
    def is_everywhere(self) -> bool:
        return self.port > 0

    def open_inner(self, host: str) -> tuple[int, str]:
        return 4001, f"the token at {host}"

    def export(self, exporter: Exporter) -> None:
        self.exports += 1

    def close(self) -> None:
        self.is_closed = True


class FakeLogActor:
    """A LogActor that has begun, but of which no thread has run yet.

    ``problem``: what opening the log raises. ``opened``: the specs that it was opened with.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        is_restart: bool = False,
        spec: LogSpec = SPEC,
        open_partition: Callable[[LogSpec], Partition] | None = None,
    ) -> None:
        self.disk, self.manager = disk, FakeManager()
        self.process = FakeProcess(is_restart=is_restart)
        self.clock = ManualClock(0)
        self.problem: Exception | None = None
        self.opened: list[LogSpec] = []
        self.slept: list[float] = []
        self.sockets = FakeSockets()
        self._open_partition = open_partition or self._from_disk
        self.own = LivingLog(
            spec,
            self.process,
            self.manager,
            self.clock,
            self._open,
            Exporter(lambda _: _NoMetric()),
            self.slept.append,
            self.sockets,
        )
        self.impl = LogActorImpl(spec, self.own)

    def _from_disk(self, spec: LogSpec) -> Partition:
        return Partition(self.disk.open(), self.disk.clock, spec.config_version)

    def _open(self, spec: LogSpec, tell: object, *, is_restart: bool) -> OpenedLog:
        assert is_restart == self.process.is_restart
        self.opened.append(spec)
        if self.problem is not None:
            raise self.problem
        return OpenedLog(self._open_partition(spec), OpeningReport(), self.disk.fs.lock(FOLDER))

    def run(self) -> "FakeLogActor":
        """Run its threads, but for its upkeep."""
        self.process.run()
        return self

    def tick(self, after_ms: int = 10_000) -> None:
        """Let time pass, and its upkeep look."""
        self.clock.advance(after_ms)
        self.own.tick()
        self.process.run()


class _NoMetric:
    def inc(self, *_: object) -> None: ...
    def set(self, *_: object) -> None: ...
    def observe(self, *_: object) -> None: ...
