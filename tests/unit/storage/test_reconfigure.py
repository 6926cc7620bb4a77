"""A log that gets another config while it serves: what counts from the next append, round or flush
on."""

from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.partition.partition import Partition
from raylog.storage.config import LogConfig
from raylog.storage.errors import InvalidTimestamp, RecordTooLarge, StorageError
from raylog.storage.log import Log
from raylog.storage.records.batch import read_header
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, batch, batch_of_size, of_producer, offsets_of
from raylog.storage.testing.memory import MemoryFile


def to(log: Log, **config: Any) -> None:
    log.reconfigure(LogConfig(**config))


def last_header(log: Log) -> Any:
    found = log.read(log.log_end_offset - 1, 1 << 20)
    return read_header(found.read())


def test_segment_bytes_counts_for_the_segment_that_is_written(disk: Disk) -> None:
    log = disk.open()
    for _ in range(3):
        log.append(batch_of_size(500))
    assert len(log.segments) == 1
    to(log, segment_bytes=1000)
    log.append(batch_of_size(500))
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    to(log, segment_bytes=1 << 30)
    for _ in range(3):
        log.append(batch_of_size(500))
    assert len(log.segments) == 2


@pytest.mark.parametrize("timestamp", [T0, -1], ids=["records' clock", "no timestamps"])
def test_segment_ms_counts_for_the_segment_that_is_written(disk: Disk, timestamp: int) -> None:
    log = disk.open(segment_ms=1_000_000)
    log.append(batch(timestamp=timestamp))
    disk.clock.advance(5000)
    to(log, segment_ms=4000)
    log.append(batch(timestamp=timestamp if timestamp < 0 else T0 + 4001))
    assert len(log.segments) == 2
    to(log, segment_ms=1_000_000)
    disk.clock.advance(5000)
    log.append(batch(timestamp=timestamp if timestamp < 0 else T0 + 9001))
    assert len(log.segments) == 2


def test_jitter_stays_as_it_was_and_never_makes_the_time_negative(disk: Disk) -> None:
    log = disk.open(segment_ms=1_000_000, segment_jitter_ms=1_000_000)
    log.append(batch())
    to(log, segment_ms=1)
    log.append(batch())
    assert len(log.segments) == 1, "no time has passed"


def test_index_interval_bytes_counts_for_the_segment_that_is_written(disk: Disk) -> None:
    log = disk.open(index_interval_bytes=1 << 20)
    for _ in range(3):
        log.append(batch())
    to(log, index_interval_bytes=0)
    for _ in range(3):
        log.append(batch())
    assert len(log.segments[-1].offset_index) == 3


def refuse_large(log: Log) -> None:
    to(log, max_message_bytes=100)
    with pytest.raises(RecordTooLarge):
        log.append(batch_of_size(101))


def refuse_late(log: Log) -> None:
    to(log, message_timestamp_after_max_ms=10)
    with pytest.raises(InvalidTimestamp):
        log.append(batch(timestamp=T0 + 11))


def stamp(log: Log) -> None:
    to(log, message_timestamp_type="LogAppendTime")
    log.append(of_producer(0, timestamp=5))
    assert (last_header(log).timestamp_type, last_header(log).max_timestamp) == (
        "LogAppendTime",
        T0,
    )
    assert log.append(of_producer(0, timestamp=5)).log_append_time == T0
    to(log)
    log.append(batch(timestamp=5))
    assert last_header(log).timestamp_type == "CreateTime"


def compress(log: Log) -> None:
    to(log, compression_type="gzip")
    log.append(batch(100))
    assert last_header(log).attributes & 7 == 1


@pytest.mark.parametrize("change", [refuse_large, refuse_late, stamp, compress])
def test_what_an_append_must_be_counts_from_the_next_one(
    disk: Disk, change: Callable[[Log], None]
) -> None:
    log = disk.open()
    log.append(batch())
    change(log)
    assert offsets_of(log)[0] == 0


def test_retention_counts_from_its_next_round(disk: Disk) -> None:
    log = disk.open(segment_bytes=1000)
    for _ in range(4):
        log.append(batch_of_size(900))
    assert log.delete_old_segments() == 0
    to(log, segment_bytes=1000, retention_bytes=1800)
    assert log.delete_old_segments() == 2
    disk.clock.advance(10_001)
    to(log, segment_bytes=1000, retention_ms=10_000)
    assert log.delete_old_segments() == 2


def test_flush_ms_and_flush_messages_count_at_once(disk: Disk) -> None:
    partition = Partition(disk.open(), disk.clock)
    partition.append(batch(2))
    partition.reconfigure(LogConfig(flush_messages=3), 1)
    assert partition.offsets().recovery_point == 0
    partition.append(batch())
    assert partition.offsets().recovery_point == 3
    partition.append(batch())
    partition.reconfigure(LogConfig(flush_ms=10), 2)
    disk.clock.advance(10)
    partition.maintain(ProducerExpiration(1000))
    assert partition.offsets().recovery_point == 4


def test_room_that_was_reserved_is_given_back_though_none_would_be_now(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open(preallocate=True)
    log.append(batch())
    log.roll()
    log.append(batch())
    to(log)
    cut: list[int] = []
    monkeypatch.setattr(MemoryFile, "truncate", lambda file, size_bytes: cut.append(size_bytes))
    for _ in range(2):  # the segment with room of its own, and one without
        log.roll()
        log.append(batch())
    assert [at for at in cut if at] == [log.segments[1].size], "given back once"


def test_an_older_version_never_replaces_a_newer_one(disk: Disk) -> None:
    partition = Partition(disk.open(), disk.clock, 3)
    for version, max_message_bytes in ((2, 10), (4, 40), (3, 30), (4, 44)):
        partition.reconfigure(LogConfig(max_message_bytes=max_message_bytes), version)
    assert partition.log.config.max_message_bytes == 44


def test_a_closed_partition_takes_no_config(disk: Disk) -> None:
    partition = Partition(disk.open(), disk.clock)
    partition.close()
    with pytest.raises(StorageError, match="closed"):
        partition.reconfigure(LogConfig(), 1)
