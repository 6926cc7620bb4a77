"""Rows to a batch and back to records."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.storage.errors import InvalidRecord, UnsupportedCompressionType
from raylog.storage.records.batch import check_crc, read_header
from raylog.storage.records.compression import CODECS
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records
from raylog.storage.records.record import Header, Record

T0 = 1_700_000_000_000

fields = st.none() | st.binary(max_size=200) | st.integers(8190, 8200).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=50)), max_size=4)
rows = st.tuples(st.integers(-1, 2**63 - 1), fields, fields, headers | headers.map(tuple))


@given(
    st.lists(rows, min_size=1, max_size=20), st.sampled_from(list(CODECS)), st.integers(0, 2**62)
)
def test_records_come_back_as_they_went_in(batch_rows: list, codec: str, base_offset: int) -> None:
    batch = encode_records(batch_rows, compression_type=codec, base_offset=base_offset)
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert decode_records(batch) == [
        (base_offset + i, timestamp, key, value, tuple(row_headers))
        for i, (timestamp, key, value, row_headers) in enumerate(batch_rows)
    ]
    assert header.count == len(batch_rows) == header.last_offset_delta + 1
    assert header.base_timestamp == batch_rows[0][0]
    assert header.max_timestamp == max(row[0] for row in batch_rows)


@given(st.lists(st.integers(1, 2**27), min_size=1, max_size=15))
def test_offsets_may_have_gaps(steps: list[int]) -> None:
    offsets = list(itertools.accumulate(steps))
    batch = encode_records([(T0, None, b"v", ())] * len(offsets), offsets=offsets, base_offset=1)
    assert [record.offset for record in decode_records(batch)] == offsets
    assert read_header(batch).last_offset == offsets[-1]


def test_records_and_headers_have_names() -> None:
    (record,) = decode_records(encode_records([(T0, b"k", b"v", [("h", None)])]))
    assert type(record) is Record
    assert type(record.headers[0]) is Header
    assert (record.key, record.headers[0].key, record._replace(offset=5).offset) == (b"k", "h", 5)


def test_no_records_are_no_bytes() -> None:
    assert encode_records([]) == b""


def test_a_batch_can_end_after_its_last_record() -> None:
    batch = encode_records([(T0, None, None, ())], base_offset=100, last_offset=110)
    assert read_header(batch).last_offset == 110
    with pytest.raises(InvalidRecord, match="last offset"):
        encode_records([(T0, None, None, ())] * 2, last_offset=0)


def test_log_append_time_is_every_records_time() -> None:
    batch = encode_records(
        [(T0, None, b"a", ()), (T0 + 5, None, b"b", ())], log_append_time=T0 + 99
    )
    assert read_header(batch).base_timestamp == T0
    assert [record.timestamp for record in decode_records(batch)] == [T0 + 99, T0 + 99]


def test_a_reader_starts_where_it_wants() -> None:
    first = encode_records([(T0, None, b"%d" % i, ()) for i in range(5)], base_offset=10)
    second = encode_records([(T0, None, b"%d" % i, ()) for i in range(5, 10)], base_offset=15)
    both = bytes(first + second)
    assert [record.offset for record in decode_records(both, start_offset=12)] == list(
        range(12, 20)
    )
    assert [record.offset for record in decode_records(both, start_offset=15)] == list(
        range(15, 20)
    )
    assert decode_records(both, start_offset=20) == []


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ((T0, "k", b"v", ()), "key is str"),
        ((T0, b"k", 5, ()), "value is int"),
        (("now", b"k", b"v", ()), "timestamp is str"),
        ((-2, b"k", b"v", ()), "timestamp -2"),
        ((T0, b"k", b"v", [(b"h", b"v")]), "name is bytes"),
        ((T0, b"k", b"v", [("h", "v")]), "header's value is str"),
        ((T0, b"k", b"v"), "must be a tuple"),
        ([T0, b"k", b"v", ()], "must be a tuple"),
    ],
)
def test_a_row_that_is_no_record_is_refused(row: Any, why: str) -> None:
    with pytest.raises(InvalidRecord, match=why):
        encode_records([(T0, None, None, ()), row])


def test_bytearrays_and_views_are_taken_as_bytes() -> None:
    batch = encode_records([(T0, bytearray(b"k"), memoryview(b"v"), [("h", bytearray(b"x"))])])  # type: ignore[list-item]
    assert decode_records(batch)[0][2:] == (b"k", b"v", (("h", b"x"),))


@pytest.mark.parametrize("offsets", [[5, 5], [5, 4], [-1, 0], [0, 2**31]])
def test_offsets_must_rise_within_a_batch(offsets: list[int]) -> None:
    with pytest.raises(InvalidRecord, match="offsets must rise"):
        encode_records([(T0, None, None, ())] * 2, offsets=offsets)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"transactional": True}, "give producer_id"),
        ({"producer_id": 1, "base_sequence": 0}, "give producer_epoch"),
        ({"producer_id": 1, "producer_epoch": 0}, "give base_sequence"),
    ],
)
def test_a_producer_is_complete(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRecord, match=why):
        encode_records([(T0, None, None, ())], **options)


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(UnsupportedCompressionType, match="lzma"):
        encode_records([(T0, None, None, ())], compression_type="lzma")
