"""What a member remembers for a sticky assignor, and what it claims to own thereby.

==================  ===============================  =============================================
assignor            ``user_data`` of a subscription  a member's claim is read from
==================  ===============================  =============================================
sticky              partitions, generation           ``user_data`` alone: an eager member has given
                                                     up all that it owns before it joins
cooperative-sticky  generation                       ``owned`` and ``generation``; the generation
                                                     from ``user_data`` where there is no other
==================  ===============================  =============================================

User data that cannot be read claims nothing: it may be that of another assignor, and a group must
not fail for it. Version 0 of sticky's has no generation. Source: ``StickyAssignor`` and
``CooperativeStickyAssignor`` of Kafka.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from raylog.actors.coordinators.assignment.ownership import Claim
from raylog.actors.coordinators.assignment.subscription import NO_GENERATION, Subscription
from raylog.actors.coordinators.assignment.topic_partitions import by_topic, listed
from raylog.storage.errors import InvalidRecord
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.schema import schema

_STICKY: Final = schema(
    "StickyAssignorUserData",
    """
    previousAssignment []
        topic string
        partitions []int32
    generation int32 1+ default=-1
    """,
    last_version=1,
)
_COOPERATIVE: Final = schema("CooperativeStickyAssignorUserData", "generation int32")


def no_user_data(owned: Iterable[TopicPartition], generation: int) -> None:
    """That of an assignor that remembers nothing."""


def sticky_user_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """``owned``: what the member got in ``generation``."""
    value = {"previousAssignment": by_topic(owned), "generation": generation}
    return _STICKY.write(value, _STICKY.last_version)


def cooperative_user_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """``owned`` is not written: the subscription has a field for it."""
    return _COOPERATIVE.write({"generation": generation}, 0)


def sticky_claim(subscription: Subscription) -> Claim:
    """What a member of a group with the assignor ``sticky`` claims."""
    user_data = subscription.user_data or b""
    for version in (1, 0):
        with suppress(InvalidRecord):
            value = _STICKY.read(user_data, version)
            return Claim(listed(value["previousAssignment"]), value["generation"])
    return Claim((), NO_GENERATION)


def cooperative_claim(subscription: Subscription) -> Claim:
    """What a member of a group with the assignor ``cooperative-sticky`` claims."""
    generation = subscription.generation
    if generation == NO_GENERATION:
        with suppress(InvalidRecord):
            generation = _COOPERATIVE.read(subscription.user_data or b"", 0)["generation"]
    return Claim(subscription.owned, generation)
