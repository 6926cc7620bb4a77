"""Every file of a log, damaged bit by bit and cut at every length, then opened and read in every way.

The answer to damage is a named error, a rebuild or a cut: never a record that was not written, a record left out
without a word, an endless loop or a foreign exception. What a format without a checksum cannot tell is named where
the tests allow it.

The unit suite tries a sample with a fixed stride, and says how many; ``RAYLOG_CORRUPTION=full`` tries every bit.
"""

import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from raylog.storage.errors import CorruptCheckpoint, LogMissing, RaylogError
from raylog.storage.log import COMMITTED, Log
from raylog.storage.records import _kernel_py, kernel
from raylog.storage.records.batch import iter_batches
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.records.decode import decode_records, decode_table
from raylog.storage.records.encode import encode_records
from raylog.storage.records.legacy import encode_legacy
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import FOLDER, PARTITION, TOPIC_ID, Disk
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.validation import COORDINATOR

IS_FULL = os.environ.get("RAYLOG_CORRUPTION") == "full"
CONFIG: dict[str, Any] = {"index_interval_bytes": 60}
V2 = tuple(f"v2-{codec}" for codec in ("none", "gzip", "snappy", "lz4", "zstd"))
LEGACY = ("v0-none", "v0-lz4", "v1-none", "v1-gzip", "v1-snappy")
KINDS = (*V2, *LEGACY, "v2-transactions")
FIRST, SECOND = "00000000000000000000", "00000000000000000008"

Row = tuple[int, int, bytes | None, bytes | None]


class Image(NamedTuple):
    """The files of a log that was closed in order, and its records: (offset, timestamp, key, value)."""

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


# -- what is damaged -----------------------------------------------------------------------------------------


def row_of(number: int) -> tuple[int, bytes | None, bytes | None]:
    return T0 + 10 * number, None if number % 5 == 3 else b"key%d" % number, b"value %d" % number * 2


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
            append(log, [row_of(2 * number), row_of(2 * number + 1)], what, number)
    log.close()
    if version != "v2":
        for first in (0, 8):
            legacy = [legacy_set(int(version[1]), what, n) for n in range(first // 2, first // 2 + 4)]
            disk.write(f"{first:020d}.log", b"".join(legacy))
            for suffix in (".index", ".timeindex"):
                disk.fs.remove(disk.path(f"{first:020d}{suffix}"))
        disk.open(**CONFIG).close()
    log = disk.open(**CONFIG)
    rows = read_all(log)
    files = {name: disk.read(name) for name in disk.names()}
    assert [name for name in files if name.endswith(".log")] == [f"{FIRST}.log", f"{SECOND}.log"]
    return Image(files, rows, log._producers.encode())


def append(log: Log, rows: list, codec: str, number: int) -> None:
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2 * (number // 2)} if number % 2 else {}
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
        fields = {"producer_epoch": 0, "transactional": True}
        for producer, count in ((1, 3), (2, 3)):
            rows = [(*row_of(n), ()) for n in range(count)]
            sequence = 3 * (first // 8)
            log.append(encode_records(rows, producer_id=producer, base_sequence=sequence, **fields))
        for producer in (1, 2):
            marker = Marker(producer == 1, 0, T0)
            log.append(encode_marker(marker, producer_id=producer, producer_epoch=0), origin=COORDINATOR)


# -- every way to read ---------------------------------------------------------------------------------------


def read_all(log: Log, start: int | None = None, max_bytes: int = 150) -> list[Row]:
    """All records from an offset on, as a consumer reads them; rows and columns must agree."""
    offset, rows = log.log_start_offset if start is None else start, list[Row]()
    while (found := log.read(offset, max_bytes)) is not None:
        content = log.read_bytes(found)
        some = [record[:4] for record in decode_records(content, start_offset=offset)]
        table = decode_table(content, start_offset=offset).to_pydict()
        columns = (table["offset"], table["timestamp"], table["key"], table["value"])
        assert list(zip(*columns, strict=True)) == some
        rows += some
        _, last = list(iter_batches(content))[-1]
        assert last.next_offset > offset, "a consumer would read this for ever"
        offset = last.next_offset
    return rows


def committed(log: Log) -> list[tuple[int, int]]:
    """(producer, first offset) of all that a reader of committed records is told to skip."""
    offset, aborted = log.log_start_offset, []
    while (found := log.read(offset, 1 << 20, COMMITTED)) is not None:
        aborted += [entry[:2] for entry in log.aborted_in(found, offset)]
        offset = list(iter_batches(log.read_bytes(found)))[-1][1].next_offset
    return aborted


def look_up_times(log: Log, rows: list[Row]) -> bool:
    """Whether every lookup by time answers right; a record that does not exist is none of the answers."""
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
        rows = read_all(log)
    except RaylogError as error:
        return Outcome("corrupt", error, rows)
    return Outcome("whole" if rows == of.rows else "cut", None, rows)


# -- the damages ---------------------------------------------------------------------------------------------


def positions_of(log: bytes) -> dict[int, int]:
    """For each byte of a .log file, how far it lies from the head of its batch."""
    return {
        position + at: at for position, header in iter_batches(log) for at in range(header.size_bytes)
    }


def check_log_damage(of: Image, name: str, content: bytes, is_clean: bool, may_move: bool) -> Outcome:
    """``may_move``: the damage is in a base offset, which no checksum covers."""
    found = outcome(of, of.disk(**{name: content}), is_clean)
    if not may_move:
        assert found.rows == of.rows[: len(found.rows)], "a record that was not written, or one left out"
        return found
    left = iter(of.rows)
    assert all(row[1:] in (other[1:] for other in left) for row in found.rows), "no record of this log"
    return found


if __name__ == "__main__":
    for kind in KINDS:
        of = image(kind)
        for name in (f"{FIRST}.log", f"{SECOND}.log"):
            content = of.files[name]
            places = positions_of(content)
            for is_clean in (True, False):
                tally = Counter()
                bad = []
                for bit in range(0, 8 * len(content), 1):
                    changed = bytearray(content); changed[bit // 8] ^= 1 << bit % 8
                    try:
                        o = check_log_damage(of, name, bytes(changed), is_clean, places[bit // 8] < 8)
                        tally[o.answer, type(o.error).__name__, places[bit//8]<8] += 1
                    except BaseException as e:
                        bad.append((bit, places[bit // 8], type(e).__name__, str(e)[:150].replace("\n", " ")))
                print(kind, name, is_clean, dict(tally), "BAD", len(bad))
                for b in bad[:6]: print("    ", b)
