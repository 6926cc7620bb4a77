"""Disks and log dirs: calls of the file system that failed, and folders that cannot be used.

``StorageError`` and its kinds end the work that met them. Whether the disk is to blame, each kind
says; which kind it is, ``disk_errors.py`` decides.
"""

from typing import ClassVar

from raylog.storage.errors.base import RaylogError


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


class FileGone(StorageError):
    """A file or a folder is not there. The disk is fine, unless its whole log dir is gone.

    Whether the log dir is gone is for ``LogDir.disk_failure`` to say.
    """

    is_disk_failure = False
    fields = ("path",)
    path: str
    template = (
        "{path}: No such file or directory; if raylog did not remove it itself, restore it from a "
        "copy, and keep other programs out of this folder"
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


class LogDirOffline(StorageError):
    """A log dir failed: its partitions are offline until the broker's next start.

    Partitions in other log dirs continue to serve.
    """

    is_disk_failure = False
    template = (
        "log dir {path} is offline: {why}; repair its disk, or replace it and restore a copy, then "
        "start the broker or its node again"
    )


class LogDirTakenOffline(LogDirOffline):
    """An operator has taken a log dir out of use: its partitions are closed until it is back."""

    template = (
        "log dir {path} is offline: {why}; `raylog log-dirs online {quoted_path}` brings it back"
    )


class LogDirReturning(LogDirOffline):
    """A log dir is used again, after somebody has said so: its logs are read back from the disk."""

    template = (
        "log dir {path} is offline: {why}; its partitions open by themselves when its logs are "
        "read back. If that takes long, see `raylog log-dirs`"
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


class LogLocked(RaylogError):
    """Another process holds the lock of this folder. ``holder``: which, in words."""

    code, error_name = 56, "KAFKA_STORAGE_ERROR"
    fields = ("path", "holder")
    path: str
    holder: str
    template = (
        "{path} is locked by {holder}; stop the broker that uses it (`raylog stop`, with "
        "--namespace if it has another one), or wait until the tool that works on it has ended"
    )

    def __init__(self, path: str, holder: str = "another process") -> None:
        super().__init__(path, holder)


class InvalidLogDir(RaylogError):
    """The log dir cannot be used: it is missing, read-only, not a folder, or foreign."""

    code, error_name = 57, "LOG_DIR_NOT_FOUND"
    fields = ("path", "why")
    path: str
    why: str
    template = "log dir {path}: {why}"


class IdentityMissing(InvalidLogDir):
    """The log dir is in use, but has no ``meta.properties``: nobody knows which log dir it is.

    Its partitions are bound to its directory id. A new id would set all of them aside, so it gets
    none. Nothing was changed. ``why``: what shows that it is in use.
    """

    fields = ("path", "why")
    template = (
        "log dir {path}: meta.properties is missing, but {why}; restore the file from a copy, or "
        "stop the broker and write it again with the same id: `raylog log-dirs identify "
        "{quoted_path} --directory-id ID --like DIR`, with the log dir's ID and with another log "
        "DIR of the node (docs/OPERATIONS.md, A log dir that has lost its identity, says where the "
        "ID is). Then start the broker or its node again"
    )


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
        "or, beside others that have its data, an empty folder. If you know no cluster {found}, "
        "meta.properties is damaged: compare it with that of another log dir"
    )
