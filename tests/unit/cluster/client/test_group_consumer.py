"""What a consumer in a group promises: each record to one member, nothing skipped, nothing lost."""

import logging
import sys
from contextlib import suppress
from itertools import chain
from typing import Any

import pytest

from raylog.actors.coordinators.errors import (
    CommitFailed,
    FencedInstanceId,
    RebalanceInProgress,
)
from raylog.actors.errors import ActorAway, ConsumerClosed, InvalidRequest, UnknownTopicOrPartition
from raylog.cluster.client.consumer.consumer import Consumer
from raylog.cluster.client.consumer.group.messages import GroupMetadata, OffsetAndMetadata
from raylog.storage.errors import InvalidConfig
from raylog.storage.names import TopicPartition
from raylog.storage.records.record import ConsumerRecord
from raylog.storage.testing.logs import batch
from tests.harness.grouping import GroupBroker

MOST_ROUNDS = 200


@pytest.fixture
def broker() -> GroupBroker:
    return GroupBroker(t=4)


def append(broker: GroupBroker, number: int, count: int, topic: str = "t") -> None:
    broker.topics[topic][number].partition.append(batch(count))


def partitions(*consumers: Consumer) -> list[list[int]]:
    """Which each of them has."""
    return [sorted(each.partition for each in one.assignment) for one in consumers]


def settle(*consumers: Consumer) -> list[ConsumerRecord]:
    """Poll all in turn until each knows its share; what they read meanwhile."""
    found: list[ConsumerRecord] = []
    quiet = 0
    for _ in range(MOST_ROUNDS):
        before = [one.assignment for one in consumers], [one.group_metadata() for one in consumers]
        for one in consumers:
            found += one.poll(200)
        after = [one.assignment for one in consumers], [one.group_metadata() for one in consumers]
        quiet = quiet + 1 if before == after else 0
        if quiet == 20:
            return found
    raise AssertionError(f"they do not settle: {partitions(*consumers)}")


def values(records: list[ConsumerRecord]) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for record in records)


def everything(broker: GroupBroker, topic: str = "t") -> list[tuple[int, int]]:
    return [
        (number, offset)
        for number, served in enumerate(broker.topics[topic])
        for offset in range(served.partition.log.log_end_offset)
    ]


def test_members_share_the_partitions_and_read_each_record_once(broker: GroupBroker) -> None:
    for number in range(4):
        append(broker, number, 10)
    one = broker.member("t", from_="earliest")
    found = settle(one)
    assert partitions(one) == [[0, 1, 2, 3]]
    other = broker.member("t", from_="earliest")
    found += settle(one, other)
    assert sorted(len(share) for share in partitions(one, other)) == [2, 2]
    assert sorted(chain(*partitions(one, other))) == [0, 1, 2, 3]
    for number in range(4):
        append(broker, number, 10)
    found += settle(one, other)
    assert values(found) == everything(broker)
    other.close()
    found += settle(one)
    assert partitions(one) == [[0, 1, 2, 3]]
    for number in range(4):
        append(broker, number, 10)
    found += settle(one)
    assert values(found) == everything(broker)


def test_a_group_goes_on_where_it_has_committed(broker: GroupBroker) -> None:
    append(broker, 0, 10)
    with broker.member("t", from_="earliest") as first:
        assert len(settle(first)) == 10
        assert first.committed() == dict.fromkeys(
            [TopicPartition("t", number) for number in range(4)]
        )
    append(broker, 0, 5)
    second = broker.member("t", from_="earliest")
    assert [record.offset for record in settle(second)] == list(range(10, 15))


def test_offsets_are_committed_by_themselves_in_the_next_poll(broker: GroupBroker) -> None:
    append(broker, 0, 10)
    consumer = broker.member("t", from_="earliest", auto_commit_interval_ms=5000)
    polled: list[ConsumerRecord] = []
    while not polled:
        polled = consumer.poll(1000)
    place = TopicPartition("t", 0)
    assert consumer.committed([place]) == {place: None}
    broker.idle(6)
    assert consumer.committed([place]) == {place: None}, "nobody polled: the user still has them"
    consumer.poll(10)
    at = consumer.committed([place])[place]
    assert at is not None
    assert at.offset == 10


def test_a_with_block_that_ends_by_an_error_commits_nothing(broker: GroupBroker) -> None:
    append(broker, 0, 10)
    consumer = broker.member("t", from_="earliest")

    def work() -> None:
        with consumer:
            for _ in consumer:
                raise KeyError("the record cannot be handled")

    with pytest.raises(KeyError):
        work()
    again = broker.member("t", from_="earliest")
    assert [record.offset for record in settle(again)] == list(range(10))


@pytest.mark.parametrize("from_", ["earliest", "latest"])
def test_what_was_read_since_the_last_commit_is_read_again(broker: GroupBroker, from_: str) -> None:
    append(broker, 0, 10)
    consumer = broker.member("t", from_=from_, enable_auto_commit=False)
    first = 0 if from_ == "earliest" else 10
    settle(consumer)
    append(broker, 0, 10)
    append(broker, 1, 5)
    settle(consumer)
    consumer.seek_to_committed()
    again = settle(consumer)
    assert sorted(values(again)) == [(0, at) for at in range(first, 20)] + [
        (1, at) for at in range(5)
    ]
    consumer.commit({("t", 0): 15})
    consumer.seek_to_committed(("t", 0))
    assert values(settle(consumer)) == [(0, at) for at in range(15, 20)]
    consumer.seek("t", 1, 3)
    settle(consumer)
    consumer.seek_to_committed(("t", 1))
    assert values(settle(consumer)) == [(1, 3), (1, 4)]


def test_what_is_stored_is_forgotten_by_who_reads_it_again(broker: GroupBroker) -> None:
    append(broker, 0, 10)
    consumer = broker.member("t", from_="earliest", enable_auto_offset_store=False)
    consumer.store_offsets(settle(consumer))
    consumer.seek_to_committed()
    assert consumer.commit() == {}
    assert len(settle(consumer)) == 10


def test_who_has_nothing_to_commit_need_not_be_a_member(broker: GroupBroker) -> None:
    consumer = broker.member("t")
    assert consumer.commit() == {}
    assert consumer.commit_async().result(0) == {}
    assert not broker.asked


def test_a_commit_covers_what_was_handed_out_or_yielded(broker: GroupBroker) -> None:
    append(broker, 0, 10)
    consumer = broker.member("t", from_="earliest", enable_auto_commit=False)
    place = TopicPartition("t", 0)
    for record in consumer:
        if record.offset == 3:
            assert consumer.commit()[place].offset == 4
            break
    assert settle(consumer) != []
    assert consumer.commit()[place].offset == 10
    assert consumer.commit(record)[place] == OffsetAndMetadata(4)
    assert consumer.commit({place: (7, 0)}) == {place: OffsetAndMetadata(7, "", 0)}
    noted = OffsetAndMetadata(5, "half of it", 0)
    assert consumer.commit({place: noted}) == {place: noted}
    assert consumer.committed([place]) == {place: noted}
    assert consumer.commit_async({place: 6}).result(0)[place].offset == 6
    consumer.close()
    assert settle(broker.member("t"))[0].offset == 6


def test_without_auto_commit_nothing_is_committed(broker: GroupBroker) -> None:
    append(broker, 0, 10)
    with broker.member("t", from_="earliest", enable_auto_commit=False) as consumer:
        settle(consumer)
        broker.idle(20)
        settle(consumer)
    assert "OffsetCommit" not in dict(broker.asked)


def test_only_stored_offsets_are_committed_where_the_user_stores_them(broker: GroupBroker) -> None:
    append(broker, 0, 10)
    append(broker, 1, 10)
    with broker.member("t", from_="earliest", enable_auto_offset_store=False) as consumer:
        found = settle(consumer)
        consumer.store_offsets(record for record in found if record.offset < 5)
        with pytest.raises(UnknownTopicOrPartition, match="not assigned"):
            consumer.store_offsets({("t", 9): 1})
    again = broker.member("t", from_="earliest")
    rest = [(number, offset) for number in (0, 1) for offset in range(5, 10)]
    assert values(settle(again)) == rest
    with pytest.raises(InvalidConfig, match=r"enable\.auto\.offset\.store"):
        again.store_offsets({("t", 0): 1})


# -- rebalances ------------------------------------------------------------------------------------


class Heard:
    """What a user's functions were called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    def _hear(self, what: str) -> Any:
        return lambda _, some: self.calls.append((what, [each.partition for each in some]))

    @property
    def listeners(self) -> dict[str, Any]:
        return {f"on_{what}": self._hear(what) for what in ("assign", "revoke", "lost")}


def test_cooperative_members_keep_what_stays_theirs(broker: GroupBroker) -> None:
    heard = Heard()
    one = broker.member()
    one.subscribe("t", **heard.listeners)
    settle(one)
    assert heard.calls == [("assign", [0, 1, 2, 3])]
    other = broker.member("t")
    settle(one, other)
    kept, moved = partitions(one, other)
    revocations = [some for what, some in heard.calls if what == "revoke"]
    assert revocations == [moved]
    assert set(kept) | set(moved) == {0, 1, 2, 3}
    one.close()
    assert heard.calls[-1] == ("revoke", kept)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
def test_eager_members_give_everything_up_first(broker: GroupBroker, assignor: str) -> None:
    heard = Heard()
    one = broker.member(partition_assignment_strategy=assignor)
    one.subscribe(["t"], **heard.listeners)
    settle(one)
    other = broker.member("t", partition_assignment_strategy=[assignor])
    settle(one, other)
    mine, others = partitions(one, other)
    assert heard.calls == [
        ("assign", [0, 1, 2, 3]),
        ("revoke", [0, 1, 2, 3]),
        ("assign", mine),
    ]
    assert sorted(mine + others) == [0, 1, 2, 3]


def test_what_is_read_is_committed_before_another_member_gets_the_partition(
    broker: GroupBroker,
) -> None:
    for number in range(4):
        append(broker, number, 10)
    one = broker.member("t", from_="earliest", auto_commit_interval_ms=3_600_000)
    assert len(settle(one)) == 40
    other = broker.member("t", from_="earliest", auto_commit_interval_ms=3_600_000)
    assert settle(one, other) == []


def test_a_user_commits_in_on_revoke(broker: GroupBroker) -> None:
    for number in range(4):
        append(broker, number, 10)

    def on_revoke(consumer: Consumer, gone: list[TopicPartition]) -> None:
        consumer.commit({each: consumer.position(*each) for each in gone})

    one = broker.member(enable_auto_commit=False)
    one.subscribe("t", from_="earliest", on_revoke=on_revoke)
    assert len(settle(one)) == 40
    other = broker.member("t", from_="earliest", enable_auto_commit=False)
    assert settle(one, other) == []


def test_a_user_commits_in_on_revoke_while_it_is_closed(broker: GroupBroker) -> None:
    append(broker, 0, 10)
    consumer = broker.member(enable_auto_commit=False)
    consumer.subscribe("t", from_="earliest", on_revoke=lambda one, _: one.commit())
    assert len(settle(consumer)) == 10
    consumer.close()
    with pytest.raises(ConsumerClosed):
        consumer.commit()
    assert settle(broker.member("t", from_="earliest")) == []


def test_a_user_seeks_in_on_assign(broker: GroupBroker) -> None:
    append(broker, 0, 10)

    def on_assign(consumer: Consumer, added: list[TopicPartition]) -> None:
        if TopicPartition("t", 0) in added:
            consumer.seek("t", 0, 8)

    consumer = broker.member()
    consumer.subscribe("t", from_="earliest", on_assign=on_assign)
    assert [record.offset for record in settle(consumer)] == [8, 9]


def test_an_error_of_a_users_function_leaves_the_poll_and_the_change_is_done(
    broker: GroupBroker,
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("the user's")

    append(broker, 0, 3)
    one = broker.member()
    one.subscribe("t", from_="earliest", on_assign=fail)
    with pytest.raises(KeyError):
        settle(one)
    assert partitions(one) == [[0, 1, 2, 3]]
    assert len(settle(one)) == 3


def test_on_revoke_that_raises_is_not_called_again_and_holds_nobody_up(
    broker: GroupBroker,
) -> None:
    calls: list[int] = []

    def fail(_: Consumer, some: list[TopicPartition]) -> None:
        calls.append(len(some))
        raise KeyError("the user's")

    one = broker.member()
    one.subscribe("t", on_revoke=fail)
    settle(one)
    other = broker.member("t")
    with pytest.raises(KeyError):
        settle(one, other)
    settle(one, other)
    assert calls == [2]
    assert sorted(chain(*partitions(one, other))) == [0, 1, 2, 3]


def test_who_does_not_poll_leaves_and_comes_back(
    broker: GroupBroker, caplog: pytest.LogCaptureFixture
) -> None:
    append(broker, 0, 10)
    heard = Heard()
    slow = broker.member(max_poll_interval_ms=10_000)
    slow.subscribe("t", from_="earliest", **heard.listeners)
    assert len(settle(slow)) == 10
    with caplog.at_level(logging.WARNING):
        broker.idle(11)
    assert "max.poll.interval.ms=10000" in caplog.text
    other = broker.member("t", from_="earliest")
    with pytest.raises(CommitFailed, match="no member"):
        slow.commit()
    settle(other)
    assert partitions(other) == [[0, 1, 2, 3]]
    settle(slow, other)
    assert heard.calls[:2] == [("assign", [0, 1, 2, 3]), ("lost", [0, 1, 2, 3])]
    assert sorted(chain(*partitions(slow, other))) == [0, 1, 2, 3]


def test_who_was_expelled_gives_producers_no_metadata_of_somebody_without_a_membership(
    broker: GroupBroker,
) -> None:
    """Coordinators take that in transactions, so that two would copy the same records."""
    slow = broker.member("t", max_poll_interval_ms=10_000)
    settle(slow)
    before = slow.group_metadata()
    broker.idle(11)
    other = broker.member("t")
    settle(other)
    assert slow.group_metadata() == before
    settle(slow, other)
    assert slow.group_metadata().generation > before.generation
    slow.unsubscribe()
    assert slow.group_metadata() == GroupMetadata("g")


@pytest.mark.parametrize("code", [22, 25])
def test_who_is_expelled_by_a_heartbeat_stays_who_it_was_for_producers(
    broker: GroupBroker, code: int
) -> None:
    one = broker.member("t")
    settle(one)
    before = one.group_metadata()
    broker.codes["Heartbeat"] = [code]
    broker.idle(4)
    with pytest.raises(CommitFailed):
        one.commit({("t", 0): 0})  # it knows that it was expelled
    assert one.group_metadata() == before


def test_heartbeats_go_on_while_nobody_polls(broker: GroupBroker) -> None:
    one = broker.member("t", session_timeout_ms=10_000)
    settle(one)
    generation = one.group_metadata().generation
    broker.idle(60)
    settle(one)
    assert one.group_metadata().generation == generation


def test_a_member_that_is_gone_is_replaced_after_its_session(broker: GroupBroker) -> None:
    dead = broker.member("t", session_timeout_ms=10_000, max_poll_interval_ms=10_000)
    settle(dead)
    broker._alarms.clear()  # its process has ended
    one = broker.member("t")
    settle(one)
    assert partitions(one) == [[]]
    broker.idle(10)
    settle(one)
    assert partitions(one) == [[0, 1, 2, 3]]


def test_a_static_member_comes_back_without_a_rebalance(broker: GroupBroker) -> None:
    one = broker.member("t", group_instance_id="a")
    other = broker.member("t", group_instance_id="b")
    settle(one, other)
    before = partitions(one, other)
    generation = other.group_metadata().generation
    one.close()
    again = broker.member("t", group_instance_id="a")
    settle(again, other)
    assert partitions(again, other) == before
    assert other.group_metadata().generation == generation


def test_a_static_leader_that_comes_back_watches_the_topics_again(broker: GroupBroker) -> None:
    one = broker.member("t", group_instance_id="a")
    settle(one)
    generation = one.group_metadata().generation
    one.close()
    again = broker.member("t", group_instance_id="a", metadata_max_age_ms=1000)
    settle(again)
    assert again.group_metadata().generation == generation
    broker.topics["t"] += GroupBroker(more=2).topics["more"]
    settle(again)
    assert partitions(again) == [[0, 1, 2, 3, 4, 5]]


def test_partitions_that_are_added_are_read_whole(broker: GroupBroker) -> None:
    one = broker.member("t", metadata_max_age_ms=1000)  # from the end, as auto.offset.reset says
    settle(one)
    broker.topics["t"] += GroupBroker(more=2).topics["more"]
    append(broker, 4, 10)
    found = settle(one)
    assert partitions(one) == [[0, 1, 2, 3, 4, 5]]
    assert values(found) == [(4, offset) for offset in range(10)]


def test_a_pattern_is_followed(broker: GroupBroker) -> None:
    one = broker.member("^t.*", metadata_max_age_ms=1000)
    settle(one)
    broker.create("table", 2)
    append(broker, 1, 5, "table")
    found = settle(one)
    assert {each.topic for each in one.assignment} == {"t", "table"}
    assert len(found) == 5, "it was made later: nothing of it is left out"
    broker.create("other")
    settle(one)
    assert {each.topic for each in one.assignment} == {"t", "table"}


def test_members_of_other_topics_are_assigned_by_the_leader(broker: GroupBroker) -> None:
    broker.create("u", 2)
    one = broker.member("t")
    settle(one)
    other = broker.member("u")
    settle(one, other)
    assert {each.topic for each in one.assignment} == {"t"}
    assert {each.topic for each in other.assignment} == {"u"}
    assert len(other.assignment) == 2


def test_another_subscription_replaces_the_one_before(broker: GroupBroker) -> None:
    broker.create("u", 2)
    one = broker.member("t")
    settle(one)
    one.subscribe("u")
    settle(one)
    assert {each.topic for each in one.assignment} == {"u"}
    one.unsubscribe()
    assert one.assignment == []
    one.assign([("t", 1)])
    assert partitions(one) == [[1]]


# -- faults ----------------------------------------------------------------------------------------


def test_a_coordinator_that_restarts_costs_no_rebalance(broker: GroupBroker) -> None:
    one, other = broker.member("t"), broker.member("t")
    settle(one, other)
    before = partitions(one, other)
    broker.restart_coordinator()
    append(broker, 0, 3)
    found = settle(one, other)
    assert partitions(one, other) == before
    assert len(found) == 3
    one.commit()


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup", "Heartbeat", "OffsetFetch"])
@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_is_elsewhere_or_loads_is_asked_again(
    broker: GroupBroker, api: str, code: int
) -> None:
    append(broker, 0, 3)
    broker.codes[api] = [code, code]
    one = broker.member("t", from_="earliest")
    found = settle(one)
    broker.idle(10)
    assert len(found + settle(one)) == 3
    assert partitions(one) == [[0, 1, 2, 3]]
    assert not broker.codes[api]


@pytest.mark.parametrize("code", [22, 25])
def test_who_is_expelled_has_lost_all_and_joins_again(broker: GroupBroker, code: int) -> None:
    heard = Heard()
    one = broker.member()
    one.subscribe("t", **heard.listeners)
    settle(one)
    broker.codes["Heartbeat"] = [code]
    broker.idle(4)
    settle(one)
    broker.idle(45)  # the coordinator takes it for another member, whose session ends
    settle(one)
    everywhere = [0, 1, 2, 3]
    assert heard.calls == [
        ("assign", everywhere),
        ("lost", everywhere),
        ("assign", everywhere),
    ]


def test_a_coordinator_that_is_away_is_waited_for(broker: GroupBroker) -> None:
    append(broker, 0, 3)
    for api in ("JoinGroup", "OffsetFetch"):
        broker.refusals[api] = ActorAway("__consumer_offsets-0", "it restarts")
    one = broker.member("t", from_="earliest")
    assert one.poll(5000) == []
    broker.refusals.clear()
    assert len(settle(one)) == 3


def test_a_commit_waits_for_a_coordinator_that_is_away(broker: GroupBroker) -> None:
    append(broker, 0, 3)
    one = broker.member("t", from_="earliest")
    settle(one)
    broker.codes["OffsetCommit"] = [16, 14, 15]
    assert one.commit()[TopicPartition("t", 0)].offset == 3


@pytest.mark.parametrize("api", ["OffsetCommit", "JoinGroup", "SyncGroup", "OffsetFetch"])
def test_a_poll_sleeps_while_the_coordinator_hangs(broker: GroupBroker, api: str) -> None:
    one = broker.member(partition_assignment_strategy="range", auto_commit_interval_ms=100)
    if api != "OffsetCommit":
        broker.hanging.add(api)
    one.subscribe("t", from_="earliest")
    one.poll(2000)
    broker.hanging.add(api)
    append(broker, 0, 3)
    one.poll(2000)
    other = broker.member("t", partition_assignment_strategy="range")
    for _ in range(30):  # the leader is asked to join again, and commits first
        one.poll(200)
        other.poll(10)
    before = broker.waits
    one.poll(2000)
    assert broker.waits - before < 50


def test_a_commit_during_a_rebalance_says_so(broker: GroupBroker) -> None:
    one = broker.member("t")
    settle(one)
    broker.codes["OffsetCommit"] = [27]
    with pytest.raises(RebalanceInProgress):
        one.commit()
    settle(one)
    assert one.commit() != {}


def test_a_topic_that_is_not_there_is_named(broker: GroupBroker) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
        broker.member("nowhere")


def test_a_topic_that_is_deleted_is_given_up(broker: GroupBroker) -> None:
    broker.create("u", 2)
    one = broker.member("t", "u", metadata_max_age_ms=1000)
    settle(one)
    del broker.topics["u"]
    for _ in range(100):
        broker.idle(0.1)
        with suppress(UnknownTopicOrPartition):  # until the group gives it up
            one.poll(100)
    assert {each.topic for each in one.assignment} == {"t"}


# -- what is refused -------------------------------------------------------------------------------


def test_a_group_has_no_end_and_assigns_its_partitions_itself(broker: GroupBroker) -> None:
    with pytest.raises(InvalidRequest, match="a group reads for ever"):
        broker.member("t", to="latest")
    one = broker.member("t")
    settle(one)
    for call in (one.incremental_assign, one.incremental_unassign):
        with pytest.raises(InvalidRequest, match="its group assigns them"):
            call([("t", 0)])


def test_what_needs_a_group_says_so(broker: GroupBroker) -> None:
    alone = broker.consumer("t")
    calls = (alone.commit, alone.committed, alone.commit_async, alone.group_metadata)
    for call in (*calls, alone.seek_to_committed):
        with pytest.raises(InvalidRequest, match=r"group\.id"):
            call()
    with pytest.raises(InvalidRequest, match=r"group\.id"):
        alone.subscribe("t", on_assign=lambda *_: None)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"session_timeout_ms": 10_000}, r"needs a group\.id"),
        ({"enable_auto_commit": True}, r"needs a group\.id"),
        ({"group_id": ""}, "one or more characters"),
        ({"group_id": 7}, "one or more characters"),
        ({"group_id": "g", "partition_assignment_strategy": "best"}, "must be one of range"),
        ({"group_id": "g", "partition_assignment_strategy": []}, "must have one of"),
        ({"group_id": "g", "heartbeat_interval_ms": 45_000}, r"less than session\.timeout\.ms"),
        ({"group_id": "g", "enable_auto_commit": "no"}, "True or False"),
        ({"group_id": "g", "enable_auto_commit": 0}, "True or False"),
        ({"group_id": "g", "group_protocol": "consumer"}, "classic"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    broker: GroupBroker, settings: dict[str, Any], match: str
) -> None:
    with pytest.raises(InvalidConfig, match=match):
        broker.consumer("t", **settings)


def test_a_consumer_without_group_may_say_that_it_commits_nothing(broker: GroupBroker) -> None:
    broker.consumer("t", enable_auto_commit=False)


# -- partitions that the user assigns --------------------------------------------------------------


def test_who_assigns_partitions_commits_without_being_a_member(broker: GroupBroker) -> None:
    append(broker, 0, 10)
    with broker.member("t", partitions=[0], from_="earliest") as consumer:
        assert len(settle(consumer)) == 10
        broker.idle(6)
        settle(consumer)
    assert "JoinGroup" not in dict(broker.asked)
    append(broker, 0, 2)
    again = broker.member("t", partitions=[0], from_="earliest")
    assert [record.offset for record in settle(again)] == [10, 11]


def test_a_table_is_read_without_the_group(broker: GroupBroker) -> None:
    append(broker, 0, 10)
    consumer = broker.member("t", from_="earliest")
    settle(consumer)
    assert consumer.read_table("t").num_rows == 10


# -- what a hostile look found ---------------------------------------------------------------------


def test_who_subscribes_anew_reads_what_was_added_whole(broker: GroupBroker) -> None:
    broker.create("u")
    one = broker.member("t", metadata_max_age_ms=1000)
    settle(one)
    broker.topics["t"] += GroupBroker(more=1).topics["more"]
    append(broker, 4, 5)
    one.subscribe(["t", "u"])
    assert values(settle(one)) == [(4, offset) for offset in range(5)]


def test_a_late_answer_to_a_heartbeat_of_the_generation_before_expels_nobody(
    broker: GroupBroker,
) -> None:
    heard = Heard()
    one = broker.member(session_timeout_ms=60_000)
    one.subscribe("t", **heard.listeners)
    settle(one)
    late = broker.hold("Heartbeat")
    broker.idle(4)
    assert len(late) == 1
    broker.release("Heartbeat")
    other = broker.member("t")
    other.poll(200)
    with suppress(RebalanceInProgress):
        broker.codes["OffsetCommit"] = [27]  # by which it hears of the rebalance
        one.commit({("t", 0): 0})
    settle(one, other)
    assert one.group_metadata().generation > 1
    late[0].set_result({"errorCode": 22})
    settle(one, other)
    assert "lost" not in dict(heard.calls)


def test_who_was_expelled_meanwhile_asks_anew_where_the_group_stands(broker: GroupBroker) -> None:
    append(broker, 0, 10)
    late = broker.hold("OffsetFetch")
    slow = broker.member("t", from_="earliest", max_poll_interval_ms=10_000)
    slow.poll(2000)
    assert len(late) == 1
    broker.idle(11)
    broker.release("OffsetFetch")
    other = broker.member("t", from_="earliest")
    assert len(settle(other)) == 10
    other.close()
    late[0].set_result(_nothing_committed())
    assert settle(slow) == []


def _nothing_committed() -> Any:
    parts = [
        {
            "partitionIndex": number,
            "committedOffset": -1,
            "committedLeaderEpoch": -1,
            "metadata": "",
            "errorCode": 0,
        }
        for number in range(4)
    ]
    topics = [{"name": "t", "partitions": parts}]
    return {"groups": [{"groupId": "g", "errorCode": 0, "topics": topics}]}


def test_a_member_that_waits_for_its_offsets_does_not_hold_the_others_up(
    broker: GroupBroker,
) -> None:
    broker.hold("OffsetFetch")
    one = broker.member("t")
    for _ in range(10):
        one.poll(200)
    other = broker.member("t")
    began = broker.now_s
    while other.group_metadata().generation < 2:
        one.poll(200)
        other.poll(200)
        assert broker.now_s < began + 30, "it is not in the group yet"


def test_a_poll_sleeps_while_a_revocation_waits_for_its_commit(broker: GroupBroker) -> None:
    append(broker, 0, 3)
    one = broker.member("t", from_="earliest", partition_assignment_strategy="range")
    settle(one)
    append(broker, 0, 3)
    one.poll(1000)
    broker.hanging.add("OffsetCommit")
    other = broker.member("t", partition_assignment_strategy="range")
    other.poll(100)
    broker.idle(4)
    before = broker.waits
    one.poll(6000)
    assert broker.waits - before < 50


@pytest.mark.parametrize("call", ["close", "unsubscribe", "poll", "assign"])
def test_a_users_function_may_call_the_consumer(broker: GroupBroker, call: str) -> None:
    append(broker, 0, 3)
    calls: list[str] = []

    def on_revoke(consumer: Consumer, _: list[TopicPartition]) -> None:
        calls.append("revoke")
        if call == "assign":
            consumer.assign([("t", 0)])
        elif call == "poll":
            consumer.poll(0)
        else:
            getattr(consumer, call)()

    one = broker.member()
    one.subscribe("t", from_="earliest", on_revoke=on_revoke)
    settle(one)
    if call in ("close", "poll"):
        one.close()
    else:
        one.unsubscribe()
    assert calls == ["revoke"]
    again = broker.member("t", from_="earliest")
    settle(again)
    assert partitions(again) == [[0, 1, 2, 3]]


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_who_was_expelled_and_is_closed_hears_that_it_has_lost_all(
    broker: GroupBroker, end: str
) -> None:
    append(broker, 0, 3)
    heard = Heard()
    one = broker.member()
    one.subscribe("t", from_="earliest", **heard.listeners)
    settle(one)
    broker.codes["Heartbeat"] = [25]
    broker.idle(4)
    getattr(one, end)()
    assert [what for what, _ in heard.calls] == ["assign", "lost"]


def test_who_is_fenced_hears_that_it_has_lost_all_and_is_told_why(broker: GroupBroker) -> None:
    heard = Heard()
    one = broker.member(group_instance_id="a")
    one.subscribe("t", **heard.listeners)
    settle(one)
    other = broker.member("t", group_instance_id="a")
    other.poll(1000)
    broker.idle(4)
    for _ in range(2):
        with pytest.raises(FencedInstanceId, match=r"group\.instance\.id=a"):
            one.poll(100)
    assert [what for what, _ in heard.calls] == ["assign", "lost"]
    one.unsubscribe()
    one.assign([("t", 0)])
    assert one.poll(100) == []
    settle(other)
    assert partitions(other) == [[0, 1, 2, 3]]


def test_without_on_lost_on_revoke_is_called(broker: GroupBroker) -> None:
    heard = Heard()
    one = broker.member()
    one.subscribe("t", on_revoke=heard.listeners["on_revoke"])
    settle(one)
    broker.codes["Heartbeat"] = [22]
    broker.idle(4)
    one.poll(100)
    assert heard.calls == [("revoke", [0, 1, 2, 3])]


def test_what_is_stored_in_on_revoke_is_committed(broker: GroupBroker) -> None:
    append(broker, 0, 10)
    one = broker.member(enable_auto_offset_store=False)
    one.subscribe(
        "t", from_="earliest", on_revoke=lambda consumer, _: consumer.store_offsets({("t", 0): 7})
    )
    settle(one)
    one.close()
    assert broker.coordinator.committed(TopicPartition("t", 0), group="g") == [7]


def test_listeners_are_called_in_a_poll_alone(broker: GroupBroker) -> None:
    broker.create("u")
    heard = Heard()
    one = broker.member()
    one.subscribe("t", **heard.listeners)
    settle(one)
    other = broker.member("t")
    other.poll(200)
    broker.idle(4)
    before = list(heard.calls)
    one.subscribe(["t", "u"], **heard.listeners)
    assert heard.calls == before


def test_a_topic_that_was_given_up_is_asked_for_no_more(broker: GroupBroker) -> None:
    broker.create("u", 1)
    heard = Heard()
    one = broker.member(metadata_max_age_ms=1000)
    one.subscribe("^[tu].?$", **heard.listeners)
    settle(one)
    del broker.topics["u"]
    for _ in range(100):
        broker.idle(0.1)
        with suppress(UnknownTopicOrPartition):
            one.poll(100)
    assert ("revoke", [0]) in heard.calls

    def fail(*_: object) -> None:
        raise KeyError("the user's")

    one.subscribe("^[tu].?$", on_assign=fail)
    broker.create("t2")
    with pytest.raises(KeyError):
        settle(one)
    for _ in range(100):
        one.poll(100)


def test_commits_by_hand_are_known_to_those_by_itself(broker: GroupBroker) -> None:
    append(broker, 0, 3)
    one = broker.member("t", from_="earliest")
    settle(one)
    one.commit()
    one.commit_async({("t", 0): 1}).result(0)
    one.close()
    assert broker.coordinator.committed(TopicPartition("t", 0), group="g") == [3]


class Interrupt:
    """Raises KeyboardInterrupt, once, at a line of the group's code."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: Any, event: str, _: object) -> Any:
        if "consumer/group/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("at", range(1, 500, 9))
def test_a_poll_that_is_interrupted_at_any_line_goes_on_with_the_next(at: int) -> None:
    broker = GroupBroker(t=2)
    for number in range(2):
        append(broker, number, 5)
    one = broker.member(auto_offset_reset="earliest")
    one.subscribe("t")
    found: list[ConsumerRecord] = []
    before = sys.gettrace()
    sys.settrace(Interrupt(at))
    try:
        for _ in range(20):
            found += one.poll(200)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    for _ in range(100):
        found += one.poll(500)
    broker.idle(60)
    found += settle(one)
    assert sorted(set(values(found))) == everything(broker)
    assert partitions(one) == [[0, 1]]
