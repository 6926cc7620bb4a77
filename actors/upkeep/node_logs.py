"""The logs of one node, as its CompactionActor and its RetentionActor reach them: by Ray calls.

What is hosted, and the checkpoints, are the LogManager's; all else is asked of the LogActors, found
by their names.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from raylog.actors.errors import NotLeader
from raylog.actors.messages import Hosted, RemovedSegments
from raylog.actors.runtime.calls import OPEN_TIMEOUT_S, find, wait_for
from raylog.actors.runtime.names import log_actor_name, log_manager_name
from raylog.storage.cleaner.cleanable import LogFacts
from raylog.storage.cleaner.remote import LogView
from raylog.storage.log import RoundId
from raylog.storage.names import TopicPartition
from raylog.storage.segment import SegmentId


class LogDoor:
    """The calls of a round to its LogActor: a ``LogOwner``. A flush or a swap may wait for a slow
    disk."""

    def __init__(self, partition: TopicPartition, handle: Any) -> None:
        self._handle, self._name = handle, str(partition)

    def flush(self) -> None:
        wait_for(self._handle.flush.remote(), self._name, OPEN_TIMEOUT_S)

    def check_unchanged(self, segments: Sequence[SegmentId], round_id: RoundId) -> None:
        wait_for(self._handle.check_unchanged.remote(segments, round_id), self._name)

    def replace_segments(self, old: Sequence[SegmentId], round_id: RoundId) -> None:
        wait_for(self._handle.replace_segments.remote(old, round_id), self._name, OPEN_TIMEOUT_S)


class NodeLogs:
    """See the module's head."""

    def __init__(self, namespace: str, node: str) -> None:
        """``node``: its key."""
        self._namespace, self._node = namespace, node

    # -- of the LogManager -------------------------------------------------------------------------

    def hosted(self) -> list[Hosted]:
        return list(self._ask_manager("hosted"))

    def cleaner_offsets(self) -> Mapping[TopicPartition, int]:
        return dict(self._ask_manager("cleaner_offsets"))

    def cleaned(self, partition: TopicPartition, topic_id: str, offset: int) -> None:
        self._ask_manager("cleaned", partition, topic_id, offset)

    def _ask_manager(self, method: str, *arguments: Any) -> Any:
        name = log_manager_name(self._node)
        handle = find(name, self._namespace)
        if handle is None:
            raise NotLeader(name, "it does not run")
        return wait_for(getattr(handle, method).remote(*arguments), name)

    # -- of the LogActors --------------------------------------------------------------------------

    def facts(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, LogFacts | Exception]:
        return self._ask_all(partitions, lambda handle: handle.cleaning_facts.remote())

    def delete_old_segments(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, RemovedSegments | Exception]:
        return self._ask_all(partitions, lambda handle: handle.delete_old_segments.remote())

    def view(self, partition: TopicPartition) -> LogView:
        found: LogView = wait_for(self._log(partition).cleaning_view.remote(), str(partition))
        return found

    def door(self, partition: TopicPartition) -> LogDoor:
        return LogDoor(partition, self._log(partition))

    def _log(self, partition: TopicPartition) -> Any:
        handle = find(log_actor_name(partition), self._namespace)
        if handle is None:
            raise NotLeader(str(partition), "its LogActor does not run")
        return handle

    def _ask_all(
        self, partitions: Sequence[TopicPartition], call: Callable[[Any], Any]
    ) -> dict[TopicPartition, Any]:
        """What each answers, or the error that it ended with."""
        pending: dict[TopicPartition, Any] = {}
        answers: dict[TopicPartition, Any] = {}
        for partition in partitions:
            try:
                pending[partition] = call(self._log(partition))
            except NotLeader as error:
                answers[partition] = error
        for partition, reference in pending.items():
            try:
                answers[partition] = wait_for(reference, str(partition))
            except Exception as error:
                answers[partition] = error
        return answers
