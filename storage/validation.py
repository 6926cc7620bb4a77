"""What an append must be before it may touch the log: one v2 batch that is what its header says.

One, because that is what makes an idempotent producer's batch written or not, never half; Kafka takes no more
in a request either. A batch stays opaque: its header, CRC and size are checked here, its records by whoever
decodes them. Nothing here depends on the log's state, so many appends can be checked at once (the CRC
releases the GIL). Source: ``LogValidator`` and ``UnifiedLog.analyzeAndValidateRecords`` of Kafka.
"""

from typing import NamedTuple, NoReturn

from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from raylog.storage.files import Buffer
from raylog.storage.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    BatchHeader,
    check_crc,
    read_header,
)
from raylog.storage.records.compression import CODECS

MAGIC_POSITION = 16
CODEC_IDS = frozenset(CODECS.values())


class CheckedBatch(NamedTuple):
    """A batch that may be appended: its header and its bytes, header included."""

    header: BatchHeader
    content: memoryview


def check_append(records: Buffer, config: LogConfig, now_ms: int) -> CheckedBatch:
    """The one batch that ``records`` is; raises the named error of why it may not be appended."""
    content = _bytes_of(records)
    try:
        header = read_header(content)
    except CorruptRecord:
        if len(content) > MAGIC_POSITION and content[MAGIC_POSITION] in (0, 1):
            raise UnsupportedForMessageFormat(content[MAGIC_POSITION]) from None
        raise
    size_bytes = header.batch_length + LOG_OVERHEAD
    if size_bytes != len(content):
        _refuse_length(size_bytes, len(content))
    if size_bytes > config.max_message_bytes:
        raise RecordTooLarge(size_bytes, config.max_message_bytes)
    if size_bytes > config.segment_bytes:
        raise RecordBatchTooLarge(size_bytes, config.segment_bytes)
    if header.count <= 0 or header.count != header.last_offset_delta + 1:
        raise InvalidRecord(
            f"the batch says {header.count} records and a last offset delta of {header.last_offset_delta}: "
            "a batch needs a record, and its offsets must be 0, 1, 2, ..."
        )
    if header.attributes & ~LOG_APPEND_TIME not in CODEC_IDS:
        _refuse_attributes(header)
    if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms and _is_create_time(config):
        limit = config.message_timestamp_after_max_ms
        raise InvalidTimestamp(header.max_timestamp, now_ms, "message.timestamp.after.max.ms", limit)
    check_crc(content, 0, header)
    return CheckedBatch(header, content)


def _bytes_of(records: Buffer) -> memoryview:
    try:
        view = memoryview(records)
        is_bytes = view.format == "B" and view.ndim == 1 and view.c_contiguous
        return view if is_bytes else view.cast("B")
    except (TypeError, ValueError):
        kind = type(records).__name__
        raise InvalidRecord(f"a {kind} is no record batch: give bytes or a buffer") from None


def _is_create_time(config: LogConfig) -> bool:
    return config.message_timestamp_type == "CreateTime"


def _refuse_length(said: int, given: int) -> NoReturn:
    if said > given:
        raise CorruptRecord("position 0", f"{given} bytes of a batch of {said}")
    raise InvalidRecord(
        f"{given - said} bytes behind the batch: an append is one batch; send them one by one"
    )


def _refuse_attributes(header: BatchHeader) -> NoReturn:
    if header.attributes & ~(LOG_APPEND_TIME | CODEC_MASK):
        raise InvalidRecord(
            "only plain batches can be appended: transactional and control batches and delete horizons are "
            "written by a transaction coordinator and by compaction, which raylog does not have yet"
        )
    raise UnsupportedCompressionType(f"id {header.codec}")
