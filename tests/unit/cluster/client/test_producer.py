"""A producer whose partitions hang, refuse, lose answers: nothing silent, nothing twice, nobody
held up.

The partitions are real ones on disks in memory; the way there is a fake, and the producers' clock
stands still until a test turns it.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from raylog.actors.errors import (
    InvalidRequest,
    NotLeader,
    ProduceFailed,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from raylog.actors.messages import AppendResult
from raylog.actors.partition.partition import Partition
from raylog.actors.runtime.stubs import LogActorStub
from raylog.cluster.broker import LOOKUP_TIMEOUT_S
from raylog.cluster.client.producer import Producer
from raylog.cluster.client.topic_watch import partitions_added
from raylog.cluster.client.transport import RayTransport
from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidConfig, RecordTooLarge
from raylog.storage.names import TopicPartition
from raylog.storage.records.murmur2 import partition_for_key
from raylog.storage.testing.logs import Disk, records_of
from raylog.storage.testing.waiting import DEADLINE_S, wait_for

FOREVER_MS = 2**62
TIMEOUT_MS = 60_000  # delivery.timeout.ms, by the producers' clock
TIMEOUT_S = TIMEOUT_MS / 1000


class Link:
    """A transport to two partitions that does to each append what it was told, and then only
    carries."""

    def __init__(self, *faults: str) -> None:
        self.faults = list(faults)
        self.partitions = [_partition(), _partition()]
        self.held: list[tuple[int, Buffer, Future[AppendResult]]] = []

    def append(self, topic: str, partition: int, batch: Buffer) -> "Future[AppendResult]":
        fault = self.faults.pop(0) if self.faults else "none"
        answer: Future[AppendResult] = Future()
        if fault == "hangs":
            self.held.append((partition, batch, answer))
        elif fault == "refused":
            raise RecordTooLarge(len(batch), 1)
        elif fault == "answer lost":
            self.partitions[partition].append(batch)
            answer.set_exception(NotLeader(topic, "gone after writing"))
        elif fault == "no actor":
            raise NotLeader(topic, "gone")
        else:
            self._carry(partition, batch, answer)
        return answer

    def _carry(self, partition: int, batch: Buffer, answer: "Future[AppendResult]") -> None:
        try:
            answer.set_result(self.partitions[partition].append(batch))
        except Exception as error:
            answer.set_exception(error)

    def resume(self) -> None:
        """What hangs goes on, as calls do whose actor was stopped for a while."""
        held, self.held = self.held, []
        for partition, batch, answer in held:
            self._carry(partition, batch, answer)

    def forget(self, topic: str, partition: int) -> None:
        pass

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in records_of(self.partitions[partition].log)]


def _partition() -> Partition:
    disk = Disk()
    return Partition(disk.open(message_timestamp_after_max_ms=FOREVER_MS), disk.clock)


class FakeBroker:
    """Knows one topic of two partitions, or fewer."""

    namespace = "fake"

    def __init__(self) -> None:
        self.partitions = 2

    def topic(self, _: str) -> Any:
        return SimpleNamespace(partitions=range(self.partitions))

    describe_topic = topic

    def allocate_producer_id(self) -> int:
        return 7


class Clock:
    """The producers' clock: it stands still until it is turned, and then they look at it."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.producers: list[Producer] = []

    def __call__(self) -> float:
        return self.now_s

    def advance(self, by_s: float) -> None:
        self.now_s += by_s
        for producer in self.producers:
            with producer._sender.changed:
                producer._sender.changed.notify_all()

    def settle(self, waiting_sends: int = 0) -> None:
        """Return once every producer's thread has done what was due, and waits.

        A change of the clock or the queues wakes the thread. It waits again only after it has
        looked at both. ``waiting_sends``: calls that wait for room with it.
        """
        conditions: list[Any] = [producer._sender.changed for producer in self.producers]

        def is_settled() -> bool:
            return all(len(condition._waiters) == 1 + waiting_sends for condition in conditions)

        wait_for(is_settled, what="every thread waits")

    def run_until(self, condition: Callable[[], object], what: str) -> None:
        """Turn the clock a little, again and again: what is sent again is due then."""

        def is_true() -> object:
            self.advance(0.002)
            return condition()

        wait_for(is_true, what=what)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def produce(clock: Clock) -> Iterator[Callable[..., Producer]]:
    def make(link: Any, **settings: Any) -> Producer:
        broker: Any = FakeBroker()
        settings = {"linger_ms": 0, "retry_backoff_ms": 1, **settings}
        producer = Producer(broker, transport=link, clock=clock, **settings)
        clock.producers.append(producer)
        return producer

    yield make
    for producer in clock.producers:
        producer._sender.stop()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def cause_of(sent: Any) -> Any:
    with pytest.raises(ProduceFailed) as failed:
        sent.result(timeout_s=DEADLINE_S)
    return failed.value.cause  # type: ignore[attr-defined]


# -- linger.ms, retry.backoff.ms, max.block.ms -----------------------------------------------------


def test_a_batch_that_is_not_full_leaves_after_linger_ms_not_before_unless_somebody_flushes(
    produce: Callable[..., Producer], clock: Clock
) -> None:
    link = Link()
    producer = produce(link, linger_ms=4000, batch_size=1000)
    producer.send("t", b"first", partition=0)
    clock.advance(3.75)
    producer.send("t", b"second", partition=0)
    clock.settle()
    assert link.values() == []
    clock.advance(0.25)
    clock.settle()
    assert link.values() == [b"first", b"second"], "the time runs from the first record"

    producer.send("t", b"flushed", partition=0)
    clock.settle()
    assert link.values()[2:] == []
    producer.flush(DEADLINE_S)
    assert link.values()[2:] == [b"flushed"]

    producer.send("t", b"after the flush", partition=0)
    clock.settle()
    assert link.values()[3:] == [], "records linger again"
    full = b"x" * 1000
    producer.send("t", full, partition=0)
    clock.settle()
    assert link.values()[3:] == [b"after the flush", full]


def test_a_refused_batch_is_sent_again_after_retry_backoff_ms_not_before(
    produce: Callable[..., Producer], clock: Clock
) -> None:
    link = Link("no actor", "no actor")
    producer = produce(link, retry_backoff_ms=4000)
    producer.send("t", b"x", partition=0)
    for attempts_left in (1, 0):
        clock.settle()
        assert len(link.faults) == attempts_left
        clock.advance(3.75)
        clock.settle()
        assert len(link.faults) == attempts_left
        assert link.values() == []
        clock.advance(0.25)
    clock.settle()
    assert link.values() == [b"x"]


def test_a_send_without_room_waits_max_block_ms(
    produce: Callable[..., Producer], clock: Clock, pool: ThreadPoolExecutor
) -> None:
    link = Link("hangs")
    producer = produce(link, buffer_memory=1000, max_block_ms=4000)
    producer.send("t", b"x" * 1000, partition=0)
    wait_for(lambda: link.held, what="the buffer is full, and nothing leaves it")
    blocked = pool.submit(producer.send, "t", b"y", partition=1)
    clock.settle(waiting_sends=1)
    clock.advance(3.75)
    clock.settle(waiting_sends=1)
    assert not blocked.done()
    clock.advance(0.25)
    with pytest.raises(RequestTimedOut, match=r"waiting for space in buffer\.memory.* 4000 ms"):
        blocked.result(DEADLINE_S)
    link.resume()
    assert producer.send("t", b"z", partition=1).result(DEADLINE_S).offset == 0


# -- delivery.timeout.ms ---------------------------------------------------------------------------


@pytest.mark.parametrize("resumes", ["before the next", "after the next"])
def test_a_call_that_hangs_fails_in_time_and_what_follows_is_written_once(
    produce: Callable[..., Producer], clock: Clock, resumes: str
) -> None:
    link = Link("none", "hangs")
    producer = produce(link, delivery_timeout_ms=TIMEOUT_MS)
    assert producer.send("t", b"first", partition=0).result().offset == 0
    on_its_way = producer.send("t", b"hung", partition=0)
    wait_for(lambda: link.held, what="the second batch is on its way")
    clock.advance(TIMEOUT_S - 1)
    assert not on_its_way.is_done
    clock.advance(1)
    cause = cause_of(on_its_way)
    assert isinstance(cause, RequestTimedOut)
    assert (cause.what, cause.timeout_ms) == ("t-0", TIMEOUT_MS)  # type: ignore[attr-defined]
    if resumes == "before the next":
        link.resume()
    assert producer.send("t", b"next", partition=0).result().offset == len(link.values()) - 1
    link.resume()
    assert producer.send("t", b"last", partition=0).result().offset == len(link.values()) - 1
    # its epoch is over once another has begun
    hung = [b"hung"] if resumes == "before the next" else []
    assert link.values() == [b"first", *hung, b"next", b"last"]


@pytest.mark.parametrize("late", [AppendResult(99, 99, -1, 0, 0, False), RecordTooLarge(2, 1)])
def test_an_answer_that_comes_too_late_is_nobody_elses(
    produce: Callable[..., Producer], clock: Clock, late: Any
) -> None:
    link = Link("hangs", "hangs")
    producer = produce(link, delivery_timeout_ms=TIMEOUT_MS)
    hung = producer.send("t", b"hung", partition=0)
    wait_for(lambda: link.held, what="the first batch is on its way")
    clock.advance(TIMEOUT_S)
    cause_of(hung)
    after = producer.send("t", b"after", partition=0)
    wait_for(lambda: len(link.held) == 2, what="the next batch is on its way")
    _, _, answer = link.held.pop(0)
    answer.set_exception(late) if isinstance(late, Exception) else answer.set_result(late)
    assert not after.is_done
    link.resume()
    assert after.result().offset == 0


def test_rows_behind_a_call_that_hangs_are_not_lost_with_it(
    produce: Callable[..., Producer], clock: Clock
) -> None:
    link = Link("hangs")
    producer = produce(link, delivery_timeout_ms=TIMEOUT_MS)
    hung = producer.send("t", b"hung", partition=0)
    wait_for(lambda: link.held, what="the first batch is on its way")
    clock.advance(TIMEOUT_S / 2)
    behind = producer.send("t", b"behind", partition=0)
    clock.advance(TIMEOUT_S / 2)
    assert isinstance(cause_of(hung), RequestTimedOut)
    assert behind.result().offset == 0
    assert link.values() == [b"behind"]


def test_batches_encoded_behind_a_call_that_hangs_fail_with_it(
    produce: Callable[..., Producer], clock: Clock
) -> None:
    link = Link("hangs")
    producer = produce(link, delivery_timeout_ms=TIMEOUT_MS)
    producer.send_arrow("t", pa.table({"value": [b"x" * 600_000, b"y" * 600_000]}), partition=0)
    wait_for(lambda: link.held, what="the first batch is on its way")
    clock.advance(TIMEOUT_S)
    with pytest.raises(ProduceFailed, match="2 records"):
        producer.flush()
    assert producer.send("t", b"next", partition=0).result().offset == 0
    link.resume()
    assert link.values() == [b"next"]


def test_the_time_runs_from_send_not_from_encoding(produce: Callable[..., Producer]) -> None:
    producer = produce(Link(), linger_ms=10_000, delivery_timeout_ms=60_000)
    producer.send("t", b"x", partition=0)
    queue = producer._topics["t"].queues[0]
    with producer._sender.lock:
        queue.rows_since -= 50
        since = queue.rows_since
        producer._sender.close_rows(queue)
    assert queue.batches[0].deadline == since + 60


def test_lingering_beyond_the_time_is_refused(produce: Callable[..., Producer]) -> None:
    with pytest.raises(InvalidConfig, match=r"linger\.ms"):
        produce(Link(), linger_ms=100, delivery_timeout_ms=100)


def test_what_kept_it_from_being_written_is_the_last_thing_that_happened(
    produce: Callable[..., Producer], clock: Clock
) -> None:
    link = Link(*["no actor"] * 1000)
    refused = produce(link, delivery_timeout_ms=TIMEOUT_MS).send("t", b"x", partition=0)
    clock.run_until(lambda: len(link.faults) < 999, "it is sent again")
    clock.advance(TIMEOUT_S)
    assert isinstance(cause_of(refused), NotLeader)
    link = Link("no actor", "hangs")
    hung = produce(link, delivery_timeout_ms=TIMEOUT_MS).send("t", b"x", partition=0)
    clock.run_until(lambda: link.held, "it is sent again")
    clock.advance(TIMEOUT_S)
    assert isinstance(cause_of(hung), RequestTimedOut)


# -- fates -----------------------------------------------------------------------------------------


def test_a_refusal_after_a_lost_answer_leaves_the_fate_unknown(
    produce: Callable[..., Producer], clock: Clock
) -> None:
    """The first attempt was written: were its sequence given again, the next batch would pass for a
    repeat."""
    link = Link("answer lost", "refused")
    producer = produce(link)
    written = producer.send("t", b"written", partition=0)
    clock.run_until(lambda: written.is_done, "the second attempt is refused")
    assert isinstance(cause_of(written), RecordTooLarge)
    assert producer.send("t", b"next", partition=0).result().offset == 1
    assert link.values() == [b"written", b"next"]


def test_a_row_that_cannot_be_encoded_fails_its_batch_and_no_other(
    produce: Callable[..., Producer],
) -> None:
    link = Link()
    producer = produce(link, linger_ms=10_000)
    headers: list[Any] = []
    bad = producer.send("t", b"bad", partition=0, headers=headers)
    good = producer.send("t", b"good", partition=1)
    headers.append(("changed after sending", 7))
    with pytest.raises(ProduceFailed):
        producer.flush()
    assert not isinstance(cause_of(bad), RequestTimedOut)
    assert good.result().offset == 0
    assert producer.send("t", b"next", partition=0).result().offset == 0
    producer.close()


def test_a_partition_without_an_actor_holds_up_no_other(produce: Callable[..., Producer]) -> None:
    link, ends = Link(), threading.Event()

    def remote(batch: Buffer) -> Any:
        return SimpleNamespace(future=lambda: link.append("t", 1, batch))

    def log_actor(_: str, number: int, timeout_s: float = LOOKUP_TIMEOUT_S) -> Any:
        if number == 0:
            ends.wait(timeout_s)
            raise NotLeader("t-0", "it is starting")
        handle = SimpleNamespace(append=SimpleNamespace(remote=remote))
        return LogActorStub(handle, TopicPartition("t", number))

    broker: Any = SimpleNamespace(log_actor=log_actor, forget=lambda *_: None)
    producer = produce(RayTransport(broker))
    away = producer.send("t", b"x", partition=0)
    try:
        assert producer.send("t", b"here", partition=1).result(DEADLINE_S).offset == 0
        assert not away.is_done
    finally:
        ends.set()


# -- flush, close ----------------------------------------------------------------------------------


def test_flush_waits_for_what_was_sent_before_it_and_not_for_more(
    produce: Callable[..., Producer], pool: ThreadPoolExecutor
) -> None:
    link = Link("hangs", "hangs")
    producer = produce(link, linger_ms=10_000)
    before = producer.send("t", b"before", partition=0)
    flushed = pool.submit(producer.flush)
    wait_for(lambda: link.held, what="flush has begun")
    after = producer.send("t", b"after", partition=1)
    wait_for(lambda: len(link.held) == 2, what="both are on their way")
    partition, batch, answer = link.held.pop(0)
    assert not flushed.done()
    answer.set_result(link.partitions[partition].append(batch))
    flushed.result(DEADLINE_S)
    assert before.is_done
    assert not after.is_done


def test_leaving_by_an_exception_fails_what_is_not_acknowledged(
    produce: Callable[..., Producer],
) -> None:
    link, sent = Link("hangs"), []

    def work() -> None:
        with produce(link) as producer:
            sent.append(producer.send("t", b"in flight", partition=0))
            wait_for(lambda: link.held, what="it is on its way")
            producer.send_arrow("t", pa.table({"value": [b"encoded"]}), partition=0)
            sent.append(producer.send("t", b"open", partition=0))
            raise KeyError("the user's")

    with pytest.raises(KeyError):
        work()
    for one in sent:
        cause = cause_of(one)
        assert isinstance(cause, InvalidRequest)
        assert "before these records were acknowledged" in str(cause)
    link.resume()
    assert [one.is_done for one in sent] == [True, True], "an answer that comes now is dropped"


def test_close_fails_what_it_could_not_flush(
    produce: Callable[..., Producer], clock: Clock
) -> None:
    link = Link("hangs")
    producer = produce(link, delivery_timeout_ms=TIMEOUT_MS)
    sent = producer.send("t", b"hung", partition=0)
    wait_for(lambda: link.held, what="it is on its way")
    clock.advance(TIMEOUT_S)
    with pytest.raises(ProduceFailed, match="no answer within 60000 ms"):
        producer.close()
    assert sent.is_done
    producer.close()


def test_stop_wakes_a_thread_that_waits_again_since_close_woke_it(
    produce: Callable[..., Producer],
    clock: Clock,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender = produce(Link())._sender
    close = sender.close

    def close_and_settle() -> None:
        close()
        clock.settle()

    monkeypatch.setattr(sender, "close", close_and_settle)
    stopped = pool.submit(sender.stop)
    try:
        stopped.result(DEADLINE_S)
    finally:
        close()


def test_a_send_that_waits_for_room_hears_that_the_producer_closes(
    produce: Callable[..., Producer], pool: ThreadPoolExecutor
) -> None:
    link = Link("hangs")
    producer = produce(link, buffer_memory=1000)
    producer.send("t", b"x" * 1000, partition=0)
    blocked: list[Future[Any]] = [
        pool.submit(producer.send, "t", b"y", partition=1),
        pool.submit(producer.send_arrow, "t", pa.table({"value": [b"y"]})),
    ]
    condition: Any = producer._sender.changed
    wait_for(lambda: len(condition._waiters) == 3, what="both wait for room, and the thread")
    closed = pool.submit(producer.close)
    for one in blocked:
        with pytest.raises(InvalidRequest, match="closed"):
            one.result(DEADLINE_S)
    link.resume()
    closed.result(DEADLINE_S)


# -- partitions that are added ---------------------------------------------------------------------


def test_partitions_that_are_added_are_used_from_the_next_record_on(
    produce: Callable[..., Producer],
) -> None:
    link = Link()
    producer = produce(link)
    producer.send("t", b"1", partition=1).result()
    link.partitions.append(_partition())
    partitions_added("fake", "t", 3)
    assert producer.send("t", b"2", partition=2).result().partition == 2
    keys = [b"%d" % n for n in range(30)]
    sent = [producer.send("t", b"v", key=key).result().partition for key in keys]
    assert sent == [partition_for_key(key, 3) for key in keys]
    table = pa.table({"value": [b"v"] * 30, "key": keys})
    assert producer.send_arrow("t", table) == 30
    producer.flush()
    assert len(link.values(2)) == 1 + 2 * sent.count(2)


def test_a_partition_that_is_not_known_yet_is_asked_for(produce: Callable[..., Producer]) -> None:
    link = Link()
    producer = produce(link)
    producer.send("t", b"1").result()
    with pytest.raises(UnknownTopicOrPartition):
        producer.send("t", b"2", partition=2)
    link.partitions.append(_partition())
    producer._broker.partitions = 3  # type: ignore[attr-defined]
    assert producer.send("t", b"2", partition=2).result().offset == 0
