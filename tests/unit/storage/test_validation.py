"""What may be appended: the kernel's glance lets nothing pass that the closer look refuses, and
what lies under a right CRC is refused by name."""

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    PlainBatchTooLarge,
    RaylogError,
    RecordTooLarge,
)
from raylog.storage.records import _kernel_py, kernel
from raylog.storage.records.batch import BatchHeader, check_crc, read_header, seal
from raylog.storage.records.compression import CHUNK_BYTES, CODECS, compress
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import HEADER_SIZE
from raylog.storage.testing.logs import flip
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


def batch_of(headers: list[tuple[str, bytes | None]]) -> bytes:
    return bytes(encode_records([(NOW_MS, b"k", b"v", headers)]))


def sealed_again(changed: bytes) -> bytes:
    """The batch with the CRC-32C of what it holds now."""
    return bytes(seal(bytearray(changed), read_header(changed)))


def lying(plain: bytes, count: int, codec: str = "none", **changed: int) -> bytes:
    """A batch around any plain bytes, with a right CRC and what else its header says."""
    header = read_header(batch())._replace(
        attributes=CODECS[codec],
        count=count,
        last_offset_delta=count - 1,
        max_timestamp=NOW_MS,
    )
    stream = bytes(compress(CODECS[codec], plain))
    return bytes(seal(bytearray(bytes(HEADER_SIZE) + stream), header._replace(**changed)))


def records_at(offsets: list[int], timestamp: int = NOW_MS) -> bytes:
    rows = [(timestamp, b"k", b"v", ())] * len(offsets)
    return bytes(encode_records(rows, offsets=offsets))[HEADER_SIZE:]


def outcome(records: bytes, config: LogConfig | None = None) -> str:
    try:
        return repr(check_append(records, config or LogConfig(), NOW_MS).header)
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
    rules = LogConfig().record_rules
    for records in (batch(), bytearray(batch()), np.frombuffer(batch(), np.uint8)):
        assert kernel.ops.check_batch(records, rules, NOW_MS) == outcome_header(batch())


def test_both_kernels_judge_every_damaged_record_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    config = LogConfig(cleanup_policy="compact", message_timestamp_before_max_ms=1 << 40)
    cases = [
        sealed_again(changed)
        for whole in (batch(), batch_of([("h", b"x"), ("", None)]), batch(NOW_MS - (1 << 40)))
        for bit in range(8 * HEADER_SIZE, 8 * len(whole))
        for changed in [flip(bit // 8, bit % 8)(whole)]
    ]
    told = []
    for ops in (kernel.ops, _kernel_py):
        monkeypatch.setattr(kernel, "ops", ops)
        told.append([outcome(case, config) for case in cases])
    assert told[0] == told[1]
    assert {text.split("(")[0] for text in told[0]} == {
        "BatchHeader",
        "InvalidRecord",
        "InvalidTimestamp",
    }


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_let_pass_can_be_read_and_is_true(codec: str) -> None:
    whole = encode_records([(NOW_MS + n, b"k", b"v", [("h", None)]) for n in range(3)])
    for bit in range(8 * HEADER_SIZE, 8 * len(whole)):
        plain = flip(bit // 8, bit % 8)(bytes(whole))[HEADER_SIZE:]
        header = read_header(whole)._replace(attributes=CODECS[codec])
        stream = bytes(compress(CODECS[codec], plain))
        sent = bytes(seal(bytearray(bytes(HEADER_SIZE) + stream), header))
        try:
            header, content = check_append(sent, LogConfig(), NOW_MS)
        except RaylogError:
            continue
        records = decode_records(content)
        assert [record.offset for record in records] == [0, 1, 2]
        assert header.max_timestamp == max(record.timestamp for record in records)
        assert read_header(content) == header
        check_crc(content, 0, header)


def outcome_header(records: bytes) -> BatchHeader:
    return check_append(records, LogConfig(), NOW_MS).header


def test_the_content_is_bytes_whatever_the_array_is_made_of() -> None:
    encoded = bytes(encode_records([(NOW_MS, None, b"v" * 24, ())]))
    words = np.frombuffer(encoded, np.int16 if len(encoded) % 4 else np.int32)
    checked = check_append(words.data, LogConfig(), NOW_MS)
    assert bytes(checked.content) == encoded
    assert len(checked.content) == len(encoded)


# -- batches that lie under a right CRC ------------------------------------------------------------


@pytest.fixture(params=["compiled", "pure Python"])
def kernel_in_use(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pure Python":
        monkeypatch.setattr(kernel, "ops", _kernel_py)
    elif kernel.KERNEL != "compiled":
        pytest.skip("there is no compiled kernel here")


ALL_CODECS = pytest.mark.parametrize("codec", CODECS)


@ALL_CODECS
@pytest.mark.usefixtures("kernel_in_use")
def test_a_count_of_two_billion_in_69_bytes_is_refused(codec: str) -> None:
    with pytest.raises(InvalidRecord, match="header says 2147483647"):
        check_append(lying(records_at([0]), 2**31 - 1, codec), LogConfig(), NOW_MS)
    assert len(lying(b"", 2**31 - 1)) <= 69
    with pytest.raises(InvalidRecord, match="has 0 records"):
        check_append(lying(b"", 2**31 - 1, codec), LogConfig(), NOW_MS)


@ALL_CODECS
@pytest.mark.usefixtures("kernel_in_use")
def test_garbage_instead_of_records_is_refused(codec: str) -> None:
    with pytest.raises(InvalidRecord, match="record 0"):
        check_append(lying(b"garbage" * 9, 4, codec), LogConfig(), NOW_MS)


@ALL_CODECS
@pytest.mark.usefixtures("kernel_in_use")
@pytest.mark.parametrize("offsets", [[50, 51], [0, 2], [1, 2]])
def test_inner_offsets_that_do_not_count_from_0_are_refused(codec: str, offsets: list[int]) -> None:
    with pytest.raises(InvalidRecord, match="offset delta"):
        check_append(lying(records_at(offsets), 2, codec), LogConfig(), NOW_MS)


@ALL_CODECS
@pytest.mark.usefixtures("kernel_in_use")
def test_bytes_behind_the_last_record_are_refused(codec: str) -> None:
    with pytest.raises(InvalidRecord, match="smaller count of records"):
        check_append(lying(records_at([0, 1]), 1, codec), LogConfig(), NOW_MS)


@ALL_CODECS
@pytest.mark.usefixtures("kernel_in_use")
def test_a_maximum_timestamp_that_hides_a_late_record_is_refused(codec: str) -> None:
    late = records_at([0], NOW_MS + 3_600_001)
    with pytest.raises(InvalidTimestamp, match=r"after\.max\.ms=3600000"):
        check_append(lying(late, 1, codec, base_timestamp=NOW_MS + 3_600_001), LogConfig(), NOW_MS)


@ALL_CODECS
@pytest.mark.usefixtures("kernel_in_use")
def test_a_maximum_timestamp_beyond_the_limit_is_refused_whatever_the_records_say(
    codec: str,
) -> None:
    with pytest.raises(InvalidTimestamp, match=r"after\.max\.ms=3600000"):
        check_append(
            lying(records_at([0]), 1, codec, max_timestamp=NOW_MS + 3_600_001),
            LogConfig(),
            NOW_MS,
        )


@ALL_CODECS
@pytest.mark.usefixtures("kernel_in_use")
@pytest.mark.parametrize("said", [-1, NOW_MS - 5, NOW_MS + 5])
def test_a_maximum_timestamp_that_is_not_the_records_does_not_get_in(codec: str, said: int) -> None:
    sent = lying(records_at([0, 1]), 2, codec, max_timestamp=said)
    header, content = check_append(sent, LogConfig(), NOW_MS)
    assert header.max_timestamp == NOW_MS
    assert bytes(content) == lying(records_at([0, 1]), 2, codec), "only the header was changed"


@ALL_CODECS
@pytest.mark.usefixtures("kernel_in_use")
def test_a_topic_of_append_time_does_not_ask_for_a_maximum_timestamp(codec: str) -> None:
    sent = lying(records_at([0, 1], 5), 2, codec, max_timestamp=NOW_MS * 2, base_timestamp=5)
    config = LogConfig(message_timestamp_type="LogAppendTime")
    assert bytes(check_append(sent, config, NOW_MS).content) == sent


def test_a_topic_may_trust_compressed_batches() -> None:
    trusting = LogConfig(check_compressed_batches=False)
    garbage = lying(b"garbage" * 9, 4, "gzip")
    assert bytes(check_append(garbage, trusting, NOW_MS).content) == garbage
    with pytest.raises(InvalidRecord):
        check_append(lying(b"garbage" * 9, 4), trusting, NOW_MS)
    recompressing = LogConfig(check_compressed_batches=False, compression_type="zstd")
    with pytest.raises(InvalidRecord):
        check_append(garbage, recompressing, NOW_MS)


# -- what a small batch may unpack to --------------------------------------------------------------


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
@pytest.mark.parametrize("target", ["producer", "uncompressed"])
def test_a_batch_may_be_as_large_as_the_topic_says_when_it_is_plain(
    codec: str, target: str
) -> None:
    sent = bytes(encode_records([(NOW_MS, None, bytes(500_000), ())], compression_type=codec))
    plain_bytes = len(encode_records([(NOW_MS, None, bytes(500_000), ())])) - HEADER_SIZE
    limits = {"max_plain_batch_bytes": plain_bytes, "compression_type": target}
    check_append(sent, LogConfig(**limits), NOW_MS)  # type: ignore[arg-type]
    limits["max_plain_batch_bytes"] = plain_bytes - 1
    with pytest.raises(PlainBatchTooLarge, match=r"raise max\.plain\.batch\.bytes"):
        check_append(sent, LogConfig(**limits), NOW_MS)  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_no_more_than_a_few_chunks_of_a_batch_are_in_memory(codec: str) -> None:
    size_bytes = 50_000_000
    sent = bytes(encode_records([(NOW_MS, None, bytes(size_bytes), ())], compression_type=codec))
    tracemalloc.start()
    try:
        check_append(sent, LogConfig(), NOW_MS)
        with pytest.raises(PlainBatchTooLarge):
            check_append(sent, LogConfig(max_plain_batch_bytes=size_bytes // 2), NOW_MS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * CHUNK_BYTES


def test_a_partitions_process_needs_no_arrow_for_a_look_at_records() -> None:
    code = (
        "import sys; from raylog.storage.config import LogConfig; "
        "from raylog.storage.validation import check_append; "
        "check_append(bytes.fromhex(sys.argv[1]), LogConfig(cleanup_policy='compact', "
        "message_timestamp_before_max_ms=1000), int(sys.argv[2])); "
        "assert not any(name.startswith('pyarrow') for name in sys.modules)"
    )
    for codec in CODECS:
        sent = encode_records([(NOW_MS, b"k", b"v", ())], compression_type=codec)
        subprocess.run([sys.executable, "-c", code, sent.hex(), str(NOW_MS)], check=True)


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
