"""What is wrong with a request: its records, its offset, its producer, a name, or a config."""

from typing import Any, ClassVar

from raylog.storage.errors.base import RaylogError


class CorruptRecord(RaylogError):
    """The bytes are not a valid record batch: wrong length, CRC, magic or structure."""

    code, error_name = 2, "CORRUPT_MESSAGE"
    fields: ClassVar[tuple[str, ...]] = ("where", "why")
    where: str
    why: str
    template = (
        "corrupt record batch at {where}: {why}; a producer must encode the batch again, a reader "
        "can continue at another offset"
    )


class DamagedBatch(CorruptRecord):
    """A reader has met bytes in a partition that are no valid batch: most likely its disk's.

    ``offset``: of the first record that it could not read, or a later one.
    """

    fields = ("partition", "offset", "why")
    partition: str
    offset: int
    template = (
        "{partition}: the record at offset {offset}, or one behind it, cannot be read: {why}; the "
        "file is damaged, most likely: `raylog log verify` on the partition's folder says where, "
        "and docs/OPERATIONS.md what to do. A reader can go on at a higher offset"
    )


class InvalidRecord(RaylogError):
    """A well-formed batch breaks a rule of the log.

    Its count or its sequence is wrong, or it holds control records from a client.
    """

    code, error_name = 87, "INVALID_RECORD"
    why: str


class UnsupportedMessage(RaylogError):
    """A message of another release of raylog cannot be read here.

    ``kind``: its class. ``writer``, ``reader``: the releases of the two.
    """

    code, error_name = 35, "UNSUPPORTED_VERSION"
    fields = ("kind", "writer", "reader", "why")
    kind: str
    writer: str
    reader: str
    why: str
    template = (
        "raylog {reader} cannot read a {kind} of raylog {writer}: {why}; only releases that are "
        "one apart work together, see `raylog upgrade status` and install one that is nearer"
    )


class UnwritableValue(RaylogError):
    """A value that Kafka's schema of a message cannot say in this version; nothing was written."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("field", "version", "why")
    field: str
    version: int
    why: str
    template = "{field} of version {version}: {why}"


class InvalidTimestamp(RaylogError):
    """A record's timestamp is outside of the range that the topic accepts."""

    code, error_name = 32, "INVALID_TIMESTAMP"
    fields = ("timestamp", "now", "limit_key", "limit_ms")
    timestamp: int
    now: int
    limit_key: str
    limit_ms: int
    template = (
        "timestamp {timestamp} differs from the current time {now} by more than "
        "{limit_key}={limit_ms}; correct the timestamp, or raise the limit in the topic's config"
    )


class UnsupportedCompressionType(RaylogError):
    """The codec does not exist."""

    code, error_name = 76, "UNSUPPORTED_COMPRESSION_TYPE"
    fields = ("name",)
    name: str
    template = "unknown compression type {name!r}; use none, gzip, snappy, lz4 or zstd"


class RecordTooLarge(RaylogError):
    """A batch is larger than ``max.message.bytes``."""

    code, error_name = 10, "MESSAGE_TOO_LARGE"
    fields: ClassVar[tuple[str, ...]] = ("size_bytes", "max_bytes")
    size_bytes: int
    max_bytes: int
    template = (
        "a batch of {size_bytes} bytes exceeds max.message.bytes={max_bytes}; send smaller "
        "batches, or raise max.message.bytes of the topic"
    )


class PlainBatchTooLarge(CorruptRecord):
    """A batch is larger than ``max.plain.batch.bytes`` when it is decompressed."""

    code, error_name = 10, "MESSAGE_TOO_LARGE"
    template = (
        "record batch too large at {where}: {why}; send smaller batches, or raise "
        "max.plain.batch.bytes of the topic; a reader can set RAYLOG_MAX_PLAIN_BATCH_BYTES"
    )


class RecordBatchTooLarge(RaylogError):
    """An append is larger than ``segment.bytes``."""

    code, error_name = 18, "RECORD_LIST_TOO_LARGE"
    fields = ("size_bytes", "max_bytes")
    size_bytes: int
    max_bytes: int
    template = (
        "an append of {size_bytes} bytes exceeds segment.bytes={max_bytes}; send smaller batches"
    )


class OffsetOutOfRange(RaylogError):
    """The offset is below the log start offset or above the log end offset."""

    code, error_name = 1, "OFFSET_OUT_OF_RANGE"
    fields: ClassVar[tuple[str, ...]] = (
        "partition",
        "offset",
        "log_start_offset",
        "log_end_offset",
    )
    partition: str
    offset: int
    log_start_offset: int
    log_end_offset: int
    template = (
        "{partition}: offset {offset} is out of range: the log holds [{log_start_offset}, "
        "{log_end_offset}); use an offset from {log_start_offset} to {log_end_offset}, or earliest "
        "or latest"
    )


class LogTruncation(OffsetOutOfRange):
    """A log lost its end under a reader, and has other records there now: Kafka's KIP-320.

    ``diverging_offset``: from here on, what the reader has read is not in the log any more.
    """

    fields = (*OffsetOutOfRange.fields, "diverging_offset")
    diverging_offset: int
    template = (
        "{partition}: the log has lost its end and no longer has the records [{diverging_offset}, "
        "{offset}) that were read from it: its offsets are [{log_start_offset}, {log_end_offset}) "
        "now, and some may be of other records; undo what was made of the lost records, and seek "
        "to {diverging_offset} to read what the log has in their place. If the topic was deleted "
        "and made again, this is another log: seek to its beginning"
    )


class OutOfOrderSequence(RaylogError):
    """A producer's sequence has a gap: a batch before this one was lost or given up."""

    code, error_name = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER"
    fields = ("partition", "producer_id", "expected", "got")
    partition: str
    producer_id: int
    expected: int
    got: int
    template = (
        "{partition}: producer {producer_id} sent sequence {got}, but {expected} was expected: an "
        "earlier batch is missing; create a new producer and send the unacknowledged records again"
    )


class InvalidProducerEpoch(RaylogError):
    """A newer instance of this producer has taken over."""

    code, error_name = 47, "INVALID_PRODUCER_EPOCH"
    fields = ("partition", "producer_id", "current", "got")
    partition: str
    producer_id: int
    current: int
    got: int
    template = (
        "{partition}: producer {producer_id} has epoch {got}, but a newer instance with epoch "
        "{current} took over; close this producer"
    )


class InvalidTxnState(RaylogError):
    """A producer with an open transaction sent a batch that is not transactional."""

    code, error_name = 48, "INVALID_TXN_STATE"
    fields = ("partition", "producer_id", "first_offset")
    partition: str
    producer_id: int
    first_offset: int
    template = (
        "{partition}: producer {producer_id} has an open transaction since offset {first_offset}; "
        "send transactional batches, or end the transaction first"
    )


class TransactionCoordinatorFenced(RaylogError):
    """A transaction coordinator wrote a marker after a newer coordinator took over."""

    code, error_name = 52, "TRANSACTION_COORDINATOR_FENCED"
    fields = ("partition", "current", "got")
    partition: str
    current: int
    got: int
    template = (
        "{partition}: a transaction marker has coordinator epoch {got}, but a newer coordinator "
        "with epoch {current} took over; stop this coordinator"
    )


class PolicyViolation(RaylogError):
    """The topic's configuration forbids the request."""

    code, error_name = 44, "POLICY_VIOLATION"
    why: str


class InvalidTopic(RaylogError):
    """The name is not a valid topic name."""

    code, error_name = 17, "INVALID_TOPIC_EXCEPTION"
    fields = ("topic", "why")
    topic: str
    why: str
    template = (
        "topic name {topic!r} {why}; use another one, of 1 to 249 characters of a-z, A-Z, 0-9, "
        "'.', '_' and '-'"
    )


class InvalidPartitions(RaylogError):
    """The number of partitions is not valid."""

    code, error_name = 37, "INVALID_PARTITIONS"
    fields = ("partitions", "least", "most")
    partitions: Any
    least: int
    most: int
    template = (
        "invalid number of partitions {partitions!r}; give a whole number from {least} to {most}: "
        "a topic can have no more, and partitions cannot be removed"
    )


class InvalidConfig(RaylogError):
    """The config key does not exist, or the value is not valid for it."""

    code, error_name = 40, "INVALID_CONFIG"
    fields: ClassVar[tuple[str, ...]] = ("key", "value", "why")
    key: str
    value: Any
    why: str
    template = "config {key}={value!r}: {why}"


class TopicConfigConflict(InvalidConfig):
    """What a topic sets itself does not go with the broker's config, so no log of it is opened.

    The broker was started with another config since the topic was given its own.
    """

    fields: ClassVar[tuple[str, ...]] = ("key", "value", "why", "topic")
    topic: str
    template = (
        "topic {topic} sets {key}={value}, which {why}; set another value with `raylog config set "
        "{quoted_topic} {key}=VALUE`, or remove it with `raylog config set {quoted_topic} --delete "
        "{key}`; or change the broker's config file, and give it to the broker with `raylog start "
        "--config FILE --apply`"
    )


class UnknownConfigKey(InvalidConfig):
    """A config key that was asked for, or is to be deleted, does not exist there."""

    fields: ClassVar[tuple[str, ...]] = ("key", "why")
    template = "config {key}: {why}"
