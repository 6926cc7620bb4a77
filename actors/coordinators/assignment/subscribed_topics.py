"""The topics of a group that have partitions to assign, and who subscribes to each."""

from collections.abc import Mapping
from typing import NamedTuple

from raylog.actors.coordinators.assignment.subscription import Subscription
from raylog.storage.names import TopicPartition


class SubscribedTopic(NamedTuple):
    """A topic that has partitions and subscribers."""

    name: str
    partition_count: int
    subscribers: list[str]  # in the order of the members that were given

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, number) for number in range(self.partition_count)]


def subscribed_topics(
    partitions_of_topics: Mapping[str, int], members: Mapping[str, Subscription]
) -> dict[str, SubscribedTopic]:
    """The topics by name, sorted. Topics of which no partition is known are left out."""
    subscribers: dict[str, list[str]] = {}
    for member, subscription in members.items():
        for topic in set(subscription.topics):
            subscribers.setdefault(topic, []).append(member)
    topics = {}
    for name in sorted(subscribers):
        count = partitions_of_topics.get(name, 0)
        if count:
            topics[name] = SubscribedTopic(name, count, subscribers[name])
    return topics


def static_first(members: Mapping[str, Subscription]) -> dict[str, Subscription]:
    """The members in the order of ``range`` and ``roundrobin``.

    Static members come first, by instance id, then dynamic members, by member id. So a static
    member keeps its place when it starts again under another member id.
    """

    def place(member: str) -> tuple[bool, str]:
        instance_id = members[member].instance_id
        return instance_id is None, member if instance_id is None else instance_id

    return {member: members[member] for member in sorted(members, key=place)}
