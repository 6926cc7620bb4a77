"""What a group coordinator is asked, and what it answers: Kafka's requests without their versions.

The door reads a request of some version into one of these, and writes the answer in that version.
Where versions differ in what they mean, a field says which meaning is asked for.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from raylog.actors.coordinators.codes import NONE
from raylog.actors.coordinators.log_record import Producer
from raylog.storage.names import TopicPartition

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""


class Protocol(NamedTuple):
    """A way to assign partitions that a member supports, and what it says for it."""

    name: str
    metadata: bytes


class Identity(NamedTuple):
    """Who asks, as it knows itself. ``instance_id``: of a static member (KIP-345), else None."""

    group: str
    member_id: str
    instance_id: str | None = None
    generation: int = NO_GENERATION

    @property
    def claims_membership(self) -> bool:
        """Whether it says that it is a member, and not a simple consumer or an administrator."""
        return self.generation >= 0 or self.member_id != NO_MEMBER or self.instance_id is not None


class JoinRequest(NamedTuple):
    """A member comes, or comes back with what it wants now."""

    who: Identity
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    fresh_id: str  # unique: part of the member id that is made for it, if it has none
    is_told_its_id: bool = True  # a new member is sent back with its id at first (KIP-394)
    may_skip_assignment: bool = True  # it understands ``JoinAnswer.skips_assignment`` (KIP-814)


class JoinedMember(NamedTuple):
    """A member as its leader hears of it. ``metadata``: for the protocol that was chosen."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """``members``: for the leader alone, in the order in which they joined."""

    error_code: int
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    skips_assignment: bool = False


class SyncRequest(NamedTuple):
    """A member asks for its assignment; the leader brings those of all."""

    who: Identity
    protocol_type: str | None  # None: an old version, or not said
    protocol: str | None
    assignments: Mapping[str, bytes]


class SyncAnswer(NamedTuple):
    """``assignment``: empty where the leader gave it none."""

    error_code: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class HeartbeatRequest(NamedTuple):
    """A member lives."""

    who: Identity


class HeartbeatAnswer(NamedTuple):
    error_code: int


class Leaver(NamedTuple):
    """A member that goes: by its id, by its instance, or by both."""

    member_id: str
    instance_id: str | None = None


class LeaveRequest(NamedTuple):
    group: str
    leavers: tuple[Leaver, ...]


class LeaveAnswer(NamedTuple):
    """``error_codes``: of the leavers, in their order; none where all of it failed."""

    error_code: int
    error_codes: tuple[int, ...] = ()


class OffsetToCommit(NamedTuple):
    """The next offset that a group will read of a partition."""

    partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class CommitRequest(NamedTuple):
    """``retention_ms``: how long the offsets shall live; -1 for as long as the broker keeps any.

    ``producer``: whose transaction they are part of; they count when it is committed.
    """

    who: Identity
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int = -1
    knows_group_not_found: bool = True  # from version 9
    producer: Producer | None = None


class CommitAnswer(NamedTuple):
    """The codes of the offsets, in their order."""

    error_codes: tuple[int, ...]


class FetchOffsetsRequest(NamedTuple):
    """``partitions``: None for all. ``must_be_stable``: no transaction may hold one (KIP-447)."""

    group: str
    partitions: tuple[TopicPartition, ...] | None
    must_be_stable: bool = False
    is_of_member: bool = False  # of the newer protocol (KIP-848)


class CommittedOffset(NamedTuple):
    """What a group has committed of a partition; -1 where it has not."""

    partition: TopicPartition
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error_code: int = NONE


class FetchOffsetsAnswer(NamedTuple):
    error_code: int
    offsets: tuple[CommittedOffset, ...] = ()


class DeleteOffsetsRequest(NamedTuple):
    group: str
    partitions: tuple[TopicPartition, ...]


class DeleteOffsetsAnswer(NamedTuple):
    """``error_codes``: of the partitions, in their order; none where all of it failed."""

    error_code: int
    error_codes: tuple[int, ...] = ()


class DeleteGroupsRequest(NamedTuple):
    groups: tuple[str, ...]


class DeleteGroupsAnswer(NamedTuple):
    error_codes: tuple[int, ...]


class ListGroupsRequest(NamedTuple):
    """``states`` and ``types``: none for all. Case does not count."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class ListedGroup(NamedTuple):
    group: str
    protocol_type: str
    state: str


class ListGroupsAnswer(NamedTuple):
    error_code: int
    groups: tuple[ListedGroup, ...] = ()


class DescribeGroupsRequest(NamedTuple):
    groups: tuple[str, ...]


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """``state``: "Dead" where there is no such group."""

    group: str
    state: str
    error_code: int = NONE
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


class DescribeGroupsAnswer(NamedTuple):
    groups: tuple[DescribedGroup, ...]


GroupRequest: TypeAlias = (
    JoinRequest
    | SyncRequest
    | HeartbeatRequest
    | LeaveRequest
    | CommitRequest
    | FetchOffsetsRequest
    | DeleteOffsetsRequest
    | DeleteGroupsRequest
    | ListGroupsRequest
    | DescribeGroupsRequest
)
GroupAnswer: TypeAlias = (
    JoinAnswer
    | SyncAnswer
    | HeartbeatAnswer
    | LeaveAnswer
    | CommitAnswer
    | FetchOffsetsAnswer
    | DeleteOffsetsAnswer
    | DeleteGroupsAnswer
    | ListGroupsAnswer
    | DescribeGroupsAnswer
)
