"""What members tell each other about assignments, to the byte, as Kafka's clients write it."""

import pytest

from raylog.actors.coordinators.assignment.assignors import (
    ASSIGNORS,
    COOPERATIVE_STICKY,
    RANGE,
    ROUND_ROBIN,
    STICKY,
)
from raylog.actors.coordinators.assignment.ownership import Claim
from raylog.actors.coordinators.assignment.subscription import (
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from raylog.actors.coordinators.assignment.user_data import cooperative_claim, sticky_claim
from raylog.storage.errors import InvalidRecord
from raylog.storage.names import TopicPartition
from tests.unit.actors.coordinators.assignments import partitions

FULL = Subscription(
    topics=("a", "t"), owned=partitions("t-0,2"), generation=7, user_data=None, rack="r1"
)
FULL_BYTES = bytes.fromhex(
    "0003 00000002 000161 000174 ffffffff"
    "00000001 000174 00000002 00000000 00000002 00000007 0002 7231"
)
ASSIGNED_BYTES = bytes.fromhex("0003 00000001 000174 00000002 00000000 00000001 ffffffff")
STICKY_BYTES = bytes.fromhex("00000001 000174 00000002 00000000 00000001 00000005")
GENERATION_5 = bytes.fromhex("00000005")


@pytest.mark.parametrize(
    "content",
    [
        "0000 00000001 000174 ffffffff",
        "0001 00000001 000174 ffffffff 00000000",
        "0002 00000001 000174 ffffffff 00000000 ffffffff",
        "0003 00000001 000174 ffffffff 00000000 ffffffff ffff",
        "0009 00000001 000174 ffffffff 00000000 ffffffff ffff 1234",  # of a later Kafka
    ],
)
def test_a_subscription_of_every_version_is_read(content: str) -> None:
    assert read_subscription(bytes.fromhex(content)) == Subscription(topics=("t",))


def test_a_subscription_is_written_as_the_last_version_known() -> None:
    assert write_subscription(FULL) == FULL_BYTES
    assert read_subscription(FULL_BYTES) == FULL
    plain = "0003 00000001 000174 ffffffff 00000000 ffffffff ffff"
    assert write_subscription(Subscription(("t",))) == bytes.fromhex(plain)


def test_user_data_and_instance_id_come_with_the_subscription() -> None:
    content = write_subscription(FULL._replace(user_data=b"data"))
    member = read_subscription(content, instance_id="i1")
    assert (member.user_data, member.instance_id) == (b"data", "i1")


def test_equal_subscriptions_are_equal_bytes_in_whatever_order() -> None:
    same = FULL._replace(topics=("t", "a", "t"), owned=partitions("t-2,0,2"))
    assert write_subscription(same) == FULL_BYTES


@pytest.mark.parametrize(
    "content",
    [
        "0000 00000001 000174 00000002 00000000 00000001 ffffffff",
        "0001 00000001 000174 00000002 00000000 00000001 ffffffff",
        "0003 00000001 000174 00000002 00000000 00000001 ffffffff",
        "0009 00000001 000174 00000002 00000000 00000001 ffffffff 1234",
    ],
)
def test_an_assignment_of_every_version_is_read(content: str) -> None:
    assert read_assignment(bytes.fromhex(content)) == Assignment(partitions("t-0,1"))


def test_an_assignment_is_written_sorted_as_the_last_version_known() -> None:
    assert write_assignment(partitions("t-1,0")) == ASSIGNED_BYTES
    assert write_assignment(partitions("t-1 a-3 t-0")) == write_assignment(partitions("a-3 t-0,1"))
    assert read_assignment(write_assignment((), b"data")) == Assignment((), b"data")


@pytest.mark.parametrize("content", ["", "0000 00000000 ffffffff"])
def test_a_member_that_the_leader_left_out_has_nothing(content: str) -> None:
    assert read_assignment(bytes.fromhex(content)) == Assignment(())


def test_bytes_of_a_negative_version_or_cut_short_are_refused() -> None:
    with pytest.raises(InvalidRecord):
        read_subscription(b"\xff\xff")
    with pytest.raises(InvalidRecord):
        read_subscription(b"")
    with pytest.raises(InvalidRecord):
        read_assignment(ASSIGNED_BYTES[:-1])


def test_assignors_have_kafkas_names() -> None:
    assert list(ASSIGNORS) == ["range", "roundrobin", "sticky", "cooperative-sticky"]
    assert all(name == assignor.name for name, assignor in ASSIGNORS.items())


def test_what_a_member_remembers_for_its_assignor() -> None:
    owned = partitions("t-1,0")
    assert RANGE.user_data(owned, 5) is None
    assert ROUND_ROBIN.user_data(owned, 5) is None
    assert STICKY.user_data(owned, 5) == STICKY_BYTES
    assert COOPERATIVE_STICKY.user_data(owned, 5) == GENERATION_5


@pytest.mark.parametrize(
    ("user_data", "claim"),
    [
        (STICKY_BYTES, Claim(partitions("t-0,1"), 5)),
        (STICKY_BYTES[:-4], Claim(partitions("t-0,1"), -1)),  # version 0
        (None, Claim((), -1)),
        (b"", Claim((), -1)),
        (b"other", Claim((), -1)),
    ],
)
def test_sticky_claims_what_its_user_data_says_alone(user_data: bytes, claim: Claim) -> None:
    owned = (TopicPartition("u", 0),)
    member = Subscription(("t",), owned=owned, generation=9, user_data=user_data)
    assert sticky_claim(member) == claim


@pytest.mark.parametrize(
    ("generation", "user_data", "claimed"),
    [
        (7, GENERATION_5, 7),
        (0, GENERATION_5, 0),
        (-1, GENERATION_5, 5),  # a subscription of a version without generation
        (-1, None, -1),
        (-1, b"bad", -1),
    ],
)
def test_cooperative_claims_the_owned_field_and_the_generation_there_is(
    generation: int, user_data: bytes | None, claimed: int
) -> None:
    member = Subscription(("t",), partitions("t-0,1"), generation, user_data)
    assert cooperative_claim(member) == Claim(partitions("t-0,1"), claimed)
