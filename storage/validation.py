"""What an append must be before it may touch the log: one v2 batch that is what its header says.

Messages of older versions become one first (``conversion.py``).

One, because that is what makes an idempotent producer's batch written or not, never half; Kafka
takes no more in a request either. Every record is looked at: its length and its fields, its offset
(they count 0, 1, 2, ... in a batch), its timestamp, and its key where the topic is compacted. A
compressed batch is decompressed for that, chunk by chunk, unless the topic's config trusts it. A
batch is never rebuilt, and never encoded again: a rule that is broken refuses it. There is one
exception, as in Kafka: producers that leave the header's maximum timestamp out, or take the last
record's for it, have it set to what the records say.

Nothing here depends on the log's state, so many appends can be checked at once (the kernel releases
the GIL). Source: ``LogValidator`` and ``UnifiedLog.analyzeAndValidateRecords`` of Kafka.
"""

from typing import Final, Literal, NamedTuple, NoReturn

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
    no_memory,
)
from raylog.storage.records import kernel
from raylog.storage.records.batch import BatchHeader, check_crc, read_header, seal
from raylog.storage.records.compression import CODECS, compress, plain_chunks
from raylog.storage.records.control import read_marker
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
_UNCOMPRESSED: Final = 0  # the attributes of a plain batch that has no codec


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
    records = unchanging(records)
    header = kernel.ops.check_batch(records, config.record_rules, now_ms)
    return look_closer(records, header, config, now_ms, origin)


def look_closer(
    records: Buffer, header: BatchHeader | None, config: LogConfig, now_ms: int, origin: Origin
) -> CheckedBatch:
    """As :meth:`check_append`, behind the kernel's look at the batch, which found ``header``.

    ``records``: as ``unchanging`` gives them.
    """
    try:
        return _look(records, header, config, now_ms, origin)
    except MemoryError:
        raise no_memory("the batch") from None


def _look(
    records: Buffer, header: BatchHeader | None, config: LogConfig, now_ms: int, origin: Origin
) -> CheckedBatch:
    if header is None:
        if len(records) > AT_MAGIC and records[AT_MAGIC] < MAGIC:
            batch, codec = converted(records, config)
            return _check_records(read_header(batch), batch, config, now_ms, codec)
        header = _closer_look(records, config, now_ms, origin)
        if header.is_control:
            return CheckedBatch(header, records)
    elif header.attributes == _UNCOMPRESSED and config.compression_type == "producer":
        return CheckedBatch(header, records)
    return _check_records(header, records, config, now_ms, header.codec)


def unchanging(records: Buffer) -> Buffer:
    """The same bytes, as long as they are needed: what is checked must be what is written.

    A copy of what can be changed. Ray, and later a socket, give what cannot. Raises InvalidRecord
    for what is no buffer.
    """
    if type(records) is bytes:
        return records
    view = _bytes_of(records)
    return view if view.readonly else bytes(view)


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


def _check_records(
    header: BatchHeader, content: Buffer, config: LogConfig, now_ms: int, own_codec: int
) -> CheckedBatch:
    """The batch with its records checked, its maximum timestamp right, and the topic's codec."""
    target = own_codec if config.target_codec is None else config.target_codec
    is_recompressed = target != header.codec
    if header.codec and not is_recompressed and not config.check_compressed_batches:
        return CheckedBatch(header, content)
    plain = bytearray()
    walk = kernel.ops.RecordWalk(header.count, header.base_timestamp, config.record_rules, now_ms)
    stream = memoryview(content)[HEADER_SIZE:]
    for chunk in plain_chunks(header.codec, stream, config.max_plain_batch_bytes):
        walk.feed(chunk)
        if is_recompressed:
            plain += chunk
    walk.finish()
    _check_rules(walk, config, now_ms)
    changed = header._replace(attributes=header.attributes & ~CODEC_MASK | target)
    if config.record_rules.is_create_time:
        changed = changed._replace(max_timestamp=walk.largest_timestamp)
    if changed != header:
        if is_recompressed:
            stream = memoryview(compress(target, plain, config.compression_level))
        content = seal(bytearray().join((bytes(HEADER_SIZE), stream)), changed)
        header = read_header(content)
    _check_size(len(content), config)
    return CheckedBatch(header, content)


def _check_rules(walk: "kernel.ops.RecordWalk", config: LogConfig, now_ms: int) -> None:
    if walk.outside is not None:
        side = "before" if walk.outside < now_ms else "after"
        _refuse_timestamp(walk.outside, now_ms, config, side)
    if walk.keyless:
        named = ", ".join(map(str, walk.named))
        more = walk.keyless - len(walk.named)
        raise InvalidRecord(
            "cleanup.policy=compact needs a key in every record; without one: records "
            f"{named}{f' and {more} more' if more else ''}"
        )


def _refuse_timestamp(timestamp: int, now_ms: int, config: LogConfig, side: str) -> NoReturn:
    limit = getattr(config, f"message_timestamp_{side}_max_ms")
    raise InvalidTimestamp(timestamp, now_ms, f"message.timestamp.{side}.max.ms", limit)


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
