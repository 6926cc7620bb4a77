"""A signal handler or a finalizer that uses a producer in the middle of a call of its own thread.

The handler runs where the producer holds its lock: a machine is asked for something there, and
raises the signal. Waiting would never end, so whatever needs the lock is refused by name; a
``send`` that needs none is taken.
"""

import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from raylog.actors.errors import ReentrantCall
from raylog.cluster.client.producer import Producer
from raylog.cluster.client.producer.call_lock import CallLock
from raylog.cluster.client.producer.delivery import Delivery, Outcome
from raylog.cluster.client.producer.tables import SentTable, _Part
from raylog.storage.testing.waiting import DEADLINE_S
from tests.harness.connections import FakeConnection

LARGE = b"x" * 700_000  # two of them do not fit into one batch
pytestmark = pytest.mark.timeout(30)  # a lock that waits for itself waits for ever


@pytest.fixture
def connection() -> FakeConnection:
    made = FakeConnection()
    made.create("t", 1)
    made.create("other", 1)
    return made


@pytest.fixture
def producer(connection: FakeConnection) -> Iterator[Producer]:
    made = Producer(connection, is_threaded=False, linger_ms=0)
    made.send("t", LARGE)
    yield made
    made._sender.stop()
    made._sender.take_failures()


def run(producer: Producer) -> None:
    while producer._sender.step():
        pass


def interrupted(producer: Producer, handler: Callable[[], object]) -> Any:
    """Send a record that needs the lock; a signal comes while it is held.

    Returns what the handler returned or raised."""
    machine = producer._sender._topics["t"].batches[0].owner.machine
    close_rows, told = machine.close_rows, list[Any]()

    def handle(*_: object) -> None:
        try:
            told.append(handler())
        except Exception as error:
            told.append(error)

    def close_rows_meanwhile() -> None:
        machine.close_rows = close_rows
        signal.raise_signal(signal.SIGUSR1)
        close_rows()

    machine.close_rows = close_rows_meanwhile
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        producer.send("t", LARGE)
    finally:
        signal.signal(signal.SIGUSR1, before)
    (answer,) = told
    return answer


def test_a_send_that_fits_is_taken_in_a_signal_handler(
    producer: Producer, connection: FakeConnection
) -> None:
    sent = interrupted(producer, lambda: producer.send("t", b"from the handler"))
    run(producer)
    assert sent.result(0).offset == 1
    assert connection.values() == [LARGE, b"from the handler", LARGE]


@pytest.mark.parametrize(
    "call",
    [
        lambda producer: producer.send("t", LARGE),
        lambda producer: producer.send("other", b"x"),
        lambda producer: producer.send_arrow("t", pa.table({"value": [b"x"]})),
        lambda producer: producer.send("t", b"fits").result(),
        lambda producer: producer.send("t", b"fits").exception(),
        lambda producer: producer.flush(),
        lambda producer: producer.close(),
        lambda producer: producer.partitions_for("other"),
    ],
    ids=["send", "first send", "send_arrow", "result", "exception", "flush", "close", "first look"],
)
def test_what_would_wait_for_itself_is_refused_by_name_and_the_producer_goes_on(
    producer: Producer, connection: FakeConnection, call: Callable[[Producer], object]
) -> None:
    refused = interrupted(producer, lambda: call(producer))
    assert isinstance(refused, ReentrantCall)
    assert "signal handler" in str(refused)
    last = producer.send("t", b"last")
    run(producer)
    assert last.done()
    values = [value for value in connection.values() if value != b"fits"]
    assert values == [LARGE, LARGE, b"last"]
    assert producer._sender.accumulator.free_bytes == producer.config.buffer_memory


class ToldEntry:
    """A lock that tells when somebody is about to take it."""

    def __init__(self, lock: Any) -> None:
        self.lock, self.entered = lock, threading.Event()

    def __enter__(self) -> None:
        self.entered.set()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


@pytest.mark.parametrize("is_checked", [True, False])
def test_another_thread_waits_for_the_lock_and_is_not_refused(is_checked: bool) -> None:
    lock, told = CallLock("producer"), list[str]()
    with lock.thread, lock.alone():
        entry: Any = ToldEntry(lock.thread)
        lock.thread = entry

        def other() -> None:
            if is_checked:
                lock.check()
            else:
                with lock.thread, lock.alone():
                    pass
            told.append("other")

        thread = threading.Thread(target=other)
        thread.start()
        assert entry.entered.wait(DEADLINE_S)
        told.append("first")
    thread.join()
    assert told == ["first", "other"]


def test_a_call_that_comes_between_two_calls_is_not_refused() -> None:
    lock = CallLock("producer")
    with lock.thread:  # a signal here finds nothing half done
        lock.check()
        with lock.thread, lock.alone():
            pass
        with lock.alone():
            with pytest.raises(ReentrantCall), lock.thread, lock.alone():
                pass
            with pytest.raises(ReentrantCall):
                lock.check()
    with pytest.raises(KeyboardInterrupt), lock.thread, lock.alone():
        raise KeyboardInterrupt
    lock.check()
    others = threading.Thread(target=lock.check)
    others.start()
    others.join()


@pytest.mark.parametrize("at", range(1, 5))
def test_a_part_of_a_table_that_ends_while_another_ones_end_is_counted_is_counted_too(
    at: int,
) -> None:
    """``at``: so many lines into the first one's end, the second one ends in the same thread."""
    ends = list[Callable[[], None]]()
    delivery: Any = SimpleNamespace(when_done=ends.append, outcomes=())
    sent = SentTable(2)
    sent.follow([_Part(delivery, np.arange(1)), _Part(delivery, np.arange(1))])
    first, second = ends
    lines = itertools.count(1)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_name == "_part_ended" and event == "line" and next(lines) == at:
            sys.settrace(None)
            second()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        first()
    finally:
        sys.settrace(before)
    if next(lines) <= at:  # it has fewer lines
        second()
    assert sent.done()
    assert sent.result(0) == []


def test_a_failure_that_is_seen_while_failures_are_counted_disturbs_nobody() -> None:
    partition: Any = SimpleNamespace(topic="t", number=0, name="t-0")
    delivery = Delivery(partition, created_at=0.0)

    class SeenMeanwhile(int):
        """The first record's index; another thread sees a failure whenever it is looked at."""

        def __rsub__(self, other: int) -> int:
            delivery.was_told(other + 1)
            return other - int(self)

    outcome = Outcome(SeenMeanwhile(0), 10, -1, -1, OSError("the disk"))
    delivery.was_told(3)
    assert delivery.untold(outcome) == 9
