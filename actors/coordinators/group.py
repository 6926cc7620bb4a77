"""One group of the classic protocol: its members, what they support, where it stands.

::

              first member joins             all have joined
     Empty ------------------> PreparingRebalance ------> CompletingRebalance
       ^                         |   ^      ^                |         |
       |  nobody has joined      |   |      | who leaves,    |         | the leader's
       +-------------------------+   |      | joins, is late |         | assignment is
                                     |      +----------------+         | in the log
                                     +------------------------- Stable <

A group that is removed is no more: Kafka's tools call one that is not there "Dead".

This is data with the rules that concern nothing but itself; who asks what, and what becomes of it,
is in ``joining.py``, ``rebalancing.py``, ``syncing.py`` and ``committing.py``. Nothing of it is in
the log but what ``group_records.py`` writes: the group as of its last assignment.

Source: ``ClassicGroup`` and ``ClassicGroupMember`` of Kafka's group coordinator; KIP-345, KIP-394.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from raylog.actors.coordinators.group_messages import NO_MEMBER, Protocol
from raylog.storage.errors import InvalidRecord
from raylog.storage.schemas.binary import ByteReader
from raylog.storage.schemas.consumer_protocol import CONSUMER_PROTOCOL, SUBSCRIPTION
from raylog.storage.schemas.schema import read_version

Token = int  # of a request that waits for its answer


class State(Enum):
    """By the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


_BEFORE: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING}),
    State.PREPARING: frozenset({State.EMPTY, State.STABLE, State.COMPLETING}),
    State.COMPLETING: frozenset({State.PREPARING}),
    State.STABLE: frozenset({State.COMPLETING}),
}


@dataclass(slots=True)
class Member:
    """A member as the coordinator knows it.

    ``join`` and ``sync``: its request that waits for an answer; at most one of each.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    join: Token | None = None
    sync: Token | None = None
    is_new: bool = False  # since it joined no rebalance has ended

    def metadata(self, protocol: str | None) -> bytes:
        """What it says for a protocol; nothing where it does not support it."""
        return next((one.metadata for one in self.protocols if one.name == protocol), b"")


@dataclass(slots=True)
class Group:
    """See the module's head. ``members``: by id, in the order in which they joined."""

    group_id: str
    state_since_ms: int
    state: State = State.EMPTY
    generation: int = 0
    # Of the next generation from this one. After a restart it is 2: the generation that comes next
    # may have been told to members, and was not written.
    next_step: int = 1
    protocol_type: str | None = None  # None: a simple group, which has offsets and no members
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)  # a static member's id
    # Ids that were handed out to members which have not come back with them yet.
    pending_joins: set[str] = field(default_factory=set)
    # Members of this generation that have not asked for their assignment yet.
    pending_syncs: set[str] = field(default_factory=set)
    # Somebody joined since the delay before a first rebalance began, or was prolonged.
    has_newcomers: bool = False
    # What is left of the time by which that delay may be prolonged; None: there is no such delay.
    delay_left_ms: int | None = None

    def move_to(self, state: State, wall_ms: int) -> None:
        """Go on to another state. Only those of the drawing follow each other."""
        assert self.state in _BEFORE[state], (self.state, state)
        self.state, self.state_since_ms = state, wall_ms

    def add(self, member: Member) -> None:
        """A member is there; the first one leads."""
        assert member.member_id not in self.members
        self.members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self.instances
            self.instances[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> Member:
        """A member is gone. If it led, the eldest of those that are left does."""
        member = self.members.pop(member_id)
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def rename(self, old_id: str, new_id: str) -> Member:
        """A static member has come back under another id: it is the same one otherwise."""
        member = self.members[old_id]
        assert member.instance_id is not None
        member.member_id = new_id
        self.members = {one.member_id: one for one in self.members.values()}  # its place is kept
        self.instances[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.remove(old_id)
            self.pending_syncs.add(new_id)
        return member

    @property
    def joined(self) -> list[Member]:
        """Those that wait for the rebalance to begin."""
        return [member for member in self.members.values() if member.join is not None]

    @property
    def all_have_joined(self) -> bool:
        """Whether nobody is waited for, also of those that were sent back with their ids."""
        return not self.pending_joins and len(self.joined) == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to join."""
        return max((one.rebalance_timeout_ms for one in self.members.values()), default=0)

    def common_protocols(self) -> set[str]:
        """The names of those that every member supports."""
        counts = Counter(
            name
            for member in self.members.values()
            for name in {protocol.name for protocol in member.protocols}
        )
        return {name for name, count in counts.items() if count == len(self.members)}

    def accepts(self, protocol_type: str, protocols: Iterable[Protocol]) -> bool:
        """Whether a member with these could be one of the group."""
        names = {protocol.name for protocol in protocols}
        if not protocol_type or not names:
            return False
        if not self.members:
            return True
        return protocol_type == self.protocol_type and bool(names & self.common_protocols())

    def elect_protocol(self) -> str:
        """The protocol for which most members vote.

        Each votes for the first of its own that all support. Where votes are even, the leader's
        order counts; Kafka leaves it to chance.
        """
        common = self.common_protocols()
        votes = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in common)
            for member in self.members.values()
        )
        most = max(votes.values())
        leader = self.members[self.leader] if self.leader else next(iter(self.members.values()))
        preferred = [protocol.name for protocol in leader.protocols]
        return min((name for name, count in votes.items() if count == most), key=preferred.index)

    def subscribed_topics(self) -> set[str] | None:
        """The topics that its members read; None where that is not known.

        It is not known of groups of other types than "consumer", and where what a member says
        cannot be read.
        """
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics.update(_topics(member.metadata(self.protocol)))
            except InvalidRecord:
                return None
        return topics

    def validate(self) -> None:
        """Assert what is true of a group between two events."""
        if self.state in (State.COMPLETING, State.STABLE):
            assert self.members
            assert self.protocol in self.common_protocols()
        else:
            assert not self.pending_syncs
        assert self.state is not State.EMPTY or not self.members
        assert all(key == member.member_id for key, member in self.members.items())
        static = {
            one.instance_id: one.member_id
            for one in self.members.values()
            if one.instance_id is not None
        }
        assert static == self.instances
        assert (self.leader in self.members) if self.members else self.leader is None
        assert self.pending_syncs <= self.members.keys()
        assert not self.pending_joins & self.members.keys()
        for member in self.members.values():
            assert member.join is None or self.state is State.PREPARING
            assert member.sync is None or self.state is State.COMPLETING
            assert member.member_id != NO_MEMBER
        assert self.delay_left_ms is None or self.state is State.PREPARING


def _topics(metadata: bytes) -> list[str]:
    """The topics of a subscription, which begins alike in all versions. Raises InvalidRecord."""
    reader = ByteReader(metadata)
    read_version(reader)
    topics: list[str] = SUBSCRIPTION.read(reader, 0)["topics"]
    return topics
