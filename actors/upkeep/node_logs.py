"""The logs of one node, as its CompactionActor and its RetentionActor reach them: by Ray calls.

The checkpoints, and the right to remove records, are the LogManager's; all else is asked of the
LogActors, found by their names.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from raylog.actors.control import Confirmed, LogId
from raylog.actors.errors import ConfigUnconfirmed, NotLeader
from raylog.actors.messages import RemovedSegments
from raylog.actors.runtime.calls import OPEN_TIMEOUT_S, Call, gather
from raylog.actors.runtime.names import log_manager_name
from raylog.actors.runtime.stubs import (
    LogActorStub,
    LogManagerStub,
    find_log_actor,
    find_log_manager,
)
from raylog.storage.cleaner.cleanable import LogFacts
from raylog.storage.cleaner.remote import LogView
from raylog.storage.names import TopicPartition
from raylog.storage.segment import SegmentId
from raylog.storage.swap import RoundId

Answer = TypeVar("Answer")
# How long a question to all logs of a node waits without any answer. Many logs on one slow disk may
# all answer late; logs that hang cost this once, not once each.
SILENCE_TIMEOUT_S = 120.0


class LogCalls:
    """The calls of a compaction round to its LogActor, each of which waits for the answer.

    A flush or a swap may wait for a slow disk.
    """

    def __init__(self, log: LogActorStub, confirmed: Callable[[], Confirmed]) -> None:
        """``confirmed``: asks for the right to remove records; a round may take an hour."""
        self._log, self._confirmed = log, confirmed

    def flush(self) -> None:
        self._log.flush().get(OPEN_TIMEOUT_S)

    def check_unchanged(self, segments: Sequence[SegmentId], round_id: RoundId) -> None:
        self._log.check_unchanged(segments, round_id).get()

    def replace_segments(self, old: Sequence[SegmentId], round_id: RoundId) -> None:
        swap = self._log.replace_segments(old, round_id, self._confirmed())
        swap.get(OPEN_TIMEOUT_S)


class NodeLogs:
    """See the module's head."""

    def __init__(self, namespace: str, node: str) -> None:
        """``node``: its key."""
        self._namespace, self._node = namespace, node

    # -- of the LogManager -------------------------------------------------------------------------

    def cleaner_offsets(self) -> Mapping[TopicPartition, int]:
        return self._log_manager().cleaner_offsets().get()

    def record_cleaner_offset(self, log: LogId, offset: int) -> None:
        self._log_manager().record_cleaner_offset(log, offset).get()

    def _log_manager(self) -> LogManagerStub:
        log_manager = find_log_manager(self._node, self._namespace)
        if log_manager is None:
            raise NotLeader(log_manager_name(self._node), "it is not running")
        return log_manager

    # -- of the LogActors --------------------------------------------------------------------------

    def facts(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, LogFacts | Exception]:
        asks = dict.fromkeys(partitions, LogActorStub.cleaning_facts)
        return self._ask_all(asks)

    def delete_old_segments(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, RemovedSegments | Exception]:
        rights = self._log_manager().confirmed(partitions).get() if partitions else {}
        asks: dict[TopicPartition, Callable[[LogActorStub], Call[RemovedSegments]]] = {
            partition: partial(LogActorStub.delete_old_segments, confirmed=right)
            for partition, right in rights.items()
        }
        answers: dict[TopicPartition, RemovedSegments | Exception] = {
            partition: _unconfirmed(partition)
            for partition in partitions
            if partition not in rights
        }
        asked: dict[TopicPartition, RemovedSegments | Exception] = self._ask_all(asks)
        return {**answers, **asked}

    def view(self, partition: TopicPartition) -> LogView:
        return self._log(partition).cleaning_view(self._confirmed(partition)).get()

    def calls(self, partition: TopicPartition) -> LogCalls:
        return LogCalls(self._log(partition), partial(self._confirmed, partition))

    def _confirmed(self, partition: TopicPartition) -> Confirmed:
        """The right to remove records from a log. Raises ConfigUnconfirmed."""
        right = self._log_manager().confirmed([partition]).get().get(partition)
        if right is None:
            raise _unconfirmed(partition)
        return right

    def _log(self, partition: TopicPartition) -> LogActorStub:
        log = find_log_actor(partition, self._namespace)
        if log is None:
            raise NotLeader(str(partition), "its LogActor is not running")
        return log

    def _ask_all(
        self, asks: Mapping[TopicPartition, Callable[[LogActorStub], Call[Answer]]]
    ) -> dict[TopicPartition, Answer | Exception]:
        """What each answers, or the error that it ended with."""
        calls: dict[TopicPartition, Call[Answer]] = {}
        missing: dict[TopicPartition, Exception] = {}
        for partition, ask in asks.items():
            try:
                calls[partition] = ask(self._log(partition))
            except NotLeader as error:
                missing[partition] = error
        gathered = gather(calls, SILENCE_TIMEOUT_S, from_last_answer=True)
        return {**missing, **gathered.answers, **gathered.errors}


def _unconfirmed(partition: TopicPartition) -> ConfigUnconfirmed:
    why = "the Controller has not confirmed its config to this node within the last seconds"
    return ConfigUnconfirmed(str(partition), why)
