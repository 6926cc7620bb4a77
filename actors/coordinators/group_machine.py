"""The coordinator of groups: events in, instructions out.

It knows the groups and offsets of one partition of ``__consumer_offsets``. What it must not forget
is a record of that partition: it is appended first, applied to what is known when it is in the log,
and answered last. Offsets and tombstones are applied by replaying their records, as after a
restart, so both lead to the same. All else (who joins, whose heartbeat is late) lives in memory:
after a restart each group is as of its last assignment, and its members go on with it.

The shell hands in each event with the time, and carries the instructions out before the next one;
``next_alarm_ms`` says when it shall come without one. Nothing here waits, reads a clock, or throws
dice. Source: ``GroupCoordinatorShard``, ``GroupMetadataManager`` of Kafka.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from raylog.actors.coordinators import committing, group_admin, joining, rebalancing, syncing
from raylog.actors.coordinators.codes import (
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    NONE,
    UNKNOWN_MEMBER_ID,
)
from raylog.actors.coordinators.group import Group, Token
from raylog.actors.coordinators.group_config import GroupConfig
from raylog.actors.coordinators.group_expiry import expired, is_nothing
from raylog.actors.coordinators.group_messages import (
    NO_MEMBER,
    CommitAnswer,
    CommitRequest,
    DeleteGroupsAnswer,
    DeleteGroupsRequest,
    DeleteOffsetsAnswer,
    DeleteOffsetsRequest,
    DescribeGroupsRequest,
    FetchOffsetsRequest,
    GroupAnswer,
    GroupRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    ListGroupsRequest,
    SyncAnswer,
    SyncRequest,
)
from raylog.actors.coordinators.group_records import Committed, group_key, group_record
from raylog.actors.coordinators.group_table import GroupTable
from raylog.actors.coordinators.group_turn import (
    Alarm,
    Append,
    ExpiryIsDue,
    GroupAssigned,
    GroupMade,
    Instruction,
    JoinPhaseEnds,
    MemberReplaced,
    Recorded,
    SessionEnds,
    Turn,
)
from raylog.actors.coordinators.log_record import LogRecord
from raylog.actors.coordinators.timers import Timers
from raylog.storage.buffers import Buffer
from raylog.storage.names import TopicPartition

# Of the tombstones of what is too old: so many in a batch.
EXPIRED_IN_A_BATCH: Final = 1000


class Loaded(NamedTuple):
    """All that was in the log has been replayed."""


class Asked(NamedTuple):
    """A request; its answer names the token."""

    token: Token
    request: GroupRequest


class Appended(NamedTuple):
    """The records are in the log, the first of them at this offset."""

    append: Append
    base_offset: int


class AppendFailed(NamedTuple):
    """Nothing of them is in the log; ``code``: what whoever asked is told."""

    append: Append
    code: int


class TransactionEnded(NamedTuple):
    """The marker of a producer's transaction is in the log."""

    producer_id: int
    is_commit: bool


class AlarmRings(NamedTuple):
    """The time of ``next_alarm_ms`` has come."""


Event: TypeAlias = Loaded | Asked | Appended | AppendFailed | TransactionEnded | AlarmRings


class Standing(NamedTuple):
    """How many members a group has, and what it has committed."""

    group: str
    members: int
    offsets: Mapping[TopicPartition, Committed]


class GroupMachine:
    """See the module's head."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._table = GroupTable()
        self._timers: Timers[Alarm] = Timers()

    def replay(
        self, key: Buffer, value: Buffer | None, at: int, producer_id: int | None = None
    ) -> None:
        """See ``GroupTable.replay``; before ``Loaded``."""
        self._table.replay(key, value, at, producer_id)

    def replay_end(self, producer_id: int, *, is_commit: bool) -> None:
        """See ``GroupTable.replay_end``; before ``Loaded``."""
        self._table.replay_end(producer_id, is_commit=is_commit)

    def standings(self) -> Iterator[Standing]:
        """Where each group stands."""
        for group_id, group in self._table.groups.items():
            yield Standing(group_id, len(group.members), self._table.offsets.of(group_id))

    @property
    def next_alarm_ms(self) -> int | None:
        """When ``AlarmRings`` is due."""
        return self._timers.next_ms()

    def handle(self, event: Event, now_ms: int, wall_ms: int) -> list[Instruction]:
        """What is to be done now.

        ``now_ms``: of a clock that is never set; ``next_alarm_ms`` is of it, too. ``wall_ms``: ms
        since the epoch, which records and the ages of offsets go by.
        """
        turn = Turn(now_ms, wall_ms, self._timers, self._config)
        if isinstance(event, Asked):
            self._asked(event.request, event.token, turn)
        elif isinstance(event, Appended):
            self._appended(event, turn)
        elif isinstance(event, AppendFailed):
            self._append_failed(event, turn)
        elif isinstance(event, TransactionEnded):
            self._table.replay_end(event.producer_id, is_commit=event.is_commit)
        elif isinstance(event, AlarmRings):
            for alarm in self._timers.due(now_ms):
                self._rang(alarm, turn)
        else:
            self._loaded(turn)
        return turn.instructions

    # -- what happens by itself --------------------------------------------------------------------

    def _loaded(self, turn: Turn) -> None:
        """Members have their whole session from now on; groups that are too large begin anew."""
        turn.timers.set(ExpiryIsDue(), turn.now_ms + self._config.expiry_interval_ms)
        for group in self._table.groups.values():
            group.next_step = 2
            for member in group.members.values():
                turn.heard_of(group, member)
            if len(group.members) > self._config.max_size:
                rebalancing.prepare(group, turn)

    def _rang(self, alarm: Alarm, turn: Turn) -> None:
        if isinstance(alarm, ExpiryIsDue):
            self._expire(turn)
            return
        group = self._table.groups.get(alarm.group)
        if group is None:
            return
        if isinstance(alarm, SessionEnds):
            syncing.session_ends(group, alarm.member_id, turn)
        elif isinstance(alarm, JoinPhaseEnds):
            rebalancing.join_phase_ends(group, turn)
        else:
            rebalancing.sync_phase_ends(group, turn)

    def _expire(self, turn: Turn) -> None:
        """Take away what is too old; a group that is nothing by then goes the next time."""
        turn.timers.set(ExpiryIsDue(), turn.now_ms + self._config.expiry_interval_ms)
        table, retention_ms = self._table, self._config.offsets_retention_ms
        records: list[LogRecord] = []
        for group in table.groups.values():
            old = expired(group, table.offsets, retention_ms, turn.wall_ms)
            records += committing.tombstones(group.group_id, old)
            if is_nothing(group, table.offsets):
                records.append(LogRecord(group_key(group.group_id), None))
        for begin in range(0, len(records), EXPIRED_IN_A_BATCH):
            turn.append(tuple(records[begin : begin + EXPIRED_IN_A_BATCH]), Recorded())

    # -- what became of records --------------------------------------------------------------------

    def _appended(self, event: Appended, turn: Turn) -> None:
        then, groups = event.append.then, self._table.groups
        if isinstance(then, Recorded | GroupMade):
            producer = event.append.producer
            producer_id = None if producer is None else producer.producer_id
            for number, record in enumerate(event.append.records):
                at = event.base_offset + number
                self._table.replay(record.key, record.value, at, producer_id)
        if isinstance(then, Recorded):
            if then.token is not None and then.answer is not None:
                turn.reply(then.token, then.answer)
        elif isinstance(then, GroupMade):
            joining.join(groups[then.request.who.group], then.request, then.token, turn)
        elif isinstance(then, MemberReplaced):
            groups[then.group.group_id] = then.group
            joining.replaced(then, turn)
        elif isinstance(then, GroupAssigned):
            rebalancing.settle(groups[then.group], then.assignments, turn)

    def _append_failed(self, event: AppendFailed, turn: Turn) -> None:
        then, code = event.append.then, event.code
        if isinstance(then, Recorded):
            if then.token is not None and then.answer is not None:
                turn.reply(then.token, _failed(then.answer, code))
        elif isinstance(then, GroupMade):
            turn.reply(then.token, JoinAnswer(code, then.request.who.member_id))
        elif isinstance(then, MemberReplaced):
            turn.reply(then.token, JoinAnswer(code, NO_MEMBER))
        elif isinstance(then, GroupAssigned):
            rebalancing.cannot_settle(self._table.groups[then.group], code, turn)

    # -- requests ----------------------------------------------------------------------------------

    def _asked(self, request: GroupRequest, token: Token, turn: Turn) -> None:
        groups, offsets = self._table.groups, self._table.offsets
        if isinstance(request, JoinRequest):
            self._join(request, token, turn)
        elif isinstance(request, SyncRequest | HeartbeatRequest | LeaveRequest):
            self._of_members(request, token, turn)
        elif isinstance(request, CommitRequest):
            committing.commit(groups.get(request.who.group), request, token, turn)
        elif isinstance(request, FetchOffsetsRequest):
            answer = committing.fetch(groups.get(request.group), offsets, request)
            turn.reply(token, answer)
        elif isinstance(request, DeleteOffsetsRequest):
            committing.delete(groups.get(request.group), offsets, request, token, turn)
        elif isinstance(request, DeleteGroupsRequest):
            group_admin.delete_groups(self._table, request, token, turn)
        elif isinstance(request, ListGroupsRequest):
            turn.reply(token, group_admin.list_groups(self._table, request))
        else:
            assert isinstance(request, DescribeGroupsRequest), request
            turn.reply(token, group_admin.describe_groups(self._table, request))

    def _join(self, request: JoinRequest, token: Token, turn: Turn) -> None:
        """A group that is not there yet is written down first."""
        who = request.who
        group = self._table.groups.get(who.group)
        if code := self._why_no_join(request):
            turn.reply(token, JoinAnswer(code, who.member_id))
        elif group is not None:
            joining.join(group, request, token, turn)
        else:
            empty = Group(who.group, state_since_ms=turn.wall_ms)
            turn.append((group_record(empty),), GroupMade(request, token))

    def _why_no_join(self, request: JoinRequest) -> int:
        who, config = request.who, self._config
        shortest_ms, longest_ms = config.min_session_timeout_ms, config.max_session_timeout_ms
        if not who.group:
            return INVALID_GROUP_ID
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            return INVALID_SESSION_TIMEOUT
        if who.group in self._table.others:
            return INCONSISTENT_GROUP_PROTOCOL
        is_there = who.group in self._table.groups
        return NONE if is_there or who.member_id == NO_MEMBER else UNKNOWN_MEMBER_ID

    def _of_members(
        self, request: SyncRequest | HeartbeatRequest | LeaveRequest, token: Token, turn: Turn
    ) -> None:
        group_id = request.group if isinstance(request, LeaveRequest) else request.who.group
        group = self._table.groups.get(group_id)
        if group is None:
            code = UNKNOWN_MEMBER_ID if group_id else INVALID_GROUP_ID
            turn.reply(token, _refused(request, code))
        elif isinstance(request, SyncRequest):
            syncing.sync(group, request, token, turn)
        elif isinstance(request, HeartbeatRequest):
            syncing.heartbeat(group, request, token, turn)
        else:
            syncing.leave(group, request, token, turn)

    def validate(self) -> None:
        """Assert what is true between two events, when nothing is about to be appended."""
        self._table.validate()
        for group in self._table.groups.values():
            rebalancing.validate_alarms(group, self._timers)


def _refused(request: SyncRequest | HeartbeatRequest | LeaveRequest, code: int) -> GroupAnswer:
    if isinstance(request, SyncRequest):
        return SyncAnswer(code)
    if isinstance(request, HeartbeatRequest):
        return HeartbeatAnswer(code)
    if code == UNKNOWN_MEMBER_ID:
        return LeaveAnswer(NONE, (code,) * len(request.leavers))
    return LeaveAnswer(code)


def _failed(
    answer: CommitAnswer | DeleteOffsetsAnswer | DeleteGroupsAnswer, code: int
) -> GroupAnswer:
    """What was to be done was not; what was refused stays so."""
    return answer._replace(error_codes=tuple(one or code for one in answer.error_codes))
