"""A coordinator of groups without sockets, threads and time, for tests.

It carries out what the machine says, at once and in order, and keeps the log as a list.
"""

from collections.abc import Iterable
from typing import TypeVar

from raylog.actors.coordinators.group_config import GroupConfig
from raylog.actors.coordinators.group_machine import (
    AlarmRings,
    Appended,
    AppendFailed,
    Asked,
    Event,
    GroupMachine,
    Loaded,
)
from raylog.actors.coordinators.group_messages import (
    CommitAnswer,
    CommitRequest,
    FetchOffsetsAnswer,
    FetchOffsetsRequest,
    GroupAnswer,
    GroupRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    Identity,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    Leaver,
    LeaveRequest,
    OffsetToCommit,
    Protocol,
    SyncAnswer,
    SyncRequest,
)
from raylog.actors.coordinators.group_records import GroupRecord, OffsetRecord, read
from raylog.actors.coordinators.group_turn import Reply
from raylog.actors.coordinators.log_record import LogRecord
from raylog.storage.names import TopicPartition

GROUP = "orders-readers"
CONFIG = GroupConfig(initial_rebalance_delay_ms=0)
WALL_MS = 1_700_000_000_000  # between the two clocks
SESSION_MS, REBALANCE_MS = 10_000, 60_000
Answer = TypeVar("Answer", bound=GroupAnswer)


class Coordinator:
    """See the module's head. ``now_ms``: moved by ``wait`` alone."""

    def __init__(self, config: GroupConfig = CONFIG) -> None:
        self.config = config
        self.now_ms = 1_000_000
        self.log: list[LogRecord] = []
        self.refusal = 0  # the code by which appends fail; 0: they do not
        self.answers: dict[int, GroupAnswer] = {}
        self._tokens = 0
        self.restart()

    def restart(self) -> None:
        """The process dies, and another one reads the log."""
        self.machine = GroupMachine(self.config)
        for at, record in enumerate(self.log):
            self.machine.replay(record.key, record.value, at)
        self._do(Loaded())

    def ask(self, request: GroupRequest) -> int:
        """Returns the token by which the answer is found, now or later."""
        self._tokens += 1
        self._do(Asked(self._tokens, request))
        return self._tokens

    def answer(self, token: int, kind: type[Answer]) -> Answer:
        """The answer that was given."""
        found = self.answers[token]
        assert isinstance(found, kind), found
        return found

    def at_once(self, request: GroupRequest, kind: type[Answer]) -> Answer:
        """The answer to a request that does not wait."""
        return self.answer(self.ask(request), kind)

    def wait(self, duration_ms: int) -> None:
        """Let time pass; alarms ring when they are due."""
        end_ms = self.now_ms + duration_ms
        while (due_ms := self.machine.next_alarm_ms) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._do(AlarmRings())
        self.now_ms = end_ms

    def _do(self, event: Event) -> None:
        for instruction in self.machine.handle(event, self.now_ms, WALL_MS + self.now_ms):
            if isinstance(instruction, Reply):
                assert instruction.token not in self.answers, "one answer for a request"
                self.answers[instruction.token] = instruction.answer
            elif self.refusal:
                self._do(AppendFailed(instruction, self.refusal))
            else:
                base_offset = len(self.log)
                self.log += instruction.records
                self._do(Appended(instruction, base_offset))
        self.machine.validate()

    # -- what is asked -----------------------------------------------------------------------------

    def join(self, member: "Client") -> int:
        """A member joins; the first time it is sent back with its id."""
        token = self.ask(member.join_request())
        if member.member_id == "" and member.instance_id is None:
            answer = self.answer(token, JoinAnswer)
            assert answer.error_code == 79, answer
            member.member_id = answer.member_id
            token = self.ask(member.join_request())
        return token

    def joined(self, token: int, member: "Client") -> JoinAnswer:
        """The member takes over what it was told."""
        answer = self.answer(token, JoinAnswer)
        assert answer.error_code == 0, answer
        member.member_id, member.generation = answer.member_id, answer.generation
        return answer

    def sync(self, member: "Client", assignments: dict[str, bytes] | None = None) -> int:
        request = SyncRequest(member.who, "consumer", None, assignments or {})
        return self.ask(request)

    def heartbeat(self, member: "Client") -> int:
        return self.at_once(HeartbeatRequest(member.who), HeartbeatAnswer).error_code

    def leave(self, *leavers: Leaver) -> LeaveAnswer:
        return self.at_once(LeaveRequest(GROUP, leavers), LeaveAnswer)

    def commit(self, who: Identity, partition: TopicPartition, offset: int) -> int:
        request = CommitRequest(who, (OffsetToCommit(partition, offset),))
        return self.at_once(request, CommitAnswer).error_codes[0]

    def committed(self, *partitions: TopicPartition, group: str = GROUP) -> list[int]:
        request = FetchOffsetsRequest(group, partitions)
        found = self.at_once(request, FetchOffsetsAnswer).offsets
        return [one.offset for one in found]

    def stable(self, *members: "Client") -> None:
        """These form a group, or join it again; the first one leads. Each is given its name."""
        tokens = [self.join(member) for member in members]
        self.wait(self.config.initial_rebalance_delay_ms)
        for member, token in zip(members, tokens, strict=True):
            self.joined(token, member)
        self.settle(*members)

    def settle(self, leader: "Client", *others: "Client") -> None:
        """The leader assigns to each its own name."""
        names = {one.member_id: one.name.encode() for one in (leader, *others)}
        for member in (leader, *others):
            token = self.sync(member, names if member is leader else None)
            assert self.answer(token, SyncAnswer).assignment == member.name.encode()

    # -- what is written ---------------------------------------------------------------------------

    def groups_written(self) -> Iterable[GroupRecord]:
        """The records of groups, in the order of the log."""
        for record in self.log:
            known = read(record.key, record.value)
            if isinstance(known, GroupRecord):
                yield known

    def offsets_written(self) -> Iterable[OffsetRecord]:
        for record in self.log:
            known = read(record.key, record.value)
            if isinstance(known, OffsetRecord):
                yield known


class Client:
    """What a member knows of itself."""

    def __init__(
        self,
        name: str,
        *protocols: tuple[str, bytes],
        instance_id: str | None = None,
        group: str = GROUP,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> None:
        self.name, self.instance_id, self.group = name, instance_id, group
        self.protocols = protocols or (("range", b"metadata of " + name.encode()),)
        self.session_ms, self.rebalance_ms = session_ms, rebalance_ms
        self.member_id, self.generation = "", -1
        self._lives = 0
        self.may_skip_assignment = True

    @property
    def who(self) -> Identity:
        return Identity(self.group, self.member_id, self.instance_id, self.generation)

    def join_request(self) -> JoinRequest:
        self._lives += 1
        return JoinRequest(
            who=self.who,
            client_id=self.name,
            client_host="/127.0.0.1",
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            protocol_type="consumer",
            protocols=tuple(Protocol(*one) for one in self.protocols),
            fresh_id=f"{self.name}{self._lives}",
            may_skip_assignment=self.may_skip_assignment,
        )

    def forgets(self) -> None:
        """It is started anew."""
        self.member_id, self.generation = "", -1
