"""A node's actors as their callers see them: one method a call, typed, and found by name.

A stub holds Ray's handle and makes a ``Call`` (``calls.py``) of each method. What the method does
is said in the actor's class. The Controller's stub for clients is ``cluster/controller/stub.py``.

========================  ==========================================================
stub                      the actor's class
========================  ==========================================================
LogActorStub              ``actors/partition/log_actor.py``
LogManagerStub            ``actors/node/log_manager.py``
CompactionActorStub       ``actors/upkeep/compaction_actor.py``
RetentionActorStub        ``actors/upkeep/retention_actor.py``
ReportsStub               ``cluster/controller/controller_actor.py``, for LogManagers
========================  ==========================================================
"""

from collections.abc import Sequence
from typing import Any

from raylog.actors.cluster_image import Endpoint, ImageKept, ImageUpdate
from raylog.actors.control import Confirmed, LogId, MetadataKept, MetadataPush, Orders, Report
from raylog.actors.messages import (
    AppendResult,
    CompactionStatus,
    DataAddress,
    FetchResult,
    LogDirStatus,
    PartitionOffsets,
    PartitionStatus,
    Recovering,
    RemovedSegments,
    RetentionStatus,
)
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node_messages import LogOrder, LogSays, UpkeepOrder
from raylog.actors.plane.sasl.scram import Verifier
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import (
    CONTROLLER,
    compaction_actor_name,
    log_actor_name,
    log_manager_name,
    retention_actor_name,
)
from raylog.storage.cleaner.cleanable import LogFacts
from raylog.storage.cleaner.remote import LogView
from raylog.storage.errors import StorageError
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.names import TopicPartition
from raylog.storage.readable import HIGH_WATERMARK, Isolation
from raylog.storage.report import Progress
from raylog.storage.segment import SegmentId
from raylog.storage.swap import RoundId


class LogActorStub:
    """A partition's LogActor."""

    def __init__(self, handle: Any, partition: TopicPartition) -> None:
        self.handle = handle
        self._name = str(partition)

    def append(self, records: Any) -> Call[AppendResult]:
        return Call(self.handle.append.remote(records), self._name)

    def fetch(self, offset: int, max_bytes: int) -> Call[FetchResult]:
        return Call(self.handle.fetch.remote(offset, max_bytes), self._name)

    def data_address(self, topic_id: str, reader_node: str) -> Call[DataAddress]:
        return Call(self.handle.data_address.remote(topic_id, reader_node), self._name)

    def says(self) -> Call[LogSays]:
        return Call(self.handle.says.remote(), self._name)

    def learn(self, order: LogOrder) -> Call[LogSays]:
        return Call(self.handle.learn.remote(order), f"opening {self._name}")

    def offsets(self) -> Call[PartitionOffsets]:
        return Call(self.handle.offsets.remote(), self._name)

    def offset_for_timestamp(
        self, timestamp: int, isolation: Isolation = HIGH_WATERMARK
    ) -> Call[TimestampOffset | None]:
        # A LogActor of an older release has no such parameter: it gets what is not the default.
        more = () if isolation == HIGH_WATERMARK else (isolation,)
        return Call(self.handle.offset_for_timestamp.remote(timestamp, *more), self._name)

    def status(self) -> Call[PartitionStatus]:
        return Call(self.handle.status.remote(), self._name)

    def reconfigure(self, order: LogOrder) -> Call[LogSays]:
        return Call(self.handle.reconfigure.remote(order), f"configuring {self._name}")

    def flush(self) -> Call[None]:
        return Call(self.handle.flush.remote(), self._name)

    def roll(self) -> Call[None]:
        return Call(self.handle.roll.remote(), f"moving {self._name}")

    def delete_old_segments(self, confirmed: Confirmed) -> Call[RemovedSegments]:
        return Call(self.handle.delete_old_segments.remote(confirmed), self._name)

    def delete_records(self, before_offset: int) -> Call[int]:
        return Call(self.handle.delete_records.remote(before_offset), self._name)

    def cleaning_facts(self) -> Call[LogFacts]:
        return Call(self.handle.cleaning_facts.remote(), self._name)

    def cleaning_view(self, confirmed: Confirmed) -> Call[LogView]:
        return Call(self.handle.cleaning_view.remote(confirmed), self._name)

    def check_unchanged(self, segments: Sequence[SegmentId], round_id: RoundId) -> Call[None]:
        return Call(self.handle.check_unchanged.remote(segments, round_id), self._name)

    def replace_segments(
        self, old: Sequence[SegmentId], round_id: RoundId, confirmed: Confirmed
    ) -> Call[None]:
        return Call(self.handle.replace_segments.remote(old, round_id, confirmed), self._name)

    def close(self) -> Call[PartitionOffsets]:
        return Call(self.handle.close.remote(), f"closing {self._name}")


class LogManagerStub:
    """A node's LogManager."""

    def __init__(self, handle: Any, node: str) -> None:
        """``node``: its key."""
        self.handle = handle
        self.name = log_manager_name(node)

    def start(self, config: BrokerConfig) -> Call[None]:
        return Call(self.handle.start.remote(config), self.name)

    def obey(self, orders: Orders) -> Call[None]:
        return Call(self.handle.obey.remote(orders), self.name)

    def show(self, update: ImageUpdate) -> Call[ImageKept]:
        return Call(self.handle.show.remote(update), self.name)

    def endpoint_of(self, log: LogId) -> Call[Endpoint | None]:
        return Call(self.handle.endpoint_of.remote(log), self.name)

    def verifier_of(self, mechanism: str, user: str) -> Call[Verifier | None]:
        return Call(self.handle.verifier_of.remote(mechanism, user), self.name)

    def said(self, says: LogSays) -> Call[None]:
        return Call(self.handle.said.remote(says), self.name)

    def order_of(self, log: LogId) -> Call[LogOrder | None]:
        return Call(self.handle.order_of.remote(log), self.name)

    def confirmed(
        self, partitions: Sequence[TopicPartition]
    ) -> Call[dict[TopicPartition, Confirmed]]:
        return Call(self.handle.confirmed.remote(partitions), self.name)

    def failed(self, log: LogId, error: StorageError) -> Call[None]:
        return Call(self.handle.failed.remote(log, error), self.name)

    def log_dirs(self) -> Call[list[LogDirStatus]]:
        return Call(self.handle.log_dirs.remote(), f"the log dirs of {self.name}")

    def look_again(self, path: str) -> Call[str]:
        return Call(self.handle.look_again.remote(path), f"looking at {path} again")

    def recovering(self, partition: TopicPartition, progress: Progress | None) -> Call[None]:
        return Call(self.handle.recovering.remote(partition, progress), self.name)

    def recoveries(self) -> Call[list[Recovering]]:
        return Call(self.handle.recoveries.remote(), self.name)

    def cleaner_offsets(self) -> Call[dict[TopicPartition, int]]:
        return Call(self.handle.cleaner_offsets.remote(), self.name)

    def record_log_start(self, log: LogId, offsets: PartitionOffsets) -> Call[None]:
        return Call(self.handle.record_log_start.remote(log, offsets), self.name)

    def record_cleaner_offset(self, log: LogId, offset: int) -> Call[None]:
        return Call(self.handle.record_cleaner_offset.remote(log, offset), self.name)

    def metadata_push(self, push: MetadataPush) -> Call[MetadataKept]:
        return Call(self.handle.metadata_push.remote(push), self._metadata)

    def metadata_status(self) -> Call[MetadataKept]:
        return Call(self.handle.metadata_status.remote(), self._metadata)

    def metadata_promise(self, epoch: int) -> Call[MetadataKept]:
        return Call(self.handle.metadata_promise.remote(epoch), self._metadata)

    def metadata_read(self, first: int, most_bytes: int) -> Call[tuple[bytes, ...]]:
        return Call(self.handle.metadata_read.remote(first, most_bytes), self._metadata)

    def metadata_release(self) -> Call[None]:
        return Call(self.handle.metadata_release.remote(), self._metadata)

    @property
    def _metadata(self) -> str:
        return f"the copy of the metadata of {self.name}"

    def shutdown(self) -> Call[bool]:
        return Call(self.handle.shutdown.remote(), f"stopping {self.name}")


class ReportsStub:
    """The Controller, as LogManagers see it."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def report(self, report: Report) -> Call[None]:
        return Call(self.handle.report.remote(report), f"a report to the {CONTROLLER}")

    def allocate_producer_id(self) -> Call[int]:
        return Call(self.handle.allocate_producer_id.remote(), "a producer id")

    def answer_command(self, frame: bytes) -> Call[bytes]:
        return Call(self.handle.answer_command.remote(frame), "a command")

    def answer_lookup(self, frame: bytes) -> Call[bytes]:
        return Call(self.handle.answer_lookup.remote(frame), "a look-up")

    def refused(self, node: str, controller_epoch: int) -> Call[None]:
        call = self.handle.refused.remote(node, controller_epoch)
        return Call(call, f"a refusal to the {CONTROLLER}")


class CompactionActorStub:
    """A node's CompactionActor."""

    def __init__(self, handle: Any, name: str) -> None:
        self.handle = handle
        self.name = name

    def round(self, order: UpkeepOrder) -> Call[None]:
        return Call(self.handle.round.remote(order), self.name)

    def status(self) -> Call[list[CompactionStatus]]:
        return Call(self.handle.status.remote(), self.name)

    def retention(self) -> Call[list[RetentionStatus]]:
        return Call(self.handle.retention.remote(), self.name)


class RetentionActorStub:
    """A node's RetentionActor."""

    def __init__(self, handle: Any, name: str) -> None:
        self.handle = handle
        self.name = name

    def round(self, order: UpkeepOrder) -> Call[None]:
        return Call(self.handle.round.remote(order), self.name)

    def status(self) -> Call[list[RetentionStatus]]:
        return Call(self.handle.status.remote(), self.name)


def find_log_actor(partition: TopicPartition, namespace: str) -> LogActorStub | None:
    """A partition's LogActor, or None if there is none. Raises as ``find`` does."""
    handle = find(log_actor_name(partition), namespace)
    return None if handle is None else LogActorStub(handle, partition)


def find_log_manager(node: str, namespace: str) -> LogManagerStub | None:
    """A node's LogManager, or None if there is none. Raises as ``find`` does."""
    handle = find(log_manager_name(node), namespace)
    return None if handle is None else LogManagerStub(handle, node)


def find_reports(namespace: str) -> ReportsStub | None:
    """The Controller, or None if there is none. Raises as ``find`` does."""
    handle = find(CONTROLLER, namespace)
    return None if handle is None else ReportsStub(handle)


def find_compaction_actor(node: str, namespace: str) -> CompactionActorStub | None:
    """A node's CompactionActor, or None if there is none. Raises as ``find`` does."""
    name = compaction_actor_name(node)
    handle = find(name, namespace)
    return None if handle is None else CompactionActorStub(handle, name)


def find_retention_actor(node: str, namespace: str) -> RetentionActorStub | None:
    """A node's RetentionActor, or None if there is none. Raises as ``find`` does."""
    name = retention_actor_name(node)
    handle = find(name, namespace)
    return None if handle is None else RetentionActorStub(handle, name)
