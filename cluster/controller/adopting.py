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
knows a topic of this name with another id             refused; where its partition has no folder,
                                                       ``partition.metadata`` may be damaged
=====================================================  =============================================

The numbers of a topic have no gap. So of a topic that is made again all folders are taken in at
once. Where lower ones are lost for good, a person may have their partitions begin empty, as in
``rebuilding.py``; never where a folder of theirs is in reach.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from raylog.actors.control import LogId
from raylog.actors.errors import InvalidRequest, TopicExists
from raylog.cluster.controller.desired import Desired
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """What the metadata is to say. ``made``: the partitions that begin empty."""

    records: tuple[Record, ...]
    made: tuple[TopicPartition, ...]


def adopted(
    desired: Desired,
    strays: Sequence[Stray],
    dirs: Sequence[FoundDir],
    *,
    make_missing: bool = False,
) -> Adopted:
    """What the metadata is to say of these folders. ``dirs``: all log dirs, as they are now.

    ``make_missing``: partitions below the folders of their topic begin empty where no folder of
    theirs was found. Raises InvalidRequest or TopicExists, with what is in the way.
    """
    _check_distinct(strays)
    shadow = desired.copy()
    records: list[Record] = []
    made: list[TopicPartition] = []
    for stray in sorted(strays, key=lambda entry: entry.partition):
        _check(shadow, stray, dirs)
        missing = _missing(shadow, stray.log)
        if missing:
            _check_lost(missing, stray, dirs, make_missing=make_missing)
        for record in _records(shadow, stray, missing, dirs):
            shadow.apply(record)
            records.append(record)
        made += [log.partition for log in missing]
    return Adopted(records=tuple(records), made=tuple(made))


def _check_distinct(strays: Sequence[Stray]) -> None:
    chosen: dict[TopicPartition, Stray] = {}
    for stray in strays:
        other = chosen.setdefault(stray.partition, stray)
        if other is not stray:
            why = "are of the same partition: give the one that is to count"
            raise InvalidRequest("the folders", f"{other}, {stray}", why)


def _check(desired: Desired, stray: Stray, dirs: Sequence[FoundDir]) -> None:
    """Raise InvalidRequest or TopicExists where the folder cannot be a partition's again."""
    log = stray.log
    if stray.home.cluster_id != desired.cluster_id:
        why = f"lies in a log dir of cluster {stray.home.cluster_id}, not {desired.cluster_id}"
        raise InvalidRequest("the folder", str(stray), why)
    _check_place(stray, dirs)
    if log.topic_id not in desired.topics and desired.logs_of(log.topic_id):
        why = (
            "is of a topic that is being removed; start the broker, which ends that, stop it, and "
            "adopt the folder then"
        )
        raise InvalidRequest("the folder", str(stray), why)
    named = desired.topic_named(log.partition.topic)
    if named is not None and named.topic_id != log.topic_id:
        if LogId(partition=log.partition, topic_id=named.topic_id) in desired.partitions:
            why = (
                f"says in partition.metadata that its topic has the id {log.topic_id}; the "
                f"{named.name} of the metadata has {named.topic_id}, and its partition "
                f"{log.partition.partition} has no folder. If the records are of that one, the "
                f"file is damaged: write {named.topic_id} into it, then adopt the folder again"
            )
            raise InvalidRequest("the folder", str(stray), why)
        raise TopicExists(f"{log.partition.topic} of id {log.topic_id}", named.name)


def _missing(desired: Desired, log: LogId) -> list[LogId]:
    """The logs of the topic below this one that the metadata does not know."""
    below = range(len(desired.logs_of(log.topic_id)), log.partition.partition)
    topic = log.partition.topic
    return [
        LogId(partition=TopicPartition(topic, number), topic_id=log.topic_id) for number in below
    ]


def _check_lost(
    missing: Sequence[LogId], stray: Stray, dirs: Sequence[FoundDir], *, make_missing: bool
) -> None:
    """Raise InvalidRequest where these may not begin empty."""
    number, count = stray.partition.partition, missing[0].partition.partition
    gap = f"is partition {number}, and the topic has {count}"
    for log in missing:
        for entry in dirs:
            _check_not_in(entry, log, stray, gap)
    if not make_missing:
        listed = ", ".join(str(log.partition) for log in missing)
        why = (
            f"{gap}: no folder of {listed} is in any log dir. Start the nodes that have them, or "
            "mount their disks. If they are lost for good, give --make-missing: they begin empty"
        )
        raise InvalidRequest("the folder", str(stray), why)


def _check_not_in(entry: FoundDir, log: LogId, stray: Stray, gap: str) -> None:
    """Raise InvalidRequest where a log dir has a folder that may be the log's."""
    if entry.problem:
        why = f"{gap}; {entry} cannot be read ({entry.problem}), and may have it: repair its disk"
        raise InvalidRequest("the folder", str(stray), why)
    for folder in entry.folders:
        if folder.partition == log.partition:
            why = (
                f"{gap}; {entry.path}/{folder.partition} is there, and the metadata does not know "
                "it: start the broker, which sets it aside, and stop it; then give it, too"
            )
            raise InvalidRequest("the folder", str(stray), why)
    for name, topic_id in entry.strays.items():
        is_its = parse_folder(name.rpartition(".")[0]) == log.partition
        if is_its and topic_id in (log.topic_id, None):
            why = f"{gap}: give the folders before it, too, as {entry.path}/{name}"
            raise InvalidRequest("the folder", str(stray), why)


def _records(
    desired: Desired, stray: Stray, missing: Sequence[LogId], dirs: Sequence[FoundDir]
) -> list[Record]:
    log = stray.log
    known = desired.partitions.get(log)
    if known is not None:
        return [_in_its_place(known, stray, dirs)]
    records: list[Record] = []
    if desired.topic_named(log.partition.topic) is None:
        records.append(_topic(desired, log))
    for kafka_id, entry in enumerate([*missing, log], desired.next_kafka_id):
        is_found = entry == log
        record = PartitionRecord(
            log=entry,
            state="online" if is_found else "creating",
            node=stray.home.node,
            directory=stray.home.directory_id if is_found else None,
            kafka_id=kafka_id,
        )
        records.append(record)
    return records


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
    for directory in (known.directory, known.target):
        if directory is not None and directory not in reached:
            why = (
                f"is of a partition that may lie in log dir {directory}, which is not in reach: "
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
