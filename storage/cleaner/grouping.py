"""Which neighbouring segments become one, so that compaction leaves no small segments behind.

A group grows while its files stay within ``segment.bytes`` and ``segment.index.bytes``, measured
before cleaning, and while its last offset can be told from its first segment's base by an int32.
The first segment of a group is taken whatever its size. Source: ``Cleaner.groupSegmentsBySize`` of
Kafka.
"""

from collections.abc import Iterable
from typing import NamedTuple

from raylog.storage.config import LogConfig
from raylog.storage.limits import MAX_INT


class SegmentSizes(NamedTuple):
    """What grouping needs to know of a segment."""

    base_offset: int
    end_offset: int  # where the next one begins
    size_bytes: int
    index_bytes: int
    time_index_bytes: int


def group_segments(segments: Iterable[SegmentSizes], config: LogConfig) -> list[list[SegmentSizes]]:
    """The segments, in order, in groups."""
    groups: list[list[SegmentSizes]] = []
    for segment in segments:
        if groups and _fits(groups[-1], segment, config):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(group: list[SegmentSizes], segment: SegmentSizes, config: LogConfig) -> bool:
    together = [*group, segment]
    return (
        sum(part.size_bytes for part in together) <= config.segment_bytes
        and sum(part.index_bytes for part in together) <= config.segment_index_bytes
        and sum(part.time_index_bytes for part in together) <= config.segment_index_bytes
        and (not segment.size_bytes or segment.end_offset - 1 - group[0].base_offset <= MAX_INT)
    )
