"""What an old client sends, in message version 0 or 1, is written as a batch of version 2, or
refused whole."""

import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from raylog.storage import conversion
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    PlainBatchTooLarge,
    RaylogError,
    RecordTooLarge,
)
from raylog.storage.records import legacy
from raylog.storage.records.compression import CODECS, compress
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records
from raylog.storage.records.legacy import encode_legacy
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, batch, flip, records_of
from raylog.storage.validation import check_append
from tests.harness.paths import GOLDEN

ROWS = [(T0, b"a", b"1" * 30), (T0 + 9, b"b", b"2" * 30), (T0 + 3, None, None)]
LEGACY = ("none", "gzip", "snappy", "lz4")
BATCHES = sorted((GOLDEN / "kafka-clients-3.9.1-batches").glob("m[01]-*.bin"))


def message(magic: int = 1, **options: Any) -> bytes:
    return bytes(encode_legacy(ROWS[:1], magic=magic, **options))


@pytest.mark.parametrize("target", ["producer", "uncompressed", "zstd", "gzip"])
@pytest.mark.parametrize("codec", LEGACY)
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_become_one_batch(disk: Disk, magic: int, codec: str, target: str) -> None:
    log = disk.open(compression_type=target)
    log.append(batch(2))
    info = log.append(
        encode_legacy(ROWS, magic=magic, compression_type=codec, base_offset=70), leader_epoch=5
    )
    assert (info.base_offset, info.last_offset) == (2, 4), "the messages' own offsets mean nothing"
    times = [row[0] if magic else -1 for row in ROWS]
    expected = [(2 + n, times[n], *row[1:]) for n, row in enumerate(ROWS)]
    assert [record[:4] for record in records_of(log, 2)] == expected
    _, header = list(log.segments[0].batches())[-1]
    name = {"producer": codec, "uncompressed": "none"}.get(target, target)
    assert (header.magic, header.codec, header.count, header.leader_epoch) == (
        2,
        CODECS[name],
        3,
        5,
    )
    assert (header.max_timestamp, header.producer_id) == (max(times), -1)


def test_the_limit_is_of_each_message_and_of_what_is_written(disk: Disk) -> None:
    log = disk.open(max_message_bytes=300, compression_type="gzip")
    log.append(encode_legacy([(T0, b"k", b"v" * 200)] * 3, magic=1))
    assert log.size_bytes <= 300
    with pytest.raises(RecordTooLarge):
        log.append(encode_legacy([(T0, b"k", b"v" * 300)], magic=1))


@pytest.mark.parametrize("path", BATCHES, ids=lambda path: path.stem)
def test_what_kafkas_client_made_is_taken(disk: Disk, path: Path) -> None:
    log = disk.open()
    log.append(path.read_bytes())
    assert [record[1:4] for record in records_of(log)] == [
        record[1:4] for record in decode_records(path.read_bytes())
    ]
    assert [record.offset for record in records_of(log)] == [0, 1, 2, 3, 4]
    assert log.segments[0].last_batch().timestamp_type == "CreateTime"  # type: ignore[union-attr]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_topic_of_log_append_time_stamps_them(disk: Disk, magic: int) -> None:
    log = disk.open(message_timestamp_type="LogAppendTime")
    disk.clock.ms = T0 + 50
    log.append(message(magic))
    assert [record.timestamp for record in records_of(log)] == [T0 + 50]
    assert log.offset_for_timestamp(T0 + 50) == (T0 + 50, 0)


@pytest.mark.parametrize(
    ("records", "error", "config"),
    [
        (flip(20)(message()), CorruptRecord, {}),
        (flip(12)(message(compression_type="gzip")), CorruptRecord, {}),
        (message()[:-1], CorruptRecord, {}),
        (message() + message()[:20], CorruptRecord, {}),
        (message(0) + b"\0", CorruptRecord, {}),
        (message(0) + message(1), InvalidRecord, {}),
        (message(1) + bytes(batch()), InvalidRecord, {}),
        (message() + message(compression_type="gzip"), InvalidRecord, {}),
        (message(compression_type="gzip") + message(), InvalidRecord, {}),
        (message(compression_type="gzip") * 2, InvalidRecord, {}),
        (encode_legacy([(T0 + 3_600_001, b"k", b"v")], magic=1), InvalidTimestamp, {}),
        (encode_legacy([(-2, b"k", b"v")], magic=1), InvalidRecord, {}),
        (encode_legacy([(T0, None, b"v")], magic=1), InvalidRecord, {"cleanup_policy": "compact"}),
        (message(log_append_time=T0), InvalidRecord, {"message_timestamp_type": "LogAppendTime"}),
        (message(), RecordTooLarge, {"max_message_bytes": 60}),
        (encode_legacy(ROWS, magic=0), RecordTooLarge, {"max_message_bytes": 100}),
        (bytes(encode_records([(T0, b"k", b"v", ())])).replace(b"\2", b"\1", 1), CorruptRecord, {}),
    ],
)
def test_what_cannot_be_converted_is_refused_and_nothing_is_written(
    disk: Disk, records: bytes, error: type[RaylogError], config: dict[str, Any]
) -> None:
    log = disk.open(**config)
    with pytest.raises(error):
        log.append(records)
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


def set_of(inner: bytes) -> bytes:
    """A gzip set of version 1 around any bytes."""
    stream = compress(CODECS["gzip"], inner)
    body = struct.pack(">bbqii", 1, CODECS["gzip"], T0, -1, len(stream)) + bytes(stream)
    return struct.pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body


@pytest.mark.parametrize(
    ("inner", "error", "why"),
    [
        (flip(-1)(message()), CorruptRecord, "CRC-32"),
        (message(0), InvalidRecord, "magic 0 is in a message set of magic 1"),
        (b"", CorruptRecord, "set is empty"),
        (message(compression_type="gzip"), CorruptRecord, "compressed"),
    ],
)
def test_what_a_set_may_not_hold_is_refused(
    disk: Disk, inner: bytes, error: type[RaylogError], why: str
) -> None:
    log = disk.open()
    with pytest.raises(error, match=why):
        log.append(set_of(inner))
    assert log.log_end_offset == 0
    assert log.append(set_of(message())).last_offset == 0


def test_a_set_is_bounded_by_its_plain_size_and_by_its_messages(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open(max_plain_batch_bytes=4_000)
    with pytest.raises(PlainBatchTooLarge, match="more than 4000 bytes"):
        log.append(set_of(message() * 100))
    monkeypatch.setattr(conversion, "MAX_MESSAGES", 9)
    for records in (set_of(message() * 10), message() * 10):
        with pytest.raises(PlainBatchTooLarge, match="more than 9 messages"):
            log.append(records)
    assert log.log_end_offset == 0
    log.append(set_of(message() * 9))
    log.append(message() * 9)
    assert log.log_end_offset == 18


def test_a_set_of_two_million_messages_is_given_up_early(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = set_of(bytes(encode_legacy([(T0, None, None)], magic=1)) * 1_900_000)
    assert len(bomb) < 200_000
    read = []
    one_by_one = legacy._message

    def counting(*arguments: Any) -> Any:
        read.append(1)
        return one_by_one(*arguments)

    monkeypatch.setattr(legacy, "_message", counting)
    with pytest.raises(PlainBatchTooLarge):
        check_append(bomb, LogConfig(), T0)
    assert len(read) <= conversion.MAX_MESSAGES + 2
