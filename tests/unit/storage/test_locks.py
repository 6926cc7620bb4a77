"""Which lock guards what of a log."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.doomed import DoomedSegments
from raylog.storage.log import Log
from raylog.storage.log_end import LogEnd
from raylog.storage.log_offsets import LogOffsets
from raylog.storage.records.encode import encode_records
from raylog.storage.snapshots import Snapshots
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk

# What only the owner of a lock may change, by the part of the log that has it.
GUARDED: dict[type, dict[str, str]] = {
    Log: {"_segments": "list"},
    DoomedSegments: {"_doomed": "list"},
    Snapshots: {"_unflushed": "list"},
    LogEnd: {"end": "end", "high_watermark": "end"},
}
EVERYTHING = {name for guarded in GUARDED.values() for name in guarded}
CONFIG: dict[str, Any] = {
    "cleanup_policy": "compact,delete",
    "retention_ms": 5000,
    "file_delete_delay_ms": 0,
}


class Watch:
    """Notes what is changed of a log, and whether by its owner."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, log: Log, guarded: dict[type, dict[str, str]]
    ) -> None:
        self._log = log
        self.changes: list[tuple[str, bool]] = []
        for part, names in guarded.items():
            monkeypatch.setattr(part, "__setattr__", self._noting(names))

    def _noting(self, names: dict[str, str]) -> Callable[[object, str, object], None]:
        def set_attribute(part: object, name: str, value: object) -> None:
            if name in names:
                lock = getattr(self._log.locks, names[name])
                self.changes.append((name, lock.locked()))
            object.__setattr__(part, name, value)

        return set_attribute


def locked(disk: Disk, **config: Any) -> Log:
    """Four sealed segments and an active one, with locks as a partition has."""
    log = disk.open(**CONFIG, **config)
    for _ in range(4):
        log.append(encode_records([(T0, b"key", b"value", ())]))
        log.roll()
    log.append(encode_records([(T0, b"key", b"value", ())]))
    log.locks.use(threading.Lock)
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
        (["end"], lambda _, log: log.roll(), EVERYTHING - {"_doomed"}),
        (["flush"], lambda _, log: log.flush(), {"_unflushed"}),
        (["old"], retain, EVERYTHING),
        (["old", "flush"], compact, {"_segments", "_doomed", "_unflushed"}),
        (
            ["old", "flush", "end"],
            lambda _, log: log.truncate_to(2),
            EVERYTHING - {"_unflushed"},
        ),
        ([], lambda _, log: log.purge_deleted(), {"_doomed"}),
    ],
    ids=["roll", "flush", "retention", "compaction", "truncation", "purge"],
)
def test_who_changes_the_list_of_segments_or_the_end_holds_its_lock(
    disk: Disk,
    monkeypatch: pytest.MonkeyPatch,
    held: list[str],
    work: Callable[[Disk, Log], object],
    changed: set[str],
) -> None:
    log = locked(disk)
    watch = Watch(monkeypatch, log, GUARDED)
    with ExitStack() as stack:
        for name in held:
            stack.enter_context(getattr(log.locks, name))
        work(disk, log)
    assert {*watch.changes} == {(name, True) for name in changed}


def test_the_recovery_point_is_raised_under_the_lists_lock(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention and a flush raise it beside each other, and it must not go back."""
    log = locked(disk)
    watch = Watch(monkeypatch, log, {LogOffsets: {"recovery_point": "list"}})
    with log.locks.flush:
        log.flush()
    disk.clock.advance(10_000)
    with log.locks.old:
        log.delete_old_segments()
    assert {*watch.changes} == {("recovery_point", True)}


def test_what_waited_for_a_flush_becomes_readable_under_the_ends_lock(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = locked(disk, flush_messages=1)
    watch = Watch(monkeypatch, log, {LogEnd: {"high_watermark": "end"}})
    assert log.high_watermark < log.log_end_offset
    with log.locks.flush:
        log.flush()
    assert log.high_watermark == log.log_end_offset
    assert watch.changes == [("high_watermark", True)]
