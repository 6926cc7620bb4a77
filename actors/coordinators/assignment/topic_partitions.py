"""Partitions as Kafka's messages list them: a topic, then the numbers of its partitions."""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter

from raylog.storage.names import TopicPartition
from raylog.storage.schemas.types import Value


def by_topic(partitions: Iterable[TopicPartition]) -> list[Value]:
    """Entries of ``topic`` and ``partitions``, sorted, so that equal sets are equal bytes."""
    groups = groupby(sorted(set(partitions)), key=attrgetter("topic"))
    return [
        {"topic": topic, "partitions": [entry.partition for entry in group]}
        for topic, group in groups
    ]


def listed(entries: Iterable[Value]) -> tuple[TopicPartition, ...]:
    """The partitions of entries, in the order of the entries."""
    return tuple(
        TopicPartition(entry["topic"], partition)
        for entry in entries
        for partition in entry["partitions"]
    )
