"""The bodies of requests about a group's offsets."""

from collections.abc import Collection, Mapping, Sequence

from raylog.cluster.client.consumer.group.messages import GroupMetadata, OffsetAndMetadata
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.types import Value


def commit_body(who: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Value:
    """An OffsetCommit request."""
    return {
        "groupId": who.group_id,
        "generationIdOrMemberEpoch": who.generation,
        "memberId": who.member_id,
        "groupInstanceId": who.instance_id,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partitionIndex": partition.partition,
                        "committedOffset": offsets[partition].offset,
                        "committedLeaderEpoch": offsets[partition].leader_epoch,
                        "committedMetadata": offsets[partition].metadata,
                    }
                    for partition in partitions
                ],
            }
            for name, partitions in offsets_by_topic(offsets).items()
        ],
    }


def fetch_body(
    group: str, partitions: Collection[TopicPartition] | None, *, must_be_stable: bool
) -> Value:
    """An OffsetFetch request for these partitions; None: for all.

    ``must_be_stable``: refused while a transaction may move them. Who begins to read there asks so.
    """
    topics = None
    if partitions is not None:
        topics = [
            {"name": name, "partitionIndexes": [one.partition for one in some]}
            for name, some in offsets_by_topic(partitions).items()
        ]
    asked = {"groupId": group, "memberId": None, "memberEpoch": -1, "topics": topics}
    return {"groups": [asked], "requireStable": must_be_stable}


def offsets_by_topic(partitions: Collection[TopicPartition]) -> dict[str, Sequence[TopicPartition]]:
    """The partitions of each topic, sorted."""
    topics: dict[str, list[TopicPartition]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition)
    return dict(topics)
