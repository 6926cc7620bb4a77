"""What compaction leaves of a batch: all, some records, its bare header, or nothing.

A record stays if it is the last of its key, or lies behind what the map knows. A tombstone (null
value) is a last record too, but only for ``delete.retention.ms``: the first round that meets one
writes into the batch when that ends, its *delete horizon*, and a round after that drops it. So
readers who are not slower than that learn of every deletion. Markers of transactions whose data is
gone go the same way. Records without a key and data of aborted transactions go at once.

A batch without records stays, as a header of 61 bytes, if it is the last of a producer that may
still come back (its sequence is needed to tell a repeat), or ends the round (so that the offset
where it ended is known). Rebuilt batches keep their offsets, producer, sequences, codec, flags and
leader epoch.

Source: ``Cleaner.checkBatchRetention``, ``shouldRetainRecord``, ``MemoryRecords.filterTo`` of
Kafka; KIP-534.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from raylog.storage.buffers import Buffer
from raylog.storage.cleaner.offset_map import OffsetMap
from raylog.storage.cleaner.reading import Tally
from raylog.storage.cleaner.transactions import TransactionTracker
from raylog.storage.records import kernel
from raylog.storage.records.batch import BatchHeader, empty_batch, seal
from raylog.storage.records.compression import compress, decompress
from raylog.storage.records.layout import DELETE_HORIZON, HEADER_SIZE, LOG_APPEND_TIME, LOG_OVERHEAD
from raylog.storage.state.producers import NO_PRODUCER, LastRecord

_STAYS, _GOES = 1, 2  # OffsetTable.judge_batches


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for every batch of one round."""

    offsets: OffsetMap
    transactions: TransactionTracker
    producers: Mapping[int, LastRecord]
    now_ms: int
    delete_retention_ms: int
    tally: Tally

    @property
    def end_offset(self) -> int:
        """Where the round ends: behind what the map knows."""
        return self.offsets.latest_offset + 1


class _Judged(NamedTuple):
    """What ``OffsetTable.judge_records`` finds in a batch."""

    kept: int
    tombstones: int  # of those that are kept
    without_key: int
    flags: bytearray  # a byte for each record: whether it is kept


def clean_chunk(
    chunk: memoryview, headers: list[BatchHeader], rules: Rules
) -> Iterator[tuple[BatchHeader, Buffer | None]]:
    """(header, what stays) of each batch of a chunk.

    The kernel tells which batches stay or go as they are.
    """
    offsets, tally, position = rules.offsets, rules.tally, 0
    verdicts, keyless = offsets.table.judge_batches(chunk, headers, offsets.latest_offset)
    tally.records_without_key += keyless
    for header, verdict in zip(headers, verdicts, strict=True):
        end = position + header.batch_length + LOG_OVERHEAD
        if verdict == _STAYS:
            tally.records_read += header.count
            tally.records_kept += header.count
            yield header, chunk[position:end]
        elif verdict == _GOES:
            tally.records_read += header.count
            yield header, _without_records(header, rules)
        else:
            yield header, clean_batch(chunk[position:end], header, rules)
        position = end


def clean_batch(batch: memoryview, header: BatchHeader, rules: Rules) -> Buffer | None:
    """What stays of the next batch of a walk: itself, another one in its place, or None."""
    is_spent = rules.transactions.is_discardable(header, batch)
    rules.tally.records_read += header.count
    if header.count and not (is_spent and _may_go(header, rules.now_ms)):
        left = (
            _kept_marker(batch, header, is_spent, rules)
            if header.is_control
            else _kept(batch, header, rules)
        )
        if left is not None:
            return left
    return _without_records(header, rules)


def _without_records(header: BatchHeader, rules: Rules) -> Buffer | None:
    return empty_batch(header) if must_stay(header, rules.producers, rules.end_offset) else None


def must_stay(header: BatchHeader, producers: Mapping[int, LastRecord], end_offset: int) -> bool:
    """Whether a batch must stay even without records."""
    return header.next_offset == end_offset or _is_last_of_producer(header, producers)


def _is_last_of_producer(header: BatchHeader, producers: Mapping[int, LastRecord]) -> bool:
    last = producers.get(header.producer_id) if header.producer_id != NO_PRODUCER else None
    if last is None:
        return False
    if last.offset >= 0:
        return header.last_offset == last.offset
    return header.is_control and header.producer_epoch == last.epoch


def _may_go(header: BatchHeader, now_ms: int) -> bool:
    """Whether a discardable batch goes now: data at once, a marker when its horizon has come."""
    return not header.is_control or _horizon_has_come(header, now_ms)


def _horizon_has_come(header: BatchHeader, now_ms: int) -> bool:
    return header.delete_horizon_ms is not None and header.delete_horizon_ms <= now_ms


def _kept_marker(batch: memoryview, header: BatchHeader, is_spent: bool, rules: Rules) -> Buffer:
    rules.tally.records_kept += header.count
    if not is_spent or header.delete_horizon_ms is not None:
        return batch
    plain = _plain(batch, header)
    return rebuild(plain, b"\1" * header.count, header, rules.now_ms + rules.delete_retention_ms)


def _kept(batch: memoryview, header: BatchHeader, rules: Rules) -> Buffer | None:
    plain = _plain(batch, header)
    judged = _Judged._make(
        rules.offsets.table.judge_records(
            plain,
            header.count,
            header.base_offset,
            rules.offsets.latest_offset,
            _horizon_has_come(header, rules.now_ms),
        )
    )
    rules.tally.records_kept += judged.kept
    rules.tally.records_without_key += judged.without_key
    if not judged.kept:
        return None
    horizon = header.delete_horizon_ms
    if judged.tombstones and horizon is None:
        return rebuild(plain, judged.flags, header, rules.now_ms + rules.delete_retention_ms)
    if judged.kept == header.count:
        return batch
    return rebuild(plain, judged.flags, header, horizon)


def _plain(batch: memoryview, header: BatchHeader) -> Buffer:
    return decompress(header.codec, batch[HEADER_SIZE:])


def rebuild(plain: Buffer, kept: Buffer, header: BatchHeader, horizon_ms: int | None) -> Buffer:
    """The batch with the records whose byte in ``kept`` is 1.

    It gets this delete horizon, if there is one.

    The horizon takes the base timestamp's place, so the records' times are written as differences
    to it.
    """
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    made, base_timestamp, max_timestamp = kernel.ops.rebuild_records(
        plain, kept, header.base_timestamp, horizon_ms, append_time
    )
    if header.codec:
        stream = compress(header.codec, memoryview(made)[HEADER_SIZE:])
        made = bytearray().join((bytes(HEADER_SIZE), stream))
    rebuilt = header._replace(
        attributes=header.attributes | (DELETE_HORIZON if horizon_ms is not None else 0),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        count=sum(memoryview(kept)),
    )
    return memoryview(seal(made, rebuilt))
