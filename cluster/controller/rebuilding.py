"""Metadata made anew from what lies in the log dirs, where every copy of it is lost. Pure.

A partition's folder has the topic's name and the partition's number in its own name, and the
topic's id in ``partition.metadata``. What the metadata knew beyond that is lost: the configs of the
topics, deletions and moves that were under way, and which log dirs were offline.

**Nothing is removed.** A topic may have kept its records for ever. So in place of its own config
each has the broker's defaults, and of these none that removes records (``KEEPING``), until a person
sets its config again.

The level of the cluster is lost, too. It may have been any, so it becomes the newest that this
raylog knows: an older one might not read what lies in the log dirs, and refuses (UnsupportedLevel).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from raylog.actors.control import LogId
from raylog.actors.errors import InvalidRequest, SeveralClusters
from raylog.actors.levels import FIRST_LEVEL, LEVELS, Levels
from raylog.actors.metadata_history import next_era
from raylog.cluster.controller.desired import VERSION_SHIFT, Desired
from raylog.cluster.controller.records import (
    ClusterRecord,
    ControllerRecord,
    CopiesRecord,
    DirRecord,
    LevelRecord,
    NodeRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from raylog.cluster.controller.settings import topic_overrides
from raylog.storage.names import TopicPartition
from raylog.storage.state.controller_epoch import NO_EPOCH
from raylog.storage.wire import RELEASE, message

# The config that a topic has then.
KEEPING = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFolder:
    """A partition's folder. ``topic_id``: None where it does not say."""

    partition: TopicPartition
    topic_id: str | None


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDir:
    """A log dir and the partitions in it. ``node``: the key of its node, ``node_id`` Ray's.

    ``cluster_id``, ``directory_id``: None where it has no ``meta.properties``. ``strays``: by the
    names of folders that were set aside, the id of each one's topic; None where it does not say.
    ``problem``: why it could not be read; empty where it could.
    """

    node: str
    node_id: str
    path: str
    cluster_id: str | None = None
    directory_id: str | None = None
    obeyed_epoch: int = NO_EPOCH
    folders: tuple[FoundFolder, ...] = ()
    strays: Mapping[str, str | None] = field(default_factory=dict)
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.path} of node {self.node[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The records of the new metadata, and the log dir where they go. ``made``: what was missing.

    ``epoch``: that begins with them.

    ``topics``, ``partitions``: how many there are. ``without``: nodes of which no log dir belongs
    to a cluster.
    """

    target: FoundDir
    epoch: int
    records: tuple[Record, ...]
    topics: int
    partitions: int
    made: tuple[TopicPartition, ...] = ()
    without: tuple[str, ...] = ()


def rebuilt(
    dirs: Sequence[FoundDir], own: str, *, make_missing: bool = False, levels: Levels = LEVELS
) -> Rebuilt:
    """The metadata that these log dirs tell of. ``levels``: those that this raylog knows.

    ``own``: the id of the node that asks; the metadata goes into its first log dir, if it has one.
    ``make_missing``: partitions below the highest of their topic whose folder was not found begin
    empty. Raises SeveralClusters; InvalidRequest with what cannot be decided, and what to do.
    """
    _check_readable(dirs)
    used = [entry for entry in dirs if entry.directory_id is not None]
    if not used:
        listed = ", ".join(map(str, dirs)) or "none"
        raise InvalidRequest("the log dirs", listed, "do not belong to a cluster: check the paths")
    _check_whole(dirs, used)
    cluster_id = _cluster_of(used)
    epoch = next_era(max(entry.obeyed_epoch for entry in used))
    target = min(used, key=lambda entry: entry.node_id != own)
    topics = _topics(used)
    missing = [log.partition for logs in topics.values() for log in _gaps(logs)]
    if missing and not make_missing:
        listed = ", ".join(map(str, missing))
        why = (
            "are not in any log dir: start the nodes that have them, or mount their disks. If they "
            "are lost for good, give --make-missing: they begin empty"
        )
        raise InvalidRequest("the partitions", listed, why)
    records: list[Record] = [
        ClusterRecord(cluster_id=cluster_id),
        *_level(levels),
        ControllerRecord(epoch=epoch, node=""),
        CopiesRecord(nodes=(target.node,), directories=(str(target.directory_id),)),
    ]
    records += _places(used)
    nodes = len({entry.node for entry in used})
    records += _logs(topics, epoch, first_kafka_id=nodes, maker=target.node)
    return Rebuilt(
        target=target,
        epoch=epoch,
        records=tuple(records),
        topics=len(topics),
        partitions=sum(len(logs) for logs in topics.values()) + len(missing),
        made=tuple(missing),
        without=tuple(sorted({entry.node for entry in dirs} - {entry.node for entry in used})),
    )


def _check_whole(dirs: Iterable[FoundDir], used: Sequence[FoundDir]) -> None:
    """Raise InvalidRequest where a node has some of its log dirs, and not all.

    A disk that is not mounted looks like this: its partitions would be set aside when it is back.
    """
    nodes = {entry.node_id for entry in used}
    for entry in dirs:
        if entry.directory_id is None and entry.node_id in nodes:
            why = (
                "does not belong to a cluster, and others of its node do: check the path, and that "
                "its disk is mounted. If it is new, leave it out here: give --log-dir for each of "
                "the others"
            )
            raise InvalidRequest("the log dir", str(entry), why)


def _level(levels: Levels) -> Sequence[Record]:
    """Behind the first record: whoever does not know the level reads no further."""
    if levels.newest == FIRST_LEVEL:
        return ()
    return (LevelRecord(level=levels.newest, release=RELEASE),)


def _check_readable(dirs: Iterable[FoundDir]) -> None:
    for entry in dirs:
        if entry.problem:
            why = f"cannot be read ({entry.problem}), and may have partitions: repair its disk"
            raise InvalidRequest("the log dir", str(entry), why)
        for folder in entry.folders:
            if folder.topic_id is None or entry.directory_id is None:
                name = "partition.metadata" if entry.directory_id else "meta.properties"
                why = f"has no readable {name}: restore that file, or move the folder away"
                raise InvalidRequest("the folder", _path(entry, folder.partition), why)


def _cluster_of(dirs: Iterable[FoundDir]) -> str:
    clusters = {str(entry.cluster_id): entry for entry in dirs}
    if len(clusters) > 1:
        listed = "; ".join(f"{cluster} in {entry}" for cluster, entry in sorted(clusters.items()))
        raise SeveralClusters(listed)
    return next(iter(clusters))


def _topics(dirs: Iterable[FoundDir]) -> dict[str, dict[LogId, FoundDir]]:
    """The logs of each topic, by its name, and where each lies."""
    topics: dict[str, dict[LogId, FoundDir]] = {}
    for entry in dirs:
        for folder in entry.folders:
            log = LogId(partition=folder.partition, topic_id=str(folder.topic_id))
            others = topics.setdefault(folder.partition.topic, {})
            for other, place in others.items():
                if other == log or other.topic_id != log.topic_id:
                    both = f"{_path(place, other.partition)}, {_path(entry, log.partition)}"
                    what = "the same partition" if other == log else "two topics of one name"
                    why = f"are {what}: move the folder away that is not to count"
                    raise InvalidRequest("the folders", both, why)
            others[log] = entry
    return dict(sorted(topics.items()))


def _gaps(logs: Iterable[LogId]) -> list[LogId]:
    """The logs whose folder is missing below the topic's highest one."""
    known = {log.partition.partition: log for log in logs}
    topic = next(iter(known.values()))
    return [
        LogId(partition=TopicPartition(topic.partition.topic, number), topic_id=topic.topic_id)
        for number in range(max(known))
        if number not in known
    ]


def _places(dirs: Sequence[FoundDir]) -> Iterable[Record]:
    for number, node in enumerate(dict.fromkeys(entry.node for entry in dirs)):
        yield NodeRecord(key=node, kafka_id=number)
    for entry in dirs:
        yield DirRecord(
            directory_id=str(entry.directory_id), node=entry.node, path=entry.path, state="online"
        )


def _logs(
    topics: dict[str, dict[LogId, FoundDir]], epoch: int, *, first_kafka_id: int, maker: str
) -> Iterable[Record]:
    kafka_id = first_kafka_id
    config = topic_overrides(KEEPING)
    for name, logs in topics.items():
        topic_id = next(iter(logs)).topic_id
        version = epoch << VERSION_SHIFT
        yield TopicRecord(name=name, topic_id=topic_id, config=config, version=version)
        for log in sorted([*logs, *_gaps(logs)]):
            place = logs.get(log)
            yield PartitionRecord(
                log=log,
                state="creating" if place is None else "online",
                node=maker if place is None else place.node,
                directory=None if place is None else place.directory_id,
                kafka_id=kafka_id,
            )
            kafka_id += 1


def _path(entry: FoundDir, partition: TopicPartition) -> str:
    return f"{entry.path}/{partition} of node {entry.node[:8]}"


def keeping(desired: Desired, epoch: int) -> tuple[TopicRecord, ...]:
    """What has nothing removed from any topic any more: its config may be older than the last one.

    ``epoch``: of the Controller that writes it.
    """
    return tuple(
        replace(
            topic,
            config={**topic.config, **topic_overrides(KEEPING)},
            version=max(topic.version + 1, epoch << VERSION_SHIFT),
        )
        for topic in desired.topics.values()
    )
