"""What a command waits for whose records are written: see ``waiting.py``. Pure.

A command that is repeated may find all of its records there already: it waits for what the first
one has begun.
"""

from raylog.actors.control import LogId
from raylog.cluster.controller.commands import (
    AddPartitions,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    DrainNode,
    MovePartition,
    StartNode,
    StopNode,
    wanted_state,
)
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.judging import removing
from raylog.cluster.controller.records import (
    PartitionRecord,
    Record,
    TopicRecord,
    TopicRemovedRecord,
)
from raylog.cluster.controller.waiting import (
    Altering,
    Creating,
    Deleting,
    Moving,
    Operating,
    Waiting,
)

Lasting = (
    CreateTopic
    | AddPartitions
    | AlterTopic
    | DeleteTopic
    | MovePartition
    | DrainNode
    | StopNode
    | StartNode
)


class Begun:
    """Commands that were begun now. ``num_partitions``: the broker's."""

    def __init__(self, desired: Desired, now_ms: int, num_partitions: int) -> None:
        self._desired, self._now_ms = desired, now_ms
        self._num_partitions = num_partitions

    def waiting(self, command: Lasting, records: tuple[Record, ...]) -> Waiting:
        """``records``: that were written for it; none where all was so already."""
        match command:
            case CreateTopic() | AddPartitions():
                return self._creating(command, records)
            case AlterTopic():
                return Altering(topic=self._topic(command.name), since_ms=self._now_ms)
            case DeleteTopic():
                return self._deleting(command, records)
            case MovePartition():
                return self._moving(command)
            case DrainNode() | StopNode() | StartNode():
                state = wanted_state(command)
                return Operating(node=command.node, state=state, since_ms=self._now_ms)

    def _topic(self, name: str) -> TopicRecord:
        topic = self._desired.topic_named(name)
        assert topic is not None, "it was judged just now"
        return topic

    def _creating(
        self, command: CreateTopic | AddPartitions, records: tuple[Record, ...]
    ) -> Creating:
        topic = self._topic(command.name)
        new = tuple(record.log for record in records if isinstance(record, PartitionRecord))
        if not records:
            new = self._begun_before(command, topic)
        return Creating(
            name=topic.name,
            topic_id=topic.topic_id,
            logs=new,
            is_new_topic=isinstance(command, CreateTopic),
            since_ms=self._now_ms,
        )

    def _begun_before(
        self, command: CreateTopic | AddPartitions, topic: TopicRecord
    ) -> tuple[LogId, ...]:
        """What a command that is repeated waits for: its own partitions that do not serve yet.

        Not those that somebody has added to the topic since it was made: where these fail, the
        topic stays.
        """
        count = command.total if isinstance(command, AddPartitions) else command.partitions
        own = self._desired.live_logs_of(topic.topic_id)[: count or self._num_partitions]
        return tuple(log for log in own if self._desired.partitions[log].state == "creating")

    def _deleting(self, command: DeleteTopic, records: tuple[Record, ...]) -> Deleting:
        logs = [log for record in records if (log := getattr(record, "log", None)) is not None]
        if not records and command.topic_id is not None:  # it is repeated
            logs = list(self._desired.logs_of(command.topic_id))
        return Deleting(logs=tuple(logs), since_ms=self._now_ms)

    def _moving(self, command: MovePartition) -> Moving:
        record = partition_named(self._desired, command.name, command.number)
        target = record.target or record.directory
        assert target is not None, "it was judged just now"
        return Moving(log=record.log, target=target)


def partition_named(desired: Desired, name: str, number: int) -> PartitionRecord:
    """A partition that there is."""
    topic = desired.topic_named(name)
    assert topic is not None, "it was judged just now"
    return desired.partitions[desired.live_logs_of(topic.topic_id)[number]]


def undone(desired: Desired, creating: Creating) -> list[Record]:
    """What removes again what was created in vain, as far as it is still there."""
    partitions = desired.partitions
    logs = [log for log in creating.logs if log in partitions]
    if creating.is_new_topic:  # with what somebody has added to it meanwhile
        logs = desired.logs_of(creating.topic_id)
    records: list[Record] = [
        *removing(desired, [log for log in logs if partitions[log].state != "removing"])
    ]
    if creating.is_new_topic and creating.topic_id in desired.topics:
        records.append(TopicRemovedRecord(topic_id=creating.topic_id))
    return records
