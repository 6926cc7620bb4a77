"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete: from a body to a request, and back."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from raylog.actors.coordinators.codes import (
    INVALID_GROUP_ID,
    INVALID_REQUEST,
    INVALID_TXN_STATE,
    NONE,
    TRANSACTION_ABORTABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from raylog.actors.coordinators.group_messages import (
    NO_GENERATION,
    NO_MEMBER,
    CommitAnswer,
    CommitRequest,
    CommittedOffset,
    DeleteOffsetsAnswer,
    DeleteOffsetsRequest,
    FetchOffsetsAnswer,
    FetchOffsetsRequest,
    Identity,
    OffsetToCommit,
)
from raylog.actors.coordinators.log_record import Producer
from raylog.actors.plane.frames import Request
from raylog.actors.plane.groups.asking import Asking
from raylog.actors.plane.transactions.verifying import Writer
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.types import Value

_KNOWS_NO_GROUP_FROM: Final = 9  # OffsetCommit: GROUP_ID_NOT_FOUND
_CODE_OF_ALL_FROM: Final = 2  # OffsetFetch: an error of the group has a field of its own
_SEVERAL_GROUPS_FROM: Final = 8  # OffsetFetch
_SAYS_WHO_FROM: Final = 3  # TxnOffsetCommit: generation, member and instance (KIP-447)
_KNOWS_ABORTABLE_FROM: Final = 4  # TxnOffsetCommit: TRANSACTION_ABORTABLE (KIP-890)
_ADDS_OFFSETS_FROM: Final = 5  # TxnOffsetCommit: version 2 of transactions


def commit(request: Request, body: Value, ask: Asking) -> Value:
    given = _given(body)
    missing = ask.missing(list(given))
    asked = CommitRequest(
        who=Identity(
            body["groupId"],
            body["memberId"],
            body["groupInstanceId"],
            body["generationIdOrMemberEpoch"],
        ),
        offsets=_to_commit(given, missing),
        retention_ms=body["retentionTimeMs"],
        knows_group_not_found=request.version >= _KNOWS_NO_GROUP_FROM,
    )
    codes = ask(asked, CommitAnswer).error_codes if asked.offsets else ()
    return {"throttleTimeMs": 0, "topics": _with_codes(list(given), missing, codes)}


def _given(body: Value) -> dict[TopicPartition, Value]:
    """What a request says of each partition; where it names one twice, the last counts."""
    return {
        TopicPartition(topic["name"], one["partitionIndex"]): one
        for topic in body["topics"]
        for one in topic["partitions"]
    }


def _to_commit(
    given: Mapping[TopicPartition, Value], missing: Collection[TopicPartition]
) -> tuple[OffsetToCommit, ...]:
    return tuple(
        OffsetToCommit(
            partition=partition,
            offset=one["committedOffset"],
            leader_epoch=one["committedLeaderEpoch"],
            metadata=one["committedMetadata"] or "",
        )
        for partition, one in given.items()
        if partition not in missing
    )


def _with_codes(
    partitions: Sequence[TopicPartition],
    missing: Collection[TopicPartition],
    codes: Iterable[int],
) -> list[Value]:
    """``codes``: of those that are not missing."""
    told = iter(codes)
    return _by_topic(
        partitions,
        [
            {"errorCode": UNKNOWN_TOPIC_OR_PARTITION if one in missing else next(told)}
            for one in partitions
        ],
    )


def commit_in_transaction(
    request: Request,
    body: Value,
    ask: Asking,
    begin: Callable[[Writer], AbstractContextManager[int]],
) -> Value:
    """TxnOffsetCommit. ``begin``: the transaction in the partition of the offsets."""
    version = 2 if request.version >= _ADDS_OFFSETS_FROM else 1
    writer = Writer(body["transactionalId"], body["producerId"], body["producerEpoch"], version)
    given = _given(body)
    missing = ask.missing(list(given))
    is_told_who = request.version >= _SAYS_WHO_FROM
    who = Identity(
        body["groupId"],
        body["memberId"] if is_told_who else NO_MEMBER,
        body["groupInstanceId"] if is_told_who else None,
        body["generationId"] if is_told_who else NO_GENERATION,
    )
    asked = CommitRequest(
        who=who,
        offsets=_to_commit(given, missing),
        producer=Producer(writer.producer_id, writer.epoch),
    )
    codes: Sequence[int] = ()
    if asked.offsets:
        codes = _codes_in_transaction(request.version, writer, asked, ask, begin)
    return {"throttleTimeMs": 0, "topics": _with_codes(list(given), missing, codes)}


def _codes_in_transaction(
    version: int,
    writer: Writer,
    asked: CommitRequest,
    ask: Asking,
    begin: Callable[[Writer], AbstractContextManager[int]],
) -> Sequence[int]:
    code = NONE
    if not asked.who.group:
        code = INVALID_GROUP_ID
    elif not writer.transactional_id:
        code = INVALID_REQUEST
    if not code:
        with begin(writer) as code:
            if not code:
                return ask(asked, CommitAnswer).error_codes
    if code == INVALID_TXN_STATE and version >= _KNOWS_ABORTABLE_FROM:
        code = TRANSACTION_ABORTABLE
    return (code,) * len(asked.offsets)


def _by_topic(partitions: Sequence[TopicPartition], values: Iterable[Value]) -> list[Value]:
    """The answers of partitions, those of a topic together."""
    topics: dict[str, list[Value]] = {}
    for partition, value in zip(partitions, values, strict=True):
        of_topic = topics.setdefault(partition.topic, [])
        of_topic.append({"partitionIndex": partition.partition, **value})
    return [{"name": name, "partitions": some} for name, some in topics.items()]


def fetch(request: Request, body: Value, ask: Asking) -> Value:
    if request.version >= _SEVERAL_GROUPS_FROM:
        groups = [_of_group(request, body, group, ask) for group in body["groups"]]
        return {"throttleTimeMs": 0, "groups": groups}
    asked = _named(body["topics"])
    found = ask(
        FetchOffsetsRequest(body["groupId"], asked, body["requireStable"]), FetchOffsetsAnswer
    )
    answer: Value = {"throttleTimeMs": 0, "errorCode": found.error_code}
    offsets = found.offsets
    if found.error_code and request.version < _CODE_OF_ALL_FROM:
        offsets = tuple(CommittedOffset(one, error_code=found.error_code) for one in asked or ())
        answer["errorCode"] = 0
    return {**answer, "topics": _offsets(offsets)}


def _of_group(request: Request, body: Value, group: Value, ask: Asking) -> Value:
    is_of_member = group["memberId"] is not None or group["memberEpoch"] >= 0
    asked = FetchOffsetsRequest(
        group=group["groupId"],
        partitions=_named(group["topics"]),
        must_be_stable=body["requireStable"],
        is_of_member=is_of_member,
    )
    found = ask(asked, FetchOffsetsAnswer)
    return {
        "groupId": group["groupId"],
        "topics": _offsets(found.offsets),
        "errorCode": found.error_code,
    }


def _named(topics: list[Value] | None) -> tuple[TopicPartition, ...] | None:
    """The partitions that a request names; None where it means all."""
    if topics is None:
        return None
    return tuple(
        TopicPartition(topic["name"], index)
        for topic in topics
        for index in topic["partitionIndexes"]
    )


def _offsets(offsets: Sequence[CommittedOffset]) -> list[Value]:
    return _by_topic(
        [one.partition for one in offsets],
        (
            {
                "committedOffset": one.offset,
                "committedLeaderEpoch": one.leader_epoch,
                "metadata": one.metadata,
                "errorCode": one.error_code,
            }
            for one in offsets
        ),
    )


def delete(_: Request, body: Value, ask: Asking) -> Value:
    given = list(_given(body))
    missing = ask.missing(given)
    known = tuple(one for one in given if one not in missing)
    found = ask(DeleteOffsetsRequest(body["groupId"], known), DeleteOffsetsAnswer)
    topics = [] if found.error_code else _with_codes(given, missing, found.error_codes)
    return {"errorCode": found.error_code, "throttleTimeMs": 0, "topics": topics}
