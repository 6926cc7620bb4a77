"""The assignor ``range``: of each topic, every subscriber gets a run of consecutive partitions.

Where the partitions of a topic cannot be divided evenly, the first subscribers get one more. Topics
with equally many partitions and the same subscribers are divided alike, so that partition n of all
of them has the same reader. Racks are not looked at. Source: ``RangeAssignor`` of Kafka.
"""

from collections.abc import Mapping

from raylog.actors.coordinators.assignment.subscribed_topics import (
    static_first,
    subscribed_topics,
)
from raylog.actors.coordinators.assignment.subscription import Assigned, Subscription
from raylog.storage.names import TopicPartition


def assign_range(
    partitions_of_topics: Mapping[str, int], members: Mapping[str, Subscription]
) -> Assigned:
    """The partitions of each member, sorted."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
    topics = subscribed_topics(partitions_of_topics, static_first(members))
    for topic in topics.values():
        partitions = topic.partitions()
        least, larger_runs = divmod(len(partitions), len(topic.subscribers))
        start = 0
        for index, member in enumerate(topic.subscribers):
            end = start + least + (1 if index < larger_runs else 0)
            assigned[member] += partitions[start:end]
            start = end
    return {member: tuple(partitions) for member, partitions in assigned.items()}
