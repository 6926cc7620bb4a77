"""The header of a record batch: the unit that is written, checked, stamped and fetched.

Producers encode and compress a batch once. The log checks the records behind the header when they
are appended, stamps the header, and never encodes the records again. All integers are big-endian.
Version 2, all that is written today::

     0        8         12      16  17     21      23           27          35          43
    +--------+---------+-------+---+------+-------+------------+-----------+-----------+----
    | base   | batch   | leader| 2 | crc  | attri-| last offset| base      | max       | ...
    | offset | length  | epoch |   |      | butes | delta      | timestamp | timestamp |
    +--------+---------+-------+---+------+-------+------------+-----------+-----------+----
     43         51        53        57      61
    +----------+---------+---------+-------+--------------------
    | producer | producer| base    | count | records, compressed
    | id       | epoch   | sequence|       | as one stream
    +----------+---------+---------+-------+--------------------

    attributes   bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 base timestamp is a
                 delete horizon

The batch length counts the bytes behind itself. The CRC-32C covers byte 21 to the end, so the base
offset and the leader epoch, which only the leader knows, are stamped without computing it again.

Versions 0 and 1 have no batches: each message is one, or is a wrapper whose value holds a
compressed set of them (``legacy.py``). Logs of Kafka before 0.11 hold such messages, and so does
one that was upgraded, before its v2 batches. Seen as a batch, a message has the header below, and
what it lacks is -1::

     0        8         12      16  17      18             26 (version 0: 18)
    +--------+---------+-------+---+-------+--------------+-----------------------------
    | offset | message | crc   | 0 | attri-| timestamp,   | key size, key, value size,
    |        | length  |       | 1 | butes | version 1    | value
    +--------+---------+-------+---+-------+--------------+-----------------------------

    offset       of a wrapper: of its last message
    crc          CRC-32 of byte 16 to the end

What the records look like is ``encode.py``'s and ``decode.py``'s business; whether a batch may be
appended is the log's. Source: ``org.apache.kafka.common.record``: ``DefaultRecordBatch``,
``LegacyRecord``.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from raylog.storage.buffers import Buffer
from raylog.storage.errors import CorruptRecord
from raylog.storage.records.layout import (
    AT_BASE_OFFSET,
    AT_CRC,
    AT_LENGTH,
    AT_MAGIC,
    CODEC_MASK,
    CONTROL,
    CRC,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    LEGACY_CRC_START,
    LEGACY_HEADER,
    LENGTH,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAX_SEQUENCE,
    MIN_BATCH_LENGTH,
    MIN_BATCH_SIZE,
    MIN_MESSAGE_LENGTH,
    MIN_V1_MESSAGE_LENGTH,
    STAMP,
    TRANSACTIONAL,
)

# _make, without its checks: every append and every step of a scan makes one
_new_header = tuple.__new__


class _LegacyHeader(NamedTuple):
    """The fields of ``LEGACY_HEADER``, in their order."""

    offset: int
    length: int
    crc: int
    magic: int
    attributes: int
    timestamp: int


class BatchHeader(NamedTuple):
    """The 61 bytes, field by field, in their order.

    Of a message of version 0 or 1: both timestamps are its own (-1 in version 0), and the base
    offset of a wrapper is its last offset, since the first is not known without decompressing it;
    nor is its count (-1).
    """

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence < 0:
            return -1
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> int:
        """The codec's id; ``compression.CODECS`` has the names."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> str:
        if self.magic == 0:
            return "NoTimestampType"
        return "LogAppendTime" if self.attributes & LOG_APPEND_TIME else "CreateTime"

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the cleaner may drop this batch's tombstones.

        It is stored in the place of the base timestamp.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


def increment_sequence(sequence: int, by: int) -> int:
    """Sequences count 0 ... 2^31-1 and then 0 again."""
    return (sequence + by) & MAX_SEQUENCE


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at ``position``; its CRC is not checked.

    Raises CorruptRecord where none can be.
    """
    try:
        if position < 0:
            raise struct.error
        header = _new_header(BatchHeader, HEADER.unpack_from(buffer, position))
    except struct.error:
        return _read_legacy_header(buffer, position)
    if header.magic != MAGIC:
        return _read_legacy_header(buffer, position)
    if header.batch_length < MIN_BATCH_LENGTH:
        raise _corrupt(position, f"batch length {header.batch_length} is under {MIN_BATCH_LENGTH}")
    return header


def size_of(buffer: Buffer, position: int = 0) -> int:
    """How large the batch at ``position`` says it is, by its first 12 bytes; nothing is checked."""
    length: int = LENGTH.unpack_from(buffer, position + AT_LENGTH)[0]
    return length + LOG_OVERHEAD


def _read_legacy_header(buffer: Buffer, position: int) -> BatchHeader:
    """The header of a message of version 0 or 1."""
    left = max(memoryview(buffer).nbytes - max(position, 0), 0)
    if position < 0 or left < MIN_BATCH_SIZE:
        raise _corrupt(position, f"{left} bytes hold no header of {HEADER_SIZE}")
    message = _LegacyHeader._make(LEGACY_HEADER.unpack_from(buffer, position))
    magic = message.magic
    if magic == MAGIC:
        raise _corrupt(position, f"{left} bytes hold no header of {HEADER_SIZE}")
    if magic not in (0, 1):
        raise _corrupt(position, f"magic {magic} is none of 0, 1 and {MAGIC}")
    if message.length < (MIN_V1_MESSAGE_LENGTH if magic else MIN_MESSAGE_LENGTH):
        raise _corrupt(position, f"message length {message.length} is too small for magic {magic}")
    # the other bits mean nothing here
    attributes = message.attributes & (CODEC_MASK | LOG_APPEND_TIME if magic else CODEC_MASK)
    timestamp = message.timestamp if magic else -1
    count = -1 if attributes & CODEC_MASK else 1
    return BatchHeader(
        base_offset=message.offset,
        batch_length=message.length,
        leader_epoch=-1,
        magic=magic,
        crc=message.crc,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=count,
    )


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raises CorruptRecord unless the whole batch is there and is what its CRC says."""
    end = position + header.size_bytes
    view = memoryview(buffer)
    if len(view) < end:
        raise _corrupt(position, f"{len(view) - position} bytes of a batch of {header.size_bytes}")
    if header.magic == MAGIC:
        name, computed = "CRC-32C", crc32c(view[position + CRC_START : end])
    else:
        name, computed = "CRC-32", zlib.crc32(view[position + LEGACY_CRC_START : end])
    if computed != header.crc:
        raise _corrupt(position, f"{name} {computed:#010x} instead of {header.crc:#010x}")


def iter_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch.

    A partial batch at the end is no error (a fetch cuts where its bytes run out); anything else
    that is no batch raises CorruptRecord.
    """
    view = memoryview(buffer)
    position = 0
    while (left := len(view) - position) >= LOG_OVERHEAD:
        (length,) = LENGTH.unpack_from(view, position + AT_LENGTH)
        if length < MIN_MESSAGE_LENGTH:
            raise _corrupt(position, f"batch length {length} is under {MIN_MESSAGE_LENGTH}")
        if left < HEADER_SIZE_UP_TO_MAGIC:
            return
        magic = view[position + AT_MAGIC]
        if magic == MAGIC and length < MIN_BATCH_LENGTH:
            raise _corrupt(position, f"batch length {length} is under {MIN_BATCH_LENGTH}")
        if left < length + LOG_OVERHEAD and magic <= MAGIC:
            return
        header = read_header(view, position)
        yield position, header
        position += header.size_bytes


def stamp(
    batch: bytearray | memoryview, base_offset: int, leader_epoch: int, position: int = 0
) -> None:
    """Write what only the leader knows into an encoded batch.

    Both fields are outside of the CRC.
    """
    (length,) = LENGTH.unpack_from(batch, position + AT_LENGTH)
    STAMP.pack_into(batch, position + AT_BASE_OFFSET, base_offset, length, leader_epoch)


def seal(batch: bytearray, header: BatchHeader) -> bytearray:
    """Write ``header`` into the 61 bytes that were kept free before the records.

    Length and CRC are computed here.

    ``batch`` may be any writable buffer, and is what is returned.
    """
    HEADER.pack_into(batch, 0, *header._replace(batch_length=len(batch) - LOG_OVERHEAD, crc=0))
    CRC.pack_into(batch, AT_CRC, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def empty_batch(header: BatchHeader) -> bytearray:
    """What compaction leaves of a batch without records: its offsets, producer and sequences."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return seal(
        bytearray(HEADER_SIZE), header._replace(attributes=attributes, base_timestamp=-1, count=0)
    )


def _corrupt(position: int, why: str) -> CorruptRecord:
    return CorruptRecord(f"position {position}", why)
