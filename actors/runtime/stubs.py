"""A node's actors as their callers see them: one method a call, typed, and found by name.

A stub holds Ray's handle and makes a ``Call`` (``calls.py``) of each method. What the method does
is said in the actor's class. The Controller's stub is ``cluster/controller/stub.py``.

========================  =====================================
stub                      the actor's class
========================  =====================================
LogActorStub              ``actors/partition/log_actor.py``
LogManagerStub            ``actors/node/log_manager.py``
CompactionActorStub       ``actors/upkeep/compaction_actor.py``
RetentionActorStub        ``actors/upkeep/retention_actor.py``
========================  =====================================
"""

from collections.abc import Sequence
from typing import Any

from raylog.actors.messages import (
    AppendResult,
    CompactionStatus,
    Configured,
    Confirmed,
    DesiredVersions,
    FetchResult,
    Found,
    Hosted,
    LogDirStatus,
    NodeState,
    PartitionOffsets,
    PartitionStatus,
    Placed,
    Recovering,
    RemovedSegments,
    RetentionStatus,
    Serving,
)
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import (
    compaction_actor_name,
    log_actor_name,
    log_manager_name,
    retention_actor_name,
)
from raylog.storage.cleaner.cleanable import LogFacts
from raylog.storage.cleaner.remote import LogView
from raylog.storage.config import LogConfig
from raylog.storage.errors import StorageError
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.names import TopicPartition
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

    def produce(self, request: bytes, records: Any = None) -> Call[bytes]:
        """``records``: a batch that is not inside of the request."""
        arguments = (request,) if records is None else (request, records)
        return Call(self.handle.produce.remote(*arguments), self._name)

    def fetch_batches(self, request: bytes) -> Call[FetchResult | bytes]:
        return Call(self.handle.fetch_batches.remote(request), self._name)

    def poll_batches(self, request: bytes) -> Call[FetchResult | bytes]:
        return Call(self.handle.poll_batches.remote(request), self._name)

    def list_offset(self, request: bytes) -> Call[bytes]:
        return Call(self.handle.list_offset.remote(request), self._name)

    def serving(self, purpose: str) -> Call[Serving | None]:
        """``purpose``: what the caller is about to do, as errors say it."""
        return Call(self.handle.serving.remote(), f"{purpose} {self._name}")

    def learn(self, configured: Configured) -> Call[Serving | None]:
        call = self.handle.learn.remote(configured.config, configured.version)
        return Call(call, f"opening {self._name}")

    def offsets(self) -> Call[PartitionOffsets]:
        return Call(self.handle.offsets.remote(), self._name)

    def offset_for_timestamp(self, timestamp: int) -> Call[TimestampOffset | None]:
        return Call(self.handle.offset_for_timestamp.remote(timestamp), self._name)

    def status(self) -> Call[PartitionStatus]:
        return Call(self.handle.status.remote(), self._name)

    def reconfigure(self, configured: Configured) -> Call[int]:
        call = self.handle.reconfigure.remote(configured.config, configured.version)
        return Call(call, f"configuring {self._name}")

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

    def start(self) -> Call[dict[str, str]]:
        return Call(self.handle.start.remote(), self.name)

    def state(self, desired: DesiredVersions) -> Call[NodeState]:
        return Call(self.handle.state.remote(desired), self.name)

    def found(self) -> Call[list[Found]]:
        return Call(self.handle.found.remote(), f"looking through the log dirs of {self.name}")

    def log_dirs(self) -> Call[list[LogDirStatus]]:
        return Call(self.handle.log_dirs.remote(), f"the log dirs of {self.name}")

    def hosted(self) -> Call[list[Hosted]]:
        return Call(self.handle.hosted.remote(), self.name)

    def create_partition(self, partition: TopicPartition, topic_id: str) -> Call[Placed]:
        call = self.handle.create_partition.remote(partition, topic_id)
        return Call(call, f"creating {partition}")

    def open_partition(
        self, partition: TopicPartition, topic_id: str, configured: Configured, directory_id: str
    ) -> Call[Placed]:
        call = self.handle.open_partition.remote(
            partition, topic_id, configured.config, configured.version, directory_id
        )
        return Call(call, f"opening {partition}")

    def move_partition(
        self, partition: TopicPartition, topic_id: str, directory_id: str
    ) -> Call[Placed]:
        call = self.handle.move_partition.remote(partition, topic_id, directory_id)
        return Call(call, f"moving {partition}")

    def reconfigure(
        self, partition: TopicPartition, topic_id: str, config: LogConfig, version: int
    ) -> Call[int]:
        call = self.handle.reconfigure.remote(partition, topic_id, config, version)
        return Call(call, f"configuring {partition}")

    def config_of(self, partition: TopicPartition, topic_id: str) -> Call[Configured | None]:
        return Call(self.handle.config_of.remote(partition, topic_id), self.name)

    def confirmed(
        self, partitions: Sequence[TopicPartition]
    ) -> Call[dict[TopicPartition, Confirmed]]:
        return Call(self.handle.confirmed.remote(partitions), self.name)

    def delete_partition(self, partition: TopicPartition, topic_id: str) -> Call[None]:
        call = self.handle.delete_partition.remote(partition, topic_id)
        return Call(call, f"removing {partition}")

    def set_aside(
        self, partition: TopicPartition, topic_id: str | None, directory_id: str
    ) -> Call[str]:
        call = self.handle.set_aside.remote(partition, topic_id, directory_id)
        return Call(call, f"setting {partition} aside")

    def failed(self, partition: TopicPartition, topic_id: str, error: StorageError) -> Call[None]:
        return Call(self.handle.failed.remote(partition, topic_id, error), self.name)

    def recovering(self, partition: TopicPartition, progress: Progress | None) -> Call[None]:
        return Call(self.handle.recovering.remote(partition, progress), self.name)

    def recoveries(self) -> Call[list[Recovering]]:
        return Call(self.handle.recoveries.remote(), self.name)

    def cleaner_offsets(self) -> Call[dict[TopicPartition, int]]:
        return Call(self.handle.cleaner_offsets.remote(), self.name)

    def record_cleaner_offset(
        self, partition: TopicPartition, topic_id: str, offset: int
    ) -> Call[None]:
        return Call(
            self.handle.record_cleaner_offset.remote(partition, topic_id, offset), self.name
        )

    def shutdown(self) -> Call[bool]:
        return Call(self.handle.shutdown.remote(), f"stopping {self.name}")


class CompactionActorStub:
    """A node's CompactionActor."""

    def __init__(self, handle: Any, name: str) -> None:
        self.handle = handle
        self.name = name

    def status(self) -> Call[list[CompactionStatus]]:
        return Call(self.handle.status.remote(), self.name)

    def retention(self) -> Call[list[RetentionStatus]]:
        return Call(self.handle.retention.remote(), self.name)

    def abandon(self, partition: TopicPartition) -> Call[None]:
        return Call(self.handle.abandon.remote(partition), self.name)


class RetentionActorStub:
    """A node's RetentionActor."""

    def __init__(self, handle: Any, name: str) -> None:
        self.handle = handle
        self.name = name

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
