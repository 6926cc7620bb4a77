"""Every error that raylog raises: the public place to import error classes from.

    from raylog.errors import NotLeader, OffsetOutOfRange, RaylogError

All classes are subclasses of ``RaylogError``. ``except RaylogError`` catches every error that
raylog raises on purpose. Each class has:

=============== ============================================================================
``code``        the error code of Kafka's protocol; -1 if Kafka has none for this error
``error_name``  Kafka's name of that code, for example ``NOT_LEADER_OR_FOLLOWER``
``retriable``   whether Kafka's clients send the request again after this code
``fields``      the names of the constructor's arguments; each is an attribute of the error
=============== ============================================================================

``str(error)`` says what happened and what to do. Errors can be pickled, so they cross processes.

Several classes can share a code: catch the class, not the code. ``StorageError`` and its subclasses
are the errors of a disk or of one log's files.

The classes are defined next to the code that raises them: ``raylog.storage.errors`` (log, disk,
configuration), ``raylog.actors.errors`` (cluster, clients), ``raylog.cluster.spark.errors``
(Spark). This module only re-exports them. Classes whose module needs Arrow, YAML or the command
line are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from raylog.actors.errors import (
    ActorAway,
    AnswerLost,
    BrokerNotFound,
    BrokerRunning,
    BufferExhausted,
    ConfigUnconfirmed,
    ConsumerBusy,
    ConsumerClosed,
    ConsumerWokenUp,
    DeserializationFailed,
    FencedLeaderEpoch,
    ForkedProcess,
    InvalidRequest,
    LabelShared,
    LogRefused,
    MetadataInDoubt,
    MetadataMissing,
    MetadataUnreadable,
    MoveRunning,
    NodeOrderReplaced,
    NoLogDirs,
    NoOffsetForPartition,
    NoProducerId,
    NotController,
    NothingAssigned,
    NothingChanged,
    NotLeader,
    OlderMetadata,
    ProduceFailed,
    RayNotFound,
    RayNotStarted,
    ReadTimedOut,
    RecordTooLargeToSend,
    ReentrantCall,
    RequestTimedOut,
    SeveralBrokers,
    SeveralClusters,
    TokenNotMade,
    TooManyAppends,
    TooManyPartitions,
    TooManyPolls,
    TopicBusy,
    TopicExists,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    WorkFailed,
)
from raylog.storage.errors import (
    AsideRefused,
    CleaningAborted,
    CorruptCheckpoint,
    CorruptIndex,
    CorruptRecord,
    DiskFull,
    DuplicateLogDir,
    FileGone,
    FileNotReadable,
    FlushedRecordsMissing,
    IdentityMissing,
    InconsistentClusterId,
    InvalidConfig,
    InvalidLogDir,
    InvalidPartitions,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    InvalidTxnState,
    LogClosed,
    LogDirOffline,
    LogLocked,
    LogMissing,
    LogShorterThanFlushed,
    LogTruncation,
    NoRoom,
    NoRoomToSetAside,
    NotAPartitionFolder,
    OffsetOutOfRange,
    OutOfOrderSequence,
    OutOfResources,
    PlainBatchTooLarge,
    PolicyViolation,
    RaylogError,
    RecordBatchTooLarge,
    RecordTooLarge,
    RepairRefused,
    SegmentDeleted,
    StorageError,
    SwapUnfinished,
    TemporaryFileLost,
    TopicIdUnreadable,
    TransactionCoordinatorFenced,
    UndoFailed,
    UndoInterrupted,
    UnfinishedCompaction,
    UnknownConfigKey,
    UnknownLogFile,
    UnsupportedCompressionType,
    UnwritableValue,
)

if TYPE_CHECKING:
    from raylog.cluster.config_file import InvalidConfigFile
    from raylog.cluster.spark.errors import (
        DataLoss,
        InvalidSparkOption,
        InvalidSparkSchema,
        SparkSessionExists,
        SparkUnavailable,
    )

__all__ = [
    "ActorAway",
    "AnswerLost",
    "AsideRefused",
    "BrokerNotFound",
    "BrokerRunning",
    "BufferExhausted",
    "CleaningAborted",
    "ConfigUnconfirmed",
    "ConsumerBusy",
    "ConsumerClosed",
    "ConsumerWokenUp",
    "CorruptCheckpoint",
    "CorruptIndex",
    "CorruptRecord",
    "DataLoss",
    "DeserializationFailed",
    "DiskFull",
    "DuplicateLogDir",
    "FencedLeaderEpoch",
    "FileGone",
    "FileNotReadable",
    "FlushedRecordsMissing",
    "ForkedProcess",
    "IdentityMissing",
    "InconsistentClusterId",
    "InvalidConfig",
    "InvalidConfigFile",
    "InvalidLogDir",
    "InvalidPartitions",
    "InvalidProducerEpoch",
    "InvalidRecord",
    "InvalidRequest",
    "InvalidSparkOption",
    "InvalidSparkSchema",
    "InvalidTimestamp",
    "InvalidTopic",
    "InvalidTxnState",
    "LabelShared",
    "LogClosed",
    "LogDirOffline",
    "LogLocked",
    "LogMissing",
    "LogRefused",
    "LogShorterThanFlushed",
    "LogTruncation",
    "MetadataInDoubt",
    "MetadataMissing",
    "MetadataUnreadable",
    "MoveRunning",
    "NoLogDirs",
    "NoOffsetForPartition",
    "NoProducerId",
    "NoRoom",
    "NoRoomToSetAside",
    "NodeOrderReplaced",
    "NotAPartitionFolder",
    "NotController",
    "NotLeader",
    "NothingAssigned",
    "NothingChanged",
    "OffsetOutOfRange",
    "OlderMetadata",
    "OutOfOrderSequence",
    "OutOfResources",
    "PlainBatchTooLarge",
    "PolicyViolation",
    "ProduceFailed",
    "RayNotFound",
    "RayNotStarted",
    "RaylogError",
    "ReadTimedOut",
    "RecordBatchTooLarge",
    "RecordTooLarge",
    "RecordTooLargeToSend",
    "ReentrantCall",
    "RepairRefused",
    "RequestTimedOut",
    "SegmentDeleted",
    "SeveralBrokers",
    "SeveralClusters",
    "SparkSessionExists",
    "SparkUnavailable",
    "StorageError",
    "SwapUnfinished",
    "TemporaryFileLost",
    "TokenNotMade",
    "TooManyAppends",
    "TooManyPartitions",
    "TooManyPolls",
    "TopicBusy",
    "TopicExists",
    "TopicIdUnreadable",
    "TransactionCoordinatorFenced",
    "UndoFailed",
    "UndoInterrupted",
    "UnfinishedCompaction",
    "UnknownConfigKey",
    "UnknownLeaderEpoch",
    "UnknownLogFile",
    "UnknownTopicId",
    "UnknownTopicOrPartition",
    "UnsupportedCompressionType",
    "UnsupportedVersion",
    "UnwritableValue",
    "WorkFailed",
]

# Class -> module, for the classes that are imported on first use.
_LAZY = {
    "DataLoss": "raylog.cluster.spark.errors",
    "InvalidConfigFile": "raylog.cluster.config_file",
    "InvalidSparkOption": "raylog.cluster.spark.errors",
    "InvalidSparkSchema": "raylog.cluster.spark.errors",
    "SparkSessionExists": "raylog.cluster.spark.errors",
    "SparkUnavailable": "raylog.cluster.spark.errors",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'raylog.errors' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
