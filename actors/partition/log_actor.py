"""LogActor: the Ray actor that owns one partition's folder. A shell over ``partition.py``.

It is pinned to the node that has the folder, and Ray restarts it there for ever; everything is
rebuilt from the disk. In ``__init__`` it locks the folder, so that two writers cannot be, and
begins a new leader epoch. What goes wrong there (data missing, folder locked) is raised, and the
actor stays dead with that error: no restart would help. Later, an error that is not one of ours
means that its state cannot be trusted: it ends its process, and Ray starts another, which recovers.
(Ray would let a failed actor live on.) So it does where the partition went offline and no disk is
to blame; a disk's failure it reports to its LogManager, until that has heard.

Threads: the concurrency groups keep doors apart, so that parked long polls never hold up an append.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import ray

from raylog.actors.events import event, set_up_logs, warn
from raylog.actors.messages import (
    AppendResult,
    FetchRequest,
    FetchResult,
    PartitionOffsets,
    PartitionStatus,
    RemovedSegments,
)
from raylog.actors.metrics import EXPORT_INTERVAL_S, IDLE_EXPORT_INTERVAL_S, Exporter
from raylog.actors.partition.bounds import (
    APPENDS_AT_ONCE,
    FETCHES_AT_ONCE,
    PARKED_FETCHES,
    REFUSALS_AT_ONCE,
)
from raylog.actors.partition.partition import Partition
from raylog.actors.runtime.calls import wait_for
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.nodes import is_restarted, own_name, own_node, own_node_id
from raylog.actors.runtime.ray_metrics import ray_metric
from raylog.storage.cleaner.cleanable import LogFacts
from raylog.storage.cleaner.remote import LogView
from raylog.storage.clock import SystemClock
from raylog.storage.config import LogConfig
from raylog.storage.errors import CorruptCheckpoint, LogLocked, RaylogError, StorageError
from raylog.storage.files import Buffer, RealFileSystem
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.loader import open_log
from raylog.storage.log import RoundId
from raylog.storage.names import TopicPartition
from raylog.storage.records.kernel import KERNEL
from raylog.storage.segment import SegmentId
from raylog.storage.state.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

# The process of an actor whose node was lost may outlive the node by a second.
LOCK_PATIENCE_S = 5.0
# How long its LogManager is waited for.
MANAGER_TIMEOUT_S = 5.0
# With the default of 5 ms, one busy thread makes every small call take 10 ms.
SWITCH_INTERVAL_S = 0.0005
# Upkeep and metrics of a partition that is busy; one that is idle rests until something is due.
UPKEEP_INTERVAL_S = 1.0


class LogSpec(NamedTuple):
    """What a LogActor is told about the log it opens."""

    partition: TopicPartition
    topic_id: str
    folder: str
    config: LogConfig
    is_clean: bool  # the broker before stopped in order; believed once, not after a restart
    producer_expiration_ms: int
    config_version: int = 0
    namespace: str = ""
    manager: str = ""  # the name of the node's LogManager: a restart asks it for the config of now


class LogActorImpl:
    """The methods that callers see as ``handle.method.remote(...)``."""

    def __init__(self, spec: LogSpec) -> None:
        set_up_logs(own_name())
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        if is_restarted():
            own_node().check_alone()
            spec = _up_to_date(spec)
        self._spec = spec
        self._reported: StorageError | None = None
        self._is_silent = False  # of reports that fail: the first one said it
        self._lock = lock_patiently(lambda: RealFileSystem().lock(spec.folder))
        try:
            self._partition = _open(spec, is_restart=is_restarted())
        except StorageError as error:
            _report(spec, error)
            raise
        threading.Thread(target=self._keep_up, name="upkeep", daemon=True).start()

    # -- data --------------------------------------------------------------------------------------

    @ray.method(concurrency_group="produce")
    def append(self, records: Buffer) -> AppendResult:
        """Append one v2 record batch (bytes or a uint8 numpy array).

        Returns when it is as durable as the topic asks (``flush.messages``). Raises CorruptRecord,
        RecordTooLarge, InvalidRecord, OutOfOrderSequence, DiskFull and their kin, with nothing
        written.
        """
        return _or_exit(lambda: self._partition.append(records))

    @ray.method(concurrency_group="fetch")
    def fetch(self, offset: int, max_bytes: int = 1 << 20, *, locate: bool = False) -> FetchResult:
        """Batches from ``offset`` on, at once. With ``locate``: where they lie. Raises
        OffsetOutOfRange."""
        return _or_exit(lambda: self._partition.fetch(offset, max_bytes, locate=locate))

    @ray.method(concurrency_group="poll")
    def poll(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        *,
        locate: bool = False,
    ) -> FetchResult:
        """As ``fetch``, but waits up to ``max_wait_ms`` until there are ``min_bytes``."""
        fetch = self._partition.fetch
        return _or_exit(lambda: fetch(offset, max_bytes, min_bytes, max_wait_ms, locate=locate))

    @ray.method(concurrency_group="fetch")
    def fetch_request(self, request: bytes) -> FetchResult | bytes:
        """``fetch``, for raylog's own readers: takes a FetchRequest's bytes; a location comes back
        as bytes, too."""
        return self._answer(FetchRequest.decode(request))

    @ray.method(concurrency_group="poll")
    def poll_request(self, request: bytes) -> FetchResult | bytes:
        """``poll``, for raylog's own readers, in the same way."""
        return self._answer(FetchRequest.decode(request))

    def _answer(self, asked: FetchRequest) -> FetchResult | bytes:
        fetch = self._partition.fetch
        found = _or_exit(
            lambda: fetch(
                asked.offset,
                asked.max_bytes,
                asked.min_bytes,
                asked.max_wait_ms,
                locate=asked.locate,
            )
        )
        return found.encode() if asked.locate else found

    # -- what it is --------------------------------------------------------------------------------

    @ray.method(concurrency_group="admin")
    def serving(self) -> tuple[str, str, str] | None:
        """The id of the topic whose log this serves, its folder, and the node that has it; None
        once it is closed. Raises why it is offline."""
        if self._partition.is_closed:
            return None
        _or_exit(self._partition.check_online)
        return self._spec.topic_id, self._spec.folder, own_node_id()

    @ray.method(concurrency_group="admin")
    def offsets(self) -> PartitionOffsets:
        """Log start offset, recovery point, high watermark, log end offset."""
        return _or_exit(self._partition.offsets)

    @ray.method(concurrency_group="admin")
    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after ``timestamp`` (ms); -1: the end, -2: the start, -3: the
        largest timestamp."""
        return _or_exit(lambda: self._partition.offset_for_timestamp(timestamp))

    @ray.method(concurrency_group="admin")
    def status(self) -> PartitionStatus:
        """What ``raylog status`` shows."""
        partition, log = self._partition, self._partition.log
        return PartitionStatus(
            str(self._spec.partition),
            self._spec.folder,
            os.getpid(),
            KERNEL,
            partition.leader_epoch,
            partition.offsets(),
            log.size_bytes,
            len(log.segments),
            partition.is_offline,
        )

    # -- upkeep ------------------------------------------------------------------------------------

    @ray.method(concurrency_group="admin")
    def reconfigure(self, config: LogConfig, version: int) -> None:
        """Obey another config from the next append on, unless a newer ``version`` has come before
        it."""
        _or_exit(lambda: self._partition.reconfigure(config, version))

    @ray.method(concurrency_group="admin")
    def flush(self) -> None:
        """Return when everything written so far is fsynced."""
        _or_exit(self._partition.flush)

    @ray.method(concurrency_group="admin")
    def roll(self) -> None:
        """Begin a new segment."""
        _or_exit(self._partition.roll)

    @ray.method(concurrency_group="admin")
    def delete_old_segments(self) -> RemovedSegments:
        """Retention; returns what went."""
        return _or_exit(self._partition.delete_old_segments)

    @ray.method(concurrency_group="admin")
    def delete_records(self, before_offset: int) -> int:
        """Make records below an offset unreadable (-1: the high watermark); returns the log start
        offset."""
        return _or_exit(lambda: self._partition.delete_records(before_offset))

    @ray.method(concurrency_group="admin")
    def cleaning_facts(self) -> LogFacts:
        """What the CompactionActor chooses by."""
        return _or_exit(self._partition.cleaning_facts)

    @ray.method(concurrency_group="admin")
    def cleaning_view(self) -> LogView:
        """What the CompactionActor must know for a round, which begins."""
        return _or_exit(self._partition.cleaning_view)

    @ray.method(concurrency_group="admin")
    def check_unchanged(self, segments: Sequence[SegmentId], round_id: RoundId) -> None:
        """Raise CleaningAborted if a round has become pointless."""
        _or_exit(lambda: self._partition.check_unchanged(segments, round_id))

    @ray.method(concurrency_group="admin")
    def replace_segments(self, old: Sequence[SegmentId], round_id: RoundId) -> None:
        """Let in what the CompactionActor has written. Raises CleaningAborted with nothing
        changed."""
        _or_exit(lambda: self._partition.replace_segments(old, round_id))

    @ray.method(concurrency_group="admin")
    def close(self) -> PartitionOffsets:
        """Orderly end: all flushed, all files closed, the folder unlocked. Returns the last
        offsets."""
        _or_exit(self._partition.close)
        self._lock.release()
        offsets = self._partition.offsets()
        event(
            logger,
            "log-closed",
            partition=self._spec.partition,
            log_end_offset=offsets.log_end_offset,
        )
        return offsets

    def _keep_up(self) -> None:
        """Upkeep and metrics while something happens; how the partition stands, now and then, while
        nothing does."""
        expiration_ms = self._spec.producer_expiration_ms
        topic, partition = self._spec.partition
        exporter = Exporter(ray_metric, topic=topic, partition=partition)
        next_export_s, is_exported = 0.0, False
        while True:
            if is_exported:
                self._partition.rest(expiration_ms, IDLE_EXPORT_INTERVAL_S)
            time.sleep(UPKEEP_INTERVAL_S)
            is_exported = False
            if self._partition.is_stuck:
                event(
                    logger,
                    "process-ended",
                    level=logging.ERROR,
                    todo="the next one recovers the log",
                )
                _exit()
            if not self._is_reported():
                continue
            try:
                _or_exit(lambda: self._partition.maintain(expiration_ms))
            except RaylogError:
                warn(logger, "upkeep-failed", trace=True, partition=self._spec.partition)
            if time.monotonic() >= next_export_s:
                self._export(exporter)
                next_export_s, is_exported = time.monotonic() + EXPORT_INTERVAL_S, True

    def _is_reported(self) -> bool:
        """False while the log's disk has failed and its LogManager does not know."""
        failure = self._partition.disk_failure
        if failure is not None and failure is not self._reported:
            is_first, self._is_silent = not self._is_silent, True
            self._reported = failure if _report(self._spec, failure, is_loud=is_first) else None
        return failure is self._reported

    def _export(self, exporter: Exporter) -> None:
        try:
            self._partition.meters.export(self._partition, exporter)
        except Exception:  # Ray may fail in its own ways, and metrics are not worth a partition
            warn(logger, "metrics-failed", trace=True, partition=self._spec.partition)


OPTIONS: dict[str, Any] = {
    "concurrency_groups": {
        "produce": APPENDS_AT_ONCE,
        "fetch": FETCHES_AT_ONCE,
        "poll": PARKED_FETCHES + REFUSALS_AT_ONCE,
        "admin": 4,
    },
    "num_cpus": 0,
    "max_restarts": -1,
    "max_task_retries": 0,  # a retry by Ray would append twice; producers retry with their sequence
}
LogActor = ray.remote(**OPTIONS)(LogActorImpl)


def lock_patiently(take: Callable[[], Answer]) -> Answer:
    """A lock that a process at its end may still hold for a moment."""
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            return take()
        except LogLocked:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _up_to_date(spec: LogSpec) -> LogSpec:
    """The spec with the topic's config of now: Ray repeats the arguments of the first start.

    A LogManager that does not answer is itself being started again; what it is told then reaches
    this actor.
    """
    manager = find(spec.manager, spec.namespace) if spec.manager else None
    if manager is None:
        return spec
    try:
        found = wait_for(manager.config_of.remote(spec.partition), spec.manager, MANAGER_TIMEOUT_S)
    except RaylogError as error:
        warn(
            logger,
            "config-unknown",
            partition=spec.partition,
            why=error,
            uses="that of the first start",
        )
        return spec
    return (
        spec if found is None else spec._replace(config=found.config, config_version=found.version)
    )


def _report(spec: LogSpec, error: StorageError, *, is_loud: bool = True) -> bool:
    """Tell the LogManager that a disk has failed, which takes the whole dir offline; returns
    whether it has heard."""
    if not error.is_disk_failure:
        return True
    try:
        manager = find(spec.manager, spec.namespace) if spec.manager else None
        if manager is None:
            return False
        told = manager.failed.remote(spec.partition, spec.topic_id, error)
        wait_for(told, spec.manager, MANAGER_TIMEOUT_S)
    except Exception as failure:  # Ray may fail in its own ways: it is told again
        if is_loud:
            warn(logger, "failure-not-reported", partition=spec.partition, why=failure)
        return False
    return True


def _open(spec: LogSpec, *, is_restart: bool) -> Partition:
    fs, clock = RealFileSystem(), SystemClock()
    log_dir, started = os.path.dirname(spec.folder), time.monotonic()
    log = open_log(
        fs,
        clock,
        spec.folder,
        spec.partition,
        spec.config,
        topic_id=spec.topic_id,
        is_clean=spec.is_clean and not is_restart,
        recovery_point=_checkpointed(log_dir, RECOVERY_POINTS, spec.partition),
        log_start_offset=_checkpointed(log_dir, LOG_START_OFFSETS, spec.partition),
    )
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
        seconds=time.monotonic() - started,
    )
    return partition


def _checkpointed(log_dir: str, name: str, partition: TopicPartition) -> int:
    """What a checkpoint says of this partition; 0, which is always safe, if it says nothing that
    can be read."""
    try:
        return read_offsets(RealFileSystem(), os.path.join(log_dir, name)).get(partition, 0)
    except CorruptCheckpoint as error:
        warn(logger, "checkpoint-unreadable", partition=partition, file=name, why=error)
        return 0


def _or_exit(call: Callable[[], Answer]) -> Answer:
    """Let our own errors through; end the process on any other, since its state cannot be
    trusted."""
    try:
        return call()
    except RaylogError:
        raise
    except BaseException:
        event(
            logger,
            "process-ended",
            level=logging.CRITICAL,
            trace=True,
            todo="the next one recovers the log",
        )
        _exit()
        raise


def _exit() -> Any:
    logging.shutdown()
    os._exit(1)
