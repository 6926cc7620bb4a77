"""One round of compaction over one log: read the dirty section's keys, then rewrite from the log's begin.

::

    1  build_offset_map   first dirty offset ... bound, or until the map is full: the round's end offset
    2  flush              all that the map speaks of, since older records are about to go because of it
    3  group by group     rewrite to .cleaned, swap; the log is whole at every moment
    4  the end offset     is the next first dirty offset: the caller writes it down

Reads and appends go on meanwhile; only the swap needs the log's one writer. A round that is cut short, by an
error, a crash or ``pace``, leaves groups of segments either as they were or cleaned: the next round begins at
the same offset and does no harm to what is clean. Groups are swapped in order, so an old value of a key is
gone before its tombstone is. Source: ``Cleaner.doClean`` of Kafka.
"""

from collections.abc import Sequence
from typing import NamedTuple

from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.grouping import SegmentSizes, group_segments
from raylog.storage.cleaner.offset_map import OffsetMap
from raylog.storage.cleaner.reading import Pace, read_batches, read_chunks
from raylog.storage.cleaner.retention import Rules, Tally
from raylog.storage.cleaner.rewrite import rewrite_group
from raylog.storage.cleaner.transactions import TransactionTracker
from raylog.storage.clock import Clock
from raylog.storage.config import BrokerConfig
from raylog.storage.errors import CleaningAborted, StorageError
from raylog.storage.files import FileSystem
from raylog.storage.log import Log
from raylog.storage.records.batch import HEADER_SIZE
from raylog.storage.records.compression import decompress
from raylog.storage.segment import Segment

# Below this a chunk is mostly system calls. Kafka's default of 512 KiB makes chunks of 256 KiB.
MIN_CHUNK_BYTES = 4096


class Buffers(NamedTuple):
    """What one compaction may take of memory."""

    dedupe_bytes: int
    load_factor: float
    chunk_bytes: int

    @classmethod
    def of(cls, config: BrokerConfig) -> "Buffers":
        """The share of one of ``log.cleaner.threads``; half of the I/O buffer is for writing."""
        threads = max(config.log_cleaner_threads, 1)
        return cls(
            config.log_cleaner_dedupe_buffer_size // threads,
            config.log_cleaner_io_buffer_load_factor,
            max(config.log_cleaner_io_buffer_size // threads // 2, MIN_CHUNK_BYTES),
        )


class Cleaned(NamedTuple):
    """What a round did."""

    end_offset: int  # the next first dirty offset
    map_bytes_read: int
    map_records_read: int
    map_keys: int
    map_utilization: float  # 0 to 1
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    records_without_key: int
    elapsed_ms: int


def no_pace(_: int) -> None:
    """Go on, as fast as it goes."""


def clean(
    fs: FileSystem,
    clock: Clock,
    log: Log,
    section: Cleanable,
    buffers: Buffers,
    *,
    pace: Pace = no_pace,
) -> Cleaned:
    """Make one round over ``log``. ``section``: as ``cleanable`` found it.

    Raises what ``pace`` raises, CorruptRecord, StorageError, or CleaningAborted where retention took segments
    meanwhile; what was swapped by then stays.
    """
    now_ms, segments = clock.now_ms(), log.segments
    ends = [segment.base_offset for segment in segments[1:]]
    sealed = list(zip(segments[:-1], ends, strict=True))
    # Of all segments: what begins below the bound may have been aborted behind it.
    aborted = [entry for segment in segments for entry in segment.txn_index.entries]
    from_dirty = [entry for entry in aborted if entry.last_offset >= section.first_dirty_offset]
    reading = Tally()
    offsets = OffsetMap(
        buffers.dedupe_bytes, buffers.load_factor, section.bound - section.first_dirty_offset + 1
    )
    dirty = [(segment, end) for segment, end in sealed if section.first_dirty_offset < end <= section.bound]
    build_offset_map(
        offsets,
        dirty,
        section.first_dirty_offset,
        TransactionTracker(from_dirty),
        buffers.chunk_bytes,
        reading,
        pace,
    )
    end_offset = offsets.latest_offset + 1
    log.flush(end_offset)
    rules = Rules(
        offsets,
        TransactionTracker(aborted),
        log.last_records(),
        now_ms,
        log.config.delete_retention_ms,
        Tally(),
    )
    by_base = {segment.base_offset: segment for segment in segments}
    sizes = [_sizes(segment, end) for segment, end in sealed if segment.base_offset < end_offset]
    for group in group_segments(sizes, log.config):
        bases = [part.base_offset for part in group]
        _replace(fs, log, [by_base[base] for base in bases], rules, buffers.chunk_bytes, pace)
    done = rules.tally
    return Cleaned(
        end_offset,
        reading.bytes_read,
        reading.records_read,
        len(offsets),
        offsets.utilization,
        done.bytes_read,
        done.bytes_written,
        done.records_read,
        done.records_kept,
        done.records_without_key,
        clock.now_ms() - now_ms,
    )


def build_offset_map(
    offsets: OffsetMap,
    segments: Sequence[tuple[Segment, int]],
    start_offset: int,
    transactions: TransactionTracker,
    chunk_bytes: int,
    tally: Tally,
    pace: Pace,
) -> None:
    """Put the keys of ``segments`` (each with the next one's base) from ``start_offset`` on into the map.

    Stops when the map is full, in the middle of a batch if need be: ``latest_offset`` tells where.
    """
    offsets.latest_offset = start_offset - 1
    for segment, end in segments:
        found = segment.find_batch(start_offset)
        for chunk in read_chunks(segment, found[0], chunk_bytes) if found else ():
            tally.bytes_read += len(chunk)
            pace(len(chunk))
            if not _put_chunk(offsets, chunk, start_offset, transactions, tally):
                return
        offsets.latest_offset = end - 1


def _put_chunk(
    offsets: OffsetMap, chunk: memoryview, start_offset: int, transactions: TransactionTracker, tally: Tally
) -> bool:
    """False if the map is full."""
    for batch, header in read_batches(chunk):
        tally.records_read += header.count
        if not transactions.is_discardable(header, batch) and not header.is_control and header.count:
            plain = decompress(header.codec, batch[HEADER_SIZE:])
            last, _, is_full = offsets.table.put_records(
                plain, header.count, header.base_offset, start_offset
            )
            offsets.latest_offset = max(offsets.latest_offset, last)
            if is_full:
                return False
        offsets.latest_offset = max(offsets.latest_offset, header.last_offset)
    return True


def _sizes(segment: Segment, end: int) -> SegmentSizes:
    return SegmentSizes(
        segment.base_offset,
        end,
        segment.size,
        segment.offset_index.size_bytes,
        segment.time_index.size_bytes,
    )


def _replace(
    fs: FileSystem, log: Log, sources: Sequence[Segment], rules: Rules, chunk_bytes: int, pace: Pace
) -> None:
    try:
        rewrite_group(fs, sources, rules, chunk_bytes, pace)
    except StorageError:
        if {*sources} <= {*log.segments}:
            raise
        raise CleaningAborted(str(log.partition), "retention took segments that it was reading") from None
    log.replace_segments(sources[0].base_offset, [source.base_offset for source in sources])
