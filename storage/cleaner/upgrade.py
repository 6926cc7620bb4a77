"""Converts messages of versions 0 and 1 in a compacted log to batches of version 2.

Offsets and times are kept.

Kafka's cleaner filters old messages as they are. Ours knows one format: what it keeps of old
messages is written as version 2 the first time it comes by, as an append of them would be.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from raylog.storage.buffers import Buffer
from raylog.storage.errors import CorruptRecord
from raylog.storage.records.batch import check_crc, iter_batches
from raylog.storage.records.compression import CODECS
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import LOG_APPEND_TIME, MAGIC
from raylog.storage.records.legacy import Message, read_messages

_NAMES = {number: name for name, number in CODECS.items()}


class _Kind(NamedTuple):
    """What the messages of one new batch have in common."""

    magic: int
    set_at: int  # where the compressed set begins that they are; -1 for plain messages
    codec: int
    append_time: int | None


def upgraded(chunk: memoryview) -> bytes:
    """The same records in batches of version 2 alone. Raises CorruptRecord."""
    return b"".join(_batches(chunk))


def _batches(chunk: memoryview) -> Iterator[Buffer]:
    for kind, run in groupby(_parts(chunk), key=lambda part: part[0]):
        if kind is None:
            yield from (content for _, content, _ in run)
        else:
            yield _batch(kind, [message for _, _, messages in run for message in messages])


def _parts(chunk: memoryview) -> Iterator[tuple[_Kind | None, Buffer, Sequence[Message]]]:
    """Each batch or message as a tuple of three.

    For version 2: (None, its bytes, nothing). Otherwise: (kind, nothing, messages).
    """
    for position, header in iter_batches(chunk):
        if header.magic == MAGIC:
            yield None, chunk[position : position + header.size_bytes], ()
            continue
        check_crc(chunk, position, header)
        messages = read_messages(chunk, position, header)
        if not all(message.is_valid for message in messages):
            raise CorruptRecord(
                f"position {position} of a chunk", "the CRC-32 of a message is wrong"
            )
        append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
        yield (
            _Kind(
                magic=header.magic,
                set_at=position if header.codec else -1,
                codec=header.codec,
                append_time=append_time,
            ),
            b"",
            messages,
        )


def _batch(kind: _Kind, messages: Sequence[Message]) -> bytes:
    rows = [
        (
            message.timestamp,
            None if message.key is None else bytes(message.key),
            None if message.value is None else bytes(message.value),
            (),
        )
        for message in messages
    ]
    offsets = [message.offset for message in messages]
    return bytes(
        encode_records(
            rows,
            compression_type=_NAMES[kind.codec],
            base_offset=offsets[0],
            offsets=offsets,
            log_append_time=kind.append_time,
        )
    )
