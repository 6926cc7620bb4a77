"""What a coordinator of groups does in answer to one event: answers, records, alarms.

The parts of the machine (joining, rebalancing, ...) write into a ``Turn`` what is to be done. The
shell carries it out in this order, and before the next event. The fate of an ``Append`` is an event
of its own: what depends on it is in its ``then``, a value that the machine gets back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from raylog.actors.coordinators.group import Group, Member, Token
from raylog.actors.coordinators.group_config import GroupConfig
from raylog.actors.coordinators.group_messages import (
    CommitAnswer,
    DeleteGroupsAnswer,
    DeleteOffsetsAnswer,
    GroupAnswer,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
)
from raylog.actors.coordinators.log_record import LogRecord, Producer
from raylog.actors.coordinators.timers import Timers

# -- alarms ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionEnds:
    """Nothing was heard of a member, or of whoever was given this id, for its session timeout."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True)
class JoinPhaseEnds:
    """Those who have not joined by now are left out."""

    group: str


@dataclass(frozen=True, slots=True)
class SyncPhaseEnds:
    """Those who have not asked for their assignment by now are thrown out."""

    group: str


@dataclass(frozen=True, slots=True)
class ExpiryIsDue:
    """Offsets that are too old are to be looked for."""


Alarm: TypeAlias = SessionEnds | JoinPhaseEnds | SyncPhaseEnds | ExpiryIsDue


# -- what is to be done ----------------------------------------------------------------------------


class GroupMade(NamedTuple):
    """A group is in the log: the member that asked for it may join."""

    request: JoinRequest
    token: Token


class GroupAssigned(NamedTuple):
    """The leader's assignments are in the log."""

    group: str
    generation: int
    assignments: Mapping[str, bytes]


class GroupEmptied(NamedTuple):
    """A rebalance has ended with nobody; should its record not be written, nothing is lost."""


class MemberReplaced(NamedTuple):
    """A static member's new id is in the log. ``group``: as it is then."""

    group: Group
    new_id: str
    token: Token
    answer: JoinAnswer


class Recorded(NamedTuple):
    """Records that are applied by replaying them: offsets, tombstones. Nobody asked: no token."""

    token: Token | None = None
    answer: CommitAnswer | DeleteOffsetsAnswer | DeleteGroupsAnswer | None = None


Then: TypeAlias = GroupMade | GroupAssigned | GroupEmptied | MemberReplaced | Recorded


class Reply(NamedTuple):
    token: Token
    answer: GroupAnswer


class Append(NamedTuple):
    """Records for one batch: all of them are written, or none is.

    ``producer``: whose transaction they are part of.
    """

    records: tuple[LogRecord, ...]
    then: Then
    producer: Producer | None = None


Instruction: TypeAlias = Reply | Append


class Turn:
    """See the module's head."""

    def __init__(
        self, now_ms: int, wall_ms: int, timers: Timers[Alarm], config: GroupConfig
    ) -> None:
        """``now_ms``: of a clock that is never set; for alarms. ``wall_ms``: what records say."""
        self.now_ms, self.wall_ms = now_ms, wall_ms
        self.timers, self.config = timers, config
        self.instructions: list[Instruction] = []

    def reply(self, token: Token, answer: GroupAnswer) -> None:
        self.instructions.append(Reply(token, answer))

    def append(
        self, records: tuple[LogRecord, ...], then: Then, producer: Producer | None = None
    ) -> None:
        self.instructions.append(Append(records, then, producer))

    def answer_join(self, member: Member, answer: JoinAnswer) -> None:
        """Answer a member's request to join, if it waits for an answer."""
        if member.join is not None:
            self.reply(member.join, answer)
            member.join = None

    def answer_sync(self, member: Member, answer: SyncAnswer) -> None:
        """Answer a member's request for its assignment, if it waits for an answer."""
        if member.sync is not None:
            self.reply(member.sync, answer)
            member.sync = None

    def heard_of(self, group: Group, member: Member) -> None:
        """A member lives: its session begins anew."""
        alarm = SessionEnds(group.group_id, member.member_id)
        self.timers.set(alarm, self.now_ms + member.session_timeout_ms)
