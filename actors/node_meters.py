"""The metrics of a node's helpers, made from the statuses that they keep anyway.

A status tells of the last round of a log. Each is counted once, by the time of its end: whoever exports does so after
every round.
"""

from collections.abc import Iterable

from raylog.actors.messages import CompactionStatus, RetentionStatus
from raylog.actors.metrics import Exporter


class RoundMeters:
    """Counts the rounds of one actor."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._counted: dict[str, int] = {}  # partition -> when its last round ended that was counted

    def compaction(self, statuses: Iterable[CompactionStatus]) -> None:
        """After a turn of a CompactionActor."""
        known = list(statuses)
        for status in known:
            done = status.last_round
            if done is not None and self._is_new(status.partition, done.when_ms):
                self._exporter.add("raylog_compaction_rounds", 1)
                self._exporter.add("raylog_compaction_bytes_read", done.bytes_before)
                self._exporter.add("raylog_compaction_bytes_written", done.bytes_after)
                self._exporter.add("raylog_compaction_records_dropped", done.records_dropped)
                self._exporter.add("raylog_compaction_busy_seconds", done.seconds)
                self._exporter.gauge("raylog_compaction_last_round_seconds", done.when_ms / 1000)
        if known:
            dirtiest = max(status.dirty_ratio for status in known)
            self._exporter.gauge("raylog_compaction_max_dirty_ratio", dirtiest)
            overdue_ms = max(status.overdue_ms for status in known)
            self._exporter.gauge("raylog_compaction_lag_seconds", max(overdue_ms, 0) / 1000)
        uncleanable = sum(status.uncleanable is not None for status in known)
        self._exporter.gauge("raylog_compaction_uncleanable", uncleanable)

    def retention(self, statuses: Iterable[RetentionStatus]) -> None:
        """After a round of retention over all logs of an actor."""
        for status in statuses:
            if self._is_new(status.partition, status.when_ms):
                self._exporter.add("raylog_retention_segments_deleted", status.segments)
                self._exporter.add("raylog_retention_bytes_deleted", status.size_bytes)
                self._exporter.add("raylog_retention_busy_seconds", status.seconds)
                self._exporter.gauge("raylog_retention_last_round_seconds", status.when_ms / 1000)

    def _is_new(self, partition: str, when_ms: int) -> bool:
        is_new = self._counted.get(partition) != when_ms
        self._counted[partition] = when_ms
        return is_new
