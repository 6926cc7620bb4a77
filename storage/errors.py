"""What can go wrong, by Kafka's names and codes.

Every error carries ``code`` (Kafka's wire code), ``error_name`` (Kafka's name of it) and
``retriable`` (whether the same request can succeed later). Constructor arguments are the fields and
the sentence is made in ``__str__``, so that an error survives pickling and can cross actors. A
sentence says what to do.

Codes: Kafka's ``org.apache.kafka.common.protocol.Errors``.
"""

from typing import Any, ClassVar


class RaylogError(Exception):
    """The root of every error that raylog raises on purpose."""

    code: ClassVar[int] = -1
    error_name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False
    # The constructor's arguments in order: subclasses name them, __init__ sets them, pickling
    # repeats them.
    fields: ClassVar[tuple[str, ...]] = ("why",)
    template: ClassVar[str] = "{why}"

    def __init__(self, *args: Any) -> None:
        if len(args) != len(self.fields):
            raise TypeError(f"{type(self).__name__} takes {self.fields}, got {len(args)} arguments")
        super().__init__(*args)
        for name, value in zip(self.fields, args, strict=True):
            setattr(self, name, value)

    def __str__(self) -> str:
        return self.template.format(**{name: getattr(self, name) for name in self.fields})


# -- bytes -----------------------------------------------------------------------------------------


class CorruptRecord(RaylogError):
    """Bytes that are no valid record batch: wrong length, CRC, magic or shape."""

    code, error_name = 2, "CORRUPT_MESSAGE"
    fields = ("where", "why")
    template = (
        "corrupt record batch at {where}: {why}; encode it again, or read from another offset"
    )


class InvalidRecord(RaylogError):
    """A well-formed batch that breaks a rule of the log (count, sequence, control records from a
    client)."""

    code, error_name = 87, "INVALID_RECORD"


class UnwritableValue(RaylogError):
    """A value that Kafka's schema of a message cannot say in this version; nothing was written."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("field", "version", "why")
    template = "{field} of version {version}: {why}"


class InvalidTimestamp(RaylogError):
    """A record's timestamp is outside of what the topic takes."""

    code, error_name = 32, "INVALID_TIMESTAMP"
    fields = ("timestamp", "now", "limit_key", "limit_ms")
    template = (
        "timestamp {timestamp} is more than {limit_key}={limit_ms} from now ({now}); correct it or "
        "the config"
    )


class UnsupportedCompressionType(RaylogError):
    """A codec that does not exist."""

    code, error_name = 76, "UNSUPPORTED_COMPRESSION_TYPE"
    fields = ("name",)
    template = "no compression type {name!r}: use none, gzip, snappy, lz4 or zstd"


class RecordTooLarge(RaylogError):
    """One batch is over ``max.message.bytes``."""

    code, error_name = 10, "MESSAGE_TOO_LARGE"
    fields = ("size_bytes", "max_bytes")
    template = (
        "a batch of {size_bytes} bytes is over max.message.bytes={max_bytes}: "
        "send smaller batches or raise the topic's config"
    )


class RecordBatchTooLarge(RaylogError):
    """One append is over ``segment.bytes``."""

    code, error_name = 18, "RECORD_LIST_TOO_LARGE"
    fields = ("size_bytes", "max_bytes")
    template = (
        "an append of {size_bytes} bytes is over segment.bytes={max_bytes}: send less at once"
    )


class CorruptIndex(RaylogError):
    """The bytes of an index file are no index for its base offset; it is thrown away and
    rebuilt."""

    code, error_name = 2, "CORRUPT_MESSAGE"
    fields = ("base_offset", "entry", "why")
    template = "index {base_offset}: entry {entry}: {why}; it can be rebuilt from the log"


class CorruptCheckpoint(RaylogError):
    """A checkpoint, snapshot or properties file that cannot be read."""

    code, error_name = 56, "KAFKA_STORAGE_ERROR"
    fields = ("path", "why")
    template = "{path}: {why}; delete it to have it rebuilt, or restore it from a copy"


# -- offsets, producers ----------------------------------------------------------------------------


class OffsetOutOfRange(RaylogError):
    """An offset below the log start offset or above the log end offset."""

    code, error_name = 1, "OFFSET_OUT_OF_RANGE"
    fields = ("partition", "offset", "log_start_offset", "log_end_offset")
    template = (
        "{partition}: offset {offset} is out of range: the log holds "
        "[{log_start_offset}, {log_end_offset}); seek into it, or to earliest or latest"
    )


class OutOfOrderSequence(RaylogError):
    """A producer's sequence has a gap: a batch before this one was lost or given up."""

    code, error_name = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER"
    fields = ("partition", "producer_id", "expected", "got")
    template = (
        "{partition}: producer {producer_id} sent sequence {got} where {expected} was expected: "
        "an earlier batch is missing; open a new producer and send again what was not acknowledged"
    )


class InvalidProducerEpoch(RaylogError):
    """A newer instance of this producer has taken over."""

    code, error_name = 47, "INVALID_PRODUCER_EPOCH"
    fields = ("partition", "producer_id", "current", "got")
    template = (
        "{partition}: producer {producer_id} has epoch {got}, but {current} took over: close this "
        "producer"
    )


class InvalidTxnState(RaylogError):
    """A plain batch of a producer whose transaction is open."""

    code, error_name = 48, "INVALID_TXN_STATE"
    fields = ("partition", "producer_id", "first_offset")
    template = (
        "{partition}: producer {producer_id} has a transaction open since offset {first_offset}: "
        "send transactional batches, or end it first"
    )


class TransactionCoordinatorFenced(RaylogError):
    """A marker of a transaction coordinator that another one has followed."""

    code, error_name = 52, "TRANSACTION_COORDINATOR_FENCED"
    fields = ("partition", "current", "got")
    template = (
        "{partition}: a marker of coordinator epoch {got}, but {current} took over: stop this "
        "coordinator"
    )


class PolicyViolation(RaylogError):
    """A request that the topic's configuration forbids."""

    code, error_name = 44, "POLICY_VIOLATION"


# -- names and configs -----------------------------------------------------------------------------


class InvalidTopic(RaylogError):
    """A name that no topic can have."""

    code, error_name = 17, "INVALID_TOPIC_EXCEPTION"
    fields = ("topic", "why")
    template = (
        "topic name {topic!r} {why}: use 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'"
    )


class InvalidConfig(RaylogError):
    """A config key that does not exist, or a value that it cannot have."""

    code, error_name = 40, "INVALID_CONFIG"
    fields: ClassVar[tuple[str, ...]] = ("key", "value", "why")
    template = "config {key}={value!r}: {why}"


# -- disks -----------------------------------------------------------------------------------------


class StorageError(RaylogError):
    """The disk failed. After a failed write nothing of the append is in the log.

    ``is_disk_failure``: whether the disk itself is to blame, so that its log dir cannot be trusted
    any more.
    """

    code, error_name, retriable = 56, "KAFKA_STORAGE_ERROR", True
    is_disk_failure: ClassVar[bool] = True
    fields: ClassVar[tuple[str, ...]] = ("path", "why")
    template = "{path}: {why}; free or repair the disk, then retry"


class UndoFailed(StorageError):
    """A write failed, and so did taking back what it left. The log must be recovered before its
    next use."""

    fields = ("path", "why")
    template = (
        "{path}: a failed write could not be undone: {why}; repair the disk, then start the broker "
        "again"
    )


class DiskFull(StorageError):
    """No space is left. Nothing of the append is in the log; it takes appends again when there is
    space.

    Said by a write. An fsync that finds no space is a disk that failed (``files.py``).
    """

    is_disk_failure = False
    fields = ("path",)
    template = (
        "{path}: no space left on the device: free some (lower retention.bytes, delete topics), "
        "then retry"
    )


class LogClosed(StorageError):
    """The log was closed in order, or given up: it is being stopped, deleted or moved."""

    is_disk_failure = False
    fields = ("path",)
    template = "{path}: the partition is closed; it is looked up again until it serves"


class SegmentDeleted(StorageError):
    """Retention or compaction took the segment between the look and the read."""

    is_disk_failure = False
    fields = ("path",)
    template = "{path}: the segment was deleted before it was read; fetch again"


class SwapUnfinished(StorageError):
    """No space was left in the middle of a compaction's swap. The log must be opened again, which
    finishes it."""

    is_disk_failure = False
    fields = ("path",)
    template = (
        "{path}: no space left in a compaction's swap; the partition opens again by itself and "
        "finishes it"
    )


class UnfinishedCompaction(StorageError):
    """What a compaction left on its way in is damaged: the bytes, not the disk."""

    is_disk_failure = False
    template = (
        "{path}: an unfinished compaction whose segment is damaged: {why}; restore it from a copy"
    )


class NoRoom(RaylogError):
    """A copy would not fit. Nothing was copied."""

    code, error_name = 56, "KAFKA_STORAGE_ERROR"
    fields = ("path", "needed_bytes", "usable_bytes")
    template = (
        "{path} has {usable_bytes} bytes left, and {needed_bytes} are to be copied: "
        "free some (lower retention.bytes, delete topics), or give another log dir"
    )


class LogDirOffline(StorageError):
    """A log dir failed. Its partitions are offline until the broker's next start; those of other
    dirs serve on."""

    is_disk_failure = False
    template = (
        "log dir {path} is offline: {why}; repair or replace its disk, then start the broker (its "
        "node) again"
    )


class CleaningAborted(RaylogError):
    """A compaction that stopped with the log as it was; the next one begins again."""

    retriable = True
    fields = ("partition", "why")
    template = "{partition}: its compaction was given up: {why}; it is tried again by itself"


class LogMissing(RaylogError):
    """A partition's folder or data is not where it must be. Never answered with an empty log."""

    code, error_name = 56, "KAFKA_STORAGE_ERROR"
    fields = ("path", "why")
    template = (
        "{path}: {why}: is its disk mounted? restore the folder, or delete and create the topic "
        "again"
    )


class FileNotReadable(RaylogError):
    """A file that a tool was given, or that goes with it, and that cannot be read."""

    code, error_name = 56, "KAFKA_STORAGE_ERROR"
    fields = ("path", "why")
    template = "{path}: {why}; give a file that is there and that this user may read"


class UnknownLogFile(RaylogError):
    """A file that is none of a partition's. The sentence is that of Kafka's tool."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("path",)
    template = "Ignoring unknown file {path}"


class RepairRefused(RaylogError):
    """A folder that the repair tool leaves as it is."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("path", "why")
    template = "{path} is not repaired, nothing in it was changed: {why}"


class LogLocked(RaylogError):
    """Another process writes to this folder."""

    code, error_name, retriable = 56, "KAFKA_STORAGE_ERROR", True
    fields = ("path",)
    template = (
        "{path} is locked by another process: stop the broker that uses it, or give another folder"
    )


class InvalidLogDir(RaylogError):
    """A log dir that cannot be used: missing, read-only, no folder, or foreign."""

    code, error_name = 57, "LOG_DIR_NOT_FOUND"
    fields = ("path", "why")
    template = "log dir {path}: {why}"


class DuplicateLogDir(RaylogError):
    """Two log dirs that are the same, or copies of each other."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("path", "other", "why")
    template = "log dirs {other} and {path} {why}: give each once, and no copy of another"


class InconsistentClusterId(RaylogError):
    """A log dir belongs to another cluster."""

    code, error_name = 104, "INCONSISTENT_CLUSTER_ID"
    fields = ("path", "found", "expected")
    template = (
        "log dir {path} belongs to cluster {found}, not {expected}: give the right folder, or an "
        "empty one"
    )
