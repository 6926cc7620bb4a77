"""The offsets of times, for many partitions: what the admin client and consumers ask."""

from collections.abc import Mapping
from concurrent.futures import Future

from raylog.cluster.client.connection import (
    Connection,
    OffsetAnswer,
    OffsetRequest,
    TopicMetadata,
)
from raylog.cluster.client.partitions import ask_partitions
from raylog.storage.names import TopicPartition


def list_offsets(
    connection: Connection,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation: int,
    timeout_s: float,
) -> "dict[TopicPartition, Future[OffsetAnswer]]":
    """``wanted``: ms since the epoch, or EARLIEST, LATEST or MAX_TIMESTAMP.

    A topic's metadata and then its partitions are asked, for ``timeout_s`` each.
    """

    def ask(key: TopicPartition, topic: TopicMetadata) -> "Future[OffsetAnswer]":
        request = OffsetRequest(
            topic=key.topic,
            topic_id=topic.topic_id,
            partition=key.partition,
            leader_epoch=topic.partitions[key.partition].leader_epoch,
            timestamp=wanted[key],
            isolation=isolation,
        )
        return connection.list_offset(request, timeout_s=timeout_s)

    return ask_partitions(connection, wanted, ask, timeout_s=timeout_s)
