"""What an append must be before it may touch the log: one v2 batch that is what its header says.

Messages of older versions become one first (``conversion.py``).

One, because that is what makes an idempotent producer's batch written or not, never half; Kafka
takes no more in a request either. A batch stays opaque: its header, CRC and size are checked, its
records by whoever decodes them, unless the topic's config asks for a look at them
(:func:`_look_inside`). Kafka looks at every record of every batch; a record that lies about its own
length is found there at the append, and here by its reader.

Nothing here depends on the log's state, so many appends can be checked at once (the CRC releases
the GIL). Source: ``LogValidator`` and ``UnifiedLog.analyzeAndValidateRecords`` of Kafka.
"""

from typing import Final, Literal, NamedTuple, NoReturn

import numpy as np

from raylog.storage.buffers import Buffer
from raylog.storage.config import LogConfig
from raylog.storage.conversion import converted
from raylog.storage.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnsupportedCompressionType,
)
from raylog.storage.records import kernel
from raylog.storage.records.batch import BatchHeader, check_crc, read_header, seal
from raylog.storage.records.compression import CODECS, compress, decompress
from raylog.storage.records.control import read_marker
from raylog.storage.records.decode import decode_table
from raylog.storage.records.layout import (
    AT_MAGIC,
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
)

# Who appends. Only a coordinator may write control batches, and it counts no sequence.
Origin = Literal["client", "coordinator"]
CLIENT: Final = "client"
COORDINATOR: Final = "coordinator"

CODEC_IDS = frozenset(CODECS.values())
_TOLD_FAILURES = 10  # so many rows of a batch are named in its error


class CheckedBatch(NamedTuple):
    """A batch that may be appended: its header and its bytes, header included."""

    header: BatchHeader
    content: Buffer


def check_append(
    records: Buffer, config: LogConfig, now_ms: int, origin: Origin = CLIENT
) -> CheckedBatch:
    """The one batch that ``records`` is; raises the named error of why it may not be appended.

    Recompressed where the topic's ``compression.type`` asks for another codec.
    """
    limit = min(config.max_message_bytes, config.segment_bytes)
    header = kernel.ops.plain_header(records, limit, now_ms, config.message_timestamp_after_max_ms)
    content = records if type(records) is bytes else _bytes_of(records)
    if header is None:
        if len(content) > AT_MAGIC and content[AT_MAGIC] < MAGIC:
            content = converted(content, config)
        header = _closer_look(content, config, now_ms, origin)
    if config.is_opaque or header.is_control:
        return CheckedBatch(header, content)
    return _look_inside(header, content, config, now_ms)


def _closer_look(content: Buffer, config: LogConfig, now_ms: int, origin: Origin) -> BatchHeader:
    """The header of a batch that the kernel did not find plain.

    Raises with the reason why the batch may not be appended.
    """
    header = read_header(content)
    size_bytes = header.batch_length + LOG_OVERHEAD
    if size_bytes != len(content):
        _refuse_length(size_bytes, len(content))
    _check_size(size_bytes, config)
    if header.count <= 0 or header.count != header.last_offset_delta + 1:
        raise InvalidRecord(
            f"the batch has a record count of {header.count} and a last offset delta of "
            f"{header.last_offset_delta}; a batch must have at least one record, and its offsets "
            "must be 0, 1, 2, ..."
        )
    _check_attributes(header, origin)
    _check_timestamp_type(header, config, now_ms)
    check_crc(content, 0, header)
    if header.is_control and read_marker(content) is None:
        raise InvalidRecord("a log accepts only those control batches that end a transaction")
    return header


def _check_size(size_bytes: int, config: LogConfig) -> None:
    if size_bytes > config.max_message_bytes:
        raise RecordTooLarge(size_bytes, config.max_message_bytes)
    if size_bytes > config.segment_bytes:
        raise RecordBatchTooLarge(size_bytes, config.segment_bytes)


def _check_attributes(header: BatchHeader, origin: Origin) -> None:
    if header.attributes & ~(CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL):
        raise InvalidRecord(
            f"attributes {header.attributes:#x} are invalid; only compaction sets delete horizons"
        )
    if header.codec not in CODEC_IDS:
        raise UnsupportedCompressionType(f"id {header.codec}")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidRecord("a transactional batch needs a producer id")
    if header.is_control:
        if origin == CLIENT:
            raise InvalidRecord("only the transaction coordinator may write control batches")
        if header.codec or header.count != 1:
            raise InvalidRecord("a control batch must have one record, and must not be compressed")


def _check_timestamp_type(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """By the header alone. On a topic of LogAppendTime only the log says so of a batch."""
    if config.message_timestamp_type == "CreateTime":
        if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
            _refuse_timestamp(header.max_timestamp, now_ms, config, "after")
    elif header.attributes & LOG_APPEND_TIME:
        raise InvalidRecord(
            "the batch has the timestamp type LogAppendTime, which only the log may set"
        )


def _look_inside(
    header: BatchHeader, content: Buffer, config: LogConfig, now_ms: int
) -> CheckedBatch:
    """What only the records tell: their keys, their own timestamps; and another codec for them."""
    if config.is_compacted or config.checks_record_timestamps:
        columns = decode_table(content, check_crc=False, headers=False)
        if columns.num_rows != header.count:
            raise CorruptRecord("position 0", f"only {columns.num_rows} of {header.count} records")
        if config.is_compacted and columns.column("key").null_count:
            nulls = np.flatnonzero(columns.column("key").is_null())
            raise InvalidRecord(
                f"cleanup.policy=compact needs a key in every record; without one: {_listed(nulls)}"
            )
        if config.checks_record_timestamps:
            _check_timestamps(columns.column("timestamp").to_numpy(), config, now_ms)
    target = config.target_codec
    if target is None or target == header.codec:
        return CheckedBatch(header, content)
    plain = decompress(header.codec, memoryview(content)[HEADER_SIZE:])
    stream = compress(target, plain, config.compression_level)
    changed = bytearray().join((bytes(HEADER_SIZE), stream))
    sealed = seal(changed, header._replace(attributes=header.attributes & ~CODEC_MASK | target))
    _check_size(len(sealed), config)
    return CheckedBatch(read_header(sealed), sealed)


def _check_timestamps(timestamps: "np.ndarray", config: LogConfig, now_ms: int) -> None:
    given = timestamps[timestamps != -1]
    if not len(given):
        return
    oldest, newest = int(given.min()), int(given.max())
    if now_ms - oldest > config.message_timestamp_before_max_ms:
        _refuse_timestamp(oldest, now_ms, config, "before")
    if newest - now_ms > config.message_timestamp_after_max_ms:
        _refuse_timestamp(newest, now_ms, config, "after")


def _refuse_timestamp(timestamp: int, now_ms: int, config: LogConfig, side: str) -> NoReturn:
    limit = getattr(config, f"message_timestamp_{side}_max_ms")
    raise InvalidTimestamp(timestamp, now_ms, f"message.timestamp.{side}.max.ms", limit)


def _listed(rows: "np.ndarray") -> str:
    shown = ", ".join(map(str, rows[:_TOLD_FAILURES]))
    return f"records {shown}" + (
        f" and {len(rows) - _TOLD_FAILURES} more" if len(rows) > _TOLD_FAILURES else ""
    )


def _bytes_of(records: Buffer) -> memoryview:
    try:
        view = memoryview(records)
        return (
            view if view.format == "B" and view.ndim == 1 and view.c_contiguous else view.cast("B")
        )
    except (TypeError, ValueError):
        kind = type(records).__name__
        raise InvalidRecord(f"a {kind} is not a record batch; give bytes or a buffer") from None


def _refuse_length(said: int, given: int) -> NoReturn:
    if said > given:
        raise CorruptRecord("position 0", f"only {given} of {said} bytes of the batch")
    raise InvalidRecord(f"{given - said} bytes follow the batch; append batches one by one")
