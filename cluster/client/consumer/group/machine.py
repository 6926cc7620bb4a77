"""What a member of a group does next: a pure machine. Events and the time in, instructions out.

::

            poll                answered               answered
    OUT ----------> JOINING ---------------> SYNCING -----------> IN
     ^                 | leads                  ^                  |
     |                 +------> LEARNING -------+                  | poll, when the group
     |                                                             | is rebalanced: JOINING
     +--- whoever is expelled, or leaves -----------------------<--+

A member joins in a poll alone: a user who does not poll reads nothing, and leaves the group after
``max.poll.interval.ms``. Everything else goes on in the background.

What the group has assigned is one thing (``assigned``), what the user has is another one
(``owned``). ``change`` says by which step the second one comes nearer to the first. The reader does
it, calls the user's listeners, and says so (``revoked``, ``assigned_to_reader``). Whoever is
expelled has lost all: others may read its partitions already.

With the assignor ``cooperative-sticky`` alone a member goes on reading while it joins. It gives up
what another member is to have, and joins again. With any other one it gives up everything before
it joins.

Source: ``AbstractCoordinator``, ``ConsumerCoordinator`` of Kafka; KIP-62, KIP-345, KIP-394,
KIP-429, KIP-814.
"""

import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from raylog.actors.coordinators.assignment.subscription import (
    Subscription,
    read_assignment,
    write_subscription,
)
from raylog.actors.coordinators.codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from raylog.actors.coordinators.errors import (
    FencedInstanceId,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    group_error,
)
from raylog.actors.plane.apis.groups import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from raylog.cluster.client.consumer.config import ConsumerConfig
from raylog.cluster.client.consumer.group.leading import (
    assignments,
    assignor_of,
    is_cooperative,
    subscriptions_of,
)
from raylog.cluster.client.consumer.group.messages import (
    NO_GENERATION,
    NO_MEMBER,
    Ask,
    Assign,
    Change,
    ForgetCoordinator,
    GroupMetadata,
    Instruction,
    Revoke,
)
from raylog.cluster.client.consumer.group.watching import Watching
from raylog.storage.errors import InvalidRecord
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.types import Value

PROTOCOL_TYPE: Final = "consumer"
# A join is answered when all members have joined, or their time for it is up: a little later.
JOIN_GRACE_S: Final = 5.0
# A heartbeat without an answer is sent again so that several fit into a session.
_HEARTBEATS_A_SESSION: Final = 3
LEAVE_TIMEOUT_S: Final = 5.0
_NEVER: Final = float("inf")
_AWAY: Final = (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)
_EXPELLED: Final = (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID)


class State(Enum):
    OUT = "out"
    JOINING = "joining"
    LEARNING = "learning"  # the leader asks how many partitions there are
    SYNCING = "syncing"
    IN = "in"


class Machine:
    """One member."""

    def __init__(self, config: ConsumerConfig) -> None:
        assert config.group_id is not None
        self.config, self.group = config, config.group_id
        self.watching = Watching(config.metadata_max_age_s, config.retry_backoff_s)
        self.state = State.OUT
        self.owned: frozenset[TopicPartition] = frozenset()
        self.notes: list[str] = []  # to be logged by the shell
        self._is_cooperative = is_cooperative(config.assignors)
        self._member_id, self._generation = NO_MEMBER, NO_GENERATION
        self._last_metadata = GroupMetadata(self.group)
        self._protocol = ""
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._is_told = True  # the reader, of the assignment of this generation
        self._is_lost = False  # what the reader owns may be others' already
        self._must_join = False
        self._is_fenced = False
        self._trouble: Exception | None = None
        self._joined_topics: tuple[str, ...] = ()
        # What it owned last, and in which generation it got that: for sticky assignors.
        self._last: tuple[frozenset[TopicPartition], int] = (frozenset(), NO_GENERATION)
        # What the leader was told of all members, between its join and its sync.
        self._members: dict[str, Subscription] = {}
        self._keeps = False  # the leader is told to assign nothing
        self._counts: dict[str, int] | None = None  # by which this leader has assigned
        self._last_number = 0
        self._asked = 0  # the join or sync that is on its way
        self._beating = 0  # the heartbeat that is on its way
        self._beat_at, self._poll_due, self._join_at = _NEVER, _NEVER, 0.0

    # -- what the user wants -----------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], pattern: re.Pattern[str] | None) -> None:
        """Read these topics as a member, in the place of what was before."""
        self.watching.subscribe(topics, pattern)
        self._trouble = None
        if self.state is State.LEARNING:
            self._step_out()  # what it was about to assign is of other topics

    @property
    def is_subscribed(self) -> bool:
        return self.watching.is_subscribed

    @property
    def metadata(self) -> GroupMetadata:
        """Who it is now; without a generation while it is no member."""
        if self._generation == NO_GENERATION:
            return GroupMetadata(self.group)
        instance_id = self.config.group_instance_id
        return GroupMetadata(self.group, self._generation, self._member_id, instance_id)

    @property
    def last_metadata(self) -> GroupMetadata:
        """Who it is, or was until it was expelled or came too late for ``max.poll.interval.ms``.

        For transactions: their coordinator takes offsets of who claims no membership, whatever
        members there are. Those of a member that is none any more it refuses.
        """
        return self._last_metadata

    def take_trouble(self) -> Exception | None:
        """An error for the user. One that passes is told once."""
        if self._is_fenced:
            return FencedInstanceId(self.group, self.config.group_instance_id or "")
        if self.watching.troubles:
            return self.watching.troubles.pop()
        trouble, self._trouble = self._trouble, None
        return trouble

    def leave(self) -> list[Instruction]:
        """Be no member any more. A static one stays: it comes back."""
        made = self._leave()
        self._last_metadata = GroupMetadata(self.group)
        self.watching.subscribe((), None)
        self.owned, self._is_lost, self._is_fenced = frozenset(), False, False
        return made

    def _leave(self) -> list[Instruction]:
        is_static = self.config.group_instance_id is not None
        body = {
            "groupId": self.group,
            "members": [{"memberId": self._member_id, "groupInstanceId": None, "reason": None}],
        }
        made: list[Instruction] = []
        if self._member_id != NO_MEMBER and not is_static:
            made.append(Ask(self._number(), LEAVE_GROUP, body, LEAVE_TIMEOUT_S))
            self._member_id = NO_MEMBER
        self._be_out()
        return made

    # -- the reader --------------------------------------------------------------------------------

    def poll(self, now: float) -> list[Instruction]:
        """The user polls. Whoever has changes to do (``change``) does them first."""
        self._poll_due = now + self.config.max_poll_interval_ms / 1000
        made = self.go_on(now)
        if self._may_join and self._join_at <= now:
            made.append(self._join())
        return made

    def change(self) -> Change | None:
        """What the reader is to do next."""
        generation = self._generation
        if self.has_lost:
            return Revoke(_sorted(self.owned), generation, is_lost=True)
        if self._joins_next:
            if self.owned and not self._is_cooperative:
                return Revoke(_sorted(self.owned), generation)
            return None
        if self.state is not State.IN or self._is_told:
            return None
        if gone := self.owned - self._assigned:
            return Revoke(_sorted(gone), generation)
        return Assign(_sorted(self._assigned - self.owned), generation)

    @property
    def has_lost(self) -> bool:
        """Whether others may read what the reader owns."""
        return self._is_lost and bool(self.owned)

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """The reader has given these up."""
        gone = frozenset(partitions)
        if self._is_lost:
            self._last = (frozenset(), NO_GENERATION)
        if self.state is State.IN and not self._joins_next and gone and not self._is_lost:
            self._must_join = True  # so that others get them
        self.owned -= gone
        self._is_lost = self._is_lost and bool(self.owned)

    def assigned_to_reader(self, partitions: Iterable[TopicPartition]) -> None:
        """The reader reads these, too: all that the group has assigned to it."""
        self.owned |= frozenset(partitions)
        self._is_told = self.owned == self._assigned
        if not self.owned <= self._assigned:
            self._is_lost = True  # it was expelled meanwhile

    @property
    def _joins_next(self) -> bool:
        """Whether the next thing to do is a join.

        What the group takes away is given up first. What it gives is not waited for: the others
        wait for this member, and the next assignment has it again.
        """
        if not self.is_subscribed:
            return False
        if self.state is State.IN:
            has_to_give = self._is_cooperative and bool(self.owned - self._assigned)
            return self._must_join and not has_to_give
        return self.state is State.OUT

    # -- time --------------------------------------------------------------------------------------

    def go_on(self, now: float) -> list[Instruction]:
        """What is to be done now."""
        if now >= self._poll_due:
            self._poll_due = _NEVER
            if self.state is not State.OUT:
                return self._expire()
        made: list[Instruction] = []
        if self.is_subscribed and self._poll_due < _NEVER:
            made += self.watching.instructions(now)
        if self.state is State.LEARNING and self.watching.knows_all():
            made.append(self._lead())
        if self._beat_at <= now and not self._beating:
            made.append(self._beat(now))
        return made

    @property
    def _may_join(self) -> bool:
        """Whether nothing but the time is missing for the next join."""
        is_free = not self.owned or (self._is_cooperative and not self._is_lost)
        return self._joins_next and is_free and self.watching.is_known and not self._is_fenced

    def rings_at(self) -> float:
        """When there is something to do that neither an answer nor a poll tells."""
        times = [self._poll_due if self.state is not State.OUT else _NEVER]
        if self.is_subscribed and self._poll_due < _NEVER:
            times.append(self.watching.wakes_at())
        if not self._beating:
            times.append(self._beat_at)
        return min(times)

    def wakes_at(self) -> float:
        """When a poll has something to do that no answer tells."""
        if self._may_join:
            return min(self._join_at, self.rings_at())
        return self.rings_at()

    def _expire(self) -> list[Instruction]:
        most_ms = self.config.max_poll_interval_ms
        self.notes.append(
            f"group {self.group}: no poll for max.poll.interval.ms={most_ms}: this consumer leaves "
            "the group, and others get its partitions; poll more often, take fewer records with "
            "max.poll.records, or raise it"
        )
        self._lose()
        return self._leave()

    # -- joining -----------------------------------------------------------------------------------

    def _join(self) -> Ask:
        self._joined_topics = self.watching.topics
        self._must_join, self._is_told = False, True
        self.state = State.JOINING
        # What a heartbeat of the generation before is answered says nothing of the next one.
        self._beat_at, self._beating = _NEVER, 0
        rebalance_s = self.config.max_poll_interval_ms / 1000
        body = {
            "groupId": self.group,
            "sessionTimeoutMs": self.config.session_timeout_ms,
            "rebalanceTimeoutMs": self.config.max_poll_interval_ms,
            "memberId": self._member_id,
            "groupInstanceId": self.config.group_instance_id,
            "protocolType": PROTOCOL_TYPE,
            "protocols": [
                {"name": name, "metadata": self._subscription(name)}
                for name in self.config.assignors
            ],
            "reason": None,
        }
        return self._ask(Ask(0, JOIN_GROUP, body, rebalance_s + JOIN_GRACE_S, waits=True))

    def _subscription(self, assignor: str) -> bytes:
        last_owned, generation = self._last
        return write_subscription(
            Subscription(
                topics=self._joined_topics,
                owned=_sorted(one for one in self.owned if one.topic in self._joined_topics),
                generation=generation,
                user_data=assignor_of(assignor).user_data(last_owned, generation),
            )
        )

    def _ask(self, ask: Ask) -> Ask:
        self._asked = self._number()
        return ask._replace(number=self._asked)

    def _number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _joined(self, body: Value, now: float) -> list[Instruction]:
        code = body["errorCode"]
        if code == MEMBER_ID_REQUIRED:
            self._member_id = body["memberId"]
            return [self._join()]
        if code:
            return self._refused(code, now)
        self._member_id, self._generation = body["memberId"], body["generationId"]
        self._last_metadata = self.metadata
        self._protocol = body["protocolName"]
        self._beat_at = now + self.config.heartbeat_interval_ms / 1000
        if body["leader"] != self._member_id:
            self.watching.watch_own()
            self._counts = None
            return [self._sync([])]
        # A static leader that is back: what the group had stands, and it watches the topics again.
        self._keeps = body["skipAssignment"]
        self._members = subscriptions_of(body["members"])
        topics = {topic for one in self._members.values() for topic in one.topics}
        self.watching.watch_others(topics)
        self.state = State.LEARNING
        return self.go_on(now)

    def _lead(self) -> Ask:
        self._counts = self.watching.counts_of_group()
        if self._keeps:
            return self._sync([])
        return self._sync(assignments(assignor_of(self._protocol), self._counts, self._members))

    def _sync(self, made: list[Value]) -> Ask:
        self.state = State.SYNCING
        body = {
            "groupId": self.group,
            "generationId": self._generation,
            "memberId": self._member_id,
            "groupInstanceId": self.config.group_instance_id,
            "protocolType": PROTOCOL_TYPE,
            "protocolName": self._protocol,
            "assignments": made,
        }
        timeout_s = self.config.max_poll_interval_ms / 1000 + JOIN_GRACE_S
        return self._ask(Ask(0, SYNC_GROUP, body, timeout_s, waits=True))

    def _synced(self, body: Value, now: float) -> list[Instruction]:
        if body["errorCode"]:
            return self._refused(body["errorCode"], now)
        try:
            assigned = read_assignment(body["assignment"])
        except InvalidRecord as error:
            self._trouble = error
            self._step_out()
            return []
        self._assigned = frozenset(assigned.partitions)
        self._last = (self._assigned, self._generation)
        self.state, self._is_told = State.IN, False
        return []

    def _refused(self, code: int, now: float) -> list[Instruction]:
        """A join or a sync was refused."""
        if code in _EXPELLED:
            self._expelled(code)
            return []
        if code in (*_AWAY, COORDINATOR_LOAD_IN_PROGRESS):
            self._put_off(now)
            return [] if code == COORDINATOR_LOAD_IN_PROGRESS else [ForgetCoordinator()]
        if code == REBALANCE_IN_PROGRESS:
            self._step_out()
            return []
        self._trouble = self._error(code)
        self._put_off(now)
        return []

    def _error(self, code: int) -> Exception:
        if code == INCONSISTENT_GROUP_PROTOCOL:
            return InconsistentGroupProtocol(self.group, ",".join(self.config.assignors))
        if code == INVALID_SESSION_TIMEOUT:
            return InvalidSessionTimeout(self.group, self.config.session_timeout_ms)
        return group_error(self.group, code)

    def _step_out(self) -> None:
        """It joins again with the next poll, and still has what it owned."""
        self._asked, self._members = 0, {}
        self.state, self._beat_at = State.OUT, _NEVER

    def _put_off(self, now: float) -> None:
        self._step_out()
        self._join_at = now + self.config.retry_backoff_s

    # -- heartbeats --------------------------------------------------------------------------------

    def _beat(self, now: float) -> Ask:
        self._beating = self._number()
        body = {
            "groupId": self.group,
            "generationId": self._generation,
            "memberId": self._member_id,
            "groupInstanceId": self.config.group_instance_id,
        }
        timeout_s = self.config.session_timeout_ms / 1000 / _HEARTBEATS_A_SESSION
        return Ask(self._beating, HEARTBEAT, body, timeout_s)

    def _beaten(self, code: int, now: float) -> list[Instruction]:
        if self._beat_at == _NEVER:
            return []  # of a membership that is over, or that is being renewed
        self._beat_at = now + self.config.heartbeat_interval_ms / 1000
        if code in _AWAY:
            self._beat_at = now + self.config.retry_backoff_s
            return [ForgetCoordinator()]
        if code == REBALANCE_IN_PROGRESS:
            self._must_join = self._must_join or self.state is State.IN
        elif code in _EXPELLED:
            self._expelled(code)
        elif code not in (NONE, COORDINATOR_LOAD_IN_PROGRESS):
            self._trouble = self._error(code)
        return []

    def commit_refused(self, code: int, generation: int) -> None:
        """A commit of this member was refused."""
        if generation != self._generation or self.state is State.OUT:
            return
        if code in _EXPELLED:
            self._expelled(code)
        elif code == REBALANCE_IN_PROGRESS and self.state is State.IN:
            self._must_join = True

    def _expelled(self, code: int) -> None:
        """Others may have its partitions already."""
        self._lose()
        if code == UNKNOWN_MEMBER_ID:
            self._member_id = NO_MEMBER
        self._is_fenced = code == FENCED_INSTANCE_ID
        self._be_out()

    def _lose(self) -> None:
        self._is_lost = bool(self.owned)
        if not self.owned:
            self._last = (frozenset(), NO_GENERATION)

    def _be_out(self) -> None:
        self.state, self._generation = State.OUT, NO_GENERATION
        self._assigned, self._is_told, self._must_join = frozenset(), True, False
        self._members = {}
        self._asked = self._beating = 0
        self._beat_at, self._join_at = _NEVER, 0.0

    # -- answers -----------------------------------------------------------------------------------

    def answered(self, number: int, body: Value, now: float) -> list[Instruction]:
        """The coordinator answers."""
        if number == self._beating:
            self._beating = 0
            return self._beaten(body["errorCode"], now) + self.go_on(now)
        if number != self._asked:
            return []
        self._asked = 0
        take = self._joined if self.state is State.JOINING else self._synced
        return take(body, now) + self.go_on(now)

    def begin_again(self, now: float) -> list[Instruction]:
        """An event was interrupted, at any line: what was asked may never have been sent."""
        self.watching.ask_all_again()
        self._beating = 0
        if self.state is State.IN:
            self._beat_at = min(self._beat_at, now)
        else:
            self._step_out()
        return self.go_on(now)

    def failed(self, number: int, error: Exception, now: float) -> list[Instruction]:
        """There was no answer."""
        if number == self._beating:
            self._beating = 0
            if self._beat_at < _NEVER:
                self._beat_at = now + self.config.retry_backoff_s
        elif number == self._asked:
            self._put_off(now)
        return []

    def learned(self, topic: str, partitions: int, now: float) -> list[Instruction]:
        return self._know(lambda: self.watching.learned(topic, partitions, now), now)

    def not_learned(self, topic: str, error: Exception, now: float) -> list[Instruction]:
        return self._know(lambda: self.watching.not_learned(topic, error, now), now)

    def listed(self, names: Iterable[str], now: float) -> list[Instruction]:
        return self._know(lambda: self.watching.listed(names, now), now)

    def not_listed(self, now: float) -> list[Instruction]:
        return self._know(lambda: self.watching.not_listed(now), now)

    def _know(self, take: Callable[[], None], now: float) -> list[Instruction]:
        """Something of topics is known. What changes the assignment makes the member join again."""
        take()
        if self.state is State.IN and self.watching.is_known:
            has_other_topics = self.watching.topics != self._joined_topics
            has_other_counts = (
                self._counts is not None and self.watching.counts_of_group() != self._counts
            )
            self._must_join = self._must_join or has_other_topics or has_other_counts
        return self.go_on(now)


def _sorted(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(partitions))
