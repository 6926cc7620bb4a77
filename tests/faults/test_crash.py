"""A broker's life, stopped at every file operation, with every loss of power; then the next start.

The workload appends plain and idempotent batches through a ``Partition`` whose topic has a small
segment and ``flush.messages``, writes checkpoints, runs retention, closes in order and opens again.
Before each of its operations the process may end. Whatever of the disk survives, the next start
must find

- a prefix of what was appended, from the log start offset on, byte for byte;
- in it all that was promised: everything below the last recovery point that an ack or a flush gave;
- indexes that agree with the log, by offset and by time;
- producers that answer a repeat of their last batch as one, and take the next.

Where only the process died and the machine lived, everything acknowledged is promised.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest

from raylog.actors.partition.partition import Partition
from raylog.storage.errors import RaylogError
from raylog.storage.loader import create_log
from raylog.storage.log import Log
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.recovery import check_indexes
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import (
    FOLDER,
    PARTITION,
    TOPIC_ID,
    Disk,
    batch,
    of_producer,
    records_of,
)
from raylog.storage.testing.memory import MemoryFileSystem, Stopped, Survives

CLUSTER = "uHx_mWK3Sji2MLBMLyjjfg"
CONFIG: dict[str, Any] = {
    "segment_bytes": 400,
    "index_interval_bytes": 60,
    "retention_bytes": 900,
    "file_delete_delay_ms": 0,
}

# What survives of contents, what of names, and a seed.
CRASHES: list[tuple[Survives, Survives, int]] = [
    ("all", "all", 0),
    ("flushed", "flushed", 0),
    ("flushed", "all", 0),
    ("all", "flushed", 0),
    ("torn", "all", 1),
    ("torn", "torn", 2),
    ("torn", "flushed", 3),
    ("flushed", "torn", 4),
]


@dataclass
class Life:
    """What the world knows of a log: what it sent, and what it was promised."""

    sent: list[tuple[int, bytes]] = field(default_factory=list)  # (timestamp, value) by offset
    acknowledged: int = 0
    durable: int = 0
    start: int = 0  # where retention may have moved the log's start
    sequence: int = 0
    is_created: bool = False

    def append(self, partition: Partition, count: int, by_producer: bool) -> None:
        offset = len(self.sent)
        value, timestamp = b"%08d" % offset, T0 + 10 * offset
        if by_producer:
            records = of_producer(self.sequence, count, value=value, timestamp=timestamp)
        else:
            records = batch(count, value=value, timestamp=timestamp)
        self.sent += [(timestamp, value)] * count
        answer = partition.append(records)
        assert (answer.base_offset, answer.is_duplicate) == (offset, False)
        self.sequence += count * by_producer
        self.acknowledged = len(self.sent)
        self.durable = max(self.durable, partition.log.recovery_point)


def live(fs: MemoryFileSystem, life: Life, flush_messages: int) -> None:
    """Two runs of a broker with an orderly stop between them, and a third that ends by itself."""
    for run in range(3):
        log_dir = LogDir(fs, "/logs", CLUSTER, 1)
        disk = Disk(fs)
        if not life.is_created:
            create_log(fs, FOLDER, TOPIC_ID)
            life.is_created = True
        known = log_dir.offsets().get(PARTITION, CheckpointedOffsets(0, 0, 0))
        log = disk.open(
            is_clean=log_dir.was_clean,
            recovery_point=known.recovery_point,
            log_start_offset=known.log_start_offset,
            flush_messages=flush_messages,
            **CONFIG,
        )
        partition = Partition(log, disk.clock)
        for number in range(7):
            life.append(partition, 1 + number % 3, by_producer=number % 2 == 0)
            if number == 3:
                # from here on, until it answers, anything of the past may be gone
                life.start = 2**62
                disk.clock.advance(10**9 * (run == 1))  # in the second run all of the past is old
                partition.delete_old_segments()
                life.start = log.log_start_offset
                checkpoint(log_dir, log)
            if number == 5:
                partition.maintain(ProducerExpiration(10**9))
                life.durable = max(life.durable, log.recovery_point)
        if run < 2:
            partition.close()
            life.durable = len(life.sent)
            checkpoint(log_dir, log)
            log_dir.close(clean=True)


def checkpoint(log_dir: LogDir, log: Log) -> None:
    offsets = CheckpointedOffsets(log.recovery_point, log.log_start_offset, log.log_end_offset)
    log_dir.write_offsets({PARTITION: offsets})


def start_again(fs: MemoryFileSystem) -> Log:
    log_dir = LogDir(fs, "/logs", CLUSTER, 1)
    known = log_dir.offsets().get(PARTITION, CheckpointedOffsets(0, 0, 0))
    return Disk(fs).open(
        is_clean=log_dir.was_clean,
        recovery_point=known.recovery_point,
        log_start_offset=known.log_start_offset,
        **CONFIG,
    )


def check(log: Log, life: Life, survives_all: bool) -> None:
    records = records_of(log)
    start, end = log.log_start_offset, log.log_end_offset
    assert [record.offset for record in records] == list(range(start, end))
    assert [(record.timestamp, record.value) for record in records] == life.sent[start:end]
    assert end >= (life.acknowledged if survives_all else life.durable), "promised, and gone"
    assert end <= len(life.sent)
    assert start <= max(life.start, 0)
    check_lookups(log, life)
    check_producers(log, life)


def check_lookups(log: Log, life: Life) -> None:
    for segment in log.segments:
        check_indexes(segment)
    for offset in range(log.log_start_offset, log.log_end_offset, 3):
        first = next(
            n for n, (timestamp, _) in enumerate(life.sent) if timestamp == life.sent[offset][0]
        )
        found = log.offset_for_timestamp(life.sent[offset][0])
        assert found is not None
        assert found.offset == max(first, log.log_start_offset)
        assert records_of(log, offset, max_bytes=1)[0].offset == offset


def check_producers(log: Log, life: Life) -> None:
    """The last batch of the producer in the log is known again; the one behind it is taken."""
    sequence, last = 0, None
    offset = 0
    while offset < log.log_end_offset:
        count = sum(value == life.sent[offset][1] for _, value in life.sent[offset : offset + 3])
        if is_by_producer(offset, life):
            last = (sequence, count, offset)
            sequence += count
        offset += count
    if last is not None and last[2] >= log.log_start_offset:
        repeat = of_producer(last[0], last[1], value=b"%08d" % last[2], timestamp=T0 + 10 * last[2])
        assert log.append(repeat).base_offset == last[2], "a repeat was written twice"
        assert log.append(of_producer(sequence)).base_offset == log.log_end_offset - 1
    else:
        log.append(batch())
    assert records_of(log)[-1].offset == log.log_end_offset - 1


def is_by_producer(offset: int, life: Life) -> bool:
    """The workload's pattern: 1, 2, 3, 1, 2, 3, 1 records a run, every other batch by the
    producer."""
    within = offset % 13
    return within in (0, 3, 7, 12)


def lived(stop: int | None, flush_messages: int) -> tuple[MemoryFileSystem, Life]:
    fs, life = MemoryFileSystem(), Life()
    if stop is not None:
        fs.stop_at(stop)
    try:
        live(fs, life, flush_messages)
    except Stopped:
        pass
    return fs, life


@pytest.mark.parametrize("flush_messages", [1, 4, 2**62])
def test_whenever_it_stops_and_whatever_survives_the_log_is_what_was_promised(
    flush_messages: int,
) -> None:
    operations = lived(None, flush_messages)[0].operations
    points = 0
    for stop in range(operations + 1):
        fs, life = lived(stop, flush_messages)
        for survives, names, seed in CRASHES if flush_messages == 4 else CRASHES[stop % 2 :: 2]:
            after = fs.crash(survives, names=names, seed=seed + stop)
            where = f"stop {stop} of {operations}, {survives}/{names}/{seed}"
            if not life.is_created:
                continue
            try:
                check(start_again(after), life, survives == names == "all")
            except (AssertionError, RaylogError, IndexError) as error:
                raise AssertionError(f"{where}: {fs.log[-3:]}: {error!r}") from error
            points += 1
    print(f"flush.messages={flush_messages}: {points} crash points")
    assert points > 900


def test_a_start_that_is_stopped_too_can_be_repeated() -> None:
    """Recovery itself, ended at each of its operations, on the most damaged disk."""
    fs, life = lived(None, 2**62)
    torn = fs.crash("torn", names="all", seed=9)
    whole = torn.crash()
    start_again(whole)
    for stop in range(whole.operations + 1):
        for survives, names, seed in CRASHES[:6]:
            attempt = torn.crash()
            attempt.stop_at(stop)
            try:
                start_again(attempt)
            except Stopped:
                pass
            check(start_again(attempt.crash(survives, names=names, seed=seed)), life, False)
