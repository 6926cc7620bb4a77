"""Compactions that were killed leave ``.cleaned`` files behind; a later one swaps other segments,
and is stopped too.

To recovery any ``.cleaned`` means that the swap had not begun, and every ``.swap`` from there on
goes: while such a file lay there, a swap whose sources are ``.deleted`` already would be dropped
with all its records.
"""

import pytest

from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.cleaner.remote import RemoteLog, view_of
from raylog.storage.log import Log
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, records_of
from raylog.storage.testing.memory import MemoryFileSystem, Stopped, Survives

CONFIG = {"segment_bytes": 150, "cleanup_policy": "compact", "file_delete_delay_ms": 0}
ROOMY = Buffers(dedupe_bytes=1 << 12, load_factor=0.9, chunk_bytes=4096)
KEYS = (b"a", b"b")
CRASHES: list[tuple[Survives, Survives, int]] = [
    ("all", "all", 0),
    ("flushed", "flushed", 0),
    ("flushed", "all", 0),
    ("torn", "torn", 1),
    ("flushed", "torn", 2),
]


def live(fs: MemoryFileSystem | None, stale: int, stop: int | None) -> Disk:
    """Two groups of two segments are compacted; the leftovers of an earlier attempt begin at offset
    ``stale``."""
    disk = Disk(fs)
    log = disk.open(**CONFIG)  # type: ignore[arg-type]
    for number in range(5):
        log.append(encode_records([(T0, KEYS[number // 2 % 2], b"%d" % number, ())]))
        log.roll()
    log.flush()
    for suffix in (".log", ".index"):
        disk.write(f"{stale:020d}{suffix}.cleaned", b"of an earlier attempt")
    disk.fs.sync_dir("/logs/orders-0")
    if stop is not None:
        disk.fs.stop_at(disk.fs.operations + stop)
    try:
        compact(disk, log)
    except Stopped:
        pass
    return disk


def compact(disk: Disk, log: Log) -> None:
    remote = RemoteLog(disk.fs, view_of(log, log.begin_round()), log)
    clean(
        disk.fs,
        disk.clock,
        remote,
        Cleanable(
            first_dirty_offset=0,
            bound=log.segments[-1].base_offset,
            clean_bytes=0,
            cleanable_bytes=1,
        ),
        ROOMY,
    )


@pytest.mark.parametrize("stale", [0, 1, 2, 3, 4, 7])
def test_what_a_killed_compaction_left_never_undoes_a_later_swap(stale: int) -> None:
    whole = live(None, stale, None)
    assert whole.names(".cleaned") == []
    begin = next(
        number
        for number, operation in enumerate(whole.fs.log)
        if "create" in operation and ".cleaned" in operation
    )
    for stop in range(whole.fs.operations - begin + 1):
        disk = live(None, stale, stop)
        for survives, names, seed in CRASHES:
            after = Disk(disk.fs.crash(survives, names=names, seed=seed + stop))
            log = after.open(is_clean=False, **CONFIG)  # type: ignore[arg-type]
            last = {record.key: record.value for record in records_of(log)}
            where = f"stop {stop}, {survives}/{names}/{seed}: {disk.fs.log[-3:]}"
            assert last == {b"a": b"4", b"b": b"3"}, where
            assert after.names(".cleaned") == after.names(".swap") == []
