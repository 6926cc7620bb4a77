"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete: from a body to a request, and back."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final

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
_ADDS_OFFSETS_FROM: Final = 5  # TxnOffsetCommit: version 2 of transactions


def commit(request: Request, body: Value, ask: Asking) -> Value:
    partitions = [
        TopicPartition(topic["name"], one["partitionIndex"])
        for topic in body["topics"]
        for one in topic["partitions"]
    ]
    given = [one for topic in body["topics"] for one in topic["partitions"]]
    asked = CommitRequest(
        who=Identity(
            body["groupId"],
            body["memberId"],
            body["groupInstanceId"],
            body["generationIdOrMemberEpoch"],
        ),
        offsets=tuple(
            OffsetToCommit(
                partition=partition,
                offset=one["committedOffset"],
                leader_epoch=one["committedLeaderEpoch"],
                metadata=one["committedMetadata"] or "",
            )
            for partition, one in zip(partitions, given, strict=True)
        ),
        retention_ms=body["retentionTimeMs"],
        knows_group_not_found=request.version >= _KNOWS_NO_GROUP_FROM,
    )
    found = ask(asked, CommitAnswer)
    return {
        "throttleTimeMs": 0,
        "topics": _by_topic(partitions, [{"errorCode": code} for code in found.error_codes]),
    }


def commit_in_transaction(
    request: Request,
    body: Value,
    ask: Asking,
    begin: Callable[[Writer], AbstractContextManager[int]],
) -> Value:
    """TxnOffsetCommit. ``begin``: the transaction in the partition of the offsets."""
    version = 2 if request.version >= _ADDS_OFFSETS_FROM else 1
    writer = Writer(body["transactionalId"], body["producerId"], body["producerEpoch"], version)
    given = [one for topic in body["topics"] for one in topic["partitions"]]
    partitions = [
        TopicPartition(topic["name"], one["partitionIndex"])
        for topic in body["topics"]
        for one in topic["partitions"]
    ]
    is_told_who = request.version >= _SAYS_WHO_FROM
    who = Identity(
        body["groupId"],
        body["memberId"] if is_told_who else NO_MEMBER,
        body["groupInstanceId"] if is_told_who else None,
        body["generationId"] if is_told_who else NO_GENERATION,
    )
    asked = CommitRequest(
        who=who,
        offsets=tuple(
            OffsetToCommit(
                partition=partition,
                offset=one["committedOffset"],
                leader_epoch=one["committedLeaderEpoch"],
                metadata=one["committedMetadata"] or "",
            )
            for partition, one in zip(partitions, given, strict=True)
        ),
        producer=Producer(writer.producer_id, writer.epoch),
    )
    with begin(writer) as code:
        if code:
            codes: Sequence[int] = (code,) * len(partitions)
        else:
            codes = ask(asked, CommitAnswer).error_codes
    return {
        "throttleTimeMs": 0,
        "topics": _by_topic(partitions, [{"errorCode": one} for one in codes]),
    }


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
    partitions = tuple(
        TopicPartition(topic["name"], one["partitionIndex"])
        for topic in body["topics"]
        for one in topic["partitions"]
    )
    found = ask(DeleteOffsetsRequest(body["groupId"], partitions), DeleteOffsetsAnswer)
    topics = (
        _by_topic(partitions, [{"errorCode": code} for code in found.error_codes])
        if found.error_codes
        else []
    )
    return {"errorCode": found.error_code, "throttleTimeMs": 0, "topics": topics}
