"""LogActor: the Ray actor that owns one partition's folder. A shell over ``partition.py``.

It is pinned to the node that has the folder, and Ray restarts it there for ever; everything is
rebuilt from the disk. In ``__init__`` it locks the folder, so that there are never two writers, and
begins a new leader epoch. What happens after a failure:

=============================================  =====================================================
failure                                        what follows
=============================================  =====================================================
in ``__init__`` (data missing, folder locked)  raised; the actor stays dead with that error, since
                                               no restart would help
an error that is not raylog's                  the actor's state cannot be trusted: it ends its
                                               process, and Ray starts another, which recovers; Ray
                                               itself would let the failed actor live on
offline for a reason other than a disk         the same
a disk's failure                               reported to the LogManager, until that has heard
=============================================  =====================================================

Threads: each concurrency group has its own, so that parked long polls never delay an append.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import ray

from raylog.actors.events import event, set_up_logs, warn
from raylog.actors.messages import (
    AppendResult,
    FetchResult,
    OpeningReport,
    PartitionOffsets,
    PartitionStatus,
    RemovedSegments,
    Serving,
)
from raylog.actors.metrics import EXPORT_INTERVAL_S, IDLE_EXPORT_INTERVAL_S, Exporter
from raylog.actors.partition.bounds import (
    APPENDS_AT_ONCE,
    FETCHES_AT_ONCE,
    PARKED_FETCHES,
    REFUSALS_AT_ONCE,
)
from raylog.actors.partition.exports import export_opening, export_partition
from raylog.actors.partition.locking import lock_patiently
from raylog.actors.partition.opening import (
    ProgressTeller,
    asides_in,
    log_mended,
    report_of,
)
from raylog.actors.partition.partition import Partition
from raylog.actors.requests import (
    PRODUCE_VERSION,
    READ_COMMITTED,
    OffsetAnswer,
    ProduceAnswer,
    Serves,
    check_head,
    decode_fetch,
    decode_offset,
    records_in,
)
from raylog.actors.runtime.nodes import is_restarted, own_name, own_node, own_node_id
from raylog.actors.runtime.ray_metrics import ray_metric
from raylog.actors.runtime.stubs import LogManagerStub, find_log_manager
from raylog.storage.buffers import Buffer
from raylog.storage.cleaner.cleanable import LogFacts
from raylog.storage.cleaner.remote import LogView
from raylog.storage.clock import SystemClock
from raylog.storage.config import LogConfig
from raylog.storage.errors import CorruptCheckpoint, RaylogError, StorageError
from raylog.storage.files import RealFileSystem
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.loader import open_log
from raylog.storage.names import TopicPartition
from raylog.storage.readable import COMMITTED, Isolation
from raylog.storage.records.kernel import KERNEL
from raylog.storage.report import Progress
from raylog.storage.segment import SegmentId
from raylog.storage.state.checkpoints import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
    read_whole_lines,
)
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.swap import RoundId

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

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
    producer_expiration: ProducerExpiration
    config_version: int = 0
    namespace: str = ""
    # The key of its node, whose LogManager it reports to, and asks for the config after a restart;
    # empty where there is no LogManager.
    node: str = ""


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
        self._is_silent = False  # whether a report has failed, so that the next ones are not logged
        self._lock = lock_patiently(lambda: RealFileSystem().lock(spec.folder))
        try:
            self._partition, self._opening = _open(spec, is_restart=is_restarted())
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
        """Batches from ``offset`` on, at once; with ``locate``, where they lie.

        Raises OffsetOutOfRange.
        """
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

    # -- data, for raylog's own clients: requests.py -----------------------------------------------

    @ray.method(concurrency_group="produce")
    def produce(self, request: bytes, records: Buffer | None = None) -> bytes:
        """``append``, for the topic and the leader epoch that the client knows.

        ``records``: a large batch; a small one is inside of the request. Answers a ProduceAnswer.
        Raises as ``append``, and UnknownTopicId, FencedLeaderEpoch, UnknownLeaderEpoch.
        """
        check_head(request, self._serves, PRODUCE_VERSION)
        batch = records_in(request) if records is None else records
        result = _or_exit(lambda: self._partition.append(batch))
        return ProduceAnswer(
            result.base_offset,
            result.log_append_time,
            result.log_start_offset,
            result.leader_epoch,
            result.is_duplicate,
        ).encode()

    @ray.method(concurrency_group="fetch")
    def fetch_batches(self, request: bytes) -> FetchResult | bytes:
        """``fetch``, in the same way.

        A reader on this node is told where the batches lie. Such an answer, and an empty one, is
        bytes, too: ``FetchResult.encode``.
        """
        return self._fetch(request)

    @ray.method(concurrency_group="poll")
    def poll_batches(self, request: bytes) -> FetchResult | bytes:
        """``poll``, in the same way."""
        return self._fetch(request)

    def _fetch(self, request: bytes) -> FetchResult | bytes:
        fetch, reader_node = decode_fetch(request, self._serves)
        result = _or_exit(
            lambda: self._partition.fetch(
                fetch.offset,
                fetch.max_bytes,
                fetch.min_bytes,
                fetch.max_wait_ms,
                locate=reader_node == own_node_id(),
                isolation=_isolation(fetch.isolation),
                last_fetched_epoch=fetch.last_fetched_epoch,
            )
        )
        return result.encode() if result.records is None else result

    @ray.method(concurrency_group="admin")
    def list_offset(self, request: bytes) -> bytes:
        """``offset_for_timestamp``, in the same way. Answers an OffsetAnswer."""
        wanted = decode_offset(request, self._serves)
        place = _or_exit(
            lambda: self._partition.offset_for_timestamp(
                wanted.timestamp, _isolation(wanted.isolation)
            )
        )
        if place is None:
            return OffsetAnswer(-1, -1, -1).encode()
        leader_epoch = self._partition.log.epochs.epoch_at(place.offset)
        return OffsetAnswer(place.offset, place.timestamp, leader_epoch).encode()

    @property
    def _serves(self) -> Serves:
        return Serves(self._spec.partition, self._spec.topic_id, self._partition.leader_epoch)

    # -- what it is --------------------------------------------------------------------------------

    @ray.method(concurrency_group="admin")
    def serving(self) -> Serving | None:
        """Which log this serves; None once it is closed. Raises why it is offline."""
        if self._partition.is_closed:
            return None
        _or_exit(self._partition.check_online)
        return Serving(self._spec.topic_id, self._spec.folder, own_node_id(), self._opening)

    @ray.method(concurrency_group="admin")
    def offsets(self) -> PartitionOffsets:
        """Log start offset, recovery point, high watermark, log end offset."""
        return _or_exit(self._partition.offsets)

    @ray.method(concurrency_group="admin")
    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after ``timestamp`` (ms).

        -1: the log's end, -2: its start, -3: the record with the largest timestamp.
        """
        return _or_exit(lambda: self._partition.offset_for_timestamp(timestamp))

    @ray.method(concurrency_group="admin")
    def status(self) -> PartitionStatus:
        """What ``raylog status`` shows."""
        partition, log = self._partition, self._partition.log
        return PartitionStatus(
            partition=str(self._spec.partition),
            folder=self._spec.folder,
            pid=os.getpid(),
            kernel=KERNEL,
            leader_epoch=partition.leader_epoch,
            offsets=partition.offsets(),
            size_bytes=log.size_bytes,
            segments=len(log.segments),
            is_offline=partition.is_offline,
            report=self._opening,
        )

    # -- upkeep ------------------------------------------------------------------------------------

    @ray.method(concurrency_group="admin")
    def reconfigure(self, config: LogConfig, version: int) -> None:
        """Obey another config from the next append on, unless a newer ``version`` came before."""
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
        """Remove the segments that retention no longer keeps; returns what was removed."""
        return _or_exit(self._partition.delete_old_segments)

    @ray.method(concurrency_group="admin")
    def delete_records(self, before_offset: int) -> int:
        """Make records below an offset unreadable; returns the log start offset.

        ``before_offset``: -1 is the high watermark.
        """
        return _or_exit(lambda: self._partition.delete_records(before_offset))

    @ray.method(concurrency_group="admin")
    def cleaning_facts(self) -> LogFacts:
        """What the CompactionActor chooses by."""
        return _or_exit(self._partition.cleaning_facts)

    @ray.method(concurrency_group="admin")
    def cleaning_view(self) -> LogView:
        """Begin a round of compaction; returns what the CompactionActor must know for it."""
        return _or_exit(self._partition.cleaning_view)

    @ray.method(concurrency_group="admin")
    def check_unchanged(self, segments: Sequence[SegmentId], round_id: RoundId) -> None:
        """Raise CleaningAborted if a round has become pointless."""
        _or_exit(lambda: self._partition.check_unchanged(segments, round_id))

    @ray.method(concurrency_group="admin")
    def replace_segments(self, old: Sequence[SegmentId], round_id: RoundId) -> None:
        """Put the segment in place that the CompactionActor has written.

        Raises CleaningAborted with nothing changed.
        """
        _or_exit(lambda: self._partition.replace_segments(old, round_id))

    @ray.method(concurrency_group="admin")
    def close(self) -> PartitionOffsets:
        """Flush everything, close the files, unlock the folder; returns the last offsets."""
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
        """Do upkeep and export metrics, as long as the process lives.

        A partition that is idle rests: its metrics are exported less often.
        """
        expiration = self._spec.producer_expiration
        topic, partition = self._spec.partition
        exporter = Exporter(ray_metric, topic=topic, partition=partition)
        next_export_s, is_exported = 0.0, False
        while True:
            if is_exported:
                self._partition.rest(expiration, IDLE_EXPORT_INTERVAL_S)
            time.sleep(UPKEEP_INTERVAL_S)
            is_exported = False
            if self._partition.is_stuck:
                event(
                    logger,
                    "process-ended",
                    level=logging.ERROR,
                    todo="none: the next process recovers the log",
                )
                _exit()
            if not self._is_reported():
                continue
            try:
                _or_exit(lambda: self._partition.maintain(expiration))
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
            export_partition(self._partition, exporter)
            export_opening(self._opening, exporter)
        except Exception:  # whatever Ray raises: metrics are not worth a partition
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


def _isolation(level: int) -> Isolation:
    return COMMITTED if level == READ_COMMITTED else "high_watermark"


def _log_manager_of(spec: LogSpec) -> LogManagerStub | None:
    return find_log_manager(spec.node, spec.namespace) if spec.node else None


def _up_to_date(spec: LogSpec) -> LogSpec:
    """The spec with the topic's present config: Ray repeats the arguments of the first start.

    A LogManager that does not answer is itself being started again; what it is told then reaches
    this actor.
    """
    log_manager = _log_manager_of(spec)
    if log_manager is None:
        return spec
    try:
        configured = log_manager.config_of(spec.partition).get(MANAGER_TIMEOUT_S)
    except RaylogError as error:
        warn(
            logger,
            "config-unknown",
            partition=spec.partition,
            why=error,
            uses="the config of the first start",
        )
        return spec
    if configured is None:
        return spec
    return spec._replace(config=configured.config, config_version=configured.version)


def _report(spec: LogSpec, error: StorageError, *, is_loud: bool = True) -> bool:
    """Tell the LogManager that a disk has failed; returns whether it has heard.

    It takes the whole dir offline then.
    """
    if not error.is_disk_failure:
        return True
    try:
        log_manager = _log_manager_of(spec)
        if log_manager is None:
            return False
        report = log_manager.failed(spec.partition, spec.topic_id, error)
        report.get(MANAGER_TIMEOUT_S)
    except Exception as failure:  # whatever Ray raises: the failure is reported again
        if is_loud:
            warn(logger, "failure-not-reported", partition=spec.partition, why=failure)
        return False
    return True


def _tell_progress(spec: LogSpec, progress: Progress | None) -> None:
    """Tell the LogManager how far the recovery has come; None: it is over. Waits for no answer."""
    try:
        log_manager = _log_manager_of(spec)
        if log_manager is not None:
            log_manager.recovering(spec.partition, progress).ignore()
    except Exception as failure:  # whatever Ray raises: the recovery goes on
        warn(logger, "progress-not-told", partition=spec.partition, why=failure)


def _open(spec: LogSpec, *, is_restart: bool) -> tuple[Partition, OpeningReport]:
    teller = ProgressTeller(spec.partition, SystemClock(), partial(_tell_progress, spec))
    try:
        return _open_log(spec, teller, is_restart=is_restart)
    finally:
        if teller.has_told:
            _tell_progress(spec, None)


def _open_log(
    spec: LogSpec, teller: ProgressTeller, *, is_restart: bool
) -> tuple[Partition, OpeningReport]:
    fs, clock = RealFileSystem(), SystemClock()
    log_dir, began_s = os.path.dirname(spec.folder), time.monotonic()
    log = open_log(
        fs,
        clock,
        spec.folder,
        spec.partition,
        spec.config,
        topic_id=spec.topic_id,
        is_clean=spec.is_clean and not is_restart,
        recovery_point=_offset_in_checkpoint(log_dir, RECOVERY_POINTS, spec.partition),
        log_start_offset=_offset_in_checkpoint(log_dir, LOG_START_OFFSETS, spec.partition),
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


def _or_exit(call: Callable[[], Answer]) -> Answer:
    """Let raylog's errors through; end the process on any other: its state cannot be trusted."""
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
            todo="none: the next process recovers the log",
        )
        _exit()
        raise


def _exit() -> Any:
    logging.shutdown()
    os._exit(1)
