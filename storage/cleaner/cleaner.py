"""One round of compaction over one log: map the dirty section's keys, then rewrite the log.

::

    1  build_offset_map   from the first dirty offset to the bound, or until the map is full:
                          that is the round's end offset
    2  flush              all of the log: older records are about to go because of what it says,
                          and whether a transaction counts may be said far behind it
    3  group by group     rewrite to .cleaned, swap; the log is whole at every moment
    4  the end offset     is the next first dirty offset: the caller writes it down

Reads and appends go on meanwhile; only the swap needs the log's one writer. A round that is cut
short, by an error, a crash or ``pace``, leaves groups of segments either as they were or cleaned:
the next round begins at the same offset and does no harm to what is clean. Groups are swapped in
order, so an old value of a key is gone before its tombstone is. Source: ``Cleaner.doClean`` of
Kafka.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.offset_map import OffsetMap, build_offset_map
from raylog.storage.cleaner.reading import Pace, Tally
from raylog.storage.cleaner.retention import Rules
from raylog.storage.cleaner.rewrite import SegmentSizes, group_segments, rewrite_group
from raylog.storage.cleaner.transactions import TransactionTracker
from raylog.storage.clock import Clock
from raylog.storage.config import LogConfig
from raylog.storage.errors import CleaningAborted, CorruptIndex, CorruptRecord, StorageError
from raylog.storage.files import FileSystem
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.segment import Segment, SegmentId
from raylog.storage.state.producers import LastRecord
from raylog.storage.swap import RoundId

# Below this a chunk is mostly system calls. Kafka's default of 512 KiB makes chunks of 256 KiB.
MIN_CHUNK_BYTES = 4096


class Buffers(NamedTuple):
    """What one compaction may take of memory."""

    dedupe_bytes: int
    load_factor: float
    chunk_bytes: int

    @classmethod
    def share(
        cls, *, threads: int, dedupe_bytes: int, load_factor: float, io_bytes: int
    ) -> "Buffers":
        """What one of ``threads`` compactions gets; half of the I/O buffer is for writing."""
        return cls(
            dedupe_bytes=dedupe_bytes // threads,
            load_factor=load_factor,
            chunk_bytes=max(io_bytes // threads // 2, MIN_CHUNK_BYTES),
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


class CleanableLog(Protocol):
    """What a round asks of a log: a ``Log`` itself, or from another process a ``RemoteLog``."""

    config: LogConfig

    def begin_round(self) -> RoundId: ...
    def sealed(self) -> list[tuple[Segment, int]]: ...
    def aborted(self) -> Sequence[AbortedTransaction]: ...
    def last_records(self) -> Mapping[int, LastRecord]: ...
    def flush(self) -> None: ...
    def check_unchanged(self, segments: Collection[SegmentId], round_id: RoundId) -> None: ...
    def replace_segments(self, old: Sequence[SegmentId], round_id: RoundId) -> None: ...


def no_pace(_: int) -> None:
    """Go on, as fast as it goes."""


def clean(
    fs: FileSystem,
    clock: Clock,
    log: CleanableLog,
    section: Cleanable,
    buffers: Buffers,
    *,
    pace: Pace = no_pace,
) -> Cleaned:
    """Make one round over ``log``. ``section``: as ``cleanable`` found it.

    Raises what ``pace`` raises, CorruptRecord, StorageError, or CleaningAborted where retention or
    a truncation took segments meanwhile; what was swapped by then stays.
    """
    return _Round(fs, log, section, buffers, pace).make(clock)


class _Round:
    """A round over the segments that the log had at its begin."""

    def __init__(
        self, fs: FileSystem, log: CleanableLog, section: Cleanable, buffers: Buffers, pace: Pace
    ) -> None:
        self._fs = fs
        self._log = log
        self._section = section
        self._buffers = buffers
        self._pace = pace
        self._id = log.begin_round()
        self._sealed = log.sealed()
        # Of all segments: what begins below the bound may have been aborted behind it.
        self._aborted = log.aborted()

    def make(self, clock: Clock) -> Cleaned:
        begin_ms = clock.now_ms()
        offsets, mapped = self._map()
        self._log.flush()
        rules = Rules(
            offsets=offsets,
            transactions=TransactionTracker(self._aborted),
            producers=self._log.last_records(),
            now_ms=begin_ms,
            delete_retention_ms=self._log.config.delete_retention_ms,
            tally=Tally(),
        )
        self._rewrite(rules)
        done = rules.tally
        return Cleaned(
            end_offset=rules.end_offset,
            map_bytes_read=mapped.bytes_read,
            map_records_read=mapped.records_read,
            map_keys=len(offsets),
            map_utilization=offsets.utilization,
            bytes_read=done.bytes_read,
            bytes_written=done.bytes_written,
            records_read=done.records_read,
            records_kept=done.records_kept,
            records_without_key=done.records_without_key,
            elapsed_ms=clock.now_ms() - begin_ms,
        )

    def _map(self) -> tuple[OffsetMap, Tally]:
        start, bound = self._section.first_dirty_offset, self._section.bound
        offsets = OffsetMap(
            self._buffers.dedupe_bytes, self._buffers.load_factor, bound - start + 1
        )
        dirty = [(segment, end) for segment, end in self._sealed if start < end <= bound]
        transactions = TransactionTracker(
            entry for entry in self._aborted if entry.last_offset >= start
        )
        tally = Tally()
        with self._reading([segment for segment, _ in dirty]):
            build_offset_map(
                offsets, dirty, start, transactions, self._buffers.chunk_bytes, tally, self._pace
            )
        return offsets, tally

    def _rewrite(self, rules: Rules) -> None:
        """Group by group, from the log's begin to the segment in which the map ends."""
        sealed = {segment.base_offset: (segment, end) for segment, end in self._sealed}
        sizes = [
            _sizes(segment, end)
            for segment, end in self._sealed
            if segment.base_offset < rules.end_offset
        ]
        for group in group_segments(sizes, self._log.config):
            members = [sealed[part.base_offset] for part in group]
            sources = [segment for segment, _ in members]
            with self._reading(sources):
                cleaned = rewrite_group(
                    self._fs, members, rules, self._buffers.chunk_bytes, self._pace
                )
            try:
                self._log.replace_segments([source.id for source in sources], self._id)
            except CleaningAborted:
                cleaned.remove()
                raise

    @contextmanager
    def _reading(self, segments: Sequence[Segment]) -> Iterator[None]:
        """An error within is CleaningAborted if these segments were taken meanwhile."""
        try:
            yield
        except (StorageError, CorruptRecord, CorruptIndex):
            self._log.check_unchanged([segment.id for segment in segments], self._id)
            raise


def _sizes(segment: Segment, end: int) -> SegmentSizes:
    """A segment whose indexes are damaged is taken for full, and stays alone."""
    try:
        index_bytes = segment.offset_index.size_bytes
        time_index_bytes = segment.time_index.size_bytes
    except CorruptIndex:
        index_bytes = time_index_bytes = segment.config.segment_index_bytes
    return SegmentSizes(
        base_offset=segment.base_offset,
        end_offset=end,
        size_bytes=segment.size,
        index_bytes=index_bytes,
        time_index_bytes=time_index_bytes,
    )
