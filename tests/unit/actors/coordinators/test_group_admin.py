"""ListGroups, DescribeGroups, DeleteGroups, and what becomes too old."""

from raylog.actors.coordinators.group_config import GroupConfig
from raylog.actors.coordinators.group_machine import EXPIRED_IN_A_BATCH
from raylog.actors.coordinators.group_messages import (
    CommitAnswer,
    CommitRequest,
    DeleteGroupsAnswer,
    DeleteGroupsRequest,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsAnswer,
    DescribeGroupsRequest,
    Identity,
    JoinAnswer,
    ListedGroup,
    ListGroupsAnswer,
    ListGroupsRequest,
    OffsetToCommit,
)
from raylog.actors.coordinators.log_record import LogRecord
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.groups import GROUP_RECORDS
from tests.harness.coordinating import GROUP, SESSION_MS, Client, Coordinator
from tests.unit.actors.coordinators.test_committing import FIRST, NOBODY, OTHER, subscribed

RETENTION_MS, EXPIRY_MS = 3_600_000, 60_000
BRIEF = GroupConfig(
    initial_rebalance_delay_ms=0,
    offsets_retention_ms=RETENTION_MS,
    expiry_interval_ms=EXPIRY_MS,
)


def listed(coordinator: Coordinator, *states: str, types: tuple[str, ...] = ()) -> list[str]:
    request = ListGroupsRequest(states, types)
    answer = coordinator.at_once(request, ListGroupsAnswer)
    return [group.group for group in answer.groups]


def deleted(coordinator: Coordinator, *groups: str) -> tuple[int, ...]:
    return coordinator.at_once(DeleteGroupsRequest(groups), DeleteGroupsAnswer).error_codes


def described(coordinator: Coordinator, group: str) -> DescribedGroup:
    request = DescribeGroupsRequest((group,))
    return coordinator.at_once(request, DescribeGroupsAnswer).groups[0]


def test_groups_are_listed_by_state_and_type() -> None:
    coordinator = Coordinator()
    coordinator.commit(Identity("simple", ""), FIRST, 1)
    coordinator.stable(Client("ann"))
    answer = coordinator.at_once(ListGroupsRequest(), ListGroupsAnswer)
    assert answer.groups == (
        ListedGroup("simple", "", "Empty"),
        ListedGroup(GROUP, "consumer", "Stable"),
    )
    assert listed(coordinator, "stable", "Dead") == [GROUP]
    assert listed(coordinator, types=("Classic",)) == ["simple", GROUP]
    assert listed(coordinator, types=("consumer",)) == []


def test_a_stable_group_shows_what_its_members_say_and_have() -> None:
    coordinator, ann = Coordinator(), Client("ann", instance_id="a")
    coordinator.stable(ann)
    assert described(coordinator, GROUP) == DescribedGroup(
        group=GROUP,
        state="Stable",
        protocol_type="consumer",
        protocol="range",
        members=(
            DescribedMember(ann.member_id, "a", "ann", "/127.0.0.1", b"metadata of ann", b"ann"),
        ),
    )
    coordinator.join(Client("bob"))
    in_rebalance = described(coordinator, GROUP)
    assert (in_rebalance.state, in_rebalance.protocol) == ("PreparingRebalance", "")
    assert {(one.metadata, one.assignment) for one in in_rebalance.members} == {
        (b"", b"ann"),
        (b"", b""),
    }


def test_a_group_that_is_not_there_is_dead() -> None:
    answer = described(Coordinator(), "of nobody")
    assert answer == DescribedGroup("of nobody", "Dead", 69)


def test_only_groups_without_members_are_deleted_and_with_them_their_offsets() -> None:
    coordinator, ann = Coordinator(), Client("ann")
    coordinator.stable(ann)
    coordinator.commit(ann.who, FIRST, 7)
    assert deleted(coordinator, GROUP, "of nobody", "") == (68, 69, 69)
    coordinator.wait(SESSION_MS)
    assert deleted(coordinator, GROUP, GROUP) == (0, 0)
    for _ in range(2):
        assert listed(coordinator) == []
        assert coordinator.committed(FIRST) == [-1]
        coordinator.restart()


def test_what_cannot_be_written_is_not_deleted() -> None:
    coordinator = Coordinator()
    coordinator.commit(NOBODY, FIRST, 7)
    coordinator.refusal = 15
    assert deleted(coordinator, GROUP, "of nobody") == (15, 69)
    assert coordinator.committed(FIRST) == [7]


def test_the_offsets_of_a_simple_group_live_as_long_as_it_commits() -> None:
    coordinator = Coordinator(BRIEF)
    coordinator.commit(NOBODY, FIRST, 7)
    coordinator.wait(RETENTION_MS - EXPIRY_MS)
    coordinator.commit(NOBODY, OTHER, 8)
    coordinator.wait(EXPIRY_MS)
    assert coordinator.committed(FIRST, OTHER) == [-1, 8]
    coordinator.wait(RETENTION_MS + 2 * EXPIRY_MS)
    assert listed(coordinator) == []
    coordinator.restart()
    assert listed(coordinator) == []


def test_the_offsets_of_a_group_live_from_when_its_last_member_went() -> None:
    coordinator, ann = Coordinator(BRIEF), subscribed("ann", "orders")
    coordinator.stable(ann)
    coordinator.commit(ann.who, FIRST, 7)
    for _ in range(2 * RETENTION_MS // (SESSION_MS - 1)):
        coordinator.wait(SESSION_MS - 1)
        assert coordinator.heartbeat(ann) == 0
    assert coordinator.committed(FIRST) == [7], "a member reads it"
    coordinator.wait(SESSION_MS + RETENTION_MS - EXPIRY_MS)
    assert coordinator.committed(FIRST) == [7]
    coordinator.wait(2 * EXPIRY_MS)
    assert coordinator.committed(FIRST) == [-1]


def test_a_topic_that_no_member_reads_any_more_is_forgotten() -> None:
    coordinator, ann = Coordinator(BRIEF), subscribed("ann", "orders")
    ann.session_ms = 1_800_000
    coordinator.stable(ann)
    coordinator.commit(ann.who, FIRST, 7)
    coordinator.commit(ann.who, OTHER, 8)
    for _ in range(3):
        coordinator.wait(RETENTION_MS // 3)
        coordinator.heartbeat(ann)
    coordinator.wait(EXPIRY_MS)
    assert coordinator.committed(FIRST, OTHER) == [7, -1]


def test_in_a_rebalance_and_where_it_is_not_known_what_is_read_nothing_is_forgotten() -> None:
    for protocol in (b"?", subscribed("ann", "orders").protocols[0][1]):
        coordinator, ann = Coordinator(BRIEF), Client("ann", ("range", protocol))
        ann.session_ms, ann.rebalance_ms = 1_800_000, 10 * RETENTION_MS
        coordinator.stable(ann)
        coordinator.commit(ann.who, OTHER, 8)
        if protocol != b"?":
            coordinator.join(Client("bob"))
        for _ in range(4):
            coordinator.wait(RETENTION_MS // 3)
            coordinator.heartbeat(ann)
        assert coordinator.committed(OTHER) == [8]


def test_an_offset_with_a_term_of_its_own_is_forgotten_then() -> None:
    coordinator = Coordinator(BRIEF)
    request = CommitRequest(NOBODY, (OffsetToCommit(FIRST, 7),), retention_ms=2 * RETENTION_MS)
    assert coordinator.at_once(request, CommitAnswer).error_codes == (0,)
    coordinator.restart()
    coordinator.wait(2 * RETENTION_MS - 1)
    assert coordinator.committed(FIRST) == [7]
    coordinator.wait(EXPIRY_MS)
    assert coordinator.committed(FIRST) == [-1]


def test_an_offset_that_a_transaction_holds_stays() -> None:
    coordinator = Coordinator(BRIEF)
    coordinator.commit(NOBODY, FIRST, 7)
    record = coordinator.log[0]
    coordinator.machine.replay(record.key, record.value, at=1, producer_id=9)
    coordinator.wait(2 * RETENTION_MS)
    assert coordinator.committed(FIRST) == [7]


def test_a_group_that_nobody_joined_is_forgotten_when_it_is_looked_at() -> None:
    coordinator, ann = Coordinator(BRIEF), Client("ann", session_ms=RETENTION_MS // 4)
    coordinator.at_once(ann.join_request(), JoinAnswer)
    coordinator.wait(EXPIRY_MS)
    assert listed(coordinator) == [GROUP], "somebody was given an id"
    coordinator.wait(RETENTION_MS // 4)
    assert listed(coordinator) == []


def test_what_is_forgotten_goes_in_batches_that_the_log_takes() -> None:
    coordinator = Coordinator(BRIEF)
    count = EXPIRED_IN_A_BATCH + 1
    offsets = tuple(OffsetToCommit(TopicPartition("orders", one), 1) for one in range(count))
    coordinator.at_once(CommitRequest(NOBODY, offsets), CommitAnswer)
    coordinator.wait(RETENTION_MS + EXPIRY_MS)
    assert coordinator.committed(*(offset.partition for offset in offsets)) == [-1] * count


def test_a_group_of_the_newer_protocol_is_left_alone_with_its_offsets() -> None:
    coordinator = Coordinator(BRIEF)
    coordinator.commit(NOBODY, FIRST, 7)
    epoch = GROUP_RECORDS[3]
    key = epoch.key.write_versioned({"groupId": GROUP}, 3)
    coordinator.log.append(LogRecord(key, epoch.value.write_versioned({"epoch": 1}, 0)))
    coordinator.restart()
    assert listed(coordinator) == []
    assert deleted(coordinator, GROUP) == (68,)
    refused = coordinator.at_once(Client("ann").join_request(), JoinAnswer)
    assert refused.error_code == 23
    coordinator.wait(2 * RETENTION_MS)
    assert coordinator.committed(FIRST) == [7]
    coordinator.log.append(LogRecord(key, None))
    coordinator.restart()
    coordinator.stable(Client("ann"))


def test_a_record_of_a_kind_that_nobody_knows_is_passed_over() -> None:
    coordinator = Coordinator()
    coordinator.commit(NOBODY, FIRST, 7)
    coordinator.log.append(LogRecord(b"\x00\x63later", b"?"))
    coordinator.restart()
    assert coordinator.committed(FIRST) == [7]
