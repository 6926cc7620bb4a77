"""Answers the requests of consumer groups (``GROUP_APIS``)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from raylog.actors.coordinators.codes import GROUP_ID_NOT_FOUND, NONE, NOT_COORDINATOR
from raylog.actors.coordinators.group_coordinator import GroupCoordinator
from raylog.actors.coordinators.group_messages import (
    DeleteGroupsAnswer,
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsAnswer,
    DescribeGroupsRequest,
    ListGroupsAnswer,
    ListGroupsRequest,
)
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.groups import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from raylog.actors.plane.apis.transactions import TXN_OFFSET_COMMIT
from raylog.actors.plane.errors import MalformedRequest
from raylog.actors.plane.frames import Request, answer, read_body
from raylog.actors.plane.groups import members, offsets
from raylog.actors.plane.groups.asking import Asking, Places
from raylog.actors.plane.parking import Parking
from raylog.actors.plane.transactions.verifying import Writer
from raylog.storage.schemas.types import Value

# A member's id has it, a dash and a uuid, and is written as a string of at most 32,767 bytes.
MAX_CLIENT_ID_BYTES: Final = 32_767 - 37
_TYPE: Final = "classic"
# The operations that somebody may do with a group whom nobody restricts: READ DELETE DESCRIBE, and
# of configs DESCRIBE_CONFIGS ALTER_CONFIGS, by the numbers of Kafka's operations.
GROUP_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8))
_NOT_ASKED: Final = -(2**31)
_OPERATIONS_FROM: Final = 3  # DescribeGroups
_NOT_FOUND_FROM: Final = 6  # DescribeGroups: before, a group that is not there is "Dead"


def _list(_: Request, body: Value, ask: Asking) -> Value:
    asked = ListGroupsRequest(tuple(body["statesFilter"]), tuple(body["typesFilter"]))
    found = ask(asked, ListGroupsAnswer)
    groups = [
        {
            "groupId": group.group,
            "protocolType": group.protocol_type,
            "groupState": group.state,
            "groupType": _TYPE,
        }
        for group in found.groups
    ]
    return {"throttleTimeMs": 0, "errorCode": found.error_code, "groups": groups}


def _describe(request: Request, body: Value, ask: Asking) -> Value:
    found = ask(DescribeGroupsRequest(tuple(body["groups"])), DescribeGroupsAnswer)
    groups = [_described(request.version, body, group) for group in found.groups]
    return {"throttleTimeMs": 0, "groups": groups}


def _described(version: int, body: Value, group: DescribedGroup) -> Value:
    code = group.error_code
    is_dead = code == GROUP_ID_NOT_FOUND
    answer: Value = {
        "errorCode": NONE if is_dead and version < _NOT_FOUND_FROM else code,
        "groupId": group.group,
        "groupState": group.state,
        "protocolType": group.protocol_type,
        "protocolData": group.protocol,
        "members": [
            {
                "memberId": member.member_id,
                "groupInstanceId": member.instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "memberMetadata": member.metadata,
                "memberAssignment": member.assignment,
            }
            for member in group.members
        ],
    }
    if version >= _OPERATIONS_FROM:
        asks = body["includeAuthorizedOperations"] and not code
        answer["authorizedOperations"] = GROUP_OPERATIONS if asks else _NOT_ASKED
    if version >= _NOT_FOUND_FROM:
        answer["errorMessage"] = f"Group {group.group} not found." if is_dead else None
    return answer


def _delete(_: Request, body: Value, ask: Asking) -> Value:
    names = body["groupsNames"]
    found = ask(DeleteGroupsRequest(tuple(names)), DeleteGroupsAnswer)
    results = [
        {"groupId": name, "errorCode": code}
        for name, code in zip(names, found.error_codes, strict=True)
    ]
    return {"throttleTimeMs": 0, "results": results}


_ANSWERS: Final[Mapping[Api, Callable[[Request, Value, Asking], Value]]] = {
    SYNC_GROUP: members.sync,
    HEARTBEAT: members.heartbeat,
    LEAVE_GROUP: members.leave,
    OFFSET_COMMIT: offsets.commit,
    OFFSET_FETCH: offsets.fetch,
    OFFSET_DELETE: offsets.delete,
    LIST_GROUPS: _list,
    DESCRIBE_GROUPS: _describe,
    DELETE_GROUPS: _delete,
}


@contextmanager
def _nobody_begins(_: Writer) -> Iterator[int]:
    yield NOT_COORDINATOR


def answer_group_request(
    request: Request,
    coordinator: GroupCoordinator | None,
    parking: Parking,
    begin: Callable[[Writer], AbstractContextManager[int]] = _nobody_begins,
    places: Places | None = None,
) -> bytes:
    """The answer to one of GROUP_APIS, or to TxnOffsetCommit. Raises MalformedRequest, PeerGone.

    ``coordinator``: that of this process, if it has one. ``begin``: a transaction in its partition.
    ``places``: which partitions there are; None: nobody knows.
    """
    body = read_body(request)
    if request.api is JOIN_GROUP and len(request.client_id.encode()) > MAX_CLIENT_ID_BYTES:
        why = f"a client id of more than {MAX_CLIENT_ID_BYTES} bytes, too long for a member's id"
        raise MalformedRequest(
            request.api.name, request.version, request.correlation_id, request.body_position, why
        )
    ask = Asking(coordinator, parking, places)
    if request.api is TXN_OFFSET_COMMIT:
        return answer(request, offsets.commit_in_transaction(request, body, ask, begin))
    if request.api is JOIN_GROUP:
        return answer(request, members.join(request, body, parking.peer_host, ask))
    return answer(request, _ANSWERS[request.api](request, body, ask))
