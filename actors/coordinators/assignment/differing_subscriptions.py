"""A sticky assignment where members subscribe to different topics.

It is made in four steps:

1. Keep: every member keeps what it owns, of topics to which it still subscribes.
2. Deal: each other partition goes to the subscriber that has the fewest partitions. Partitions of
   topics with few subscribers come first.
3. Settle: a partition moves from its holder to a subscriber that has at least two fewer, until no
   partition can move so. A subscriber that owned it in an earlier generation is preferred. The
   partitions of step 2 move first, since nobody has to give them up.
4. Return: step 3 has decided how many partitions of each topic a member gets. Which ones these are
   does not matter to the balance. So up to that number, each member takes those that it owned.

Each move of step 3 makes two members more even, and no two members less even. So it ends, and it
never makes the balance worse. After step 4, no member gives up a partition of a topic and gets
another partition of the same topic.

Kafka keeps a record of moves in place of step 4. With it, two partitions of a topic do not change
places, but three may. Source: ``AbstractStickyAssignor`` of Kafka.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from raylog.actors.coordinators.assignment.loads import Loads
from raylog.actors.coordinators.assignment.ownership import Ownership
from raylog.actors.coordinators.assignment.subscribed_topics import SubscribedTopic
from raylog.storage.names import TopicPartition


def assign_balanced(
    topics: Iterable[SubscribedTopic], members: Iterable[str], ownership: Ownership
) -> dict[str, list[TopicPartition]]:
    """The partitions of each member. ``members``: the subscribers, and others that get nothing."""
    rarest_first = sorted(topics, key=lambda topic: (len(topic.subscribers), topic.name))
    shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
    balance = _Balance(rarest_first, shares, ownership.earlier_owners)
    partitions = [partition for topic in rarest_first for partition in topic.partitions()]
    new = balance.keep(partitions, ownership.owners)
    balance.deal(new)
    balance.settle(new)
    balance.settle(partitions)
    for topic in rarest_first:
        returned = _returned(topic.partitions(), balance.holders, ownership)
        for partition, member in returned.items():
            shares[member].append(partition)
    return shares


class _Balance:
    """Who holds which partition in the course of steps 1 to 3."""

    def __init__(
        self,
        topics: Iterable[SubscribedTopic],
        members: Iterable[str],
        earlier_owners: Mapping[TopicPartition, str],
    ) -> None:
        self.holders: dict[TopicPartition, str] = {}
        self._subscribers = {topic.name: frozenset(topic.subscribers) for topic in topics}
        self._earlier_owners = earlier_owners
        self._loads = Loads(members)

    def keep(
        self, partitions: Iterable[TopicPartition], owners: Mapping[TopicPartition, str | None]
    ) -> list[TopicPartition]:
        """Give each partition to its owner.

        Returns the partitions that have no owner, or one that does not subscribe any more.
        """
        rest = []
        for partition in partitions:
            owner = owners.get(partition)
            if owner in self._subscribers[partition.topic]:
                self._give(partition, owner)
            else:
                rest.append(partition)
        return rest

    def deal(self, partitions: Iterable[TopicPartition]) -> None:
        """Give each partition, which nobody holds, to the subscriber that has the fewest."""
        for partition in partitions:
            self._give(partition, self._loads.lightest(self._subscribers[partition.topic]))

    def settle(self, partitions: list[TopicPartition]) -> None:
        """Move these partitions until no move of one of them makes two members more even."""
        is_settled = False
        while not is_settled:
            is_settled = True
            for partition in partitions:
                member = self._better_holder(partition)
                if member is not None:
                    self._give(partition, member)
                    is_settled = False

    def _better_holder(self, partition: TopicPartition) -> str | None:
        """A subscriber that has at least two partitions fewer than the holder, or None."""
        subscribers = self._subscribers[partition.topic]
        most = self._loads[self.holders[partition]] - 2
        earlier = self._earlier_owners.get(partition)
        if earlier in subscribers and self._loads[earlier] <= most:
            return earlier
        lightest = self._loads.lightest(subscribers)
        return lightest if self._loads[lightest] <= most else None

    def _give(self, partition: TopicPartition, member: str) -> None:
        holder = self.holders.get(partition)
        if holder is not None:
            self._loads.add(holder, -1)
        self._loads.add(member, 1)
        self.holders[partition] = member


def _returned(
    partitions: list[TopicPartition],
    holders: Mapping[TopicPartition, str],
    ownership: Ownership,
) -> dict[TopicPartition, str]:
    """The partitions of one topic and who gets each: every member as many as it holds."""
    places = Counter(holders[partition] for partition in partitions)
    # If an owner must give up some, then those that an earlier owner may get.
    sole_owners_first = sorted(partitions, key=ownership.earlier_owners.__contains__)
    returned: dict[TopicPartition, str] = {}
    for wanted in (ownership.owners, ownership.earlier_owners, holders):
        for partition in sole_owners_first:
            member = wanted.get(partition)
            if partition not in returned and member is not None and places[member] > 0:
                places[member] -= 1
                returned[partition] = member
    rest = [partition for partition in partitions if partition not in returned]
    returned.update(zip(rest, places.elements(), strict=True))
    return returned
