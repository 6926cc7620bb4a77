"""Whatever happens to a batch's bytes, a reader gets CorruptRecord and never a wrong record."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.storage.errors import CorruptRecord, PlainBatchTooLarge
from raylog.storage.records.batch import iter_batches, read_header, seal
from raylog.storage.records.compression import CODECS
from raylog.storage.records.decode import decode_records, decode_table
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import CRC_START, HEADER_SIZE, MAGIC

T0 = 1_700_000_000_000
ROWS = [
    (T0, b"k1", b"v1", ()),
    (T0 + 5, None, b"hello", [("h1", b"x"), ("h2", None)]),
    (T0 + 3, b"k2", None, ()),
]

BatchOf = Callable[..., bytearray]


@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_batch_has_no_records(codec: str) -> None:
    batch = encode_records(ROWS, compression_type=codec)
    for size in range(len(batch)):
        assert decode_records(batch[:size]) == []
        assert decode_table(batch[:size]).num_rows == 0


@pytest.mark.parametrize("codec", CODECS)
def test_a_flipped_bit_is_seen_or_outside_of_the_crc(codec: str) -> None:
    batch = encode_records(ROWS, compression_type=codec, base_offset=100, leader_epoch=7)
    header, records = read_header(batch), decode_records(batch)
    for bit in range(8 * len(batch)):
        flipped = bytearray(batch)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        try:
            found, columns = decode_records(flipped), decode_table(flipped, start_offset=-(2**63))
        except CorruptRecord:
            continue
        position = bit >> 3
        assert position < CRC_START
        assert read_header(flipped) != header
        assert columns.num_rows >= len(found)
        # the length grew, so the batch is a partial one; or the base offset is negative
        if not found:
            assert list(iter_batches(flipped)) == [] or read_header(flipped).base_offset < 0
        elif position < 8:
            shift = read_header(flipped).base_offset - 100
            assert found == [record._replace(offset=record.offset + shift) for record in records]
        else:
            assert 12 <= position < 16  # the leader epoch
            assert found == records


PLAIN = bytes(encode_records(ROWS)[HEADER_SIZE:])

MALFORMED = {
    "no records": (b"", 1, "hold its count"),
    "a negative count": (PLAIN, -1, "hold its count"),
    "a count for more bytes": (PLAIN, 9, "hold its count"),
    "one record too few": (PLAIN, 4, ""),
    "one record too many": (PLAIN, 2, "left behind"),
    "bytes behind an empty batch": (PLAIN, 0, "left behind"),
    "a length over the batch": (
        bytes.fromhex("7e 00 00 00 01 01 00"),
        1,
        "longer than what is left",
    ),
    "a negative length": (bytes.fromhex("03 00 00 00 01 01 00"), 1, "too short"),
    "a length too short for its fields": (bytes.fromhex("0a 00 00 00 01 01 00"), 1, "too short"),
    "a key over the record": (bytes.fromhex("0c 00 00 00 04 01 00"), 1, "longer than"),
    "a value over the record": (bytes.fromhex("0c 00 00 00 01 04 00"), 1, "longer than"),
    "a huge key": (bytes.fromhex("14 00 00 00 feffffff0f 01 00"), 1, "longer than"),
    "a negative header count": (bytes.fromhex("0c 00 00 00 01 01 01"), 1, "header count"),
    "more headers than bytes": (bytes.fromhex("0c 00 00 00 01 01 02"), 1, "header count"),
    "a null header name": (bytes.fromhex("10 00 00 00 01 01 02 01 01"), 1, "name is null"),
    "a header name over the record": (
        bytes.fromhex("10 00 00 00 01 01 02 08 01"),
        1,
        "longer than",
    ),
    "a header value over the record": (
        bytes.fromhex("10 00 00 00 01 01 02 00 08"),
        1,
        "longer than",
    ),
    "bytes behind the value": (
        bytes.fromhex("0e 00 00 00 01 01 00 00"),
        1,
        "shorter than its length",
    ),
    "bytes behind the headers": (
        bytes.fromhex("12 00 00 00 01 01 02 00 01 00"),
        1,
        "shorter than its length",
    ),
    "an endless varint": (bytes.fromhex("0e 00 ff ff ff ff ff ff"), 1, "varint"),
}


@pytest.mark.parametrize(("records", "count", "why"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_records_are_corrupt_though_the_crc_is_right(
    records: bytes, count: int, why: str, batch_of: BatchOf
) -> None:
    batch = encode_records(ROWS) + batch_of(records, count, base_offset=3)
    for decode in (decode_records, decode_table):
        with pytest.raises(CorruptRecord, match=rf"position {HEADER_SIZE + len(PLAIN)}: .*{why}"):
            decode(batch)


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 5, 6, 7])
def test_a_stream_of_another_codec_is_corrupt(codec: int, batch_of: BatchOf) -> None:
    for decode in (decode_records, decode_table):
        with pytest.raises(CorruptRecord):
            decode(batch_of(PLAIN, 3, attributes=codec))


def test_a_later_format_is_corrupt_here() -> None:
    batch = encode_records(ROWS)
    batch[16] = MAGIC + 1
    for decode in (decode_records, decode_table):
        with pytest.raises(CorruptRecord, match="magic"):
            decode(batch)


def test_a_checked_batch_may_skip_its_crc() -> None:
    batch = encode_records(ROWS)
    batch[CRC_START - 1] ^= 1
    assert (
        len(decode_records(batch, check_crc=False))
        == decode_table(batch, check_crc=False).num_rows
        == 3
    )


@given(st.data())
def test_mangled_records_never_crash(data: st.DataObject) -> None:
    """Random damage under a right CRC: records or CorruptRecord, and both decoders agree on
    which."""
    batch = encode_records(ROWS * 2)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER_SIZE - 4, len(batch) - 1))] = data.draw(
            st.integers(0, 255)
        )
    batch = seal(batch, read_header(batch))
    outcomes = []
    for decode in (decode_records, decode_table):
        try:
            found = decode(batch, start_offset=-(2**63))
            outcomes.append(len(found))
        except CorruptRecord:
            outcomes.append(-1)
    assert outcomes[0] == outcomes[1]


def test_a_length_that_no_batch_has_is_corrupt_even_if_the_batch_is_cut() -> None:
    """Found by fuzzing: the kernels disagreed."""
    partial = bytes(8) + (44).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(11)
    for decode in (decode_records, decode_table, lambda buffer: list(iter_batches(buffer))):
        with pytest.raises(CorruptRecord):
            decode(partial)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_reader_says_how_large_a_batch_may_be_when_it_is_decompressed(codec: str) -> None:
    batch = bytes(encode_records([(T0, None, bytes(100_000), ())], compression_type=codec))
    for decode in (decode_records, decode_table):
        assert list(decode(batch, max_plain_batch_bytes=200_000))
        with pytest.raises(PlainBatchTooLarge, match="RAYLOG_MAX_PLAIN_BATCH_BYTES"):
            decode(batch, max_plain_batch_bytes=99_999)
