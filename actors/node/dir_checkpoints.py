"""The checkpoint files of one log dir, as tables in memory. Knows no Ray.

::

    LogActors say --record--> tables --write_...--> recovery-point-offset-checkpoint
                                                    replication-offset-checkpoint
                                                    log-start-offset-checkpoint
                                                    cleaner-offset-checkpoint

The files are read once, when the dir is opened. A file is always written whole, from its table.

**Stale entries.** A new partition must not begin where the checkpoints of an older one of its name
end. A partition that leaves is taken out of the tables at once, and out of the files when they are
written next. It is remembered which partitions each file may name: only before a folder of such a
name is made, the file is written for its sake. So neither creation nor deletion costs a write.

============  ======================================================================================
lock          what it guards
============  ======================================================================================
``_files``    writing to the files, and closing; who holds it may wait for a disk that hangs
``_memory``   the tables; nobody waits for a disk while holding it
============  ======================================================================================

A table is copied after ``_files`` was taken, and what the copy names is remembered before it is
written. So nobody writes an older copy over a newer one, and a stale entry is never overlooked.
"""

import threading
from collections.abc import Callable, Collection
from functools import partial

from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.names import TopicPartition
from raylog.storage.state.checkpoints import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)

NO_OFFSETS = CheckpointedOffsets(recovery_point=0, log_start_offset=0, high_watermark=0)
# What is written together; the high watermarks go with the recovery points.
GROUPS = (RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_OFFSETS)


class DirCheckpoints:
    """See the module's head."""

    def __init__(self, log_dir: LogDir, here: Collection[TopicPartition]) -> None:
        """Read the files. ``here``: the partitions that lie in the dir; only these count."""
        self._log_dir = log_dir
        self._files, self._memory = threading.Lock(), threading.Lock()
        self._is_closed = False
        offsets = log_dir.offsets()
        cleaner_offsets = log_dir.cleaner_offsets()
        self._offsets = {name: offsets[name] for name in offsets if name in here}
        self._cleaner = {name: cleaner_offsets[name] for name in cleaner_offsets if name in here}
        # Log start offsets that somebody was answered: words that were said before are older.
        self._answered: dict[TopicPartition, int] = {}
        # By group: the partitions that its files may name.
        self._listed: dict[str, set[TopicPartition]] = {
            RECOVERY_POINTS: set(offsets),
            LOG_START_OFFSETS: set(offsets),
            CLEANER_OFFSETS: set(cleaner_offsets),
        }
        self._is_cleaner_unwritten = False

    # -- the tables --------------------------------------------------------------------------------

    def offsets(self, partition: TopicPartition) -> CheckpointedOffsets:
        """The last known offsets; zeros where nothing is known."""
        with self._memory:
            return self._offsets.get(partition, NO_OFFSETS)

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Where the compaction of each partition goes on."""
        with self._memory:
            return dict(self._cleaner)

    def record(self, partition: TopicPartition, offsets: CheckpointedOffsets) -> None:
        """Keep offsets for the next write."""
        with self._memory:
            answered = self._answered.get(partition, 0)
            if offsets.log_start_offset < answered <= offsets.high_watermark:
                offsets = offsets._replace(log_start_offset=answered)
            self._offsets[partition] = offsets

    def record_log_start(self, partition: TopicPartition, offsets: CheckpointedOffsets) -> None:
        """Keep offsets for the next write, and a log start that never goes back from now on."""
        with self._memory:
            self._answered[partition] = offsets.log_start_offset
        self.record(partition, offsets)

    def record_cleaner_offset(self, partition: TopicPartition, offset: int) -> None:
        """Keep for the next write where a partition's compaction goes on."""
        with self._memory:
            self._cleaner[partition] = offset
            self._is_cleaner_unwritten = True

    def forget(self, partition: TopicPartition) -> None:
        """The partition has left the dir, or is begun anew."""
        with self._memory:
            self._offsets.pop(partition, None)
            self._answered.pop(partition, None)
            if self._cleaner.pop(partition, None) is not None:
                self._is_cleaner_unwritten = True

    # -- the files ---------------------------------------------------------------------------------

    def write_recovery_points(self) -> None:
        """Replace the files of recovery points and high watermarks."""
        self._locked(self._write_recovery_points)

    def write_log_start_offsets(self) -> None:
        """Replace the file of log start offsets."""
        self._locked(self._write_log_start_offsets)

    def write_cleaner_offsets(self) -> None:
        """Replace the file of cleaner offsets, unless it says the same already."""
        if self._is_cleaner_unwritten:
            self._locked(self._write_cleaner_offsets)

    def write_all(self) -> None:
        """Replace all files."""
        self._locked(self._write_all)

    def drop_stale(self, partition: TopicPartition) -> None:
        """Have no file name a partition that is in no table."""
        with self._memory:
            stale = [group for group in GROUPS if partition in self._listed[group]]
        if RECOVERY_POINTS in stale:
            self._locked(self._write_recovery_points)
        if LOG_START_OFFSETS in stale:
            self._locked(self._write_log_start_offsets)
        if CLEANER_OFFSETS in stale:
            self._locked(self._write_cleaner_offsets)

    def write_epoch(self, controller_epoch: int) -> None:
        """Write a Controller's epoch to the dir, fsynced; fine if the dir has a higher one."""
        self._locked(partial(self._log_dir.write_controller_epoch, controller_epoch))

    def close(self, close: Callable[[], None] | None = None) -> None:
        """Do ``close`` when nobody writes; nothing is written from then on. Fine if it is closed.

        After an error it is not closed.
        """
        with self._files:
            if self._is_closed:
                return
            if close is not None:
                close()
            self._is_closed = True

    def write_and_close(self, close: Callable[[], None]) -> None:
        """Write all files, and then ``close``. After an error it is not closed."""
        with self._files:
            if self._is_closed:
                return
            self._write_all()
            close()
            self._is_closed = True

    def _locked(self, write: Callable[[], None]) -> None:
        with self._files:
            if not self._is_closed:
                write()

    def _write_all(self) -> None:
        self._write_recovery_points()
        self._write_log_start_offsets()
        self._write_cleaner_offsets()

    def _write_recovery_points(self) -> None:
        offsets = self._begin_write(RECOVERY_POINTS)
        self._log_dir.write_recovery_points(offsets)
        self._listed[RECOVERY_POINTS] = set(offsets)

    def _write_log_start_offsets(self) -> None:
        offsets = self._begin_write(LOG_START_OFFSETS)
        self._log_dir.write_log_start_offsets(offsets)
        self._listed[LOG_START_OFFSETS] = set(offsets)

    def _begin_write(self, group: str) -> dict[TopicPartition, CheckpointedOffsets]:
        """The table as it is written now; what it names may be in the files from now on."""
        with self._memory:
            self._listed[group] = self._listed[group] | self._offsets.keys()
            return dict(self._offsets)

    def _write_cleaner_offsets(self) -> None:
        with self._memory:
            self._listed[CLEANER_OFFSETS] = self._listed[CLEANER_OFFSETS] | self._cleaner.keys()
            offsets = dict(self._cleaner)
            self._is_cleaner_unwritten = False
        try:
            self._log_dir.write_cleaner_offsets(offsets)
        except BaseException:
            self._is_cleaner_unwritten = True
            raise
        self._listed[CLEANER_OFFSETS] = set(offsets)
