"""How requests come to the coordinator of groups in this process, if there is one.

Where there is none, or not yet, each request is answered by a code, which clients understand: they
look for the coordinator again (15, 16), or wait for it (14). A heartbeat is the exception: while
the coordinator reads its log it is answered as if all was well, so that no member goes.

ListGroups is asked of every broker. Whoever coordinates nothing has an empty list, and no error: an
administrator's tool would fail with it.
"""

from typing import Protocol, TypeVar

from raylog.actors.coordinators.codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    NONE,
    NOT_COORDINATOR,
)
from raylog.actors.coordinators.group_coordinator import GroupCoordinator
from raylog.actors.coordinators.group_messages import (
    CommitAnswer,
    CommitRequest,
    DeleteGroupsAnswer,
    DeleteGroupsRequest,
    DeleteOffsetsAnswer,
    DeleteOffsetsRequest,
    DescribedGroup,
    DescribeGroupsAnswer,
    DescribeGroupsRequest,
    FetchOffsetsAnswer,
    FetchOffsetsRequest,
    GroupAnswer,
    GroupRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    ListGroupsAnswer,
    ListGroupsRequest,
    SyncAnswer,
    SyncRequest,
)
from raylog.actors.coordinators.refusals import NotServed
from raylog.actors.plane.errors import PeerAway, PeerGone
from raylog.actors.plane.parking import Parking
from raylog.storage.names import TopicPartition

_Answer = TypeVar("_Answer", bound=GroupAnswer)


class Places(Protocol):
    """``peers.py``."""

    def missing(self, partitions: list[TopicPartition]) -> set[TopicPartition]: ...


class Asking:
    """One request's way to the coordinator."""

    def __init__(
        self, coordinator: GroupCoordinator | None, parking: Parking, places: Places | None
    ) -> None:
        """``places``: which partitions there are; None: nobody knows."""
        self._coordinator, self._parking, self._places = coordinator, parking, places

    def missing(self, partitions: list[TopicPartition]) -> set[TopicPartition]:
        """Those that are not there, so that no offset of them is committed or deleted.

        None where nobody says it now: a commit does not wait for a LogManager that is away.
        """
        if self._coordinator is None or self._places is None:
            return set()
        try:
            return self._places.missing(partitions)
        except PeerAway:
            return set()

    def __call__(self, request: GroupRequest, kind: type[_Answer]) -> _Answer:
        """The answer, of its kind. Raises PeerGone where its asker went meanwhile."""
        if self._coordinator is None:
            found: GroupAnswer | NotServed | None = NotServed(NOT_COORDINATOR)
        else:
            found = self._coordinator.ask(request, self._parking)
        if found is None:
            raise PeerGone("its request was waiting for the other members of its group")
        if isinstance(found, NotServed):
            found = _without(request, found.error_code)
        assert isinstance(found, kind), found
        return found


def _without(request: GroupRequest, code: int) -> GroupAnswer:
    """The answer where no coordinator is asked."""
    match request:
        case JoinRequest():
            return JoinAnswer(code, request.who.member_id)
        case SyncRequest():
            return SyncAnswer(code)
        case HeartbeatRequest():
            return HeartbeatAnswer(NONE if code == COORDINATOR_LOAD_IN_PROGRESS else code)
        case LeaveRequest():
            return LeaveAnswer(code)
        case CommitRequest():
            return CommitAnswer((code,) * len(request.offsets))
        case FetchOffsetsRequest():
            return FetchOffsetsAnswer(code)
        case DeleteOffsetsRequest():
            return DeleteOffsetsAnswer(code)
        case DeleteGroupsRequest():
            return DeleteGroupsAnswer((code,) * len(request.groups))
        case ListGroupsRequest():
            return ListGroupsAnswer(NONE if code == NOT_COORDINATOR else code)
        case DescribeGroupsRequest():
            nothing = (DescribedGroup(group, "", code) for group in request.groups)
            return DescribeGroupsAnswer(tuple(nothing))
