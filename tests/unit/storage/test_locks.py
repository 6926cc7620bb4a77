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

GUARDED = {
    "_segments": "list",
    "_doomed": "list",
    "_unflushed_snapshots": "list",
    "_end": "end",
    "_high_watermark": "end",
}
CONFIG: dict[str, Any] = {
    "cleanup_policy": "compact,delete",
    "retention_ms": 5000,
    "file_delete_delay_ms": 0,
}


class Watched(Log):
    """Notes what is changed of the list of segments and of the end, and whether by its owner."""

    changes: list[tuple[str, bool]]

    def __setattr__(self, name: str, value: object) -> None:
        if name in GUARDED:
            self.changes.append((name, getattr(self.locks, GUARDED[name]).locked()))
        super().__setattr__(name, value)


def watched(disk: Disk, **config: Any) -> Watched:
    """Four sealed segments and an active one, with locks as a partition has."""
    log = disk.open(**CONFIG, **config)
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


ROLLED = {"_segments", "_unflushed_snapshots", "_end", "_high_watermark"}


@pytest.mark.parametrize(
    ("held", "work", "changed"),
    [
        (["end"], lambda _, log: log.roll(), ROLLED),
        (["flush"], lambda _, log: log.flush(), {"_unflushed_snapshots"}),
        (["old"], retain, {*GUARDED}),
        (["old", "flush"], compact, {"_segments", "_doomed", "_unflushed_snapshots"}),
        (
            ["old", "flush", "end"],
            lambda _, log: log.truncate_to(2),
            {*GUARDED} - {"_unflushed_snapshots"},
        ),
        ([], lambda _, log: log.purge_deleted(), {"_doomed"}),
    ],
    ids=["roll", "flush", "retention", "compaction", "truncation", "purge"],
)
def test_who_changes_the_list_of_segments_or_the_end_holds_its_lock(
    disk: Disk, held: list[str], work: Callable[[Disk, Log], object], changed: set[str]
) -> None:
    log = watched(disk)
    with ExitStack() as stack:
        for name in held:
            stack.enter_context(getattr(log.locks, name))
        work(disk, log)
    assert {*log.changes} == {(name, True) for name in changed}


def test_the_recovery_point_is_raised_under_the_lists_lock(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention and a flush raise it beside each other, and it must not go back."""
    log = watched(disk)
    monkeypatch.setitem(GUARDED, "recovery_point", "list")
    with log.locks.flush:
        log.flush()
    disk.clock.advance(10_000)
    with log.locks.old:
        log.delete_old_segments()
    raised = [is_held for name, is_held in log.changes if name == "recovery_point"]
    assert raised
    assert all(raised)


def test_what_waited_for_a_flush_becomes_readable_under_the_ends_lock(disk: Disk) -> None:
    log = watched(disk, flush_messages=1)
    assert log.high_watermark < log.log_end_offset
    with log.locks.flush:
        log.flush()
    assert log.high_watermark == log.log_end_offset
    assert [change for change in log.changes if change[0] == "_high_watermark"] == [
        ("_high_watermark", True)
    ]
