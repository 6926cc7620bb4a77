"""SyncGroup, Heartbeat and LeaveGroup: members that are in a group already.

The leader's SyncGroup brings the assignments of all. They are written to the log before anybody is
told his. Source: ``GroupMetadataManager`` of Kafka.
"""

from raylog.actors.coordinators.codes import (
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from raylog.actors.coordinators.group import Group, Member, State, Token
from raylog.actors.coordinators.group_messages import (
    NO_MEMBER,
    HeartbeatAnswer,
    HeartbeatRequest,
    Identity,
    LeaveAnswer,
    Leaver,
    LeaveRequest,
    SyncAnswer,
    SyncRequest,
)
from raylog.actors.coordinators.group_records import group_record
from raylog.actors.coordinators.group_turn import (
    GroupAssigned,
    SessionEnds,
    SyncPhaseEnds,
    Turn,
)
from raylog.actors.coordinators.joining import why_unknown
from raylog.actors.coordinators.rebalancing import REPLACED, drop, without


def why_outside(group: Group, who: Identity) -> int:
    """The code for who is not a member of the current generation; 0 for who is."""
    if code := why_unknown(group, who):
        return code
    return NONE if who.generation == group.generation else ILLEGAL_GENERATION


def sync(group: Group, request: SyncRequest, token: Token, turn: Turn) -> None:
    """A member asks for its assignment."""
    if code := why_outside(group, request.who) or _why_strange(group, request):
        turn.reply(token, SyncAnswer(code))
        return
    member = group.members[request.who.member_id]
    if group.state is State.PREPARING:
        turn.reply(token, SyncAnswer(REBALANCE_IN_PROGRESS))
        return
    group.pending_syncs.discard(member.member_id)
    if not group.pending_syncs:
        turn.timers.cancel(SyncPhaseEnds(group.group_id))
    if group.state is State.STABLE:
        answer = SyncAnswer(NONE, group.protocol_type, group.protocol, member.assignment)
        turn.reply(token, answer)
        return
    turn.answer_sync(member, SyncAnswer(REPLACED))  # an earlier one, given up by its client
    member.sync = token
    if group.leader == member.member_id:
        _assign(group, request, turn)


def _why_strange(group: Group, request: SyncRequest) -> int:
    """The code for who believes that the group does something else; 0 for who does not say."""
    is_other_type = request.protocol_type not in (None, group.protocol_type)
    is_other_protocol = request.protocol not in (None, group.protocol)
    return INCONSISTENT_GROUP_PROTOCOL if is_other_type or is_other_protocol else NONE


def _assign(group: Group, request: SyncRequest, turn: Turn) -> None:
    """Those that the leader left out get nothing; those that it made up are passed over."""
    assignments = {
        member_id: request.assignments.get(member_id, b"") for member_id in group.members
    }
    then = GroupAssigned(group.group_id, group.generation, assignments)
    turn.append((group_record(group, assignments),), then)


def heartbeat(group: Group, request: HeartbeatRequest, token: Token, turn: Turn) -> None:
    """A member lives; it hears whether it is to join again."""
    code = why_outside(group, request.who)
    if not code:
        turn.heard_of(group, group.members[request.who.member_id])
        if group.state is State.PREPARING:
            code = REBALANCE_IN_PROGRESS
    turn.reply(token, HeartbeatAnswer(code))


def leave(group: Group, request: LeaveRequest, token: Token, turn: Turn) -> None:
    """Members go, by themselves or by an administrator; it makes one rebalance for all."""
    codes = tuple(_leave(group, leaver, turn) for leaver in request.leavers)
    if NONE in codes:
        without(group, turn)
    turn.reply(token, LeaveAnswer(NONE, codes))


def _leave(group: Group, leaver: Leaver, turn: Turn) -> int:
    member_id = leaver.member_id
    if member_id == NO_MEMBER and leaver.instance_id is not None:
        member_id = group.instances.get(leaver.instance_id, NO_MEMBER)
    if member_id in group.pending_joins and leaver.instance_id is None:
        group.pending_joins.remove(member_id)
        turn.timers.cancel(SessionEnds(group.group_id, member_id))
        return NONE
    if member_id == NO_MEMBER:
        return UNKNOWN_MEMBER_ID
    if code := why_unknown(group, Identity(group.group_id, member_id, leaver.instance_id)):
        return code
    drop(group, member_id, turn)
    return NONE


def session_ends(group: Group, member_id: str, turn: Turn) -> None:
    """Nothing was heard for too long: of a member, or of whoever was given an id.

    A member whose request waits here is alive, but for a new one, whose alarm is a long one.
    """
    if member_id in group.pending_joins:
        group.pending_joins.remove(member_id)
        if group.state is State.PREPARING:
            without(group, turn)
        return
    member = group.members.get(member_id)
    if member is None or _waits_here(member):
        return
    drop(group, member_id, turn)
    without(group, turn)


def _waits_here(member: Member) -> bool:
    return not member.is_new and (member.join is not None or member.sync is not None)
