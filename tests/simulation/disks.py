"""Log dirs of the simulation: folders by name, with what matters to control and nothing else.

What an instruction does to a disk is there when the instruction ends: raylog fsyncs it. When the
process dies before, it is there or not.
"""

from dataclasses import dataclass, field

from raylog.storage.errors import DiskFull, InvalidLogDir, StorageError
from raylog.storage.names import TopicPartition

LOG, COPY, DOOMED, STRAY = "log", "copy", "doomed", "stray"


@dataclass(slots=True)
class SimFolder:
    """A partition's folder. ``owner``: the process that has its lock; None if nobody has."""

    partition: TopicPartition
    topic_id: str
    kind: str = LOG
    is_identity_lost: bool = False
    is_whole: bool = True  # of a copy
    is_clean: bool = True
    owner: object = None
    served_by: int = 0  # how many lives of LogActors have had it

    @property
    def read_id(self) -> str | None:
        """The topic id as ``partition.metadata`` says it."""
        return None if self.is_identity_lost else self.topic_id


@dataclass(slots=True, eq=False)
class SimDir:
    """One log dir."""

    directory_id: str
    path: str
    folders: list[SimFolder] = field(default_factory=list)
    controller_epoch: int = -1
    failure: str = ""  # why every call to its disk fails
    failed_ms: int = -1  # when its disk failed last; -1: never
    read_ms: int = 0  # when what its page cache holds was last read from the disk
    is_full: bool = False
    is_hanging: bool = False  # no call to its disk ends
    owner: object = None  # the LogManager's process that has its lock

    def check(self) -> None:
        if self.failure:
            raise StorageError(self.path, self.failure)

    def find(self, partition: TopicPartition, kind: str = LOG) -> SimFolder | None:
        """The folder with this name; of doomed and stray ones there may be many."""
        for folder in self.folders:
            if folder.partition == partition and folder.kind == kind:
                return folder
        return None

    def make(self, partition: TopicPartition, topic_id: str, kind: str = LOG) -> SimFolder:
        self.check()
        found = self.find(partition, kind)
        if found is not None:
            raise InvalidLogDir(self.path, f"{partition} already exists")
        if self.is_full:
            raise DiskFull(self.path)
        folder = SimFolder(partition, topic_id, kind)
        self.folders.append(folder)
        return folder
