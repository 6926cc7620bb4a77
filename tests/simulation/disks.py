"""The disks of a simulated node: log dirs over a file system in memory that can lose its power.

What the LogManager does there is its real code (``actors/node/disk_work.py``), so what a loss of
power takes is what that code has not fsynced. A LogActor is only simulated; it leaves a line in its
log's first segment for each life, fsynced::

    <topic id> opened
    <topic id> closed        after an orderly end

So a folder says whose it is, although its ``partition.metadata`` may be damaged.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Literal

from raylog.storage.errors import CorruptCheckpoint, DiskFull, OutOfResources, StorageError
from raylog.storage.files import FileSystem, Room
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.names import (
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    STRAY_DIR_SUFFIX,
    TopicPartition,
    doomed_suffix,
    parse_folder,
)
from raylog.storage.state.controller_epoch import read_controller_epoch
from raylog.storage.state.properties import MetaProperties, read_topic_id, write_meta
from raylog.storage.testing.memory import TOTAL_BYTES, Folder, MemoryFileSystem, Survives

LOG, COPY, DOOMED, STRAY = "log", "copy", "doomed", "stray"
_KINDS = {DELETE_DIR_SUFFIX: DOOMED, FUTURE_DIR_SUFFIX: COPY, STRAY_DIR_SUFFIX: STRAY}
OPENED, CLOSED = "opened", "closed"
FIRST_SEGMENT = "00000000000000000000.log"
CLUSTER_ID = "simulated-cluster"
# A file has whole blocks: on a full disk it may grow to the end of its last one.
BLOCK_BYTES = 4096
Damage = Literal["", "writes", "all"]


def sim_id(text: str) -> str:
    """An id in Kafka's spelling that a person can read; ``text`` has up to 20 characters."""
    assert len(text) <= 20
    return text + "_" * (21 - len(text)) + "A"


@dataclass(slots=True, eq=False)
class SimDir:
    """One log dir, and what is wrong with its disk. What it holds is on the disk.

    ``broken``: which calls fail: none, those that write, or all. ``failed_ms``: when its disk
    failed last, -1 for never. ``read_ms``: when what its page cache holds was last read from the
    disk. ``hangs_until_ms``: until then no call to it ends. ``epoch``: the highest that was said to
    be written to it. ``number``: of its node.
    """

    directory_id: str
    path: str
    number: int
    broken: Damage = ""
    failed_ms: int = -1
    read_ms: int = 0
    is_full: bool = False
    is_short: bool = False  # of descriptors
    hangs_until_ms: int = -1
    epoch: int = -1

    def is_well(self, now_ms: int) -> bool:
        """Whether nothing is wrong with its disk."""
        is_hanging = self.hangs_until_ms > now_ms
        return not (self.broken or self.is_full or self.is_short or is_hanging)

    def heal(self) -> None:
        """Its disk is in order."""
        self.broken, self.hangs_until_ms = "", -1
        self.is_full = self.is_short = False

    def check_change(self, fs: FileSystem, verb: str, path: str) -> None:
        """Raise what a call that writes meets."""
        if self.broken:
            raise StorageError(path, "Input/output error")
        if self.is_short and verb == "create":
            raise OutOfResources(path, "Too many open files")
        if self.is_full and verb == "make_dir":
            raise DiskFull(path)
        if self.is_full and verb == "append":
            stat = fs.stat(path)
            if stat is None or stat.size_bytes % BLOCK_BYTES == 0:
                raise DiskFull(path)

    def check_read(self, path: str) -> None:
        """Raise what a call that reads a file meets."""
        if self.broken == "all":
            raise StorageError(path, "Input/output error")
        if self.is_short:
            raise OutOfResources(path, "Too many open files")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimFolder:
    """A partition's folder, as it is on the disk now.

    ``read_id``: the topic id as ``partition.metadata`` says it, None where it does not say;
    ``topic_id``: as its actors have left it, which no damage changes. ``lives``: how many lives of
    LogActors have had it. ``is_clean``: nobody has, or the last one ended in order.
    """

    partition: TopicPartition
    path: str
    kind: str
    read_id: str | None
    topic_id: str | None
    lives: int
    is_clean: bool


class SimDisks(MemoryFileSystem):
    """The file system of a node: each log dir is a disk of its own."""

    def __init__(self, root: Folder | None = None, next_inode: int = 1) -> None:
        super().__init__(root, next_inode)
        self._dirs: dict[str, SimDir] = {}  # by path
        self._is_peeking = False

    # -- what is wrong -----------------------------------------------------------------------------

    def change(self, verb: str, path: str) -> None:
        dir = self._dir_of(path)
        if dir is not None and not self._is_peeking:
            dir.check_change(self, verb, path)
        super().change(verb, path)

    def look(self, path: str) -> None:
        dir = self._dir_of(path)
        if dir is not None and not self._is_peeking:
            dir.check_read(path)
        super().look(path)

    def room(self, path: str) -> Room:
        dir = self._dir_of(path)
        return Room(TOTAL_BYTES, 0 if dir is not None and dir.is_full else TOTAL_BYTES)

    def _dir_of(self, path: str) -> SimDir | None:
        return self._dirs.get("/".join(path.split("/", 3)[:3]))

    # -- log dirs ----------------------------------------------------------------------------------

    def format(self, dirs: list[SimDir]) -> None:
        """Make the log dirs of a node that has never been started."""
        for dir in dirs:
            self.make_dir(dir.path)
            self.sync_dir("/")
            self.sync_dir(dir.path.rpartition("/")[0])
            write_meta(self, dir.path, MetaProperties(CLUSTER_ID, dir.number, dir.directory_id))
        self.mount(dirs)

    def mount(self, dirs: list[SimDir]) -> None:
        """From now on what is wrong with these dirs counts."""
        self._dirs = {dir.path: dir for dir in dirs}

    def take_over(self, other: "SimDisks", source: str, path: str) -> None:
        """What lies at ``source`` of another machine, or of this one, lies at ``path`` now."""
        with self.peeking(), other.peeking():
            self._take_tree(other, source, path)
            other.remove_dir(source)
            for disks, moved in ((self, path), (other, source)):
                disks.sync_dir(moved.rpartition("/")[0])

    def _take_tree(self, other: "SimDisks", source: str, path: str) -> None:
        self.make_dir(path)
        for name in other.list_dir(source):
            old, new = f"{source}/{name}", f"{path}/{name}"
            if other.is_dir(old):
                self._take_tree(other, old, new)
            else:
                self.write_file(new, other.read_file(old))
                self.set_mtime_ms(new, other.mtime_ms(old))
        self.sync_dir(path)

    def lose_power(self, random: Random) -> "SimDisks":
        """The disks as the next start of the machine finds them."""
        survives: Survives = random.choice(("flushed", "torn", "all"))
        names: Survives = random.choice(("flushed", "torn", "all"))
        disks = self.crash(survives, names=names, seed=random.getrandbits(32))
        disks.mount(list(self._dirs.values()))
        return disks

    # -- folders -----------------------------------------------------------------------------------

    @contextmanager
    def peeking(self) -> Iterator[None]:
        """Read and write what is there, whatever is wrong with the disk."""
        self._is_peeking = True
        try:
            yield
        finally:
            self._is_peeking = False

    def folder(self, path: str, partition: TopicPartition, kind: str = LOG) -> SimFolder | None:
        """The folder at a path; None if there is none."""
        if not self.is_dir(path):
            return None
        with self.peeking():
            read_id = self._read_id(path)
            lines = list(self._lines(path))
        return SimFolder(
            partition=partition,
            path=path,
            kind=kind,
            read_id=read_id,
            topic_id=lines[0][0] if lines else read_id,
            lives=sum(state == OPENED for _, state in lines),
            is_clean=not lines or lines[-1][1] == CLOSED,
        )

    def _read_id(self, path: str) -> str | None:
        try:
            return read_topic_id(self, path)
        except CorruptCheckpoint:
            return None

    def _lines(self, path: str) -> Iterator[tuple[str, str]]:
        segment = f"{path}/{FIRST_SEGMENT}"
        content = self.read_file(segment) if self.exists(segment) else b""
        for line in content.decode().split("\n"):
            topic_id, _, state = line.partition(" ")
            if state in (OPENED, CLOSED):
                yield topic_id, state

    def controller_epoch(self, dir: SimDir) -> int:
        """The highest epoch of a Controller that a log dir has; -1 for none."""
        with self.peeking():
            return read_controller_epoch(self, dir.path)

    def content(self, path: str) -> bytes | None:
        """A file's bytes; None if there is no such file."""
        with self.peeking():
            return self.read_file(path) if self.exists(path) else None

    def tamper(self, path: str, content: bytes | None) -> None:
        """Put other bytes into a file, on the disk, too; None: remove it. Nothing hinders it."""
        with self.peeking():
            is_there = self.exists(path)
            if content is None:
                self.remove(path)
            else:
                self.write_file(path, content)
            if content is None or not is_there:
                self.sync_dir(path.rpartition("/")[0])  # its name, too

    def leave_line(self, path: str, topic_id: str, state: str) -> None:
        """Append what a LogActor leaves of its life. Raises StorageError.

        A shortage does not hinder it: to open a log and to close it needs no room.
        """
        dir = self._dir_of(path)
        if dir is not None and dir.broken:
            raise StorageError(path, "Input/output error")
        with self.peeking():
            file = self.open(f"{path}/{FIRST_SEGMENT}")
            file.append([f"{topic_id} {state}\n".encode()])
            file.flush()
            file.close()

    def find(self, dir: SimDir, partition: TopicPartition, kind: str = LOG) -> SimFolder | None:
        """A partition's folder in a log dir; of other kinds than LOG, the first one."""
        if kind == LOG:
            return self.folder(f"{dir.path}/{partition}", partition)
        same = [each for each in self.folders(dir) if each.partition == partition]
        return next((each for each in same if each.kind == kind), None)

    def folders(self, dir: SimDir) -> list[SimFolder]:
        """All folders of partitions in a log dir."""
        found = []
        for name in self.list_dir(dir.path):
            suffix = doomed_suffix(name)
            partition = parse_folder(name if suffix is None else name.rpartition(".")[0])
            if partition is None or partition == METADATA_PARTITION:
                continue
            kind = LOG if suffix is None else _KINDS[suffix]
            folder = self.folder(f"{dir.path}/{name}", partition, kind)
            if folder is not None:
                found.append(folder)
        return found
