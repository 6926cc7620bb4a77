"""A connection over partitions on disks in memory, and a time that passes only in a wait.

For tests of consumers. A fetch that finds nothing waits in the connection, as in a LogActor, until
there is a record or its time is up.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from raylog.actors.errors import UnknownTopicId, UnknownTopicOrPartition
from raylog.actors.partition.partition import Partition
from raylog.cluster.client.connection import (
    FetchRequest,
    OffsetAnswer,
    OffsetRequest,
    PartitionMetadata,
    TopicMetadata,
)
from raylog.cluster.client.consumer.consumer import Consumer
from raylog.cluster.client.consumer.waiter import Waiter
from raylog.storage.buffers import Buffer
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition
from raylog.storage.records.batch import iter_batches
from raylog.storage.testing.logs import Disk
from tests.harness.futures import future_of

FIRST_SEGMENT = "00000000000000000000.log"


class Answer:
    """See ``connection.FetchAnswer``."""

    def __init__(self, records: bytes | None, found: Any, fault: RaylogError | None = None) -> None:
        self.high_watermark, self.log_start_offset = found.high_watermark, found.log_start_offset
        self.last_stable_offset, self.aborted = found.last_stable_offset, found.aborted
        self.end_offset = found.end_offset
        self.leader_epoch, self.diverging = found.leader_epoch, found.diverging
        self._records, self._fault = records, fault

    def read(self) -> Buffer | None:
        if self._fault is not None:
            raise self._fault
        return self._records


class Served:
    """One partition, with faults in front of it or in what it answers."""

    def __init__(self, **config: Any) -> None:
        self.disk = Disk()
        self.config = config
        self.partition = Partition(self.disk.open(**config), self.disk.clock)
        self.fault: RaylogError | None = None  # of each request
        self.read_fault: RaylogError | None = None  # of each answer's read
        self.damage: Callable[[bytes], bytes] = bytes
        self.hangs = False

    def lose_tail(self, end: int) -> None:
        """The log, of one segment, lost its batches from ``end`` on, and is opened again."""
        self.disk.fs = self.disk.fs.crash()
        content = self.disk.read(FIRST_SEGMENT)
        gone = [at for at, header in iter_batches(content) if header.base_offset >= end]
        self.disk.write(FIRST_SEGMENT, content[: min(gone, default=len(content))])
        log = self.disk.open(is_clean=False, **self.config)
        self.partition = Partition(log, self.disk.clock)


class _Parked(NamedTuple):
    request: FetchRequest
    future: "Future[Any]"
    until: float


class FakeConnection:
    """See ``connection.Connection``; what a consumer needs of it."""

    max_in_flight = 1
    namespace = "fake"

    def __init__(self, **topics: int) -> None:
        """``topics``: how many partitions each has."""
        self.now_s = 1000.0
        self.waits = 0  # of all consumers
        self.topics: dict[str, list[Served]] = {}
        self.ids: dict[str, str] = {}
        self.fetches: list[FetchRequest] = []
        self.forgotten: list[tuple[str, int]] = []
        self.fault: RaylogError | None = None  # of metadata
        self._parked: list[_Parked] = []
        for name, count in topics.items():
            self.create(name, count)

    def create(self, topic: str, partitions: int = 1, **config: Any) -> list[Served]:
        """A topic, also in the place of one with this name."""
        self.topics[topic] = [Served(**config) for _ in range(partitions)]
        self.ids[topic] = f"id-{len(self.ids)}-{self.now_s}"
        self.now_s += 0.001
        return self.topics[topic]

    def consumer(self, *topics: str, **config: Any) -> Consumer:
        return Consumer(self, *topics, _waiter=ManualWaiter(self), **config)  # type: ignore[arg-type]

    # -- the connection ----------------------------------------------------------------------------

    def metadata(self, topic: str, *, timeout_s: float) -> "Future[Any]":
        if self.fault is not None:
            return future_of(self.fault)
        if topic not in self.topics:
            return future_of(UnknownTopicOrPartition(topic, None, "there is no such topic"))
        numbers = range(len(self.topics[topic]))
        partitions = tuple(PartitionMetadata(number, -1, None) for number in numbers)
        return future_of(TopicMetadata(topic, self.ids[topic], partitions, 1 << 20))

    def list_topics(self, *, timeout_s: float) -> "Future[Any]":
        return future_of(sorted(self.topics))

    def fetch(self, request: FetchRequest, *, timeout_s: float) -> "Future[Any]":
        self.fetches.append(request)
        served = self._served(request)
        future: Future[Any] = Future()
        if not isinstance(served, Served):
            return future_of(served)
        wait_s = float("inf") if served.hangs else request.max_wait_ms / 1000
        self._parked.append(_Parked(request, future, self.now_s + wait_s))
        self.tick()
        return future

    def list_offset(self, request: OffsetRequest, *, timeout_s: float) -> "Future[Any]":
        served = self._served(request)
        if not isinstance(served, Served):
            return future_of(served)
        try:
            place = served.partition.offset_for_timestamp(request.timestamp)
        except RaylogError as error:
            return future_of(error)
        if place is None:
            return future_of(OffsetAnswer(-1, -1, -1))
        epoch = served.partition.log.epoch_at(place.offset)
        return future_of(OffsetAnswer(place.offset, place.timestamp, epoch))

    def forget(self, topic: str, partition: int) -> None:
        self.forgotten.append((topic, partition))

    # -- time --------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many fetches wait."""
        return sum(not each.future.cancelled() for each in self._parked)

    def tick(self) -> None:
        """Answer the fetches that need not wait any more."""
        parked = [each for each in self._parked if not each.future.cancelled()]
        self._parked = []
        for each in parked:
            outcome = self._outcome(each)
            if outcome is None:
                self._parked.append(each)
            elif isinstance(outcome, Exception):
                each.future.set_exception(outcome)
            else:
                each.future.set_result(outcome)

    def pass_time(self, seconds: float) -> None:
        """Until so many have passed, or an answer comes."""
        ends = min([self.now_s + seconds, *(max(each.until, self.now_s) for each in self._parked)])
        self.now_s = max(ends, self.now_s + 0.000_1)
        self.tick()

    def _outcome(self, parked: _Parked) -> Any:
        request = parked.request
        served = self._served(request)
        if not isinstance(served, Served):
            return served
        if served.hangs:
            return None
        try:
            isolation: Any = "committed" if request.isolation else "high_watermark"
            found = served.partition.fetch(
                request.offset,
                request.max_bytes,
                isolation=isolation,
                last_fetched_epoch=request.last_fetched_epoch,
            )
        except RaylogError as error:
            return error
        if found.diverging is not None:
            return Answer(None, found)
        if found.records is None:
            return Answer(None, found) if parked.until <= self.now_s else None
        return Answer(served.damage(bytes(found.records)), found, served.read_fault)  # type: ignore[call-overload]

    def _served(self, request: Any) -> Any:
        """The partition that is asked for, or the error that is its answer."""
        if request.topic not in self.topics:
            return UnknownTopicOrPartition(request.topic, None, "there is no such topic")
        if request.topic_id != self.ids[request.topic]:
            where = str(TopicPartition(request.topic, request.partition))
            return UnknownTopicId(where, request.topic_id, self.ids[request.topic])
        served = self.topics[request.topic][request.partition]
        return served.fault or served


class ManualWaiter(Waiter):
    """Has the connection's time pass instead of waiting."""

    def __init__(self, connection: FakeConnection) -> None:
        super().__init__()
        self.connection = connection
        self._is_awake = False

    def another(self) -> "ManualWaiter":
        return ManualWaiter(self.connection)

    def now(self) -> float:
        return self.connection.now_s

    def wake(self) -> None:
        self._is_awake = True

    def wait(self, seconds: float) -> None:
        self.connection.waits += 1
        self.connection.tick()
        if not self._is_awake:
            self.connection.pass_time(max(seconds, 0))
        self._is_awake = False
