"""A connection for tests: to partitions on disks in memory, by a way that does what it is told."""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from raylog.actors.errors import NotLeader, TooManyAppends, UnknownTopicId, UnknownTopicOrPartition
from raylog.actors.partition.partition import Partition
from raylog.cluster.client.connection import (
    PartitionMetadata,
    ProduceAnswer,
    ProduceRequest,
    TopicMetadata,
)
from raylog.storage.records.record import Record
from raylog.storage.testing.logs import Disk, records_of

FOREVER_MS = 2**62
DEFAULT_MAX_BYTES = 1_048_588


def new_partition(max_message_bytes: int = DEFAULT_MAX_BYTES) -> Partition:
    disk = Disk()
    log = disk.open(
        message_timestamp_after_max_ms=FOREVER_MS,
        message_timestamp_before_max_ms=FOREVER_MS,
        max_message_bytes=max_message_bytes,
    )
    return Partition(log, disk.clock)


@dataclass
class FakeTopic:
    """A topic; ``told_max_bytes``: what clients are told of max.message.bytes."""

    topic_id: str
    partitions: list[Partition]
    told_max_bytes: int = DEFAULT_MAX_BYTES


@dataclass
class FakeConnection:
    """Carries each produce request, unless ``faults`` has something else for it."""

    namespace: str = "fake"
    max_in_flight: int = 1
    topics: dict[str, FakeTopic] = field(default_factory=dict)
    faults: deque[str] = field(default_factory=deque)
    held: deque[tuple[ProduceRequest, "Future[ProduceAnswer]"]] = field(default_factory=deque)
    requests: list[ProduceRequest] = field(default_factory=list)
    asked_metadata: int = 0
    away: int = 0  # so many questions to the Controller find none
    next_id: int = 7
    made: int = 0

    def create(
        self, name: str = "t", partitions: int = 2, max_message_bytes: int = DEFAULT_MAX_BYTES
    ) -> FakeTopic:
        """A topic, anew if there is one of this name."""
        self.made += 1
        some = [new_partition(max_message_bytes) for _ in range(partitions)]
        self.topics[name] = FakeTopic(f"id-{self.made}", some, max_message_bytes)
        return self.topics[name]

    def records(self, topic: str = "t", partition: int = 0) -> list[Record]:
        return records_of(self.topics[topic].partitions[partition].log)

    def values(self, topic: str = "t", partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.records(topic, partition)]

    def lose_tail(self, kept: int, topic: str = "t", partition: int = 0) -> None:
        """The partition's log lost all but its first batches, as by a power loss."""
        batches = [
            request.records
            for request in self.requests
            if (request.topic, request.partition) == (topic, partition)
        ]
        anew = new_partition()
        for batch in batches[:kept]:
            anew.append(bytes(batch))
        self.topics[topic].partitions[partition] = anew

    # -- Connection --------------------------------------------------------------------------------

    def metadata(self, topic: str, *, timeout_s: float) -> "Future[TopicMetadata]":
        self.asked_metadata += 1
        if self._is_away():
            return _failed(NotLeader(topic, "the Controller is away"))
        known = self.topics.get(topic)
        if known is None:
            return _failed(UnknownTopicOrPartition(topic, None, "there is none"))
        parts = tuple(PartitionMetadata(n, 0, None) for n in range(len(known.partitions)))
        return _done(TopicMetadata(topic, known.topic_id, parts, known.told_max_bytes))

    def produce(self, request: ProduceRequest, *, timeout_s: float) -> "Future[ProduceAnswer]":
        fault = self.faults.popleft() if self.faults else "none"
        future: Future[ProduceAnswer] = Future()
        if fault == "hangs":
            self.held.append((request, future))
        elif fault == "no actor":
            future.set_exception(NotLeader(request.topic, "gone"))
        elif fault == "throttled":
            future.set_exception(TooManyAppends(request.topic, 1, 1))
        elif fault == "unnamed":
            future.set_exception(RuntimeError("the object store is full"))
        elif fault in ("answer lost", "answer lost, unnamed"):
            self._append(request)
            is_named = fault == "answer lost"
            why = "gone after writing"
            future.set_exception(NotLeader(request.topic, why) if is_named else OSError(why))
        else:
            self._carry(request, future)
        return future

    def _carry(self, request: ProduceRequest, future: "Future[ProduceAnswer]") -> None:
        try:
            answer = self._append(request)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(answer)

    def _append(self, request: ProduceRequest) -> ProduceAnswer:
        topic = self.topics.get(request.topic)
        if topic is None:
            raise UnknownTopicOrPartition(request.topic, request.partition, "it was deleted")
        if topic.topic_id != request.topic_id:
            raise UnknownTopicId(
                f"{request.topic}-{request.partition}", request.topic_id, topic.topic_id
            )
        self.requests.append(request)
        result = topic.partitions[request.partition].append(bytes(request.records))
        return ProduceAnswer(result.base_offset, result.log_append_time, 0)

    def answer_held(self) -> None:
        """What hangs goes on, as calls do whose actor was stopped for a while."""
        while self.held:
            self._carry(*self.held.popleft())

    def new_producer_id(self, *, timeout_s: float) -> "Future[int]":
        if self._is_away():
            return _failed(NotLeader("a producer id", "the Controller is away"))
        self.next_id += 1
        return _done(self.next_id - 1)

    def _is_away(self) -> bool:
        was_away = bool(self.away)
        self.away -= was_away
        return was_away

    def forget(self, topic: str, partition: int) -> None:
        pass

    def ask(self, request: Any, *, timeout_s: float) -> Any:
        raise NotImplementedError

    def fetch(self, request: Any, *, timeout_s: float) -> Any:
        raise NotImplementedError

    def list_offset(self, request: Any, *, timeout_s: float) -> Any:
        raise NotImplementedError

    def list_topics(self, *, timeout_s: float) -> "Future[list[str]]":
        return _done(sorted(self.topics))


def _done(answer: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


def _failed(error: Exception) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_exception(error)
    return future
