"""A producer whose partitions hang, refuse, lose answers: nothing silent, nothing twice.

The partitions are real ones on disks in memory; the way there is a fake. The producers' clock
stands still until a test turns it, and their thread is the test: ``pump`` does all that is due.
"""

import asyncio
import concurrent.futures
import gc
import itertools
import re
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from raylog.actors.errors import (
    BufferExhausted,
    InvalidRequest,
    NoProducerId,
    NotLeader,
    NotSentInTime,
    ProduceFailed,
    RecordTooLargeToSend,
    RequestTimedOut,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raylog.cluster.client.added_partitions import partitions_added
from raylog.cluster.client.columns import to_table
from raylog.cluster.client.producer import Producer, SentRecord
from raylog.cluster.client.producer.failures import MOST_FAILURES
from raylog.cluster.client.producer.sender import Sender
from raylog.cluster.client.producer.waits import Waits
from raylog.storage.errors import InvalidRecord, InvalidTopic, OutOfOrderSequence, RecordTooLarge
from raylog.storage.records import _kernel_py, kernel
from raylog.storage.records.batch import read_header
from raylog.storage.records.decode import decode_table
from raylog.storage.records.encode import encode_records
from raylog.storage.records.murmur2 import partition_for_key
from raylog.storage.testing.waiting import DEADLINE_S, wait_for
from tests.harness.connections import FakeConnection, new_partition
from tests.harness.paths import ROOT

TIMEOUT_S = 60.0
T0 = 1_700_000_000_000


class Clock:
    """The producers' clock."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Lab:
    """Producers over one connection, and a clock."""

    def __init__(self) -> None:
        self.connection, self.clock = FakeConnection(), Clock()
        self.producers: list[Producer] = []

    def producer(self, connection: Any = None, /, **settings: Any) -> Producer:
        settings = {
            "linger_ms": 0,
            "retry_backoff_ms": 1,
            "delivery_timeout_ms": int(TIMEOUT_S * 1000),
            **settings,
        }
        producer = Producer(
            connection or self.connection, clock=self.clock, is_threaded=False, **settings
        )
        self.producers.append(producer)
        return producer

    def pump(self) -> None:
        """Do all that is due."""
        while True:
            worked = [producer._sender.step() for producer in self.producers]
            if not any(worked):
                return

    def advance(self, by_s: float) -> None:
        self.clock.now_s += by_s
        self.pump()

    def run(self) -> None:
        """Turn the clock a little, again and again: what is sent again is due then."""
        for _ in range(200):
            self.advance(0.002)

    def close(self, producer: Producer, timeout: float | None = None) -> None:
        """Close it while another thread is its own."""
        self.elsewhere(producer, lambda: producer.close(timeout))

    def elsewhere(self, producer: Producer, work: Callable[[], Any]) -> Any:
        """Run what waits for a producer, and be its thread meanwhile."""
        with ThreadPoolExecutor(1) as pool:
            doing = pool.submit(work)
            while not doing.done():
                producer._sender.step(0.01)
            return doing.result()


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    made.connection.create()
    yield made
    for producer in made.producers:
        producer._sender.stop()
        producer._sender.take_failures()


def cause_of(sent: SentRecord) -> Any:
    with pytest.raises(ProduceFailed) as failed:
        sent.result(0)
    return failed.value.cause


# -- sizes (what was broken: 1, 5) -----------------------------------------------------------------


def test_rows_that_wait_behind_a_batch_fill_batches_that_the_topic_takes(lab: Lab) -> None:
    lab.connection.create("small", 1, max_message_bytes=100_000)
    lab.connection.faults.append("hangs")
    producer = lab.producer()
    sent = [producer.send("small", b"x" * 1000) for _ in range(5)]
    lab.pump()
    sent += [producer.send("small", b"x" * 1000) for _ in range(995)]
    lab.connection.answer_held()
    lab.pump()
    assert [one.result(0).offset for one in sent] == list(range(1000))


def test_a_first_record_of_1970_leaves_the_batch_its_exact_size(lab: Lab) -> None:
    lab.connection.create("t", 1)
    lab.connection.faults.append("hangs")
    producer = lab.producer()
    producer.send("t", b"first")
    lab.pump()
    producer.send("t", b"", timestamp=0)
    sent = [producer.send("t", b"", timestamp=T0) for _ in range(100_000)]
    lab.connection.answer_held()
    lab.pump()
    assert sent[-1].result(0).offset == 100_001
    assert len(lab.connection.values()) == 100_002
    assert all(len(one.records) <= 1_048_588 for one in lab.connection.requests)


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_that_is_refused_as_too_large_is_split_and_written_in_order(
    lab: Lab, idempotent: bool, codec: str
) -> None:
    topic = lab.connection.create("t", 1, max_message_bytes=400)
    topic.told_max_bytes = 1_000_000  # it was lowered since
    producer = lab.producer(
        enable_idempotence=idempotent, compression_type=codec, linger_ms=10, batch_size=100_000
    )
    rows = [(b"%04d" % n * 20, [("n", b"%d" % n)]) for n in range(40)]
    sent = [producer.send("t", value, key=b"k", headers=headers) for value, headers in rows]
    lab.advance(0.01)
    lab.run()
    assert [one.result(0).offset for one in sent] == list(range(40))
    assert lab.connection.values() == [value for value, _ in rows]
    assert [record.headers[0].value for record in lab.connection.records()] == [
        b"%d" % n for n in range(40)
    ]


@pytest.mark.parametrize("idempotent", [True, False])
def test_one_record_that_is_too_large_fails_alone(lab: Lab, idempotent: bool) -> None:
    topic = lab.connection.create("t", 1, max_message_bytes=1000)
    topic.told_max_bytes = 1_000_000
    producer = lab.producer(enable_idempotence=idempotent, linger_ms=10, batch_size=100_000)
    values = [b"x" * (5000 if n == 7 else 30) for n in range(20)]
    sent = [producer.send("t", value) for value in values]
    lab.advance(0.01)
    behind = producer.send("t", b"behind")
    lab.run()
    assert isinstance(cause_of(sent.pop(7)), RecordTooLarge)
    assert [one.result(0).offset for one in sent] == list(range(19))
    assert behind.result(0).offset == 19
    lab.close(producer)


def test_a_record_beyond_the_topics_limit_goes_alone_and_may_fit_compressed(lab: Lab) -> None:
    lab.connection.create("t", 1, max_message_bytes=1000)
    producer = lab.producer(compression_type="zstd")
    sent = [producer.send("t", value) for value in (b"before", b"x" * 100_000, b"after")]
    lab.pump()
    assert [one.result(0).offset for one in sent] == [0, 1, 2]


def test_max_request_size_is_the_producers_limit_and_is_named(lab: Lab) -> None:
    lab.connection.create("t", 1, max_message_bytes=20 << 20)
    producer = lab.producer()
    with pytest.raises(RecordTooLargeToSend, match=r"max\.request\.size=1048576") as refused:
        producer.send("t", b"x" * (2 << 20))
    assert isinstance(refused.value, RecordTooLarge)
    large = lab.producer(max_request_size=3 << 20, buffer_memory=4 << 20)
    sent = large.send("t", b"x" * (2 << 20))
    lab.pump()
    assert sent.result(0).offset == 0
    with pytest.raises(RecordTooLargeToSend, match=r"buffer\.memory"):
        lab.producer(max_request_size=3 << 20, buffer_memory=1000).send("t", b"x" * 2000)


def test_a_memoryview_is_measured_by_its_bytes(lab: Lab) -> None:
    producer = lab.producer(max_request_size=1000)
    numbers = memoryview(np.arange(200))  # type: ignore[arg-type]
    few = memoryview(np.arange(3))  # type: ignore[arg-type]
    sent = producer.send("t", few, partition=0)
    with pytest.raises(RecordTooLargeToSend):
        producer.send("t", numbers, partition=0)
    lab.pump()
    assert lab.connection.values() == [np.arange(3).tobytes()]
    assert sent.done()


# -- sequences (2) ---------------------------------------------------------------------------------


def test_a_log_that_lost_its_tail_is_written_again_under_the_next_epoch(lab: Lab) -> None:
    lab.connection.create("t", 1)
    producer = lab.producer()
    for n in range(3):
        producer.send("t", b"%d" % n)
        lab.pump()
    lab.connection.lose_tail(kept=1)
    sent = [producer.send("t", b"after %d" % n) for n in range(3)]
    lab.run()
    assert [one.result(0).offset for one in sent] == [1, 2, 3]
    assert lab.connection.values() == [b"0", b"after 0", b"after 1", b"after 2"]
    assert read_header(lab.connection.requests[-1].records).producer_epoch == 1


def test_behind_the_last_epoch_comes_a_new_producer_id(lab: Lab) -> None:
    lab.connection.create("t", 1)
    producer = lab.producer()
    producer.send("t", b"0")
    lab.pump()
    machine = producer._sender.accumulator.topics["t"].batches[0].owner.machine
    machine.identity = machine.identity._replace(epoch=32_767)
    machine.next_sequence = 5
    sent = producer.send("t", b"1")
    lab.run()
    assert sent.result(0).offset == 1
    header = read_header(lab.connection.requests[-1].records)
    assert (header.producer_id, header.producer_epoch) == (8, 0)


def test_without_idempotence_a_gap_is_an_error_like_any_other(lab: Lab) -> None:
    class Gap(FakeConnection):
        def _append(self, request: Any) -> Any:
            raise OutOfOrderSequence("t-0", 1, 2, 3)

    connection = Gap()
    connection.create()
    producer = lab.producer(connection, enable_idempotence=False)
    sent = producer.send("t", b"x")
    lab.run()
    assert isinstance(cause_of(sent), OutOfOrderSequence)


# -- the end (3) -----------------------------------------------------------------------------------

SCRIPT = """
import sys
from raylog.cluster.client.producer import Producer
from tests.harness.connections import FakeConnection
connection = FakeConnection()
connection.create("t", 1)
connection.faults += {faults!r}
import atexit
atexit.register(lambda: print(connection.values()))
producer = Producer(connection, linger_ms={timeout_ms} - 1, delivery_timeout_ms={timeout_ms})
for n in range(10):
    producer.send("t", b"%d" % n)
"""


def _script(faults: list[str], timeout_ms: int) -> "subprocess.CompletedProcess[str]":
    code = SCRIPT.format(faults=faults, timeout_ms=timeout_ms)
    return subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S * 5,
        check=False,
    )


def test_a_process_that_ends_without_close_sends_what_is_left() -> None:
    done = _script([], 60_000)
    assert done.stdout.strip() == str([b"%d" % n for n in range(10)]), done.stderr
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_end_of_a_process_cannot_send_is_told_by_count() -> None:
    done = _script(["hangs"], 500)
    assert "10 records of a producer that was not closed were not acknowledged" in done.stderr
    assert "ResourceWarning" in done.stderr


def test_leaving_by_an_exception_sends_what_was_taken(lab: Lab) -> None:
    producer = lab.producer(linger_ms=10_000)
    sent = []

    def work() -> None:
        with producer:
            sent.append(producer.send("t", b"taken", partition=0))
            raise KeyError("the user's")

    with pytest.raises(KeyError):
        lab.elsewhere(producer, work)
    assert sent[0].result(0).offset == 0


def test_what_cannot_be_sent_then_is_a_note_at_the_users_error(lab: Lab) -> None:
    lab.connection.create("t", 1, max_message_bytes=100)
    producer = lab.producer()

    def work() -> None:
        with producer:
            producer.send("t", b"x" * 200)
            raise KeyError("the user's")

    with pytest.raises(KeyError) as raised:
        lab.elsewhere(producer, work)
    assert "max.message.bytes=100" in raised.value.__notes__[0]


def test_close_gives_up_after_its_timeout_and_says_so(lab: Lab) -> None:
    lab.connection.faults.append("hangs")
    producer = lab.producer(linger_ms=10)
    hung = producer.send("t", b"hung", partition=0)
    lab.advance(0.01)
    queued = producer.send("t", b"queued", partition=0)
    with pytest.raises(ProduceFailed) as failed:
        producer.close(timeout=0)
    assert failed.value.__notes__ == ["2 records in all were not acknowledged"]
    for sent in (hung, queued):
        assert isinstance(cause_of(sent), InvalidRequest)
    lab.connection.answer_held()
    producer.close()
    with pytest.raises(InvalidRequest, match="closed"):
        producer.send("t", b"more")


def test_a_producer_is_not_pickled(lab: Lab) -> None:
    import pickle

    with pytest.raises(TypeError, match=r"broker\.producer\(\)"):
        pickle.dumps(lab.producer())


# -- copies (4), types (8) -------------------------------------------------------------------------


def test_what_send_took_does_not_change(lab: Lab) -> None:
    producer = lab.producer(linger_ms=10)
    buffer = bytearray(b"one")
    producer.send("t", buffer, key=memoryview(buffer), partition=0)
    buffer[:] = b"two"
    producer.send("t", buffer, partition=0)
    headers = [("a", b"1")]
    producer.send("t", b"listed", headers=headers, partition=0)
    headers.clear()
    producer.send("t", b"made", headers=((name, b"2") for name in "bc"), partition=0)
    producer.send("t", b"mapped", headers={"d": bytearray(b"3"), "e": None}, partition=0)
    lab.advance(0.01)
    rows = [(r.value, r.key, [tuple(h) for h in r.headers]) for r in lab.connection.records()]
    assert rows == [
        (b"one", b"one", []),
        (b"two", None, []),
        (b"listed", None, [("a", b"1")]),
        (b"made", None, [("b", b"2"), ("c", b"2")]),
        (b"mapped", None, [("d", b"3"), ("e", None)]),
    ]


def test_numpy_integers_datetimes_and_subclasses_are_taken(lab: Lab) -> None:
    class Text(str):
        pass

    class Blob(bytes):
        pass

    producer = lab.producer()
    east = timezone(timedelta(hours=2))
    sent = [
        producer.send(Text("t"), Blob(b"x"), partition=np.int64(1), timestamp=np.int64(T0)),
        producer.send("t", b"x", partition=1, timestamp=datetime(2024, 1, 1, 2, tzinfo=east)),
        producer.send("t", b"x", partition=1, timestamp=datetime(2024, 1, 1)),
        producer.send("t", b"x", partition=1, headers=[(Text("n"), Blob(b"v"))]),
    ]
    lab.pump()
    assert [one.result(0)[1:3] for one in sent] == [(1, n) for n in range(4)]
    times = [record.timestamp for record in lab.connection.records("t", 1)]
    midnight = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)
    assert times[:3] == [T0, midnight, midnight]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"value": "text"}, "value='text' is a str; encode it"),
        ({"value": 7}, "value=7 is a int"),
        ({"key": 1.5}, "key=1.5 is a float"),
        ({"timestamp": -1}, "timestamp=-1 is invalid"),
        ({"timestamp": 1.5}, "timestamp=1.5 is invalid"),
        ({"timestamp": True}, "timestamp=True is invalid"),
        ({"timestamp": 2**63}, "is invalid"),
        ({"timestamp": datetime(1960, 1, 1, tzinfo=UTC)}, "a datetime since 1970"),
        ({"partition": -1}, "partition=-1 is invalid"),
        ({"partition": "0"}, "partition='0' is invalid"),
        ({"partition": True}, "partition=True is invalid"),
        ({"headers": 7}, "headers=7 are no headers"),
        ({"headers": [("a", "b")]}, "header a='b' is a str; encode it to bytes first$"),
        ({"headers": [(b"a", b"b")]}, "header name b'a' is a bytes"),
        ({"headers": ["ab"]}, "is not a pair"),
        ({"headers": [("a", b"b", b"c")]}, "has 3 fields"),
        ({"headers": [("\ud800", b"b")]}, "is not Unicode text"),
    ],
)
def test_what_no_record_can_have_is_refused_by_name(
    lab: Lab, row: dict[str, Any], why: str
) -> None:
    producer = lab.producer()
    with pytest.raises(InvalidRecord, match=why):
        producer.send("t", **row)
    with pytest.raises(InvalidTopic, match="not a str"):
        producer.send(b"t", b"x")  # type: ignore[arg-type]
    producer.close(0)


def test_serializers_make_bytes_of_what_is_sent(lab: Lab) -> None:
    producer = lab.producer(key_serializer=str.encode, value_serializer=lambda n: b"%d" % n)
    producer.send("t", 5, key="k", partition=0)
    producer.send("t", None, partition=0)
    lab.pump()
    assert [(r.key, r.value) for r in lab.connection.records()] == [(b"k", b"5"), (None, None)]
    with pytest.raises(InvalidRecord, match="encode it to bytes first"):
        lab.producer(value_serializer=str).send("t", 5)


# -- partitioners ----------------------------------------------------------------------------------


def test_partitions_by_key_in_turn_by_choice_and_in_runs(lab: Lab) -> None:
    lab.connection.create("t", 3)
    keys = [b"%d" % n for n in range(20)]
    by_key = lab.producer()
    sent = [by_key.send("t", b"", key=key) for key in keys]
    in_turn = lab.producer(partitioner="round_robin")
    turns = [in_turn.send("t", b"", key=key) for key in keys[:6]]
    chosen = lab.producer(partitioner=lambda topic, key, count: len(topic + str(count)) % 3)
    choices = [chosen.send("t", b"") for _ in range(3)]
    in_runs = lab.producer(batch_size=200)
    runs = [in_runs.send("t", b"x" * 50) for _ in range(100)]
    lab.pump()
    assert [one.result(0).partition for one in sent] == [partition_for_key(k, 3) for k in keys]
    assert [one.result(0).partition for one in turns] == [0, 1, 2, 0, 1, 2]
    assert [one.result(0).partition for one in choices] == [2, 2, 2]
    parts = [one.result(0).partition for one in runs]
    changes = sum(a != b for a, b in itertools.pairwise(parts))
    assert set(parts) == {0, 1, 2}
    assert changes < 50
    sticky = lab.producer(partitioner="sticky", batch_size=200)
    values: list[Any] = [b"x" * 50, bytearray(50)]
    mixed = [sticky.send("t", values[n % 2], key=b"%d" % n) for n in range(100)]
    lab.pump()
    kept = [one.result(0).partition for one in mixed]
    assert set(kept) == {0, 1, 2}
    assert sum(a != b for a, b in itertools.pairwise(kept)) < 50
    wrong = lab.producer(partitioner=lambda *_: 3)
    with pytest.raises(InvalidRecord, match="chose partition 3 of t, which has 3"):
        wrong.send("t", b"x")


@pytest.mark.parametrize("table", [{"value": [b"x"]}, [b"x"], None])
def test_what_is_no_table_is_refused_in_words(lab: Lab, table: Any) -> None:
    with pytest.raises(InvalidRecord, match="give a pyarrow Table or RecordBatch"):
        lab.producer().send_arrow("t", table)


def test_tables_obey_the_partitioner_too(lab: Lab) -> None:
    lab.connection.create("t", 3)
    table = pa.table({"key": pa.array([b"a", None, b"b", b"a"]), "value": pa.array([b"x"] * 4)})

    def partitions_by(partitioner: Any) -> list[int]:
        sent = lab.producer(partitioner=partitioner).send_arrow("t", table)
        lab.pump()
        return sent.offsets(0).column("partition").to_pylist()

    keys = {b"a": 2, b"b": 0, None: 1}
    assert partitions_by(lambda topic, key, count: keys[key]) == [2, 1, 0, 2]
    assert len(set(partitions_by("sticky"))) == len(set(partitions_by("round_robin"))) == 1
    assert partitions_by("murmur2")[0] == partition_for_key(b"a", 3)
    with pytest.raises(InvalidRecord, match="chose partition 3 of t, which has 3"):
        partitions_by(lambda *_: 3)


# -- topics that change (6) ------------------------------------------------------------------------


def test_a_topic_made_again_with_fewer_partitions_is_another_topic(lab: Lab) -> None:
    lab.connection.create("t", 4)
    producer = lab.producer(linger_ms=10)
    for n in range(8):
        producer.send("t", b"old", partition=n % 4)
    lab.advance(0.01)
    lab.connection.create("t", 2)
    queued = [producer.send("t", b"lost", partition=n) for n in range(4)]
    lab.clock.now_s += 0.01
    producer._sender.step()
    while not any(one.done() for one in queued):
        producer._sender.step()
    first = producer.send("t", b"new at once")
    lab.advance(0.01)
    for one in queued:
        assert isinstance(cause_of(one), UnknownTopicId)
    assert first.result(0).offset == 0, "who has seen one of them fail is bound to the new topic"
    sent = [producer.send("t", b"new %d" % n) for n in range(40)]
    lab.advance(0.01)
    lab.run()
    assert {one.result(0).partition for one in sent} <= {0, 1}
    values = lab.connection.values("t", 0) + lab.connection.values("t", 1)
    expected = [b"new at once", *(b"new %d" % n for n in range(40))]
    assert sorted(values) == sorted(expected)  # type: ignore[type-var]
    lab.close(producer)


def test_a_topic_that_is_deleted_is_waited_for_and_then_named(lab: Lab) -> None:
    producer = lab.producer()
    producer.send("t", b"x", partition=0)
    lab.pump()
    del lab.connection.topics["t"]
    sent = producer.send("t", b"y", partition=0)
    lab.run()
    assert not sent.done()
    lab.advance(TIMEOUT_S)
    assert isinstance(cause_of(sent), UnknownTopicOrPartition)
    with pytest.raises(UnknownTopicOrPartition):
        producer.send("never", b"z")


def test_partitions_that_were_added_are_used_once_they_are_known(lab: Lab) -> None:
    producer = lab.producer(metadata_max_age_ms=10_000)
    producer.send("t", b"1", partition=1)
    with pytest.raises(UnknownTopicOrPartition, match="the topic has 2 partitions"):
        producer.send("t", b"2", partition=2)
    lab.connection.topics["t"].partitions.append(new_partition())
    assert len(producer._sender.accumulator.topics["t"].batches) == 2
    lab.advance(10)
    assert len(producer._sender.accumulator.topics["t"].batches) == 3
    keys = [b"%d" % n for n in range(30)]
    sent = [producer.send("t", b"v", key=key) for key in keys]
    lab.connection.topics["t"].partitions.append(new_partition())
    sent.append(producer.send("t", b"v", partition=3))
    lab.pump()
    assert [one.result(0).partition for one in sent] == [
        *(partition_for_key(key, 3) for key in keys),
        3,
    ]


def test_partitions_that_this_process_adds_are_known_at_once(lab: Lab) -> None:
    producer = lab.producer()
    producer.send("t", b"1")
    lab.connection.topics["t"].partitions.append(new_partition())
    for namespace, known in (("another", 2), ("fake", 3)):
        partitions_added(namespace, "t", 3)
        lab.pump()
        assert len(producer._sender.accumulator.topics["t"].batches) == known


def test_first_sends_and_added_partitions_disturb_no_other_topic(lab: Lab) -> None:
    for name in ("a", "b", "c"):
        lab.connection.create(name, 1)
    producer = lab.producer()
    errors: list[BaseException] = []

    def send(name: str) -> None:
        try:
            for n in range(300):
                producer.send(name, b"%d" % n)
        except BaseException as error:
            errors.append(error)

    def grow() -> None:
        for _ in range(50):
            lab.connection.topics["b"].partitions.append(new_partition())
            producer._sender.refresh("b")
            producer._sender.step()

    threads = [threading.Thread(target=send, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    grow()
    for thread in threads:
        thread.join()
    lab.pump()
    assert errors == []
    assert len(lab.connection.values("a")) == len(lab.connection.values("c")) == 300


# -- waiting (7) -----------------------------------------------------------------------------------


def test_result_hurries_its_own_partition_and_no_other(lab: Lab) -> None:
    lab.connection.create("other", 1)
    producer = lab.producer(linger_ms=1000)
    waited_for = producer.send("t", b"now", partition=0)
    producer.send("t", b"later", partition=1)
    producer.send("other", b"later")
    with pytest.raises(TimeoutError):
        waited_for.result(0)
    lab.pump()
    assert waited_for.result(0).offset == 0
    assert [request.topic for request in lab.connection.requests] == ["t"]
    producer.send("t", b"next", partition=0)
    lab.pump()
    assert len(lab.connection.requests) == 1, "the next record lingers again"
    lab.advance(1)
    assert len(lab.connection.requests) == 4


def test_a_failure_that_was_seen_is_not_raised_again(lab: Lab) -> None:
    lab.connection.create("t", 1, max_message_bytes=100)
    producer = lab.producer(linger_ms=1)
    seen = producer.send("t", b"x" * 200)
    lab.advance(0.001)
    cause_of(seen)
    by_exception = producer.send("t", b"x" * 200)
    lab.advance(0.001)
    assert isinstance(by_exception.exception(0), ProduceFailed)
    lab.close(producer)


def test_a_failure_that_nobody_saw_is_raised_once(lab: Lab) -> None:
    lab.connection.create("t", 1, max_message_bytes=100)
    producer = lab.producer()
    for _ in range(3):
        producer.send("t", b"x" * 200)
    lab.pump()
    with pytest.raises(ProduceFailed, match=r"max\.message\.bytes=100") as failed:
        producer.flush(0)
    assert failed.value.__notes__ == ["3 records in all were not acknowledged"]
    producer.flush(0)
    lab.close(producer)


def test_flush_waits_for_what_was_sent_before_it_and_not_for_more(lab: Lab) -> None:
    producer = lab.producer(linger_ms=10_000)
    before = producer.send("t", b"before", partition=0)
    with pytest.raises(RequestTimedOut):
        producer.flush(0)
    after = producer.send("t", b"after", partition=1)
    lab.pump()
    assert before.done()
    assert not after.done()
    lab.elsewhere(producer, producer.flush)
    assert after.result(0).offset == 0


# -- receipts --------------------------------------------------------------------------------------


def test_a_receipt_is_a_future(lab: Lab) -> None:
    producer = lab.producer(linger_ms=10)
    sent = [producer.send("t", b"%d" % n, partition=0) for n in range(4)]
    heard: list[Any] = []
    sent[0].add_done_callback(lambda done: heard.append(done.result().offset))
    assert isinstance(sent[0], concurrent.futures.Future)
    assert (sent[0].cancel(), sent[0].cancelled(), sent[0].done()) == (False, False, False)
    assert sent[0].running()
    done, left = concurrent.futures.wait(sent[:2], timeout=0)
    assert (done, left) == (set(), set(sent[:2]))
    lab.advance(0.01)
    assert heard == [0]
    assert concurrent.futures.wait(sent, timeout=0).not_done == set()
    offsets = [one.result().offset for one in concurrent.futures.as_completed(sent, timeout=0)]
    assert sorted(offsets) == [0, 1, 2, 3]
    sent[3].add_done_callback(lambda done: heard.append(done.result().offset))
    assert heard == [0, 3], "a callback of what is done runs at once"
    assert repr(sent[3]) == "<SentRecord t-0 written>"
    with pytest.raises(AttributeError, match="'SentRecord' has no attribute 'offset'"):
        sent[3].offset  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(TypeError):
        SentRecord()


def test_a_receipt_can_be_awaited(lab: Lab) -> None:
    async def work(producer: Producer) -> Any:
        sent = producer.send("t", b"x", partition=1)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, lab.pump)
        return await asyncio.wait_for(asyncio.wrap_future(sent), DEADLINE_S)

    metadata = asyncio.run(work(lab.producer()))
    assert (metadata.topic, metadata.partition, metadata.offset) == ("t", 1, 0)


def test_a_receipt_that_nobody_waits_for_has_no_state(lab: Lab) -> None:
    producer = lab.producer(linger_ms=10)
    sent = producer.send("t", b"x", partition=0)
    assert "_condition" not in vars(sent)
    lab.advance(0.01)
    assert sent.result().offset == 0
    assert "_condition" not in vars(sent), "what is done needs none either"


def test_many_threads_may_wait_for_one_receipt(lab: Lab) -> None:
    producer = lab.producer(linger_ms=10)
    sent = producer.send("t", b"x", partition=0)
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(sent.result, DEADLINE_S) for _ in range(8)]
        wait_for(lambda: "_condition" in vars(sent), what="somebody waits")
        while not all(one.done() for one in waiting):
            lab.pump()
    assert {one.result().offset for one in waiting} == {0}


def test_a_callback_may_send_and_may_not_wait(lab: Lab) -> None:
    producer = Producer(lab.connection, linger_ms=0)
    heard: list[Any] = []

    def again(done: Any) -> None:
        more = producer.send("t", b"second", partition=0)
        for wait in (lambda: more.result(), producer.flush, producer.close):
            try:
                wait()
            except InvalidRequest as error:
                heard.append(error)

    producer.send("t", b"first", partition=0).add_done_callback(again)
    wait_for(lambda: len(heard) == 3, what="the callback ran")
    producer.close()
    assert lab.connection.values() == [b"first", b"second"]


# -- linger.ms, retry.backoff.ms, delivery.timeout.ms ----------------------------------------------


def test_a_batch_that_is_not_full_leaves_after_linger_ms_not_before(lab: Lab) -> None:
    producer = lab.producer(linger_ms=4000, batch_size=1000)
    producer.send("t", b"first", partition=0)
    lab.advance(3.75)
    producer.send("t", b"second", partition=0)
    lab.pump()
    assert lab.connection.values() == []
    lab.advance(0.25)
    assert lab.connection.values() == [b"first", b"second"], "the time runs from the first record"
    producer.send("t", b"x" * 1000, partition=0)
    lab.pump()
    assert len(lab.connection.values()) == 3, "a full batch does not linger"


def test_a_refused_batch_is_sent_again_after_retry_backoff_ms_longer_each_time(lab: Lab) -> None:
    lab.connection.faults.extend(["no actor", "no actor"])
    producer = lab.producer(retry_backoff_ms=4000, retry_backoff_max_ms=8000)
    sent = producer.send("t", b"x", partition=0)
    for least_s, most_s in ((2, 4), (4, 8)):
        lab.pump()
        before = len(lab.connection.faults)
        lab.advance(least_s - 0.01)
        assert len(lab.connection.faults) == before
        assert not sent.done()
        lab.advance(most_s - least_s + 0.02)
    assert sent.result(0).offset == 0


@pytest.mark.parametrize("resumes", ["before the next", "after the next"])
def test_a_call_that_hangs_fails_in_time_and_what_follows_is_written_once(
    lab: Lab, resumes: str
) -> None:
    producer = lab.producer()
    producer.send("t", b"first", partition=0)
    lab.pump()
    lab.connection.faults.append("hangs")
    hung = producer.send("t", b"hung", partition=0)
    lab.pump()
    lab.advance(TIMEOUT_S - 1)
    assert not hung.done()
    lab.advance(1)
    cause = cause_of(hung)
    assert isinstance(cause, RequestTimedOut)
    assert (cause.what, cause.timeout_ms) == ("t-0", 60_000)
    if resumes == "before the next":
        lab.connection.answer_held()
    after = producer.send("t", b"next", partition=0)
    lab.pump()
    assert after.result(0).offset == len(lab.connection.values()) - 1
    lab.connection.answer_held()
    lab.pump()
    kept = [b"hung"] if resumes == "before the next" else []
    assert lab.connection.values() == [b"first", *kept, b"next"]


def test_rows_behind_a_call_that_hangs_are_not_lost_with_it(lab: Lab) -> None:
    lab.connection.faults.append("hangs")
    producer = lab.producer()
    hung = producer.send("t", b"hung", partition=0)
    lab.advance(TIMEOUT_S / 2)
    behind = producer.send("t", b"behind", partition=0)
    lab.advance(TIMEOUT_S / 2)
    assert isinstance(cause_of(hung), RequestTimedOut)
    assert behind.result(0).offset == 0


def test_records_whose_turn_did_not_come_in_time_are_known_to_be_unwritten(lab: Lab) -> None:
    """Kafka's TimeoutException of a batch that expires in the accumulator."""
    lab.connection.faults.append("hangs")
    producer = lab.producer()
    hung = producer.send("t", b"hung", partition=0)
    lab.pump()
    behind = producer.send("t", b"behind", partition=0)
    lab.advance(TIMEOUT_S)
    assert type(cause_of(hung)) is RequestTimedOut
    cause = cause_of(behind)
    assert isinstance(cause, NotSentInTime)
    assert "t-0: not sent within delivery.timeout.ms=60000; nothing was written" in str(cause)
    lab.run()
    assert lab.connection.values() == []


def test_the_records_of_a_batch_share_the_time_of_its_first_one(lab: Lab) -> None:
    lab.connection.create("t", 1)
    lab.connection.faults += ["hangs"]
    producer = lab.producer()
    hung = producer.send("t", b"hung")
    lab.advance(1)
    first = producer.send("t", b"first of the next batch")
    lab.advance(TIMEOUT_S - 2)
    lab.connection.faults += ["no actor"] * 1000
    young = producer.send("t", b"young")
    lab.advance(1)
    assert isinstance(cause_of(hung), RequestTimedOut)
    assert not first.done()
    lab.advance(1)
    assert first.done()
    assert young.done(), "two seconds after its send, as Kafka's producer does"
    next_batch = producer.send("t", b"next")
    lab.connection.faults.clear()
    lab.run()
    assert next_batch.result(0).offset == 0


def test_what_kept_it_from_being_written_is_the_last_thing_that_happened(lab: Lab) -> None:
    lab.connection.faults.extend(["no actor"] * 1000)
    refused = lab.producer().send("t", b"x", partition=0)
    lab.run()
    lab.advance(TIMEOUT_S)
    assert isinstance(cause_of(refused), NotLeader)


def test_a_lost_answer_is_asked_for_again_and_nothing_is_there_twice(lab: Lab) -> None:
    lab.connection.faults.extend(["answer lost", "no actor", "throttled"])
    producer = lab.producer()
    sent = producer.send("t", b"x", partition=0)
    lab.run()
    assert sent.result(0).offset == 0
    assert lab.connection.values() == [b"x"]


@pytest.mark.parametrize("idempotent", [True, False])
def test_an_error_without_a_name_is_told_and_the_batch_is_sent_again(
    lab: Lab, idempotent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    lab.connection.create("t", 1)
    lab.connection.faults += ["unnamed", "unnamed"] + ["answer lost, unnamed"] * idempotent
    producer = lab.producer(enable_idempotence=idempotent, client_id="gate")
    sent = [producer.send("t", b"%d" % n) for n in range(3)]
    lab.run()
    assert [one.result(0).offset for one in sent] == [0, 1, 2]
    assert lab.connection.values() == [b"0", b"1", b"2"]
    assert caplog.text.count("the object store is full") == 1
    assert "producer gate: t-0" in caplog.text


def test_records_that_wait_are_told_once_and_why_and_are_sent_on(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.connection.create("t", 2)
    lab.connection.faults += ["no actor"] * 1000
    producer = lab.producer(retry_backoff_ms=1000, client_id="gate")
    sent = [producer.send("t", b"x", partition=number) for number in (0, 1)]
    for _ in range(4):
        lab.advance(1.0)
    assert caplog.text == "", "a partition that restarts is back by then"
    for _ in range(50):
        lab.advance(1.0)
    (told,) = caplog.messages
    assert re.match(r"producer gate: t-[01]: records have waited for \d+ s, ", told)
    assert "delivery.timeout.ms (60 s)" in told
    assert "gone" in told
    lab.connection.faults.clear()
    for _ in range(3):
        lab.advance(1.0)
    assert [one.result(0).offset for one in sent] == [0, 0]


def test_an_outage_that_follows_is_told_again(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    producer = lab.producer(retry_backoff_ms=1000)
    for _ in range(2):
        lab.connection.faults += ["no actor"] * 1000
        producer.send("t", b"x", partition=0)
        for _ in range(int(TIMEOUT_S) + 1):
            lab.advance(1.0)
    assert len(caplog.messages) == 2


def test_what_is_refused_for_good_is_not_told_as_waiting(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    waits = Waits("a producer", TIMEOUT_S)
    waits.refused("t-0", InvalidRecord("too old"), created_at=0.0, now=10.0)
    waits.refused("t-0", NotLeader("t-0", "gone"), created_at=0.0, now=TIMEOUT_S)
    assert caplog.text == ""


def test_an_error_without_a_name_that_lasts_is_the_cause_in_the_end(lab: Lab) -> None:
    lab.connection.create("t", 1)
    lab.connection.faults += ["unnamed"] * 1000
    producer = lab.producer(retry_backoff_ms=1000)
    sent = producer.send("t", b"x")
    for _ in range(int(TIMEOUT_S) + 1):
        lab.advance(1.0)
    assert str(cause_of(sent)) == "the object store is full"


def test_a_partition_that_hangs_holds_up_no_other(lab: Lab) -> None:
    lab.connection.faults.append("hangs")
    producer = lab.producer()
    producer.send("t", b"x", partition=0)
    lab.pump()
    here = producer.send("t", b"here", partition=1)
    lab.pump()
    assert here.result(0).offset == 0


# -- buffer.memory ---------------------------------------------------------------------------------


def test_a_send_without_room_waits_max_block_ms_and_takes_the_room_that_comes(lab: Lab) -> None:
    lab.connection.faults.append("hangs")
    producer = lab.producer(buffer_memory=2000, max_block_ms=4000)
    producer.send("t", b"x" * 1800, partition=0)
    lab.pump()
    with ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(producer.send, "t", b"y" * 400, partition=1)
        wait_for(lambda: producer._sender.changed._waiters, what="it waits")  # type: ignore[attr-defined]
        assert not blocked.done()
        lab.connection.answer_held()
        lab.pump()
        sent = blocked.result(DEADLINE_S)
    lab.pump()
    assert sent.result(0).offset == 0
    lab.connection.faults.append("hangs")
    producer.send("t", b"x" * 1800, partition=0)
    lab.pump()
    with ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(producer.send, "t", b"y" * 400, partition=1)
        wait_for(lambda: producer._sender.changed._waiters, what="it waits")  # type: ignore[attr-defined]
        lab.clock.now_s += 4
        producer._sender._has_changed()
        with pytest.raises(
            BufferExhausted, match=r"buffer\.memory=2000 had no room within 4000 ms"
        ):
            blocked.result(DEADLINE_S)


def test_a_send_that_waits_for_room_hears_that_the_producer_closes(lab: Lab) -> None:
    lab.connection.faults.append("hangs")
    producer = lab.producer(buffer_memory=2000)
    producer.send("t", b"x" * 1800, partition=0)
    lab.pump()
    with ThreadPoolExecutor(2) as pool:
        blocked: list[concurrent.futures.Future[Any]] = [
            pool.submit(producer.send, "t", b"y" * 400, partition=1),
            pool.submit(producer.send_arrow, "t", pa.table({"value": [b"y" * 400]})),
        ]
        wait_for(lambda: len(producer._sender.changed._waiters) == 2, what="both wait")  # type: ignore[attr-defined]
        with pytest.raises(ProduceFailed):
            producer.close(0)
        for one in blocked:
            with pytest.raises(InvalidRequest, match="closed"):
                one.result(DEADLINE_S)


def send_for_ever(producer: Producer, with_callbacks: bool) -> None:
    while True:
        sent = producer.send("t", b"x" * 100)
        if with_callbacks:
            sent.add_done_callback(id)


@pytest.mark.parametrize("with_callbacks", [False, True])
def test_a_producer_whose_partition_hangs_stays_within_its_memory(
    lab: Lab, with_callbacks: bool
) -> None:
    memory = 8 << 20
    lab.connection.create("t", 1)
    lab.connection.faults.extend(["hangs"])
    producer = lab.producer(buffer_memory=memory, max_block_ms=1)
    producer._sender.clock = time.monotonic
    producer.send("t", b"x")
    lab.pump()
    gc.collect()
    tracemalloc.start()
    try:
        with pytest.raises(RequestTimedOut):
            send_for_ever(producer, with_callbacks)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory * 0.4 < used < memory + (10 << 20)
    assert producer._sender.accumulator.free_bytes <= memory


def test_memory_is_given_back_to_the_last_byte(lab: Lab) -> None:
    producer = lab.producer(linger_ms=1)
    for n in range(2000):
        sent = producer.send("t", b"x" * (n % 300), key=b"%d" % n)
        if n % 3 == 0:
            sent.add_done_callback(lambda done: None)
    producer.send_arrow("t", pa.table({"value": [b"x" * 1000] * 500}))
    lab.advance(0.001)
    lab.run()
    lab.elsewhere(producer, producer.flush)
    assert producer._sender.accumulator.free_bytes == producer.config.buffer_memory


def test_a_producer_knows_the_partitions_of_a_topic(lab: Lab) -> None:
    lab.connection.create("t", 3)
    producer = lab.producer()
    assert producer.partitions_for("t") == {0, 1, 2}
    with pytest.raises(UnknownTopicOrPartition, match="nope"):
        producer.partitions_for("nope")


# -- send_arrow ------------------------------------------------------------------------------------


def test_send_arrow_says_where_each_row_went(lab: Lab) -> None:
    lab.connection.create("t", 3)
    producer = lab.producer()
    keys = [None if n % 5 == 0 else b"%d" % n for n in range(100)]
    values = [b"%d" % n for n in range(100)]
    sent = producer.send_arrow("t", pa.table({"key": keys, "value": values}))
    assert sent.num_rows == 100
    assert not sent.done()
    lab.pump()
    assert sum(part.count for part in sent.result(0)) == 100
    places = sent.offsets(0).to_pylist()
    for value, key, place in zip(values, keys, places, strict=True):
        partition, offset = place["partition"], place["offset"]
        assert lab.connection.values("t", partition)[offset] == value
        if key is not None:
            assert partition == partition_for_key(key, 3)
    assert producer.send_arrow("t", pa.table({"value": pa.array([], pa.binary())})).result(0) == []


def test_a_table_in_a_topic_of_small_batches_is_cut_to_fit(lab: Lab) -> None:
    lab.connection.create("t", 1, max_message_bytes=2000)
    producer = lab.producer()
    sent = producer.send_arrow("t", pa.table({"value": [b"x" * 300] * 100}))
    lab.pump()
    assert sum(part.count for part in sent.result(0)) == 100


def test_a_table_that_fails_says_so_and_close_does_not_again(lab: Lab) -> None:
    lab.connection.create("t", 1, max_message_bytes=1000)
    producer = lab.producer()
    sent = producer.send_arrow("t", pa.table({"value": [b"x" * 300, b"y" * 3000, b"z"]}))
    lab.run()
    with pytest.raises(ProduceFailed) as failed:
        sent.result(0)
    assert failed.value.records == 1
    assert lab.connection.values() == [b"x" * 300, b"z"]
    lab.close(producer)


def test_what_poll_arrow_gives_can_be_sent(lab: Lab) -> None:
    rows = [(T0 + n, b"k%d" % n, b"v%d" % n, (("h", b"%d" % n),)) for n in range(5)]
    polled = to_table(decode_table(encode_records(rows)), "source", 3)
    assert {"topic", "partition", "offset", "timestampType"} <= set(polled.schema.names)
    producer = lab.producer()
    for table in (polled, pa.Table.from_batches([polled])):
        lab.connection.create("t", 1)
        producer = lab.producer()
        producer.send_arrow("t", table)
        lab.pump()
        written = [
            (r.timestamp, r.key, r.value, tuple(map(tuple, r.headers)))
            for r in lab.connection.records()
        ]
        assert written == rows


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.string_view(),
        pa.large_string(),
        pa.binary_view(),
        pa.large_binary(),
        pa.binary(2),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_binary()),
    ],
    ids=str,
)
def test_columns_of_any_binary_or_string_type_are_taken(lab: Lab, kind: pa.DataType) -> None:
    lab.connection.create("t", 1)
    plain = pa.array([b"aa", None, b"bb", b"aa"], pa.binary())
    is_text = "string" in str(kind)
    column = plain.cast(pa.string()) if is_text else plain
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type).dictionary_encode().cast(kind)
    else:
        column = column.cast(kind)
    producer = lab.producer()
    producer.send_arrow("t", pa.table({"value": column, "key": column}))
    lab.pump()
    assert sorted((r.key or b"", r.value or b"") for r in lab.connection.records()) == [
        (b"", b""),
        (b"aa", b"aa"),
        (b"aa", b"aa"),
        (b"bb", b"bb"),
    ]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("tz", [None, "UTC", "Europe/Berlin"])
def test_timestamps_of_any_unit_are_taken(lab: Lab, unit: str, tz: str | None) -> None:
    lab.connection.create("t", 1)
    whole = pa.array([1_700_000_000], pa.timestamp("s", tz)).cast(pa.timestamp(unit, tz))
    producer = lab.producer()
    producer.send_arrow("t", pa.table({"value": [b"x"], "timestamp": whole}))
    lab.pump()
    assert lab.connection.records()[0].timestamp == 1_700_000_000_000


def test_microseconds_are_cut_to_milliseconds(lab: Lab) -> None:
    lab.connection.create("t", 1)
    column = pa.array([1_700_000_000_123_456], pa.timestamp("us"))
    lab.producer().send_arrow("t", pa.table({"value": [b"x"], "timestamp": column}))
    lab.pump()
    assert lab.connection.records()[0].timestamp == 1_700_000_000_123


# -- both kernels ----------------------------------------------------------------------------------


def test_the_twin_serves_as_well(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "from raylog.cluster.client.producer import Producer\n"
        "from tests.harness.connections import FakeConnection\n"
        "connection = FakeConnection()\n"
        "connection.create('t', 3)\n"
        "with Producer(connection) as producer:\n"
        "    sent = [producer.send('t', b'%d' % n, key=b'%d' % n, headers=[('h', None)])"
        " for n in range(5000)]\n"
        "assert sum(len(connection.values('t', n)) for n in range(3)) == 5000\n"
        "assert sorted({one.result().partition for one in sent}) == [0, 1, 2]\n"
        "from raylog.storage.records import kernel\n"
        "print(kernel.KERNEL)\n"
    )
    with warnings.catch_warnings():
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"RAYLOG_PURE_PYTHON": "1", "PATH": "/usr/bin"},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S * 5,
            check=False,
        )
    assert done.stdout.strip() == _kernel_py.KERNEL, done.stderr
    assert kernel.ops is not None


def test_a_first_send_waits_for_a_controller_that_is_away(lab: Lab) -> None:
    lab.connection.create("t")
    producer = lab.producer()
    lab.connection.away = 3
    sent = producer.send("t", b"v", partition=0)
    lab.run()
    assert (sent.result().offset, lab.connection.asked_metadata) == (0, 4)


def test_a_first_send_waits_no_longer_than_it_may(lab: Lab) -> None:
    lab.connection.create("t")
    producer = lab.producer(max_block_ms=50)
    lab.connection.away = 1_000_000
    asked = lab.connection.metadata

    def metadata(topic: str, *, timeout_s: float) -> Any:
        lab.clock.now_s += 0.02
        return asked(topic, timeout_s=timeout_s)

    lab.connection.metadata = metadata  # type: ignore[method-assign]
    with pytest.raises(NotLeader, match="the Controller is away"):
        producer.send("t", b"v")
    assert lab.connection.asked_metadata == 3


def test_a_producer_that_is_made_while_the_controller_is_away_waits_for_its_id(lab: Lab) -> None:
    lab.connection.create("t")
    lab.connection.away = 3
    producer = lab.producer()
    sent = producer.send("t", b"v", partition=0)
    lab.run()
    assert (sent.result().offset, lab.connection.away) == (0, 0)


def test_a_producer_waits_for_its_id_no_longer_than_it_may(lab: Lab) -> None:
    lab.connection.away = 1_000_000
    asked: list[float] = []
    ask = lab.connection.new_producer_id

    def new_producer_id(*, timeout_s: float) -> Any:
        asked.append(timeout_s)
        lab.clock.now_s += 0.02
        return ask(timeout_s=timeout_s)

    lab.connection.new_producer_id = new_producer_id  # type: ignore[method-assign]
    with pytest.raises(NoProducerId, match="the Controller is away"):
        lab.producer(max_block_ms=50)
    assert asked == pytest.approx([0.05, 0.03, 0.01])


def test_a_producer_without_an_id_says_why_it_got_none(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(_: Sender, seconds: float) -> None:
        lab.clock.now_s += seconds

    monkeypatch.setattr(Sender, "pause", pause)
    lab.connection.away = 2
    with pytest.raises(NoProducerId, match="the Controller is away") as failed:
        lab.producer(max_block_ms=150, retry_backoff_ms=100)
    assert lab.connection.away == 0, "not asked once more without time"
    assert isinstance(failed.value.__cause__, NotLeader)


def test_a_producer_without_an_id_names_the_whole_wait(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It named what was left of it in the last try, and that this may have taken effect."""

    def pause(_: Sender, seconds: float) -> None:
        lab.clock.now_s += seconds

    def ask(*, timeout_s: float) -> "Future[int]":
        lab.clock.now_s += timeout_s
        future: Future[int] = Future()
        future.set_exception(RequestTimedOut("a producer id", round(timeout_s * 1000)))
        return future

    monkeypatch.setattr(Sender, "pause", pause)
    monkeypatch.setattr(lab.connection, "new_producer_id", ask)
    with pytest.raises(NoProducerId) as failed:
        lab.producer(max_block_ms=327)
    assert failed.value.timeout_ms == 327
    assert "max.block.ms=327" in str(failed.value)
    assert "may have taken effect" not in str(failed.value)


# -- two things at once ----------------------------------------------------------------------------


def test_a_callback_that_ends_its_thread_ends_no_producer(lab: Lab) -> None:
    producer = lab.producer()
    lab.connection.faults.append("hangs")
    first = producer.send("t", b"1", partition=0)
    first.add_done_callback(lambda _: sys.exit(3))
    heard: list[int] = []
    second = producer.send("t", b"2", partition=0)
    second.add_done_callback(lambda sent: heard.append(sent.result().offset))
    lab.pump()
    lab.connection.answer_held()
    lab.pump()
    assert (first.result(0).offset, second.result(0).offset) == (0, 1)
    assert heard == [1]
    assert producer._sender.accumulator.free_bytes == producer.config.buffer_memory


def test_what_close_gives_up_is_told_and_a_callback_then_waits_for_nothing(lab: Lab) -> None:
    lab.connection.faults.extend(["hangs"] * 9)
    producer = lab.producer()
    first, second = (producer.send("t", b"x", partition=n) for n in (0, 1))
    lab.pump()
    refused: list[str] = []

    def ask(_: object) -> None:
        for wait in (first.result, second.result, producer.flush, producer.close):
            try:
                wait()
            except ProduceFailed:
                refused.append("failed")
            except InvalidRequest:
                refused.append("refused")

    first.add_done_callback(ask)
    with pytest.raises(ProduceFailed):
        producer.close(0)
    assert refused == ["failed", "refused", "refused"]
    assert second.done()


def test_a_table_is_not_waited_for_in_a_callback(lab: Lab) -> None:
    producer = lab.producer()
    raised: list[object] = []

    def send_and_wait(_: object) -> None:
        producer._sender.thread = threading.current_thread()  # the lab's thread is the producer's
        sent = producer.send_arrow("t", pa.table({"value": [b"x"]}))
        for wait in (sent.result, sent.exception, sent.offsets):
            with pytest.raises(InvalidRequest, match="callback") as error:
                wait(0)
            raised.append(error.value)

    producer.send("t", b"x").add_done_callback(send_and_wait)
    lab.pump()
    assert len(raised) == 3


def test_many_failures_that_were_seen_hide_none_that_was_not(lab: Lab) -> None:
    lab.connection.create("t", 1, max_message_bytes=100)
    producer = lab.producer()

    def fail() -> SentRecord:
        sent = producer.send("t", b"x" * 200)
        lab.pump()
        return sent

    fail()
    for _ in range(MOST_FAILURES):
        fail().exception()
    with pytest.raises(ProduceFailed) as failed:
        producer.flush(0)
    assert failed.value.records == 1
    for _ in range(MOST_FAILURES + 1):
        fail().exception()
    producer.flush(0)


def test_flush_and_close_count_what_waited_for_a_topic_that_was_made_again(lab: Lab) -> None:
    producer = lab.producer(linger_ms=10_000)
    old = producer.send("t", b"old", partition=0)
    lab.connection.create()
    producer._sender.learn(lab.connection.metadata("t", timeout_s=1).result())
    with pytest.raises(RequestTimedOut):
        producer.flush(0)
    with pytest.raises(ProduceFailed):
        producer.close(0)
    assert old.done()


def test_flush_waits_for_what_is_being_told(lab: Lab) -> None:
    lab.connection.faults.append("hangs")
    producer = lab.producer()
    first = producer.send("t", b"1", partition=0)
    lab.pump()
    second = producer.send("t", b"2", partition=0)
    producer._sender.close_rows(second.delivery.partition.rows)  # type: ignore[attr-defined]
    seen: list[bool] = []

    def flush(sent: Any) -> None:
        sent.exception()
        with pytest.raises(RequestTimedOut):  # nor does it say that all is well
            producer.flush(0)
        seen.append(second.done())

    first.add_done_callback(flush)
    lab.advance(TIMEOUT_S)
    assert seen == [False]
    with pytest.raises(ProduceFailed):
        producer.flush(0)


@pytest.mark.parametrize("max_message_bytes", [1_000_000, 200])
def test_flush_waits_until_the_callbacks_have_run(lab: Lab, max_message_bytes: int) -> None:
    topic = lab.connection.create("t", 1, max_message_bytes=max_message_bytes)
    topic.told_max_bytes = 1_000_000  # with the smaller limit the batch is split
    producer = lab.producer(linger_ms=10)
    sent = [producer.send("t", b"x" * 20) for _ in range(10)]
    too_soon: list[bool] = []

    def is_flushed(_: object) -> None:
        too_soon.append(producer._sender.wait(producer._sender.hurry(), 0))

    for one in sent:
        one.add_done_callback(is_flushed)
    waiting = producer._sender.hurry()
    lab.run()
    assert too_soon == [False] * 10, "what a callback learns is known when flush returns"
    assert producer._sender.wait(waiting, 0)
    assert producer._sender.hurry() == [], "it remembers nothing that has ended"


def test_what_an_interrupted_close_gives_up_is_a_note_at_the_interrupt(lab: Lab) -> None:
    lab.connection.faults.append("hangs")
    producer = lab.producer()
    sent = producer.send("t", b"x", partition=0)
    lab.pump()

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    producer._sender.wait = interrupt  # type: ignore[assignment,method-assign]
    with pytest.raises(KeyboardInterrupt) as raised, producer:
        pass
    assert "1 records in all" in raised.value.__notes__[0]
    assert sent.done()


def test_a_fault_of_one_event_loses_no_other(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    producer = lab.producer()

    def fault() -> None:
        raise ZeroDivisionError

    sent = producer.send("t", b"x")
    producer._sender.events.put(fault)
    other = producer.send("t", b"y")
    lab.pump()
    assert sent.done()
    assert other.done()
    assert "an error that nobody expected" in caplog.text


FORGOTTEN = """
import atexit
from raylog.cluster.client.producer import Producer
from tests.harness.connections import FakeConnection

connection = FakeConnection()
connection.create("t", 1)
atexit.register(lambda: print(connection.values("t", 0)))

def send():
    Producer(connection, linger_ms=60_000).send("t", b"x")

send()
"""

FORKED = """
import os, sys
from raylog.cluster.client.producer import Producer
from raylog.errors import ForkedProcess
from tests.harness.connections import FakeConnection

connection = FakeConnection()
connection.create("t", 1)
producer = Producer(connection, linger_ms=60_000)
producer.send("t", b"x")
child = os.fork()
if not child:
    try:
        producer.send("t", b"from the child")
    except ForkedProcess:
        sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
producer.close()
print(connection.values("t", 0))
"""


@pytest.mark.parametrize("script", [FORGOTTEN, FORKED], ids=["forgotten", "forked"])
def test_the_end_sends_what_a_forgotten_producer_has_and_a_forked_child_nothing(
    script: str,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (done.stdout.strip(), done.returncode, done.stderr) == ("[b'x']", 0, "")
