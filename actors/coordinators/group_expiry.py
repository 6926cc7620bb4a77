"""Which offsets are too old, and which groups are then nothing any more.

======================================  ===================  =======================================
the group                               counted from         exempt
======================================  ===================  =======================================
any, the offset has a time of expiry    that time            -
without members, was a real group       it became empty      -
with members, type "consumer", Stable   the commit           topics that they read
with members, otherwise                 -                    all
simple: it never had members            the commit           -
======================================  ===================  =======================================

An offset that an open transaction holds stays. Source: ``OffsetExpirationConditionImpl``,
``OffsetMetadataManager`` of Kafka; KIP-211.
"""

from raylog.actors.coordinators.committed_offsets import CommittedOffsets
from raylog.actors.coordinators.group import Group, State
from raylog.actors.coordinators.group_records import NEVER, Committed
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.consumer_protocol import CONSUMER_PROTOCOL


def expired(
    group: Group, offsets: CommittedOffsets, retention_ms: int, wall_ms: int
) -> list[TopicPartition]:
    """The partitions whose offsets of a group are too old."""
    of_group = offsets.of(group.group_id)
    if not of_group:
        return []
    pending = offsets.pending_of(group.group_id)
    topics = group.subscribed_topics() if group.members else set()
    return [
        partition
        for partition, committed in of_group.items()
        if partition not in pending
        and _is_expired(group, topics, partition, committed, retention_ms, wall_ms)
    ]


def _is_expired(
    group: Group,
    topics: set[str] | None,
    partition: TopicPartition,
    committed: Committed,
    retention_ms: int,
    wall_ms: int,
) -> bool:
    if committed.expire_time_ms != NEVER:
        return wall_ms >= committed.expire_time_ms
    since_ms = committed.commit_time_ms
    if group.members:
        is_known = group.state is State.STABLE and group.protocol_type == CONSUMER_PROTOCOL
        if not is_known or topics is None or partition.topic in topics:
            return False
    elif group.protocol_type is not None and group.state_since_ms >= 0:
        since_ms = group.state_since_ms
    return wall_ms - since_ms >= retention_ms


def is_nothing(group: Group, offsets: CommittedOffsets) -> bool:
    """Whether a group has neither members nor offsets, and nobody is about to come."""
    is_empty = group.state is State.EMPTY and not group.pending_joins
    return is_empty and group.group_id not in offsets and not offsets.pending_of(group.group_id)
