"""The Controller's move of a partition to another log dir of its node, while it is read and
written.

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
from typing import Any

import ray

from raylog.actors.errors import InvalidRequest, NotLeader, UnknownTopicOrPartition
from raylog.actors.node.dirs import Placed
from raylog.actors.runtime.calls import WORK_TIMEOUT_S, wait_for
from raylog.cluster.controller.metadata import Topic, topic_record
from raylog.cluster.controller.placement import (
    BEING_OPENED,
    PartitionDescription,
    Wanted,
    wanted_of,
)
from raylog.cluster.controller.topics import Topics

logger = logging.getLogger(__name__)

# Each holds a thread until it is over.
MOVES_AT_ONCE = 4


class Moves(Topics):
    """The Controller's methods for moves."""

    @ray.method(concurrency_group="move")
    def move_partition(self, name: str, number: int, log_dir: str) -> PartitionDescription:
        """Move a partition to another log dir of its node, a path or directory id; returns when it
        serves there.

        Fine if it is there already. Raises UnknownTopicOrPartition, InvalidRequest (no such dir on
        its node), TopicBusy, NoRoom, or what kept the disk from it; then it serves on where it was.
        """
        with self._reserve(name, "moved"):
            with self._lock:
                one = self._wanted_one(name, number)
                manager = self._manager_of(one.directory_id)
                problem = self._placement.explain(one.topic, number)
            if manager is None:
                raise problem or NotLeader(str(one.partition), "its node is away")
            target = _directory_id(log_dir, wait_for(manager.start.remote(), "the log dirs"))
            if target != one.directory_id:
                self._move(one, manager, target)
            return self.describe_topic(name).partitions[number]

    def _wanted_one(self, name: str, number: object) -> Wanted:
        wanted = wanted_of([self._topic(name)])
        if not isinstance(number, int) or not 0 <= number < len(wanted):
            raise UnknownTopicOrPartition(name, number, f"the topic has {len(wanted)} partitions")
        return wanted[number]

    def _move(self, one: Wanted, manager: Any, target: str) -> None:
        with self._lock:
            if self._is_claimed(one):
                raise NotLeader(str(one.partition), BEING_OPENED)
            self._moving[one.partition] = self._placement.node_of[one.directory_id]
        try:
            call = manager.move_partition.remote(one.partition, one.topic.topic_id, target)
            place: Placed = wait_for(call, f"moving {one.partition}", WORK_TIMEOUT_S)
            self._commit(one, place)
        finally:
            claims = []
            with self._lock:
                # After an fsync that failed nobody knows which folder counts; the next start reads
                # it.
                if self._metadata is not None and not self._metadata.has_failed:
                    self._moving.pop(one.partition, None)
                    claims = self._claim([self._wanted_one(*one.partition)])
            self._open(claims)
        with self._lock:
            problem = self._placement.explain(self._topic(one.topic.name), one.partition.partition)
        if problem is not None:
            raise problem

    def _commit(self, one: Wanted, place: Placed) -> Topic:
        with self._lock:
            if one.partition not in self._moving:
                raise NotLeader(
                    str(one.partition), "its LogManager was started again in the middle of the move"
                )
            topic = self._same(one.topic)
            directories = list(topic.directories)
            directories[one.partition.partition] = place.directory_id
            moved = topic._replace(directories=tuple(directories))
            self._log.append(topic_record(moved))
            return moved


def _directory_id(log_dir: str, dirs: dict[str, str]) -> str:
    """The id of a dir that a caller means; ``dirs``: id -> path of those that his partition's node
    can use."""
    for directory_id, path in dirs.items():
        if log_dir == directory_id or os.path.normpath(log_dir) == os.path.normpath(path):
            return directory_id
    known = ", ".join(f"{path} ({directory_id})" for directory_id, path in dirs.items())
    raise InvalidRequest(
        "log_dir", log_dir, f"is none that the partition's node can use; these are: {known}"
    )
