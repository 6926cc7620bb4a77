"""The bodies of a producer's requests to coordinators."""

from collections.abc import Mapping

from raylog.cluster.client.consumer.group.bodies import commit_body
from raylog.cluster.client.consumer.group.messages import GroupMetadata, OffsetAndMetadata
from raylog.cluster.client.producer.batches import ProducerIdentity
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.types import Value


def init_body(transactional_id: str, timeout_ms: int) -> Value:
    """An InitProducerId request of a producer that begins."""
    return {
        "transactionalId": transactional_id,
        "transactionTimeoutMs": timeout_ms,
        "producerId": -1,
        "producerEpoch": -1,
    }


def end_body(transactional_id: str, owner: ProducerIdentity, *, is_commit: bool) -> Value:
    """An EndTxn request."""
    return {
        "transactionalId": transactional_id,
        "producerId": owner.producer_id,
        "producerEpoch": owner.epoch,
        "committed": is_commit,
    }


def offsets_body(
    transactional_id: str,
    owner: ProducerIdentity,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> Value:
    """A TxnOffsetCommit request: an OffsetCommit, and whose transaction it belongs to."""
    body = commit_body(group, offsets)
    body["generationId"] = body.pop("generationIdOrMemberEpoch")
    return {
        **body,
        "transactionalId": transactional_id,
        "producerId": owner.producer_id,
        "producerEpoch": owner.epoch,
    }
