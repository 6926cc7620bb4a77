"""Compaction, stopped at every file operation, with every loss of power; then the next start, and
another round.

The workload appends keyed batches, plain, idempotent and transactional, deletes keys, rolls,
compacts again and again with maps that are full now and then, writes the cleaner's checkpoint,
purges old files, stops in order once. Whatever of the disk survives, the next start must find

- no record that was not appended, each at its offset, and all that was promised;
- for every key the last committed value, or its tombstone; a deleted key may only be gone for good;
- in it no older value that a reader takes for the last;
- indexes, aborted transactions and producers that agree with the log;
- a log that the next round of compaction takes, and leaves as true as it was.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from raylog.storage.cleaner.cleanable import cleanable, facts_of
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.cleaner.offset_map import SLOT_BYTES
from raylog.storage.errors import RaylogError
from raylog.storage.loader import create_log
from raylog.storage.log import Log
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.readable import COMMITTED
from raylog.storage.records.batch import iter_batches
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records
from raylog.storage.recovery import check_indexes
from raylog.storage.state.properties import MetaProperties, random_id, write_meta
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import FOLDER, PARTITION, TOPIC_ID, Disk
from raylog.storage.testing.memory import MemoryFileSystem, Stopped, Survives
from raylog.storage.validation import COORDINATOR

CLUSTER = "uHx_mWK3Sji2MLBMLyjjfg"

pytestmark = pytest.mark.timeout(300)  # hundreds of crash points a test

CONFIG: dict[str, Any] = {
    "segment_bytes": 400,
    "index_interval_bytes": 60,
    "cleanup_policy": "compact",
    "delete_retention_ms": 1000,
    "file_delete_delay_ms": 0,
}
ROOMY = Buffers(dedupe_bytes=1 << 12, load_factor=0.9, chunk_bytes=4096)
FEW = Buffers(dedupe_bytes=SLOT_BYTES * 8, load_factor=0.7, chunk_bytes=300)  # five keys a round

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
PLAIN, IDEMPOTENT, ONE, TWO = -1, 7, 21, 22  # producer ids


@dataclass
class Sent:
    """What was appended at one offset."""

    producer: int
    key: bytes | None  # None: a marker
    value: bytes | None = None
    is_abort: bool = False


@dataclass
class Life:
    """What the world knows of a log: what it sent, and what it was promised."""

    sent: list[Sent] = field(default_factory=list)
    acknowledged: int = 0
    durable: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    # of IDEMPOTENT: offset, sequence, count
    batches: list[tuple[int, int, int]] = field(default_factory=list)

    def put(self, log: Log, producer: int, *keys: str, deleted: bool = False) -> None:
        offset, sequence = len(self.sent), self.sequences.get(producer, 0)
        values = [None if deleted else b"%05d" % (offset + n) for n in range(len(keys))]
        self.sent += [
            Sent(producer, key.encode(), value) for key, value in zip(keys, values, strict=True)
        ]
        if producer == IDEMPOTENT:
            self.batches.append((offset, sequence, len(keys)))
        self.sequences[producer] = sequence + len(keys)
        assert log.append(records(producer, sequence, keys, values, offset)).base_offset == offset
        self.promise(log)

    def end(self, log: Log, producer: int, *, abort: bool) -> None:
        self.sent.append(Sent(producer, None, is_abort=abort))
        marker = encode_marker(Marker(abort, 0, T0), producer_id=producer, producer_epoch=0)
        log.append(marker, origin=COORDINATOR)
        self.promise(log)

    def promise(self, log: Log) -> None:
        self.acknowledged = len(self.sent)
        self.durable = max(self.durable, log.recovery_point)

    def committed(self, end: int) -> tuple[dict[bytes, int], int]:
        """The last committed offset of every key of the log's first ``end`` offsets, and where
        these end."""
        undecided: dict[int, list[int]] = {}
        committed: list[int] = []
        for offset, sent in enumerate(self.sent[:end]):
            if sent.key is None:
                committed += [] if sent.is_abort else undecided[sent.producer]
                del undecided[sent.producer]
            elif sent.producer in (ONE, TWO):
                undecided.setdefault(sent.producer, []).append(offset)
            else:
                committed.append(offset)
        stable = min([end, *(offsets[0] for offsets in undecided.values())])
        known = [offset for offset in sorted(committed) if offset < stable]
        return {self.sent[offset].key or b"": offset for offset in known}, stable


def records(producer: int, sequence: int, keys: Any, values: Any, offset: int) -> bytearray:
    rows = [
        (T0 + offset + n, key.encode(), value, ())
        for n, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    if producer == PLAIN:
        return encode_records(rows)
    return encode_records(
        rows,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=producer != IDEMPOTENT,
    )


# -- the workload ----------------------------------------------------------------------------------


def turn(log: Log, life: Life, number: int) -> None:
    """Some batches of every kind; in even turns the first transaction is aborted."""
    life.put(log, PLAIN, "a", "b", f"once-{number}")
    life.put(log, ONE, "a", f"one-{number}")
    life.put(log, IDEMPOTENT, "c", f"c-{number % 2}")
    life.end(log, ONE, abort=number % 2 == 0)
    life.put(log, PLAIN, "b", f"once-{number - 1}", deleted=number % 2 == 1)
    life.put(log, TWO, "b", f"two-{number}")
    if number % 2:
        log.roll()  # its marker lies in the active segment, behind the bound of the next round
    life.end(log, TWO, abort=number % 3 == 2)
    life.put(log, PLAIN, f"one-{number - 1}", deleted=True)


def open_again(fs: MemoryFileSystem) -> tuple[LogDir, Disk, Log]:
    log_dir = LogDir(fs, "/logs", CLUSTER, 1)
    disk, known = Disk(fs), log_dir.offsets().get(PARTITION, CheckpointedOffsets(0, 0, 0))
    log = disk.open(
        is_clean=log_dir.was_clean,
        recovery_point=known.recovery_point,
        log_start_offset=known.log_start_offset,
        **CONFIG,
    )
    return log_dir, disk, log


def compact(log_dir: LogDir, disk: Disk, log: Log, buffers: Buffers) -> None:
    checkpoint = log_dir.cleaner_offsets().get(PARTITION)
    found = cleanable(facts_of(log), checkpoint, log.config, disk.clock.now_ms())
    if found.cleanable_bytes:
        done = clean(disk.fs, disk.clock, log, found, buffers)
        log_dir.write_cleaner_offsets({PARTITION: done.end_offset})


def write_checkpoints(log_dir: LogDir, log: Log) -> None:
    offsets = CheckpointedOffsets(log.recovery_point, log.log_start_offset, log.log_end_offset)
    log_dir.write_offsets({PARTITION: offsets})


def live(fs: MemoryFileSystem, life: Life) -> None:
    """Two runs of a broker with an orderly stop between them."""
    fs.make_dir("/logs")
    fs.sync_dir("/")
    write_meta(fs, "/logs", MetaProperties(CLUSTER, 1, random_id()))
    create_log(fs, FOLDER, TOPIC_ID)
    for run in range(2):
        log_dir, disk, log = open_again(fs)
        if run == 0:
            log_dir.write_cleaner_offsets({PARTITION: 0})  # as for every partition that is created
        disk.clock.advance(5000 * run)
        for number in range(3 * run, 3 * run + 3):
            turn(log, life, number)
            if number % 2 == 0:
                log.roll()
            compact(log_dir, disk, log, FEW if number % 3 == 1 else ROOMY)
            life.promise(log)
            disk.clock.advance(1000)
            if number % 2:
                write_checkpoints(log_dir, log)
                log.purge_deleted()
        if run == 0:
            log.close()
            life.durable = len(life.sent)
            write_checkpoints(log_dir, log)
            log_dir.close(clean=True)


def lived(stop: int | None) -> tuple[MemoryFileSystem, Life]:
    fs, life = MemoryFileSystem(), Life()
    if stop is not None:
        fs.stop_at(stop)
    try:
        live(fs, life)
    except Stopped:
        pass
    return fs, life


# -- what must hold --------------------------------------------------------------------------------


def check(fs: MemoryFileSystem, life: Life, survives_all: bool) -> None:
    log_dir, disk, log = open_again(fs)
    end = log.log_end_offset
    assert end >= (life.acknowledged if survives_all else life.durable), "promised, and gone"
    assert end <= len(life.sent)
    assert disk.names(".swap") == disk.names(".cleaned") == disk.names(".deleted") == []
    check_content(log, life, end)
    check_producers(log, life, end)
    # of check_producers
    life.sent[end:] = [Sent(IDEMPOTENT, b"z", b"z")] * (log.log_end_offset - end)
    check_the_next_round(log_dir, disk, log, life)


def check_the_next_round(log_dir: LogDir, disk: Disk, log: Log, life: Life) -> None:
    disk.clock.advance(10**6)
    log.roll()
    before = log.last_stable_offset
    compact(log_dir, disk, log, ROOMY)
    assert log.last_stable_offset == before
    assert log_dir.cleaner_offsets().get(PARTITION, 0) <= before
    for segment in log.segments:
        check_indexes(segment)
    check_committed(log, life, log.log_end_offset)


def check_content(log: Log, life: Life, end: int) -> None:
    for segment in log.segments:
        check_indexes(segment)
    offsets = []
    for content in contents(log):
        for record in decode_records(content):
            told = life.sent[record.offset]
            assert (record.key, record.value, record.timestamp) == (
                told.key,
                told.value,
                T0 + record.offset,
            )
            offsets.append(record.offset)
    assert offsets == sorted({*offsets})
    assert all(offset < end for offset in offsets)
    check_committed(log, life, end)


def contents(log: Log) -> Iterator[bytes]:
    offset = log.log_start_offset
    while (found := log.read(offset, 1 << 20)).size_bytes:
        content = found.read()
        yield content
        *_, (_, last) = iter_batches(content)
        offset = last.next_offset


def check_committed(log: Log, life: Life, end: int) -> None:
    """What a reader of committed records is left with."""
    expected, stable = life.committed(end)
    assert log.last_stable_offset == stable
    seen = {key: offset for key, offset in committed_in(log) if offset < stable}
    for key, offset in expected.items():
        if life.sent[offset].value is None:
            assert seen.get(key, offset) == offset, f"{key!r} was deleted at {offset}, and is back"
        else:
            assert seen.get(key) == offset, (
                f"{key!r} has its last value at {offset}, not {seen.get(key)}"
            )
    assert {*seen} <= {*expected}


def committed_in(log: Log) -> list[tuple[bytes, int]]:
    """(key, offset) of all records that a reader of committed ones is shown."""
    offset, shown = log.log_start_offset, []
    while (found := log.read(offset, 1 << 20, COMMITTED)).size_bytes:
        aborted = found.aborted
        content = found.read()
        for position, header in iter_batches(content):
            of_it = content[position : position + header.size_bytes]
            is_aborted = header.is_transactional and any(
                entry.producer_id == header.producer_id
                and entry.first_offset <= header.base_offset < entry.last_offset
                for entry in aborted
            )
            offset = header.next_offset
            if not is_aborted and not header.is_control:
                shown += [(record.key or b"", record.offset) for record in decode_records(of_it)]
    return shown


def check_producers(log: Log, life: Life, end: int) -> None:
    """The last batch of the idempotent producer is known again, and the one behind it is taken."""
    sent = [batch for batch in life.batches if batch[0] < end]
    if not sent:
        return
    offset, sequence, count = sent[-1]
    keys = [(told.key or b"").decode() for told in life.sent[offset : offset + count]]
    values = [told.value for told in life.sent[offset : offset + count]]
    answer = log.append(records(IDEMPOTENT, sequence, keys, values, offset))
    assert (answer.base_offset, answer.is_duplicate) == (offset, True)
    answer = log.append(records(IDEMPOTENT, sequence + count, ["z"], [b"z"], end))
    assert (answer.base_offset, answer.is_duplicate) == (end, False)


def test_whenever_it_stops_and_whatever_survives_every_key_has_its_last_value() -> None:
    whole = lived(None)[0].log
    operations, points = len(whole), 0
    for stop in range(1, operations + 1):
        # One of the losses in turn, at every operation that changes names and every third other.
        if stop % 3 and not whole[stop - 1].startswith(("rename", "sync_dir")):
            continue
        fs, life = lived(stop)
        if not fs.is_dir(FOLDER):
            continue
        for survives, names, seed in CRASHES[stop % 8 :: 8]:
            after = fs.crash(survives, names=names, seed=seed + stop)
            if not after.is_dir(FOLDER) or f"{0:020d}.log" not in after.list_dir(FOLDER):
                continue  # not yet made
            where = f"stop {stop} of {operations}, {survives}/{names}/{seed}"
            try:
                check(
                    after, Life(**{**vars(life), "sent": [*life.sent]}), survives == names == "all"
                )
            except (AssertionError, RaylogError, LookupError) as error:
                raise AssertionError(f"{where}: {fs.log[-3:]}: {error!r}") from error
            points += 1
    print(f"{operations} operations, {points} crash points")
    assert points > 600
