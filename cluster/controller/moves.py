"""The Controller's move of a partition to another log dir, while it is read and written.

::

    LogManager   copies the folder, round by round    the partition serves
                 closes the log, copies the rest      it does not serve: callers look it up again
    Controller   appends the topic's record         the commit point: now the new folder counts
    LogManager   opens it where the record says       the other folder is deleted

Nobody else may open the partition between the close and the record (``_moving``): it would be
written to in a folder that is about to be given up. A LogManager that was started again meanwhile
makes the move void.
"""

import logging
import os
from collections.abc import Mapping

from raylog.actors.errors import InvalidRequest, NotLeader, UnknownTopicOrPartition
from raylog.actors.messages import Placed
from raylog.actors.runtime.calls import WORK_TIMEOUT_S
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.cluster.controller.metadata import topic_record
from raylog.cluster.controller.placement import (
    BEING_OPENED,
    PartitionDescription,
    Wanted,
    wanted_of,
)
from raylog.cluster.controller.topics import Topics

logger = logging.getLogger(__name__)


class Moves(Topics):
    """The Controller's methods for moves."""

    def move_partition(self, name: str, number: int, log_dir: str) -> PartitionDescription:
        """Move a partition to another log dir of its node; returns when it serves there.

        ``log_dir``: a path or directory id; fine if the partition is there already. Raises
        UnknownTopicOrPartition, InvalidRequest (no such dir on its node), TopicBusy, NoRoom, or
        what kept the disk from it; then it serves on where it was.
        """
        with self._reserve(name, "moved"):
            with self._lock:
                wanted = self._wanted_partition(name, number)
                manager = self._manager_of(wanted.directory_id)
                problem = self._placement.explain(wanted.topic, number)
            if manager is None:
                raise problem or NotLeader(str(wanted.partition), "its node is away")
            target = _directory_id(log_dir, manager.start().get())
            if target != wanted.directory_id:
                self._move(wanted, manager, target)
            return self.describe_topic(name).partitions[number]

    def _wanted_partition(self, name: str, number: object) -> Wanted:
        partitions = wanted_of([self._topic(name)])
        if not isinstance(number, int) or not 0 <= number < len(partitions):
            why = f"the topic has {len(partitions)} partitions"
            raise UnknownTopicOrPartition(name, number, why)
        return partitions[number]

    def _move(self, wanted: Wanted, manager: LogManagerStub, target: str) -> None:
        partition, topic = wanted.partition, wanted.topic
        with self._lock:
            if self._is_claimed(wanted):
                raise NotLeader(str(partition), BEING_OPENED)
            self._moving[partition] = self._placement.node_of[wanted.directory_id]
        try:
            call = manager.move_partition(partition, topic.topic_id, target)
            self._commit(wanted, call.get(WORK_TIMEOUT_S))
        finally:
            claims = []
            with self._lock:
                # After a failed fsync nobody knows which folder counts; the next start reads it.
                if self._metadata is not None and not self._metadata.has_failed:
                    self._moving.pop(partition, None)
                    claims = self._claim([self._wanted_partition(*partition)])
            self._open(claims)
        with self._lock:
            problem = self._placement.explain(self._topic(topic.name), partition.partition)
        if problem is not None:
            raise problem

    def _commit(self, wanted: Wanted, place: Placed) -> None:
        """The commit point: from here on the partition is bound to where it was copied to."""
        partition = wanted.partition
        with self._lock:
            if partition not in self._moving:
                why = "its LogManager restarted during the move; move the partition again"
                raise NotLeader(str(partition), why)
            topic = self._same(wanted.topic)
            directories = list(topic.directories)
            directories[partition.partition] = place.directory_id
            self._log.append(topic_record(topic._replace(directories=tuple(directories))))


def _directory_id(log_dir: str, dirs: Mapping[str, str]) -> str:
    """The id of the dir that a caller means by a path or an id.

    ``dirs``: id -> path of those that the partition's node can use.
    """
    for directory_id, path in dirs.items():
        if log_dir == directory_id or os.path.normpath(log_dir) == os.path.normpath(path):
            return directory_id
    usable = ", ".join(f"{path} ({directory_id})" for directory_id, path in dirs.items())
    raise InvalidRequest(
        "log_dir", log_dir, f"is not a usable log dir of the partition's node; usable: {usable}"
    )
