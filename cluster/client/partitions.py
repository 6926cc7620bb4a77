"""Questions to many partitions at once, when their topics are known.

The topics' metadata comes first: it tells which partitions there are, and the topic's id, without
which a partition would answer for a topic that was made again.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from raylog.actors.errors import UnknownTopicOrPartition
from raylog.cluster.client.connection import Connection, TopicMetadata
from raylog.cluster.client.deadlines import end, fail
from raylog.storage.names import TopicPartition

Answer = TypeVar("Answer")
Ask = Callable[[TopicPartition, TopicMetadata], "Future[Answer]"]


def ask_partitions(
    connection: Connection,
    partitions: Iterable[TopicPartition],
    ask: "Ask[Answer]",
    *,
    timeout_s: float,
) -> "dict[TopicPartition, Future[Answer]]":
    """``ask`` each partition; UnknownTopicOrPartition where there is none.

    A topic's metadata takes at most ``timeout_s``; how long ``ask`` takes is its own.
    """
    futures: dict[TopicPartition, Future[Answer]] = {key: Future() for key in partitions}
    for topic in {key.topic for key in futures}:
        mine = {key: future for key, future in futures.items() if key.topic == topic}
        asked = connection.metadata(topic, timeout_s=timeout_s)
        asked.add_done_callback(partial(_ask_all, connection, ask, mine))
    return futures


def _ask_all(
    connection: Connection,
    ask: "Ask[Answer]",
    futures: "Mapping[TopicPartition, Future[Answer]]",
    done: "Future[TopicMetadata]",
) -> None:
    """The topic is known, or not: ask its partitions."""
    error = done.exception()
    for key, future in futures.items():
        if error is not None:
            fail(future, error)
            continue
        topic = done.result()
        if not 0 <= key.partition < len(topic.partitions):
            why = f"the topic has {len(topic.partitions)} partitions"
            fail(future, UnknownTopicOrPartition(key.topic, key.partition, why))
            continue
        ask(key, topic).add_done_callback(partial(_hand_on, connection, key, future))


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
