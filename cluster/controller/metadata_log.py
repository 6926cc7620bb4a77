"""The Controller's log on its disk: open or create it, replay it, append to it.

Every append is fsynced. The log lives beside the partitions, in the first log dir of the
Controller's node.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from raylog.actors.partition.locking import lock_patiently
from raylog.cluster.controller.metadata import ClusterState, cluster_record, decode, encode
from raylog.storage.clock import Clock
from raylog.storage.config import LogConfig
from raylog.storage.errors import DiskFull, InvalidLogDir, LogMissing, OutOfResources, StorageError
from raylog.storage.files import FileSystem
from raylog.storage.loader import create_log, open_log
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records
from raylog.storage.records.scan import next_offset
from raylog.storage.state.properties import random_id, read_meta

# One read of the replay.
REPLAY_BYTES = 1 << 20


class MetadataLog:
    """``__cluster_metadata-0`` and the state that it holds."""

    def __init__(
        self, fs: FileSystem, clock: Clock, log_dir: str, *, must_exist: bool = False
    ) -> None:
        """Open the log in ``log_dir``, or begin a new cluster's there.

        Never in a dir that belongs to a cluster already, or where it ``must_exist``: then
        LogMissing.
        """
        self._fs, self._clock = fs, clock
        folder = os.path.join(log_dir, str(METADATA_PARTITION))
        if not fs.is_dir(folder):
            meta = read_meta(fs, log_dir)
            if must_exist or meta is not None:
                cluster = f" of cluster {meta.cluster_id}" if meta else ""
                raise LogMissing(folder, f"the metadata{cluster} is missing")
            if not fs.is_dir(os.path.dirname(log_dir)):
                raise InvalidLogDir(
                    log_dir,
                    "neither the folder nor its parent exists; mount its disk, or create the "
                    "parent for a new log dir",
                )
            if fs.exists(log_dir) and not fs.is_dir(log_dir):
                raise InvalidLogDir(log_dir, "this is a file; give a folder")
            fs.make_dir(log_dir)
            if not fs.can_write(log_dir):
                raise InvalidLogDir(
                    log_dir, "it is read-only; give a folder that this user may write to"
                )
            create_log(fs, folder, random_id())
        self._lock = lock_patiently(lambda: fs.lock(folder))
        # Every append is flushed, so all of it may be checked at each start: it is small.
        self._log = open_log(fs, clock, folder, METADATA_PARTITION, LogConfig(retention_ms=-1))
        epochs = self._log.epochs
        # Written before the first append, so that it is there on a full disk.
        epochs.assign(epochs.next, self._log.log_end_offset)
        self.state = ClusterState()
        self._failed: StorageError | None = None
        self._replay()
        if not self.state.cluster_id:
            self.append(cluster_record(random_id()))

    def _replay(self) -> None:
        offset = 0
        while (found := self._log.read(offset, REPLAY_BYTES)).size_bytes:
            batches = found.read()
            behind = next_offset(batches, offset, found.end_offset)
            for record in decode_records(batches, start_offset=offset):
                self.state.apply(decode(record.value or b""))
            offset = behind

    def append(self, *records: Mapping[str, Any]) -> None:
        """Write the records, all or none, and then take them into the state.

        A full disk or a shortage of descriptors leaves the log as it was: DiskFull or
        OutOfResources, and it may be tried again. After any other
        failure of a write or an fsync nobody knows what is on the disk: every later call raises
        that error again.
        """
        if self._failed is not None:
            raise self._failed
        now_ms = self._clock.now_ms()
        rows: Sequence[Any] = [(now_ms, None, encode(record), ()) for record in records]
        end = self._log.log_end_offset
        try:
            self._log.append(encode_records(rows))
            self._log.flush()
        except StorageError as error:
            may_retry = isinstance(error, DiskFull | OutOfResources)
            is_undone = may_retry and self._log.log_end_offset == end
            self._failed = None if is_undone else error
            raise
        for record in records:
            self.state.apply(record)

    @property
    def has_failed(self) -> bool:
        """Whether a write or an fsync failed: what is on the disk is not known."""
        return self._failed is not None

    def close(self) -> None:
        """Orderly end. Raises StorageError, with the folder unlocked all the same."""
        try:
            if self._failed is None:
                self._log.close()
        finally:
            self._lock.release()
