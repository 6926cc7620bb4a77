"""What a user gives as offsets to commit."""

from collections.abc import Iterable, Mapping
from typing import Any

from raylog.actors.errors import InvalidRequest
from raylog.cluster.client.consumer.group.messages import OffsetAndMetadata
from raylog.cluster.client.consumer.instructions import OffsetAndEpoch
from raylog.cluster.client.consumer.places import partition_of, saved_offset
from raylog.storage.limits import MAX_LONG
from raylog.storage.names import TopicPartition
from raylog.storage.records.record import ConsumerRecord


def offsets_of(given: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a user commits or stores: records, or places by partition. Raises InvalidRequest.

    A record stands for the place behind it. A place is an offset, a pair of an offset and a leader
    epoch, or an OffsetAndMetadata.
    """
    if isinstance(given, ConsumerRecord):
        given = [given]
    if isinstance(given, Mapping):
        return {partition_of(key): _place(place) for key, place in given.items()}
    return _behind(given)


def _place(given: Any) -> OffsetAndMetadata:
    if isinstance(given, OffsetAndMetadata):
        saved_offset((given.offset, given.leader_epoch), "offsets")
        if not isinstance(given.metadata, str):
            raise InvalidRequest("offsets", given, "must have a str as its metadata")
        return given
    place = saved_offset(given, "offsets")
    if isinstance(place, OffsetAndEpoch):
        return OffsetAndMetadata(place.offset, "", place.leader_epoch)
    return OffsetAndMetadata(place)


def _behind(records: Iterable[Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for record in records:
        if not isinstance(record, ConsumerRecord):
            raise InvalidRequest("offsets", record, "must be records, or places by partition")
        partition = TopicPartition(record.topic, record.partition)
        behind = min(record.offset + 1, MAX_LONG)
        if partition not in found or found[partition].offset < behind:
            found[partition] = OffsetAndMetadata(behind)
    return found
