"""LogActor: the Ray actor that owns one partition's folder. A shell over ``partition.py``.

It is pinned to the node that has the folder, and Ray restarts it there for ever; everything is
rebuilt from the disk. What it does around its partition (learn the config, open the log, report a
disk's failure, end) is decided by the machine in ``life.py``; here its instructions are executed.
It locks the folder, so that there are never two writers, and begins a new leader epoch. What
happens after a failure:

=============================================  =====================================================
failure                                        what follows
=============================================  =====================================================
in ``__init__`` (data missing, folder locked)  raised; the actor stays dead with that error, since
                                               no restart would help
the LogManager does not say the config of a    requests are refused with NotLeader until it does
log that Ray has started again
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
from typing import Any, TypeVar

import ray

from raylog.actors.errors import ConfigUnconfirmed, NotLeader
from raylog.actors.events import event, set_up_logs, warn
from raylog.actors.messages import (
    AppendResult,
    Configured,
    Confirmed,
    FetchResult,
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
from raylog.actors.partition.life import (
    AskConfig,
    Closed,
    Constructed,
    Created,
    DiskFailed,
    Distrusted,
    EndForGood,
    EndProcess,
    Event,
    Heard,
    Instruction,
    Learned,
    Life,
    LookAfter,
    Note,
    NotHeard,
    NotLearned,
    Opened,
    OpenLog,
    Raise,
    Refused,
    Report,
    Restarted,
    Stuck,
    Tick,
)
from raylog.actors.partition.log_opening import OpenedLog, open_partition
from raylog.actors.partition.manager_link import ManagerLink
from raylog.actors.partition.partition import Partition
from raylog.actors.partition.removal import Permit, any_version, permit
from raylog.actors.partition.spec import LogSpec
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
from raylog.actors.runtime.calls import OPEN_TIMEOUT_S
from raylog.actors.runtime.handles import end_own_actor
from raylog.actors.runtime.nodes import is_restarted, own_name, own_node, own_node_id
from raylog.actors.runtime.ray_metrics import ray_metric
from raylog.storage.buffers import Buffer
from raylog.storage.cleaner.cleanable import LogFacts
from raylog.storage.cleaner.remote import LogView
from raylog.storage.clock import SteadyClock
from raylog.storage.config import LogConfig
from raylog.storage.errors import RaylogError
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.log import HIGH_WATERMARK
from raylog.storage.readable import COMMITTED, Isolation
from raylog.storage.records.kernel import KERNEL
from raylog.storage.segment import SegmentId
from raylog.storage.swap import RoundId

__all__ = ["OPTIONS", "LogActor", "LogActorImpl", "LogSpec"]

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

# With the default of 5 ms, one busy thread makes every small call take 10 ms.
SWITCH_INTERVAL_S = 0.0005
# Upkeep and metrics of a partition that is busy; one that is idle rests until something is due.
UPKEEP_INTERVAL_S = 1.0
# How long ``delete_records`` waits for a config to be confirmed, and how often it looks: of a topic
# that was just made it is within a second.
CONFIRMATION_PATIENCE_S = 3.0
CONFIRMATION_INTERVAL_S = 0.2


class LogActorImpl:
    """The methods that callers see as ``handle.method.remote(...)``."""

    def __init__(self, spec: LogSpec) -> None:
        set_up_logs(own_name())
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        is_restart = is_restarted()
        if is_restart:
            own_node().check_alone()
        self._begin(spec, is_restart=is_restart)
        # Without a LogManager nobody knows a newer config.
        self._handle(Restarted() if is_restart and spec.node else Created())
        self._handle(Constructed())
        threading.Thread(target=self._keep_up, name="upkeep", daemon=True).start()

    def _begin(self, spec: LogSpec, *, is_restart: bool) -> None:
        self._spec, self._is_restart = spec, is_restart
        self._manager = ManagerLink(spec)
        self._clock = SteadyClock()
        self._life, self._life_lock = Life(), threading.Lock()
        self._opened: OpenedLog | None = None
        self._is_settled = threading.Event()  # the log was opened, or refused
        topic, partition = spec.partition
        self._exporter = Exporter(ray_metric, topic=topic, partition=partition)
        self._next_export_s, self._is_exported = 0.0, False

    @property
    def _partition(self) -> Partition:
        """The partition. Raises NotLeader while its log is not open."""
        return self._log().partition

    def _log(self) -> OpenedLog:
        if self._opened is None:
            raise NotLeader(str(self._spec.partition), self._life.why_not_serving)
        return self._opened

    # -- data --------------------------------------------------------------------------------------

    @ray.method(concurrency_group="produce")
    def append(self, records: Buffer) -> AppendResult:
        """Append one v2 record batch (bytes or a uint8 numpy array).

        Returns when it is as durable as the topic asks (``flush.messages``). Raises CorruptRecord,
        RecordTooLarge, InvalidRecord, OutOfOrderSequence, DiskFull and their kin, with nothing
        written.
        """
        return self._or_end(lambda: self._partition.append(records))

    @ray.method(concurrency_group="fetch")
    def fetch(self, offset: int, max_bytes: int = 1 << 20, *, locate: bool = False) -> FetchResult:
        """Batches from ``offset`` on, at once; with ``locate``, where they lie.

        Raises OffsetOutOfRange.
        """
        return self._or_end(lambda: self._partition.fetch(offset, max_bytes, locate=locate))

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
        return self._or_end(lambda: fetch(offset, max_bytes, min_bytes, max_wait_ms, locate=locate))

    # -- data, for raylog's own clients: requests.py -----------------------------------------------

    @ray.method(concurrency_group="produce")
    def produce(self, request: bytes, records: Buffer | None = None) -> bytes:
        """``append``, for the topic and the leader epoch that the client knows.

        ``records``: a large batch; a small one is inside of the request. Answers a ProduceAnswer.
        Raises as ``append``, and UnknownTopicId, FencedLeaderEpoch, UnknownLeaderEpoch.
        """
        check_head(request, self._serves, PRODUCE_VERSION)
        batch = records_in(request) if records is None else records
        result = self._or_end(lambda: self._partition.append(batch))
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
        result = self._or_end(
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
        place = self._or_end(
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
        self._or_end(self._partition.check_online)
        report = self._log().report
        return Serving(self._spec.topic_id, self._spec.folder, own_node_id(), report)

    @ray.method(concurrency_group="admin")
    def learn(self, config: LogConfig, version: int) -> Serving | None:
        """``serving``, of an actor that may wait for its config: it learns it now, and opens.

        Raises what keeps the log from being opened.
        """
        self._or_end(lambda: self._handle(Learned(Configured(config, version))))
        self._is_settled.wait(OPEN_TIMEOUT_S)
        return self.serving()

    @ray.method(concurrency_group="admin")
    def offsets(self) -> PartitionOffsets:
        """Log start offset, recovery point, high watermark, log end offset."""
        return self._or_end(self._partition.offsets)

    @ray.method(concurrency_group="admin")
    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after ``timestamp`` (ms).

        -1: the log's end, -2: its start, -3: the record with the largest timestamp.
        """
        return self._or_end(lambda: self._partition.offset_for_timestamp(timestamp))

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
            report=self._log().report,
        )

    # -- upkeep ------------------------------------------------------------------------------------

    @ray.method(concurrency_group="admin")
    def reconfigure(self, config: LogConfig, version: int) -> int:
        """Obey another config from the next append on, unless a newer ``version`` came before.

        Returns the version that the log obeys now.
        """
        return self._or_end(lambda: self._partition.reconfigure(config, version))

    @ray.method(concurrency_group="admin")
    def flush(self) -> None:
        """Return when everything written so far is fsynced."""
        self._or_end(self._partition.flush)

    @ray.method(concurrency_group="admin")
    def roll(self) -> None:
        """Begin a new segment."""
        self._or_end(self._partition.roll)

    @ray.method(concurrency_group="admin")
    def delete_old_segments(self, confirmed: Confirmed) -> RemovedSegments:
        """Remove the segments that retention no longer keeps; returns what was removed.

        ``confirmed``: the LogManager's right to it, here and below. Raises ConfigUnconfirmed where
        the log obeys another version of its config, or the right has ended.
        """
        may_remove = self._permit(confirmed)
        return self._or_end(lambda: self._partition.delete_old_segments(may_remove))

    @ray.method(concurrency_group="admin")
    def delete_records(self, before_offset: int) -> int:
        """Make records below an offset unreadable; returns the log start offset.

        ``before_offset``: -1 is the high watermark. Raises ConfigUnconfirmed.
        """
        high_watermark = self._partition.offsets().high_watermark
        if before_offset == HIGH_WATERMARK:  # once: a later try must not take newer records
            before_offset = high_watermark
        deadline = time.monotonic() + CONFIRMATION_PATIENCE_S
        while True:
            try:
                return self._delete_records(before_offset)
            except ConfigUnconfirmed:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(CONFIRMATION_INTERVAL_S)

    def _delete_records(self, before_offset: int) -> int:
        may_remove = self._own_permit()
        return self._or_end(lambda: self._partition.delete_records(before_offset, may_remove))

    def _permit(self, confirmed: Confirmed | None) -> Permit:
        return permit(self._spec.partition, self._spec.topic_id, confirmed, self._clock)

    def _own_permit(self) -> Permit:
        """The permit of now. Without a LogManager there is no newer config than the log's own."""
        return self._permit(self._manager.confirmed()) if self._spec.node else any_version

    @ray.method(concurrency_group="admin")
    def cleaning_facts(self) -> LogFacts:
        """What the CompactionActor chooses by."""
        return self._or_end(self._partition.cleaning_facts)

    @ray.method(concurrency_group="admin")
    def cleaning_view(self, confirmed: Confirmed) -> LogView:
        """Begin a round of compaction; returns what the CompactionActor must know for it."""
        may_remove = self._permit(confirmed)
        return self._or_end(lambda: self._partition.cleaning_view(may_remove))

    @ray.method(concurrency_group="admin")
    def check_unchanged(self, segments: Sequence[SegmentId], round_id: RoundId) -> None:
        """Raise CleaningAborted if a round has become pointless."""
        self._or_end(lambda: self._partition.check_unchanged(segments, round_id))

    @ray.method(concurrency_group="admin")
    def replace_segments(
        self, old: Sequence[SegmentId], round_id: RoundId, confirmed: Confirmed
    ) -> None:
        """Put the segment in place that the CompactionActor has written.

        Raises CleaningAborted or ConfigUnconfirmed with nothing changed.
        """
        may_remove = self._permit(confirmed)
        self._or_end(lambda: self._partition.replace_segments(old, round_id, may_remove))

    @ray.method(concurrency_group="admin")
    def close(self) -> PartitionOffsets:
        """Flush everything, close the files, unlock the folder; returns the last offsets."""
        self._or_end(self._partition.close)
        self._log().lock.release()
        self._handle(Closed())
        offsets = self._partition.offsets()
        event(
            logger,
            "log-closed",
            partition=self._spec.partition,
            log_end_offset=offsets.log_end_offset,
        )
        return offsets

    # -- life --------------------------------------------------------------------------------------

    def _keep_up(self) -> None:
        """Tell the machine of the time, as long as the process lives.

        A partition that is idle rests: its metrics are exported less often.
        """
        while True:
            if self._is_exported:
                self._partition.rest(self._spec.producer_expiration, IDLE_EXPORT_INTERVAL_S)
            time.sleep(UPKEEP_INTERVAL_S)
            self._is_exported = False
            try:
                self._or_end(lambda: self._handle(Tick()))
            except RaylogError:
                warn(logger, "upkeep-failed", trace=True, partition=self._spec.partition)

    def _handle(self, event: Event) -> None:
        """Tell the machine what happened, and do what follows from it."""
        events = [event]
        while events:
            with self._life_lock:
                instructions = self._life.handle(events.pop(0), self._clock.now_ms())
            for instruction in instructions:
                outcome = self._execute(instruction)
                if outcome is not None:
                    events.append(outcome)

    def _execute(self, instruction: Instruction) -> Event | None:
        """Do what the machine instructs; returns what came of it."""
        match instruction:
            case AskConfig():
                return self._ask_config(instruction.timeout_ms / 1000)
            case OpenLog():
                return self._open(instruction.configured)
            case Report():
                is_heard = self._manager.report(instruction.error, is_loud=instruction.is_loud)
                return Heard() if is_heard else NotHeard()
            case LookAfter():
                return self._look_after()
            case Note():
                warn(
                    logger,
                    instruction.name,
                    partition=self._spec.partition,
                    **instruction.fields,
                )
            case Raise():
                raise instruction.error
            case EndForGood():
                warn(
                    logger,
                    "log-refused",
                    partition=self._spec.partition,
                    why=instruction.error,
                )
                end_own_actor()
            case EndProcess():
                self._end_process(is_error=instruction.is_error)
        return None

    def _ask_config(self, timeout_s: float) -> Event:
        try:
            return Learned(self._manager.ask_config(timeout_s))
        except RaylogError as error:
            return NotLearned(str(error.problem))

    def _open(self, configured: Configured | None) -> Event:
        if configured is not None:
            self._spec = self._spec._replace(
                config=configured.config, config_version=configured.version
            )
        try:
            self._opened = open_partition(
                self._spec, self._manager.tell_progress, is_restart=self._is_restart
            )
        except RaylogError as error:
            return Refused(error)
        finally:
            self._is_settled.set()
        return Opened()

    def _look_after(self) -> Event | None:
        partition = self._partition
        if partition.is_stuck:
            return Stuck()
        failure = partition.disk_failure
        if failure is not None and self._life.state == "serving":
            return DiskFailed(failure)
        partition.maintain(self._spec.producer_expiration)
        if time.monotonic() >= self._next_export_s:
            self._export()
            self._next_export_s = time.monotonic() + EXPORT_INTERVAL_S
            self._is_exported = True
        return None

    def _export(self) -> None:
        try:
            export_partition(self._partition, self._exporter)
            export_opening(self._log().report, self._exporter)
        except Exception:  # whatever Ray raises: metrics are not worth a partition
            warn(logger, "metrics-failed", trace=True, partition=self._spec.partition)

    def _or_end(self, call: Callable[[], Answer]) -> Answer:
        """Let raylog's errors through; end the process on any other: its state is not trusted."""
        try:
            return call()
        except RaylogError:
            raise
        except BaseException:
            self._handle(Distrusted())
            raise

    def _end_process(self, *, is_error: bool) -> None:
        event(
            logger,
            "process-ended",
            level=logging.CRITICAL if is_error else logging.ERROR,
            trace=is_error,
            todo="none: the next process recovers the log",
        )
        _exit()


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


def _exit() -> Any:
    logging.shutdown()
    os._exit(1)
