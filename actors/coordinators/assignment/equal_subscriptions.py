"""A sticky assignment where all members subscribe to the same topics.

Every member gets p // n of p partitions, and p % n members get one more. Each keeps what it owns
up to that; what it gives up, and what nobody owns, is dealt out to those who have too few. So the
assignment is balanced, and no balanced one moves fewer partitions.

Members have the turn by their ids, since equal input must give equal output. Kafka's own order of
those who may keep one more is that of a hash table, so results can differ from Kafka's in which
members these are. Source: ``AbstractStickyAssignor`` of Kafka.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from raylog.storage.names import TopicPartition


def assign_evenly(
    partitions: list[TopicPartition],
    members: Iterable[str],
    owners: Mapping[TopicPartition, str | None],
) -> dict[str, list[TopicPartition]]:
    """The partitions of each member.

    ``partitions``: all that there are, in the order in which they are dealt out. ``members``: one
    or more.
    """
    owned: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
    for partition in sorted(partitions, key=_by_number):
        owner = owners.get(partition)
        if owner is not None:
            owned[owner].append(partition)
    least, larger_shares = divmod(len(partitions), len(owned))
    shares = _kept(owned, least, larger_shares)
    kept = {partition for share in shares.values() for partition in share}
    _deal([partition for partition in partitions if partition not in kept], shares, least)
    return shares


def _by_number(partition: TopicPartition) -> tuple[int, str]:
    """Kafka's order: a member keeps the first partitions of every topic, not all of one topic."""
    return partition.partition, partition.topic


def _kept(
    owned: Mapping[str, list[TopicPartition]], least: int, larger_shares: int
) -> dict[str, list[TopicPartition]]:
    """What each member keeps: at most ``least``, and ``larger_shares`` members one more."""
    kept = {}
    for member, partitions in owned.items():
        size = least
        if len(partitions) > least and larger_shares > 0:
            size += 1
            larger_shares -= 1
        kept[member] = partitions[:size]
    return kept


def _deal(
    partitions: list[TopicPartition], shares: dict[str, list[TopicPartition]], least: int
) -> None:
    """One to each member in turn: to those who have fewer than ``least`` until nobody has."""
    short = deque(member for member, share in shares.items() if len(share) < least)
    filled = deque(member for member, share in shares.items() if len(share) == least)
    for partition in partitions:
        member = short.popleft() if short else filled.popleft()
        shares[member].append(partition)
        if len(shares[member]) < least:
            short.append(member)
        elif len(shares[member]) == least:
            filled.append(member)
