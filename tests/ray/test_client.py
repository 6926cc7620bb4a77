"""Producer and consumer against live partitions."""

import os
import subprocess
import sys
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from raylog.actors.errors import (
    InvalidRequest,
    NotLeader,
    ProduceFailed,
    RequestTimedOut,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raylog.cluster.broker import Broker
from raylog.cluster.client.connection import (
    READ_COMMITTED,
    ProduceAnswer,
    ProduceRequest,
)
from raylog.cluster.client.consumer.ranges import read_range
from raylog.cluster.client.producer import Producer
from raylog.storage.errors import (
    InvalidConfig,
    InvalidRecord,
    OffsetOutOfRange,
    RecordTooLarge,
    UnsupportedCompressionType,
)
from raylog.storage.records.murmur2 import partition_for_key
from raylog.storage.testing.waiting import wait_for

T0 = 1_700_000_000_000
MARKERS_S = 30


def read_all(broker: Broker, topic: str) -> list[tuple[int, int, bytes | None]]:
    return [
        (r.partition, r.offset, r.value)
        for r in broker.consumer(topic, from_="earliest", to="latest")
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_sent_is_read_with_key_time_and_headers(
    broker: Broker, topic: str, codec: str
) -> None:
    with broker.producer(compression_type=codec) as producer:
        sent = [
            producer.send(
                topic,
                b"v%d" % n,
                key=b"k%d" % n,
                timestamp=T0 + n,
                headers=[("n", b"%d" % n), ("x", None)],
            )
            for n in range(100)
        ]
        producer.send(topic, None, key=b"tombstone")
        metadata = sent[42].result()
    assert metadata.partition == partition_for_key(b"k42", 2)
    records = list(broker.consumer(topic, from_="earliest", to="latest"))
    assert len(records) == 101
    one = next(record for record in records if record.key == b"k42")
    assert (one.partition, one.offset) == (metadata.partition, metadata.offset)
    assert (one.timestamp, one.value, one.headers) == (T0 + 42, b"v42", (("n", b"42"), ("x", None)))
    assert next(record for record in records if record.key == b"tombstone").value is None


def test_order_within_a_partition_is_the_order_of_sends(broker: Broker, topic: str) -> None:
    with broker.producer(linger_ms=0) as producer:
        for n in range(20_000):
            producer.send(topic, b"%d" % n, partition=n % 2)
    found = read_all(broker, topic)
    for partition in (0, 1):
        values = [int(value or b"") for number, _, value in found if number == partition]
        assert values == list(range(partition, 20_000, 2))


def test_arrow_tables_go_in_and_come_out(broker: Broker, topic: str) -> None:
    rows = 50_000
    table = pa.table(
        {
            "key": pa.array(
                [None if n % 5 == 0 else b"key-%d" % (n % 100) for n in range(rows)], pa.binary()
            ),
            "value": pa.array([f"value {n}" for n in range(rows)], pa.string()),
            "timestamp": pa.array(range(T0, T0 + rows), pa.int64()),
        }
    )
    with broker.producer() as producer:
        whole = producer.send_arrow(topic, table)
        some = producer.send_arrow(topic, table.slice(7, 3).to_batches()[0], partition=1)
    assert whole.offsets().num_rows == rows
    assert [part.count for part in some.result()] == [3]
    consumer = broker.consumer(topic, from_="earliest", to="latest")
    tables = []
    while not consumer.is_at_end:
        tables.append(consumer.poll_arrow())
    found = pa.concat_tables(tables)
    assert found.num_rows == rows + 3
    assert found.schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    first = found.filter(pa.compute.equal(found["value"], b"value 4321")).to_pylist()[0]
    assert first["key"] == b"key-21"
    assert first["partition"] == partition_for_key(b"key-21", 2)
    assert first["timestamp"].timestamp() * 1000 == T0 + 4321
    assert first["timestampType"] == 0


def test_a_range_is_exactly_the_range(broker: Broker, topic: str) -> None:
    with broker.producer() as producer:
        for n in range(5000):
            producer.send(topic, b"%d" % n, partition=0)
    offsets = [
        o
        for batch in read_range(broker.client_connection(), topic, 0, 1234, 4321, max_bytes=2000)
        for o in batch["offset"].to_pylist()
    ]
    assert offsets == list(range(1234, 4321))


def test_who_reads_committed_records_sees_no_aborted_ones(broker: Broker, topic: str) -> None:
    with broker.producer(transactional_id=f"writer-{topic}") as producer:
        producer.init_transactions()
        for value, ends in ((b"kept", True), (b"aborted", False), (b"open", None)):
            producer.begin_transaction()
            producer.send(topic, value, partition=0)
            producer.flush()
            if ends is not None:
                producer.commit_transaction() if ends else producer.abort_transaction()
        levels = {
            "read_committed": [b"kept"],
            "read_uncommitted": [b"kept", b"aborted", b"open"],
        }
        for level, expected in levels.items():
            table = broker.read_table(topic, isolation_level=level)
            assert table["value"].to_pylist() == expected
            seen: list[bytes] = []
            reader = broker.consumer(topic, from_="earliest", to="latest", isolation_level=level)
            with reader:
                while not reader.is_at_end:
                    seen += reader.poll_arrow()["value"].to_pylist()
            assert seen == expected
        end = {(topic, 0): -1}
        assert broker.list_offsets(end) == {(topic, 0): 5}
        assert broker.list_offsets(end, isolation=READ_COMMITTED) == {(topic, 0): 4}
        late = {(topic, 0): int(time.time() * 1000) - 3_600_000, (topic, 1): 0}
        assert broker.list_offsets(late, isolation=READ_COMMITTED) == {
            (topic, 0): 0,
            (topic, 1): None,
        }
        producer.commit_transaction()
    wait_for(
        lambda: broker.list_offsets(end, isolation=READ_COMMITTED) == {(topic, 0): 6},
        MARKERS_S,
        "the transaction's end is in the partition",
    )


def test_positions_times_and_ends(broker: Broker, topic: str) -> None:
    with broker.producer() as producer:
        for n in range(1000):
            producer.send(topic, b"%d" % n, partition=0, timestamp=T0 + n * 10)
    consumer = broker.consumer(topic, from_=T0 + 5000, to=T0 + 5100, partitions=[0])
    assert [int(r.value or b"") for r in consumer] == list(range(500, 510))
    consumer = broker.consumer(topic, from_="earliest", partitions=[0])
    consumer.seek(topic, 0, 998)
    assert [r.offset for r in consumer.poll(5000)] == [998, 999]
    assert consumer.position(topic, 0) == 1000
    consumer.seek_to_time(T0 + 9990)
    assert consumer.position(topic, 0) == 999
    strict = broker.consumer(
        topic, partitions=[0], auto_offset_reset="none", from_={(topic, 0): 5000}
    )
    with pytest.raises(OffsetOutOfRange):
        strict.poll(5000)
    with pytest.raises(UnknownTopicOrPartition):
        consumer.seek(topic, 1, 0)
    with pytest.raises(InvalidRequest, match="offset='0'"):
        consumer.seek(topic, 0, "0")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        broker.consumer(topic, from_="yesterday")


def test_a_consumer_waits_for_what_comes(broker: Broker, topic: str) -> None:
    consumer = broker.consumer(topic, from_="latest")
    assert consumer.poll(timeout_ms=50) == []
    with broker.producer() as producer:
        producer.send(topic, b"new")
    assert [record.value for record in consumer.poll(timeout_ms=20_000)] == [b"new"]


def test_an_idle_consumer_holds_no_segment_open(broker: Broker, topic: str) -> None:
    with broker.producer() as producer:
        producer.send(topic, b"x" * 1000, partition=0)
    consumer = broker.consumer(topic, from_="earliest")
    assert len(consumer.poll(timeout_ms=20_000)) == 1
    assert consumer.poll(timeout_ms=50) == []
    held = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    assert not [name for name in held if f"/{topic}-0/" in name]
    assert f"/{topic}-0/" not in Path("/proc/self/maps").read_text(), "nothing is mapped"


def test_what_a_producer_refuses(broker: Broker, topic: str) -> None:
    with broker.producer() as producer:
        with pytest.raises(InvalidRecord, match="encode it to bytes"):
            producer.send(topic, "text")  # type: ignore[arg-type]
        with pytest.raises(InvalidRecord, match="header name"):
            producer.send(topic, b"", headers=[(b"name", b"")])  # type: ignore[list-item]
        with pytest.raises(InvalidRecord, match="timestamp"):
            producer.send(topic, b"", timestamp=1.5)  # type: ignore[arg-type]
        with pytest.raises(RecordTooLarge):
            producer.send(topic, b"x" * 1_100_000)
        with pytest.raises(UnknownTopicOrPartition):
            producer.send("nowhere", b"")
        with pytest.raises(UnknownTopicOrPartition):
            producer.send(topic, b"", partition=9)
        with pytest.raises(InvalidRecord):
            producer.send_arrow(topic, pa.table({"value": [1, 2]}))
        with pytest.raises(InvalidRecord):
            producer.send_arrow(topic, pa.table({"text": [b"x"]}))
        producer.send(topic, b"good")
    with pytest.raises(InvalidRequest, match="closed"):
        producer.send(topic, b"late")
    with pytest.raises(InvalidConfig, match="ack"):
        broker.producer(ack="all")
    with pytest.raises(UnsupportedCompressionType, match="brotli"):
        broker.producer(compression_type="brotli")
    assert [value for _, _, value in read_all(broker, topic)] == [b"good"]


def test_a_script_that_ends_without_close_loses_nothing(broker: Broker, topic: str) -> None:
    script = f"""
import raylog
broker = raylog.connect({broker.address!r}, namespace={broker.namespace!r})
producer = broker.producer(linger_ms=5000)
for n in range(10):
    producer.send({topic!r}, b"%d" % n, partition=0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    assert "not acknowledged" not in done.stderr
    assert [value for _, _, value in read_all(broker, topic)] == [b"%d" % n for n in range(10)]


def test_a_topic_made_again_with_fewer_partitions_is_another_topic(broker: Broker) -> None:
    broker.create_topic("again", partitions=4)
    with broker.producer() as producer:
        for n in range(8):
            producer.send("again", b"old", partition=n % 4)
        producer.flush()
        broker.delete_topic("again")
        broker.create_topic("again", partitions=2)
        for n in range(4):
            with pytest.raises(ProduceFailed) as failed:
                producer.send("again", b"lost", partition=n).result()
            assert isinstance(failed.value.cause, UnknownTopicId | UnknownTopicOrPartition)
            if isinstance(failed.value.cause, UnknownTopicId):
                break
        sent = [producer.send("again", b"%d" % n) for n in range(40)]
        assert {one.result().partition for one in sent} <= {0, 1}
    broker.delete_topic("again")


class Unreliable:
    """A connection that loses answers, or requests, or refuses, as told."""

    def __init__(self, broker: Broker, faults: list[str]) -> None:
        self._connection, self.faults = broker.client_connection(), faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def produce(self, request: ProduceRequest, *, timeout_s: float) -> "Future[ProduceAnswer]":
        fault = self.faults.pop(0) if self.faults else "none"
        failed: Future[ProduceAnswer] = Future()
        if fault == "refused":
            failed.set_exception(RecordTooLarge(len(request.records), 1))
            return failed
        if fault == "request lost":
            failed.set_exception(NotLeader(request.topic, "gone"))
            return failed
        answer = self._connection.produce(request, timeout_s=timeout_s)
        if fault == "answer lost":
            answer.result(timeout=30)
            failed.set_exception(NotLeader(request.topic, "gone after writing"))
            return failed
        return answer


def test_a_lost_answer_is_retried_and_nothing_is_there_twice(broker: Broker, topic: str) -> None:
    faults = ["answer lost", "request lost", "none", "answer lost", "answer lost"]
    with Producer(Unreliable(broker, faults), linger_ms=0) as producer:
        results = []
        for n in range(10):
            results.append(producer.send(topic, b"%d" % n, partition=0))
            producer.flush()
    assert [int(value or b"") for _, _, value in read_all(broker, topic)] == list(range(10))
    assert [sent.result().offset for sent in results] == list(range(10))


def test_a_refused_batch_is_reported_and_the_next_ones_are_written(
    broker: Broker, topic: str
) -> None:
    producer = Producer(Unreliable(broker, ["none", "refused"]), linger_ms=0)
    producer.send(topic, b"first", partition=0).result()
    lost = producer.send(topic, b"refused", partition=0)
    with pytest.raises(ProduceFailed, match="1 records"):
        producer.flush()
    with pytest.raises(ProduceFailed):
        lost.result()
    assert producer.send(topic, b"second", partition=0).result().offset == 1
    producer.close()
    assert [value for _, _, value in read_all(broker, topic)] == [b"first", b"second"]


def test_a_producer_gives_up_when_its_time_is_up_and_goes_on_under_a_new_epoch(
    broker: Broker, topic: str
) -> None:
    transport = Unreliable(broker, ["none"] + ["request lost"] * 1000)
    producer = Producer(transport, delivery_timeout_ms=200, linger_ms=0)
    producer.send(topic, b"first", partition=0).result()
    with pytest.raises(ProduceFailed, match="cannot be reached"):
        producer.send(topic, b"lost", partition=0).result()
    transport.faults.clear()
    assert producer.send(topic, b"after", partition=0).result().offset == 1
    producer.close()


def test_send_waits_for_room_and_says_so_when_there_is_none(broker: Broker, topic: str) -> None:
    producer = Producer(
        Unreliable(broker, ["request lost"] * 100_000),
        buffer_memory=10_000,
        max_block_ms=3000,  # in which a busy machine's Controller answers, too
        delivery_timeout_ms=600_000,
    )
    rows = [b"x" * 1000] * 11
    with pytest.raises(RequestTimedOut, match=r"buffer\.memory"):
        list(map(partial(producer.send, topic), rows))
    with pytest.raises(ProduceFailed):
        producer.close(timeout=0)


def test_log_append_time_is_the_topics_word(broker: Broker) -> None:
    broker.create_topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    with broker.producer() as producer:
        metadata = producer.send("stamped", b"x", timestamp=T0).result()
    record = next(iter(broker.consumer("stamped", from_="earliest", to="latest")))
    assert before <= record.timestamp <= int(time.time() * 1000)
    assert record.timestamp == metadata.log_append_time
    assert record.timestamp_type == 1
