"""What the RetentionActor does: old segments of the logs of one node go, on Kafka's interval. It
knows no Ray.

Each log decides for itself which of its segments go (``storage/retention.py``), in its own process;
here is when it is asked, and what came of it. Compacted logs are the CompactionActor's
(``compactor.py``): their retention must not meet a round that begins. Source:
``LogManager.cleanupLogs`` of Kafka.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from raylog.actors.events import event, warn
from raylog.actors.messages import Hosted, RemovedSegments, RetentionStatus
from raylog.storage.clock import Clock
from raylog.storage.names import TopicPartition

logger = logging.getLogger(__name__)


class Node(Protocol):
    """The logs of one node. Each answer may be an error."""

    def hosted(self) -> list[Hosted]: ...
    def delete_old_segments(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, RemovedSegments | Exception]: ...


class RetentionTally:
    """What retention has done, by log."""

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self._totals = dict.fromkeys(("segments_deleted", "bytes_deleted", "busy_seconds"), 0.0)
        self._known: dict[TopicPartition, RetentionStatus] = {}

    def add(
        self, partition: TopicPartition, answer: RemovedSegments | Exception, now_ms: int
    ) -> bool:
        """Count a round; returns whether it failed in a way that is news."""
        before = self._known.get(partition)
        segments, size_bytes = (before.total_segments, before.total_bytes) if before else (0, 0)
        is_error = isinstance(answer, Exception)
        done = RemovedSegments(0, 0, 0.0) if isinstance(answer, Exception) else answer
        for name, value in zip(self._totals, done, strict=True):
            self._totals[name] += value
        problem = str(answer) if is_error else None
        self._known[partition] = RetentionStatus(
            str(partition),
            self._node_id,
            *done,
            now_ms,
            segments + done.segments,
            size_bytes + done.size_bytes,
            problem,
        )
        return is_error and (before is None or before.problem != problem)

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the logs that are no longer here."""
        self._known = {one: known for one, known in self._known.items() if one in partitions}

    def numbers(self) -> dict[str, float]:
        """The metrics that count what went, since this process began."""
        return {f"raylog_retention_{name}": value for name, value in self._totals.items()}

    def statuses(self) -> list[RetentionStatus]:
        return [self._known[partition] for partition in sorted(self._known)]


class Retention:
    """Rounds of retention over the logs that are not compacted."""

    def __init__(self, node: Node, node_id: str, clock: Clock) -> None:
        self._node, self._clock = node, clock
        self._tally = RetentionTally(node_id)
        self._last_round_ms: int | None = None

    def round(self) -> None:
        """Ask every log once."""
        hosted = [one.partition for one in self._node.hosted() if not one.config.is_compacted]
        self._tally.keep(hosted)
        for partition, answer in self._node.delete_old_segments(hosted).items():
            if self._tally.add(partition, answer, self._clock.now_ms()):
                warn(logger, "retention-failed", partition=partition, why=answer)
            elif isinstance(answer, RemovedSegments) and answer.segments:
                event(logger, "segments-removed", partition=partition, **answer._asdict())
        self._last_round_ms = self._clock.now_ms()

    def numbers(self) -> dict[str, float]:
        """The metrics of a node's retention."""
        known = self._tally.numbers()
        if self._last_round_ms is not None:
            known["raylog_retention_last_round_seconds"] = self._last_round_ms / 1000
        return known

    def status(self) -> list[RetentionStatus]:
        """What was done so far."""
        return self._tally.statuses()
