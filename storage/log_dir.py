"""One log dir: a folder that holds partitions' folders, and the files that speak of all of them.

::

    <log dir>/
      .lock                              locked while a broker uses the dir
      .kafka_cleanshutdown               only between an orderly stop and the next start
      meta.properties                    whose dir this is
      recovery-point-offset-checkpoint   by partition: below it, all is flushed
      log-start-offset-checkpoint        by partition, where it is above the first segment's base
      replication-offset-checkpoint      by partition: the high watermark
      cleaner-offset-checkpoint          by compacted partition: where its compaction goes on
      controller-epoch                   the highest epoch of a Controller that was seen here
      metadata-reserve                   room for the cluster's metadata, beside its log
      <topic>-<partition>/               a partition
      <topic>-<partition>.<id>-delete/   one that waits to be deleted
      <topic>-<partition>.<id>-stray/    one that belongs to no topic; it is kept
      <topic>-<partition>.<id>-future/   a copy that is being made of one in another dir

The clean-shutdown marker is read and removed when the dir is opened: a crash afterwards counts as a
crash.

**A lost identity.** Partitions are bound to the directory id in ``meta.properties``. A dir that is
in use and lacks the file is refused (IdentityMissing): with another id all of its partitions would
be set aside.

**A damaged checkpoint** is kept as ``<name>.corrupt``, and another takes its place. The data tells
again what recovery points and high watermarks said. Nothing else tells a log start offset, or how
far compaction has come: of these, the lines that are whole are used. An empty file is damaged, too,
unless raylog has not used the dir before: Kafka begins with empty ones. As long as the ``.corrupt``
file is there, the damage is in the dir's status.

Source: ``LogManager`` of Kafka, without its threads.
"""

import os
import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import NamedTuple

from raylog.storage.errors import (
    CorruptCheckpoint,
    DiskFull,
    FileGone,
    IdentityMissing,
    InconsistentClusterId,
    InvalidLogDir,
    RaylogError,
    StorageError,
)
from raylog.storage.files import FileSystem, write_atomically
from raylog.storage.names import (
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    STRAY_DIR_SUFFIX,
    TopicPartition,
    doomed_folder,
    doomed_suffix,
    parse_folder,
)
from raylog.storage.state.checkpoints import (
    CLEANER_OFFSETS,
    CORRUPT_SUFFIX,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    has_no_count,
    read_offsets,
    read_whole_lines,
    write_offsets,
)
from raylog.storage.state.controller_epoch import (
    CONTROLLER_EPOCH,
    read_controller_epoch,
    write_controller_epoch,
)
from raylog.storage.state.properties import (
    CLEAN_SHUTDOWN,
    MetaProperties,
    random_id,
    read_meta,
    write_meta,
)

LOCK_FILE = ".lock"
# The log of the cluster's own metadata belongs to the Controller, not to a LogManager.
METADATA_PARTITION = TopicPartition("__cluster_metadata", 0)
CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
# What these say is nowhere else.
IRREPLACEABLE = (LOG_START_OFFSETS, CLEANER_OFFSETS)


class CheckpointedOffsets(NamedTuple):
    """What the checkpoint files say of one partition."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int


class Damage(NamedTuple):
    """A checkpoint file that could not be read, and what became of it."""

    file: str  # its name in the log dir
    kept_as: str  # the name that the damaged file has now
    why: str
    entries: int  # of the damaged file that are used


class Listing(NamedTuple):
    """The folders of a log dir, by what they are."""

    partitions: list[TopicPartition]
    doomed: list[str]  # the paths of those that wait to be deleted
    futures: list[str]  # the paths of copies that are being made
    strays: list[str]  # the names of those that belong to no topic; they are kept
    unknown: list[str]  # the names of those that are none of a broker's; nobody touches them


class LogDir:
    """A log dir that this process has locked."""

    def __init__(self, fs: FileSystem, path: str, cluster_id: str, node_id: int) -> None:
        """Lock and identify ``path``; it is made if its parent exists.

        Raises InvalidLogDir, IdentityMissing, LogLocked, InconsistentClusterId or
        CorruptCheckpoint, with nothing changed.
        """
        self.path, self._fs = os.path.abspath(path), fs
        self._damages: list[Damage] = []
        self.is_new = False  # whether it was nobody's log dir before
        # What the file has, once it was read.
        make_usable(fs, self.path)
        self._lock = fs.lock(os.path.join(self.path, LOCK_FILE))
        try:
            self.meta = self._identify(cluster_id, node_id)
            marker = os.path.join(self.path, CLEAN_SHUTDOWN)
            self.was_clean = fs.exists(marker)
            fs.remove(marker)
            fs.sync_dir(self.path)
            with suppress(DiskFull):  # they come when there is room
                self._make_checkpoints()
        except RaylogError:
            self._lock.release()
            raise

    def _identify(self, cluster_id: str, node_id: int) -> MetaProperties:
        meta = read_meta(self._fs, self.path)
        if meta is None:
            use = _sign_of_use(self._fs, self.path, self.listing().partitions)
            if use is not None:
                raise IdentityMissing(self.path, use)
            meta = MetaProperties(cluster_id, node_id, random_id())
            write_meta(self._fs, self.path, meta)
            self.is_new = True
        if meta.cluster_id != cluster_id:
            raise InconsistentClusterId(self.path, meta.cluster_id, cluster_id)
        return meta

    def _make_checkpoints(self) -> None:
        """Make the checkpoint files that are missing, or that Kafka has begun, without an entry."""
        for name in CHECKPOINTS:
            path = os.path.join(self.path, name)
            if not self._fs.exists(path) or (not self._is_used and has_no_count(self._fs, path)):
                write_offsets(self._fs, path, {})

    @property
    def _is_used(self) -> bool:
        """Whether raylog has used the dir before, and has written its checkpoints."""
        return self._fs.exists(os.path.join(self.path, CONTROLLER_EPOCH))

    @property
    def directory_id(self) -> str:
        return self.meta.directory_id

    def folder(self, partition: TopicPartition) -> str:
        """Where a partition's folder is or would be."""
        return os.path.join(self.path, str(partition))

    def partitions(self) -> list[TopicPartition]:
        """The partitions whose folders are here."""
        return self.listing().partitions

    def listing(self) -> Listing:
        """The folders that are here."""
        listing = Listing(partitions=[], doomed=[], futures=[], strays=[], unknown=[])
        for name in self._fs.list_dir(self.path):
            path = os.path.join(self.path, name)
            if not self._fs.is_dir(path) or name == str(METADATA_PARTITION):
                continue
            suffix, partition = doomed_suffix(name), parse_folder(name)
            if suffix == DELETE_DIR_SUFFIX:
                listing.doomed.append(path)
            elif suffix == FUTURE_DIR_SUFFIX:
                listing.futures.append(path)
            elif suffix == STRAY_DIR_SUFFIX:
                listing.strays.append(name)
            elif partition is not None:
                listing.partitions.append(partition)
            else:
                listing.unknown.append(name)
        return listing

    def check(self) -> None:
        """Raise StorageError unless the dir is still there, and the same.

        So does each write of a file that another dir at this path has, too.
        """
        try:
            meta = read_meta(self._fs, self.path)
        except CorruptCheckpoint as error:
            raise StorageError(self.path, error.problem) from error
        if meta is None:
            raise StorageError(self.path, self._why_no_identity())
        if meta.directory_id != self.directory_id:
            raise StorageError(
                self.path,
                f"another log dir, {meta.directory_id}, is now at this path, in the place of "
                f"{self.directory_id}",
            )

    def _why_no_identity(self) -> str:
        if _has_partitions(self._fs, self.path):
            return (
                "its meta.properties is gone, and folders of partitions are there; write the file "
                "again with `raylog log-dirs identify`, then start the broker or its node again"
            )
        return (
            "the folder is gone: its disk was unmounted, or the folder was moved; bring it back, "
            "then start the broker or its node again"
        )

    def disk_failure(self, error: StorageError) -> StorageError | None:
        """Why the dir must go offline after an error in it; None if its disk is fine.

        A file that is gone is no failure of the disk, unless the whole dir is gone with it.
        """
        if not isinstance(error, FileGone):
            return error if error.is_disk_failure else None
        try:
            self.check()
        except StorageError as failure:
            return failure if failure.is_disk_failure else None
        return None

    # -- the Controller ----------------------------------------------------------------------------

    def controller_epoch(self) -> int:
        """The highest epoch of a Controller that was written here; -1 if none was.

        Raises CorruptCheckpoint.
        """
        return read_controller_epoch(self._fs, self.path)

    def write_controller_epoch(self, epoch: int) -> None:
        """Remember an epoch; a lower one than the dir has changes nothing.

        It is on the disk when this returns. Raises CorruptCheckpoint where the file is damaged: it
        may have had a higher one.
        """
        if epoch > self.controller_epoch():
            self.check()
            write_controller_epoch(self._fs, self.path, epoch)

    # -- offsets -----------------------------------------------------------------------------------

    def offsets(self) -> dict[TopicPartition, CheckpointedOffsets]:
        """What the checkpoints say. One that is damaged is set aside (see the module's head)."""
        columns = [
            self._read(name) for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS)
        ]
        known = set().union(*columns)
        return {
            partition: CheckpointedOffsets(*(column.get(partition, 0) for column in columns))
            for partition in known
        }

    def _read(self, name: str) -> dict[TopicPartition, int]:
        path = os.path.join(self.path, name)
        try:
            offsets = read_offsets(self._fs, path)
        except CorruptCheckpoint as error:
            return self._set_aside(name, error.args[1])
        if self._is_used and self._fs.exists(path) and has_no_count(self._fs, path):
            return self._set_aside(name, "it was cut off before the number of its entries")
        return offsets

    def _set_aside(self, name: str, why: str) -> dict[TopicPartition, int]:
        """Keep a damaged checkpoint under another name; returns what can be used of it.

        On a full disk it stays where it is until there is room.
        """
        path = os.path.join(self.path, name)
        offsets = read_whole_lines(self._fs, path) if name in IRREPLACEABLE else {}
        kept_as = self._free_name(name + CORRUPT_SUFFIX)
        kept = os.path.join(self.path, kept_as)
        try:
            # A copy, not a rename: a crash in between must not leave a dir without the offsets.
            write_atomically(self._fs, kept, self._fs.read_file(path))
            write_offsets(self._fs, path, offsets)
        except DiskFull:
            self._fs.remove(kept)
            kept_as = name
        self._damages.append(Damage(name, kept_as, why, len(offsets)))
        return offsets

    def _free_name(self, name: str) -> str:
        taken = self._fs.list_dir(self.path)
        free, number = name, 1
        while free in taken:
            number += 1
            free = f"{name}-{number}"
        return free

    def take_damages(self) -> list[Damage]:
        """The damages that were found since the last call."""
        damages, self._damages = self._damages, []
        return damages

    def damaged_files(self) -> list[str]:
        """The checkpoint files of which a damaged one is kept here, since now or earlier."""
        names = self._fs.list_dir(self.path)
        return sorted(
            checkpoint
            for checkpoint in CHECKPOINTS
            if any(name.startswith(checkpoint + CORRUPT_SUFFIX) for name in names)
        )

    def write_offsets(self, offsets: Mapping[TopicPartition, CheckpointedOffsets]) -> None:
        """Replace the checkpoints of recovery points, high watermarks and log start offsets."""
        self.write_recovery_points(offsets)
        self.write_log_start_offsets(offsets)

    def write_recovery_points(self, offsets: Mapping[TopicPartition, CheckpointedOffsets]) -> None:
        """Replace the checkpoint files of recovery points and high watermarks."""
        recovery = {partition: known.recovery_point for partition, known in offsets.items()}
        marks = {partition: known.high_watermark for partition, known in offsets.items()}
        self._write(RECOVERY_POINTS, recovery)
        self._write(HIGH_WATERMARKS, marks)

    def write_log_start_offsets(
        self, offsets: Mapping[TopicPartition, CheckpointedOffsets]
    ) -> None:
        """Replace the checkpoint file of log start offsets. One of 0 is not listed."""
        starts = {
            partition: known.log_start_offset
            for partition, known in offsets.items()
            if known.log_start_offset
        }
        self._write(LOG_START_OFFSETS, starts)

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Where the compaction of each partition goes on."""
        return self._read(CLEANER_OFFSETS)

    def write_cleaner_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the checkpoint file of where compaction goes on."""
        self._write(CLEANER_OFFSETS, offsets)

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.check()
        write_offsets(self._fs, os.path.join(self.path, name), offsets)

    def doom(self, partition: TopicPartition, *, stray: bool = False) -> str:
        """Rename a partition's folder: it waits to be deleted.

        As stray it is set aside and kept.
        """
        target = self._new_name(partition, STRAY_DIR_SUFFIX if stray else DELETE_DIR_SUFFIX)
        self._rename(self.folder(partition), target)
        return target

    def future_folder(self, partition: TopicPartition) -> str:
        """Where a copy of a partition can be made, out of everybody's sight."""
        return self._new_name(partition, FUTURE_DIR_SUFFIX)

    def adopt(self, partition: TopicPartition, future: str) -> None:
        """A copy is whole: it becomes the partition's folder here."""
        self._rename(future, self.folder(partition))

    def _new_name(self, partition: TopicPartition, suffix: str) -> str:
        return os.path.join(self.path, doomed_folder(partition, uuid.uuid4(), suffix))

    def _rename(self, source: str, target: str) -> None:
        self._fs.rename(source, target)
        self._fs.sync_dir(self.path)

    def close(self, *, clean: bool) -> None:
        """Unlock; with ``clean``, leave the marker that says every log was closed in order.

        After an error it is still locked.
        """
        if clean:
            self.check()
            marker = os.path.join(self.path, CLEAN_SHUTDOWN)
            self._fs.write_file(marker, b'{"version":0,"brokerEpoch":-1}')
            self._fs.sync_dir(self.path)
        self._lock.release()


def check_there(fs: FileSystem, path: str, directory_id: str) -> None:
    """Raise InvalidLogDir unless the log dir at ``path`` is the one with this id. Nothing is made.

    A dir with partitions and without an id is for ``LogDir`` to refuse (IdentityMissing).
    """
    meta = read_meta(fs, path)
    if meta is not None and meta.directory_id != directory_id:
        raise InvalidLogDir(
            path,
            f"another log dir, {meta.directory_id}, is now at this path, in the place of "
            f"{directory_id}; mount the disk of {directory_id} here",
        )
    if meta is None and not _has_partitions(fs, path):
        raise InvalidLogDir(
            path,
            f"the log dir {directory_id} is not there: its disk is not mounted, or its folder was "
            "moved; bring it back to this path",
        )


def _has_partitions(fs: FileSystem, path: str) -> bool:
    if not fs.is_dir(path):
        return False
    return any(parse_folder(name) is not None for name in fs.list_dir(path))


def make_usable(fs: FileSystem, path: str) -> None:
    """Make a log dir where there is none. Raises InvalidLogDir where it can be none."""
    if not fs.exists(path):
        if not fs.is_dir(os.path.dirname(path)):
            raise InvalidLogDir(
                path,
                "neither the folder nor its parent exists; mount its disk, or create the "
                "parent for a new log dir",
            )
        fs.make_dir(path)
        # else a loss of power could take it, with all that was flushed
        fs.sync_dir(os.path.dirname(path))
    if not fs.is_dir(path):
        raise InvalidLogDir(path, "this is a file; give a folder")
    if not fs.can_write(path):
        raise InvalidLogDir(path, "it is read-only; give a folder that this user may write to")


def _sign_of_use(fs: FileSystem, path: str, partitions: Collection[TopicPartition]) -> str | None:
    """What shows that a broker has used a log dir; None if nothing does."""
    if partitions:
        return f"there are folders of partitions ({min(partitions)})"
    if fs.exists(os.path.join(path, CONTROLLER_EPOCH)):
        return f"there is the file {CONTROLLER_EPOCH}"
    for name in CHECKPOINTS:
        if _has_entries(fs, os.path.join(path, name)):
            return f"{name} names partitions"
    return None


def _has_entries(fs: FileSystem, checkpoint: str) -> bool:
    try:
        return bool(read_offsets(fs, checkpoint))
    except CorruptCheckpoint:
        return True
