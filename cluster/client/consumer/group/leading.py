"""What the leader of a group does: divide the partitions among the members. No network, no time."""

from collections.abc import Mapping, Sequence

from raylog.actors.coordinators.assignment.assignors import (
    ASSIGNORS,
    COOPERATIVE_STICKY,
    Assignor,
)
from raylog.actors.coordinators.assignment.subscription import (
    Subscription,
    read_subscription,
    write_assignment,
)
from raylog.storage.errors import InvalidRecord
from raylog.storage.schemas.types import Value


def is_cooperative(assignors: Sequence[str]) -> bool:
    """Whether members keep what they read while they join: where all assignors allow it."""
    return all(name == COOPERATIVE_STICKY.name for name in assignors)


def assignor_of(name: str) -> Assignor:
    """The one that a group has agreed on."""
    return ASSIGNORS[name]


def subscriptions_of(members: Sequence[Value]) -> dict[str, Subscription]:
    """What each member of a JoinGroup answer wants; one that cannot be read wants nothing."""
    found = {}
    for member in members:
        try:
            wanted = read_subscription(member["metadata"], member["groupInstanceId"])
        except InvalidRecord:
            wanted = Subscription(topics=(), instance_id=member["groupInstanceId"])
        found[member["memberId"]] = wanted
    return found


def assignments(
    assignor: Assignor, counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> list[Value]:
    """The ``assignments`` of a SyncGroup request."""
    assigned = assignor.assign(counts, members)
    return [
        {"memberId": member, "assignment": write_assignment(assigned.get(member, ()))}
        for member in members
    ]
