"""What a cluster knows of itself: its id, its topics, and where each partition is.

The state is a fold over records.

Every change is first a record in the log ``__cluster_metadata-0``, a msgpack map with its kind and
the version of that kind's layout; the state is what replaying them gives. A fresh Ray cluster over
the same disks reads them and finds everything: Ray's own store is no storage.

::

    {kind: cluster,       v: 1, id}
    {kind: topic,         v: 1, name, id, config: {key: value},
                          directories: [directory id of each partition],
                          version: of the config, from 0}
    {kind: topic-removed, v: 1, name}
    {kind: producer-ids,  v: 1, next}              ids below ``next`` may be in use

A partition is bound to a log dir by the dir's id, not to a Ray node: node ids are new after every
start. (The layout is ours: Kafka's own metadata log speaks of brokers, which raylog does not have.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack

from raylog.storage.errors import CorruptRecord

VERSION = 1


class Topic(NamedTuple):
    """A topic. ``version``: how often its config was changed."""

    name: str
    topic_id: str
    config: Mapping[str, Any]
    directories: tuple[str, ...]
    version: int = 0


@dataclass(slots=True)
class ClusterState:
    """The fold."""

    cluster_id: str = ""
    topics: dict[str, Topic] = field(default_factory=dict)
    next_producer_id: int = 0

    def apply(self, record: Mapping[str, Any]) -> None:
        """Take one record in. CorruptRecord if this version cannot read it."""
        kind, version = record.get("kind"), record.get("v")
        if version != VERSION:
            raise CorruptRecord(
                "__cluster_metadata-0",
                f"a newer raylog wrote a {kind} record of version {version}; use that raylog",
            )
        match kind:
            case "cluster":
                self.cluster_id = record["id"]
            case "topic":
                topic = Topic(
                    name=record["name"],
                    topic_id=record["id"],
                    config=record["config"],
                    directories=tuple(record["directories"]),
                    version=record.get("version", 0),
                )
                self.topics[topic.name] = topic
            case "topic-removed":
                self.topics.pop(record["name"], None)
            case "producer-ids":
                self.next_producer_id = record["next"]
            case _:
                raise CorruptRecord(
                    "__cluster_metadata-0",
                    f"a newer raylog wrote a record of kind {kind!r}; use that raylog",
                )


def cluster_record(cluster_id: str) -> dict[str, Any]:
    return {"kind": "cluster", "v": VERSION, "id": cluster_id}


def topic_record(topic: Topic) -> dict[str, Any]:
    return {
        "kind": "topic",
        "v": VERSION,
        "name": topic.name,
        "id": topic.topic_id,
        "config": dict(topic.config),
        "directories": list(topic.directories),
        "version": topic.version,
    }


def topic_removed_record(name: str) -> dict[str, Any]:
    return {"kind": "topic-removed", "v": VERSION, "name": name}


def producer_ids_record(next_producer_id: int) -> dict[str, Any]:
    return {"kind": "producer-ids", "v": VERSION, "next": next_producer_id}


def encode(record: Mapping[str, Any]) -> bytes:
    return bytes(msgpack.packb(record))


def decode(value: bytes) -> dict[str, Any]:
    """The record in a value; CorruptRecord if there is none."""
    try:
        record = msgpack.unpackb(value)
    except ValueError as error:
        raise CorruptRecord("__cluster_metadata-0", f"a record is not msgpack ({error})") from error
    if not isinstance(record, dict):
        raise CorruptRecord(
            "__cluster_metadata-0", f"a record is a {type(record).__name__}, not a map"
        )
    return record
