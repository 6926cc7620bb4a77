"""OffsetCommit, OffsetFetch, OffsetDelete: who may, and what is remembered."""

import pytest

from raylog.actors.coordinators.committed_offsets import CommittedOffsets
from raylog.actors.coordinators.group_machine import TransactionEnded
from raylog.actors.coordinators.group_messages import (
    CommitAnswer,
    CommitRequest,
    CommittedOffset,
    DeleteOffsetsAnswer,
    DeleteOffsetsRequest,
    FetchOffsetsAnswer,
    FetchOffsetsRequest,
    Identity,
    OffsetToCommit,
)
from raylog.actors.coordinators.group_records import Committed
from raylog.actors.coordinators.log_record import Producer
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.consumer_protocol import SUBSCRIPTION
from tests.harness.coordinating import (
    GROUP,
    SESSION_MS,
    Client,
    Coordinator,
)

FIRST, SECOND, OTHER = (
    TopicPartition("orders", 0),
    TopicPartition("orders", 1),
    TopicPartition("bills", 0),
)
NOBODY = Identity(GROUP, "")


def subscribed(name: str, *topics: str) -> Client:
    value = {"topics": list(topics), "userData": None}
    return Client(name, ("range", SUBSCRIPTION.write_versioned(value, 0)))


def fetched(coordinator: Coordinator, *partitions: TopicPartition) -> tuple[CommittedOffset, ...]:
    request = FetchOffsetsRequest(GROUP, partitions or None)
    return coordinator.at_once(request, FetchOffsetsAnswer).offsets


def test_a_member_commits_and_finds_it_again_also_after_a_restart() -> None:
    coordinator, ann = Coordinator(), Client("ann")
    coordinator.stable(ann)
    offset = OffsetToCommit(FIRST, 7, leader_epoch=3, metadata="half done")
    answer = coordinator.at_once(CommitRequest(ann.who, (offset,)), CommitAnswer)
    assert answer.error_codes == (0,)
    expected = (CommittedOffset(FIRST, 7, 3, "half done"), CommittedOffset(SECOND))
    assert fetched(coordinator, FIRST, SECOND) == expected
    coordinator.restart()
    assert fetched(coordinator, FIRST, SECOND) == expected
    assert fetched(coordinator) == expected[:1]


def test_of_a_group_that_nobody_knows_nothing_is_committed() -> None:
    coordinator = Coordinator()
    assert fetched(coordinator, FIRST) == (CommittedOffset(FIRST),)
    assert fetched(coordinator) == ()
    request = FetchOffsetsRequest(GROUP, (FIRST,), is_of_member=True)
    assert coordinator.at_once(request, FetchOffsetsAnswer).error_code == 69


def test_a_simple_consumer_needs_no_group() -> None:
    coordinator = Coordinator()
    assert coordinator.commit(NOBODY, FIRST, 7) == 0
    assert coordinator.commit(NOBODY, FIRST, 9) == 0
    assert coordinator.committed(FIRST) == [9]


def test_who_claims_a_generation_of_a_group_that_is_not_there_is_refused() -> None:
    coordinator = Coordinator()
    who = Identity(GROUP, "ann", generation=1)
    assert coordinator.commit(who, FIRST, 7) == 69
    request = CommitRequest(who, (OffsetToCommit(FIRST, 7),), knows_group_not_found=False)
    assert coordinator.at_once(request, CommitAnswer).error_codes == (22,)
    assert coordinator.log == []


def test_an_administrator_commits_while_there_are_no_members_and_not_after_that() -> None:
    coordinator, ann = Coordinator(), Client("ann")
    coordinator.stable(ann)
    assert coordinator.commit(NOBODY, FIRST, 7) == 25
    coordinator.wait(SESSION_MS)
    assert coordinator.commit(NOBODY, FIRST, 7) == 0
    assert coordinator.committed(FIRST) == [7]


def test_only_members_of_the_generation_commit() -> None:
    coordinator = Coordinator()
    ann = Client("ann", instance_id="a")
    coordinator.stable(ann)
    for who, code in (
        (ann.who._replace(generation=0), 22),
        (ann.who._replace(generation=-1), 22),
        (ann.who._replace(member_id="eve", instance_id=None), 25),
        (ann.who._replace(member_id="eve"), 82),
        (Identity(GROUP, "", "a", -1), 82),
        (Identity(GROUP, "", None, 1), 25),
    ):
        assert coordinator.commit(who, FIRST, 7) == code, who
    assert coordinator.committed(FIRST) == [-1]


def test_members_commit_until_the_next_generation_begins_and_again_when_it_is_settled() -> None:
    coordinator, ann, bob = Coordinator(), Client("ann"), Client("bob")
    coordinator.stable(ann)
    of_bob = coordinator.join(bob)
    assert coordinator.commit(ann.who, FIRST, 7) == 0, "what was read before it is given up"
    old = ann.who
    coordinator.joined(coordinator.join(ann), ann)
    coordinator.joined(of_bob, bob)
    assert coordinator.commit(old, FIRST, 8) == 22
    assert coordinator.commit(ann.who, FIRST, 8) == 27
    coordinator.settle(ann, bob)
    assert coordinator.commit(bob.who, FIRST, 9) == 0
    assert coordinator.committed(FIRST) == [9]


def test_a_commit_keeps_a_member() -> None:
    coordinator, ann = Coordinator(), Client("ann")
    coordinator.stable(ann)
    for _ in range(3):
        coordinator.wait(SESSION_MS - 1)
        assert coordinator.commit(ann.who, FIRST, 7) == 0


def test_a_text_that_is_too_long_is_refused_and_the_others_are_taken() -> None:
    coordinator = Coordinator()
    offsets = (
        OffsetToCommit(FIRST, 7, metadata="é" * 4_096),
        OffsetToCommit(SECOND, 8, metadata="é" * 4_097),
    )
    answer = coordinator.at_once(CommitRequest(NOBODY, offsets), CommitAnswer)
    assert answer.error_codes == (0, 12)
    assert coordinator.committed(FIRST, SECOND) == [7, -1]
    alone = coordinator.at_once(CommitRequest(NOBODY, offsets[1:]), CommitAnswer)
    assert alone.error_codes == (12,)
    assert coordinator.at_once(CommitRequest(NOBODY, ()), CommitAnswer).error_codes == ()


def test_what_cannot_be_written_is_not_committed() -> None:
    coordinator = Coordinator()
    coordinator.commit(NOBODY, FIRST, 7)
    coordinator.refusal = 15
    offsets = (OffsetToCommit(FIRST, 8), OffsetToCommit(SECOND, 8, metadata="x" * 5_000))
    answer = coordinator.at_once(CommitRequest(NOBODY, offsets), CommitAnswer)
    assert answer.error_codes == (15, 12)
    assert coordinator.committed(FIRST) == [7]


def test_offsets_of_topics_that_members_read_stay() -> None:
    coordinator = Coordinator()
    ann = subscribed("ann", "orders")
    coordinator.stable(ann)
    for partition in (FIRST, OTHER):
        coordinator.commit(ann.who, partition, 7)
    request = DeleteOffsetsRequest(GROUP, (FIRST, OTHER, TopicPartition("bills", 9)))
    answer = coordinator.at_once(request, DeleteOffsetsAnswer)
    assert (answer.error_code, answer.error_codes) == (0, (86, 0, 0))
    assert coordinator.committed(FIRST, OTHER) == [7, -1]
    coordinator.restart()
    assert coordinator.committed(FIRST, OTHER) == [7, -1]


def test_where_it_is_not_known_what_members_read_all_stay() -> None:
    coordinator = Coordinator()
    ann, bob = subscribed("ann", "orders"), Client("bob", ("range", b"?"))
    coordinator.stable(ann, bob)
    coordinator.commit(ann.who, OTHER, 7)
    request = DeleteOffsetsRequest(GROUP, (OTHER,))
    assert coordinator.at_once(request, DeleteOffsetsAnswer).error_codes == (86,)


def test_offsets_are_deleted_of_a_group_without_members() -> None:
    coordinator, ann = Coordinator(), subscribed("ann", "orders")
    coordinator.stable(ann)
    coordinator.commit(ann.who, FIRST, 7)
    coordinator.wait(SESSION_MS)
    request = DeleteOffsetsRequest(GROUP, (FIRST,))
    assert coordinator.at_once(request, DeleteOffsetsAnswer).error_codes == (0,)
    assert coordinator.committed(FIRST) == [-1]
    assert coordinator.at_once(request, DeleteOffsetsAnswer).error_codes == (0,)
    unknown = DeleteOffsetsRequest("of nobody", (FIRST,))
    assert coordinator.at_once(unknown, DeleteOffsetsAnswer) == DeleteOffsetsAnswer(69)


def test_a_group_of_another_type_that_lives_keeps_all() -> None:
    coordinator = Coordinator()
    worker = Client("worker").join_request()._replace(protocol_type="connect", is_told_its_id=False)
    coordinator.ask(worker)
    coordinator.wait(0)
    request = DeleteOffsetsRequest(GROUP, (FIRST,))
    assert coordinator.at_once(request, DeleteOffsetsAnswer) == DeleteOffsetsAnswer(68)


# -- transactions ----------------------------------------------------------------------------------


def committed(offset: int) -> Committed:
    return Committed(offset, -1, "", 0)


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_offset_of_a_transaction_counts_when_it_is_committed(is_commit: bool) -> None:
    offsets = CommittedOffsets()
    offsets.put(GROUP, FIRST, committed(1), at=0)
    offsets.put(GROUP, FIRST, committed(2), at=1, producer_id=9)
    offsets.put(GROUP, FIRST, committed(3), at=2, producer_id=9)
    assert offsets.of(GROUP) == {FIRST: committed(1)}
    assert offsets.pending_of(GROUP) == {FIRST}
    assert offsets.end(9, is_commit=is_commit) == ({GROUP} if is_commit else set())
    assert offsets.of(GROUP) == {FIRST: committed(3 if is_commit else 1)}
    assert offsets.pending_of(GROUP) == set()


def test_a_marker_does_not_undo_what_was_committed_after_the_transactions_offset() -> None:
    offsets = CommittedOffsets()
    offsets.put(GROUP, FIRST, committed(2), at=1, producer_id=9)
    offsets.put(GROUP, FIRST, committed(5), at=2)
    offsets.end(9, is_commit=True)
    assert offsets.of(GROUP) == {FIRST: committed(5)}


def test_a_tombstone_takes_an_offset_out_of_open_transactions_too() -> None:
    offsets = CommittedOffsets()
    offsets.put(GROUP, FIRST, committed(2), at=1, producer_id=9)
    offsets.put("another", FIRST, committed(2), at=2, producer_id=9)
    offsets.remove(GROUP, FIRST)
    assert offsets.end(9, is_commit=True) == {"another"}
    assert offsets.of(GROUP) == {}
    assert GROUP not in offsets


def test_a_marker_of_a_producer_that_nobody_knows_does_nothing() -> None:
    assert CommittedOffsets().end(9, is_commit=True) == set()


def test_a_reader_that_must_be_sure_hears_that_a_transaction_is_open() -> None:
    coordinator = Coordinator()
    coordinator.commit(NOBODY, FIRST, 7)
    coordinator.commit(NOBODY, SECOND, 8)
    record = coordinator.log[0]
    coordinator.machine.replay(record.key, record.value, at=2, producer_id=9)
    request = FetchOffsetsRequest(GROUP, (FIRST, SECOND), must_be_stable=True)
    assert coordinator.at_once(request, FetchOffsetsAnswer).offsets == (
        CommittedOffset(FIRST, error_code=88),
        CommittedOffset(SECOND, 8),
    )
    assert coordinator.committed(FIRST) == [7]


# -- in transactions -------------------------------------------------------------------------------


def commit_in_transaction(coordinator: Coordinator, who: Identity, offset: int = 5) -> int:
    request = CommitRequest(who, (OffsetToCommit(FIRST, offset),), producer=Producer(7, 0))
    return coordinator.at_once(request, CommitAnswer).error_codes[0]


def test_offsets_of_a_transaction_count_when_it_is_committed() -> None:
    coordinator = Coordinator()
    assert commit_in_transaction(coordinator, NOBODY) == 0
    assert coordinator.committed(FIRST) == [-1]
    coordinator.machine.handle(TransactionEnded(7, is_commit=True), coordinator.now_ms, 0)
    assert coordinator.committed(FIRST) == [5]
    assert commit_in_transaction(coordinator, NOBODY, 9) == 0
    coordinator.machine.handle(TransactionEnded(7, is_commit=False), coordinator.now_ms, 0)
    assert coordinator.committed(FIRST) == [5]


def test_a_transaction_is_fenced_by_the_generation_of_its_member() -> None:
    """KIP-447; who claims nothing is not fenced, as by old clients."""
    coordinator, ann = Coordinator(), Client("ann")
    coordinator.stable(ann)
    assert commit_in_transaction(coordinator, ann.who) == 0
    assert commit_in_transaction(coordinator, ann.who._replace(generation=9)) == 22
    assert commit_in_transaction(coordinator, ann.who._replace(member_id="bob")) == 25
    assert commit_in_transaction(coordinator, NOBODY) == 0
    of_no_group = Identity("strange", "ann", None, 3)
    assert commit_in_transaction(coordinator, of_no_group) == 22


def test_a_commit_in_a_transaction_is_no_sign_of_life() -> None:
    coordinator, ann = Coordinator(), Client("ann")
    coordinator.stable(ann)
    coordinator.wait(ann.session_ms - 1)
    assert commit_in_transaction(coordinator, ann.who) == 0
    coordinator.wait(1)
    assert coordinator.heartbeat(ann) == 25


def test_a_member_commits_in_a_transaction_before_it_has_its_assignment() -> None:
    coordinator, ann = Coordinator(), Client("ann")
    token = coordinator.join(ann)
    coordinator.wait(0)
    coordinator.joined(token, ann)
    assert coordinator.commit(ann.who, FIRST, 5) == 27
    assert commit_in_transaction(coordinator, ann.who) == 0
