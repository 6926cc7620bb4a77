"""The batches of a segment, a chunk at a time.

Compaction reads whole logs: it must neither hold them in memory nor make a call of the system for
every batch. A chunk is some hundreds of KB that end with a batch; only a batch that is larger than
that makes a chunk larger, as large as the batch. Everything is checked before it is believed: a
corrupt batch ends the compaction of its log, and is never copied.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from raylog.storage.cleaner.upgrade import upgraded
from raylog.storage.errors import CorruptRecord
from raylog.storage.records import kernel
from raylog.storage.records.batch import BatchHeader, check_crc, iter_batches
from raylog.storage.records.layout import (
    AT_LENGTH,
    AT_MAGIC,
    LENGTH,
    LOG_OVERHEAD,
    MAGIC,
    MIN_MESSAGE_LENGTH,
)
from raylog.storage.segment import Segment

# Called between chunks with the bytes just read and written: it may sleep, or raise to stop.
Pace = Callable[[int], None]


@dataclass(slots=True)
class Tally:
    """What a round has met so far."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0


def read_batches(
    segment: Segment, position: int, next_offset: int, end_offset: int, chunk_bytes: int
) -> Iterator[tuple[memoryview, list[BatchHeader]]]:
    """Chunks from a batch's position on, with the headers of their batches.

    Raises CorruptRecord, also where offsets are not what may follow ``next_offset`` below
    ``end_offset``: no CRC covers the base offset, and one that lies would let an old value win over
    all that follow it.
    """
    for chunk in _read_chunks(segment, position, chunk_bytes):
        headers = read_headers(chunk)
        for header in headers:
            if not next_offset <= header.base_offset <= header.last_offset < end_offset:
                why = (
                    f"offsets {header.base_offset} to {header.last_offset} are not in "
                    f"[{next_offset}, {end_offset})"
                )
                raise CorruptRecord(segment.path, why)
            next_offset = header.next_offset
        yield chunk, headers


def _read_chunks(segment: Segment, position: int, chunk_bytes: int) -> Iterator[memoryview]:
    """The bytes from a batch's position to the segment's end, in pieces that hold whole batches.

    Messages of older versions come as batches of version 2.
    """
    size = segment.size
    while position < size:
        chunk = memoryview(segment.log.read(min(chunk_bytes, size - position), position))
        whole, needed, is_old = _whole_bytes(chunk)
        if not whole:
            if needed > size - position:
                raise CorruptRecord(
                    f"{segment.path}, position {position}",
                    "the last batch of the segment is incomplete",
                )
            chunk, whole = memoryview(segment.log.read(needed, position)), needed
            is_old = chunk[AT_MAGIC] < MAGIC
        yield memoryview(upgraded(chunk[:whole])) if is_old else chunk[:whole]
        position += whole


def _whole_bytes(chunk: memoryview) -> tuple[int, int, bool]:
    """(bytes of whole batches, bytes needed, whether there is a message of an older version).

    The whole batches are at the chunk's begin. The bytes needed are those of the first batch behind
    them.
    """
    position, is_old = 0, False
    while len(chunk) - position >= LOG_OVERHEAD:
        (length,) = LENGTH.unpack_from(chunk, position + AT_LENGTH)
        if length < MIN_MESSAGE_LENGTH:
            raise CorruptRecord(
                f"position {position} of a chunk", f"batch length {length} is too small"
            )
        if len(chunk) - position < length + LOG_OVERHEAD:
            return position, length + LOG_OVERHEAD, is_old
        is_old = is_old or chunk[position + AT_MAGIC] < MAGIC
        position += length + LOG_OVERHEAD
    return position, LOG_OVERHEAD, is_old


def read_headers(chunk: memoryview) -> list[BatchHeader]:
    """The headers of a chunk's batches, each one's CRC-32C checked."""
    headers: list[BatchHeader] = kernel.ops.leading_headers(chunk)
    position = sum(header.batch_length for header in headers) + LOG_OVERHEAD * len(headers)
    rest = chunk[position:]
    for at, header in iter_batches(rest):
        check_crc(rest, at, header)
    if rest:
        raise CorruptRecord(
            f"position {position} of a chunk", "the bytes are not a batch of format v2"
        )
    return headers
