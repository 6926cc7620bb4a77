"""Messages of versions 0 and 1 become a batch of version 2 when they are appended.

Kafka's leader rebuilds what an old client sends: each message's own offset is forgotten and counted
anew, its CRC-32 is held against its bytes, and a time that the message has not stays unknown (-1).
An append is one compressed set, or any number of plain messages; never both, and of one version.

What may stand in the batch that comes of it, ``validation.py`` decides as for any other.
Source: ``LogValidator`` of Kafka, where source and target magic differ.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from raylog.storage.buffers import Buffer
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    CorruptRecord,
    InvalidRecord,
    PlainBatchTooLarge,
    RecordTooLarge,
)
from raylog.storage.records.batch import BatchHeader, check_crc, iter_batches
from raylog.storage.records.compression import CODECS
from raylog.storage.records.encode import Row, encode_records
from raylog.storage.records.layout import AT_MAGIC, LOG_APPEND_TIME
from raylog.storage.records.legacy import stream_messages

# In one append, whatever they are packed in: each becomes a Python object, which takes some 5 µs.
MAX_MESSAGES: Final = 100_000


class Converted(NamedTuple):
    """The messages as one uncompressed batch, and the codec that they came with."""

    batch: bytearray
    codec: int


def converted(content: Buffer, config: LogConfig) -> Converted:
    """The messages in ``content`` as one batch.

    Raises CorruptRecord, InvalidRecord, RecordTooLarge for a message over ``max.message.bytes``, or
    PlainBatchTooLarge.
    """
    magic = content[AT_MAGIC]
    codec = CODECS["none"]
    end = 0
    rows: list[Row] = []
    for position, header in iter_batches(content):
        if position and (codec or header.codec):
            raise InvalidRecord(
                "an append with a compressed message set has more messages; append them one by one"
            )
        _check_message(header, magic, config)
        check_crc(content, position, header)
        rows += _rows(content, position, header, config)
        if len(rows) > MAX_MESSAGES:
            raise PlainBatchTooLarge("an append", f"it has more than {MAX_MESSAGES} messages")
        codec, end = header.codec, position + header.size_bytes
    if end != len(content):
        raise CorruptRecord(
            f"position {end}", f"{len(content) - end} bytes at the end are not a complete message"
        )
    return Converted(encode_records(rows), codec)


def _check_message(header: BatchHeader, magic: int, config: LogConfig) -> None:
    if header.magic != magic:
        raise InvalidRecord(
            f"a message of magic {header.magic} follows one of {magic}; append them one by one"
        )
    if header.size_bytes > config.max_message_bytes:
        raise RecordTooLarge(header.size_bytes, config.max_message_bytes)
    if header.attributes & LOG_APPEND_TIME and config.message_timestamp_type == "LogAppendTime":
        raise InvalidRecord(
            "a message has the timestamp type LogAppendTime, which only the log may set"
        )


def _rows(content: Buffer, position: int, header: BatchHeader, config: LogConfig) -> Iterator[Row]:
    max_bytes = config.max_plain_batch_bytes
    for message in stream_messages(content, position, header, max_bytes, MAX_MESSAGES):
        if message.magic != header.magic:
            raise InvalidRecord(
                f"a message of magic {message.magic} is in a message set of magic {header.magic}"
            )
        if not message.is_valid:
            raise CorruptRecord(
                f"position {position}", f"the CRC-32 of its message {message.offset} is wrong"
            )
        key, value = (
            None if field is None else bytes(field) for field in (message.key, message.value)
        )
        yield message.timestamp, key, value, ()
