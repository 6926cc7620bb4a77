"""The errors of the storage layer, with Kafka's names and codes.

Every error carries ``code`` (the error code of Kafka's protocol, -1 where Kafka has none for it),
``error_name`` (Kafka's name of it) and ``retriable`` (whether Kafka's clients send a request again
that was answered with this code). The constructor's arguments are
the error's fields, and ``__str__`` makes the sentence from them. So an error survives pickling and
can cross actors. The sentence says what happened and what to do.

Users import errors from ``raylog.errors``. Codes: Kafka's
``org.apache.kafka.common.protocol.Errors``.
"""

import shlex
from typing import Any, ClassVar, Final

# The codes whose exception is a RetriableException in Kafka: a client sends the request again.
RETRIABLE_CODES: Final = frozenset(
    (2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 88, 89, 100, 103)
)


class RaylogError(Exception):
    """The root of every error that raylog raises on purpose."""

    code: ClassVar[int] = -1
    error_name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False  # by the code: no class says otherwise
    # The names of the constructor's arguments, in order. Subclasses define them, __init__ sets
    # them as attributes, and pickling calls the constructor with them again.
    fields: ClassVar[tuple[str, ...]] = ("why",)
    # What happened; what to do. In a command, {quoted_path} is the field path, quoted for a shell.
    template: ClassVar[str] = "{why}"

    def __init_subclass__(cls) -> None:
        cls.retriable = cls.code in RETRIABLE_CODES

    def __init__(self, *args: Any) -> None:
        if len(args) != len(self.fields):
            raise TypeError(f"{type(self).__name__} takes {self.fields}, got {len(args)} arguments")
        super().__init__(*args)
        for name, value in zip(self.fields, args, strict=True):
            setattr(self, name, value)

    def __str__(self) -> str:
        return self._filled(self.template)

    @property
    def problem(self) -> str:
        """What happened, without what to do."""
        return self._filled(self.template.partition("; ")[0])

    @property
    def advice(self) -> str:
        """What to do; empty where the class does not say."""
        return self._filled(self.template.partition("; ")[2])

    def _filled(self, template: str) -> str:
        values = {name: getattr(self, name) for name in self.fields}
        quoted = {f"quoted_{name}": shlex.quote(str(value)) for name, value in values.items()}
        return template.format(**values, **quoted)


# -- bytes -----------------------------------------------------------------------------------------


class CorruptRecord(RaylogError):
    """The bytes are not a valid record batch: wrong length, CRC, magic or structure."""

    code, error_name = 2, "CORRUPT_MESSAGE"
    fields = ("where", "why")
    where: str
    why: str
    template = (
        "corrupt record batch at {where}: {why}; a producer must encode the batch again, a reader "
        "can continue at another offset"
    )


class InvalidRecord(RaylogError):
    """A well-formed batch breaks a rule of the log.

    Its count or its sequence is wrong, or it holds control records from a client.
    """

    code, error_name = 87, "INVALID_RECORD"
    why: str


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


class CorruptIndex(RaylogError):
    """The bytes of an index file are not an index for its base offset.

    The log deletes the file and rebuilds it.
    """

    fields = ("base_offset", "entry", "why")
    base_offset: int
    entry: int
    why: str
    template = (
        "index of segment {base_offset}, entry {entry}: {why}; the index can be rebuilt from the "
        "log"
    )


class CorruptCheckpoint(RaylogError):
    """A checkpoint, snapshot or properties file cannot be read."""

    fields = ("path", "why")
    path: str
    why: str
    template = (
        "{path}: {why}; restore the file from a copy. Delete it only if docs/OPERATIONS.md "
        "(Damaged small files) says that this is harmless"
    )


# -- offsets, producers ----------------------------------------------------------------------------


class OffsetOutOfRange(RaylogError):
    """The offset is below the log start offset or above the log end offset."""

    code, error_name = 1, "OFFSET_OUT_OF_RANGE"
    fields = ("partition", "offset", "log_start_offset", "log_end_offset")
    partition: str
    offset: int
    log_start_offset: int
    log_end_offset: int
    template = (
        "{partition}: offset {offset} is out of range: the log holds [{log_start_offset}, "
        "{log_end_offset}); use an offset in this range, or earliest or latest"
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


# -- names and configs -----------------------------------------------------------------------------


class InvalidTopic(RaylogError):
    """The name is not a valid topic name."""

    code, error_name = 17, "INVALID_TOPIC_EXCEPTION"
    fields = ("topic", "why")
    topic: str
    why: str
    template = (
        "topic name {topic!r} {why}; use 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'"
    )


class InvalidPartitions(RaylogError):
    """The number of partitions is not valid."""

    code, error_name = 37, "INVALID_PARTITIONS"
    fields = ("partitions", "least", "most")
    partitions: Any
    least: int
    most: int
    template = (
        "invalid number of partitions {partitions!r}; give a whole number from {least} to {most} "
        "(partitions cannot be removed)"
    )


class InvalidConfig(RaylogError):
    """The config key does not exist, or the value is not valid for it."""

    code, error_name = 40, "INVALID_CONFIG"
    fields: ClassVar[tuple[str, ...]] = ("key", "value", "why")
    key: str
    value: Any
    why: str
    template = "config {key}={value!r}: {why}"


class UnknownConfigKey(InvalidConfig):
    """A config key that was asked for, or is to be deleted, does not exist there."""

    fields: ClassVar[tuple[str, ...]] = ("key", "why")
    template = "config {key}: {why}"


# -- disks -----------------------------------------------------------------------------------------


class StorageError(RaylogError):
    """A call to the file system failed. After a failed write, nothing of the append is in the log.

    ``is_disk_failure``: whether the disk itself failed, so that its log dir cannot be trusted any
    more. Kinds of this error that are not the disk's say False. ``files.py`` decides which it is.
    """

    code, error_name = 56, "KAFKA_STORAGE_ERROR"
    is_disk_failure: ClassVar[bool] = True
    fields: ClassVar[tuple[str, ...]] = ("path", "why")
    path: str
    why: str
    template = "{path}: {why}"


class UndoFailed(StorageError):
    """A write failed, and the disk failed when its partial result was to be removed.

    The partition is offline. Its log must be recovered before its next use.
    """

    fields = ("path", "why")
    path: str
    why: str
    template = "{path}: a write failed and could not be undone: {why}"


class UndoInterrupted(UndoFailed):
    """A write failed, and its partial result could not be removed. The disk itself is fine.

    The partition is offline until its log is opened again, which removes it.
    """

    is_disk_failure = False
    template = (
        "{path}: a write failed and could not be undone: {why}; the partition reopens by itself, "
        "which removes the rest of the write"
    )


class OutOfResources(StorageError):
    """The process may not do more: no descriptor, no memory, no larger file. The disk is fine.

    Nothing has changed, and the same call can succeed later.
    """

    is_disk_failure = False
    fields = ("path", "why")
    path: str
    why: str
    template = "{path}: {why}; the disk is fine and nothing was changed, so retry"


def no_memory(what: str) -> OutOfResources:
    """The error for a MemoryError where nothing was changed yet."""
    why = "the process has no memory left for it; give it more, or send and fetch smaller batches"
    return OutOfResources(what, why)


class TemporaryFileLost(StorageError):
    """A file that was being written was removed before it got its name. The disk is fine."""

    is_disk_failure = False
    fields = ("path",)
    path: str
    template = (
        "{path}: the file was removed while it was being written; keep other programs out of this "
        "folder, then retry"
    )


class DiskFull(StorageError):
    """No space is left on the disk, and nothing of the append is in the log.

    The log accepts appends again when there is space.

    Only a write raises this. An fsync that finds no space counts as a failed disk (``files.py``).
    """

    is_disk_failure = False
    fields = ("path",)
    path: str
    template = (
        "{path}: no space left on the device; free some space (remove files that are not raylog's, "
        "or lower retention.bytes of a topic whose oldest records nobody needs), then retry"
    )


class LogClosed(StorageError):
    """The log was closed in order or abandoned: it is being stopped, deleted or moved."""

    is_disk_failure = False
    fields = ("path",)
    path: str
    template = (
        "{path}: the partition's log is closed, because it is being stopped, deleted or moved; "
        "clients look the partition up again until it serves"
    )


class SegmentDeleted(StorageError):
    """Retention or compaction deleted the segment between the lookup and the read."""

    is_disk_failure = False
    fields = ("path",)
    path: str
    template = "{path}: the segment was deleted before it was read; fetch again"


class SwapUnfinished(StorageError):
    """The swap of a compaction was interrupted, and the disk is fine: it is full, for example.

    The log must be opened again, which completes the swap.
    """

    is_disk_failure = False
    fields = ("path", "why")
    path: str
    why: str
    template = (
        "{path}: the swap of a compaction was interrupted; the partition reopens by itself and "
        "completes the swap: {why}"
    )


class UnfinishedCompaction(StorageError):
    """A crash interrupted a compaction's swap, and the new segment is damaged.

    The disk itself is fine.
    """

    is_disk_failure = False
    template = (
        "{path}: an unfinished compaction left a damaged segment: {why}; restore the segment from "
        "a copy, and remove no file of this folder by hand: some may be the only copy"
    )


class NoRoom(RaylogError):
    """The disk has too little space for a copy. Nothing was copied."""

    fields = ("path", "needed_bytes", "usable_bytes")
    path: str
    needed_bytes: int
    usable_bytes: int
    template = (
        "{path}: the copy needs {needed_bytes} bytes, but only {usable_bytes} are free; free some "
        "space (remove files that are not raylog's, or lower retention.bytes of a topic whose "
        "oldest records nobody needs), then retry"
    )


class LogDirOffline(StorageError):
    """A log dir failed: its partitions are offline until the broker's next start.

    Partitions in other log dirs continue to serve.
    """

    is_disk_failure = False
    template = (
        "log dir {path} is offline: {why}; repair its disk, or replace it and restore a copy, then "
        "start the broker or its node again"
    )


class CleaningAborted(RaylogError):
    """A compaction stopped and left the log as it was. The next one begins again."""

    retriable = True
    fields = ("partition", "why")
    partition: str
    why: str
    template = "{partition}: the compaction was aborted: {why}; it is retried automatically"


class LogMissing(RaylogError):
    """A partition's folder or data is not where it must be.

    raylog never replaces it with an empty log.
    """

    fields = ("path", "why")
    path: str
    why: str
    template = (
        "{path}: {why}; mount its disk, or stop the broker and restore the folder from a copy, "
        "then start the broker again. Do not make the folder by hand. Without a copy: "
        "docs/OPERATIONS.md, A partition that is lost"
    )


class TopicIdUnreadable(RaylogError):
    """``partition.metadata`` is missing or damaged: nobody can tell whose records a folder has.

    The folder stays where it is, and is not opened.
    """

    code, error_name = 56, "KAFKA_STORAGE_ERROR"
    fields = ("folder", "topic_id", "why")
    folder: str
    topic_id: str
    why: str
    template = (
        "{folder}/partition.metadata {why}, so it is not known whether the records are this "
        "topic's; restore the file from a copy. Without a copy: if no topic of this name was "
        "deleted since the log dir was last in use, write it again, with the two lines 'version: "
        "0' and 'topic_id: {topic_id}'. The partition then opens by itself"
    )


class LogShorterThanFlushed(RaylogError):
    """A log ends before its recovery point: records are missing that were fsynced.

    Opening changed no record. ``end_offset``: where the log would end now.
    """

    fields = ("path", "end_offset", "recovery_point")
    path: str
    end_offset: int
    recovery_point: int
    template = (
        "{path}: the log ends at offset {end_offset}, but everything below {recovery_point} was "
        "on the disk; stop the broker, and mount the disk or restore the missing file from a copy. "
        "`raylog log accept-loss {quoted_path}` shows which offsets are missing, and whether files "
        "in the folder still have them. Only if they are lost for good, accept the loss there. "
        "Then start the broker"
    )


class FlushedRecordsMissing(RaylogError):
    """Records that were fsynced are missing between two segments of a log: a file is gone.

    Opening changed no record.
    """

    code, error_name = 56, "KAFKA_STORAGE_ERROR"
    fields = ("path", "first_offset", "end_offset")
    path: str
    first_offset: int
    end_offset: int
    template = (
        "{path}: the offsets from {first_offset} on, before {end_offset}, were on the disk and are "
        "missing in the log; stop the broker, and mount the disk or restore the missing file from "
        "a copy. Only if the records are lost for good: `raylog log accept-loss {quoted_path}`, "
        "and consumers skip these offsets. Then start the broker"
    )


class NoRoomToSetAside(RaylogError):
    """The disk has no room to keep what recovery must cut off a log. Nothing was cut."""

    fields = ("path", "needed_bytes", "usable_bytes")
    path: str
    needed_bytes: int
    usable_bytes: int
    template = (
        "{path}: recovery must set {needed_bytes} bytes aside, but only {usable_bytes} are free, "
        "so the log stays closed; free some space (never by removing files of this folder), and "
        "the partition opens by itself"
    )


class AsideRefused(RaylogError):
    """A decision about a log's records could not be carried out. Nothing was changed."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("path", "why")
    path: str
    why: str
    template = "{path}: {why}; nothing was changed"


class NotAPartitionFolder(RaylogError):
    """A tool was given a path that is not the folder of a partition with a log."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("path", "why")
    path: str
    why: str
    template = (
        "{path}: {why}; nothing was changed. Check the path: a partition's folder is <log "
        "dir>/<topic>-<partition>, and has .log files. If the path is right, check that its disk "
        "is mounted"
    )


class FileNotReadable(RaylogError):
    """A tool cannot read a file that it was given, or a file that belongs to it."""

    fields = ("path", "why")
    path: str
    why: str
    template = "{path}: {why}; give a file that exists and that this user may read"


class UnknownLogFile(RaylogError):
    """The file is not one of a partition's files. The sentence is that of Kafka's tool."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("path",)
    path: str
    template = "Ignoring unknown file {path}"


class RepairRefused(RaylogError):
    """The repair tool refused to change the folder."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("path", "why")
    path: str
    why: str
    template = "{path} was not repaired and nothing in it was changed: {why}"


class LogLocked(RaylogError):
    """Another process holds the lock of this folder."""

    code, error_name = 56, "KAFKA_STORAGE_ERROR"
    fields = ("path",)
    path: str
    template = (
        "{path} is locked by another process; stop the broker that uses it (`raylog stop`), or "
        "wait until the tool that works on it has ended"
    )


class InvalidLogDir(RaylogError):
    """The log dir cannot be used: it is missing, read-only, not a folder, or foreign."""

    code, error_name = 57, "LOG_DIR_NOT_FOUND"
    fields = ("path", "why")
    path: str
    why: str
    template = "log dir {path}: {why}"


class DuplicateLogDir(RaylogError):
    """Two log dirs are the same folder, or copies of each other."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("path", "other", "why")
    path: str
    other: str
    why: str
    template = "log dirs {other} and {path} {why}; list each log dir once, and no copies"


class InconsistentClusterId(RaylogError):
    """The log dir belongs to another cluster."""

    code, error_name = 104, "INCONSISTENT_CLUSTER_ID"
    fields = ("path", "found", "expected")
    path: str
    found: str
    expected: str
    template = (
        "log dir {path} belongs to cluster {found}, not {expected}; use a log dir of this cluster, "
        "or an empty folder"
    )
