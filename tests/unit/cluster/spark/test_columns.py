"""Decoded records as the columns that Spark sees."""

import datetime
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from raylog.actors.errors import UnknownTopicOrPartition
from raylog.cluster.spark.columns import ALL, bounded, names, schema, to_spark
from raylog.cluster.spark.errors import DataLoss
from raylog.cluster.spark.frames import pack
from raylog.cluster.spark.plan import Range
from raylog.cluster.spark.reading import read_what_is_left
from raylog.storage.errors import OffsetOutOfRange

KAFKA = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def records(headers: Any, first: Any = 0) -> Any:
    rows = len(headers)
    return pa.RecordBatch.from_pydict(
        {
            "offset": pa.array(range(first, first + rows), pa.int64()),
            "timestamp": pa.array([1700000000123] * rows, pa.int64()),
            "timestampType": pa.array([1] * rows, pa.int32()),
            "key": pa.array([None] * rows, pa.binary()),
            "value": pa.array([b"v"] * rows, pa.binary()),
            "headers": pa.array(
                headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
            ),
        }
    )


def test_the_columns_are_those_of_sparks_kafka_source() -> None:
    assert names(include_headers=False) == KAFKA
    assert names(include_headers=True) == [*KAFKA, "headers"]


def test_records_get_topic_partition_and_a_time_in_utc() -> None:
    found = to_spark(records([[]]), "flights", 3, KAFKA)
    assert found.schema.equals(schema(KAFKA))
    assert found.to_pylist() == [
        {
            "key": None,
            "value": b"v",
            "topic": "flights",
            "partition": 3,
            "offset": 0,
            "timestamp": datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, datetime.UTC),
            "timestampType": 1,
        }
    ]


def test_only_the_columns_asked_for_come_back_in_their_order() -> None:
    assert to_spark(records([[], []]), "t", 0, ["offset", "topic"]).to_pydict() == {
        "offset": [0, 1],
        "topic": ["t", "t"],
    }


@pytest.mark.parametrize(
    "given",
    [
        [[], []],
        [[("a", b"1")], []],
        [[("a", b"1")], [("b", None), ("a", b"")]],
        [None, [("a", b"1")]],
    ],
)
def test_headers_are_null_where_a_record_has_none(given: Any) -> None:
    found = to_spark(records(given), "t", 0, ["headers"])
    assert found.schema.equals(schema(["headers"]))
    wanted = [[{"key": k, "value": v} for k, v in each] if each else None for each in given]
    assert found.column("headers").to_pylist() == wanted
    found.validate(full=True)


def test_sliced_records_keep_their_headers() -> None:
    given = records([[("x", b"0")], [], [("y", b"1")]]).slice(1)
    assert to_spark(given, "t", 0, ["headers"]).column(0).to_pylist() == [
        None,
        [{"key": "y", "value": b"1"}],
    ]


def test_large_batches_are_cut_into_slices_that_hold_all_rows() -> None:
    batch = to_spark(records([[]] * 1000), "t", 0, KAFKA)
    slices = list(bounded(batch, batch.nbytes // 7))
    assert 7 <= len(slices) <= 8
    assert pa.Table.from_batches(slices).equals(pa.Table.from_batches([batch]))
    assert list(bounded(batch)) == [batch]
    assert len(list(bounded(batch.slice(0, 1), 1))) == 1


def test_blocks_are_whole_arrow_streams_of_a_bounded_size() -> None:
    batches = [to_spark(records([[]] * 10, first=10 * i), "t", 0, KAFKA) for i in range(10)]
    blocks = list(
        pack(iter(batches), ALL.empty_table().select(KAFKA).schema, batches[0].nbytes * 3)
    )
    tables = [pa.ipc.open_stream(block).read_all() for block in blocks]
    assert [t.num_rows for t in tables] == [30, 30, 30, 10]
    assert pa.concat_tables(tables).column("offset").to_pylist() == list(range(100))
    assert list(pack(iter([]), ALL, 1)) == []


class Fading:
    """A log whose start moves on while it is read."""

    def __init__(self, *starts: Any) -> None:
        self.starts = list(starts)

    def __call__(self, topic: Any, partition: Any, start: Any, end: Any) -> Any:
        log_start = self.starts.pop(0)
        if start < log_start:
            raise OffsetOutOfRange(f"{topic}-{partition}", start, log_start, 100)
        yield records([[]] * 2, first=start)
        if self.starts:
            yield from self(topic, partition, start + 2, end)


def offsets(fetch: Any, wanted: Any, fail_on_data_loss: Any) -> Any:
    found = read_what_is_left(fetch, wanted, fail_on_data_loss)
    return [o for batch in found for o in batch.column("offset").to_pylist()]


def test_a_read_goes_on_where_the_log_starts_now_if_loss_is_allowed() -> None:
    assert offsets(Fading(0, 5, 5, 5), Range("t", 0, 0, 9), False) == [0, 1, 5, 6, 7, 8]
    assert offsets(Fading(9, 9), Range("t", 0, 0, 9), False) == []


def test_a_read_fails_with_the_offsets_that_are_gone_if_it_is_not() -> None:
    with pytest.raises(
        DataLoss, match=r"t-0: offsets \[2, 5\) cannot all be read: the log now holds \[5, 100\)"
    ):
        offsets(Fading(0, 5), Range("t", 0, 0, 9), True)


def test_a_partition_that_is_deleted_while_it_is_read_is_a_loss() -> None:
    def fetch(topic: str, partition: int, start: int, end: int) -> Any:
        yield records([[]] * 2, first=start)
        raise UnknownTopicOrPartition(topic, partition, "there is no such topic")

    assert offsets(fetch, Range("t", 0, 0, 9), False) == [0, 1]
    with pytest.raises(
        DataLoss,
        match=r"t-0: offsets \[2, 9\) cannot all be read: the partition does not exist any more",
    ):
        offsets(fetch, Range("t", 0, 0, 9), True)


def test_reading_imports_no_pandas() -> None:
    """It would take a third of a second in each of Spark's workers."""
    code = """if True:
        import sys
        from raylog.cluster.spark.columns import names, to_spark
        from raylog.storage.records.decode import decode_table
        from raylog.storage.records.encode import encode_records
        records = decode_table(encode_records([(1, b"k", b"v", [])]))
        rows = to_spark(records, "t", 3, names(include_headers=False))
        assert str(rows.column("topic")[0]) == "t"
        assert "pandas" not in sys.modules
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
