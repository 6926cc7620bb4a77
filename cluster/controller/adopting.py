"""Taking folders in again that were set aside, as the partitions that they were. Pure.

A folder is set aside (``-stray``) when the metadata does not know its partition: older metadata was
restored, or a new cluster began. Its own name says the topic and the number, and its
``partition.metadata`` the topic's id:

=====================================================  =============================================
the metadata                                           so
=====================================================  =============================================
knows no topic of this name or id                      the topic is made again, with this id
knows the topic, and the number is the next one        the topic has one partition more
knows the partition, and its folder is in no log dir   it is this one
knows the partition, and its folder is in a log dir    refused
knows a topic of this name with another id             refused
=====================================================  =============================================

The numbers of a topic have no gap. So of a topic that is made again all folders are taken in at
once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from raylog.actors.control import LogId
from raylog.actors.errors import InvalidRequest, TopicExists
from raylog.cluster.controller.desired import Desired, port_of
from raylog.cluster.controller.rebuilding import KEEPING, FoundDir
from raylog.cluster.controller.records import PartitionRecord, Record, TopicRecord
from raylog.cluster.controller.settings import topic_overrides
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.names import STRAY_DIR_SUFFIX, TopicPartition, doomed_suffix, parse_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A folder that was set aside. ``topic_id``: None where it does not say."""

    home: FoundDir
    name: str
    topic_id: str | None

    @property
    def partition(self) -> TopicPartition:
        """Raises InvalidRequest where the name is not that of a partition's folder set aside."""
        partition = parse_folder(self.name.rpartition(".")[0])
        if partition is None or doomed_suffix(self.name) != STRAY_DIR_SUFFIX:
            why = f"is not named <topic>-<partition>.<id>{STRAY_DIR_SUFFIX}"
            raise InvalidRequest("the folder", self.name, why)
        if partition == METADATA_PARTITION:
            why = "is a copy of the metadata, and no topic's: see `raylog metadata status`"
            raise InvalidRequest("the folder", self.name, why)
        return partition

    @property
    def log(self) -> LogId:
        """Raises InvalidRequest where the folder does not say its topic, or its log dir its id."""
        if self.topic_id is None or self.home.directory_id is None:
            name = "meta.properties" if self.topic_id else "partition.metadata"
            raise InvalidRequest("the folder", str(self), f"has no readable {name}: restore it")
        return LogId(partition=self.partition, topic_id=self.topic_id)

    def __str__(self) -> str:
        return f"{self.home.path}/{self.name}"


def adopted(
    desired: Desired, strays: Sequence[Stray], dirs: Sequence[FoundDir]
) -> tuple[Record, ...]:
    """What the metadata is to say of these folders. ``dirs``: all log dirs, as they are now.

    Raises InvalidRequest or TopicExists, with what is in the way.
    """
    shadow = desired.copy()
    records: list[Record] = []
    for stray in sorted(strays, key=lambda entry: entry.partition):
        for record in _records(shadow, stray, dirs):
            shadow.apply(record)
            records.append(record)
    return tuple(records)


def _records(desired: Desired, stray: Stray, dirs: Sequence[FoundDir]) -> list[Record]:
    log = stray.log
    if stray.home.cluster_id != desired.cluster_id:
        why = f"lies in a log dir of cluster {stray.home.cluster_id}, not {desired.cluster_id}"
        raise InvalidRequest("the folder", str(stray), why)
    _check_place(stray, dirs)
    named = desired.topic_named(log.partition.topic)
    if named is not None and named.topic_id != log.topic_id:
        raise TopicExists(f"{log.partition.topic} of id {log.topic_id}", named.name)
    known = desired.partitions.get(log)
    if known is not None:
        return [_in_its_place(known, stray, dirs)]
    number, end = log.partition.partition, len(desired.logs_of(log.topic_id))
    if number != end:
        why = f"is partition {number}, and the topic has {end}: give the folders before it, too"
        raise InvalidRequest("the folder", str(stray), why)
    kafka_id = desired.next_kafka_id
    partition = PartitionRecord(
        log=log,
        state="online",
        node=stray.home.node,
        directory=stray.home.directory_id,
        kafka_id=kafka_id,
        port=port_of(kafka_id),
    )
    return [partition] if named is not None else [_topic(desired, log), partition]


def _topic(desired: Desired, log: LogId) -> TopicRecord:
    """The topic again; nothing is removed from it before somebody sets its config."""
    return TopicRecord(
        name=log.partition.topic,
        topic_id=log.topic_id,
        config=topic_overrides(KEEPING),
        version=desired.version_after(-1),
    )


def _check_place(stray: Stray, dirs: Sequence[FoundDir]) -> None:
    """Raise InvalidRequest where another folder of the partition lies anywhere."""
    for entry in dirs:
        for folder in entry.folders:
            if folder.partition == stray.partition:
                why = f"cannot be taken in: {entry.path}/{folder.partition} is there already"
                raise InvalidRequest("the folder", str(stray), why)


def _in_its_place(
    known: PartitionRecord, stray: Stray, dirs: Sequence[FoundDir]
) -> PartitionRecord:
    """The partition whose folder is in no log dir. It may be in one that is not in reach."""
    reached = {entry.directory_id for entry in dirs}
    if known.state == "removing":
        raise InvalidRequest("the folder", str(stray), "is of a topic that is being deleted")
    if known.directory is not None and known.directory not in reached:
        why = (
            f"is of a partition that lies in log dir {known.directory}, which is not in reach: "
            "start its node"
        )
        raise InvalidRequest("the folder", str(stray), why)
    return replace(
        known,
        state="online",
        node=stray.home.node,
        directory=stray.home.directory_id,
        target=None,
    )
