"""The lines of the files beside a ``.log``.

These are the offset, time and transaction index, and the snapshot of the producers.

Offset and time index are held against the log as they are read. Both may end in zeros, after a
crash of a broker that makes them at their full size: the first entry but one that says the base
offset is where they end. Source: ``DumpLogSegments`` of Kafka 3.9.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from raylog.storage.errors import CorruptIndex
from raylog.storage.files import File
from raylog.storage.indexes.offset_index import OffsetIndex
from raylog.storage.indexes.time_index import TimeIndex
from raylog.storage.indexes.transaction_index import read_aborted
from raylog.storage.records.layout import MAGIC, NO_TIMESTAMP
from raylog.storage.state.producers import decode_snapshot
from raylog.storage.tools.dump.findings import Findings
from raylog.storage.tools.dump.logs import FileBatch, decoded, file_batches, messages, optional

Pairs = Sequence[tuple[int, int]]


def offset_entries(content: bytes, base_offset: int) -> Pairs:
    """(offset, position) of all whole entries."""
    whole = content[: len(content) // OffsetIndex.entry.size * OffsetIndex.entry.size]
    return [
        (base_offset + relative, position)
        for relative, position in OffsetIndex.entry.iter_unpack(whole)
    ]


def time_entries(content: bytes, base_offset: int) -> Pairs:
    """(timestamp, offset) of all whole entries."""
    whole = content[: len(content) // TimeIndex.entry.size * TimeIndex.entry.size]
    return [
        (timestamp, base_offset + relative)
        for timestamp, relative in TimeIndex.entry.iter_unpack(whole)
    ]


def check_offset_index(content: bytes, base_offset: int) -> None:
    """What a starting broker asks of an offset index. Raises CorruptIndex."""
    entries = offset_entries(content, base_offset)
    if entries and entries[-1][0] < base_offset:
        raise CorruptIndex(base_offset, len(entries) - 1, "is below the segment's base offset")
    _check_size(content, OffsetIndex.entry.size, base_offset)


def check_time_index(content: bytes, base_offset: int) -> None:
    """What a starting broker asks of a time index. Raises CorruptIndex."""
    entries = time_entries(content, base_offset)
    if entries and entries[-1][0] < entries[0][0]:
        raise CorruptIndex(base_offset, len(entries) - 1, "is older than the first entry")
    if entries and entries[-1][1] < base_offset:
        raise CorruptIndex(base_offset, len(entries) - 1, "is below the segment's base offset")
    _check_size(content, TimeIndex.entry.size, base_offset)


def _check_size(content: bytes, entry_size: int, base_offset: int) -> None:
    entries, rest = divmod(len(content), entry_size)
    if rest:
        raise CorruptIndex(base_offset, entries, f"{rest} bytes too many")


def dump_offset_index(
    entries: Pairs,
    log: File,
    base_offset: int,
    max_message_bytes: int,
    findings: Findings,
    shown_path: str,
) -> Iterator[str]:
    """The lines of an offset index; each entry is held against the batch it points to."""
    for number, (offset, position) in enumerate(entries):
        if number and offset == base_offset:
            return
        near = file_batches(log, position, max_message_bytes) if position >= 0 else iter(())
        first = next(near, None)
        if first is None:
            raise CorruptIndex(
                base_offset,
                number,
                (
                    f"no batch of up to {max_message_bytes} bytes at position {position} of a log "
                    f"of {log.size}"
                ),
            )
        last_offset = first.header.last_offset
        if last_offset != offset:
            findings.index_mismatch(shown_path, offset, last_offset)
        yield f"offset: {offset} position: {position}"


def dump_time_index(
    entries: Pairs,
    offset_index: Pairs,
    log: File,
    base_offset: int,
    findings: Findings,
    shown_path: str,
) -> Iterator[str]:
    """The lines of a time index; each entry is held against the batch that ends with its offset."""
    previous = NO_TIMESTAMP
    for number, (timestamp, offset) in enumerate(entries):
        if number and offset == base_offset:
            return
        _check_moment(timestamp, offset, previous, offset_index, log, findings, shown_path)
        yield f"timestamp: {timestamp} offset: {offset}"
        previous = timestamp


def _check_moment(
    timestamp: int,
    offset: int,
    previous: int,
    offset_index: Pairs,
    log: File,
    findings: Findings,
    shown_path: str,
) -> None:
    count = bisect_right(offset_index, offset, key=lambda entry: entry[0])
    tail = file_batches(log, offset_index[count - 1][1] if count else 0)
    batch = next((batch for batch in tail if batch.header.last_offset >= offset), None)
    if batch is None or batch.header.last_offset != offset:
        findings.offset_missing(shown_path, offset, batch.header.last_offset if batch else -1)
        return
    largest = _largest_timestamp(batch)
    if largest != timestamp:
        findings.timestamp_mismatch(shown_path, timestamp, largest)
    if previous >= timestamp:
        findings.out_of_order(shown_path, timestamp, previous)


def _largest_timestamp(batch: FileBatch) -> int:
    if batch.header.magic < MAGIC:
        timestamps = [message.timestamp for message in messages(batch)]
    else:
        timestamps = [record.timestamp for record in decoded(batch)]
    return max([NO_TIMESTAMP, *timestamps])


def dump_transaction_index(content: bytes, base_offset: int) -> Iterator[str]:
    """The lines of a transaction index. Raises CorruptIndex."""
    for entry in read_aborted(content, base_offset):
        yield (
            f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )


def dump_snapshot(path: str, content: bytes) -> Iterator[str]:
    """The lines of a snapshot of the producers. Raises CorruptCheckpoint."""
    for producer_id, producer in decode_snapshot(path, content).items():
        start = producer.transaction_start if producer.transaction_start >= 0 else None
        line = (
            f"producerId: {producer_id} producerEpoch: {producer.epoch} "
            f"coordinatorEpoch: {producer.coordinator_epoch} "
            f"currentTxnFirstOffset: {optional(start)} "
            f"lastTimestamp: {producer.timestamp} "
        )
        for batch in producer.batches:
            line += (
                f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
                f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} timestamp: "
                f"{batch.timestamp}"
            )
        yield line
