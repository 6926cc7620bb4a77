"""JoinGroup and rebalances of the classic protocol, as transcripts."""

import pytest

from raylog.actors.coordinators.group_config import GroupConfig
from raylog.actors.coordinators.group_messages import (
    DescribedGroup,
    DescribeGroupsAnswer,
    DescribeGroupsRequest,
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


def described(coordinator: Coordinator) -> DescribedGroup:
    request = DescribeGroupsRequest((GROUP,))
    return coordinator.at_once(request, DescribeGroupsAnswer).groups[0]


def members(coordinator: Coordinator) -> list[str]:
    return [one.client_id for one in described(coordinator).members]


def test_a_new_member_is_sent_back_with_its_id_and_joins_with_it() -> None:
    coordinator, ann = Coordinator(), Client("ann")
    sent_back = coordinator.at_once(ann.join_request(), JoinAnswer)
    assert sent_back == JoinAnswer(79, "ann-ann1")
    assert described(coordinator).state == "Empty"
    ann.member_id = sent_back.member_id
    token = coordinator.ask(ann.join_request())
    coordinator.wait(0)
    answer = coordinator.joined(token, ann)
    assert (answer.generation, answer.leader, answer.protocol) == (1, ann.member_id, "range")
    assert [one.metadata for one in answer.members] == [b"metadata of ann"]


def test_an_old_client_joins_without_that() -> None:
    coordinator, ann = Coordinator(), Client("ann")
    token = coordinator.ask(ann.join_request()._replace(is_told_its_id=False))
    coordinator.wait(0)
    assert coordinator.joined(token, ann).member_id == "ann-ann1"


def test_an_id_that_is_not_used_is_forgotten_with_its_session() -> None:
    coordinator, ann = Coordinator(), Client("ann")
    ann.member_id = coordinator.at_once(ann.join_request(), JoinAnswer).member_id
    coordinator.wait(SESSION_MS)
    assert coordinator.at_once(ann.join_request(), JoinAnswer).error_code == 25


def test_the_first_rebalance_waits_for_more_members_up_to_the_rebalance_timeout() -> None:
    coordinator = Coordinator(GroupConfig(initial_rebalance_delay_ms=3_000))
    tokens = []
    for number in range(4):
        tokens.append(coordinator.join(Client(f"c{number}", rebalance_ms=10_000)))
        coordinator.wait(2_900 if number < 3 else 1_299)
    assert not any(token in coordinator.answers for token in tokens)
    coordinator.wait(1)
    assert all(coordinator.answer(token, JoinAnswer).generation == 1 for token in tokens)


def test_the_first_rebalance_ends_after_the_delay_where_nobody_else_comes() -> None:
    coordinator = Coordinator(GroupConfig(initial_rebalance_delay_ms=3_000))
    token = coordinator.join(Client("ann"))
    coordinator.wait(2_999)
    assert token not in coordinator.answers
    coordinator.wait(1)
    assert token in coordinator.answers


def test_the_leader_hears_of_all_and_the_others_of_nobody() -> None:
    coordinator, ann, bob = Coordinator(), Client("ann"), Client("bob")
    first, second = coordinator.join(ann), coordinator.join(bob)
    coordinator.wait(0)
    to_leader, to_other = coordinator.joined(first, ann), coordinator.joined(second, bob)
    assert [one.member_id for one in to_leader.members] == [ann.member_id, bob.member_id]
    assert to_other.members == ()
    assert to_other.leader == ann.member_id


def test_a_newcomer_makes_the_members_join_again() -> None:
    coordinator, ann, bob = Coordinator(), Client("ann"), Client("bob")
    coordinator.stable(ann)
    of_bob = coordinator.join(bob)
    assert coordinator.heartbeat(ann) == 27
    of_ann = coordinator.join(ann)
    assert coordinator.joined(of_ann, ann).generation == 2
    assert coordinator.joined(of_bob, bob).leader == ann.member_id
    coordinator.settle(ann, bob)
    assert described(coordinator).state == "Stable"


def test_who_does_not_join_in_time_is_left_out() -> None:
    coordinator = Coordinator()
    ann, bob = Client("ann", session_ms=100_000), Client("bob")
    coordinator.stable(ann)
    of_bob = coordinator.join(bob)
    coordinator.wait(REBALANCE_MS - 1)
    assert of_bob not in coordinator.answers
    coordinator.wait(1)
    answer = coordinator.joined(of_bob, bob)
    assert answer.leader == bob.member_id
    assert [one.member_id for one in answer.members] == [bob.member_id]
    assert coordinator.heartbeat(ann) == 25


def test_who_was_sent_back_with_an_id_is_waited_for() -> None:
    coordinator, ann, bob = Coordinator(), Client("ann"), Client("bob")
    coordinator.stable(ann)
    bob.member_id = coordinator.at_once(bob.join_request(), JoinAnswer).member_id
    assert coordinator.heartbeat(ann) == 0, "not yet a member: nobody is disturbed"
    token = coordinator.join(Client("eve"))
    again = coordinator.join(ann)
    assert token not in coordinator.answers
    coordinator.wait(SESSION_MS)
    assert coordinator.joined(again, ann).generation == 2, "bob's id is given up"


def test_a_follower_that_joins_again_with_the_same_is_told_the_standing() -> None:
    coordinator, ann, bob = Coordinator(), Client("ann"), Client("bob")
    coordinator.stable(ann, bob)
    answer = coordinator.at_once(bob.join_request(), JoinAnswer)
    assert (answer.error_code, answer.generation, answer.members) == (0, 1, ())
    assert described(coordinator).state == "Stable"


def test_a_follower_that_wants_something_else_begins_a_rebalance() -> None:
    coordinator, ann, bob = Coordinator(), Client("ann"), Client("bob")
    coordinator.stable(ann, bob)
    bob.protocols = (("range", b"other topics"),)
    coordinator.join(bob)
    assert described(coordinator).state == "PreparingRebalance"


def test_a_leader_that_joins_again_begins_a_rebalance() -> None:
    coordinator, ann, bob = Coordinator(), Client("ann"), Client("bob")
    coordinator.stable(ann, bob)
    coordinator.join(ann)
    assert coordinator.heartbeat(bob) == 27


def test_who_lost_the_answer_of_joining_is_told_it_again() -> None:
    coordinator, ann, bob = Coordinator(), Client("ann"), Client("bob")
    first, second = coordinator.join(ann), coordinator.join(bob)
    coordinator.wait(0)
    told = coordinator.joined(first, ann)
    coordinator.joined(second, bob)
    assert coordinator.at_once(ann.join_request(), JoinAnswer) == told
    bob.protocols = (("range", b"other topics"),)
    coordinator.join(bob)
    assert described(coordinator).state == "PreparingRebalance"


def test_a_repeated_request_takes_the_place_of_the_one_that_waits() -> None:
    coordinator, ann, bob = Coordinator(), Client("ann"), Client("bob")
    coordinator.stable(ann)
    first = coordinator.join(bob)
    second = coordinator.join(bob)
    assert coordinator.answer(first, JoinAnswer).error_code == 16
    coordinator.join(ann)
    assert coordinator.answer(second, JoinAnswer).generation == 2


def test_a_group_takes_one_type_and_a_common_protocol() -> None:
    coordinator = Coordinator()
    coordinator.stable(Client("ann", ("range", b""), ("sticky", b"")))
    strange = Client("bob", ("roundrobin", b"")).join_request()
    assert coordinator.at_once(strange, JoinAnswer).error_code == 23
    other_type = Client("bob", ("range", b"")).join_request()._replace(protocol_type="connect")
    assert coordinator.at_once(other_type, JoinAnswer).error_code == 23
    nothing = Client("bob").join_request()._replace(protocols=())
    assert coordinator.at_once(nothing, JoinAnswer).error_code == 23
    assert (
        coordinator.at_once(
            Client("eve", group="of nobody").join_request()._replace(protocol_type=""), JoinAnswer
        ).error_code
        == 23
    )


def test_the_protocol_with_most_votes_is_chosen_of_those_that_all_support() -> None:
    coordinator = Coordinator()
    clients = [
        Client("ann", ("range", b""), ("sticky", b"")),
        Client("bob", ("uniform", b""), ("sticky", b""), ("range", b"")),
        Client("eve", ("sticky", b""), ("range", b"")),
    ]
    tokens = [coordinator.join(client) for client in clients]
    coordinator.wait(0)
    assert coordinator.answer(tokens[0], JoinAnswer).protocol == "sticky"


def test_where_votes_are_even_the_leaders_order_counts() -> None:
    coordinator = Coordinator()
    ann = Client("ann", ("sticky", b""), ("range", b""))
    bob = Client("bob", ("range", b""), ("sticky", b""))
    tokens = [coordinator.join(one) for one in (ann, bob)]
    coordinator.wait(0)
    assert coordinator.answer(tokens[1], JoinAnswer).protocol == "sticky"


def test_a_full_group_takes_nobody_else() -> None:
    coordinator = Coordinator(GroupConfig(initial_rebalance_delay_ms=0, max_size=1))
    ann = Client("ann")
    coordinator.stable(ann)
    bob = Client("bob").join_request()
    assert coordinator.at_once(bob, JoinAnswer) == JoinAnswer(81, "")
    assert coordinator.heartbeat(ann) == 0, "nobody is disturbed"
    coordinator.join(ann)
    coordinator.stable(ann)
    assert members(coordinator) == ["ann"]


def test_in_a_rebalance_the_first_ones_to_come_have_the_places() -> None:
    roomy = Coordinator(GroupConfig(initial_rebalance_delay_ms=0, max_size=3))
    ann, bob, eve = Client("ann"), Client("bob"), Client("eve")
    roomy.stable(ann, bob, eve)
    roomy.config = GroupConfig(initial_rebalance_delay_ms=0, max_size=2)
    roomy.restart()
    assert roomy.heartbeat(ann) == 27, "a group that is too large begins anew"
    tokens = [roomy.join(one) for one in (eve, bob)]
    late = roomy.at_once(ann.join_request(), JoinAnswer)
    assert late == JoinAnswer(81, "")
    assert all(roomy.answer(token, JoinAnswer).error_code == 0 for token in tokens)
    assert members(roomy) == ["bob", "eve"]


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(session_ms: int) -> None:
    request = Client("ann", session_ms=session_ms).join_request()
    assert Coordinator().at_once(request, JoinAnswer).error_code == 26


def test_the_bounds_of_a_session_timeout_are_taken() -> None:
    for session_ms in (6_000, 1_800_000):
        request = Client("ann", session_ms=session_ms).join_request()
        assert Coordinator().at_once(request, JoinAnswer).error_code == 79


def test_a_group_has_a_name() -> None:
    request = Client("ann", group="").join_request()
    assert Coordinator().at_once(request, JoinAnswer).error_code == 24


def test_nobody_joins_with_an_id_that_was_not_given() -> None:
    coordinator, stranger = Coordinator(), Client("eve")
    stranger.member_id = "made up"
    assert coordinator.at_once(stranger.join_request(), JoinAnswer).error_code == 25
    coordinator.stable(Client("ann"))
    assert coordinator.at_once(stranger.join_request(), JoinAnswer).error_code == 25
    assert [record.group_id for record in coordinator.groups_written()] == [GROUP, GROUP]


def test_a_new_group_is_in_the_log_before_anybody_joins() -> None:
    coordinator, ann = Coordinator(), Client("ann")
    coordinator.refusal = 15
    assert coordinator.at_once(ann.join_request(), JoinAnswer).error_code == 15
    assert described(coordinator).state == "Dead"
    coordinator.refusal = 0
    coordinator.stable(ann)
    written = [record.found for record in coordinator.groups_written()]
    assert written[0] is not None
    assert (written[0].generation, written[0].members) == (0, {})


def test_a_new_member_that_waits_too_long_is_out() -> None:
    coordinator = Coordinator()
    ann = Client("ann", rebalance_ms=1_000_000, session_ms=1_000_000)
    coordinator.stable(ann)
    token = coordinator.join(Client("bob"))
    coordinator.wait(299_999)
    assert token not in coordinator.answers
    coordinator.wait(1)
    assert coordinator.answer(token, JoinAnswer) == JoinAnswer(25, "")


def test_a_member_that_waits_for_the_others_needs_no_heartbeats() -> None:
    coordinator = Coordinator()
    ann, bob = Client("ann"), Client("bob", session_ms=1_000_000)
    coordinator.stable(ann, bob)
    token = coordinator.join(ann)
    coordinator.wait(SESSION_MS * 3)
    coordinator.join(bob)
    assert coordinator.joined(token, ann).generation == 2
    assert coordinator.heartbeat(ann) == 0


def test_a_rebalance_that_all_have_left_makes_the_group_empty() -> None:
    coordinator, ann = Coordinator(), Client("ann")
    coordinator.stable(ann)
    coordinator.leave(Leaver(ann.member_id))
    assert described(coordinator).state == "Empty"
    written = list(coordinator.groups_written())[-1].found
    assert written is not None
    assert (written.generation, written.protocol_type, written.protocol) == (2, "consumer", None)
    bob = Client("bob")
    coordinator.stable(bob)
    assert bob.generation == 3


def test_members_that_ask_for_no_assignment_in_time_are_out() -> None:
    coordinator = Coordinator()
    ann, bob = Client("ann"), Client("bob", session_ms=100_000)
    tokens = [coordinator.join(one) for one in (ann, bob)]
    coordinator.wait(0)
    coordinator.joined(tokens[0], ann)
    coordinator.joined(tokens[1], bob)
    synced = coordinator.sync(ann, {ann.member_id: b"all"})
    assert coordinator.answer(synced, SyncAnswer).assignment == b"all"
    for _ in range(7):
        coordinator.wait(REBALANCE_MS // 7 - 1)
        assert coordinator.heartbeat(ann) == 0
    coordinator.wait(20)
    assert coordinator.heartbeat(ann) == 27
    assert coordinator.heartbeat(bob) == 25


def test_an_id_for_which_there_is_no_room_any_more_is_given_up() -> None:
    coordinator = Coordinator(GroupConfig(initial_rebalance_delay_ms=0, max_size=2))
    ann, bob, eve = Client("ann"), Client("bob"), Client("eve")
    coordinator.stable(ann)
    for late in (bob, eve):
        late.member_id = coordinator.at_once(late.join_request(), JoinAnswer).member_id
    of_bob = coordinator.join(bob)
    again = coordinator.join(ann)
    assert again not in coordinator.answers, "eve is waited for"
    assert coordinator.at_once(eve.join_request(), JoinAnswer) == JoinAnswer(81, "")
    assert coordinator.joined(again, ann).generation == 2
    assert coordinator.joined(of_bob, bob).generation == 2


def test_the_generation_behind_a_restart_is_none_that_was_told_before_it() -> None:
    coordinator, ann = Coordinator(), Client("ann")
    coordinator.stable(ann)
    coordinator.joined(coordinator.join(ann), ann)
    assert ann.generation == 2, "it was told, and no assignment of it is in the log"
    coordinator.restart()
    ann.generation = 1
    assert coordinator.heartbeat(ann) == 0, "the last one that is in the log goes on"
    coordinator.stable(ann)
    assert ann.generation == 3
    coordinator.stable(ann)
    assert ann.generation == 4


def test_a_member_that_joins_again_has_the_timeouts_of_now() -> None:
    coordinator = Coordinator()
    ann, bob = Client("ann"), Client("bob", session_ms=1_000_000)
    coordinator.stable(ann, bob)
    ann.rebalance_ms, ann.session_ms = 2 * REBALANCE_MS, 3 * SESSION_MS
    token = coordinator.join(ann)
    coordinator.wait(2 * REBALANCE_MS)
    coordinator.joined(token, ann)
    coordinator.settle(ann)
    coordinator.wait(2 * SESSION_MS)
    assert coordinator.heartbeat(ann) == 0
    eve = coordinator.join(Client("eve"))
    for _ in range(2 * REBALANCE_MS // (2 * SESSION_MS) - 1):
        coordinator.wait(2 * SESSION_MS)
        assert coordinator.heartbeat(ann) == 27
        assert eve not in coordinator.answers, "ann may take twice as long now"


def test_in_a_rebalance_who_waits_has_a_place_also_when_it_asks_again() -> None:
    coordinator = Coordinator(GroupConfig(initial_rebalance_delay_ms=0, max_size=2))
    ann, bob = Client("ann"), Client("bob")
    coordinator.stable(ann, bob)
    coordinator.config = GroupConfig(initial_rebalance_delay_ms=0, max_size=1)
    coordinator.restart()
    first = coordinator.join(bob)
    again = coordinator.join(bob)
    assert coordinator.answer(first, JoinAnswer).error_code == 16
    assert coordinator.at_once(ann.join_request(), JoinAnswer).error_code == 81
    assert coordinator.joined(again, bob).leader == bob.member_id
