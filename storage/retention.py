"""Which old segments may go: a decision over sizes and times, made without touching a disk.

Kafka's order: segments wholly below the log start offset, then by size, then by time, both only
where ``cleanup.policy`` has delete; each pass walks from the oldest segment and stops at the first
that stays. Size never takes a log below ``retention.bytes``. Source:
``UnifiedLog.deleteOldSegments`` of Kafka.
"""

from collections.abc import Sequence
from typing import NamedTuple

from raylog.storage.config import LogConfig


class SegmentFacts(NamedTuple):
    """What retention needs to know of a segment."""

    end_offset: int
    size_bytes: int
    largest_timestamp: int


def segments_to_delete(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> int:
    """How many segments from the oldest on may go.

    The last segment counts too, but an empty last segment never goes.
    """
    movable = 0
    for segment in segments:
        if segment.end_offset > high_watermark or (
            segment is segments[-1] and not segment.size_bytes
        ):
            break
        movable += 1
    passed = 0
    for segment in segments[: min(movable, len(segments) - 1)]:
        if segment.end_offset > log_start_offset:
            break
        passed += 1
    if not config.is_deleted:
        return passed
    passed += _over_size(
        segments[passed:movable], sum(s.size_bytes for s in segments[passed:]), config
    )
    return passed + _over_time(segments[passed:movable], config, now_ms)


def _over_size(candidates: Sequence[SegmentFacts], total_bytes: int, config: LogConfig) -> int:
    if config.retention_bytes < 0:
        return 0
    excess, count = total_bytes - config.retention_bytes, 0
    for segment in candidates:
        if excess < segment.size_bytes:
            break
        excess -= segment.size_bytes
        count += 1
    return count


def _over_time(candidates: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> int:
    if config.retention_ms < 0:
        return 0
    count = 0
    for segment in candidates:
        if now_ms - segment.largest_timestamp <= config.retention_ms:
            break
        count += 1
    return count
