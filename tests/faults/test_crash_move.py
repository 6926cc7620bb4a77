"""A partition's move between two log dirs, stopped at every file operation, with every loss of
power.

Whatever survives, the log is whole in the dir that the metadata names: the old one until the
record, the new one after it. What else lies about is a copy without a name, which the next start
removes, or a folder that the metadata does not name, which the Controller has set aside.
"""

from dataclasses import dataclass, field

import pytest

from raylog.actors.control import LogId
from raylog.actors.messages import PartitionOffsets
from raylog.actors.node.disk_work import DiskWork
from raylog.actors.node.instructions import Adopt, Copy, Doom, DropCopy, MakeFolder
from raylog.storage.config import LogConfig
from raylog.storage.loader import open_log
from raylog.storage.log import Log
from raylog.storage.mirror import SETTLED_MS
from raylog.storage.state.checkpoints import CLEANER_OFFSETS, read_offsets
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.logs import PARTITION, TOPIC_ID, batch, records_of
from raylog.storage.testing.memory import MemoryFileSystem, Stopped, Survives
from tests.harness.in_turn import in_turn

CLUSTER = "uHx_mWK3Sji2MLBMLyjjfg"
LOG = LogId(partition=PARTITION, topic_id=TOPIC_ID)
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


class Node:
    """The log dirs of a node, and the log that is served from one of them."""

    def __init__(self, fs: MemoryFileSystem) -> None:
        self.fs, self.clock = fs, ManualClock()
        self.work = DiskWork(
            fs,
            self.clock,
            cluster_id=CLUSTER,
            node_number=1,
            delete_delay_ms=0,
            copy_rate=1e9,
            roll=self._roll,
            beside=in_turn,
        )
        self.found = self.work.open([OLD, NEW])
        self.ids = {dir.path: str(dir.directory_id) for dir in self.found.dirs}
        self.log: Log | None = None

    def _roll(self, log: LogId) -> None:
        assert self.log is not None
        self.log.roll()
        self.clock.advance(SETTLED_MS)
        self.fs.now_ms = self.clock.now_ms()

    def open(self, path: str, *, is_clean: bool) -> Log:
        """The log, opened as a LogActor does."""
        directory_id = self.ids[path]
        self.work.began_opening(LOG, directory_id)
        offsets = self.work.checkpointed(directory_id, PARTITION)
        self.log = open_log(
            self.fs,
            self.clock,
            self.work.folder(directory_id, PARTITION),
            PARTITION,
            CONFIG,
            topic_id=TOPIC_ID,
            is_clean=is_clean,
            recovery_point=offsets.recovery_point,
        )
        return self.log

    def make(self) -> None:
        self.work.carry_out(MakeFolder(token=1, log=LOG, directory_id=self.ids[OLD]))

    def copy(self, *, is_last: bool) -> None:
        self.work.carry_out(
            Copy(
                token=2,
                log=LOG,
                directory_id=self.ids[OLD],
                target_id=self.ids[NEW],
                is_last=is_last,
            )
        )

    def adopt(self) -> None:
        self.work.carry_out(Adopt(token=3, log=LOG, directory_id=self.ids[NEW]))

    def doom(self) -> None:
        self.work.carry_out(Doom(token=4, log=LOG, directory_id=self.ids[OLD]))

    def drop_copies(self) -> None:
        """As the machine has it done with copies of before."""
        for folder in self.found.folders:
            if folder.is_copy:
                self.work.carry_out(
                    DropCopy(
                        token=5,
                        partition=folder.partition,
                        topic_id=folder.topic_id,
                        directory_id=folder.directory_id,
                    )
                )

    def remove_deleted(self) -> None:
        for directory_id in self.ids.values():
            self.work.remove_deleted(directory_id)


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
    node = Node(fs)
    node.make()
    world.place = OLD
    log = node.open(OLD, is_clean=True)
    append(world, log, 8)
    node.work.record_cleaner_offset(LOG, node.ids[OLD], 3)
    for _ in range(2):
        node.copy(is_last=False)
        append(world, log, 3)
    log.close()
    end = log.log_end_offset
    node.work.record_offsets(LOG, node.ids[OLD], PartitionOffsets(0, log.recovery_point, end, end))
    node.copy(is_last=True)
    node.adopt()
    world.place = NEW  # the Controller's record is on its disk
    node.doom()
    log = node.open(NEW, is_clean=True)
    append(world, log, 2)
    node.remove_deleted()


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
    node = Node(fs)
    assert all(dir.state == "online" for dir in node.found.dirs), what
    log = node.open(place, is_clean=False)
    found = [record.value for record in records_of(log)]
    assert found == world.sent[: len(found)], what
    assert len(found) >= world.durable, what
    node.drop_copies()
    node.remove_deleted()
    names = [name for path in (OLD, NEW) for name in fs.list_dir(path)]
    assert not [name for name in names if name.endswith(("-future", "-delete"))], what


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
