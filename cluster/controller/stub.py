"""The Controller as its callers see it: one method a call, typed, and found by name.

What a method does is said in ``asking.py`` and ``controller_actor.py``. The stubs of the other
actors are in ``actors/runtime/stubs.py``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from raylog.actors.control import Report
from raylog.actors.messages import ConfigEntry, LogDirStatus, UserDescription
from raylog.actors.plane.sasl.scram import Verifier
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import CONTROLLER
from raylog.cluster.client.connection import TopicMetadata
from raylog.cluster.controller.config_changes import AppliedConfig
from raylog.cluster.controller.copies import Home
from raylog.cluster.controller.describe import (
    ClusterDescription,
    PartitionDescription,
    TopicDescription,
)
from raylog.cluster.controller.following import CopyStatus
from raylog.cluster.controller.log_dir_states import LogDirDescription
from raylog.cluster.controller.node_states import NodeDescription
from raylog.cluster.controller.upgrade import UpgradeStatus
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition


class ControllerStub:
    """A broker's Controller."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    # -- the broker --------------------------------------------------------------------------------

    def start(
        self, home: Home | None = None, *, new_cluster: bool = False, older_metadata: bool = False
    ) -> Call[str]:
        ref = self.handle.start.remote(home, new_cluster, older_metadata)
        return Call(ref, "starting the broker")

    def shutdown(self) -> Call[bool]:
        return Call(self.handle.shutdown.remote(), "stopping the broker")

    def cluster_id(self) -> Call[str]:
        return Call(self.handle.cluster_id.remote(), "the cluster id")

    def describe_cluster(self) -> Call[ClusterDescription]:
        return Call(self.handle.describe_cluster.remote(), "the cluster")

    def nodes(self) -> Call[dict[str, str | None]]:
        return Call(self.handle.nodes.remote(), "the nodes")

    def describe_nodes(self) -> Call[list[NodeDescription]]:
        return Call(self.handle.describe_nodes.remote(), "the nodes")

    def drain_node(self, node: str, *, is_undone: bool) -> Call[NodeDescription]:
        return Call(self.handle.drain_node.remote(node, is_undone), f"draining node {node}")

    def stop_node(self, node: str) -> Call[NodeDescription]:
        return Call(self.handle.stop_node.remote(node), f"stopping node {node}")

    def start_node(self, node: str) -> Call[NodeDescription]:
        return Call(self.handle.start_node.remote(node), f"starting node {node}")

    def upgrade_status(self) -> Call[UpgradeStatus]:
        return Call(self.handle.upgrade_status.remote(), "the releases of the nodes")

    def finalize_upgrade(self, level: int, without: Sequence[str] = ()) -> Call[int]:
        call = self.handle.finalize_upgrade.remote(level, without)
        return Call(call, f"going to level {level}")

    def put_user(self, name: str, verifiers: Sequence[Verifier]) -> Call[None]:
        return Call(self.handle.put_user.remote(name, verifiers), f"user {name}")

    def delete_user(self, name: str, is_repeated: bool) -> Call[None]:
        return Call(self.handle.delete_user.remote(name, is_repeated), f"deleting user {name}")

    def users(self) -> Call[list[UserDescription]]:
        return Call(self.handle.users.remote(), "the users")

    def restart(self, life: str) -> Call[None]:
        return Call(self.handle.restart.remote(life), "restarting the Controller")

    def log_dirs(self) -> Call[list[LogDirStatus]]:
        return Call(self.handle.log_dirs.remote(), "the log dirs")

    def describe_log_dirs(self, log_dir: str) -> Call[list[LogDirDescription]]:
        return Call(self.handle.describe_log_dirs.remote(log_dir), f"the log dir {log_dir}")

    def log_dir_online(self, log_dir: str, node: str | None = None) -> Call[LogDirDescription]:
        call = self.handle.log_dir_online.remote(log_dir, node)
        return Call(call, f"using {log_dir} again")

    def log_dir_offline(self, log_dir: str, node: str | None = None) -> Call[LogDirDescription]:
        call = self.handle.log_dir_offline.remote(log_dir, node)
        return Call(call, f"taking {log_dir} offline")

    def metadata_copies(self) -> Call[tuple[CopyStatus, ...]]:
        return Call(self.handle.metadata_copies.remote(), "the copies of the metadata")

    def problems(self) -> Call[dict[str, str]]:
        return Call(self.handle.problems.remote(), "the Controller's problems")

    def broker_config(self) -> Call[list[ConfigEntry]]:
        return Call(self.handle.broker_config.remote(), "the broker's config")

    def apply_config(
        self, config: Mapping[str, Any], validate_only: bool = False, if_version: int | None = None
    ) -> Call[AppliedConfig]:
        answer = self.handle.apply_config.remote(config, validate_only, if_version)
        return Call(answer, "the broker's config")

    def allocate_producer_id(self) -> Call[int]:
        return Call(self.handle.allocate_producer_id.remote(), "a producer id")

    # -- from LogManagers --------------------------------------------------------------------------

    def report(self, report: Report) -> Call[None]:
        return Call(self.handle.report.remote(report), "a report")

    def refused(self, node: str, controller_epoch: int) -> Call[None]:
        return Call(self.handle.refused.remote(node, controller_epoch), "a refusal")

    # -- topics ------------------------------------------------------------------------------------

    def create_topic(
        self,
        topic: str,
        partitions: int | None,
        config: Mapping[str, Any],
        validate_only: bool = False,
        topic_id: str | None = None,
    ) -> Call[TopicDescription]:
        call = self.handle.create_topic.remote(topic, partitions, config, validate_only, topic_id)
        return Call(call, f"creating {topic}")

    def add_partitions(
        self,
        topic: str,
        total: int,
        validate_only: bool = False,
        topic_id: str | None = None,
        is_repeated: bool = False,
    ) -> Call[TopicDescription]:
        extend = self.handle.add_partitions
        call = extend.remote(topic, total, validate_only, topic_id, is_repeated)
        return Call(call, f"extending {topic}")

    def alter_topic_config(
        self,
        topic: str,
        changes: Mapping[str, Any],
        delete: Sequence[str],
        validate_only: bool = False,
    ) -> Call[TopicDescription]:
        call = self.handle.alter_topic_config.remote(topic, changes, delete, validate_only)
        return Call(call, f"configuring {topic}")

    def topic_config(self, topic: str) -> Call[list[ConfigEntry]]:
        return Call(self.handle.topic_config.remote(topic), f"the config of {topic}")

    def delete_topic(
        self, topic: str, topic_id: str | None = None, is_repeated: bool = False
    ) -> Call[None]:
        call = self.handle.delete_topic.remote(topic, topic_id, is_repeated)
        return Call(call, f"deleting {topic}")

    def list_topics(self) -> Call[list[str]]:
        return Call(self.handle.list_topics.remote(), "listing topics")

    def describe_topic(self, topic: str) -> Call[TopicDescription]:
        return Call(self.handle.describe_topic.remote(topic), f"describing {topic}")

    def topic_metadata(self, topic: str) -> Call[TopicMetadata]:
        return Call(self.handle.topic_metadata.remote(topic), f"the metadata of {topic}")

    # -- partitions --------------------------------------------------------------------------------

    def move_partition(
        self, topic: str, partition: int, log_dir: str
    ) -> Call[PartitionDescription]:
        call = self.handle.move_partition.remote(topic, partition, log_dir)
        return Call(call, f"moving {topic}-{partition}")

    def cancel_move(self, topic: str, partition: int) -> Call[PartitionDescription]:
        call = self.handle.cancel_move.remote(topic, partition)
        return Call(call, f"cancelling the move of {topic}-{partition}")

    def explain(self, partition: TopicPartition) -> Call[RaylogError | None]:
        return Call(self.handle.explain.remote(*partition), f"looking for {partition}")


def find_controller(namespace: str) -> ControllerStub | None:
    """The Controller of a namespace, or None if there is none. Raises as ``find`` does."""
    handle = find(CONTROLLER, namespace)
    return None if handle is None else ControllerStub(handle)
