"""Members with a ``group.instance.id`` (KIP-345): they come back to what they had."""

from raylog.actors.coordinators.group_messages import (
    DescribeGroupsAnswer,
    DescribeGroupsRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    Leaver,
    SyncAnswer,
)
from tests.harness.coordinating import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Client,
    Coordinator,
)


def state(coordinator: Coordinator) -> str:
    request = DescribeGroupsRequest((GROUP,))
    return coordinator.at_once(request, DescribeGroupsAnswer).groups[0].state


def formed() -> tuple[Coordinator, Client, Client]:
    coordinator = Coordinator()
    ann, bob = Client("ann", instance_id="a"), Client("bob", instance_id="b")
    coordinator.stable(ann, bob)
    return coordinator, ann, bob


def come_back(coordinator: Coordinator, member: Client) -> JoinAnswer:
    member.forgets()
    return coordinator.joined(coordinator.join(member), member)


def test_it_joins_at_once_under_an_id_of_its_instance() -> None:
    coordinator, ann = Coordinator(), Client("ann", instance_id="a")
    token = coordinator.join(ann)
    coordinator.wait(0)
    assert coordinator.joined(token, ann).member_id == "a-ann1"


def test_a_follower_comes_back_without_a_rebalance_and_keeps_its_assignment() -> None:
    coordinator, ann, bob = formed()
    old = bob.who
    answer = come_back(coordinator, bob)
    assert (answer.generation, answer.leader, answer.members) == (1, ann.member_id, ())
    assert not answer.skips_assignment
    assert state(coordinator) == "Stable"
    assert coordinator.heartbeat(ann) == 0
    token = coordinator.sync(bob)
    assert coordinator.answer(token, SyncAnswer).assignment == b"bob"
    assert coordinator.at_once(HeartbeatRequest(old), HeartbeatAnswer).error_code == 82


def test_a_leader_comes_back_as_leader_and_is_told_to_assign_nothing() -> None:
    coordinator, ann, bob = formed()
    answer = come_back(coordinator, ann)
    assert answer.leader == ann.member_id
    assert answer.skips_assignment
    assert [one.member_id for one in answer.members] == [ann.member_id, bob.member_id]


def test_an_old_client_that_led_comes_back_as_a_follower() -> None:
    coordinator, ann, _ = formed()
    old_id = ann.member_id
    ann.may_skip_assignment = False
    answer = come_back(coordinator, ann)
    assert (answer.leader, answer.members, answer.skips_assignment) == (old_id, (), False)
    token = coordinator.sync(ann)
    assert coordinator.answer(token, SyncAnswer).assignment == b"ann"


def test_the_new_id_is_in_the_log() -> None:
    coordinator, _, bob = formed()
    come_back(coordinator, bob)
    coordinator.restart()
    assert coordinator.heartbeat(bob) == 0


def test_where_the_new_id_cannot_be_written_the_old_one_stays() -> None:
    coordinator, _, bob = formed()
    old = bob.who
    coordinator.refusal = 15
    bob.forgets()
    token = coordinator.join(bob)
    assert coordinator.answer(token, JoinAnswer) == JoinAnswer(15, "")
    assert coordinator.at_once(HeartbeatRequest(old), HeartbeatAnswer).error_code == 0


def test_its_session_begins_anew_and_the_old_one_ends_nothing() -> None:
    coordinator, ann, bob = formed()
    coordinator.wait(SESSION_MS - 1)
    coordinator.heartbeat(ann)
    come_back(coordinator, bob)
    coordinator.wait(SESSION_MS - 1)
    assert coordinator.heartbeat(ann) == 0
    assert coordinator.heartbeat(bob) == 0


def test_another_protocol_makes_a_rebalance() -> None:
    coordinator = Coordinator()
    both = (("range", b""), ("sticky", b""))
    ann, bob = Client("ann", *both, instance_id="a"), Client("bob", *both, instance_id="b")
    coordinator.stable(ann, bob)
    bob.forgets()
    bob.protocols = (("sticky", b""),)
    coordinator.join(bob)
    assert state(coordinator) == "PreparingRebalance"


def test_in_a_rebalance_it_joins_under_its_new_id() -> None:
    coordinator, ann, bob = formed()
    waiting = coordinator.join(ann)
    of_ann = ann.who
    ann.forgets()
    again = coordinator.join(ann)
    assert coordinator.answer(waiting, JoinAnswer).error_code == 82
    coordinator.join(bob)
    assert coordinator.joined(again, ann).leader == ann.member_id
    assert ann.member_id != of_ann.member_id


def test_between_joining_and_assignment_it_makes_a_rebalance() -> None:
    coordinator = Coordinator()
    ann, bob = Client("ann", instance_id="a"), Client("bob", instance_id="b")
    tokens = [coordinator.join(one) for one in (ann, bob)]
    coordinator.wait(0)
    coordinator.joined(tokens[0], ann)
    coordinator.joined(tokens[1], bob)
    waiting = coordinator.sync(bob)
    bob.forgets()
    coordinator.join(bob)
    assert coordinator.answer(waiting, SyncAnswer).error_code == 82
    assert state(coordinator) == "PreparingRebalance"


def test_another_process_with_its_instance_fences_it() -> None:
    coordinator, _, bob = formed()
    twin = Client("twin", instance_id="b")
    coordinator.joined(coordinator.join(twin), twin)
    assert coordinator.at_once(bob.join_request(), JoinAnswer).error_code == 82
    assert coordinator.leave(Leaver(bob.member_id, "b")).error_codes == (82,)


def test_an_instance_that_nobody_knows_is_unknown() -> None:
    coordinator, ann, _ = formed()
    who = ann.who._replace(instance_id="c")
    assert coordinator.at_once(HeartbeatRequest(who), HeartbeatAnswer).error_code == 25


def test_an_administrator_removes_it_by_its_instance() -> None:
    coordinator, ann, _ = formed()
    assert coordinator.leave(Leaver("", "b"), Leaver("", "c")).error_codes == (0, 25)
    assert coordinator.heartbeat(ann) == 27


def test_one_that_is_away_keeps_its_place_in_a_rebalance_until_its_session_ends() -> None:
    coordinator = Coordinator()
    ann = Client("ann", instance_id="a")
    bob = Client("bob", instance_id="b", session_ms=REBALANCE_MS + 5_000)
    coordinator.stable(ann, bob)
    again = coordinator.join(ann)
    coordinator.wait(REBALANCE_MS)
    answer = coordinator.joined(again, ann)
    assert [one.instance_id for one in answer.members] == ["a", "b"]


def test_where_all_are_away_the_rebalance_waits_for_their_sessions() -> None:
    coordinator = Coordinator()
    ann = Client("ann", instance_id="a", session_ms=100_000)
    bob = Client("bob", instance_id="b", session_ms=100_000)
    coordinator.stable(ann, bob)
    eve = Client("eve")
    coordinator.join(eve)
    coordinator.leave(Leaver(eve.member_id))
    coordinator.wait(REBALANCE_MS)
    assert state(coordinator) == "PreparingRebalance"
    coordinator.wait(REBALANCE_MS)
    assert state(coordinator) == "Empty"


def test_one_that_was_away_in_a_rebalance_and_asks_for_nothing_is_out() -> None:
    coordinator = Coordinator()
    ann = Client("ann", instance_id="a", session_ms=1_000_000)
    bob = Client("bob", instance_id="b", session_ms=1_000_000)
    coordinator.stable(ann, bob)
    again = coordinator.join(ann)
    coordinator.wait(REBALANCE_MS)
    coordinator.joined(again, ann)
    token = coordinator.sync(ann, {ann.member_id: b"all"})
    assert coordinator.answer(token, SyncAnswer).assignment == b"all"
    coordinator.wait(REBALANCE_MS)
    assert coordinator.heartbeat(ann) == 27
    assert coordinator.at_once(HeartbeatRequest(bob.who), HeartbeatAnswer).error_code == 25
