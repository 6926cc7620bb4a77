"""A consumer whose partitions are away, damaged, or shorter than they were.

Nothing is skipped, and no partition holds up another. The partitions are real ones on disks in
memory; Ray is a fake whose calls are answered at once.
"""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from raylog.actors.errors import NotLeader, RequestTimedOut, TooManyPolls
from raylog.actors.messages import FetchRequest
from raylog.actors.partition.partition import Partition
from raylog.actors.runtime.stubs import LogActorStub
from raylog.cluster.client import consumer as module
from raylog.cluster.client import fetch
from raylog.cluster.client.consumer import Consumer
from raylog.cluster.client.fetch import PartitionReader
from raylog.cluster.client.topic_watch import partitions_added
from raylog.storage.errors import (
    CorruptRecord,
    LogMissing,
    OffsetOutOfRange,
    RaylogError,
    StorageError,
)
from raylog.storage.names import TopicPartition
from raylog.storage.readable import LogRead
from raylog.storage.records.batch import stamp
from raylog.storage.testing.logs import Disk, batch, flip
from tests.harness.futures import future_of, get

PATIENCE_S = 30


class Actor:
    """A LogActor's door for readers, with a fault in front of it or in what it answers."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.partition = Partition(
            self.disk.open(segment_bytes=200, retention_bytes=1, file_delete_delay_ms=0),
            self.disk.clock,
        )
        self.poll_request = self
        self.is_away: RaylogError | None = None  # raised by the lookup
        self.fault: RaylogError | None = None  # the end of each call
        self.damage: Callable[[bytes], bytes] = bytes

    def remote(self, request: bytes) -> "Future[Any]":
        asked = FetchRequest.decode(request)
        try:
            if self.fault is not None:
                raise self.fault
            found = self.partition.fetch(asked.offset, asked.max_bytes)
        except RaylogError as error:
            return future_of(error)
        if found.records is not None:
            found = found._replace(records=self.damage(bytes(found.records)))  # type: ignore[call-overload]
        return future_of(found)


class FakeBroker:
    """Two partitions of one topic, on another node."""

    namespace = "fake"

    def __init__(self) -> None:
        self.actors = [Actor(), Actor()]
        self.node_id: str | None = "far"
        self.forgotten: list[tuple[str, int]] = []

    def topic(self, _: str) -> Any:
        return SimpleNamespace(
            partitions=[SimpleNamespace(node_id=self.node_id)] * len(self.actors)
        )

    topic_if_known = topic

    def list_offsets(self, wanted: Any) -> Any:
        return dict.fromkeys(wanted, 0)

    def log_actor(self, _: str, number: int, timeout_s: float = PATIENCE_S) -> Any:
        assert timeout_s == 0, "one that is away would hold up the others"
        away = self.actors[number].is_away
        if away is not None:
            raise away
        return LogActorStub(self.actors[number], TopicPartition("t", number))

    def forget(self, topic: str, partition: int) -> None:
        self.forgotten.append((topic, partition))


class Time:
    """A clock that sleepers turn."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += max(seconds, 0.001)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Ray's and the consumer's: an answer is there at once, and only waiting takes time."""
    time = Time()

    def answered(
        references: list[Any], num_returns: int, timeout: float
    ) -> tuple[list[Any], list[Any]]:
        return references[:num_returns], references[num_returns:]

    def take(reference: "Future[Any]", timeout: float) -> Any:
        time.sleep(0)
        return get(reference, timeout)

    monkeypatch.setattr(module, "time", time)
    monkeypatch.setattr(ray, "wait", answered)
    monkeypatch.setattr(ray, "get", take)
    monkeypatch.setattr(fetch, "own_node_id", lambda: "here")
    return time


@pytest.fixture
def broker() -> Any:
    return FakeBroker()


def values(consumer: Consumer) -> list[bytes]:
    return sorted(record.value or b"" for record in consumer.poll(100))


@pytest.mark.parametrize("poll", ["poll", "poll_arrow"])
def test_positions_move_only_when_everything_was_decoded(
    broker: Any, clock: Time, poll: str
) -> None:
    for actor in broker.actors:
        actor.partition.append(batch(3))
    consumer = Consumer(broker, "t", from_="earliest")
    broker.actors[1].damage = flip(30)
    with pytest.raises(CorruptRecord):
        getattr(consumer, poll)(100)
    assert [consumer.position("t", n) for n in (0, 1)] == [0, 0]
    broker.actors[1].damage = bytes
    assert len(getattr(consumer, poll)(100)) == 6
    assert [consumer.position("t", n) for n in (0, 1)] == [3, 3]


@pytest.mark.parametrize(
    "error",
    [
        NotLeader("t-1", "restarting"),
        RequestTimedOut("t-1", 1),
        StorageError("/disk/t-1", "failed fsync"),
    ],
)
@pytest.mark.parametrize("where", ["is_away", "fault"])
def test_a_partition_that_stays_away_is_named_in_the_end_and_the_others_go_on(
    broker: Any, clock: Time, where: str, error: RaylogError
) -> None:
    consumer = Consumer(broker, "t", from_="earliest")
    setattr(broker.actors[1], where, error)
    began_s, read = clock.now_s, 0

    def read_on() -> None:
        nonlocal read
        while True:
            broker.actors[0].partition.append(batch(1, value=b"there"))
            read += values(consumer) == [b"there"]
            clock.sleep(1)

    with pytest.raises(type(error)):
        read_on()
    assert PATIENCE_S <= clock.now_s - began_s < PATIENCE_S + 3
    assert read >= PATIENCE_S - 3
    assert consumer.position("t", 0) >= read, "nothing of the other is lost"
    setattr(broker.actors[1], where, None)
    broker.actors[1].partition.append(batch(1, value=b"back"))
    clock.sleep(1)
    assert b"back" in values(consumer)


def test_the_patience_begins_again_with_every_answer(broker: Any, clock: Time) -> None:
    consumer = Consumer(broker, "t", from_="earliest", partitions=[0])
    actor = broker.actors[0]
    for _ in range(4):
        actor.fault = NotLeader("t-0", "restarting")
        assert values(consumer) == []
        clock.sleep(PATIENCE_S - 5)
        actor.fault = None
        actor.partition.append(batch(1))
        assert values(consumer) == [b"v"]


def test_what_cannot_pass_is_raised_at_once(broker: Any, clock: Time) -> None:
    consumer = Consumer(broker, "t", from_="earliest")
    broker.actors[1].is_away = LogMissing("/disk/t-1", "gone")
    with pytest.raises(LogMissing):
        consumer.poll(100)


def test_a_consumer_survives_retention_that_is_faster(
    broker: Any, clock: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment is deleted between the lookup of the place and the read."""
    actor = broker.actors[0]
    for _ in range(3):
        actor.partition.append(batch(2, value=b"x" * 50))
    consumer = Consumer(broker, "t", from_="earliest", partitions=[0])
    was_late: list[bool] = []
    read = LogRead.read

    def read_late(found: LogRead) -> bytes:
        if not was_late:
            was_late.append(True)
            assert actor.partition.delete_old_segments().segments == 2
            actor.disk.clock.advance(1)
            actor.partition.log.purge_deleted()
        return read(found)

    monkeypatch.setattr(LogRead, "read", read_late)
    assert [record.offset for record in consumer.poll(2)] == [0, 1], "its bytes stay for the reader"
    with pytest.raises(OffsetOutOfRange):
        consumer.poll(1000)
    assert not actor.partition.is_offline
    consumer.seek("t", 0, actor.partition.log.log_start_offset)
    assert [record.offset for record in consumer.poll(100)] == [4, 5]


def test_offsets_beyond_their_segment_move_no_position(
    broker: Any, clock: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No CRC covers a base offset: one that is flipped on the disk would skip records."""
    actor = broker.actors[0]
    for _ in range(3):
        actor.partition.append(batch(2, value=b"x" * 50))
    consumer = Consumer(broker, "t", from_="earliest", partitions=[0])
    read = LogRead.read

    def read_flipped(found: LogRead) -> bytes:
        content = bytearray(read(found))
        stamp(content, 1000, 0)
        return bytes(content)

    with monkeypatch.context() as patch:
        patch.setattr(LogRead, "read", read_flipped)
        with pytest.raises(CorruptRecord, match="offsets 1000 to 1001 where 0 to 1 can be"):
            consumer.poll(100)
    assert consumer.position("t", 0) == 0
    assert [record.offset for record in consumer.poll(100)] == [0, 1]


def test_where_a_partition_is_stays_open_until_the_controller_knows(
    broker: Any, clock: Time
) -> None:
    reader = PartitionReader(broker, "t", 1)
    broker.node_id = None
    assert not reader.is_local
    assert broker.forgotten == [("t", 1)], "what was described is not believed for ever"
    broker.node_id = "here"
    assert reader.is_local
    added = PartitionReader(broker, "t", 2)
    assert not added.is_local
    broker.actors.append(Actor())
    assert added.is_local


# -- partitions that are added ---------------------------------------------------------------------


def test_partitions_that_are_added_are_read_from_their_beginning(
    broker: FakeBroker, clock: Time
) -> None:
    consumer = Consumer(broker, "t")  # type: ignore[arg-type]
    bounded = Consumer(broker, "t", to="latest")  # type: ignore[arg-type]
    chosen = Consumer(broker, "t", partitions=[0])  # type: ignore[arg-type]
    broker.actors.append(Actor())
    broker.actors[2].partition.append(batch(2))
    partitions_added("fake", "t", 3)
    assert [(record.partition, record.offset) for record in consumer.poll()] == [(2, 0), (2, 1)]
    assert consumer.position("t", 2) == 2
    for other in (bounded, chosen):
        other.poll(1)
        assert len(other.assignment) < 3
    consumer.assign([("t", 0)])
    partitions_added("fake", "t", 3)
    consumer.poll(1)
    assert len(consumer.assignment) == 1


def test_a_consumer_that_finds_no_place_fetches_without_waiting_and_polls_again(
    broker: Any, clock: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = broker.actors[0]
    waits: list[str] = []

    class RecordedMethod:
        def __init__(self, name: str, fault: RaylogError | None) -> None:
            self.name, self.fault = name, fault

        def remote(self, request: bytes) -> "Future[Any]":
            waits.append(self.name)
            return future_of(self.fault) if self.fault else actor.remote(request)

    actor.poll_request, actor.fetch_request = (
        RecordedMethod("poll", TooManyPolls("t-0", 64)),
        RecordedMethod("fetch", None),
    )
    consumer = Consumer(broker, "t", from_="earliest", partitions=[0])
    for _ in range(3):
        actor.partition.append(batch(1))
        began_s = clock.now_s
        assert [record.value for record in consumer.poll(1000)] == [b"v"]
        assert clock.now_s - began_s < 1
    assert set(zip(waits[::2], waits[1::2], strict=False)) == {("poll", "fetch")}
    assert broker.forgotten == [], "the partition is well"
