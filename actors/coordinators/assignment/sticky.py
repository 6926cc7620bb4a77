"""The assignors ``sticky`` and ``cooperative-sticky``: balanced, and as it was where possible.

Both make the same plan. They differ in how a member gives up a partition:

- ``sticky``: members give up everything before they join (eager). The plan is the assignment.
- ``cooperative-sticky``: members go on reading what they own while they join. So a partition that
  the plan moves from one member to another is given to nobody at first. Its owner sees that it
  is no longer assigned, gives it up, and joins again. The next rebalance finds it without an owner,
  and gives it away. So no partition has two readers.

Where members claim the same partition, ``ownership.py`` says who owns it. Source:
``AbstractStickyAssignor`` and ``CooperativeStickyAssignor`` of Kafka; KIP-54, KIP-429.
"""

from collections.abc import Mapping

from raylog.actors.coordinators.assignment.differing_subscriptions import assign_balanced
from raylog.actors.coordinators.assignment.equal_subscriptions import assign_evenly
from raylog.actors.coordinators.assignment.ownership import Ownership, resolve
from raylog.actors.coordinators.assignment.subscribed_topics import subscribed_topics
from raylog.actors.coordinators.assignment.subscription import Assigned, Subscription
from raylog.actors.coordinators.assignment.user_data import cooperative_claim, sticky_claim
from raylog.storage.names import TopicPartition


def assign_sticky(
    partitions_of_topics: Mapping[str, int], members: Mapping[str, Subscription]
) -> Assigned:
    """The partitions of each member, sorted."""
    ownership = resolve({member: sticky_claim(members[member]) for member in members})
    plan = _plan(partitions_of_topics, members, ownership)
    return {member: tuple(sorted(partitions)) for member, partitions in plan.items()}


def assign_cooperative_sticky(
    partitions_of_topics: Mapping[str, int], members: Mapping[str, Subscription]
) -> Assigned:
    """The partitions of each member, sorted, without those that somebody must give up first."""
    ownership = resolve({member: cooperative_claim(members[member]) for member in members})
    plan = _plan(partitions_of_topics, members, ownership)
    assigned = {}
    for member, partitions in plan.items():
        assigned[member] = tuple(
            partition
            for partition in sorted(partitions)
            if ownership.owners.get(partition, member) == member
        )
    return assigned


def _plan(
    partitions_of_topics: Mapping[str, int],
    members: Mapping[str, Subscription],
    ownership: Ownership,
) -> dict[str, list[TopicPartition]]:
    topics = subscribed_topics(partitions_of_topics, members).values()
    if not topics:
        return {member: [] for member in members}
    if any(len(topic.subscribers) < len(members) for topic in topics):
        return assign_balanced(topics, members, ownership)
    partitions = [partition for topic in topics for partition in topic.partitions()]
    return assign_evenly(partitions, members, ownership.owners)
