"""The 61 bytes before the records."""

import struct

import pytest

from raylog.storage.errors import CorruptRecord
from raylog.storage.records.batch import (
    BatchHeader,
    check_crc,
    empty_batch,
    increment_sequence,
    iter_batches,
    read_header,
    stamp,
)
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import HEADER_SIZE, MAX_SEQUENCE

T0 = 1_700_000_000_000


def small_batch(**options: int) -> bytearray:
    return encode_records([(T0, b"k", b"v", ()), (T0 + 1, None, b"w", ())], **options)  # type: ignore[arg-type]


def test_a_header_reads_back_field_by_field() -> None:
    batch = small_batch(
        base_offset=7, leader_epoch=3, producer_id=9, producer_epoch=1, base_sequence=MAX_SEQUENCE
    )
    header = read_header(batch)
    assert header._replace(crc=0) == BatchHeader(
        base_offset=7,
        batch_length=len(batch) - 12,
        leader_epoch=3,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=1,
        base_timestamp=T0,
        max_timestamp=T0 + 1,
        producer_id=9,
        producer_epoch=1,
        base_sequence=MAX_SEQUENCE,
        count=2,
    )
    assert (header.size_bytes, header.last_offset, header.next_offset) == (len(batch), 8, 9)
    assert header.last_sequence == 0
    assert (header.codec, header.timestamp_type, header.delete_horizon_ms) == (
        0,
        "CreateTime",
        None,
    )
    assert not header.is_transactional
    assert not header.is_control


def test_attributes_say_codec_timestamp_type_and_kind() -> None:
    header = read_header(
        encode_records(
            [(T0, b"k", None, ())],
            compression_type="zstd",
            log_append_time=T0 + 9,
            transactional=True,
            control=True,
            producer_id=1,
            producer_epoch=0,
            delete_horizon_ms=T0 + 5,
        )
    )
    assert (header.codec, header.timestamp_type) == (4, "LogAppendTime")
    assert header.is_transactional
    assert header.is_control
    assert header.delete_horizon_ms == T0 + 5
    assert header.max_timestamp == T0 + 9


def test_no_sequence_means_no_last_sequence() -> None:
    assert read_header(small_batch()).last_sequence == -1


def test_stamping_keeps_the_crc_right() -> None:
    batch = bytearray(8) + small_batch()
    stamp(batch, 10**12, 42, position=8)
    header = read_header(batch, 8)
    assert (header.base_offset, header.leader_epoch) == (10**12, 42)
    check_crc(batch, 8, header)


@pytest.mark.parametrize(
    ("start", "by", "result"),
    [(MAX_SEQUENCE, 1, 0), (MAX_SEQUENCE - 2, 5, 2), (0, 0, 0), (17, 3, 20)],
)
def test_sequences_wrap_to_zero(start: int, by: int, result: int) -> None:
    assert increment_sequence(start, by) == result


def test_batches_are_found_one_after_the_other_up_to_a_partial_one() -> None:
    first, second = small_batch(), small_batch(base_offset=2)
    both = bytes(first + second)
    found = [(position, header.base_offset) for position, header in iter_batches(both)]
    assert found == [(0, 0), (len(first), 2)]
    for size in range(len(first), len(both)):
        assert [position for position, _ in iter_batches(both[:size])] == [0]


@pytest.mark.parametrize(
    ("position", "layout", "value", "why"),
    [
        (16, "b", 3, "magic 3"),
        (16, "b", -2, "magic -2"),
        (8, ">i", 48, "under 49"),
        (8, ">i", -1, "under"),
    ],
)
def test_what_is_no_batch_is_corrupt(position: int, layout: str, value: int, why: str) -> None:
    batch = small_batch()
    struct.pack_into(layout, batch, position, value)
    with pytest.raises(CorruptRecord, match=why):
        read_header(batch)
    with pytest.raises(CorruptRecord):
        list(iter_batches(batch))


@pytest.mark.parametrize("size", [0, 12, 17, HEADER_SIZE - 1])
def test_too_few_bytes_are_no_header(size: int) -> None:
    with pytest.raises(CorruptRecord, match="hold no header"):
        read_header(small_batch()[:size])


def test_a_crc_covers_the_whole_batch() -> None:
    batch = small_batch()
    header = read_header(batch)
    check_crc(batch, 0, header)
    with pytest.raises(CorruptRecord, match="bytes of a batch"):
        check_crc(batch[:-1], 0, header)
    batch[-1] ^= 1
    with pytest.raises(CorruptRecord, match="CRC-32C"):
        check_crc(batch, 0, header)


def test_an_empty_batch_keeps_offsets_producer_and_sequences() -> None:
    header = read_header(
        small_batch(
            base_offset=100, leader_epoch=7, producer_id=4242, producer_epoch=3, base_sequence=17
        )
    )._replace(last_offset_delta=2, max_timestamp=T0 + 5)
    batch = empty_batch(header)
    assert len(batch) == HEADER_SIZE
    read = read_header(batch)
    check_crc(batch, 0, read)
    assert (read.count, read.base_timestamp, read.last_offset, read.last_sequence) == (
        0,
        -1,
        102,
        19,
    )
