"""What is known of a node's log dirs, for people and for metrics.

Measuring a dir looks at every file, and a disk may hang: so it is done beside, and remembered.
"""

import threading
from collections.abc import Callable, Sequence, Set
from concurrent.futures import wait
from typing import Protocol

from raylog.actors.control import DirReport
from raylog.actors.messages import LogDirStatus
from raylog.actors.node.dirs import Unusable
from raylog.actors.node.tasks import EachDir
from raylog.storage.names import TopicPartition

# A look-up waits so long for the dirs to be measured, and answers what is remembered then.
FRESH_TIMEOUT_S = 1.0


class Measurable(Protocol):
    """Who measures; ``disk_work.py`` on real disks."""

    def status(
        self, directory_id: str, node_id: str, opening: Set[TopicPartition] | None
    ) -> LogDirStatus: ...

    def unusable(self) -> Sequence[Unusable]: ...


class DirStatuses:
    """See the module's head."""

    def __init__(
        self,
        disk: Measurable,
        each_dir: EachDir,
        *,
        node_id: str,
        dirs: Callable[[], Sequence[DirReport]],
        opening: Callable[[str], Set[TopicPartition] | None],
    ) -> None:
        """``dirs``: all of the node, as its machine has them. ``node_id``: Ray's.

        ``opening``: the partitions that are to be opened in a dir; None where nobody knows yet.
        """
        self._disk = disk
        self._each_dir = each_dir
        self._node_id = node_id
        self._dirs, self._opening = dirs, opening
        self._lock = threading.Lock()
        self._remembered: dict[str, LogDirStatus] = {}

    def measure(self) -> None:
        """Begin to measure each dir that is online; one that is being measured is left alone."""
        self._each_dir.run("status", self._measure)

    def fresh(self, timeout_s: float = FRESH_TIMEOUT_S) -> list[LogDirStatus]:
        """Every dir, measured now where that takes less than ``timeout_s``."""
        wait(self._each_dir.run("status", self._measure), timeout_s)
        return self.remembered()

    def remembered(self) -> list[LogDirStatus]:
        """Every dir, as it was measured last. Waits for nothing."""
        with self._lock:
            return [self._status(dir) for dir in self._dirs()]

    def _measure(self, directory_id: str) -> None:
        status = self._disk.status(directory_id, self._node_id, self._opening(directory_id))
        with self._lock:
            self._remembered[directory_id] = status

    def _status(self, dir: DirReport) -> LogDirStatus:
        if dir.state == "offline":
            advices = [found.advice for found in self._disk.unusable() if found.path == dir.path]
            todo = advices[0] if advices else ""
            id = dir.directory_id
            status = LogDirStatus.offline(self._node_id, dir.path, id, dir.why, todo)
            return status._replace(is_taken_offline=dir.is_taken_offline)
        measured = self._remembered.get(dir.directory_id or "")
        if measured is not None and measured.is_online:
            return measured._replace(problem=dir.why or None)
        return LogDirStatus(
            node_id=self._node_id,
            path=dir.path,
            directory_id=dir.directory_id or "",
            is_online=True,
            problem=dir.why or None,
            partitions=0,
            size_bytes=0,
            total_bytes=0,
            usable_bytes=dir.usable_bytes,
            loaded=0,
            to_load=0,
        )
