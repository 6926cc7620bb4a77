"""The kernel's glance at a batch lets nothing pass that the closer look refuses, and changes no
error."""

from collections.abc import Iterator

import numpy as np
import pytest

from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    RaylogError,
    RecordTooLarge,
)
from raylog.storage.records import _kernel_py, kernel
from raylog.storage.records.batch import BatchHeader, check_crc, seal
from raylog.storage.records.compression import CODECS
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records
from raylog.storage.validation import check_append

NOW_MS = 1_700_000_000_000
MAX_INT64 = 2**63 - 1


def batch(timestamp: int = NOW_MS, **changed: int) -> bytes:
    encoded = encode_records([(timestamp, b"k", b"v", ()), (timestamp + 1, None, None, ())])
    if not changed:
        return bytes(encoded)
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=1,
        base_timestamp=timestamp,
        max_timestamp=timestamp + 1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=2,
    )
    return bytes(seal(bytearray(encoded), header._replace(**changed)))


def outcome(records: bytes) -> str:
    try:
        return repr(check_append(records, LogConfig(), NOW_MS).header)
    except RaylogError as error:
        return repr(error)


def damaged() -> Iterator[bytes]:
    whole = batch()
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)
    yield from (whole[:size] for size in range(len(whole)))
    yield whole + b"\0"
    for attributes in range(-1, 0x81):
        yield batch(attributes=attributes)
    for count in (-1, 0, 1, 3):
        yield batch(count=count)
        yield batch(last_offset_delta=count)
    for timestamp in (-MAX_INT64 - 1, -1, 0, NOW_MS + 3_600_000, NOW_MS + 3_600_001, MAX_INT64):
        yield batch(max_timestamp=timestamp)
    yield batch(producer_id=7, producer_epoch=1, base_sequence=MAX_INT64 >> 32)


def test_both_kernels_judge_every_damage_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = list(damaged())
    compiled = [outcome(case) for case in cases]
    monkeypatch.setattr(kernel, "ops", _kernel_py)
    assert [outcome(case) for case in cases] == compiled
    assert len({text.split("(")[0] for text in compiled}) >= 5, "the cases reach several errors"


@pytest.mark.skipif(kernel.KERNEL != "compiled", reason="there is no compiled kernel here")
def test_a_plain_batch_needs_no_closer_look() -> None:
    for records in (batch(), bytearray(batch()), np.frombuffer(batch(), np.uint8)):
        assert kernel.ops.plain_header(records, 1 << 20, NOW_MS, MAX_INT64) == outcome_header(
            batch()
        )


def outcome_header(records: bytes) -> BatchHeader:
    return check_append(records, LogConfig(), NOW_MS).header


def test_the_content_is_bytes_whatever_the_array_is_made_of() -> None:
    encoded = bytes(encode_records([(NOW_MS, None, b"v" * 24, ())]))
    words = np.frombuffer(encoded, np.int16 if len(encoded) % 4 else np.int32)
    checked = check_append(words.data, LogConfig(), NOW_MS)
    assert bytes(checked.content) == encoded
    assert len(checked.content) == len(encoded)


# -- what only the records tell --------------------------------------------------------------------


def test_a_compacted_topic_needs_keys_and_says_where_they_miss() -> None:
    config = LogConfig(cleanup_policy="compact")
    check_append(bytes(encode_records([(NOW_MS, b"k", None, ())])), config, NOW_MS)
    rows = [(NOW_MS, b"k" if n == 3 else None, b"v", ()) for n in range(14)]
    with pytest.raises(InvalidRecord, match="records 0, 1, 2, 4, 5, 6, 7, 8, 9, 10 and 3 more"):
        check_append(encode_records(rows), config, NOW_MS)


@pytest.mark.parametrize("behind", [1000, 1001])
def test_each_records_timestamp_is_held_against_both_bounds(behind: int) -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=5)
    stamps = (NOW_MS, NOW_MS - behind, -1)
    content = encode_records([(stamp, None, b"v", ()) for stamp in stamps])
    if behind > 1000:
        with pytest.raises(InvalidTimestamp, match=r"message\.timestamp\.before\.max\.ms=1000"):
            check_append(content, config, NOW_MS)
    else:
        check_append(content, config, NOW_MS)
    late = seal(
        encode_records([(NOW_MS + 6, None, b"v", ())]),
        BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=-1,
            magic=2,
            crc=0,
            attributes=0,
            last_offset_delta=0,
            base_timestamp=NOW_MS + 6,
            max_timestamp=NOW_MS,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            count=1,
        ),
    )
    # the header's own maximum lies
    with pytest.raises(InvalidTimestamp, match=r"after\.max\.ms=5"):
        check_append(late, config, NOW_MS)


@pytest.mark.parametrize("theirs", CODECS)
@pytest.mark.parametrize("ours", [*CODECS, "producer"])
def test_the_topics_codec_against_the_producers(theirs: str, ours: str) -> None:
    rows = [(NOW_MS + n, b"key", b"value" * 50, [("h", b"x")]) for n in range(20)]
    content = bytes(
        encode_records(
            rows, compression_type=theirs, producer_id=5, producer_epoch=1, base_sequence=9
        )
    )
    config = LogConfig.parse({"compression.type": "uncompressed" if ours == "none" else ours})
    checked = check_append(content, config, NOW_MS)
    if ours in ("producer", theirs):
        assert bytes(checked.content) == content, "written as it came"
    else:
        assert bytes(checked.content) == bytes(
            encode_records(
                rows, compression_type=ours, producer_id=5, producer_epoch=1, base_sequence=9
            )
        )
    check_crc(checked.content, 0, checked.header)
    assert decode_records(checked.content) == decode_records(content)


def test_a_level_is_obeyed_but_alone_is_no_reason_to_compress_again() -> None:
    rows = [(NOW_MS, None, bytes(range(256)) * 40, ())]
    fast = bytes(encode_records(rows, compression_type="zstd", level=1))
    best = LogConfig.parse({"compression.type": "zstd", "compression.zstd.level": 19})
    assert bytes(check_append(fast, best, NOW_MS).content) == fast
    again = check_append(bytes(encode_records(rows)), best, NOW_MS)
    assert bytes(again.content) == bytes(encode_records(rows, compression_type="zstd", level=19))


def test_what_recompression_makes_too_large_is_refused() -> None:
    content = bytes(encode_records([(NOW_MS, None, b"x" * 5000, ())], compression_type="zstd"))
    config = LogConfig(compression_type="uncompressed", max_message_bytes=4000)
    with pytest.raises(RecordTooLarge, match=r"exceeds max\.message\.bytes=4000"):
        check_append(content, config, NOW_MS)


def test_a_topic_of_append_time_refuses_a_batch_that_says_so_itself() -> None:
    content = bytes(encode_records([(NOW_MS, None, b"v", ())], log_append_time=NOW_MS))
    check_append(content, LogConfig(), NOW_MS)
    with pytest.raises(InvalidRecord, match="only the log may set"):
        check_append(content, LogConfig(message_timestamp_type="LogAppendTime"), NOW_MS)


@pytest.mark.parametrize(
    ("records", "config", "error"),
    [
        (batch(), LogConfig(max_message_bytes=20), RecordTooLarge),
        (batch(NOW_MS + 10_000), LogConfig(message_timestamp_after_max_ms=9_999), InvalidTimestamp),
        (b"", LogConfig(), CorruptRecord),
        ("text", LogConfig(), InvalidRecord),
        (np.zeros((99, 4), np.uint8)[:, 1], LogConfig(), InvalidRecord),
    ],
)
def test_what_is_refused(records: bytes, config: LogConfig, error: type[RaylogError]) -> None:
    with pytest.raises(error):
        check_append(records, config, NOW_MS)
