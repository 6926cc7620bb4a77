"""Rewrites a group of segments to one, ``<base offset>.log.cleaned`` with its indexes.

All of it is on the disk at the end.

Nothing else is touched: until the log puts the cleaned segment in the place of its sources, a crash
or an error costs only the work. The cleaned segment's last batch ends where the last of its sources
ended, if need be as a header without records. So the offsets that a cleaned segment covers can be
read from its file, which recovery relies on, and two neighbouring segments still meet, whose gap
would else look like a lost tail.

**A group** is made of neighbours, so that compaction leaves no small segments behind. It grows
while its files stay within ``segment.bytes`` and ``segment.index.bytes``, measured before cleaning,
and while its last offset can be told from its first segment's base by an int32. The first segment
of a group is taken whatever its size.

Source: ``Cleaner.groupSegmentsBySize``, ``cleanSegments`` and ``cleanInto`` of Kafka; the last
batch of a cleaned segment is ours.
"""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from raylog.storage.buffers import Buffer
from raylog.storage.cleaner.reading import Pace, read_batches
from raylog.storage.cleaner.retention import Rules, clean_chunk
from raylog.storage.config import LogConfig
from raylog.storage.files import FileSystem
from raylog.storage.indexes.builder import IndexBuilder
from raylog.storage.indexes.transaction_index import AbortedTransaction, TransactionIndex
from raylog.storage.limits import MAX_INT
from raylog.storage.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
)
from raylog.storage.records.batch import BatchHeader, empty_batch
from raylog.storage.records.layout import AT_MAX_TIMESTAMP, LOG_APPEND_TIME, TIMESTAMP
from raylog.storage.segment import SUFFIXES, Segment
from raylog.storage.state.producers import NO_PRODUCER


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


class CleanedSegment:
    """The files of a cleaned segment while they are written."""

    def __init__(self, fs: FileSystem, folder: str, base_offset: int, config: LogConfig) -> None:
        self._fs, self._base_offset = fs, base_offset
        self._paths = [
            os.path.join(folder, segment_file(base_offset, own) + CLEANED_SUFFIX)
            for own in SUFFIXES
        ]
        self.remove()
        self._log = fs.open(self._path(LOG_SUFFIX), create=True)
        self._entries = IndexBuilder(base_offset, config.index_interval_bytes)
        self._pending: list[Buffer] = []
        self._position = 0

    def _path(self, suffix: str) -> str:
        return self._paths[SUFFIXES.index(suffix)]

    def add(self, batch: Buffer, last_offset: int) -> None:
        """The next batch; it is written with the others of its chunk."""
        (max_timestamp,) = TIMESTAMP.unpack_from(batch, AT_MAX_TIMESTAMP)
        self._entries.add(self._position, last_offset, max_timestamp)
        self._pending.append(batch)
        self._position += len(batch)

    def write(self) -> int:
        """Write what was added; returns its bytes."""
        content = b"".join(self._pending)
        self._pending.clear()
        if content:
            self._log.append([content])
        return len(content)

    def finish(self, aborted: Sequence[AbortedTransaction], mtime_ms: int) -> None:
        """Write the indexes; return when all is on the disk.

        They include the aborted transactions whose markers are in this segment.
        """
        self.write()
        self._log.flush()
        self._log.close()
        self._fs.write_file(self._path(INDEX_SUFFIX), bytes(self._entries.offsets))
        self._fs.write_file(self._path(TIME_INDEX_SUFFIX), self._entries.times())
        if aborted:
            index = TransactionIndex(self._fs, self._path(TXN_INDEX_SUFFIX), self._base_offset)
            index.replace(aborted)
        self._fs.set_mtime_ms(self._path(LOG_SUFFIX), mtime_ms)

    def remove(self) -> None:
        """Take the files away, those of an earlier attempt too."""
        for path in self._paths:
            self._fs.remove(path)


def rewrite_group(
    fs: FileSystem,
    sources: Sequence[tuple[Segment, int]],
    rules: Rules,
    chunk_bytes: int,
    pace: Pace,
) -> CleanedSegment:
    """Write what the rules leave of ``sources`` as one cleaned segment.

    It has the base offset of the first source.

    ``sources``: each with the next one's base offset.
    """
    first, last = sources[0][0], sources[-1][0]
    cleaned = CleanedSegment(fs, first.folder, first.base_offset, first.config)
    try:
        lost: BatchHeader | None = None
        for source, end in sources:
            lost = _rewrite(source, end, cleaned, lost, rules, chunk_bytes, pace)
        if lost is not None:
            cleaned.add(placeholder(lost), lost.last_offset)
            rules.tally.bytes_written += cleaned.write()
        cleaned.finish(rules.transactions.take_kept(), fs.mtime_ms(last.path))
        return cleaned
    except BaseException:
        cleaned.remove()
        raise


def _rewrite(
    source: Segment,
    end: int,
    cleaned: CleanedSegment,
    lost: BatchHeader | None,
    rules: Rules,
    chunk_bytes: int,
    pace: Pace,
) -> BatchHeader | None:
    """Returns the last batch met, if nothing is left of it."""
    for chunk, headers in read_batches(source, 0, source.base_offset, end, chunk_bytes):
        for header, left in clean_chunk(chunk, headers, rules):
            lost = header
            if left is not None:
                cleaned.add(left, header.last_offset)
                lost = None
        written = cleaned.write()
        rules.tally.bytes_read += len(chunk)
        rules.tally.bytes_written += written
        pace(len(chunk) + written)
    return lost


def placeholder(lost: BatchHeader) -> Buffer:
    """A batch with offsets alone: no record, time, producer or transaction."""
    return empty_batch(
        lost._replace(
            attributes=lost.attributes & LOG_APPEND_TIME,
            max_timestamp=-1,
            producer_id=NO_PRODUCER,
            producer_epoch=-1,
            base_sequence=-1,
        )
    )
