"""What a truncation does to a log's segments and producers. The log carries it out.

A whole batch goes, so the records may end, and after a crash the log, before the new end.
"""

from collections.abc import Sequence
from typing import NamedTuple

from raylog.storage.files import FileSystem
from raylog.storage.readable import floor_of
from raylog.storage.replay import replay
from raylog.storage.segment import Segment
from raylog.storage.state.producers import ProducerStates


class Cut(NamedTuple):
    """Where a log is cut."""

    records_end: int  # where its records end then, at its new end or before
    is_whole: bool  # no segment stays


def plan(segments: Sequence[Segment], offset: int, *, is_whole: bool) -> Cut:
    """The cut that makes ``offset`` the log's end. Below the first segment everything goes."""
    is_whole = is_whole or offset < segments[0].base_offset
    holder = segments[floor_of(segments, offset)]
    end = holder.base_offset if is_whole else holder.end_before(offset)
    return Cut(min(end, offset), is_whole)


def in_order(gone: Sequence[Segment], offset: int) -> list[Segment]:
    """From both ends towards the offset: whatever a crash leaves has no hole."""
    below = [segment for segment in gone if segment.base_offset < offset]
    above = [segment for segment in gone if segment.base_offset >= offset]
    return [*below, *reversed(above)]


def producers_at(
    fs: FileSystem,
    folder: str,
    partition: str,
    segments: Sequence[Segment],
    start: int,
    end: int,
    now_ms: int,
) -> ProducerStates:
    """The producers as of the log's new end: from the newest snapshot, and the batches behind."""
    producers = ProducerStates(partition)
    producers.load_newest(fs, folder, end, now_ms)
    replay(producers, segments, start, end, now_ms)
    return producers
