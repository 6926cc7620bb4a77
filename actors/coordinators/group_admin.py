"""ListGroups, DescribeGroups, DeleteGroups: what administrators ask."""

from typing import Final

from raylog.actors.coordinators.codes import (
    GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP,
    NONE,
)
from raylog.actors.coordinators.committing import tombstones
from raylog.actors.coordinators.group import Group, Member, State, Token
from raylog.actors.coordinators.group_messages import (
    DeleteGroupsAnswer,
    DeleteGroupsRequest,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsAnswer,
    DescribeGroupsRequest,
    ListedGroup,
    ListGroupsAnswer,
    ListGroupsRequest,
)
from raylog.actors.coordinators.group_records import group_key
from raylog.actors.coordinators.group_table import GroupTable
from raylog.actors.coordinators.group_turn import Recorded, Turn
from raylog.actors.coordinators.log_record import LogRecord

_CLASSIC: Final = "classic"
_NOT_THERE: Final = "Dead"


def list_groups(table: GroupTable, request: ListGroupsRequest) -> ListGroupsAnswer:
    """The groups that are in one of the states asked for."""
    states = {state.lower() for state in request.states}
    types = {one.lower() for one in request.types}
    if types and _CLASSIC not in types:
        return ListGroupsAnswer(NONE)
    listed = tuple(
        ListedGroup(group.group_id, group.protocol_type or "", group.state.value)
        for group in table.groups.values()
        if not states or group.state.value.lower() in states
    )
    return ListGroupsAnswer(NONE, listed)


def describe_groups(table: GroupTable, request: DescribeGroupsRequest) -> DescribeGroupsAnswer:
    """Each group with its members; what they want to read is told while the group is stable."""
    return DescribeGroupsAnswer(tuple(_described(table, group) for group in request.groups))


def _described(table: GroupTable, group_id: str) -> DescribedGroup:
    group = table.groups.get(group_id)
    if group is None:
        return DescribedGroup(group_id, _NOT_THERE, GROUP_ID_NOT_FOUND)
    is_stable = group.state is State.STABLE
    return DescribedGroup(
        group=group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol=(group.protocol or "") if is_stable else "",
        members=tuple(_member(group, one, is_stable) for one in group.members.values()),
    )


def _member(group: Group, member: Member, is_stable: bool) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        metadata=member.metadata(group.protocol) if is_stable else b"",
        assignment=member.assignment,
    )


def delete_groups(
    table: GroupTable, request: DeleteGroupsRequest, token: Token, turn: Turn
) -> None:
    """Remove those that have no members, with their offsets, all in one batch."""
    codes = tuple(_why_kept(table, group) for group in request.groups)
    gone = {group: None for group, code in zip(request.groups, codes, strict=True) if code == NONE}
    records = tuple(record for group in gone for record in _tombstones(table, group))
    answer = DeleteGroupsAnswer(codes)
    if records:
        turn.append(records, Recorded(token, answer))
    else:
        turn.reply(token, answer)


def _why_kept(table: GroupTable, group_id: str) -> int:
    if group_id in table.others:
        return NON_EMPTY_GROUP
    group = table.groups.get(group_id)
    if group is None:
        return GROUP_ID_NOT_FOUND
    return NONE if group.state is State.EMPTY else NON_EMPTY_GROUP


def _tombstones(table: GroupTable, group_id: str) -> tuple[LogRecord, ...]:
    """Of a group with all its offsets, also of those that transactions hold."""
    offsets = table.offsets
    partitions = sorted({*offsets.of(group_id), *offsets.pending_of(group_id)})
    return (*tombstones(group_id, partitions), LogRecord(group_key(group_id), None))
