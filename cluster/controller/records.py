"""The records of the metadata log: every change of a cluster is one of these, before it is done.

In the log ``__cluster_metadata-0`` each is a msgpack map with its kind and the version of that
kind's layout::

    {kind: cluster,           v: 1, id}
    {kind: controller,        v: 1, epoch, node, directory}    the first of a Controller's life
    {kind: node,              v: 2, key, kafka_id, port, state, host}
    {kind: log-dir,           v: 1, id, node, path, state, why, life}
    {kind: topic,             v: 2, name, id, config: {key: value}, version}
    {kind: partition,         v: 1, topic, topic_id, number, state, node, directory, target, left,
                                    kafka_id, port}
    {kind: partition-removed, v: 1, topic, topic_id, number}
    {kind: topic-removed,     v: 2, id}
    {kind: producer-ids,      v: 2, epoch, next}          ids below ``next`` may be in use
    {kind: copies,            v: 1, nodes, dirs}          the copies that count, from here on
    {kind: broker-config,     v: 1, config: {key: value}, version, start}
    {kind: stopped,           v: 1}                       the last record before an orderly stop
    {kind: level,             v: 1, level, release}       what may be written, from here on
    {kind: user,              v: 1, name,
                                    verifiers: [{mechanism, salt, iterations, stored, server}]}
    {kind: user-removed,      v: 1, name}

An older raylog wrote topics with their partitions in one record, and knew no epochs; these are
still read::

    {kind: topic,         v: 1, name, id, config, directories: [id], version}
    {kind: topic-removed, v: 1, name}
    {kind: producer-ids,  v: 1, next}
    {kind: node,          v: 1, key, kafka_id, port}      it is online

A partition is bound to a log dir by the dir's id, not to a Ray node: node ids are new after every
start. What the records mean is in ``desired.py``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgpack

from raylog.actors.control import LogId
from raylog.actors.errors import NewerRecord
from raylog.actors.levels import LEVELS, Levels
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.config_digests import config_of, values_of
from raylog.actors.plane.sasl.scram import Verifier
from raylog.storage.errors import CorruptRecord, InvalidConfig
from raylog.storage.names import TopicPartition

METADATA_LOG = "__cluster_metadata-0"

# creating: its node makes the folder (directory: None), then opens it; nothing is in it yet
# moving: it is served from ``directory`` and copied to ``target``
# removing: whatever lies of it anywhere goes
PartitionState = Literal["creating", "online", "moving", "removing"]
# draining: it serves what it has, and gets nothing new
# stopped: its LogManager has closed its logs and ended, or shall
NodeState = Literal["online", "draining", "stopped"]
# returning: it was offline, and is used again when its logs were read back from the disk
# draining: it serves what it has, and gets nothing new
DirState = Literal["online", "offline", "returning", "draining"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """A cluster begins."""

    cluster_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRecord:
    """A Controller is in charge from here on. ``node``: the key of the node that it runs on.

    ``directory``: the id of the log dir where it has the metadata; empty where that dir has none
    yet, and of older raylogs, which do not read it. Without a node it is the last one before a new
    cluster, of which only the epoch is known.
    """

    epoch: int
    node: str
    directory: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A node takes part. ``kafka_id``: nobody else ever gets it.

    ``state``: what an operator wants of it. ``host``, ``port``: where its LogManager listened last;
    empty and 0 before the first time. Older raylogs do not read the host.
    """

    key: str
    kafka_id: int
    port: int = 0
    state: NodeState = "online"
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirRecord:
    """A log dir. ``life``: of the LogManager that reported it offline; empty while it is online.

    ``is_ordered``: it is offline since an operator took it out of use; older raylogs do not read
    it, and take it for one that has failed.
    """

    directory_id: str
    node: str
    path: str
    state: DirState
    why: str = ""
    life: str = ""
    is_ordered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic.

    ``version``: of its config. It rises with each change, and begins in each epoch of a Controller
    at that epoch shifted left by 32 bits (``desired.py``); older raylogs began at 0.
    """

    name: str
    topic_id: str
    config: Mapping[str, Any]
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """A partition: what shall be of it, and where.

    ``node``: which makes its folder; it counts while there is no ``directory``. ``left``: the nodes
    that were to make it earlier; an empty folder of it may lie there. ``kafka_id``, ``port``: as of
    a node, for its LogActor's socket.
    """

    log: LogId
    state: PartitionState
    node: str = ""
    directory: str | None = None
    target: str | None = None
    left: tuple[str, ...] = ()
    kafka_id: int = -1
    port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRemovedRecord:
    """Nothing is left of a partition."""

    log: LogId


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRemovedRecord:
    """A topic is deleted, and its name free. Its partitions are ``removing`` by now."""

    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord:
    """Producer ids below ``next_id`` may be in use. ``epoch``: the Controller's; 0 in version 1."""

    epoch: int
    next_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesRecord:
    """The copies of the metadata that have every record that counts, from this one on.

    ``nodes``: the keys of their nodes, that of the Controller included. ``directories``: the ids
    of the log dirs that they lie in, in the same order: a node without a label has another key
    after each of its starts.
    """

    nodes: tuple[str, ...]
    directories: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfigRecord:
    """The whole config of the broker from here on; without one it is that of its start.

    ``version``: higher than that of every topic's config at that time, so that the higher one of
    the two stands for what a topic obeys. ``start``: the id of the start of the broker to which it
    belongs; another start has a config of its own.
    """

    config: BrokerConfig
    version: int
    start: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedRecord:
    """The broker was stopped in order: all copies that count have this record.

    While it is the last one, no Controller has gone on behind it in this copy. One may have gone on
    in others: after a later start it left this copy out, or this one was not in reach.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRecord:
    """The cluster is of this level from here on; see ``actors/levels.py``.

    ``release``: of raylog that has written it, and knows the level. Without one of these records a
    cluster is of FIRST_LEVEL.
    """

    level: int
    release: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecord:
    """Who may come in by SASL, with what is kept of his password, for each mechanism.

    From USERS_LEVEL on.
    """

    name: str
    verifiers: tuple[Verifier, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRemovedRecord:
    """There is no such user any more."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OldTopicRecord:
    """A topic with a log dir for each partition, all of which serve (version 1)."""

    topic: TopicRecord
    directories: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OldTopicRemovedRecord:
    """A topic is deleted, and what could be reached of it is removed (version 1)."""

    name: str


Record = (
    ClusterRecord
    | ControllerRecord
    | NodeRecord
    | DirRecord
    | TopicRecord
    | PartitionRecord
    | PartitionRemovedRecord
    | TopicRemovedRecord
    | ProducerIdsRecord
    | CopiesRecord
    | BrokerConfigRecord
    | StoppedRecord
    | LevelRecord
    | UserRecord
    | UserRemovedRecord
    | OldTopicRecord
    | OldTopicRemovedRecord
)


# -- to bytes --------------------------------------------------------------------------------------


def encode(record: Record) -> bytes:
    """The record's bytes in the log. Records of version 1 are only read."""
    return bytes(msgpack.packb(_fields_of(record)))


def _fields_of(record: Record) -> dict[str, Any]:
    match record:
        case ClusterRecord():
            return {"kind": "cluster", "v": 1, "id": record.cluster_id}
        case ControllerRecord():
            return _controller_fields(record)
        case NodeRecord():
            return _node_fields(record)
        case DirRecord():
            return _dir_fields(record)
        case TopicRecord():
            return {
                "kind": "topic",
                "v": 2,
                "name": record.name,
                "id": record.topic_id,
                "config": dict(record.config),
                "version": record.version,
            }
        case PartitionRecord():
            return _partition_fields(record)
        case PartitionRemovedRecord():
            return {"kind": "partition-removed", "v": 1, **_log_fields(record.log)}
        case TopicRemovedRecord():
            return {"kind": "topic-removed", "v": 2, "id": record.topic_id}
        case ProducerIdsRecord():
            return {"kind": "producer-ids", "v": 2, "epoch": record.epoch, "next": record.next_id}
        case CopiesRecord():
            nodes, dirs = list(record.nodes), list(record.directories)
            return {"kind": "copies", "v": 1, "nodes": nodes, "dirs": dirs}
        case BrokerConfigRecord():
            values = {"version": record.version, "start": record.start}
            return {"kind": "broker-config", "v": 1, "config": values_of(record.config), **values}
        case StoppedRecord():
            return {"kind": "stopped", "v": 1}
        case LevelRecord():
            return {"kind": "level", "v": 1, "level": record.level, "release": record.release}
        case UserRecord():
            verifiers = [_verifier_fields(one) for one in record.verifiers]
            return {"kind": "user", "v": 1, "name": record.name, "verifiers": verifiers}
        case UserRemovedRecord():
            return {"kind": "user-removed", "v": 1, "name": record.name}
    raise AssertionError(f"{record} is of version 1, which nobody writes")


def _controller_fields(record: ControllerRecord) -> dict[str, Any]:
    fields = {"kind": "controller", "v": 1, "epoch": record.epoch, "node": record.node}
    if record.directory:
        fields["directory"] = record.directory
    return fields


def _verifier_fields(verifier: Verifier) -> dict[str, Any]:
    return {
        "mechanism": verifier.mechanism,
        "salt": verifier.salt,
        "iterations": verifier.iterations,
        "stored": verifier.stored_key,
        "server": verifier.server_key,
    }


def _node_fields(record: NodeRecord) -> dict[str, Any]:
    numbers = {"kafka_id": record.kafka_id, "port": record.port}
    fields = {"kind": "node", "v": 2, "key": record.key, **numbers, "state": record.state}
    if record.host:
        fields["host"] = record.host
    return fields


def _dir_fields(record: DirRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "kind": "log-dir",
        "v": 1,
        "id": record.directory_id,
        "node": record.node,
        "path": record.path,
        "state": record.state,
        "why": record.why,
        "life": record.life,
    }
    if record.is_ordered:
        fields["ordered"] = True
    return fields


def _partition_fields(record: PartitionRecord) -> dict[str, Any]:
    return {
        "kind": "partition",
        "v": 1,
        **_log_fields(record.log),
        "state": record.state,
        "node": record.node,
        "directory": record.directory,
        "target": record.target,
        "left": list(record.left),
        "kafka_id": record.kafka_id,
        "port": record.port,
    }


def _log_fields(log: LogId) -> dict[str, Any]:
    topic, number = log.partition
    return {"topic": topic, "topic_id": log.topic_id, "number": number}


# -- from bytes ------------------------------------------------------------------------------------


def decode(value: bytes, levels: Levels = LEVELS) -> Record:
    """The record in a value. CorruptRecord if there is none; NewerRecord.

    ``levels``: those that this raylog knows. Raises UnsupportedLevel where the cluster goes to a
    newer one: what follows may not be read.
    """
    try:
        fields = msgpack.unpackb(value)
    except ValueError as error:
        raise CorruptRecord(METADATA_LOG, f"a record is not msgpack ({error})") from error
    if not isinstance(fields, dict):
        raise CorruptRecord(METADATA_LOG, f"a record is a {type(fields).__name__}, not a map")
    kind, version = fields.get("kind"), fields.get("v")
    reader = _READERS.get((kind, version))
    if reader is None:
        why = f"a newer raylog wrote a {kind!r} record of version {version}"
        raise NewerRecord(METADATA_LOG, why)
    try:
        record = reader(fields)
    except (InvalidConfig, KeyError, TypeError, ValueError) as error:
        why = f"a {kind} record of version {version} lacks something ({error!r})"
        raise CorruptRecord(METADATA_LOG, why) from error
    if isinstance(record, LevelRecord) and record.level > levels.newest:
        levels.check(record.level, METADATA_LOG, record.release)
    return record


def _read_dir(fields: Mapping[str, Any]) -> DirRecord:
    return DirRecord(
        directory_id=fields["id"],
        node=fields["node"],
        path=fields["path"],
        state=fields["state"],
        why=fields["why"],
        life=fields["life"],
        is_ordered=fields.get("ordered", False),
    )


def _read_topic(fields: Mapping[str, Any]) -> TopicRecord:
    return TopicRecord(
        name=fields["name"],
        topic_id=fields["id"],
        config=fields["config"],
        version=fields.get("version", 0),  # the first records had none
    )


def _read_partition(fields: Mapping[str, Any]) -> PartitionRecord:
    return PartitionRecord(
        log=_read_log(fields),
        state=fields["state"],
        node=fields["node"],
        directory=fields["directory"],
        target=fields["target"],
        left=tuple(fields["left"]),
        kafka_id=fields["kafka_id"],
        port=fields["port"],
    )


def _read_log(fields: Mapping[str, Any]) -> LogId:
    partition = TopicPartition(fields["topic"], fields["number"])
    return LogId(partition=partition, topic_id=fields["topic_id"])


def _read_old_topic(fields: Mapping[str, Any]) -> OldTopicRecord:
    return OldTopicRecord(topic=_read_topic(fields), directories=tuple(fields["directories"]))


def _read_verifier(fields: Mapping[str, Any]) -> Verifier:
    return Verifier(
        mechanism=fields["mechanism"],
        salt=fields["salt"],
        iterations=fields["iterations"],
        stored_key=fields["stored"],
        server_key=fields["server"],
    )


_READERS: dict[tuple[object, object], Callable[[Mapping[str, Any]], Record]] = {
    ("cluster", 1): lambda fields: ClusterRecord(cluster_id=fields["id"]),
    ("controller", 1): lambda fields: ControllerRecord(
        epoch=fields["epoch"], node=fields["node"], directory=fields.get("directory", "")
    ),
    ("node", 1): lambda fields: NodeRecord(
        key=fields["key"], kafka_id=fields["kafka_id"], port=fields["port"]
    ),
    ("node", 2): lambda fields: NodeRecord(
        key=fields["key"],
        kafka_id=fields["kafka_id"],
        port=fields["port"],
        state=fields["state"],
        host=fields.get("host", ""),
    ),
    ("log-dir", 1): _read_dir,
    ("topic", 1): _read_old_topic,
    ("topic", 2): _read_topic,
    ("partition", 1): _read_partition,
    ("partition-removed", 1): lambda fields: PartitionRemovedRecord(log=_read_log(fields)),
    ("topic-removed", 1): lambda fields: OldTopicRemovedRecord(name=fields["name"]),
    ("topic-removed", 2): lambda fields: TopicRemovedRecord(topic_id=fields["id"]),
    ("producer-ids", 1): lambda fields: ProducerIdsRecord(epoch=0, next_id=fields["next"]),
    ("producer-ids", 2): lambda fields: ProducerIdsRecord(
        epoch=fields["epoch"], next_id=fields["next"]
    ),
    ("copies", 1): lambda fields: CopiesRecord(
        nodes=tuple(fields["nodes"]), directories=tuple(fields["dirs"])
    ),
    ("broker-config", 1): lambda fields: BrokerConfigRecord(
        config=config_of(fields["config"]),
        version=fields["version"],
        start=fields["start"],
    ),
    ("stopped", 1): lambda fields: StoppedRecord(),
    ("level", 1): lambda fields: LevelRecord(level=fields["level"], release=fields["release"]),
    ("user", 1): lambda fields: UserRecord(
        name=fields["name"], verifiers=tuple(map(_read_verifier, fields["verifiers"]))
    ),
    ("user-removed", 1): lambda fields: UserRemovedRecord(name=fields["name"]),
}
