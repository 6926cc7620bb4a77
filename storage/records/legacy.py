"""Messages of versions 0 and 1, as Kafka wrote them before 0.11: read for ever, written by nobody.

A message is drawn in ``batch.py``. A compressed set of them is one message more, the wrapper: its
key is null and its value is a compressed stream of whole messages, one behind the other, none
compressed again.

==========  =====================================  ===========================================
            version 0                              version 1
==========  =====================================  ===========================================
offsets     of the inner messages: absolute        relative; the last one's is the wrapper's own
timestamps  none: -1                               the messages' own, or under LogAppendTime all
                                                   the wrapper's
LZ4         its frame header's checksum is wrong   right
==========  =====================================  ===========================================

Tolerated, as by Kafka: a version 1 wrapper with offset 0, whatever it holds (an old librdkafka: its
messages are 0, 1, ...); inner messages of version 0 in a wrapper of version 1 (KAFKA-4298); an
inner message cut short at the end. zstd is younger than both versions.

Plain Python, for both kernels: the one calls ``as_records`` to have a set's messages as records of
version 2, and goes on as with any batch. Source: ``AbstractLegacyRecordBatch`` and ``LegacyRecord``
of Kafka; KIP-31, KIP-32.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from raylog.storage.buffers import Buffer
from raylog.storage.errors import CorruptRecord, InvalidRecord, PlainBatchTooLarge
from raylog.storage.records.batch import BatchHeader, check_crc, iter_batches
from raylog.storage.records.compression import CODECS, codec_id, compress, decompress
from raylog.storage.records.layout import (
    LEGACY_CRC_START,
    LEGACY_FIELD_SIZE,
    LEGACY_HEADS,
    LEGACY_PREFIX,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
)
from raylog.storage.records.lz4_frames import with_broken_checksum, with_right_checksum
from raylog.storage.records.varints import put_varint

NO_TIMESTAMP_TYPE: Final = -1  # Kafka's id; 0 is CreateTime, 1 LogAppendTime

# Of the messages of one set, for whoever reads them: each becomes a Python object for a moment, in
# some 4 µs, so a bomb must be smaller than a batch's. A set of 1 MiB has some 10,000.
MAX_SET_BYTES: Final = 64 << 20
MAX_SET_MESSAGES: Final = 1_000_000

MAX_OFFSET: Final = (1 << 63) - 1

_CODECS: Final = (CODECS["none"], CODECS["gzip"], CODECS["snappy"], CODECS["lz4"])


class Message(NamedTuple):
    """One message, with its absolute offset."""

    offset: int
    timestamp: int
    key: Buffer | None
    value: Buffer | None
    magic: int
    crc: int
    is_valid: bool  # whether its CRC-32 is right


class LegacyRecords(NamedTuple):
    """A message or a set of messages as the records of a v2 batch.

    The deltas are to ``base_offset`` and to time 0.
    """

    base_offset: int
    timestamp_type: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    plain: bytearray


def as_records(
    buffer: Buffer, position: int, header: BatchHeader, start_offset: int, check: bool
) -> LegacyRecords | None:
    """The records of the message or wrapper at ``position``.

    None if all of them are before ``start_offset``.

    ``check``: hold every CRC-32 against its bytes, the inner messages' too. Raises CorruptRecord.
    """
    if check:
        check_crc(buffer, position, header)
    if header.last_offset < start_offset:
        return None
    outer = _message(memoryview(buffer), position, header)
    plain, count, first, last, highest = bytearray(), 0, 0, 0, 0
    for message in _messages_of(outer, position, header, MAX_SET_BYTES, MAX_SET_MESSAGES):
        if check and not message.is_valid:
            raise _corrupt(position, f"the CRC-32 of its message {message.offset} is wrong")
        first, last = message.offset if not count else first, message.offset
        highest = max(highest, last)
        _put_record(plain, message, first)
        count += 1
    kind = (
        NO_TIMESTAMP_TYPE if header.magic == 0 else int(bool(header.attributes & LOG_APPEND_TIME))
    )
    shift = _shift(last, highest, outer, header, position)
    return LegacyRecords(base_offset=first + shift, timestamp_type=kind, count=count, plain=plain)


def _put_record(out: bytearray, message: Message, base_offset: int) -> None:
    body = bytearray(1)
    put_varint(body, message.timestamp)
    put_varint(body, message.offset - base_offset)
    for field in (message.key, message.value):
        put_varint(body, -1 if field is None else len(field))
        body += field or b""
    put_varint(body, 0)
    put_varint(out, len(body))
    out += body


def read_messages(buffer: Buffer, position: int, header: BatchHeader) -> list[Message]:
    """The message at ``position``, or those in it if it is a wrapper. Raises CorruptRecord."""
    outer = _message(memoryview(buffer), position, header)
    messages = list(_messages_of(outer, position, header, MAX_SET_BYTES, MAX_SET_MESSAGES))
    highest = max(message.offset for message in messages)
    shift = _shift(messages[-1].offset, highest, outer, header, position)
    return [message._replace(offset=message.offset + shift) for message in messages]


def stream_messages(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int, max_messages: int
) -> Iterator[Message]:
    """As ``read_messages``, one by one; their offsets are as they are written.

    Raises PlainBatchTooLarge where a set is larger than ``max_bytes`` when it is decompressed, or
    has more than ``max_messages``.
    """
    outer = _message(memoryview(buffer), position, header)
    return _messages_of(outer, position, header, max_bytes, max_messages)


def _messages_of(
    outer: Message,
    position: int,
    header: BatchHeader,
    max_bytes: int,
    max_messages: int,
) -> Iterator[Message]:
    """The message itself, or those in it if it is a wrapper, with their own offsets."""
    if header.codec == CODECS["none"]:
        yield outer
        return
    if header.codec not in _CODECS:
        raise _corrupt(position, f"codec {header.codec} does not exist in magic {header.magic}")
    if outer.value is None:
        raise _corrupt(position, "the value of a compressed message set is null")
    stream = outer.value
    if header.magic == 0 and header.codec == CODECS["lz4"]:
        stream = with_right_checksum(stream)
    is_append_time = bool(header.attributes & LOG_APPEND_TIME)
    count = 0
    try:
        plain = memoryview(decompress(header.codec, stream, max_bytes))
        for message in _inner_messages(plain):
            count += 1
            if count > max_messages:
                raise PlainBatchTooLarge("its set", f"it has more than {max_messages} messages")
            if is_append_time and message.magic == 1:
                yield message._replace(timestamp=outer.timestamp)
            else:
                yield message
    except CorruptRecord as error:
        raise type(error)(f"position {position}", f"its messages: {error.args[1]}") from error
    if not count:
        raise _corrupt(position, "a compressed message set is empty")


def _inner_messages(plain: memoryview) -> Iterator[Message]:
    for position, header in iter_batches(plain):
        if header.codec or header.magic > 1:
            raise _corrupt(
                position, "a compressed message set holds a compressed message or a batch"
            )
        yield _message(plain, position, header)


def _shift(
    last_offset: int, highest_offset: int, outer: Message, header: BatchHeader, position: int
) -> int:
    """What the wrapper says is to be added to the offsets of its messages, of which the last is.

    Where the offsets do not rise, the last need not be the highest.
    """
    if header.magic == 0 or not header.codec or not outer.offset:
        return 0
    if last_offset > outer.offset:
        raise _corrupt(
            position, f"its last message has offset {last_offset}, but the set has {outer.offset}"
        )
    shift = outer.offset - last_offset
    if highest_offset + shift > MAX_OFFSET:
        why = f"its message {highest_offset} would have offset {highest_offset + shift}"
        raise _corrupt(position, f"{why}, which is beyond 64 bits")
    return shift


def _message(view: memoryview, position: int, header: BatchHeader) -> Message:
    """A message by itself: its fields within its bytes, its offset as it is written."""
    start, end = position + LEGACY_CRC_START, position + header.size_bytes
    key, at = _field(view, start + LEGACY_HEADS[header.magic].size, end, position)
    value, _ = _field(view, at, end, position)
    is_valid = zlib.crc32(view[start:end]) == header.crc
    return Message(
        offset=header.last_offset,
        timestamp=header.max_timestamp,
        key=key,
        value=value,
        magic=header.magic,
        crc=header.crc,
        is_valid=is_valid,
    )


def _field(view: memoryview, start: int, end: int, position: int) -> tuple[memoryview | None, int]:
    """A key or value, and the position behind it."""
    if start + LEGACY_FIELD_SIZE.size > end:
        raise _corrupt(position, "a message is shorter than its fields")
    (size,) = LEGACY_FIELD_SIZE.unpack_from(view, start)
    start += LEGACY_FIELD_SIZE.size
    if size < 0:
        return None, start
    if size > end - start:
        raise _corrupt(
            position, f"a field has {size} bytes, but the message has only {end - start} left"
        )
    return view[start : start + size], start + size


def encode_legacy(
    rows: Sequence[tuple[int, bytes | None, bytes | None]],
    *,
    magic: int,
    offsets: Sequence[int] | None = None,
    base_offset: int = 0,
    compression_type: str = "none",
    log_append_time: int | None = None,
) -> bytearray:
    """Rows of (timestamp, key, value) as messages, or as one wrapper if they are compressed.

    For tests and for whoever must give an old reader what it knows: no log takes an append of
    these. The offsets count up from ``base_offset`` unless they are given.
    """
    if magic not in LEGACY_HEADS:
        raise InvalidRecord(f"magic {magic}: only 0 and 1 are written here")
    codec = codec_id(compression_type)
    if codec not in _CODECS or not rows:
        raise InvalidRecord(
            f"magic {magic} needs a message, and does not support {compression_type}"
        )
    absolute = range(base_offset, base_offset + len(rows)) if offsets is None else offsets
    shift = absolute[0] if codec and magic else 0
    out, append_time = bytearray(), LOG_APPEND_TIME if magic and log_append_time is not None else 0
    for offset, (timestamp, key, value) in zip(absolute, rows, strict=True):
        time = timestamp if log_append_time is None else log_append_time
        _put_message(out, offset - shift, magic, append_time, time, key, value)
    if not codec:
        return out
    stream = compress(codec, out)
    if magic == 0 and codec == CODECS["lz4"]:
        stream = with_broken_checksum(stream)
    time = max(row[0] for row in rows) if log_append_time is None else log_append_time
    wrapper = bytearray()
    _put_message(wrapper, absolute[-1], magic, append_time | codec, time, None, stream)
    return wrapper


def _put_message(
    out: bytearray,
    offset: int,
    magic: int,
    attributes: int,
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
) -> None:
    body = LEGACY_HEADS[magic].pack(magic, attributes, *([timestamp] if magic else []))
    for field in (key, value):
        body += LEGACY_FIELD_SIZE.pack(-1 if field is None else len(field)) + bytes(field or b"")
    length = len(body) + LEGACY_CRC_START - LOG_OVERHEAD
    out += LEGACY_PREFIX.pack(offset, length, zlib.crc32(body))
    out += body


def _corrupt(position: int, why: str) -> CorruptRecord:
    return CorruptRecord(f"position {position}", why)
