"""Who owns a partition before a rebalance, where several members may say that they do.

A member may have missed rebalances, and still claim what others got meanwhile. So each claim counts
by the generation in which the member got its partitions:

=================================  ============================================================
claims to a partition              owner
=================================  ============================================================
one                                who claims it, in whatever generation
several, one of the newest         who claims it in the newest generation
several of the newest generation   nobody: it cannot be said who is right
=================================  ============================================================

Who claims it in an older generation is remembered as its earlier owner: a second choice.

Source: ``AbstractStickyAssignor`` of Kafka.
"""

from collections.abc import Mapping
from typing import NamedTuple

from raylog.storage.names import TopicPartition


class Claim(NamedTuple):
    """What a member says that it owns, and in which generation it got that."""

    partitions: tuple[TopicPartition, ...]
    generation: int


class Ownership(NamedTuple):
    """Who owned what."""

    owners: dict[TopicPartition, str | None]  # of all claimed partitions; None: nobody
    earlier_owners: dict[TopicPartition, str]


def resolve(claims: Mapping[str, Claim]) -> Ownership:
    """The owners by what each member claims."""
    claimants: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member, claim in claims.items():
        for partition in set(claim.partitions):
            claimants.setdefault(partition, []).append((claim.generation, member))
    ownership = Ownership({}, {})
    for partition, rivals in claimants.items():
        newest, owner = max(rivals)
        older = [(generation, member) for generation, member in rivals if generation < newest]
        is_disputed = len(rivals) - len(older) > 1
        ownership.owners[partition] = None if is_disputed else owner
        if older:
            _, ownership.earlier_owners[partition] = max(older)
    return ownership
