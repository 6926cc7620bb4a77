"""When the next append begins a new segment: by size, by offsets, by time.

A fourth reason, full indexes, is the writer's to see. The clock of a segment is that of its
records, where these have timestamps; a segment without any goes by the broker's. Source:
``LogSegment.shouldRoll`` and ``RollParams`` of Kafka.
"""

import random

from raylog.storage.config import LogConfig
from raylog.storage.limits import MAX_INT, MAX_LONG
from raylog.storage.records.layout import NO_TIMESTAMP

LAST_OFFSET = MAX_LONG - 1  # of any record: behind it there must be an end


class Rolling:
    """The limits of one segment.

    ``max_bytes``, ``last_offset``, ``last_timestamp``: an append that stays within all three needs
    no other look.
    """

    def __init__(self, base_offset: int, config: LogConfig, now_ms: int) -> None:
        self.max_bytes = config.segment_bytes
        self.last_offset = min(base_offset + MAX_INT, LAST_OFFSET)
        self.last_timestamp = MAX_LONG
        self._created_ms, self._first_timestamp = now_ms, NO_TIMESTAMP
        self._jitter_ms = random.randrange(
            min(config.segment_jitter_ms, config.max_segment_ms) or 1
        )
        self._span_ms = config.max_segment_ms - self._jitter_ms

    def reconfigure(self, config: LogConfig) -> None:
        """Obey another config. The jitter stays."""
        self.max_bytes = config.segment_bytes
        self._span_ms = max(config.max_segment_ms - self._jitter_ms, 0)
        if self.last_timestamp != MAX_LONG:
            self.begin_at(self._first_timestamp)

    def begin_at(self, first_timestamp: int) -> None:
        """The segment has a first batch, with this largest timestamp; -1: it has none."""
        self._first_timestamp = first_timestamp
        is_timed = first_timestamp >= 0
        latest = min(first_timestamp + self._span_ms, MAX_LONG)
        self.last_timestamp = latest if is_timed else -MAX_LONG

    def is_due(
        self, size: int, size_bytes: int, max_timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        """Whether an append of ``size_bytes`` to the ``size`` that is there needs a new segment."""
        if size + size_bytes > self.max_bytes or last_offset > self.last_offset:
            return True
        if max_timestamp <= self.last_timestamp:
            return False
        if self._first_timestamp >= 0:
            return True
        return now_ms - self._created_ms > self._span_ms

    def is_over(self, first_timestamp: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether time would part a first batch of this timestamp from a later one of that."""
        if first_timestamp >= 0:
            return max_timestamp > first_timestamp + self._span_ms
        return now_ms - self._created_ms > self._span_ms
