"""Which lock guards what of a log."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.locks import LogLocks
from raylog.storage.log import Log
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk

GUARDED = ("_segments", "_doomed", "_unflushed_snapshots")
CONFIG: dict[str, Any] = {
    "cleanup_policy": "compact,delete",
    "retention_ms": 5000,
    "file_delete_delay_ms": 0,
}


class Watched(Log):
    """Notes what is changed of the list of segments, and whether its lock is held."""

    changes: list[tuple[str, bool]]

    def __setattr__(self, name: str, value: object) -> None:
        if name in GUARDED:
            self.changes.append((name, self.locks.list.locked()))
        super().__setattr__(name, value)


def watched(disk: Disk) -> Watched:
    """Four sealed segments and an active one, with locks as a partition has."""
    log = disk.open(**CONFIG)
    for _ in range(4):
        log.append(encode_records([(T0, b"key", b"value", ())]))
        log.roll()
    log.append(encode_records([(T0, b"key", b"value", ())]))
    log.locks = LogLocks(threading.Lock)
    log.changes = []  # type: ignore[attr-defined]
    log.__class__ = Watched
    assert isinstance(log, Watched)
    return log


def retain(disk: Disk, log: Log) -> None:
    disk.clock.advance(10_000)
    assert log.delete_old_segments() == 5


def compact(disk: Disk, log: Log) -> None:
    section = Cleanable(first_dirty_offset=0, bound=4, clean_bytes=0, cleanable_bytes=1)
    clean(disk.fs, disk.clock, log, section, Buffers(1 << 12, 0.9, 4096))


@pytest.mark.parametrize(
    ("held", "work", "changed"),
    [
        (["end"], lambda _, log: log.roll(), {"_segments", "_unflushed_snapshots"}),
        (["flush"], lambda _, log: log.flush(), {"_unflushed_snapshots"}),
        (["old"], retain, {*GUARDED}),
        (["old", "flush"], compact, {"_segments", "_doomed", "_unflushed_snapshots"}),
        (["old", "flush", "end"], lambda _, log: log.truncate_to(2), {"_segments", "_doomed"}),
        ([], lambda _, log: log.purge_deleted(), {"_doomed"}),
    ],
    ids=["roll", "flush", "retention", "compaction", "truncation", "purge"],
)
def test_who_changes_the_list_of_segments_holds_its_lock(
    disk: Disk, held: list[str], work: Callable[[Disk, Log], object], changed: set[str]
) -> None:
    log = watched(disk)
    with ExitStack() as stack:
        for name in held:
            stack.enter_context(getattr(log.locks, name))
        work(disk, log)
    assert {*log.changes} == {(name, True) for name in changed}
