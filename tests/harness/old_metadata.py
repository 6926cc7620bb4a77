"""The metadata's records of version 1, as the raylog before wrote them."""

from typing import Any

import msgpack

# What that raylog could read: the kinds, all of version 1.
KINDS = {"cluster", "topic", "topic-removed", "producer-ids"}


def old_cluster(cluster_id: str) -> bytes:
    return _packed("cluster", id=cluster_id)


def old_topic(
    name: str,
    topic_id: str,
    *directories: str,
    config: dict[str, Any] | None = None,
    version: int | None = 0,
) -> bytes:
    """``version``: None for the first records, which had none."""
    fields: dict[str, Any] = {"name": name, "id": topic_id, "config": config or {}}
    fields["directories"] = directories
    if version is not None:
        fields["version"] = version
    return _packed("topic", **fields)


def old_topic_removed(name: str) -> bytes:
    return _packed("topic-removed", name=name)


def old_producer_ids(next_id: int) -> bytes:
    return _packed("producer-ids", next=next_id)


def _packed(kind: str, **fields: Any) -> bytes:
    return bytes(msgpack.packb({"kind": kind, "v": 1, **fields}))
