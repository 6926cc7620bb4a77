"""What a task does with rows of Spark, over partitions on disks in memory."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from raylog.actors.errors import ProduceFailed, UnknownTopicOrPartition
from raylog.cluster.client.producer import Producer
from raylog.cluster.spark.errors import InvalidSparkOption, InvalidSparkSchema
from raylog.cluster.spark.writing import check_columns, gather, split, write_rows
from raylog.storage.errors import InvalidRecord
from raylog.storage.records.murmur2 import partition_for_key
from tests.harness.connections import FakeConnection

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = {
    "topic": pa.string(),
    "key": pa.string(),
    "value": pa.binary(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": HEADERS,
}


def rows(**columns: list[Any]) -> pa.RecordBatch:
    arrays = {name: pa.array(content, TYPES[name]) for name, content in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


class Task:
    """A task of Spark, whose producer goes to partitions in memory."""

    def __init__(self) -> None:
        self.connection = FakeConnection()
        self.producers: list[Producer] = []

    def new_producer(self) -> Producer:
        self.producers.append(Producer(self.connection, linger_ms=0))
        return self.producers[-1]

    def write(self, *batches: pa.RecordBatch | BaseException, topic: str | None = None) -> int:
        def arriving() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if isinstance(batch, BaseException):
                    raise batch
                yield batch

        first = batches[0]
        assert isinstance(first, pa.RecordBatch)
        names = [name for name in first.schema.names if topic is None or name != "topic"]
        return write_rows(arriving(), names, topic, self.new_producer)

    def has_ended(self) -> bool:
        senders = [producer._sender for producer in self.producers]
        return all(sender.is_closed and not sender.thread.is_alive() for sender in senders)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    """Its batches are sent as they come, since none is large enough to wait for."""
    monkeypatch.setattr("raylog.cluster.spark.writing.GATHER_BYTES", 1)
    return Task()


# -- columns ---------------------------------------------------------------------------------------


def test_the_columns_of_the_connector_are_taken_and_others_left_out() -> None:
    given = [("key", "string"), ("value", "binary"), ("offset", "bigint"), ("topic", "string")]
    given += [("partition", "int"), ("timestamp", "timestamp"), ("timestampType", "int")]
    given += [("headers", "array<struct<key:string,value:binary>>")]
    names = ("key", "value", "topic", "partition", "timestamp", "headers")
    assert check_columns(given, None) == names
    assert check_columns(given, "t") == tuple(name for name in names if name != "topic")


def test_the_option_wins_over_the_column_whatever_that_is() -> None:
    assert check_columns([("value", "string"), ("topic", "bigint")], "t") == ("value",)


@pytest.mark.parametrize(
    ("columns", "advice"),
    [
        ([("key", "string")], "column value binary: is missing; add it"),
        ([("value", "bigint")], "column value bigint: a write takes binary or string; cast"),
        ([("value", "binary"), ("key", "int")], "column key int: a write takes binary or string"),
        ([("value", "binary"), ("partition", "bigint")], "column partition bigint: .* int"),
        ([("value", "binary"), ("timestamp", "bigint")], "takes timestamp; cast the column"),
        ([("value", "binary"), ("headers", "map<string,binary>")], "column headers map"),
        ([("value", "binary"), ("value", "binary")], "exists more than once"),
    ],
)
def test_a_column_that_cannot_be_written_is_named(
    columns: list[tuple[str, str]], advice: str
) -> None:
    with pytest.raises(InvalidSparkSchema, match=advice):
        check_columns(columns, "t")


def test_without_any_topic_the_option_is_named() -> None:
    with pytest.raises(InvalidSparkOption, match=r"option topic=''.*add a column topic"):
        check_columns([("value", "binary")], None)
    with pytest.raises(InvalidSparkSchema, match="column topic int: a write takes string"):
        check_columns([("value", "binary"), ("topic", "int")], None)


# -- splitting -------------------------------------------------------------------------------------


def test_rows_go_by_topic_and_partition_and_keep_their_order() -> None:
    batch = rows(
        topic=["b", "a", "b", "a", "b", "a"],
        partition=[1, None, 0, 3, 1, None],
        value=[b"0", b"1", b"2", b"3", b"4", b"5"],
    )
    found = {
        (part.topic, part.partition): part.records.column("value").to_pylist()
        for part in split(batch, None)
    }
    assert found == {
        ("a", None): [b"1", b"5"],
        ("a", 3): [b"3"],
        ("b", 0): [b"2"],
        ("b", 1): [b"0", b"4"],
    }


def test_rows_that_go_one_way_are_not_copied() -> None:
    batch = rows(value=[b"0", b"1"], partition=[2, 2])
    (part,) = split(batch, "t")
    assert (part.topic, part.partition) == ("t", 2)
    assert part.records.schema.names == ["value"]
    assert part.records.column("value").buffers()[2].address == (
        batch.column("value").buffers()[2].address
    )


@pytest.mark.parametrize("content", [["t", None, "t"], [None, None, None]])
def test_a_null_topic_is_named(content: list[str | None]) -> None:
    with pytest.raises(InvalidRecord, match=f"row {content.index(None)}: column topic is null"):
        split(rows(topic=content, value=[b""] * 3), None)


@pytest.mark.parametrize(
    ("column", "content", "advice"),
    [
        ("partition", [None, -1], "row 1: column partition is -1; use 0 or more, or null"),
        ("timestamp", [None, -1], "row 1: column timestamp is 1969-12-31.*; use 1970 or later"),
        ("headers", [None, [(None, b"x")]], "headers: a header's key is null"),
        ("headers", [[("k", b"x")], [None]], "headers: a header's key is null"),
    ],
)
def test_what_no_record_can_be_is_named(column: str, content: list[Any], advice: str) -> None:
    with pytest.raises(InvalidRecord, match=advice):
        split(rows(value=[b"", b""], **{column: content}), "t")


def test_small_batches_are_gathered_and_keep_their_rows() -> None:
    batches = [rows(value=[b"%d" % n] * (n % 3)) for n in range(10)]
    size = max(batch.nbytes for batch in batches)
    found = list(gather(batches, least_bytes=3 * size))
    assert 1 < len(found) < len([batch for batch in batches if batch.num_rows])
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(batches).combine_chunks())
    assert all(batch.num_rows for batch in found)
    assert list(gather([], least_bytes=1)) == []


# -- tasks -----------------------------------------------------------------------------------------


def test_every_column_reaches_the_log(task: Task) -> None:
    task.connection.create("t", 2)
    batch = rows(
        topic=["t", "t"],
        partition=[1, 1],
        key=["k", None],
        value=[b"v", None],
        timestamp=[1_700_000_000_123_456, None],
        headers=[[("h", b"1"), ("h", None)], None],
    )
    assert task.write(batch) == 2
    first, second = task.connection.records("t", 1)
    assert (first.key, first.value, first.timestamp) == (b"k", b"v", 1_700_000_000_123)
    assert list(first.headers) == [("h", b"1"), ("h", None)]
    assert (second.key, second.value, list(second.headers)) == (None, None, [])
    assert second.timestamp > 1_700_000_000_123, "the time of writing"
    assert task.has_ended()


def test_keys_choose_the_partition_as_the_producers_do(task: Task) -> None:
    task.connection.create("t", 3)
    keys = [f"k{n}" for n in range(50)]
    task.write(rows(key=keys, value=[key.encode() for key in keys]), topic="t")
    for number in range(3):
        expected = [k.encode() for k in keys if partition_for_key(k.encode(), 3) == number]
        assert task.connection.values("t", number) == expected


def test_a_task_without_rows_makes_no_producer(task: Task) -> None:
    assert task.write(rows(value=[]), topic="no-such") == 0
    assert task.producers == []


def test_many_batches_are_one_producers(task: Task) -> None:
    task.connection.create("t", 1)
    batches = [rows(value=[b"%d" % (10 * n + m) for m in range(10)]) for n in range(20)]
    assert task.write(*batches, topic="t") == 200
    assert task.connection.values("t") == [b"%d" % n for n in range(200)]
    assert len(task.producers) == 1


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (rows(topic=["t", "no-such"], value=[b"1", b"2"]), UnknownTopicOrPartition),
        (rows(topic=["t", None], value=[b"1", b"2"]), InvalidRecord),
        (rows(topic=["t", "t"], partition=[0, 5], value=[b"1", b"2"]), UnknownTopicOrPartition),
        (rows(topic=["t", "t"], partition=[0, -5], value=[b"1", b"2"]), InvalidRecord),
    ],
)
def test_nothing_of_a_batch_with_a_bad_row_is_sent_and_the_producer_ends(
    task: Task, bad: pa.RecordBatch, error: type[Exception]
) -> None:
    task.connection.create("t", 2)
    with pytest.raises(error):
        task.write(bad)
    assert task.connection.requests == []
    assert task.has_ended()


def test_a_task_whose_rows_end_in_an_error_ends_its_producer_without_waiting(task: Task) -> None:
    """The partition hangs: a flush would wait for delivery.timeout.ms."""
    task.connection.create("t", 1)
    task.connection.faults.extend(["hangs"] * 10)
    with pytest.raises(RuntimeError, match="the source broke") as raised:
        task.write(rows(value=[b"1"]), RuntimeError("the source broke"), topic="t")
    assert task.has_ended()
    assert any("rows before it" in note for note in raised.value.__notes__)


def test_a_task_that_spark_kills_ends_its_producer(task: Task) -> None:
    task.connection.create("t", 1)
    with pytest.raises(KeyboardInterrupt):
        task.write(rows(value=[b"1"]), KeyboardInterrupt(), topic="t")
    assert task.has_ended()


def test_rows_that_the_log_refuses_fail_the_task(task: Task) -> None:
    task.connection.create("t", 1, max_message_bytes=500)
    task.connection.topics["t"].told_max_bytes = 1_000_000
    with pytest.raises(ProduceFailed):
        task.write(rows(value=[b"x" * 1000]), topic="t")
    assert task.has_ended()
