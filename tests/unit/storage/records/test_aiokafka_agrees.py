"""aiokafka's batch codec as an oracle, both ways."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from raylog.storage.records.compression import CODECS
from raylog.storage.records.decode import decode_records, decode_table
from raylog.storage.records.encode import encode_records

T0 = 1_700_000_000_000

fields = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=50)), max_size=3)
timestamps = st.integers(T0 - 10_000, T0 + 10_000_000)
batches = st.lists(st.tuples(timestamps, fields, fields, headers), min_size=1, max_size=20)
codecs = st.sampled_from(list(CODECS))


def aiokafka_encodes(rows: list, codec: str, producer: tuple[int, int, int]) -> bytes:
    builder = DefaultRecordBatchBuilder(2, CODECS[codec], 0, *producer, 10**6)
    for i, (timestamp, key, value, row_headers) in enumerate(rows):
        assert builder.append(i, timestamp, key, value, row_headers) is not None
    return bytes(builder.build())


def as_tuples(rows: list) -> list[tuple]:
    return [(i, *row[:3], tuple(row[3])) for i, row in enumerate(rows)]


@given(batches, codecs)
def test_we_read_what_it_writes(rows: list, codec: str) -> None:
    batch = aiokafka_encodes(rows, codec, (-1, -1, -1))
    assert decode_records(batch) == as_tuples(rows)
    columns = decode_table(batch).to_pydict()
    names = ("offset", "timestamp", "key", "value")
    assert list(zip(*(columns[name] for name in names), strict=True)) == [
        row[:4] for row in as_tuples(rows)
    ]


@given(batches, codecs)
def test_it_reads_what_we_write(rows: list, codec: str) -> None:
    batch = DefaultRecordBatch(encode_records(rows, compression_type=codec, leader_epoch=3))
    assert batch.validate_crc()
    found = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert found == as_tuples(rows)


@given(batches)
def test_we_write_the_same_bytes(rows: list) -> None:
    ours = encode_records(rows, producer_id=7, producer_epoch=1, base_sequence=5)
    assert aiokafka_encodes(rows, "none", (7, 1, 5)).hex() == ours.hex()


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_batch_crosses_every_block(codec: str) -> None:
    rows: list = [(T0 + i, b"%d" % i, b"%d" % i * 200, []) for i in range(800)]
    assert decode_records(aiokafka_encodes(rows, codec, (-1, -1, -1))) == as_tuples(rows)
    batch = DefaultRecordBatch(encode_records(rows, compression_type=codec))
    assert [r.value for r in batch] == [row[2] for row in rows]
