"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: from a version's body to the request, and back."""

from typing import Final
from uuid import uuid4

from raylog.actors.coordinators.codes import INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID
from raylog.actors.coordinators.group_messages import (
    HeartbeatAnswer,
    HeartbeatRequest,
    Identity,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    Leaver,
    LeaveRequest,
    Protocol,
    SyncAnswer,
    SyncRequest,
)
from raylog.actors.plane.frames import Request
from raylog.actors.plane.groups.asking import Asking
from raylog.storage.schemas.types import Value

_SENDS_BACK_FROM: Final = 4  # JoinGroup: a new member is told its id first (KIP-394)
_NULL_NAMES_FROM: Final = 7  # JoinGroup: a protocol may be null
_NAMES_PROTOCOL_FROM: Final = 5  # SyncGroup: it must say its protocol (KIP-559)
_SKIPS_FROM: Final = 9  # JoinGroup: a leader may be told to assign nothing (KIP-814)
_SEVERAL_LEAVE_FROM: Final = 3


def join(request: Request, body: Value, host: str, ask: Asking) -> Value:
    """``host``: of the member, as tools show it."""
    version = request.version
    session_ms, rebalance_ms = body["sessionTimeoutMs"], body["rebalanceTimeoutMs"]
    asked = JoinRequest(
        who=Identity(body["groupId"], body["memberId"], body["groupInstanceId"]),
        client_id=request.client_id,
        client_host=host,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms if rebalance_ms < 0 else rebalance_ms,
        protocol_type=body["protocolType"],
        protocols=tuple(Protocol(one["name"], one["metadata"]) for one in body["protocols"]),
        fresh_id=str(uuid4()),
        is_told_its_id=version >= _SENDS_BACK_FROM,
        may_skip_assignment=version >= _SKIPS_FROM,
    )
    found = ask(asked, JoinAnswer)
    no_name = None if version >= _NULL_NAMES_FROM else ""
    answer: Value = {
        "throttleTimeMs": 0,
        "errorCode": found.error_code,
        "generationId": found.generation,
        "protocolType": found.protocol_type,
        "protocolName": no_name if found.protocol is None else found.protocol,
        "leader": found.leader,
        "memberId": found.member_id,
        "members": [
            {
                "memberId": member.member_id,
                "groupInstanceId": member.instance_id,
                "metadata": member.metadata,
            }
            for member in found.members
        ],
    }
    if version >= _SKIPS_FROM:
        answer["skipAssignment"] = found.skips_assignment
    return answer


def sync(request: Request, body: Value, ask: Asking) -> Value:
    if request.version >= _NAMES_PROTOCOL_FROM and None in (
        body["protocolType"],
        body["protocolName"],
    ):
        return _synced(SyncAnswer(INCONSISTENT_GROUP_PROTOCOL))
    asked = SyncRequest(
        who=_who(body),
        protocol_type=body["protocolType"],
        protocol=body["protocolName"],
        assignments={one["memberId"]: one["assignment"] for one in body["assignments"]},
    )
    return _synced(ask(asked, SyncAnswer))


def _synced(found: SyncAnswer) -> Value:
    return {
        "throttleTimeMs": 0,
        "errorCode": found.error_code,
        "protocolType": found.protocol_type,
        "protocolName": found.protocol,
        "assignment": found.assignment,
    }


def heartbeat(_: Request, body: Value, ask: Asking) -> Value:
    found = ask(HeartbeatRequest(_who(body)), HeartbeatAnswer)
    return {"throttleTimeMs": 0, "errorCode": found.error_code}


def _who(body: Value) -> Identity:
    return Identity(
        body["groupId"], body["memberId"], body["groupInstanceId"], body["generationId"]
    )


def leave(request: Request, body: Value, ask: Asking) -> Value:
    """An old version has one member, whose code is the answer's."""
    has_several = request.version >= _SEVERAL_LEAVE_FROM
    leavers = (
        tuple(Leaver(one["memberId"], one["groupInstanceId"]) for one in body["members"])
        if has_several
        else (Leaver(body["memberId"]),)
    )
    found = ask(LeaveRequest(body["groupId"], leavers), LeaveAnswer)
    codes = found.error_codes
    if not has_several:
        code = found.error_code or (codes[0] if codes else UNKNOWN_MEMBER_ID)
        return {"throttleTimeMs": 0, "errorCode": code}
    members = [
        {
            "memberId": leaver.member_id,
            "groupInstanceId": leaver.instance_id,
            "errorCode": code,
        }
        for leaver, code in zip(leavers, codes, strict=False)
    ]
    return {"throttleTimeMs": 0, "errorCode": found.error_code, "members": members}
