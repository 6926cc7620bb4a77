"""The assignors by their names in JoinGroup: how a consumer finds the one that its group uses."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from raylog.actors.coordinators.assignment.range_assignor import assign_range
from raylog.actors.coordinators.assignment.round_robin import assign_round_robin
from raylog.actors.coordinators.assignment.sticky import assign_cooperative_sticky, assign_sticky
from raylog.actors.coordinators.assignment.subscription import Assigned, Subscription
from raylog.actors.coordinators.assignment.user_data import (
    cooperative_user_data,
    no_user_data,
    sticky_user_data,
)
from raylog.storage.names import TopicPartition


class Assignor(NamedTuple):
    """A way to divide the partitions of topics among the members of a group.

    ``assign`` gets the number of partitions of each topic, and the members' subscriptions by member
    id. It returns the partitions of every member, sorted. A topic whose number of partitions is
    not given is left out. Equal arguments give equal results.

    ``user_data`` makes that of a member's subscription. It gets what the member owns, or owned last
    if it has given that up to join, and the generation in which it got that.
    """

    name: str
    assign: Callable[[Mapping[str, int], Mapping[str, Subscription]], Assigned]
    user_data: Callable[[Iterable[TopicPartition], int], bytes | None]


RANGE: Final = Assignor("range", assign_range, no_user_data)
ROUND_ROBIN: Final = Assignor("roundrobin", assign_round_robin, no_user_data)
STICKY: Final = Assignor("sticky", assign_sticky, sticky_user_data)
COOPERATIVE_STICKY: Final = Assignor(
    "cooperative-sticky", assign_cooperative_sticky, cooperative_user_data
)
ASSIGNORS: Final = {
    assignor.name: assignor for assignor in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY)
}
