"""How a group goes from one generation to the next.

::

    prepare     whoever wants another assignment begins it; the members hear of it by their
                heartbeats, and join again
    complete    when all have joined, or the time is up: who has not joined is left out, the
                protocol is chosen, all are told the new generation, and the leader who they are
    settle      the leader's assignments are in the log: all are told theirs

A group's first members come one after the other. So a first rebalance waits for
``group.initial.rebalance.delay.ms``, and again for as long whenever somebody has come meanwhile,
until the rebalance timeout is over. Source: ``GroupMetadataManager`` of Kafka, KIP-134.
"""

from collections.abc import Mapping
from typing import Final

from raylog.actors.coordinators.codes import (
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from raylog.actors.coordinators.group import Group, Member, State
from raylog.actors.coordinators.group_messages import (
    NO_MEMBER,
    JoinAnswer,
    JoinedMember,
    SyncAnswer,
)
from raylog.actors.coordinators.group_records import group_record
from raylog.actors.coordinators.group_turn import (
    Alarm,
    GroupEmptied,
    JoinPhaseEnds,
    SessionEnds,
    SyncPhaseEnds,
    Turn,
)
from raylog.actors.coordinators.timers import Timers

# A request that another one of the same member has taken the place of.
REPLACED: Final = NOT_COORDINATOR


def prepare(group: Group, turn: Turn) -> None:
    """Let the members join anew."""
    if group.state is State.COMPLETING:
        _give_up_assignment(group, turn, REBALANCE_IN_PROGRESS)
    group.pending_syncs.clear()
    turn.timers.cancel(SyncPhaseEnds(group.group_id))
    is_first = group.state is State.EMPTY
    group.move_to(State.PREPARING, turn.wall_ms)
    if is_first:
        delay_ms = turn.config.initial_rebalance_delay_ms
        group.has_newcomers = False
        group.delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        turn.timers.set(JoinPhaseEnds(group.group_id), turn.now_ms + delay_ms)
        return
    turn.timers.set(JoinPhaseEnds(group.group_id), turn.now_ms + group.rebalance_timeout_ms)
    complete_if_all_joined(group, turn)


def complete_if_all_joined(group: Group, turn: Turn) -> None:
    """End the phase of joining early where nobody is waited for."""
    assert group.state is State.PREPARING
    if group.delay_left_ms is None and group.all_have_joined:
        complete(group, turn)


def join_phase_ends(group: Group, turn: Turn) -> None:
    """Its time is up: prolong a first rebalance to which somebody has just come, or complete."""
    if group.state is not State.PREPARING:
        return
    if group.has_newcomers and group.delay_left_ms:
        delay_ms = min(turn.config.initial_rebalance_delay_ms, group.delay_left_ms)
        group.has_newcomers = False
        group.delay_left_ms -= delay_ms
        turn.timers.set(JoinPhaseEnds(group.group_id), turn.now_ms + delay_ms)
        return
    complete(group, turn)


def complete(group: Group, turn: Turn) -> None:
    """Begin the next generation with those that have joined."""
    group.delay_left_ms = None
    for member in list(group.members.values()):
        if member.join is None and member.instance_id is None:
            drop(group, member.member_id, turn)
    joined = group.joined
    if group.members and not joined:  # all are static, and away: their sessions will end
        turn.timers.set(JoinPhaseEnds(group.group_id), turn.now_ms + group.rebalance_timeout_ms)
        return
    turn.timers.cancel(JoinPhaseEnds(group.group_id))
    group.generation += group.next_step
    group.next_step = 1
    if not joined:
        group.protocol = None
        group.move_to(State.EMPTY, turn.wall_ms)
        turn.append((group_record(group),), GroupEmptied())
        return
    if group.leader not in {member.member_id for member in joined}:
        group.leader = joined[0].member_id
    group.protocol = group.elect_protocol()
    group.move_to(State.COMPLETING, turn.wall_ms)
    group.pending_syncs = set(group.members)
    turn.timers.set(SyncPhaseEnds(group.group_id), turn.now_ms + group.rebalance_timeout_ms)
    for member in joined:
        turn.answer_join(member, standing(group, member))
        member.is_new = False
        turn.heard_of(group, member)


def standing(group: Group, member: Member) -> JoinAnswer:
    """The generation as a member is told of it; the leader hears who is in it."""
    is_leader = group.leader == member.member_id
    return JoinAnswer(
        error_code=NONE,
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader or NO_MEMBER,
        members=_members(group) if is_leader else (),
    )


def _members(group: Group) -> tuple[JoinedMember, ...]:
    """All members with what they say for the chosen protocol."""
    return tuple(
        JoinedMember(one.member_id, one.instance_id, one.metadata(group.protocol))
        for one in group.members.values()
    )


def settle(group: Group, assignments: Mapping[str, bytes], turn: Turn) -> None:
    """The assignments are in the log: tell them to those that wait for them."""
    group.move_to(State.STABLE, turn.wall_ms)
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        if member.sync is not None:
            answer = SyncAnswer(NONE, group.protocol_type, group.protocol, member.assignment)
            turn.answer_sync(member, answer)
            turn.heard_of(group, member)


def cannot_settle(group: Group, code: int, turn: Turn) -> None:
    """The assignments could not be written: the members join anew."""
    _give_up_assignment(group, turn, code)
    prepare(group, turn)


def _give_up_assignment(group: Group, turn: Turn, code: int) -> None:
    for member in group.members.values():
        if member.sync is not None:
            turn.answer_sync(member, SyncAnswer(code))
            turn.heard_of(group, member)


def sync_phase_ends(group: Group, turn: Turn) -> None:
    """Throw out those that have not asked for their assignment."""
    for member_id in list(group.pending_syncs):
        drop(group, member_id, turn)
    prepare(group, turn)


def drop(group: Group, member_id: str, turn: Turn) -> None:
    """Remove a member; whatever it asked is answered by "unknown"."""
    member = group.remove(member_id)
    turn.answer_join(member, JoinAnswer(UNKNOWN_MEMBER_ID, NO_MEMBER))
    turn.answer_sync(member, SyncAnswer(UNKNOWN_MEMBER_ID))
    turn.timers.cancel(SessionEnds(group.group_id, member_id))


def without(group: Group, turn: Turn) -> None:
    """Somebody is gone: go on without, where that makes a difference."""
    if group.state in (State.COMPLETING, State.STABLE):
        prepare(group, turn)
    elif group.state is State.PREPARING:
        complete_if_all_joined(group, turn)


def validate_alarms(group: Group, timers: Timers[Alarm]) -> None:
    """Assert that whatever is waited for ends by itself."""
    for member_id in group.pending_joins:
        assert SessionEnds(group.group_id, member_id) in timers
    for member in group.members.values():
        waits = member.join is not None or member.sync is not None
        has_alarm = SessionEnds(group.group_id, member.member_id) in timers
        assert has_alarm or (waits and not member.is_new), member
    is_preparing = group.state is State.PREPARING
    assert is_preparing == (JoinPhaseEnds(group.group_id) in timers)
    sync_alarm = SyncPhaseEnds(group.group_id)
    assert bool(group.pending_syncs) == (sync_alarm in timers)
