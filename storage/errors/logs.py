"""One log's files: what they lack when it is opened, and what tools and compaction refuse."""

from raylog.storage.errors.base import RaylogError


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


class CleaningAborted(RaylogError):
    """A compaction stopped and left the log as it was. The next one begins again."""

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
