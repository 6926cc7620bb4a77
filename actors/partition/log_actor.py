"""LogActor: the Ray actor that owns one partition's folder. A shell over ``partition.py``.

It is pinned to the node that has the folder, and Ray restarts it there for ever; everything is
rebuilt from the disk. What it does around its partition (learn the config, open the log, report a
disk's failure, end) is decided by the machine in ``life.py`` and carried out by ``living.py``. It
locks the folder, so that there are never two writers, and begins a new leader epoch. The
constructor returns at once, and ``says`` tells how far it is. What happens after a failure:

=============================================  =====================================================
failure                                        what follows
=============================================  =====================================================
the log cannot be opened (data missing,        ``says`` tells why for 30 seconds; then the actor
folder locked)                                 ends for good, since no restart would help
Ray has put it on another node than its own    it ends for good at once
the LogManager does not say the config of a    requests are refused with NotLeader until it does
log that Ray has started again
an error that is not raylog's                  the actor's state cannot be trusted: it ends its
                                               process, and Ray starts another, which recovers; Ray
                                               itself would let the failed actor live on
offline for a reason other than a disk         the same
a disk's failure                               reported to the LogManager, until that has heard
=============================================  =====================================================

Threads: each concurrency group has its own (``bounds.py``), so that parked long polls never delay
an append, and a disk that hangs under a fsync delays no word of what the actor serves.
"""

import os
from collections.abc import Sequence
from typing import Any

import ray

from raylog.actors.control import Confirmed
from raylog.actors.messages import (
    AppendResult,
    DataAddress,
    FetchResult,
    PartitionOffsets,
    PartitionStatus,
    RemovedSegments,
)
from raylog.actors.metrics import Exporter
from raylog.actors.node_messages import LogOrder, LogSays
from raylog.actors.partition.bounds import (
    APPENDS_AT_ONCE,
    CONTROLS_AT_ONCE,
    FETCHES_AT_ONCE,
    LOOKUPS_AT_ONCE,
    PARKED_FETCHES,
    REFUSALS_AT_ONCE,
    REMOVALS_AT_ONCE,
    SAYS_AT_ONCE,
    UPKEEP_AT_ONCE,
)
from raylog.actors.partition.living import LivingLog
from raylog.actors.partition.log_opening import open_partition
from raylog.actors.partition.manager_link import ManagerLink
from raylog.actors.partition.partition import Partition
from raylog.actors.partition.process import RayProcess
from raylog.actors.partition.spec import LogSpec
from raylog.actors.plane.log_sockets import LogSockets
from raylog.actors.runtime.nodes import broker_id
from raylog.actors.runtime.ray_metrics import ray_metric
from raylog.actors.runtime.release import end_if_replaced
from raylog.storage.buffers import Buffer
from raylog.storage.cleaner.cleanable import LogFacts
from raylog.storage.cleaner.remote import LogView
from raylog.storage.clock import SteadyClock
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.readable import HIGH_WATERMARK, Isolation
from raylog.storage.records.kernel import KERNEL
from raylog.storage.segment import SegmentId
from raylog.storage.swap import RoundId

__all__ = ["OPTIONS", "LogActor", "LogActorImpl", "LogSpec"]


class LogActorImpl:
    """The methods that callers see as ``handle.method.remote(...)``."""

    def __init__(self, spec: LogSpec, own: LivingLog | None = None) -> None:
        """``own``: the log and its life; None makes those of this Ray actor."""
        end_if_replaced()
        own = own or _own_log(spec)
        # Each request needs these.
        self._topic_partition = spec.partition
        self._own, self._or_end = own, own.or_end
        own.begin()

    @property
    def _partition(self) -> Partition:
        """The partition. Raises NotLeader while its log is not open."""
        opened = self._own.opened
        if opened is None:
            raise self._own.not_leader()
        return opened.partition

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
    def fetch(self, offset: int, max_bytes: int = 1 << 20) -> FetchResult:
        """Batches from ``offset`` on, at once. Raises OffsetOutOfRange."""
        return self._or_end(lambda: self._partition.fetch(offset, max_bytes))

    @ray.method(concurrency_group="poll")
    def poll(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
    ) -> FetchResult:
        """As ``fetch``, but waits up to ``max_wait_ms`` until there are ``min_bytes``."""
        fetch = self._partition.fetch
        return self._or_end(lambda: fetch(offset, max_bytes, min_bytes, max_wait_ms))

    @ray.method(concurrency_group="says")
    def data_address(self, topic_id: str, reader_node: str) -> DataAddress:
        """Where raylog's clients produce and fetch by TCP, if they cannot do so by name.

        ``reader_node``: Ray's id of the client's node.

        Raises NotLeader while the log is not open, or its process cannot listen, and UnknownTopicId
        for a topic that was made again.
        """
        return self._or_end(lambda: self._own.data_address(topic_id, reader_node))

    # -- orders, and what it is --------------------------------------------------------------------

    @ray.method(concurrency_group="says")
    def says(self) -> LogSays:
        """What it serves, and how far it is, in any state; from memory. Never raises."""
        return self._own.says()

    @ray.method(concurrency_group="says")
    def learn(self, order: LogOrder) -> LogSays:
        """``says``, of an actor that may wait for its order: it begins to open the log with it.

        Returns at once. An actor that has learned an order obeys another by ``reconfigure``. Raises
        NotLeader for an order that is not this log's, and UnsupportedVersion.
        """
        return self._or_end(lambda: self._own.learn(order))

    @ray.method(concurrency_group="admin")
    def offsets(self) -> PartitionOffsets:
        """Log start offset, recovery point, high watermark, log end offset."""
        return self._or_end(self._partition.offsets)

    @ray.method(concurrency_group="admin")
    def offset_for_timestamp(
        self, timestamp: int, isolation: Isolation = HIGH_WATERMARK
    ) -> TimestampOffset | None:
        """The first record at or after ``timestamp`` (ms) that ``isolation`` lets a reader see.

        -1: the end of what it lets a reader see, -2: the log's start, -3: the record with the
        largest timestamp.
        """
        return self._or_end(lambda: self._partition.offset_for_timestamp(timestamp, isolation))

    @ray.method(concurrency_group="admin")
    def status(self) -> PartitionStatus:
        """What ``raylog status`` shows."""
        opened = self._own.log
        partition, log = opened.partition, opened.partition.log
        return PartitionStatus(
            partition=str(self._topic_partition),
            folder=self._own.spec.folder,
            pid=os.getpid(),
            kernel=KERNEL,
            leader_epoch=partition.leader_epoch,
            offsets=partition.offsets(),
            size_bytes=log.size_bytes,
            segments=len(log.segments),
            is_offline=partition.is_offline,
            report=opened.report,
        )

    # -- what changes the log ----------------------------------------------------------------------

    @ray.method(concurrency_group="control")
    def reconfigure(self, order: LogOrder) -> LogSays:
        """Obey another config from the next append on, unless a newer version came before.

        Raises as ``learn``, and NotLeader while the log is not open.
        """
        return self._own.reconfigure(order)

    @ray.method(concurrency_group="control")
    def flush(self) -> None:
        """Return when everything written so far is fsynced."""
        self._or_end(self._partition.flush)

    @ray.method(concurrency_group="control")
    def roll(self) -> None:
        """Begin a new segment."""
        self._or_end(self._partition.roll)

    @ray.method(concurrency_group="removal")
    def delete_records(self, before_offset: int) -> int:
        """Make records below an offset unreadable; returns the log start offset.

        They do not come back by a crash after this has answered: where the log begins is on the
        disk then. (On a full disk it is kept for the next checkpoint.) ``before_offset``: -1 is the
        high watermark. Raises ConfigUnconfirmed; and NotLeader, RequestTimedOut or StorageError
        where the records are unreadable now, and that is not on the disk yet: ask again.
        """
        return self._own.delete_records(before_offset)

    @ray.method(concurrency_group="control")
    def close(self) -> PartitionOffsets:
        """Flush everything, close the files, unlock the folder; returns the last offsets.

        Fine if it is closed. Raises NotLeader while the log is not open.
        """
        return self._own.close()

    # -- upkeep ------------------------------------------------------------------------------------

    @ray.method(concurrency_group="upkeep")
    def delete_old_segments(self, confirmed: Confirmed) -> RemovedSegments:
        """Remove the segments that retention no longer keeps; returns what was removed.

        ``confirmed``: the LogManager's right to it, here and below. Raises ConfigUnconfirmed where
        the log obeys another version of its config, or the right has ended.
        """
        may_remove = self._own.permit(confirmed)
        return self._or_end(lambda: self._partition.delete_old_segments(may_remove))

    @ray.method(concurrency_group="upkeep")
    def cleaning_facts(self) -> LogFacts:
        """What the CompactionActor chooses by."""
        return self._or_end(self._partition.cleaning_facts)

    @ray.method(concurrency_group="upkeep")
    def cleaning_view(self, confirmed: Confirmed) -> LogView:
        """Begin a round of compaction; returns what the CompactionActor must know for it."""
        may_remove = self._own.permit(confirmed)
        return self._or_end(lambda: self._partition.cleaning_view(may_remove))

    @ray.method(concurrency_group="upkeep")
    def check_unchanged(self, segments: Sequence[SegmentId], round_id: RoundId) -> None:
        """Raise CleaningAborted if a round has become pointless."""
        self._or_end(lambda: self._partition.check_unchanged(segments, round_id))

    @ray.method(concurrency_group="upkeep")
    def replace_segments(
        self, old: Sequence[SegmentId], round_id: RoundId, confirmed: Confirmed
    ) -> None:
        """Put the segment in place that the CompactionActor has written.

        Raises CleaningAborted or ConfigUnconfirmed with nothing changed.
        """
        may_remove = self._own.permit(confirmed)
        self._or_end(lambda: self._partition.replace_segments(old, round_id, may_remove))


OPTIONS: dict[str, Any] = {
    "concurrency_groups": {
        "produce": APPENDS_AT_ONCE,
        "fetch": FETCHES_AT_ONCE,
        "poll": PARKED_FETCHES + REFUSALS_AT_ONCE,
        "says": SAYS_AT_ONCE,
        "admin": LOOKUPS_AT_ONCE,
        "control": CONTROLS_AT_ONCE,
        "removal": REMOVALS_AT_ONCE,
        "upkeep": UPKEEP_AT_ONCE,
    },
    "num_cpus": 0,
    "max_restarts": -1,
    "max_task_retries": 0,  # a retry by Ray would append twice; producers retry with their sequence
}
LogActor = ray.remote(**OPTIONS)(LogActorImpl)


def _own_sockets(spec: LogSpec, manager: ManagerLink) -> LogSockets:
    return LogSockets(
        spec, broker_id(spec.cluster_id, spec.namespace), manager.verifier_of, manager.address_of
    )


def _own_log(spec: LogSpec) -> LivingLog:
    manager = ManagerLink(spec)
    return LivingLog(
        spec,
        RayProcess(),
        manager,
        SteadyClock(),
        open_partition,
        Exporter(ray_metric, topic=spec.partition.topic, partition=spec.partition.partition),
        sockets=_own_sockets(spec, manager) if spec.cluster_id else None,
    )
