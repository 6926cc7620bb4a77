"""The offsets of times, for many partitions: what the admin client and consumers ask.

The topics' ids come first: a partition answers only who names the topic that it serves.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from raylog.actors.errors import UnknownTopicOrPartition
from raylog.cluster.client.connection import (
    Connection,
    OffsetAnswer,
    OffsetRequest,
    TopicMetadata,
)
from raylog.cluster.client.deadlines import end, fail
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
    futures: dict[TopicPartition, Future[OffsetAnswer]] = {key: Future() for key in wanted}
    ask = partial(_ask, connection, wanted, isolation, timeout_s)
    for topic in {key.topic for key in wanted}:
        mine = {key: future for key, future in futures.items() if key.topic == topic}
        connection.metadata(topic, timeout_s=timeout_s).add_done_callback(partial(ask, mine))
    return futures


def _ask(
    connection: Connection,
    wanted: Mapping[TopicPartition, int],
    isolation: int,
    timeout_s: float,
    futures: "Mapping[TopicPartition, Future[OffsetAnswer]]",
    done: "Future[TopicMetadata]",
) -> None:
    """The topic is known, or not: ask its partitions."""
    error = done.exception()
    for key, future in futures.items():
        if error is not None:
            fail(future, error)
            continue
        known = done.result()
        if not 0 <= key.partition < len(known.partitions):
            why = f"the topic has {len(known.partitions)} partitions"
            fail(future, UnknownTopicOrPartition(key.topic, key.partition, why))
            continue
        request = OffsetRequest(
            topic=key.topic,
            topic_id=known.topic_id,
            partition=key.partition,
            leader_epoch=known.partitions[key.partition].leader_epoch,
            timestamp=wanted[key],
            isolation=isolation,
        )
        answer = connection.list_offset(request, timeout_s=timeout_s)
        answer.add_done_callback(partial(_hand_on, connection, key, future))


def _hand_on(
    connection: Connection, partition: TopicPartition, future: "Future[Any]", done: "Future[Any]"
) -> None:
    error = done.exception()
    if error is None:
        end(future, done.result())
        return
    # whoever asks again must find the actor that serves the partition then
    connection.forget(*partition)
    fail(future, error)
