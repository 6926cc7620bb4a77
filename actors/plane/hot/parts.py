"""What Produce and Fetch share: topics by name or by id, strings, and where a leader is.

Up to version 12 of both requests a topic is named, and since version 13 it has its id (KIP-516). An
id stays 16 bytes here: a partition knows its own and compares bytes.
"""

from collections.abc import Mapping
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from raylog.storage.schemas.binary import put_unsigned
from raylog.storage.schemas.types import Value

FIRST_VERSION_OF_IDS: Final = 13
NO_TOPIC_ID: Final = bytes(16)

# Counts and lengths of compact types below this are one byte, which holds the number plus one.
ONE_BYTE: Final = 0x80
NO_TAGS: Final = b"\0"

Part = TypeVar("Part")
# Tagged fields that the schemas do not know, and their bytes: ``own_clients.py``.
Tags: TypeAlias = Mapping[int, bytes]


class Topic(NamedTuple, Generic[Part]):
    """A topic, and what is asked or said of its partitions."""

    name: str  # "" in versions with ids
    topic_id: bytes  # zeros in versions with names
    partitions: list[Part]


class Leader(NamedTuple):
    """Who leads a partition that is not here (KIP-951)."""

    node_id: int
    epoch: int


class Endpoint(NamedTuple):
    """Where a leader that an answer names is reached (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def compact_string(text: str) -> bytes:
    """A string as flexible versions have it."""
    content = text.encode()
    if len(content) < ONE_BYTE - 1:
        return bytes((len(content) + 1,)) + content
    out = bytearray()
    put_unsigned(out, len(content) + 1)
    return bytes(out + content)


def compact_size(size: int) -> bytes:
    """A count or a length as flexible versions have it."""
    if size < ONE_BYTE - 1:
        return bytes((size + 1,))
    out = bytearray()
    put_unsigned(out, size + 1)
    return bytes(out)


def leader_value(leader: Leader | None) -> Value:
    """A leader as the schemas have it; its defaults, which are not written, if there is none."""
    if leader is None:
        return {"leaderId": -1, "leaderEpoch": -1}
    return {"leaderId": leader.node_id, "leaderEpoch": leader.epoch}


def endpoint_value(endpoint: Endpoint) -> Value:
    """An endpoint as the schemas have it."""
    return {
        "nodeId": endpoint.node_id,
        "host": endpoint.host,
        "port": endpoint.port,
        "rack": endpoint.rack,
    }


def topic_value(topic: Topic, name_field: str) -> Value:
    """What names a topic, as the schemas have it."""
    return {name_field: topic.name, "topicId": UUID(bytes=topic.topic_id)}
