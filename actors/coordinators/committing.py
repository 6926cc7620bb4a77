"""OffsetCommit, OffsetFetch, OffsetDelete: what a group has read.

Who may commit::

    the group        by a member of this generation    by who claims no membership
    is not there     refused                           taken; a simple group is made
    has no members   refused                           taken
    has members      taken, but for Completing         refused

As part of a transaction whoever claims no membership may always commit, and a member also while it
is Completing. Such a commit is no sign of life.

In PreparingRebalance the generation is still the old one, so that members commit what they have
read before they give their partitions up. Source: ``OffsetMetadataManager`` and ``ClassicGroup`` of
Kafka.
"""

from typing import Final

from raylog.actors.coordinators.codes import (
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    ILLEGAL_GENERATION,
    INVALID_GROUP_ID,
    NON_EMPTY_GROUP,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    UNSTABLE_OFFSET_COMMIT,
)
from raylog.actors.coordinators.committed_offsets import CommittedOffsets
from raylog.actors.coordinators.group import Group, State, Token
from raylog.actors.coordinators.group_messages import (
    CommitAnswer,
    CommitRequest,
    CommittedOffset,
    DeleteOffsetsAnswer,
    DeleteOffsetsRequest,
    FetchOffsetsAnswer,
    FetchOffsetsRequest,
    OffsetToCommit,
)
from raylog.actors.coordinators.group_records import (
    NEVER,
    Committed,
    offset_key,
    offset_record,
)
from raylog.actors.coordinators.group_turn import Recorded, Turn
from raylog.actors.coordinators.log_record import LogRecord
from raylog.actors.coordinators.syncing import why_outside
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.consumer_protocol import CONSUMER_PROTOCOL

_NOT_SAID: Final = -1


def commit(group: Group | None, request: CommitRequest, token: Token, turn: Turn) -> None:
    """Write down what a group has read; the answer comes when it is in the log."""
    code = _why_refused(group, request)
    if code:
        turn.reply(token, CommitAnswer((code,) * len(request.offsets)))
        return
    is_member = group is not None and request.who.member_id in group.members
    if group is not None and is_member and request.producer is None:
        turn.heard_of(group, group.members[request.who.member_id])
    most_chars = turn.config.offset_metadata_max_chars
    codes = tuple(
        OFFSET_METADATA_TOO_LARGE if len(offset.metadata) > most_chars else NONE
        for offset in request.offsets
    )
    records = tuple(
        _record(request, offset, turn.wall_ms)
        for offset, code in zip(request.offsets, codes, strict=True)
        if code == NONE
    )
    answer = CommitAnswer(codes)
    if records:
        turn.append(records, Recorded(token, answer), request.producer)
    else:
        turn.reply(token, answer)


def _why_refused(group: Group | None, request: CommitRequest) -> int:
    who = request.who
    if group is None:
        if who.generation < 0:
            return NONE
        is_told = request.knows_group_not_found and request.producer is None
        return GROUP_ID_NOT_FOUND if is_told else ILLEGAL_GENERATION
    if who.generation < 0 and group.state is State.EMPTY:
        return NONE
    if request.producer is not None and not who.claims_membership:
        return NONE
    if not who.claims_membership:
        return UNKNOWN_MEMBER_ID
    if code := why_outside(group, who):
        return code
    is_between = group.state is State.COMPLETING and request.producer is None
    return REBALANCE_IN_PROGRESS if is_between else NONE


def _record(request: CommitRequest, offset: OffsetToCommit, wall_ms: int) -> LogRecord:
    has_term = request.retention_ms != _NOT_SAID
    committed = Committed(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_time_ms=wall_ms,
        expire_time_ms=wall_ms + request.retention_ms if has_term else NEVER,
    )
    return offset_record(request.who.group, offset.partition, committed)


def fetch(
    group: Group | None,
    offsets: CommittedOffsets,
    request: FetchOffsetsRequest,
) -> FetchOffsetsAnswer:
    """What a group has committed; of a partition that is not known -1, and no error."""
    if group is None and request.is_of_member:
        return FetchOffsetsAnswer(GROUP_ID_NOT_FOUND)
    of_group = offsets.of(request.group)
    pending = offsets.pending_of(request.group) if request.must_be_stable else set()
    asked = request.partitions
    if asked is None:
        asked = tuple(of_group)
    found = tuple(_found(one, of_group.get(one), is_pending=one in pending) for one in asked)
    return FetchOffsetsAnswer(NONE, found)


def _found(
    partition: TopicPartition, committed: Committed | None, *, is_pending: bool
) -> CommittedOffset:
    if is_pending:
        return CommittedOffset(partition, error_code=UNSTABLE_OFFSET_COMMIT)
    if committed is None:
        return CommittedOffset(partition)
    return CommittedOffset(partition, committed.offset, committed.leader_epoch, committed.metadata)


def delete(
    group: Group | None,
    offsets: CommittedOffsets,
    request: DeleteOffsetsRequest,
    token: Token,
    turn: Turn,
) -> None:
    """Forget offsets, but for those of topics that members read."""
    if not request.group:
        turn.reply(token, DeleteOffsetsAnswer(INVALID_GROUP_ID))
        return
    if group is None:
        turn.reply(token, DeleteOffsetsAnswer(GROUP_ID_NOT_FOUND))
        return
    if group.members and group.protocol_type != CONSUMER_PROTOCOL:
        turn.reply(token, DeleteOffsetsAnswer(NON_EMPTY_GROUP))
        return
    codes = tuple(
        GROUP_SUBSCRIBED_TO_TOPIC if _is_read(group, one) else NONE for one in request.partitions
    )
    gone = [
        one
        for one, code in zip(request.partitions, codes, strict=True)
        if code == NONE and offsets.get(request.group, one) is not None
    ]
    answer = DeleteOffsetsAnswer(NONE, codes)
    if gone:
        turn.append(tombstones(request.group, gone), Recorded(token, answer))
    else:
        turn.reply(token, answer)


def tombstones(group: str, partitions: list[TopicPartition]) -> tuple[LogRecord, ...]:
    """Records that take offsets away."""
    return tuple(LogRecord(offset_key(group, one), None) for one in partitions)


def _is_read(group: Group, partition: TopicPartition) -> bool:
    """Whether members read this topic, as far as is known."""
    if not group.members:
        return False
    topics = group.subscribed_topics()
    return topics is None or partition.topic in topics
