"""SyncGroup, Heartbeat, LeaveGroup and sessions, as transcripts."""

from raylog.actors.coordinators.group_messages import (
    DescribeGroupsAnswer,
    DescribeGroupsRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    Identity,
    JoinAnswer,
    Leaver,
    SyncAnswer,
    SyncRequest,
)
from tests.harness.coordinating import (
    GROUP,
    SESSION_MS,
    Client,
    Coordinator,
)


def state(coordinator: Coordinator) -> str:
    request = DescribeGroupsRequest((GROUP,))
    return coordinator.at_once(request, DescribeGroupsAnswer).groups[0].state


def told() -> tuple[Coordinator, Client, Client]:
    """Two members know their generation, and have no assignment yet."""
    coordinator, ann, bob = Coordinator(), Client("ann"), Client("bob")
    tokens = [coordinator.join(one) for one in (ann, bob)]
    coordinator.wait(0)
    coordinator.joined(tokens[0], ann)
    coordinator.joined(tokens[1], bob)
    return coordinator, ann, bob


def formed() -> tuple[Coordinator, Client, Client]:
    coordinator, ann, bob = told()
    coordinator.settle(ann, bob)
    return coordinator, ann, bob


def test_a_follower_waits_for_the_leader() -> None:
    coordinator, ann, bob = told()
    of_bob = coordinator.sync(bob)
    assert of_bob not in coordinator.answers
    of_ann = coordinator.sync(ann, {ann.member_id: b"1", bob.member_id: b"2"})
    assert coordinator.answer(of_bob, SyncAnswer) == SyncAnswer(0, "consumer", "range", b"2")
    assert coordinator.answer(of_ann, SyncAnswer).assignment == b"1"


def test_a_follower_that_comes_later_is_told_at_once() -> None:
    coordinator, ann, bob = told()
    coordinator.sync(ann, {bob.member_id: b"2"})
    token = coordinator.sync(bob)
    assert coordinator.answer(token, SyncAnswer).assignment == b"2"
    again = coordinator.sync(bob)
    assert coordinator.answer(again, SyncAnswer).assignment == b"2"


def test_whom_the_leader_left_out_gets_nothing_and_whom_it_made_up_is_nobody() -> None:
    coordinator, ann, bob = told()
    coordinator.sync(ann, {ann.member_id: b"1", "of nobody": b"3"})
    token = coordinator.sync(bob)
    assert coordinator.answer(token, SyncAnswer) == SyncAnswer(0, "consumer", "range", b"")


def test_the_assignments_are_in_the_log_before_anybody_is_told() -> None:
    coordinator, ann, bob = told()
    coordinator.settle(ann, bob)
    written = list(coordinator.groups_written())[-1].found
    assert written is not None
    assert written.generation == 1
    assert written.leader == ann.member_id
    assert [one.assignment for one in written.members.values()] == [b"ann", b"bob"]
    assert [one.protocols[0].metadata for one in written.members.values()] == [
        b"metadata of ann",
        b"metadata of bob",
    ]


def test_where_they_cannot_be_written_all_join_again() -> None:
    coordinator, ann, bob = told()
    of_bob = coordinator.sync(bob)
    coordinator.refusal = 16
    of_ann = coordinator.sync(ann, {ann.member_id: b"1"})
    for token in (of_ann, of_bob):
        assert coordinator.answer(token, SyncAnswer) == SyncAnswer(16)
    assert coordinator.heartbeat(ann) == 27
    coordinator.refusal = 0
    tokens = [coordinator.join(one) for one in (ann, bob)]
    assert coordinator.joined(tokens[0], ann).generation == 2


def test_a_rebalance_sends_those_back_that_wait_for_an_assignment() -> None:
    coordinator, _ann, bob = told()
    token = coordinator.sync(bob)
    coordinator.join(Client("eve"))
    assert coordinator.answer(token, SyncAnswer) == SyncAnswer(27)
    assert coordinator.answer(coordinator.sync(bob), SyncAnswer) == SyncAnswer(27)


def test_a_repeated_request_takes_the_place_of_the_one_that_waits() -> None:
    coordinator, ann, bob = told()
    first, second = coordinator.sync(bob), coordinator.sync(bob)
    assert coordinator.answer(first, SyncAnswer) == SyncAnswer(16)
    coordinator.sync(ann, {bob.member_id: b"2"})
    assert coordinator.answer(second, SyncAnswer).assignment == b"2"


def test_who_is_not_of_this_generation_is_told_nothing() -> None:
    coordinator, ann, _bob = told()
    for who, code in (
        (ann.who._replace(generation=0), 22),
        (ann.who._replace(generation=2), 22),
        (ann.who._replace(member_id="eve"), 25),
        (ann.who._replace(group="of nobody"), 25),
        (ann.who._replace(group=""), 24),
    ):
        assert coordinator.at_once(SyncRequest(who, None, None, {}), SyncAnswer).error_code == code
        answer = coordinator.at_once(HeartbeatRequest(who), HeartbeatAnswer)
        assert answer.error_code == code


def test_who_believes_that_the_group_does_something_else_is_refused() -> None:
    coordinator, ann, _ = told()
    for type_, protocol in (("connect", None), (None, "sticky"), ("consumer", "sticky")):
        request = SyncRequest(ann.who, type_, protocol, {})
        assert coordinator.at_once(request, SyncAnswer) == SyncAnswer(23)
    request = SyncRequest(ann.who, "consumer", "range", {})
    assert coordinator.at_once(request, SyncAnswer).error_code == 0


def test_a_heartbeat_says_whether_to_join_again() -> None:
    coordinator, ann, bob = told()
    assert coordinator.heartbeat(ann) == 0, "the assignment is to come"
    coordinator.settle(ann, bob)
    assert coordinator.heartbeat(ann) == 0
    coordinator.join(Client("eve"))
    assert coordinator.heartbeat(ann) == 27


def test_heartbeats_keep_a_member() -> None:
    coordinator, ann, bob = formed()
    for _ in range(5):
        coordinator.wait(SESSION_MS - 1)
        assert coordinator.heartbeat(ann) == 0
        assert coordinator.heartbeat(bob) == 0


def test_a_heartbeat_in_a_rebalance_keeps_a_member_too() -> None:
    coordinator, ann, bob = formed()
    coordinator.join(Client("eve"))
    coordinator.wait(SESSION_MS - 1)
    coordinator.heartbeat(ann)
    coordinator.wait(SESSION_MS - 1)
    assert coordinator.heartbeat(ann) == 27
    assert coordinator.heartbeat(bob) == 25


def test_a_silent_member_is_out_and_the_others_join_again() -> None:
    coordinator, ann, bob = formed()
    coordinator.wait(SESSION_MS - 1)
    coordinator.heartbeat(ann)
    coordinator.wait(1)
    assert coordinator.heartbeat(ann) == 27
    assert coordinator.heartbeat(bob) == 25
    token = coordinator.join(ann)
    assert coordinator.joined(token, ann).generation == 2


def test_who_waits_for_the_leader_needs_no_heartbeats() -> None:
    coordinator, ann, bob = told()
    token = coordinator.sync(bob)
    for _ in range(3):
        coordinator.wait(SESSION_MS - 1)
        assert coordinator.heartbeat(ann) == 0
    coordinator.sync(ann, {bob.member_id: b"2"})
    assert coordinator.answer(token, SyncAnswer).assignment == b"2"
    coordinator.wait(SESSION_MS - 1)
    assert coordinator.heartbeat(bob) == 0


def test_a_silent_leader_gives_the_lead_to_the_next() -> None:
    coordinator, _ann, bob = told()
    waiting = coordinator.sync(bob)
    coordinator.wait(SESSION_MS)
    assert coordinator.answer(waiting, SyncAnswer) == SyncAnswer(27)
    token = coordinator.join(bob)
    assert coordinator.joined(token, bob).leader == bob.member_id


def test_who_leaves_makes_the_others_join_again() -> None:
    coordinator, ann, bob = formed()
    assert coordinator.leave(Leaver(bob.member_id)).error_codes == (0,)
    assert coordinator.heartbeat(bob) == 25
    assert coordinator.heartbeat(ann) == 27


def test_who_leaves_in_a_rebalance_is_waited_for_no_more() -> None:
    coordinator, ann, bob = formed()
    token = coordinator.join(ann)
    coordinator.leave(Leaver(bob.member_id))
    assert coordinator.joined(token, ann).generation == 2


def test_who_leaves_while_it_waits_is_answered() -> None:
    coordinator, ann, bob = formed()
    waiting = coordinator.join(ann)
    coordinator.leave(Leaver(ann.member_id))
    assert coordinator.answer(waiting, JoinAnswer) == JoinAnswer(25, "")
    coordinator, ann, bob = told()
    waiting = coordinator.sync(bob)
    coordinator.leave(Leaver(bob.member_id))
    assert coordinator.answer(waiting, SyncAnswer) == SyncAnswer(25)


def test_an_id_that_was_only_given_can_be_given_back() -> None:
    coordinator, _ann, _bob = formed()
    eve = Client("eve")
    eve.member_id = coordinator.at_once(eve.join_request(), JoinAnswer).member_id
    assert coordinator.leave(Leaver(eve.member_id)).error_codes == (0,)
    assert coordinator.leave(Leaver(eve.member_id)).error_codes == (25,)
    assert coordinator.at_once(eve.join_request(), JoinAnswer).error_code == 25


def test_many_leave_at_once_and_each_has_its_answer() -> None:
    coordinator, ann, bob = formed()
    leavers = (Leaver(ann.member_id), Leaver("eve"), Leaver(""), Leaver(bob.member_id))
    assert coordinator.leave(*leavers).error_codes == (0, 25, 25, 0)
    assert state(coordinator) == "Empty"


def test_nobody_leaves_a_group_that_is_not_there() -> None:
    coordinator = Coordinator()
    answer = coordinator.leave(Leaver("ann"), Leaver("bob"))
    assert (answer.error_code, answer.error_codes) == (0, (25, 25))
    assert Identity("", "").claims_membership is False


def test_who_is_no_member_leaves_and_disturbs_nobody() -> None:
    coordinator, ann, _ = formed()
    assert coordinator.leave(Leaver("eve")).error_codes == (25,)
    assert coordinator.heartbeat(ann) == 0
