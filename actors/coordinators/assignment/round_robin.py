"""The assignor ``roundrobin``: all partitions are dealt out, one to each member in turn.

A member that does not subscribe to a partition's topic is passed over. The turn goes on from one
topic to the next. Source: ``RoundRobinAssignor`` of Kafka.
"""

from collections.abc import Mapping
from itertools import cycle

from raylog.actors.coordinators.assignment.subscribed_topics import (
    static_first,
    subscribed_topics,
)
from raylog.actors.coordinators.assignment.subscription import Assigned, Subscription
from raylog.storage.names import TopicPartition


def assign_round_robin(
    partitions_of_topics: Mapping[str, int], members: Mapping[str, Subscription]
) -> Assigned:
    """The partitions of each member, sorted."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
    turns = cycle(static_first(members))
    for topic in subscribed_topics(partitions_of_topics, members).values():
        subscribers = set(topic.subscribers)
        for partition in topic.partitions():
            member = next(turn for turn in turns if turn in subscribers)
            assigned[member].append(partition)
    return {member: tuple(partitions) for member, partitions in assigned.items()}
