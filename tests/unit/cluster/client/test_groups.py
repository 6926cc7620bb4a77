"""Groups for administrators: what is told, what is moved, what is refused."""

from datetime import UTC, datetime

import pytest

from raylog.actors.coordinators.errors import GroupNotEmpty, GroupNotFound, GroupSubscribed
from raylog.actors.coordinators.group_messages import CommitRequest, Identity, OffsetToCommit
from raylog.actors.coordinators.log_record import Producer
from raylog.actors.errors import InvalidRequest, UnknownTopicOrPartition
from raylog.cluster.client.consumer.consumer import Consumer
from raylog.cluster.client.groups import Groups, ListedGroup
from raylog.storage.names import TopicPartition
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import batch
from tests.harness.consuming import ManualWaiter
from tests.harness.grouping import GroupBroker

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def broker() -> GroupBroker:
    """Ten records in each of two partitions."""
    made = GroupBroker(t=2)
    for served in made.topics["t"]:
        served.partition.append(batch(10))
    return made


def groups(broker: GroupBroker) -> Groups:
    return Groups(broker, waiter=ManualWaiter(broker))  # type: ignore[arg-type]


def read(consumer: Consumer) -> None:
    for _ in range(20):
        consumer.poll(200)


@pytest.fixture
def member(broker: GroupBroker) -> Consumer:
    """It has read all, and committed it."""
    made = broker.member("t", from_="earliest")
    read(made)
    made.commit()
    return made


def test_before_the_first_group_there_is_none(broker: GroupBroker) -> None:
    assert groups(broker).list_groups() == []
    for ask in (groups(broker).describe, groups(broker).offsets, groups(broker).delete):
        with pytest.raises(GroupNotFound, match="nobody"):
            ask("nobody")


def test_a_group_is_told_with_its_members_and_its_lag(
    broker: GroupBroker, member: Consumer
) -> None:
    assert groups(broker).list_groups() == [ListedGroup("g", "Stable", "consumer")]
    found = groups(broker).describe("g")
    assert (found.state, found.assignor) == ("Stable", "cooperative-sticky")
    (one,) = found.members
    assert one.member_id == member.group_metadata().member_id
    assert one.partitions == (ZERO, ONE)
    broker.topics["t"][0].partition.append(batch(3))
    offsets = groups(broker).offsets("g")
    assert [(each.partition, each.committed.offset, each.lag) for each in offsets] == [
        (ZERO, 10, 3),
        (ONE, 10, 0),
    ]
    with pytest.raises(GroupNotFound):
        groups(broker).describe("other")
    with pytest.raises(GroupNotFound):
        groups(broker).offsets("other")


def test_what_a_transaction_holds_is_told_as_it_was_before(
    broker: GroupBroker, member: Consumer
) -> None:
    """A group that copies exactly once is nearly always in one."""
    member.close()
    held = (OffsetToCommit(ZERO, 11), OffsetToCommit(ONE, 12))
    broker.coordinator.ask(CommitRequest(Identity("g", ""), held, producer=Producer(7, 0)))
    offsets = groups(broker).offsets("g")
    assert [(each.partition, each.committed.offset) for each in offsets] == [(ZERO, 10), (ONE, 10)]
    assert {each: at.offset for each, at in groups(broker).seek("g", shift=-3).items()} == {
        ZERO: 7,
        ONE: 7,
    }


def test_the_lag_of_a_topic_that_is_gone_is_not_known(
    broker: GroupBroker, member: Consumer
) -> None:
    member.close()
    del broker.topics["t"]
    assert [each.lag for each in groups(broker).offsets("g")] == [None, None]


def test_a_group_without_members_is_moved(broker: GroupBroker, member: Consumer) -> None:
    with pytest.raises(GroupNotEmpty, match="has members"):
        groups(broker).seek("g", "earliest")
    member.close()
    admin = groups(broker)

    def stands() -> list[int]:
        return [each.committed.offset for each in admin.offsets("g")]

    assert {at.offset for at in admin.seek("g", "earliest", validate_only=True).values()} == {0}
    assert stands() == [10, 10]
    admin.seek("g", "earliest")
    assert stands() == [0, 0]
    admin.seek("g", shift=3, partitions=[ZERO])
    assert stands() == [3, 0]
    admin.seek("g", shift=-5)
    assert stands() == [0, 0]
    admin.seek("g", "latest")
    assert stands() == [10, 10]
    admin.seek("g", {ZERO: 4, ONE: 99})
    assert stands() == [4, 10]
    admin.seek("g", T0)
    assert stands() == [0, 0]
    admin.seek("g", datetime(2100, 1, 1, tzinfo=UTC))
    assert stands() == [10, 10]


def test_a_new_group_is_made_by_its_first_place(broker: GroupBroker) -> None:
    admin = groups(broker)
    admin.seek("new", {ZERO: 4})
    assert [each.committed.offset for each in admin.offsets("new")] == [4]
    admin.seek("newer", "latest", partitions=admin.partitions("t"))
    assert [each.committed.offset for each in admin.offsets("newer")] == [10, 10]


def test_what_cannot_be_moved_says_why(broker: GroupBroker, member: Consumer) -> None:
    member.close()
    admin = groups(broker)
    with pytest.raises(InvalidRequest, match="one of them"):
        admin.seek("g")
    with pytest.raises(InvalidRequest, match="one of them"):
        admin.seek("g", "latest", shift=1)
    with pytest.raises(InvalidRequest, match="earliest"):
        admin.seek("g", "newest")
    with pytest.raises(UnknownTopicOrPartition):
        admin.seek("g", {("u", 0): 1})
    with pytest.raises(UnknownTopicOrPartition, match="from where to shift"):
        admin.seek("g", shift=1, partitions=[("t", 7)])
    with pytest.raises(GroupNotFound):
        admin.seek("other", "latest")


def test_a_group_is_deleted_once_it_has_no_members(broker: GroupBroker, member: Consumer) -> None:
    admin = groups(broker)
    with pytest.raises(GroupNotEmpty):
        admin.delete("g")
    with pytest.raises(GroupSubscribed, match="t-0"):
        admin.delete_offsets("g", [ZERO])
    member.close()
    admin.delete_offsets("g", [ZERO])
    assert [each.partition for each in admin.offsets("g")] == [ONE]
    admin.delete("g")
    assert admin.list_groups() == []


@pytest.mark.parametrize("api", ["ListGroups", "DescribeGroups", "OffsetFetch", "DeleteGroups"])
def test_a_coordinator_that_loads_is_asked_again(
    broker: GroupBroker, member: Consumer, api: str
) -> None:
    member.close()
    broker.codes[api] = [14, 15]
    admin = groups(broker)
    assert len(admin.list_groups()) == 1
    assert admin.describe("g").members == ()
    assert len(admin.offsets("g")) == 2
    admin.delete("g")
    assert not broker.codes[api]
