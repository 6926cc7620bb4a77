"""Compaction of a log whose start has moved, and a loss of power before the start is on the disk.

``delete_records`` and retention raise the log start offset in memory. The LogManager writes it down
once a minute. If the power fails before that, the log begins where it began before, and readers see
records again that were below the start. That is allowed. But they must not see them without what
came later for the same key: a newer value, or a tombstone.

So compaction may not take the start for the end of what it has to look at: what lies below it is
compacted, too, until its files are gone.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest

from raylog.storage.cleaner.cleanable import cleanable, facts_of
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.cleaner.schedule import Candidate
from raylog.storage.errors import DiskFull
from raylog.storage.loader import create_log
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.records.encode import encode_records
from raylog.storage.state.properties import MetaProperties, random_id, write_meta
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import FOLDER, PARTITION, TOPIC_ID, Disk, records_of
from raylog.storage.testing.memory import MemoryFileSystem, Stopped, Survives

CLUSTER = "uHx_mWK3Sji2MLBMLyjjfg"

CONFIG: dict[str, Any] = {
    "cleanup_policy": "compact,delete",
    "delete_retention_ms": 1000,
    "file_delete_delay_ms": 0,
}
ROOMY = Buffers(dedupe_bytes=1 << 12, load_factor=0.9, chunk_bytes=4096)
# (key, value) by offset; a segment has two
SENT = [
    *[("a", "old"), ("b", "old")],
    *[("a", None), ("b", "new")],
    *[("c", "old"), ("d", "last")],
    *[("c", None), ("e", "last")],
    *[("f", "last"), ("g", "last")],
]
CRASHES: list[tuple[Survives, Survives, int]] = [
    ("all", "all", 0),
    ("flushed", "flushed", 0),
    ("torn", "torn", 1),
    ("flushed", "torn", 2),
]


class Broker:
    """A log, and the log dir that has its checkpoints."""

    def __init__(self, fs: MemoryFileSystem) -> None:
        self.fs = fs
        self.log_dir = LogDir(fs, "/logs", CLUSTER, 1)
        known = self.log_dir.offsets().get(PARTITION, CheckpointedOffsets(0, 0, 0))
        self.disk = Disk(fs)
        self.log = self.disk.open(
            is_clean=False,
            recovery_point=known.recovery_point,
            log_start_offset=known.log_start_offset,
            **CONFIG,
        )

    def append(self, sent: Iterable[tuple[str, str | None]]) -> None:
        for number, (key, value) in enumerate(sent, self.log.log_end_offset):
            content = None if value is None else value.encode()
            self.log.append(encode_records([(T0 + number, key.encode(), content, ())]))
            if number % 2:
                self.log.roll()
        self.log.flush()

    def compact(self) -> None:
        """What a turn of the CompactionActor does: look, correct the checkpoint, make a round."""
        log, checkpoint = self.log, self.log_dir.cleaner_offsets().get(PARTITION)
        facts, now_ms = facts_of(log), self.disk.clock.now_ms()
        corrected = Candidate(facts, checkpoint, log.config).corrected_checkpoint
        if corrected is not None:
            self.log_dir.write_cleaner_offsets({PARTITION: corrected})
        section = cleanable(facts, checkpoint, log.config, now_ms)
        done = clean(self.fs, self.disk.clock, log, section, ROOMY)
        self.log_dir.write_cleaner_offsets({PARTITION: done.end_offset})

    def seen(self) -> dict[str, str | None]:
        """By key, what a reader of the whole log takes for its value."""
        return {
            (record.key or b"").decode(): None if record.value is None else record.value.decode()
            for record in records_of(self.log)
        }


def delete_records(broker: Broker, offset: int) -> None:
    broker.log.delete_records(offset)


def delete_segments(broker: Broker, offset: int) -> None:
    broker.log.delete_records(offset)
    broker.log.delete_old_segments()


def interrupt_retention(broker: Broker, offset: int) -> None:
    """Retention has raised the start, and the files still have their names."""
    broker.log.delete_records(offset)
    with broker.fs.failing(DiskFull, verb="rename"), suppress(DiskFull):
        broker.log.delete_old_segments()


MoveStart = Callable[[Broker, int], None]


def live(fs: MemoryFileSystem, move_start: MoveStart, offset: int) -> None:
    fs.make_dir("/logs")
    fs.sync_dir("/")
    write_meta(fs, "/logs", MetaProperties(CLUSTER, 1, random_id()))
    create_log(fs, FOLDER, TOPIC_ID)
    broker = Broker(fs)
    broker.log_dir.write_cleaner_offsets({PARTITION: 0})
    broker.append(SENT[:8])
    move_start(broker, offset)
    broker.compact()
    broker.append(SENT[8:])
    broker.disk.clock.advance(2000)  # the tombstones may go
    broker.compact()
    broker.compact()


def check(seen: dict[str, str | None], end: int, where: str) -> None:
    """Each key has its last value, or is gone."""
    last = dict(SENT[:end])
    for key, value in seen.items():
        assert value == last[key], f"{where}: {key} is {value}, and was {last[key]} last"


@pytest.mark.parametrize("offset", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("move_start", [delete_records, delete_segments, interrupt_retention])
def test_records_that_come_back_come_with_all_that_followed_them(
    move_start: MoveStart, offset: int
) -> None:
    whole = MemoryFileSystem()
    live(whole, move_start, offset)
    begin = next(n for n, operation in enumerate(whole.log) if ".log.cleaned" in operation)
    for stop in range(begin, len(whole.log) + 1):
        fs = MemoryFileSystem()
        fs.stop_at(stop)
        with suppress(Stopped):
            live(fs, move_start, offset)
        survives, names, seed = CRASHES[stop % len(CRASHES)]
        broker = Broker(fs.crash(survives, names=names, seed=seed + stop))
        where, end = f"stop {stop} of {len(whole.log)}, {survives}", broker.log.log_end_offset
        check(broker.seen(), end, where)
        for _ in range(2):
            broker.disk.clock.advance(5000)
            broker.compact()
            check(broker.seen(), end, f"{where}, after another round")
