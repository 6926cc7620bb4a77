"""Opens the log that a LogActor serves: locks its folder, recovers it, begins a leader epoch.

Knows no Ray.
"""

import logging
import os
import time
from collections.abc import Callable
from typing import NamedTuple

from raylog.actors.events import event, warn
from raylog.actors.messages import OpeningReport
from raylog.actors.partition.locking import lock_patiently
from raylog.actors.partition.opening import ProgressTeller, asides_in, log_mended, report_of
from raylog.actors.partition.partition import Partition
from raylog.actors.partition.spec import LogSpec
from raylog.storage.clock import SystemClock
from raylog.storage.errors import CorruptCheckpoint, FileGone, LogMissing
from raylog.storage.files import Lock, RealFileSystem
from raylog.storage.loader import open_log
from raylog.storage.names import TopicPartition
from raylog.storage.records.kernel import KERNEL
from raylog.storage.report import Progress
from raylog.storage.state.checkpoints import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
    read_whole_lines,
)

logger = logging.getLogger(__name__)


class OpenedLog(NamedTuple):
    """A log that is open, and whose folder is locked."""

    partition: Partition
    report: OpeningReport
    lock: Lock


def open_partition(
    spec: LogSpec, tell: Callable[[Progress | None], object], *, is_restart: bool
) -> OpenedLog:
    """Open the log. ``tell``: is told how far the recovery has come, and None when it is over.

    Raises LogLocked, and what keeps the log from being opened; the folder is not locked then.
    """
    lock = _lock(spec.folder)
    teller = ProgressTeller(spec.partition, SystemClock(), tell)
    try:
        partition, report = _open_log(spec, teller, is_restart=is_restart)
    except BaseException:
        lock.release()
        raise
    finally:
        if teller.has_told:
            tell(None)
    return OpenedLog(partition, report, lock)


def _lock(folder: str) -> Lock:
    try:
        return lock_patiently(lambda: RealFileSystem().lock_dir(folder))
    except FileGone as error:
        raise LogMissing(folder, "the partition's folder does not exist") from error


def _open_log(
    spec: LogSpec, teller: ProgressTeller, *, is_restart: bool
) -> tuple[Partition, OpeningReport]:
    fs, clock = RealFileSystem(), SystemClock()
    began_s = time.monotonic()
    checkpointed = checkpointed_offsets(spec, is_restart=is_restart)
    log = open_log(
        fs,
        clock,
        spec.folder,
        spec.partition,
        spec.config,
        topic_id=spec.topic_id,
        is_clean=spec.is_clean and not is_restart,
        recovery_point=checkpointed.recovery_point,
        log_start_offset=checkpointed.log_start_offset,
        progress=teller,
    )
    log_mended(spec.partition, log.mended)
    partition = Partition(log, clock, spec.config_version)
    event(
        logger,
        "log-opened",
        partition=spec.partition,
        folder=spec.folder,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        leader_epoch=partition.leader_epoch,
        segments=len(log.segments),
        is_restart=is_restart,
        kernel=KERNEL,
        seconds=time.monotonic() - began_s,
    )
    return partition, report_of(log.mended, asides_in(fs, spec.folder))


class Checkpointed(NamedTuple):
    """What opening a log goes by."""

    recovery_point: int
    log_start_offset: int


def checkpointed_offsets(spec: LogSpec, *, is_restart: bool) -> Checkpointed:
    """The offsets that the checkpoints have for the log.

    Its LogManager has read them for a first start. After a restart the spec's are old: an old
    recovery point only costs time, and an old log start offset would bring deleted records back. So
    the log dir's files are read, and the higher log start offset counts.
    """
    if not is_restart:
        return Checkpointed(spec.recovery_point, spec.log_start_offset)
    log_dir = os.path.dirname(spec.folder)
    recovery_point = _offset_in_checkpoint(log_dir, RECOVERY_POINTS, spec.partition)
    log_start_offset = _offset_in_checkpoint(log_dir, LOG_START_OFFSETS, spec.partition)
    return Checkpointed(recovery_point, max(log_start_offset, spec.log_start_offset))


def _offset_in_checkpoint(log_dir: str, name: str, partition: TopicPartition) -> int:
    """The offset that a checkpoint file of a log dir has for this partition.

    Of a damaged file of log start offsets the whole lines are used: 0 brings deleted records back.
    A recovery point of 0 is always safe.
    """
    fs, path = RealFileSystem(), os.path.join(log_dir, name)
    try:
        return read_offsets(fs, path).get(partition, 0)
    except CorruptCheckpoint as error:
        warn(logger, "checkpoint-unreadable", partition=partition, file=name, why=error)
    return read_whole_lines(fs, path).get(partition, 0) if name == LOG_START_OFFSETS else 0
