"""Arrow columns to batches and back to columns."""

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.storage.errors import InvalidRecord
from raylog.storage.records.batch import check_crc, read_header, stamp
from raylog.storage.records.columns import DECODED_WITH_HEADERS, HEADERS
from raylog.storage.records.compression import CODECS
from raylog.storage.records.decode import decode_records, decode_table
from raylog.storage.records.encode import TableEncoder, encode_records, encode_table

T0 = 1_700_000_000_000

texts = st.none() | st.text(max_size=60)
header_lists = st.none() | st.lists(
    st.fixed_dictionaries(
        {"key": st.text(max_size=20), "value": st.none() | st.binary(max_size=30)}
    ),
    max_size=3,
)
rows = st.tuples(st.none() | st.integers(0, 2**62), texts, texts, header_lists)
text_types = st.sampled_from([pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, list]:
    """A table whose arrays may start within their buffers, and its rows as they should come
    back."""
    drawn = draw(st.lists(rows, min_size=1, max_size=30))
    first = draw(st.integers(0, len(drawn) - 1))
    timestamps, keys, values, headers = zip(*drawn, strict=True)
    table = pa.table(
        {
            "timestamp": pa.array(
                timestamps, draw(st.sampled_from([pa.int64(), pa.timestamp("ms")]))
            ),
            "key": pa.array(keys, pa.string()).cast(draw(text_types)),
            "value": pa.array(values, pa.string()).cast(draw(text_types)),
            "headers": pa.array(headers, HEADERS),
        }
    )
    if draw(st.booleans()):
        table = pa.concat_tables([table.slice(0, len(drawn) // 2), table.slice(len(drawn) // 2)])
    kept = [
        (
            T0 if timestamp is None else timestamp,
            None if key is None else key.encode(),
            None if value is None else value.encode(),
            row_headers or [],
        )
        for timestamp, key, value, row_headers in drawn[first:]
    ]
    return table.slice(first), kept


def batches_of(encoder: TableEncoder, max_bytes: int) -> Iterator[pa.Buffer]:
    start = 0
    while start < encoder.num_rows:
        batch, count = encoder.encode(start, max_bytes=max_bytes, base_offset=start)
        assert count == read_header(batch).count >= 1
        yield batch
        start += count


@given(tables(), st.sampled_from(list(CODECS)), st.sampled_from([0, 90, 200, 1_000_000]))
def test_columns_come_back_as_they_went_in(drawn: tuple, codec: str, max_bytes: int) -> None:
    table, expected = drawn
    encoder = TableEncoder(table, default_timestamp=T0, compression_type=codec)
    batches = list(batches_of(encoder, max_bytes))
    for batch in batches:
        check_crc(batch, 0, read_header(batch))
        assert codec != "none" or len(batch) <= max_bytes or read_header(batch).count == 1
    decoded = decode_table(b"".join(batches))
    decoded.validate(full=True)
    assert decoded.schema == DECODED_WITH_HEADERS
    assert decoded["offset"].to_pylist() == list(range(len(expected)))
    assert set(decoded["timestampType"].to_pylist()) == {0}
    columns = [decoded[name].to_pylist() for name in ("timestamp", "key", "value", "headers")]
    assert list(zip(*columns, strict=True)) == expected


@given(tables())
def test_columns_and_rows_encode_to_the_same_bytes(drawn: tuple) -> None:
    table, expected = drawn
    as_rows = [(t, k, v, [(h["key"], h["value"]) for h in hs]) for t, k, v, hs in expected]
    batch, count = encode_table(table, default_timestamp=T0)
    assert count == table.num_rows
    assert batch == encode_records(as_rows)


def test_a_batch_holds_as_many_rows_as_fit() -> None:
    table = pa.table({"value": [b"x" * 100] * 10})
    whole, _ = encode_table(table, default_timestamp=T0)
    assert encode_table(table, default_timestamp=T0, max_bytes=len(whole))[1] == 10
    assert encode_table(table, default_timestamp=T0, max_bytes=len(whole) - 1)[1] == 9
    assert encode_table(table, default_timestamp=T0, max_bytes=1)[1] == 1
    assert encode_table(table, default_timestamp=T0, start=8)[1] == 2
    assert encode_table(table, default_timestamp=T0, start=10) == (b"", 0)


def test_a_batch_carries_its_producer() -> None:
    encoder = TableEncoder(
        pa.table({"value": ["a", "b"]}),
        default_timestamp=T0,
        producer_id=5,
        producer_epoch=1,
        transactional=True,
        leader_epoch=9,
        log_append_time=T0 + 7,
    )
    header = read_header(encoder.encode(base_offset=100, base_sequence=40)[0])
    assert (header.base_offset, header.leader_epoch, header.last_sequence) == (100, 9, 41)
    assert (header.producer_id, header.producer_epoch, header.is_transactional) == (5, 1, True)
    assert (header.timestamp_type, header.max_timestamp) == ("LogAppendTime", T0 + 7)


def test_an_encoded_table_is_a_writable_buffer_of_its_size() -> None:
    batch, _ = encode_table(
        pa.table({"value": ["a" * 1000] * 9}), default_timestamp=T0, max_bytes=5000
    )
    stamp(batch, 10**9, 3)
    assert isinstance(batch, pa.Buffer)
    assert len(memoryview(batch)) == batch.size == read_header(batch).size_bytes
    assert read_header(pickle.loads(pickle.dumps(batch))).base_offset == 10**9
    check_crc(batch, 0, read_header(batch))


def test_an_empty_table_is_no_batch() -> None:
    empty = pa.table({"key": pa.array([], pa.string()), "value": pa.array([], pa.binary())})
    assert encode_table(empty, default_timestamp=T0) == (b"", 0)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"key": ["k"]}, "the column 'value' is missing"),
        (
            {"value": ["v"], "offset": [1]},
            "unknown column 'offset'; rename it to one of key, value, timestamp, headers",
        ),
        ({"value": [1]}, "'value' is int64: cast it"),
        ({"value": ["v"], "key": pa.array([1]).dictionary_encode()}, "'key' is dictionary"),
        ({"value": ["v"], "timestamp": pa.array([1], pa.int32())}, "cast it to int64"),
        ({"value": ["v"], "timestamp": [-2]}, "row 0: its timestamp is negative"),
        ({"value": ["v"], "headers": [["h"]]}, "'headers' is list"),
        (
            {"value": ["v"], "headers": [[{"key": 1, "value": b"x"}]]},
            "names of column 'headers' are int64",
        ),
        (
            {"value": ["v"], "headers": pa.array([[(None, b"x")]], HEADERS)},
            "row 0: a header's name is null",
        ),
        (
            {"value": ["v"], "headers": pa.array([[None]], HEADERS)},
            "row 0: a header's name is null",
        ),
    ],
)
def test_a_column_that_records_do_not_have_is_refused(columns: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRecord, match=why):
        encode_table(pa.table(columns), default_timestamp=T0)


def test_a_repeated_column_is_refused() -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["value", "value"])
    with pytest.raises(InvalidRecord, match="more than once"):
        encode_table(table, default_timestamp=T0)


@pytest.mark.parametrize("ends", [[0, 9, 4], [0, -1, 4], [3, 1, 4]])
def test_a_malformed_array_is_not_read_outside_its_data(ends: list[int]) -> None:
    buffers = [None, pa.array(ends, pa.int32()).buffers()[1], pa.py_buffer(b"abcd")]
    column = pa.Array.from_buffers(pa.binary(), 2, buffers)
    with pytest.raises(InvalidRecord, match="outside"):
        encode_table(pa.RecordBatch.from_arrays([column], ["value"]), default_timestamp=T0)


@given(tables(), st.data())
def test_a_reader_takes_a_range_of_offsets(drawn: tuple, data: st.DataObject) -> None:
    table, expected = drawn
    encoded = b"".join(batches_of(TableEncoder(table, default_timestamp=T0), 200))
    start = data.draw(st.integers(0, len(expected)))
    end = data.draw(st.none() | st.integers(start, len(expected)))
    decoded = decode_table(encoded, start_offset=start, end_offset=end, headers=False)
    assert decoded.schema.names == ["offset", "timestamp", "timestampType", "key", "value"]
    assert decoded["value"].to_pylist() == [row[2] for row in expected[start:end]]
    assert decoded["offset"].to_pylist() == list(
        range(start, len(expected) if end is None else end)
    )


@given(tables())
def test_columns_and_records_agree(drawn: tuple) -> None:
    batch = bytes(encode_table(drawn[0], default_timestamp=T0, base_offset=9)[0])
    names = ("offset", "timestamp", "key", "value")
    decoded = decode_table(batch)
    records = decode_records(batch)
    assert [tuple(row[name] for name in names) for row in decoded.to_pylist()] == [
        r[:4] for r in records
    ]
    assert [[tuple(h.values()) for h in hs] for hs in decoded["headers"].to_pylist()] == [
        list(r.headers) for r in records
    ]


def test_log_append_time_fills_two_columns() -> None:
    encoder = TableEncoder(
        pa.table({"value": ["a", "b"]}), default_timestamp=T0, log_append_time=T0 + 7
    )
    created, _ = encode_table(pa.table({"value": ["c"]}), default_timestamp=T0, base_offset=2)
    decoded = decode_table(b"".join((encoder.encode()[0], created)))
    assert decoded["timestamp"].to_pylist() == [T0 + 7, T0 + 7, T0]
    assert decoded["timestampType"].to_pylist() == [1, 1, 0]


def test_a_header_name_that_is_no_utf8_is_replaced_as_kafka_does() -> None:
    batch = encode_records([(T0, None, None, [("a~", b"x")])])
    batch[batch.index(b"a~") + 1] = 0xFF
    assert decode_records(batch, check_crc=False)[0].headers == (("a\ufffd", b"x"),)
    decoded = decode_table(batch, check_crc=False)
    assert decoded["headers"].to_pylist() == [[{"key": "a\ufffd", "value": b"x"}]]


def test_columns_that_outgrow_their_first_memory_are_whole() -> None:
    key, header = b"k" * 50_000, [{"key": "h" * 40_000, "value": b"v" * 30_000}] * 2
    table = pa.table(
        {"key": [key, None] * 4, "value": [b"v"] * 8, "headers": pa.array([header] * 8, HEADERS)}
    )
    decoded = decode_table(encode_table(table, default_timestamp=T0, max_bytes=2**24)[0])
    assert decoded["key"].to_pylist() == [key, None] * 4
    assert decoded["headers"].to_pylist() == [header] * 8
