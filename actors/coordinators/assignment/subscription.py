"""What members of a classic group and their leader tell each other, as values and as bytes.

=================  =====================  =====================================================
value              sent by                travels in
=================  =====================  =====================================================
``Subscription``   each member            JoinGroup, as the metadata of an assignor
``Assignment``     the leader             SyncGroup, one for each member
=================  =====================  =====================================================

The bytes are Kafka's ConsumerProtocol (``storage/schemas/consumer_protocol.py``). Writers write
version 3, with topics and partitions sorted: equal subscriptions are then equal bytes, and a member
that joins again with equal bytes causes no rebalance. Readers take every version from 0, and read
one that is later than 3 as version 3. A member that the leader left out gets no bytes at all; this
is read as an assignment of nothing.

What ``user_data`` means is up to the assignor: see ``user_data.py``. Source: ``ConsumerProtocol``
of Kafka; KIP-429, KIP-792, KIP-881.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from raylog.actors.coordinators.assignment.topic_partitions import by_topic, listed
from raylog.storage.buffers import Buffer
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, read_latest

NO_GENERATION: Final = -1

# What an assignor decides: of each member, by its id, the partitions, sorted.
Assigned: TypeAlias = dict[str, tuple[TopicPartition, ...]]


class Subscription(NamedTuple):
    """What a member wants to read, and what it reads now."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION  # in which it got what it owns
    user_data: bytes | None = None
    rack: str | None = None
    instance_id: str | None = None  # not in these bytes: JoinGroup has a field for it


class Assignment(NamedTuple):
    """What a member shall read."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def write_subscription(subscription: Subscription) -> bytes:
    """Raises UnwritableValue."""
    value = {
        "topics": sorted(set(subscription.topics)),
        "userData": subscription.user_data,
        "ownedPartitions": by_topic(subscription.owned),
        "generationId": subscription.generation,
        "rackId": subscription.rack,
    }
    return SUBSCRIPTION.write_versioned(value, SUBSCRIPTION.last_version)


def read_subscription(content: Buffer, instance_id: str | None = None) -> Subscription:
    """Raises InvalidRecord. ``instance_id``: of the member, None where it is dynamic."""
    _, value = read_latest(SUBSCRIPTION, content)
    return Subscription(
        topics=tuple(value["topics"]),
        owned=listed(value["ownedPartitions"]),
        generation=value["generationId"],
        user_data=value["userData"],
        rack=value["rackId"],
        instance_id=instance_id,
    )


def write_assignment(partitions: Iterable[TopicPartition], user_data: bytes | None = None) -> bytes:
    """Raises UnwritableValue."""
    value = {"assignedPartitions": by_topic(partitions), "userData": user_data}
    return ASSIGNMENT.write_versioned(value, ASSIGNMENT.last_version)


def read_assignment(content: Buffer) -> Assignment:
    """Raises InvalidRecord."""
    if not len(content):
        return Assignment(())
    _, value = read_latest(ASSIGNMENT, content)
    return Assignment(listed(value["assignedPartitions"]), value["userData"])
