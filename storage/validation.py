"""What an append must be before it may touch the log: whole v2 batches, each what its header says.

A batch stays opaque: its header, CRC and size are checked here, its records by whoever decodes them.
Nothing here depends on the log's state, so many appends can be checked at once (CRC releases the GIL).
Source: ``LogValidator`` and ``UnifiedLog.analyzeAndValidateRecords`` of Kafka.
"""

from typing import NamedTuple

from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnsupportedForMessageFormat,
)
from raylog.storage.files import Buffer
from raylog.storage.records.batch import HEADER_SIZE, MAGIC, BatchHeader, check_crc, read_header

MAGIC_POSITION = 16


class CheckedBatch(NamedTuple):
    """A batch that may be appended: its header and its bytes, header included."""

    header: BatchHeader
    content: memoryview


def check_append(records: Buffer, config: LogConfig, now_ms: int) -> list[CheckedBatch]:
    """The batches in ``records``; raises the named error of the first that may not be appended."""
    try:
        view = memoryview(records)
    except TypeError:
        raise InvalidRecord(f"a {type(records).__name__} is no record batch: give bytes or a buffer") from None
    if view.format != "B" or view.ndim != 1:
        view = view.cast("B")
    size = len(view)
    if size > config.segment_bytes:
        raise RecordBatchTooLarge(size, config.segment_bytes)
    batches = []
    position = 0
    while position < size:
        header = _check_header(view, position, size, config, now_ms)
        check_crc(view, position, header)
        end = position + header.size_bytes
        batches.append(CheckedBatch(header, view[position:end]))
        position = end
    if not batches:
        raise CorruptRecord("position 0", "an append of no bytes")
    return batches


def _check_header(view: memoryview, position: int, size: int, config: LogConfig, now_ms: int) -> BatchHeader:
    if size - position < HEADER_SIZE:
        raise CorruptRecord(f"position {position}", f"{size - position} bytes, a header has {HEADER_SIZE}")
    if view[position + MAGIC_POSITION] in (0, 1):
        raise UnsupportedForMessageFormat(view[position + MAGIC_POSITION])
    header = read_header(view, position)
    assert header.magic == MAGIC
    end = position + header.size_bytes
    if end > size:
        raise CorruptRecord(f"position {position}", f"{size - position} bytes of a batch of {header.size_bytes}")
    if header.size_bytes > config.max_message_bytes:
        raise RecordTooLarge(header.size_bytes, config.max_message_bytes)
    if header.count <= 0 or header.count != header.last_offset_delta + 1:
        raise InvalidRecord(
            f"a batch at position {position} says {header.count} records and a last offset delta of "
            f"{header.last_offset_delta}: a batch needs at least one record, and its offsets must be 0, 1, 2, ..."
        )
    if header.attributes & ~0x0F:
        raise InvalidRecord(
            "only plain batches can be appended: transactional and control batches and delete horizons are "
            "written by a transaction coordinator and by compaction, which raylog does not have yet"
        )
    if config.message_timestamp_type == "CreateTime":
        limit = config.message_timestamp_after_max_ms
        if header.max_timestamp - now_ms > limit:
            raise InvalidTimestamp(header.max_timestamp, now_ms, "message.timestamp.after.max.ms", limit)
    return header
