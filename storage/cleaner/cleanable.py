"""Which log to compact, from where to where, and whether now: decisions without a disk.

::

    first segment   first dirty offset            bound            log end
       |  clean          |  cleanable               |  not yet        |
    [ segment ][ segment ][ segment ][ segment ][ segment ][ active   ]

*First dirty offset*: where the last round ended (``cleaner-offset-checkpoint``). It may lie below
the log start offset. A crash may take that back as far as the first segment. Then a record must not
come back without what followed it: a newer one of its key, or a tombstone. *Bound*: the base of the
first segment that must not be touched: it is active, or holds records of undecided
transactions, or records younger than ``min.compaction.lag.ms``. A log is due when the cleanable
bytes are more than ``min.cleanable.dirty.ratio`` of the clean and the cleanable, or when a dirty
record is older than ``max.compaction.lag.ms``. Source: ``LogCleanerManager`` of Kafka.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from raylog.storage.config import LogConfig
from raylog.storage.errors import CleaningAborted, CorruptIndex, CorruptRecord, StorageError
from raylog.storage.log import Log
from raylog.storage.records.layout import NO_TIMESTAMP
from raylog.storage.segment import Segment
from raylog.storage.wire import message

LogName = TypeVar("LogName")


class SegmentTimes(NamedTuple):
    """What the choice needs to know of a segment."""

    base_offset: int
    size_bytes: int
    largest_timestamp: int  # the file's mtime where records have none
    first_timestamp: int  # of the first batch; -1: none


@message
class LogFacts(NamedTuple):
    """What the choice needs to know of a log.

    Its last segment is the active one, whose times do not matter.
    """

    segments: Sequence[SegmentTimes]
    log_end_offset: int
    last_stable_offset: int


class Cleanable(NamedTuple):
    """What a round would do to a log."""

    first_dirty_offset: int
    bound: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int = 0  # for how long the log has been due by max.compaction.lag.ms

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


def facts_of(log: Log) -> LogFacts:
    """The facts of a log, read from its files.

    Any thread may ask. Raises CleaningAborted if a file was taken meanwhile.
    """
    stable, segments = log.last_stable_offset, log.segments
    try:
        sealed = [_times(segment) for segment in segments[:-1]]
    except (StorageError, CorruptRecord, CorruptIndex):
        if segments is log.segments:
            raise
        raise CleaningAborted(
            str(log.partition), "its segments changed while their state was read"
        ) from None
    active = SegmentTimes(
        base_offset=segments[-1].base_offset,
        size_bytes=segments[-1].size,
        largest_timestamp=NO_TIMESTAMP,
        first_timestamp=NO_TIMESTAMP,
    )
    return LogFacts(
        segments=(*sealed, active),
        log_end_offset=log.log_end_offset,
        last_stable_offset=stable,
    )


def _times(segment: Segment) -> SegmentTimes:
    times = segment.largest_timestamp, segment.first_timestamp
    return SegmentTimes(segment.base_offset, segment.size, *times)


def first_dirty_offset(checkpoint: int | None, log: LogFacts) -> int:
    """Where the next round begins.

    It differs from a checkpoint that is out of range. The caller then writes it down.

    The log start offset does not count: a crash may take it back as far as the first segment.
    """
    first = log.segments[0].base_offset
    if checkpoint is None or not first <= checkpoint <= log.log_end_offset:
        return first
    return checkpoint


def cleanable(log: LogFacts, checkpoint: int | None, config: LogConfig, now_ms: int) -> Cleanable:
    """What a round would do now."""
    dirty = first_dirty_offset(checkpoint, log)
    uncleanable = max(dirty, _first_uncleanable(log, dirty, config, now_ms))
    bound = _floor_base(log, uncleanable)
    sealed = log.segments[:-1]
    clean_bytes = sum(segment.size_bytes for segment in sealed if segment.base_offset < dirty)
    begin = _floor_base(log, min(dirty, bound))
    cleanable_bytes = sum(
        segment.size_bytes for segment in sealed if begin <= segment.base_offset < bound
    )
    overdue_ms = _overdue_ms(
        [segment for segment in sealed if segment.base_offset >= begin], config, now_ms
    )
    return Cleanable(
        first_dirty_offset=dirty,
        bound=bound,
        clean_bytes=clean_bytes,
        cleanable_bytes=cleanable_bytes,
        overdue_ms=overdue_ms,
    )


def _first_uncleanable(log: LogFacts, dirty: int, config: LogConfig, now_ms: int) -> int:
    bound = min(log.last_stable_offset, log.segments[-1].base_offset)
    if config.min_compaction_lag_ms <= 0:
        return bound
    young = (
        segment.base_offset
        for segment in log.segments[:-1]
        if segment.base_offset >= _floor_base(log, dirty)
        and segment.largest_timestamp > now_ms - config.min_compaction_lag_ms
    )
    return min(bound, next(young, bound))


def _floor_base(log: LogFacts, offset: int) -> int:
    """The base of the segment that holds ``offset``: a round never takes a part of a segment."""
    bases = [segment.base_offset for segment in log.segments]
    return max((base for base in bases if base <= offset), default=bases[0])


def _overdue_ms(dirty: Sequence[SegmentTimes], config: LogConfig, now_ms: int) -> int:
    times = [segment.first_timestamp for segment in dirty if segment.first_timestamp > 0]
    return max(0, now_ms - config.max_compaction_lag_ms - min(times)) if times else 0


def is_due(candidate: Cleanable, config: LogConfig) -> bool:
    """Whether a round is to be made now."""
    if candidate.overdue_ms > 0 and candidate.cleanable_bytes > 0:
        return True
    return candidate.dirty_ratio > config.min_cleanable_dirty_ratio


def filthiest(due: Mapping[LogName, Cleanable]) -> LogName | None:
    """Of the logs that are due the one to begin with: the one of the greatest dirty ratio."""
    return max(due, key=lambda name: due[name].dirty_ratio, default=None)
