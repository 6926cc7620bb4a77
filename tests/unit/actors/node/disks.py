"""The disk work of a node, on disks in memory."""

import threading
from collections.abc import Callable, Sequence

from raylog.actors.control import LogId
from raylog.actors.messages import PartitionOffsets
from raylog.actors.node.dir_openings import Beside
from raylog.actors.node.dirs import Found
from raylog.actors.node.disk_work import DiskWork
from raylog.actors.node.instructions import (
    Adopt,
    Copy,
    Doom,
    DropCopy,
    MakeFolder,
    PutAside,
    WriteIdentity,
)
from raylog.storage.errors import OutOfResources, RaylogError, StorageError
from raylog.storage.names import TopicPartition
from raylog.storage.state.checkpoints import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
)
from raylog.storage.state.properties import random_id, read_meta
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.testing.waiting import DEADLINE_S
from tests.harness.in_turn import in_turn

CLUSTER, TOPIC, OTHER_TOPIC = random_id(), random_id(), random_id()
ORDERS, OTHERS = TopicPartition("orders", 0), TopicPartition("others", 0)
LOG = LogId(partition=ORDERS, topic_id=TOPIC)
LATER_LOG = LogId(partition=ORDERS, topic_id=OTHER_TOPIC)
OTHER_LOG = LogId(partition=OTHERS, topic_id=TOPIC)
A, B = "/disk/a", "/disk/b"
DELAY_MS = 60_000
OFFSETS = PartitionOffsets(log_start_offset=3, recovery_point=7, high_watermark=9, log_end_offset=9)
CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_OFFSETS)


def io_error(path: str) -> RaylogError:
    return StorageError(path, "Input/output error")


def shortage(path: str) -> RaylogError:
    return OutOfResources(path, "no file descriptor is left")


class Time:
    """Seconds that pass only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def now_s(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class HangingFileSystem(MemoryFileSystem):
    """Once armed, the next call on a path under a folder does not end until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        self._under: str | None = None

    def hang(self, under: str) -> None:
        self._under = under

    def let_go(self) -> None:
        self.may_end.set()

    def _pass(self, path: str) -> None:
        if self._under is not None and path.startswith(self._under):
            self._under = None
            self.has_begun.set()
            assert self.may_end.wait(DEADLINE_S), "a test that let nobody go"

    def change(self, verb: str, path: str) -> None:
        self._pass(path)
        super().change(verb, path)

    def exists(self, path: str) -> bool:
        self._pass(path)
        return super().exists(path)

    def is_dir(self, path: str) -> bool:
        self._pass(path)
        return super().is_dir(path)

    def read_file(self, path: str) -> bytes:
        self._pass(path)
        return super().read_file(path)


class Disks:
    """A node's log dirs on disks in memory, and what is done in them."""

    def __init__(
        self,
        fs: MemoryFileSystem | None = None,
        *,
        timeout_s: float = 10.0,
        roll: Callable[[LogId], None] | None = None,
        beside: Beside | None = None,
    ) -> None:
        if fs is None:
            fs = MemoryFileSystem()
        self.fs, self.clock, self.time = fs, ManualClock(), Time()
        fs.make_dir("/disk")
        fs.sync_dir("/")
        self.rolled: list[LogId] = []
        self.work = DiskWork(
            fs,
            self.clock,
            cluster_id=CLUSTER,
            node_number=1,
            delete_delay_ms=DELAY_MS,
            copy_rate=1e6,
            roll=roll or self.rolled.append,
            unlock_timeout_s=timeout_s,
            now_s=self.time.now_s,
            sleep=self.time.sleep,
            beside=beside or in_turn,
        )
        self._token = 0

    def start(self, *paths: str) -> "Disks":
        self.open(paths or (A, B))
        return self

    def open(self, paths: Sequence[str] = (A, B)) -> Found:
        return self.work.open(paths)

    def again(self) -> "Disks":
        """The disks of the next process, after a crash of the one before."""
        return Disks(self.fs.crash())

    def id_of(self, path: str) -> str:
        meta = read_meta(self.fs, path)
        assert meta is not None
        return meta.directory_id

    def token(self) -> int:
        self._token += 1
        return self._token

    # -- instructions ------------------------------------------------------------------------------

    def make(self, log: LogId = LOG, path: str = A) -> None:
        work = MakeFolder(token=self.token(), log=log, directory_id=self.id_of(path))
        self.work.carry_out(work)

    def doom(self, log: LogId = LOG, path: str = A) -> None:
        self.work.carry_out(Doom(token=self.token(), log=log, directory_id=self.id_of(path)))

    def put_aside(
        self, topic_id: str | None = TOPIC, partition: TopicPartition = ORDERS, path: str = A
    ) -> None:
        self.work.carry_out(
            PutAside(
                token=self.token(),
                partition=partition,
                topic_id=topic_id,
                directory_id=self.id_of(path),
            )
        )

    def write_identity(self, log: LogId = LOG, path: str = A) -> None:
        work = WriteIdentity(token=self.token(), log=log, directory_id=self.id_of(path))
        self.work.carry_out(work)

    def copy(
        self, log: LogId = LOG, *, is_last: bool = False, source: str = A, target: str = B
    ) -> None:
        self.work.carry_out(
            Copy(
                token=self.token(),
                log=log,
                directory_id=self.id_of(source),
                target_id=self.id_of(target),
                is_last=is_last,
            )
        )

    def adopt(self, log: LogId = LOG, path: str = B) -> None:
        self.work.carry_out(Adopt(token=self.token(), log=log, directory_id=self.id_of(path)))

    def drop_copy(
        self, topic_id: str | None = TOPIC, partition: TopicPartition = ORDERS, path: str = B
    ) -> None:
        self.work.carry_out(
            DropCopy(
                token=self.token(),
                partition=partition,
                topic_id=topic_id,
                directory_id=self.id_of(path),
            )
        )

    # -- what is on the disk -----------------------------------------------------------------------

    def folders(self, path: str = A) -> list[str]:
        """The names of a dir's folders, with ``*`` for the unique part."""
        names = [name for name in self.fs.list_dir(path) if self.fs.is_dir(f"{path}/{name}")]
        return [plain(name) for name in names]

    def checkpoint(self, path: str = A, name: str = RECOVERY_POINTS) -> dict[TopicPartition, int]:
        return read_offsets(self.fs, f"{path}/{name}")

    def checkpoints(self, path: str = A) -> list[dict[TopicPartition, int]]:
        """Recovery points, log start offsets and cleaner offsets."""
        return [self.checkpoint(path, name) for name in CHECKPOINTS]

    def write_checkpoints(self, path: str = A) -> None:
        self.work.write_recovery_points(self.id_of(path))
        self.work.write_log_start_offsets(self.id_of(path))


def plain(name: str) -> str:
    stem, dot, tail = name.rpartition(".")
    return f"{stem}.*{tail[32:]}" if dot and len(tail) > 32 else name
