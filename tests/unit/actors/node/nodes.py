"""A node's log dirs on a disk in memory."""

from raylog.actors.messages import Configured
from raylog.actors.node.dirs import NodeDirs
from raylog.storage.config import LogConfig
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.names import TopicPartition
from raylog.storage.state.checkpoints import RECOVERY_POINTS, read_offsets
from raylog.storage.state.properties import random_id
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.memory import MemoryFileSystem

CLUSTER, TOPIC, OTHER_TOPIC = random_id(), random_id(), random_id()
ORDERS, OTHERS = TopicPartition("orders", 0), TopicPartition("others", 0)
A, B = "/disk/a", "/disk/b"
DELAY_MS = 60_000


class Node:
    """A node's dirs on a disk in memory."""

    def __init__(self, fs: MemoryFileSystem | None = None) -> None:
        if fs is None:
            fs = MemoryFileSystem()
            fs.make_dir("/disk")
            fs.sync_dir("/")
        self.fs, self.clock = fs, ManualClock()
        self.dirs = NodeDirs(fs, self.clock, DELAY_MS)

    def start(self, *paths: str) -> "Node":
        self.dirs.lock(paths or (A, B), lambda path: LogDir(self.fs, path, CLUSTER, 1))
        return self

    def again(self, *paths: str) -> "Node":
        """The node of the next process, after a crash of the one before."""
        return Node(self.fs.crash()).start(*paths)

    def id_of(self, path: str) -> str:
        return next(
            directory_id for directory_id, known in self.dirs.paths.items() if known == path
        )

    def make(self, partition: TopicPartition = ORDERS, topic_id: str = TOPIC) -> str:
        """A new partition that is served; returns the path of its dir."""
        dir = self.dirs.create(partition, topic_id)
        self.open(partition, topic_id)
        return dir.log_dir.path

    def open(self, partition: TopicPartition = ORDERS, topic_id: str = TOPIC) -> bool:
        """Returns whether an orderly stop left the log."""
        directory_id = self.dirs.dir_of(partition).directory_id
        return self.dirs.open(partition, topic_id, directory_id, Configured(LogConfig(), 0))[1]

    def record_offsets(self, partition: TopicPartition, *offsets: int) -> None:
        self.dirs.record_offsets(
            partition, self.dirs.opened[partition], CheckpointedOffsets(*offsets)
        )

    def checkpoint(self, path: str, name: str = RECOVERY_POINTS) -> dict[TopicPartition, int]:
        return read_offsets(self.fs, f"{path}/{name}")
