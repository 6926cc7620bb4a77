"""Compaction of logs that hold messages of versions 0 and 1: what is kept of them is of version
2."""

import shutil
from pathlib import Path

import pytest

from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.config import LogConfig
from raylog.storage.errors import CorruptRecord
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import open_log
from raylog.storage.log import Log
from raylog.storage.names import TopicPartition
from raylog.storage.records.batch import iter_batches
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import LOG_OVERHEAD
from raylog.storage.records.legacy import encode_legacy
from raylog.storage.testing.clock import T0, ManualClock
from raylog.storage.testing.logs import Disk, flip, records_of
from tests.harness.paths import GOLDEN

FIRST = "00000000000000000000.log"
ROOMY = Buffers(dedupe_bytes=1 << 20, load_factor=0.9, chunk_bytes=4096)


def compact(disk: Disk, log: Log, buffers: Buffers = ROOMY) -> None:
    log.roll()
    clean(
        disk.fs,
        disk.clock,
        log,
        Cleanable(
            first_dirty_offset=0,
            bound=log.segments[-1].base_offset,
            clean_bytes=0,
            cleanable_bytes=1,
        ),
        buffers,
    )


def content(log: Log) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.timestamp, record.key, record.value) for record in records_of(log)
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("magic", [0, 1])
def test_what_stays_of_old_messages_keeps_offset_and_time_and_becomes_version_2(
    disk: Disk, magic: int, codec: str
) -> None:
    rows = [(T0 + n, b"k%d" % (n % 3), b"v%d" % n) for n in range(7)]
    disk.write(
        FIRST, bytes(encode_legacy(rows, magic=magic, base_offset=0, compression_type=codec))
    )
    log = disk.open(is_clean=False)
    log.append(encode_records([(T0 + 7, b"k0", b"v7", ())]))
    compact(disk, log)
    old_time = T0 if magic else -1
    assert content(log) == [
        (4, old_time + 4 if magic else -1, b"k1", b"v4"),
        (5, old_time + 5 if magic else -1, b"k2", b"v5"),
        (7, T0 + 7, b"k0", b"v7"),
    ]
    kept = [header for _, header in iter_batches(disk.read(FIRST))]
    assert {header.magic for header in kept} == {2}
    assert log.offset_for_timestamp(T0 + 5) == ((T0 + 5, 5) if magic else (T0 + 7, 7))
    compact(disk, log)
    assert [row[0] for row in content(log)] == [4, 5, 7]
    log.close()
    assert [row[0] for row in content(disk.open(is_clean=False))] == [4, 5, 7]


def test_an_append_time_stays_every_messages_time(disk: Disk) -> None:
    rows = [(T0 + n, b"k%d" % n, b"v") for n in range(2)]
    for compression_type in ("none", "gzip"):
        other = Disk()
        messages = encode_legacy(
            rows, magic=1, compression_type=compression_type, log_append_time=T0 + 70
        )
        other.write(FIRST, bytes(messages))
        log = other.open(is_clean=False)
        compact(other, log)
        assert {(record.offset, record.timestamp) for record in records_of(log)} == {
            (0, T0 + 70),
            (1, T0 + 70),
        }
        assert {header.timestamp_type for _, header in iter_batches(other.read(FIRST))} == {
            "LogAppendTime"
        }


def test_a_message_larger_than_a_chunk_is_upgraded_whole(disk: Disk) -> None:
    disk.write(FIRST, bytes(encode_legacy([(T0, b"k", b"x" * 20_000)], magic=1)))
    log = disk.open(is_clean=False)
    compact(disk, log)
    assert content(log) == [(0, T0, b"k", b"x" * 20_000)]


def test_a_message_with_a_wrong_crc_ends_the_round_and_nothing_is_changed(disk: Disk) -> None:
    messages = encode_legacy([(T0, b"k", b"v"), (T0, b"k", b"w")], magic=1)
    disk.write(FIRST, bytes(messages))
    log = disk.open(is_clean=False)
    log.roll()
    damaged = bytes(messages[:-1]) + b"!"
    disk.write(FIRST, damaged)
    log = disk.open()
    with pytest.raises(CorruptRecord):
        compact(disk, log)
    assert disk.read(FIRST) == damaged
    assert disk.names(".cleaned") == []


def test_so_does_a_compressed_set_with_a_wrong_crc_of_its_own(disk: Disk) -> None:
    messages = encode_legacy([(T0, b"k", b"v")], magic=1, compression_type="gzip")
    disk.write(FIRST, flip(LOG_OVERHEAD)(bytes(messages)))
    log = disk.open()
    with pytest.raises(CorruptRecord, match="CRC-32"):
        compact(disk, log)


@pytest.mark.parametrize(
    ("log_dir", "name"),
    [("kafka-3.9-zk-v0-ibp0.9", "v0-gzip-0"), ("kafka-3.9-zk-v1-ibp0.10.2", "v1-compact-0")],
)
def test_a_log_that_an_old_kafka_wrote_is_compacted_to_its_last_values(
    tmp_path: Path, log_dir: str, name: str
) -> None:
    folder = shutil.copytree(GOLDEN / log_dir / name, tmp_path / name)
    fs, clock = RealFileSystem(), ManualClock(2 * T0)
    config = LogConfig(cleanup_policy="compact")
    log = open_log(fs, clock, str(folder), TopicPartition(name[:-2], 0), config, is_clean=True)
    before = records_of(log)
    last = {record.key: record for record in before if record.key is not None}
    log.roll()
    clean(
        fs,
        clock,
        log,
        Cleanable(
            first_dirty_offset=0,
            bound=log.segments[-1].base_offset,
            clean_bytes=0,
            cleanable_bytes=1,
        ),
        ROOMY,
    )
    after = records_of(log)
    assert 0 < len(after) < len(before)
    assert after == sorted(last.values(), key=lambda record: record.offset)
    log.close()
