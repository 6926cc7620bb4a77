"""JoinGroup: who may be a member, and when it is answered.

A new member is first sent back with an id (KIP-394): a request that is repeated, since its answer
was lost, then finds the same member. A static member (KIP-345) comes back under its instance's name
without an id, takes its place with a new one, and keeps its assignment where nothing else changes.

What becomes of a request, by the group's state (``group.py``)::

    who                          Empty     Preparing   Completing      Stable
    new, or with a fresh id      prepare   wait        prepare         prepare
    known, wants the same        -         wait        the standing    leader: prepare; others: the
                                                                       standing
    known, wants something else  -         wait        prepare         prepare
    static, without its id       -         wait        prepare         replaced without a rebalance,
                                                                       if the protocol stays

Source: ``GroupMetadataManager`` of Kafka.
"""

from copy import deepcopy
from typing import Final

from raylog.actors.coordinators.codes import (
    FENCED_INSTANCE_ID,
    GROUP_MAX_SIZE_REACHED,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    NONE,
    UNKNOWN_MEMBER_ID,
)
from raylog.actors.coordinators.group import Group, Member, State, Token
from raylog.actors.coordinators.group_messages import (
    NO_MEMBER,
    Identity,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
)
from raylog.actors.coordinators.group_records import group_record
from raylog.actors.coordinators.group_turn import MemberReplaced, SessionEnds, Turn
from raylog.actors.coordinators.rebalancing import (
    REPLACED,
    complete_if_all_joined,
    drop,
    prepare,
    standing,
    without,
)

# A member that has never been in a generation may wait so long for its first one.
NEW_MEMBER_TIMEOUT_MS: Final = 300_000


def join(group: Group, request: JoinRequest, token: Token, turn: Turn) -> None:
    """A member comes to a group that is in the log."""
    member_id = request.who.member_id
    if not _has_room(group, member_id, turn.config.max_size):
        turn.reply(token, JoinAnswer(GROUP_MAX_SIZE_REACHED, NO_MEMBER))
        _turn_away(group, member_id, turn)
    elif not group.accepts(request.protocol_type, request.protocols):
        turn.reply(token, JoinAnswer(INCONSISTENT_GROUP_PROTOCOL, member_id))
    elif member_id == NO_MEMBER:
        _join_without_id(group, request, token, turn)
    elif member_id in group.pending_joins and request.who.instance_id is None:
        _add(group, member_id, request, token, turn)
    elif code := why_unknown(group, request.who):
        turn.reply(token, JoinAnswer(code, member_id))
    else:
        _join_again(group, group.members[member_id], request, token, turn)


def why_unknown(group: Group, who: Identity) -> int:
    """The code for who is no member, or whose instance another one is by now; 0 for members."""
    if who.instance_id is None:
        return NONE if who.member_id in group.members else UNKNOWN_MEMBER_ID
    of_instance = group.instances.get(who.instance_id)
    if of_instance is None:
        return UNKNOWN_MEMBER_ID
    return NONE if of_instance == who.member_id else FENCED_INSTANCE_ID


def _has_room(group: Group, member_id: str, max_size: int) -> bool:
    """Whether the group takes this member; one that waits in a rebalance has its place."""
    if group.state is State.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is State.PREPARING:
        has_joined = member is not None and member.join is not None
        return has_joined or len(group.joined) < max_size
    return member is not None or len(group.members) < max_size


def _turn_away(group: Group, member_id: str, turn: Turn) -> None:
    """Those that are in a full group notice nothing, unless it was one of them."""
    if member_id in group.members:
        drop(group, member_id, turn)
        without(group, turn)
    elif member_id in group.pending_joins:
        group.pending_joins.remove(member_id)
        turn.timers.cancel(SessionEnds(group.group_id, member_id))
        if group.state is State.PREPARING:
            without(group, turn)


def _join_without_id(group: Group, request: JoinRequest, token: Token, turn: Turn) -> None:
    """A member comes for the first time, or a static one comes back."""
    instance_id = request.who.instance_id
    new_id = f"{instance_id or request.client_id}-{request.fresh_id}"
    if instance_id is not None and instance_id in group.instances:
        _replace(group, group.instances[instance_id], new_id, request, token, turn)
    elif instance_id is None and request.is_told_its_id:
        group.pending_joins.add(new_id)
        alarm = SessionEnds(group.group_id, new_id)
        turn.timers.set(alarm, turn.now_ms + request.session_timeout_ms)
        turn.reply(token, JoinAnswer(MEMBER_ID_REQUIRED, new_id))
    else:
        _add(group, new_id, request, token, turn)


def _add(group: Group, member_id: str, request: JoinRequest, token: Token, turn: Turn) -> None:
    member = Member(
        member_id=member_id,
        instance_id=request.who.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
        join=token,
        is_new=True,
    )
    if not group.members:
        group.protocol_type = request.protocol_type
    group.add(member)
    if group.delay_left_ms is not None:
        group.has_newcomers = True
    alarm = SessionEnds(group.group_id, member_id)
    turn.timers.set(alarm, turn.now_ms + NEW_MEMBER_TIMEOUT_MS)
    _rebalance(group, turn)


def _rebalance(group: Group, turn: Turn) -> None:
    if group.state is State.PREPARING:
        complete_if_all_joined(group, turn)
    else:
        prepare(group, turn)


def _join_again(
    group: Group, member: Member, request: JoinRequest, token: Token, turn: Turn
) -> None:
    wants_the_same = member.protocols == request.protocols
    is_follower = group.leader != member.member_id
    # In Completing its answer was lost. A leader that comes again wants a rebalance.
    stays = group.state is State.COMPLETING or (group.state is State.STABLE and is_follower)
    if wants_the_same and stays:
        turn.reply(token, standing(group, member))
    else:
        _wait(member, request, token, turn)
        _rebalance(group, turn)


def _wait(member: Member, request: JoinRequest, token: Token, turn: Turn) -> None:
    """Its request waits; an earlier one that does is given up by its client."""
    turn.answer_join(member, JoinAnswer(REPLACED, member.member_id))
    _take_over(member, request)
    member.join = token


def _take_over(member: Member, request: JoinRequest) -> None:
    member.protocols = request.protocols
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms


def _replace(
    group: Group, old_id: str, new_id: str, request: JoinRequest, token: Token, turn: Turn
) -> None:
    """A static member comes back: whoever has its old id is out.

    In a stable group whose protocol stays the same, the new id is written down first; until then
    the old one is the member.
    """
    if group.state is State.STABLE:
        after = deepcopy(group)
        _take_over(after.rename(old_id, new_id), request)
        if after.elect_protocol() == group.protocol:
            answer = _quiet_answer(group, after, new_id, request)
            turn.append((group_record(after),), MemberReplaced(after, new_id, token, answer))
            return
    member = _renamed(group, old_id, new_id, turn)
    turn.heard_of(group, member)
    _wait(member, request, token, turn)
    _rebalance(group, turn)


def _renamed(group: Group, old_id: str, new_id: str, turn: Turn) -> Member:
    member = group.members[old_id]
    turn.answer_join(member, JoinAnswer(FENCED_INSTANCE_ID, old_id))
    turn.answer_sync(member, SyncAnswer(FENCED_INSTANCE_ID))
    return group.rename(old_id, new_id)


def _quiet_answer(group: Group, after: Group, new_id: str, request: JoinRequest) -> JoinAnswer:
    """A leader is told to assign nothing. An old client is told the leader of before.

    With another leader's id it behaves as a follower.
    """
    answer = standing(after, after.members[new_id])
    if request.may_skip_assignment:
        return answer._replace(skips_assignment=after.leader == new_id)
    return answer._replace(leader=group.leader or NO_MEMBER, members=())


def replaced(then: MemberReplaced, turn: Turn) -> None:
    """The new id is in the log, and ``then.group`` is the group."""
    turn.heard_of(then.group, then.group.members[then.new_id])
    turn.reply(then.token, then.answer)
