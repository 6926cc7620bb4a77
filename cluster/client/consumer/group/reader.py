"""What a consumer does for its group: see ``group.Reader``."""

from collections.abc import Collection, Mapping
from typing import Any

from raylog.cluster.client.consumer.group.group import Listener, Partitions
from raylog.cluster.client.consumer.group.messages import OffsetAndMetadata
from raylog.cluster.client.consumer.instructions import Start
from raylog.cluster.client.consumer.iteration import Iteration
from raylog.cluster.client.consumer.machine import Machine
from raylog.storage.names import TopicPartition


class MachineReader:
    """Reads with a consumer's machine."""

    def __init__(self, consumer: Any, machine: Machine, iteration: Iteration) -> None:
        """``consumer``: as the user's functions get it."""
        self._consumer, self._machine, self._iteration = consumer, machine, iteration

    def begin(self, starts: Mapping[TopicPartition, Start | None]) -> None:
        """See ``group.Reader``."""
        self._machine.assign(starts)

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """See ``group.Reader``."""
        self._iteration.set_aside()
        self._machine.unassign(partitions)

    def offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """See ``group.Reader``."""
        found = {}
        for partition, each in self._machine.assigned.items():
            yielded = self._iteration.position(each)
            position = each.position if yielded is None else yielded
            if position is not None:
                found[partition] = OffsetAndMetadata(position, "", each.fetched_epoch)
        return found

    def call(self, listener: Listener, partitions: Partitions) -> None:
        """See ``group.Reader``."""
        listener(self._consumer, partitions)
