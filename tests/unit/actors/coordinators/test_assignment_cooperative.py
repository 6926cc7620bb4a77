"""Consumers of cooperative-sticky go on reading through a rebalance, and no two read the same."""

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.coordinators.assignment.assignors import COOPERATIVE_STICKY, STICKY
from raylog.actors.coordinators.assignment.subscription import Assigned
from raylog.storage.names import TopicPartition
from tests.unit.actors.coordinators.assignments import (
    GROUPS,
    Drawn,
    Group,
    all_of,
    assign,
    group,
    next_group,
    owner,
    partitions,
    wanted,
)

MAX_ROUNDS = 4  # Kafka's own bound, after one change of a group


@given(drawn=GROUPS)
def test_a_partition_is_withheld_only_while_somebody_else_has_it(drawn: Drawn) -> None:
    """Eager members who remember the same give up everything: what they get is the plan."""
    plan = assign(STICKY, drawn.topics, drawn.members)
    assigned = assign(COOPERATIVE_STICKY, drawn.topics, drawn.members)
    for name, share in plan.items():
        free = [entry for entry in share if is_free_for(name, entry, drawn.members)]
        assert list(assigned[name]) == free


def is_free_for(name: str, partition: TopicPartition, members: Group) -> bool:
    is_claimed = any(partition in one.owned for one in members.values())
    return not is_claimed or owner(partition, members) == name


@given(drawn=st.lists(GROUPS, min_size=1, max_size=4))
def test_a_group_comes_to_rest_soon_after_each_change(drawn: list[Drawn]) -> None:
    reading: Assigned = {}
    generation = 0
    for topics, members in drawn:
        reading = {name: still_read(name, reading, topics, members) for name in members}
        for _ in range(MAX_ROUNDS):
            generation += 1
            before = reading
            reading = assign(
                COOPERATIVE_STICKY, topics, next_group(members, before, generation - 1)
            )
            check_hand_over(before, reading)
            if all(set(before[name]) <= set(reading[name]) for name in members):
                break  # nobody gives anything up, so nobody joins again
        assert all_of(reading) == wanted(topics, members)
        settled = next_group(members, reading, generation)
        assert assign(COOPERATIVE_STICKY, topics, settled) == reading


def still_read(
    name: str, reading: Assigned, topics: dict[str, int], members: Group
) -> tuple[TopicPartition, ...]:
    """A consumer gives up topics that are gone, or that it does not want, before it joins."""
    return tuple(
        partition
        for partition in reading.get(name, ())
        if partition.topic in members[name].topics.split()
        and partition.partition < topics.get(partition.topic, 0)
    )


def check_hand_over(before: Assigned, after: Assigned) -> None:
    """Nobody gets a partition in the generation in which another one loses it."""
    readers = {partition: name for name, share in before.items() for partition in share}
    for name, share in after.items():
        assert all(readers.get(partition, name) == name for partition in share)


def test_two_who_read_the_same_partition_both_give_it_up_before_one_gets_it() -> None:
    members = group("t", c1="t-0,1", c2="t-0,2")
    assigned = assign(COOPERATIVE_STICKY, {"t": 3}, members)
    assert assigned == {"c1": partitions("t-1"), "c2": partitions("t-2")}
    assigned = assign(COOPERATIVE_STICKY, {"t": 3}, next_group(members, assigned, 2))
    assert all_of(assigned) == list(partitions("t-0,1,2"))
