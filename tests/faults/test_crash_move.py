"""A partition's move between two log dirs, stopped at every file operation, with every loss of
power.

Whatever survives, the log is whole in the dir that the metadata names: the old one until the
record, the new one after it. What else lies about is a copy without a name, which the next start
removes, or a folder that the metadata does not name, which the Controller has set aside.
"""

from dataclasses import dataclass, field

import pytest

from raylog.actors.messages import Configured
from raylog.actors.node.dirs import NodeDirs
from raylog.actors.node.online_dir import OnlineDir
from raylog.storage.config import LogConfig
from raylog.storage.loader import open_log
from raylog.storage.log import Log
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.mirror import SETTLED_MS, Mirror
from raylog.storage.state.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS, read_offsets
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.logs import PARTITION, TOPIC_ID, batch, records_of
from raylog.storage.testing.memory import MemoryFileSystem, Stopped, Survives

CLUSTER = "uHx_mWK3Sji2MLBMLyjjfg"
OLD, NEW = "/disk/a", "/disk/b"
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=60)
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
class World:
    """What is known outside of the disks: what was sent and promised, and the Controller's
    record."""

    sent: list[bytes] = field(default_factory=list)
    durable: int = 0
    place: str | None = None  # as the metadata names it


def dirs_on(fs: MemoryFileSystem, clock: ManualClock) -> NodeDirs:
    dirs = NodeDirs(fs, clock, 0)
    dirs.lock([OLD, NEW], lambda path: LogDir(fs, path, CLUSTER, 1))
    return dirs


def dir_at(dirs: NodeDirs, path: str) -> OnlineDir:
    return next(dir for dir in dirs.dirs() if dir.log_dir.path == path)


def open_in(fs: MemoryFileSystem, clock: ManualClock, dir: OnlineDir) -> Log:
    """The log, opened as a LogActor does."""
    checkpoint = read_offsets(fs, f"{dir.log_dir.path}/{RECOVERY_POINTS}").get(PARTITION, 0)
    is_clean = dir.open(PARTITION)
    folder = dir.folder(PARTITION)
    return open_log(
        fs,
        clock,
        folder,
        PARTITION,
        CONFIG,
        topic_id=TOPIC_ID,
        is_clean=is_clean,
        recovery_point=checkpoint,
    )


def append(world: World, log: Log, count: int) -> None:
    """Append, each acknowledged when it is fsynced."""
    for _ in range(count):
        value = b"%04d" % len(world.sent)
        world.sent.append(value)
        log.append(batch(value=value))
        log.flush()
        world.durable = len(world.sent)


def live(fs: MemoryFileSystem, world: World) -> None:
    """A partition is made, written, moved while it is written, and written on."""
    clock = ManualClock()
    dirs = dirs_on(fs, clock)
    old = dirs.create(PARTITION, TOPIC_ID)
    new = dir_at(dirs, NEW)
    dirs.open(PARTITION, TOPIC_ID, old.directory_id, Configured(CONFIG, 0))
    world.place = OLD
    log = open_in(fs, clock, old)
    append(world, log, 8)
    dirs.record_cleaner_offset(PARTITION, TOPIC_ID, 3)
    copy = new.log_dir.future_folder(PARTITION)
    mirror = Mirror(fs, clock, old.folder(PARTITION), copy)
    for _ in range(2):
        log.roll()
        clock.advance(SETTLED_MS)
        fs.now_ms = clock.now_ms()
        mirror.round()
        append(world, log, 3)
    log.close()
    mirror.round(is_last=True)
    new.adopt(PARTITION, copy, CheckpointedOffsets(log.recovery_point, 0, log.log_end_offset), 3)
    world.place = NEW  # the Controller's record is on its disk
    old.delete(PARTITION)
    log = open_in(fs, clock, new)
    append(world, log, 2)
    for folder in dirs.due_deletions():
        fs.remove_dir(folder)


def begun() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_dir("/disk")
    fs.sync_dir("/")
    return fs


def stops() -> int:
    fs = begun()
    live(fs, World())
    return fs.operations


def check(fs: MemoryFileSystem, world: World, place: str, what: str) -> None:
    clock = ManualClock()
    dirs = dirs_on(fs, clock)
    assert dirs.offline == [], what
    dir = dir_at(dirs, place)
    log = open_in(fs, clock, dir)
    found = [record.value for record in records_of(log)]
    assert found == world.sent[: len(found)], what
    assert len(found) >= world.durable, what
    for folder in dirs.due_deletions():
        fs.remove_dir(folder)
    assert all(not one.log_dir.listing().futures for one in dirs.dirs()), what


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: "-".join(map(str, crash)))
def test_the_log_is_whole_where_the_metadata_says(crash: tuple[Survives, Survives, int]) -> None:
    survives, names, seed = crash
    for stop in range(begun().operations, stops()):
        fs, world = begun(), World()
        fs.stop_at(stop)
        with pytest.raises(Stopped):
            live(fs, world)
        if world.place is not None:
            found = fs.crash(survives, names=names, seed=seed + stop)
            check(found, world, world.place, f"stopped before {stop}: {crash}")


@pytest.mark.parametrize("place", [OLD, NEW])
def test_in_the_moment_of_the_record_both_are_whole(place: str) -> None:
    fs, world = begun(), World()
    live_until_record(fs, world)
    for survives, names, seed in CRASHES:
        found = fs.crash(survives, names=names, seed=seed)
        check(found, world, place, f"{survives} {names}")
        assert read_offsets(found, f"{place}/{CLEANER_OFFSETS}") == {PARTITION: 3}


def live_until_record(fs: MemoryFileSystem, world: World) -> None:
    """Stop at the first operation behind the record: the rename of the old folder."""
    probe = begun()
    live(probe, World())
    first = next(n for n, line in enumerate(probe.log) if line == f"rename {OLD}/{PARTITION}")
    fs.stop_at(first)
    with pytest.raises(Stopped):
        live(fs, world)
    assert world.place == NEW
