"""Actors that stand in for a Controller and for a LogManager: they write down what they are told.

Each has the name of whom it stands in for, so that what is tested finds it as it does in a broker.
"""

from collections.abc import Sequence
from typing import Any

import ray

from raylog.actors.control import Confirmed, LogId, Report
from raylog.actors.messages import PartitionOffsets
from raylog.actors.node_messages import LogOrder
from raylog.actors.runtime.handles import create
from raylog.actors.runtime.names import CONTROLLER, log_manager_name
from raylog.actors.runtime.nodes import own_node
from raylog.storage.errors import StorageError
from raylog.storage.names import TopicPartition
from raylog.storage.report import Progress


class RecordingControllerImpl:
    """What a LogManager tells its Controller."""

    def __init__(self) -> None:
        self._report: Report | None = None
        self._refusals: list[tuple[str, int]] = []

    def report(self, report: Report) -> None:
        before = self._report
        if before is None or before.life != report.life or before.number < report.number:
            self._report = report

    def refused(self, node: str, controller_epoch: int) -> None:
        self._refusals.append((node, controller_epoch))

    def last_report(self) -> Report | None:
        """The newest of the last life that has reported."""
        return self._report

    def refusals(self) -> list[tuple[str, int]]:
        """(key of the node, epoch that it has seen)"""
        return self._refusals


class RecordingLogManagerImpl:
    """What a LogActor asks its LogManager, and tells it. It knows no order before ``know``."""

    def __init__(self) -> None:
        self._orders: dict[LogId, LogOrder] = {}
        self._rights: dict[TopicPartition, Confirmed] = {}
        self._failures: list[tuple[LogId, StorageError]] = []

    def order_of(self, log: LogId) -> LogOrder | None:
        return self._orders.get(log)

    def confirmed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Confirmed]:
        return {key: self._rights[key] for key in partitions if key in self._rights}

    def record_log_start(self, log: LogId, offsets: PartitionOffsets) -> None:
        """It has no disk."""

    def failed(self, log: LogId, error: StorageError) -> None:
        self._failures.append((log, error))

    def recovering(self, partition: TopicPartition, progress: Progress | None) -> None:
        """Nobody asks for it here."""

    def know(self, order: LogOrder) -> None:
        """Answer this from now on."""
        self._orders[order.log] = order

    def confirm(self, right: Confirmed) -> None:
        """Give this right to whoever asks, from now on."""
        self._rights[right.log.partition] = right

    def failures(self) -> list[tuple[LogId, StorageError]]:
        """The disk errors that LogActors told."""
        return self._failures


RecordingController = ray.remote(num_cpus=0)(RecordingControllerImpl)
RecordingLogManager = ray.remote(num_cpus=0)(RecordingLogManagerImpl)


def recording_controller(namespace: str) -> Any:
    """The handle of one that has the Controller's name there."""
    return create(RecordingController, CONTROLLER, namespace, own_node())


def recording_log_manager(namespace: str) -> Any:
    """The handle of one that has the name of this node's LogManager there."""
    node = own_node()
    return create(RecordingLogManager, log_manager_name(node.key), namespace, node)
