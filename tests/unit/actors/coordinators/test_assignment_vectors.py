"""Small groups and their assignments, as Kafka's own assignors make them."""

import pytest

from raylog.actors.coordinators.assignment.assignors import (
    ASSIGNORS,
    COOPERATIVE_STICKY,
    RANGE,
    ROUND_ROBIN,
    STICKY,
    Assignor,
)
from raylog.actors.coordinators.assignment.subscription import Assigned, Subscription
from tests.unit.actors.coordinators.assignments import (
    Member,
    assign,
    counts,
    expected,
    group,
    member,
    next_group,
    partitions,
)

DIFFERING = {"c1": member("t1"), "c2": member("t1 t2"), "c3": member("t1")}
BOTH_STICKY = pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE_STICKY])


@pytest.mark.parametrize(
    ("topics", "members", "assigned"),
    [
        (
            "t1=3 t2=3",
            group("t1 t2", c1="", c2=""),
            expected(c1="t1-0,1 t2-0,1", c2="t1-2 t2-2"),
        ),
        ("t1=3 t2=2", DIFFERING, expected(c1="t1-0", c2="t1-1 t2-0,1", c3="t1-2")),
        (
            "t1=6 t2=7 t3=2",
            group("t1 t2 t3", c0="", c1="", c2=""),
            expected(c0="t1-0,1 t2-0,1,2 t3-0", c1="t1-2,3 t2-3,4 t3-1", c2="t1-4,5 t2-5,6"),
        ),
    ],
)
def test_range_gives_runs_of_each_topic(
    topics: str, members: dict[str, Member], assigned: Assigned
) -> None:
    assert assign(RANGE, counts(topics), members) == assigned


@pytest.mark.parametrize(
    ("topics", "members", "assigned"),
    [
        (
            "t1=3 t2=3",
            group("t1 t2", c1="", c2=""),
            expected(c1="t1-0,2 t2-1", c2="t1-1 t2-0,2"),
        ),
        ("t1=3 t2=2", DIFFERING, expected(c1="t1-0", c2="t1-1 t2-0,1", c3="t1-2")),
    ],
)
def test_roundrobin_deals_to_each_in_turn(
    topics: str, members: dict[str, Member], assigned: Assigned
) -> None:
    assert assign(ROUND_ROBIN, counts(topics), members) == assigned


@pytest.mark.parametrize(
    ("assignor", "topics", "places", "assigned"),
    [
        (
            RANGE,
            "t1=5 t2=4",
            ["i1", "i2", "i3", "dynamic"],
            ["t1-0,1 t2-0", "t1-2 t2-1", "t1-3 t2-2", "t1-4 t2-3"],
        ),
        (
            RANGE,
            "t1=5 t2=5",
            ["i1", "i2", "i3"],
            ["t1-0,1 t2-0,1", "t1-2,3 t2-2,3", "t1-4 t2-4"],
        ),
        (
            ROUND_ROBIN,
            "t1=3 t2=3",
            ["i1", "i2", "i3", "dynamic"],
            ["t1-0 t2-1", "t1-1 t2-2", "t1-2", "t2-0"],
        ),
        (
            ROUND_ROBIN,
            "t1=5 t2=5",
            ["i1", "i2", "i3"],
            ["t1-0,3 t2-1,4", "t1-1,4 t2-2", "t1-2 t2-0,3"],
        ),
    ],
)
def test_static_members_come_first_and_keep_their_place_under_new_member_ids(
    assignor: Assignor, topics: str, places: list[str], assigned: list[str]
) -> None:
    for ids in ("abcd", "dcba", "bdac"):
        members = {
            member_id: Subscription(("t1", "t2"), instance_id=None if at == "dynamic" else at)
            for member_id, at in zip(ids, places, strict=False)
        }
        shares = [partitions(text) for text in assigned]
        assert assignor.assign(counts(topics), members) == dict(zip(ids, shares, strict=False))


def test_static_members_are_in_the_order_of_their_instance_ids() -> None:
    members = {
        "consumer-b": Subscription(("t",), instance_id="instance1"),
        "consumer-a": Subscription(("t",), instance_id="instance2"),
    }
    for assignor in (RANGE, ROUND_ROBIN):
        assigned = assignor.assign({"t": 1}, members)
        assert assigned == {"consumer-b": partitions("t-0"), "consumer-a": ()}


@BOTH_STICKY
@pytest.mark.parametrize(
    ("topics", "members", "assigned"),
    [
        ("t1=3 t2=2", DIFFERING, expected(c1="t1-0,2", c2="t2-0,1", c3="t1-1")),
        (
            "t1=3 t2=3",
            group("t1 t2", c1="", c2=""),
            expected(c1="t1-0,2 t2-1", c2="t1-1 t2-0,2"),
        ),
        (
            "t1=2 t2=3",
            group("t1 t2", c1="t1-0 t2-1", c2="t1-1 t2-2"),
            expected(c1="t1-0 t2-0,1", c2="t1-1 t2-2"),
        ),
        (
            "t1=2 t2=3",
            group("t1 t2", c1="t1-0", c2="t1-1", c3=""),
            expected(c1="t1-0 t2-1", c2="t1-1 t2-2", c3="t2-0"),
        ),
        (
            "t=4",
            group("t", c1="t-0,1", c2="t-2", c3=""),
            expected(c1="t-0,1", c2="t-2", c3="t-3"),
        ),
    ],
)
def test_sticky_keeps_what_members_own_and_adds_what_nobody_owns(
    assignor: Assignor, topics: str, members: dict[str, Member], assigned: Assigned
) -> None:
    assert assign(assignor, counts(topics), members) == assigned


def test_a_new_member_gets_what_others_have_too_much() -> None:
    members = group("t", c1="t-0,1,2", c2="")
    assert assign(STICKY, {"t": 3}, members) == expected(c1="t-0,1", c2="t-2")
    assert assign(COOPERATIVE_STICKY, {"t": 3}, members) == expected(c1="t-0,1", c2="")


def test_of_two_members_one_keeps_two_partitions_and_the_other_gives_one_to_a_third() -> None:
    members = group("t1 t2", c1="t1-0 t2-0", c2="t1-1 t2-1", c3="")
    topics = counts("t1=2 t2=2")
    assigned = assign(STICKY, topics, members)
    assert sorted([len(assigned["c1"]), len(assigned["c2"])]) == [1, 2]
    (moved,) = assigned["c3"]
    assert moved.topic == "t2", "each of the two keeps its partition of t1"
    first_round = assign(COOPERATIVE_STICKY, topics, members)
    assert first_round == {**assigned, "c3": ()}
    again = next_group(members, first_round, 2)
    assert assign(COOPERATIVE_STICKY, topics, again) == assigned


def test_a_group_that_grows_and_shrinks() -> None:
    topics = counts("t1=3 t2=4")
    members = group("t1 t2", c1="", c2="")
    assigned = assign(STICKY, topics, members)
    assert assigned == expected(c1="t1-0,2 t2-1,3", c2="t1-1 t2-0,2")

    joined = {**next_group(members, assigned, 1), **group("t1 t2", c3="", c4="")}
    assigned = assign(STICKY, topics, joined)
    assert assigned == expected(c1="t1-0 t2-1", c2="t1-1 t2-0", c3="t1-2 t2-3", c4="t2-2")

    rest = next_group({name: joined[name] for name in ("c3", "c4")}, assigned, 2)
    assigned = assign(STICKY, topics, rest)
    assert assigned == expected(c3="t1-0,2 t2-1,3", c4="t1-1 t2-0,2")


def test_two_claims_of_the_same_generation_are_both_void() -> None:
    members = group("t", c1="t-0,1", c2="t-0,2", c3="")
    assert assign(STICKY, {"t": 3}, members) == expected(c1="t-1", c2="t-2", c3="t-0")
    assert assign(COOPERATIVE_STICKY, {"t": 3}, members) == expected(c1="t-1", c2="t-2", c3="")


@BOTH_STICKY
def test_of_two_claims_the_newer_one_counts_and_the_older_member_keeps_the_rest(
    assignor: Assignor,
) -> None:
    for newer, older in (("c1", "c2"), ("c2", "c1")):
        members = {
            newer: member("t", "t-0,1", generation=5),
            older: member("t", "t-1,2", generation=4),
        }
        assigned = assign(assignor, {"t": 4}, members)
        assert assigned == expected(**{newer: "t-0,1", older: "t-2,3"})


@BOTH_STICKY
def test_partitions_of_nobody_move_before_those_that_somebody_must_give_up(
    assignor: Assignor,
) -> None:
    members = {
        "u": member("b c"),
        "v": member("a c", "a-0 c-2"),
        "w": member("a b", "a-1"),
    }
    assigned = assign(assignor, counts("a=2 b=2 c=3"), members)
    assert assigned == expected(u="b-1 c-0", v="a-0 c-1,2", w="a-1 b-0")


def test_members_pass_partitions_on_until_all_are_even() -> None:
    """x can give to y only after y has given to z, though topic a has its turn before b."""
    members = {"x": member("a", "a-0,1,2,3"), "y": member("a b", "b-0,1,2,3"), "z": member("b")}
    assigned = assign(STICKY, counts("a=4 b=4"), members)
    assert assigned == expected(x="a-0,1,2", y="a-3 b-0,1", z="b-2,3")


@pytest.mark.parametrize(
    ("count", "claims", "assigned"),
    [
        (2, [("t-0,1", 3), ("", 0), ("t-0", 2)], ["t-1", "", "t-0"]),
        (2, [("t-0,1", 3), ("t-0", 1), ("t-0", 2)], ["t-1", "", "t-0"]),
        (2, [("t-0,1", 3), ("t-0", 2), ("t-0", 1)], ["t-1", "t-0", ""]),
        (4, [("t-0,1,2,3", 3), ("t-3", 2), ("", 0)], ["t-0,1", "t-3", "t-2"]),
        # Balance needs no move, so an earlier owner gets nothing back.
        (2, [("t-0", 3), ("t-0", 2), ("", 0)], ["t-0", "t-1", ""]),
        (1, [("t-0", 3), ("t-0", 2), ("", 0)], ["t-0", "", ""]),
    ],
)
def test_what_a_member_must_give_up_goes_to_the_latest_of_its_earlier_owners(
    count: int, claims: list[tuple[str, int]], assigned: list[str]
) -> None:
    """Of members c, a and z; a comes before z where both have equally few."""
    members = {name: member("t", *claim) for name, claim in zip("caz", claims, strict=True)}
    members["other"] = member("u")
    shares = dict(zip("caz", assigned, strict=True))
    assert assign(STICKY, {"t": count, "u": 1}, members) == expected(**shares, other="u-0")


@pytest.mark.parametrize("assignor", ASSIGNORS.values())
def test_a_topic_that_a_member_names_twice_counts_once(assignor: Assignor) -> None:
    members = {"c1": member("t t"), "c2": member("t")}
    assert assign(assignor, {"t": 2}, members) == expected(c1="t-0", c2="t-1")


@pytest.mark.parametrize("assignor", ASSIGNORS.values())
def test_topics_without_partitions_or_subscribers_are_left_out(assignor: Assignor) -> None:
    topics = counts("t=2 empty=0 other=3")
    members = {"c1": member("t empty unknown"), "c2": member("t empty")}
    assert assign(assignor, topics, members) == expected(c1="t-0", c2="t-1")
    assert assign(assignor, {}, members) == expected(c1="", c2="")
    assert assign(assignor, topics, {"c1": member("")}) == expected(c1="")
