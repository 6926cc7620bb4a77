"""Every file of a log, damaged bit by bit and cut at every length, then opened and read in every
way.

The answer to damage is a named error, a rebuild or a cut: never a record that was not written, a
record left out without a word, an endless loop or a foreign exception. What a format without a
checksum cannot tell is named where the tests allow it.

The unit suite tries a sample with a fixed stride, and says how many (``pytest -s``).
``RAYLOG_CORRUPTION=4`` tries four times as many, as CI does, and ``full`` every bit.
"""

import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    CorruptCheckpoint,
    CorruptIndex,
    CorruptRecord,
    FlushedRecordsMissing,
    InconsistentClusterId,
    LogMissing,
    RaylogError,
    TopicIdUnreadable,
)
from raylog.storage.loader import open_log
from raylog.storage.log import Log
from raylog.storage.log_dir import LOCK_FILE, CheckpointedOffsets, LogDir
from raylog.storage.names import TopicPartition
from raylog.storage.readable import COMMITTED
from raylog.storage.records import _kernel_py, kernel
from raylog.storage.records.batch import iter_batches
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.records.decode import decode_records, decode_table
from raylog.storage.records.encode import encode_records
from raylog.storage.records.legacy import encode_legacy
from raylog.storage.records.scan import next_offset
from raylog.storage.state.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
    write_offsets,
)
from raylog.storage.state.properties import CLEAN_SHUTDOWN, META_PROPERTIES
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import FOLDER, PARTITION, TOPIC_ID, Disk
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.validation import COORDINATOR

ASKED = os.environ.get("RAYLOG_CORRUPTION", "1")
DENSITY = 1000 if ASKED == "full" else int(ASKED)
CONFIG: dict[str, Any] = {"index_interval_bytes": 60}
V2 = tuple(f"v2-{codec}" for codec in ("none", "gzip", "snappy", "lz4", "zstd"))
COMPRESSED_LEGACY = ("v0-lz4", "v1-gzip", "v1-snappy")
LEGACY = ("v0-none", "v1-none", *COMPRESSED_LEGACY)
KINDS = (*V2, *LEGACY, "v2-transactions")
STRIDE = dict.fromkeys(KINDS, 61)  # bits
FIRST, SECOND = "00000000000000000000", "00000000000000000008"

Row = tuple[int, int, bytes | None, bytes | None]


class Image(NamedTuple):
    """The files of a log that was closed in order, and its records: (offset, timestamp, key,
    value)."""

    files: dict[str, bytes]
    rows: list[Row]
    producers: bytes

    def disk(self, **changed: bytes | None) -> Disk:
        fs = MemoryFileSystem()
        fs.make_dir(FOLDER)
        for name, content in (self.files | changed).items():
            if content is not None:
                fs.write_file(f"{FOLDER}/{name}", content)
        return Disk(fs)


# -- what is damaged -------------------------------------------------------------------------------


def row_of(number: int) -> tuple[int, bytes | None, bytes | None]:
    return (
        T0 + 10 * number,
        None if number % 5 == 3 else b"key%d" % number,
        b"value %d" % number * 2,
    )


@cache
def image(kind: str) -> Image:
    """Two segments of four batches each, two records a batch."""
    version, what = kind.split("-")
    disk = Disk()
    log = disk.open(**CONFIG)
    if what == "transactions":
        fill_with_transactions(log)
    else:
        for number in range(8):
            codec = "none" if what == "rolled" else what
            append(log, [row_of(2 * number), row_of(2 * number + 1)], codec, number)
    if what == "rolled":
        log.roll()
    log.close()
    if version != "v2":
        for first in (0, 8):
            legacy = [
                legacy_set(int(version[1]), what, n) for n in range(first // 2, first // 2 + 4)
            ]
            disk.write(f"{first:020d}.log", b"".join(legacy))
            for suffix in (".index", ".timeindex"):
                disk.fs.remove(disk.path(f"{first:020d}{suffix}"))
        disk.open(**CONFIG).close()
    log = disk.open(**CONFIG)
    rows: list[Row] = []
    read_all(log, rows)
    files = {name: disk.read(name) for name in disk.names()}
    assert [name for name in files if name.endswith(".log")][:2] == [
        f"{FIRST}.log",
        f"{SECOND}.log",
    ]
    return Image(files, rows, log._log_end.producers.encode())


def append(log: Log, rows: list, codec: str, number: int) -> None:
    fields: dict[str, Any] = (
        {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2 * (number // 2)}
        if number % 2
        else {}
    )
    log.append(
        encode_records([(*row, [("h", b"x")]) for row in rows], compression_type=codec, **fields),
        leader_epoch=number // 3,
    )
    if log.log_end_offset == 8:
        log.roll()


def legacy_set(magic: int, codec: str, number: int) -> bytes:
    rows = [row_of(2 * number), row_of(2 * number + 1)]
    return bytes(encode_legacy(rows, magic=magic, base_offset=2 * number, compression_type=codec))


def fill_with_transactions(log: Log) -> None:
    """Of each segment's eight offsets three are aborted data, and one is the abort's marker."""
    for first in (0, 8):
        if first:
            log.roll()
        fields: dict[str, Any] = {"producer_epoch": 0, "transactional": True}
        for producer, count in ((1, 3), (2, 3)):
            rows = [(*row_of(n), ()) for n in range(count)]
            sequence = 3 * (first // 8)
            log.append(encode_records(rows, producer_id=producer, base_sequence=sequence, **fields))
        for producer in (1, 2):
            marker = Marker(producer == 1, 0, T0)
            log.append(
                encode_marker(marker, producer_id=producer, producer_epoch=0), origin=COORDINATOR
            )


# -- every way to read -----------------------------------------------------------------------------


def read_all(log: Log, rows: list[Row], start: int | None = None, max_bytes: int = 150) -> None:
    """All records from an offset on, as a consumer reads them; rows and columns must agree."""
    offset = log.log_start_offset if start is None else start
    while (found := log.read(offset, max_bytes)).size_bytes:
        content = found.read()
        some = [record[:4] for record in decode_records(content, start_offset=offset)]
        table = decode_table(content, start_offset=offset).to_pydict()
        columns = (table["offset"], table["timestamp"], table["key"], table["value"])
        assert list(zip(*columns, strict=True)) == some
        rows += some
        offset = next_offset(content, offset, found.end_offset)


def committed(log: Log) -> list[tuple[int, int]]:
    """(producer, first offset) of all that a reader of committed records is told to skip."""
    offset, aborted = log.log_start_offset, []
    while (found := log.read(offset, 1 << 20, COMMITTED)).size_bytes:
        aborted += [entry[:2] for entry in found.aborted]
        offset = next_offset(found.read(), offset, found.end_offset)
    return aborted


def look_up_times(log: Log, rows: list[Row]) -> bool:
    """Whether every lookup by time answers right; a record that does not exist is none of the
    answers."""
    right = True
    for asked in {row[1] for row in rows[::3]} | {T0, T0 + 155, T0 + 1000}:
        found = log.offset_for_timestamp(asked)
        wanted = next(((row[1], row[0]) for row in rows if row[1] >= asked), None)
        assert found is None or found[0] >= asked
        assert found is None or (found[1], found[0]) in {row[:2] for row in rows}, found
        right = right and found == wanted
    return right


class Outcome(NamedTuple):
    """What became of a damaged log."""

    answer: str  # "refused": it does not open; "corrupt": a read says so; "cut": a prefix; "whole"
    error: RaylogError | None
    rows: list[Row]


def outcome(of: Image, disk: Disk, is_clean: bool) -> Outcome:
    try:
        log = disk.open(is_clean=is_clean, **CONFIG)
    except RaylogError as error:
        return Outcome("refused", error, [])
    rows: list[Row] = []
    try:
        read_all(log, rows)
    except RaylogError as error:
        return Outcome("corrupt", error, rows)
    return Outcome("whole" if rows == of.rows else "cut", None, rows)


# -- the damages -----------------------------------------------------------------------------------


def damages(content: bytes, stride: int) -> Iterator[tuple[int, bytes]]:
    """(byte, content) for flips of single bits, every ``stride``-th of them by default, and for
    cuts."""
    step = max(stride // DENSITY, 1) | 1  # odd, so that every bit of a byte has its turn
    for bit in range(0, 8 * len(content), step):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        yield bit // 8, bytes(changed)
    for size in range(0, len(content), max(step // 8, 1)):
        yield size, content[:size]


@pytest.fixture(scope="module", autouse=True)
def tally() -> Iterator[Counter]:
    counted: Counter = Counter()
    yield counted
    print(f"\ndamages tried: {counted.total()}: {dict(counted)}")


@pytest.fixture
def tried(tally: Counter, request: pytest.FixtureRequest) -> Counter:
    """Counts what became of the damages, by test."""
    return tally


def heads_of(log: bytes) -> list[int]:
    """For each byte of a .log file, how far it lies from the head of its batch."""
    return [at for _, header in iter_batches(log) for at in range(header.size_bytes)]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_log_never_gives_a_record_that_was_not_written(
    kind: str, is_clean: bool, tried: Counter
) -> None:
    """Two damages go unseen, as in Kafka: a base offset, which no checksum covers, may rise where
    nothing else contradicts it; and a sealed segment may end too early between two batches where
    only decompressing them would tell that no offset is missing in them.
    """
    of = image(kind)
    for name in (f"{FIRST}.log", f"{SECOND}.log"):
        heads = heads_of(of.files[name])
        for at, content in damages(of.files[name], STRIDE[kind]):
            found = outcome(of, of.disk(**{name: content}), is_clean)
            tried[found.answer] += 1
            if len(content) == len(heads) and heads[at] < 8:
                left = iter(of.rows)
                assert all(row[1:] in (other[1:] for other in left) for row in found.rows), (
                    at,
                    found,
                )
            elif found.rows != of.rows[: len(found.rows)]:
                assert kind in COMPRESSED_LEGACY, (at, found)
                assert name == f"{FIRST}.log", (at, found)
                assert heads[len(content)] == 0, (at, found)
                tried["a sealed segment cut between batches"] += 1
            is_named = isinstance(found.error, CorruptRecord | LogMissing) or (
                is_clean and isinstance(found.error, FlushedRecordsMissing)
            )
            assert found.answer != "refused" or is_named, found


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("kind", ["v2-none", "v2-transactions", "v1-none", "v2-rolled"])
def test_a_damaged_index_is_made_again_and_every_lookup_is_right(
    kind: str, is_clean: bool, tried: Counter
) -> None:
    of = image(kind)
    for name in of.files:
        if not name.endswith((".index", ".timeindex")):
            continue
        for at, content in damages(of.files[name], 5):
            log = of.disk(**{name: content}).open(is_clean=is_clean, **CONFIG)
            look_up_everything(log, of, at)
            tried["index"] += 1


def look_up_everything(log: Log, of: Image, at: int) -> None:
    for start in (0, 5, 9, 14):
        rows: list[Row] = []
        read_all(log, rows, start)
        assert rows == [row for row in of.rows if row[0] >= start], at
    assert look_up_times(log, of.rows), at


@pytest.mark.parametrize("kind", ["v2-none", "v2-transactions"])
def test_a_damaged_snapshot_is_dropped_and_the_log_tells_its_producers(
    kind: str, tried: Counter
) -> None:
    of = image(kind)
    for name in of.files:
        if name.endswith(".snapshot"):
            for at, content in damages(of.files[name], 5):
                log = of.disk(**{name: content}).open(**CONFIG)
                assert log._log_end.producers.encode() == of.producers, at
                tried["snapshot"] += 1


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_damaged_transaction_index_is_made_again_or_said_to_be_damaged(
    is_clean: bool, tried: Counter
) -> None:
    of = image("v2-transactions")
    right = committed(of.disk().open(**CONFIG))
    assert len(right) == 2
    for name in (f"{FIRST}.txnindex", f"{SECOND}.txnindex"):
        for at, content in damages(of.files[name], 3):
            try:
                log = of.disk(**{name: content}).open(is_clean=is_clean, **CONFIG)
                assert committed(log) == right, (name, at)
                tried["transaction index: whole"] += 1
            except CorruptIndex:
                tried["transaction index: corrupt"] += 1


def test_damaged_leader_epochs_are_refused_or_do_no_harm(tried: Counter) -> None:
    of = image("v2-none")
    for _, content in damages(of.files["leader-epoch-checkpoint"], 1):
        found = outcome(of, of.disk(**{"leader-epoch-checkpoint": content}), True)
        assert found.answer == "whole" or isinstance(found.error, CorruptCheckpoint), content
        tried["leader epochs"] += 1


def test_another_topics_id_is_never_taken_for_ours(tried: Counter) -> None:
    of = image("v2-none")
    for _, content in damages(of.files["partition.metadata"], 1):
        disk = of.disk(**{"partition.metadata": content})
        try:
            open_log(
                disk.fs,
                disk.clock,
                FOLDER,
                PARTITION,
                LogConfig(),
                topic_id=TOPIC_ID,
                is_clean=True,
            )
            assert content.split()[-1].decode() == TOPIC_ID
        except (LogMissing, TopicIdUnreadable):
            tried["partition.metadata"] += 1


# -- the files of a log dir ------------------------------------------------------------------------

CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
OFFSETS = {
    TopicPartition("orders", 0): 10432,
    TopicPartition("orders", 1): 998,
    TopicPartition("a.b", 12): 7,
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_damaged_checkpoint_is_corrupt_or_another_sound_one(name: str, tried: Counter) -> None:
    """It has no checksum: a digit or a letter that became another is not seen, as in Kafka."""
    fs = MemoryFileSystem()
    write_offsets(fs, "/" + name, OFFSETS)
    whole = fs.read_file("/" + name)
    for _, content in damages(whole, 1):
        fs.write_file("/" + name, content)
        try:
            read = read_offsets(fs, "/" + name)
        except CorruptCheckpoint:
            tried["checkpoint: corrupt"] += 1
            continue
        tried["checkpoint: read"] += 1
        changed = set(read.items()) ^ set(OFFSETS.items())
        assert not read or (len(content) == len(whole) and len(changed) <= 2), content
        assert all(
            0 <= offset < 2**63 and partition.partition >= 0 for partition, offset in read.items()
        )


def test_a_log_dir_with_damaged_files_opens_or_says_which_is_damaged(tried: Counter) -> None:
    files = log_dir_files()
    for name in (*files, CLEAN_SHUTDOWN):
        for _, content in damages(files.get(name, b"{}"), 5):
            fs = MemoryFileSystem()
            fs.make_dir("/logs")
            for other, sound in files.items():
                fs.write_file(f"/logs/{other}", content if other == name else sound)
            try:
                log_dir = LogDir(fs, "/logs", CLUSTER_ID, 3)
            except (CorruptCheckpoint, InconsistentClusterId):
                tried[f"{name}: refused"] += 1
                continue
            assert all(
                type(offset) is int for known in log_dir.offsets().values() for offset in known
            )
            log_dir.close(clean=True)
            tried["log dir: open"] += 1
    refused = {key for key in tried if key.endswith(": refused")}
    assert refused == {f"{META_PROPERTIES}: refused"}


CLUSTER_ID = "uHx_mWK3Sji2MLBMLyjjfg"


@cache
def log_dir_files() -> dict[str, bytes]:
    fs = MemoryFileSystem()
    log_dir = LogDir(fs, "/logs", CLUSTER_ID, 3)
    log_dir.write_offsets(
        {partition: CheckpointedOffsets(n, n - 1, n) for partition, n in OFFSETS.items()}
    )
    return {
        name: fs.read_file(f"/logs/{name}") for name in fs.list_dir("/logs") if name != LOCK_FILE
    }


# -- the twin --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_twin_gives_the_same_answers(
    kind: str, monkeypatch: pytest.MonkeyPatch, tried: Counter
) -> None:
    of = image(kind)
    for name in (f"{FIRST}.log", f"{SECOND}.log"):
        for at, content in damages(of.files[name], 8 * STRIDE[kind] + 3):
            for is_clean in (True, False):
                disk = of.disk(**{name: content})
                compiled = outcome(of, of.disk(**{name: content}), is_clean)
                with monkeypatch.context() as patch:
                    patch.setattr(kernel, "ops", _kernel_py)
                    pure = outcome(of, disk, is_clean)
                assert (pure.answer, type(pure.error), pure.rows) == (
                    compiled.answer,
                    type(compiled.error),
                    compiled.rows,
                ), at
                tried["both kernels"] += 1
