"""What holds for all groups: with new members, with owners, and with claims that are not true."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.actors.coordinators.assignment.assignors import (
    ASSIGNORS,
    COOPERATIVE_STICKY,
    STICKY,
    Assignor,
)
from tests.unit.actors.coordinators.assignments import (
    GROUPS,
    GROUPS_OF_EQUALS,
    Drawn,
    all_of,
    assign,
    keepable,
    next_group,
    wanted,
)

EACH = pytest.mark.parametrize("assignor", ASSIGNORS.values())
EAGER = pytest.mark.parametrize(
    "assignor", [one for one in ASSIGNORS.values() if one is not COOPERATIVE_STICKY]
)


@EACH
@settings(max_examples=30)
@given(drawn=GROUPS)
def test_each_member_gets_sorted_partitions_of_its_own_topics(
    assignor: Assignor, drawn: Drawn
) -> None:
    assigned = assign(assignor, drawn.topics, drawn.members)
    assert assigned.keys() == drawn.members.keys()
    for name, share in assigned.items():
        assert list(share) == sorted(share)
        assert {partition.topic for partition in share} <= set(drawn.members[name].topics.split())


@EAGER
@settings(max_examples=30)
@given(drawn=GROUPS)
def test_each_partition_that_is_wanted_gets_one_reader(assignor: Assignor, drawn: Drawn) -> None:
    assigned = assign(assignor, drawn.topics, drawn.members)
    assert all_of(assigned) == wanted(drawn.topics, drawn.members)


@EACH
@settings(max_examples=30)
@given(drawn=GROUPS)
def test_the_order_in_which_a_group_is_told_changes_nothing(
    assignor: Assignor, drawn: Drawn
) -> None:
    topics = dict(reversed(drawn.topics.items()))
    members = {
        name: one._replace(
            topics=" ".join(reversed(one.topics.split())), owned=tuple(reversed(one.owned))
        )
        for name, one in reversed(drawn.members.items())
    }
    told = assign(assignor, drawn.topics, drawn.members)
    assert assign(assignor, topics, members) == told


@given(drawn=GROUPS_OF_EQUALS)
def test_sticky_gives_equal_members_equally_many(drawn: Drawn) -> None:
    assigned = assign(STICKY, drawn.topics, drawn.members)
    sizes = [len(share) for share in assigned.values()]
    assert max(sizes) - min(sizes) <= 1


@given(drawn=GROUPS)
def test_sticky_leaves_no_partition_whose_move_would_make_two_members_more_even(
    drawn: Drawn,
) -> None:
    assigned = assign(STICKY, drawn.topics, drawn.members)
    for share in assigned.values():
        for partition in share:
            for name, one in drawn.members.items():
                can_take = partition.topic in one.topics.split()
                assert not can_take or len(share) <= len(assigned[name]) + 1


@given(drawn=GROUPS_OF_EQUALS)
def test_sticky_moves_no_more_among_equal_members_than_balance_needs(drawn: Drawn) -> None:
    assigned = assign(STICKY, drawn.topics, drawn.members)
    owned = keepable(drawn.topics, drawn.members)
    least, larger = divmod(len(all_of(assigned)), len(assigned))
    could_keep = sum(min(len(own), least) for own in owned.values())
    could_keep += min(larger, sum(len(own) > least for own in owned.values()))
    assert sum(len(owned[name] & set(assigned[name])) for name in assigned) == could_keep


@given(drawn=GROUPS)
def test_sticky_takes_no_partition_of_a_topic_from_a_member_that_gets_another_one(
    drawn: Drawn,
) -> None:
    assigned = assign(STICKY, drawn.topics, drawn.members)
    owned = keepable(drawn.topics, drawn.members)
    for name, share in assigned.items():
        lost = {partition.topic for partition in owned[name] - set(share)}
        gained = {partition.topic for partition in set(share) - owned[name]}
        assert not lost & gained


@given(drawn=GROUPS)
def test_sticky_moves_owned_partitions_only_for_a_better_balance(drawn: Drawn) -> None:
    topics, members = drawn
    settled = next_group(members, assign(STICKY, topics, members), 4)
    fewer = {name: one for name, one in settled.items() if name != max(settled)}
    for group in (members, settled, fewer):
        owned = keepable(topics, group)
        if sum(map(len, owned.values())) < len(wanted(topics, group)):
            continue  # partitions of nobody may have made it uneven
        before = [len(own) for own in owned.values()]
        assigned = assign(STICKY, topics, group)
        after = [len(share) for share in assigned.values()]
        stays = all(own == set(assigned[name]) for name, own in owned.items())
        assert stays or unevenness(after) < unevenness(before)


def unevenness(sizes: list[int]) -> int:
    return sum(abs(one - other) for one, other in combinations(sizes, 2))


@given(drawn=GROUPS, generation=st.integers(4, 9))
def test_sticky_changes_nothing_without_a_cause(drawn: Drawn, generation: int) -> None:
    assigned = assign(STICKY, drawn.topics, drawn.members)
    again = next_group(drawn.members, assigned, generation)
    assert assign(STICKY, drawn.topics, again) == assigned


@given(drawn=GROUPS_OF_EQUALS)
def test_a_member_that_joins_equal_ones_gets_its_share_and_nothing_else_moves(
    drawn: Drawn,
) -> None:
    topics, members = drawn
    assigned = assign(STICKY, topics, members)
    newcomer = next(iter(members.values()))._replace(owned=())
    group = {**next_group(members, assigned, 4), "t": newcomer}
    grown = assign(STICKY, topics, group)
    assert len(grown["t"]) == len(all_of(assigned)) // len(group)
    assert all(set(grown[name]) <= set(assigned[name]) for name in members)


@given(drawn=GROUPS_OF_EQUALS)
def test_a_member_that_leaves_equal_ones_makes_only_its_own_partitions_move(
    drawn: Drawn,
) -> None:
    topics, members = drawn
    assigned = assign(STICKY, topics, members)
    rest = {name: one for name, one in members.items() if name != min(members)}
    shrunk = assign(STICKY, topics, next_group(rest, assigned, 4))
    assert all(set(assigned[name]) <= set(shrunk[name]) for name in rest)
