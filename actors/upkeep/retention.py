"""What the RetentionActor does: it has old segments of one node's logs removed. It knows no Ray.

Each log decides for itself which of its segments are removed (``storage/retention.py``), in its own
process. This module asks those that an order names, and keeps what came of it. Compacted logs are
the CompactionActor's (``compactor.py``): their retention must not meet a round that begins. Source:
``LogManager.cleanupLogs`` of Kafka.
"""

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from raylog.actors.events import event, warn
from raylog.actors.messages import RemovedSegments, RetentionStatus
from raylog.actors.node_messages import UpkeepOrder
from raylog.actors.upkeep.orders import RememberedLogs
from raylog.storage.clock import Clock
from raylog.storage.names import TopicPartition

logger = logging.getLogger(__name__)


class Node(Protocol):
    """The logs of one node. Each answer may be an error."""

    def delete_old_segments(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, RemovedSegments | Exception]: ...


class RetentionTally:
    """What retention has done, by log."""

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self._totals = dict.fromkeys(("segments_deleted", "bytes_deleted", "busy_seconds"), 0.0)
        self._statuses: dict[TopicPartition, RetentionStatus] = {}

    def add(
        self, partition: TopicPartition, answer: RemovedSegments | Exception, now_ms: int
    ) -> bool:
        """Count a round; returns whether it failed in a way that is news."""
        before = self._statuses.get(partition)
        removed, problem = answer, None
        if isinstance(removed, Exception):
            removed, problem = RemovedSegments(0, 0, 0.0), str(answer)
        for name, value in zip(self._totals, removed, strict=True):
            self._totals[name] += value
        self._statuses[partition] = RetentionStatus(
            partition=str(partition),
            node_id=self._node_id,
            segments=removed.segments,
            size_bytes=removed.size_bytes,
            seconds=removed.seconds,
            when_ms=now_ms,
            total_segments=(before.total_segments if before else 0) + removed.segments,
            total_bytes=(before.total_bytes if before else 0) + removed.size_bytes,
            problem=problem,
        )
        return problem is not None and (before is None or before.problem != problem)

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the other logs."""
        for partition in self._statuses.keys() - {*partitions}:
            del self._statuses[partition]

    def numbers(self) -> dict[str, float]:
        """The metrics that count what was removed since this process began."""
        return {f"raylog_retention_{name}": value for name, value in self._totals.items()}

    def statuses(self) -> list[RetentionStatus]:
        return [self._statuses[partition] for partition in sorted(self._statuses)]


class Retention:
    """Rounds of retention over the logs that are not compacted."""

    def __init__(self, node: Node, node_id: str, clock: Clock) -> None:
        self._node, self._clock = node, clock
        self._lock = threading.Lock()  # of all below: ``status`` is asked while a round runs
        self._tally = RetentionTally(node_id)
        self._logs = RememberedLogs()
        self._last_round_ms: int | None = None

    def round(self, order: UpkeepOrder) -> None:
        """Ask every log of the order once."""
        logs = [ordered for ordered in order.logs if not ordered.config.is_compacted]
        with self._lock:
            self._tally.keep(self._logs.update(logs, order.others))
        partitions = [ordered.log.partition for ordered in logs]
        for partition, answer in self._node.delete_old_segments(partitions).items():
            with self._lock:
                is_news = self._tally.add(partition, answer, self._clock.now_ms())
            if is_news:
                warn(logger, "retention-failed", partition=partition, why=answer)
            elif isinstance(answer, RemovedSegments) and answer.segments:
                event(logger, "segments-removed", partition=partition, **answer._asdict())
        self._last_round_ms = self._clock.now_ms()

    def numbers(self) -> dict[str, float]:
        """The metrics of a node's retention."""
        with self._lock:
            numbers = self._tally.numbers()
        if self._last_round_ms is not None:
            numbers["raylog_retention_last_round_seconds"] = self._last_round_ms / 1000
        return numbers

    def status(self) -> list[RetentionStatus]:
        """What was done so far."""
        with self._lock:
            return self._tally.statuses()
