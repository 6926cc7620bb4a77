"""The last offset of every key of the dirty section, in memory that the config bounds.

Keys are told apart by a hash of 128 bits alone (a keyed one, so that no producer can make two keys
collide); a slot is that and an offset, 24 bytes. When ``log.cleaner.io.buffer.load.factor`` of the
slots are taken the map is full: what it knows ends there, and the next round goes on behind. The
table is the kernel's (``OffsetTable``); here are its size, and how a log's keys come into it.
Source: ``Cleaner.buildOffsetMap`` and ``SkimpyOffsetMap`` of Kafka, which hashes with MD5.
"""

import secrets
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from raylog.storage.buffers import Buffer
from raylog.storage.cleaner.reading import Pace, Tally, read_batches
from raylog.storage.cleaner.transactions import TransactionTracker
from raylog.storage.errors import CorruptIndex, InvalidConfig
from raylog.storage.records import kernel
from raylog.storage.records.batch import BatchHeader
from raylog.storage.records.compression import decompress
from raylog.storage.records.layout import HEADER_SIZE
from raylog.storage.segment import Segment

SLOT_BYTES = 24
SECRET_BYTES = 16


class OffsetMap:
    """Keys to offsets. ``latest_offset``: up to here the map knows every key."""

    def __init__(self, memory_bytes: int, load_factor: float, most_keys: int | None = None) -> None:
        """``most_keys``: more will not come, so no more memory is taken than for them."""
        slots = memory_bytes // SLOT_BYTES
        if most_keys is not None:
            slots = min(slots, int(most_keys / max(load_factor, 0.01)) + 2)
        capacity = min(int(slots * load_factor), slots - 1)
        if capacity < 1:
            factor = f"log.cleaner.io.buffer.load.factor={load_factor}"
            why = f"too small for one key with {factor}; raise one of the two"
            raise InvalidConfig("log.cleaner.dedupe.buffer.size", memory_bytes, why)
        self._slots = slots
        self.table = kernel.ops.OffsetTable(slots, capacity, secrets.token_bytes(SECRET_BYTES))
        self.latest_offset = -1

    def __len__(self) -> int:
        return self.table.size

    def get(self, key: Buffer) -> int:
        """The last offset of a key, -1 if it has none."""
        return self.table.get(key)

    @property
    def utilization(self) -> float:
        """The share of the slots that are taken."""
        return self.table.size / self._slots


def build_offset_map(
    offsets: OffsetMap,
    segments: Sequence[tuple[Segment, int]],
    start_offset: int,
    transactions: TransactionTracker,
    chunk_bytes: int,
    tally: Tally,
    pace: Pace,
) -> None:
    """Put the keys of ``segments`` into the map, from ``start_offset`` on.

    Each segment comes with the base offset of the next one.

    Stops when the map is full, in the middle of a batch if need be: ``latest_offset`` tells where.
    """
    offsets.latest_offset = start_offset - 1
    for segment, end in segments:
        for chunk, headers in _read_from(segment, start_offset, end, chunk_bytes):
            tally.bytes_read += len(chunk)
            pace(len(chunk))
            if not _put_chunk(offsets, chunk, headers, start_offset, transactions, tally):
                return
        offsets.latest_offset = end - 1


def _read_from(
    segment: Segment, offset: int, end: int, chunk_bytes: int
) -> Iterator[tuple[memoryview, list[BatchHeader]]]:
    """The batches from the one that reaches ``offset`` on."""
    try:
        first = segment.find_batch(offset)
    except CorruptIndex:  # not made again here: that is its log's business
        first = next((batch for batch in segment.batches() if batch[1].last_offset >= offset), None)
    if first is None:
        return iter(())
    return read_batches(segment, first[0], segment.base_offset, end, chunk_bytes)


class _Put(NamedTuple):
    """How far ``OffsetTable.put_batches`` came in a chunk."""

    number: int  # of the first batch that was not put
    position: int  # of that batch in the chunk
    last_offset: int  # of the last record that was put, -1 if none was
    is_full: bool  # whether the map is full


def _put_chunk(
    offsets: OffsetMap,
    chunk: memoryview,
    headers: list[BatchHeader],
    start_offset: int,
    transactions: TransactionTracker,
    tally: Tally,
) -> bool:
    """False if the map is full."""
    number, position = 0, 0
    while True:
        first = number
        put = _Put._make(offsets.table.put_batches(chunk, headers, number, position, start_offset))
        number, position = put.number, put.position
        behind = headers[number - 1].last_offset if number > first else -1
        offsets.latest_offset = max(offsets.latest_offset, put.last_offset, behind)
        tally.records_read += sum(header.count for header in headers[first:number])
        if number == len(headers):
            return True
        header = headers[number]
        tally.records_read += header.count
        batch = chunk[position : position + header.size_bytes]
        if put.is_full or not _put_batch(offsets, batch, header, start_offset, transactions):
            return False
        number, position = number + 1, position + header.size_bytes


def _put_batch(
    offsets: OffsetMap,
    batch: memoryview,
    header: BatchHeader,
    start_offset: int,
    transactions: TransactionTracker,
) -> bool:
    """A batch that needs more than a look at its keys. False if the map is full."""
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
