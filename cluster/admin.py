"""Many things asked of a cluster at once: each gets a future, as with Kafka's admin clients.

    futures = broker.admin().create_topics([NewTopic("orders", 4), NewTopic("returns")])
    for topic, future in futures.items():
        print(future.result())

Nothing here waits, and nothing raises what a future can tell: of several topics each succeeds or
fails by itself. A future ends within ``timeout_s``; one that ends with RequestTimedOut says that
nobody knows whether the request took effect. ``Broker`` has the same for one topic at a time, which
waits until it is done.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from raylog.actors.errors import InvalidRequest, UnknownTopicOrPartition
from raylog.actors.requests import READ_UNCOMMITTED, OffsetAnswer, OffsetRequest
from raylog.cluster.client.connection import TopicMetadata
from raylog.cluster.client.consumer.places import timestamp_of
from raylog.cluster.client.deadlines import end, fail
from raylog.cluster.client.ray_connection import RayConnection
from raylog.cluster.controller.placement import ClusterDescription, TopicDescription
from raylog.cluster.controller.stub import ControllerStub
from raylog.storage.names import TopicPartition
from raylog.storage.readable import EARLIEST, LATEST, MAX_TIMESTAMP

TIMEOUT_S = 60.0  # Kafka's default.api.timeout.ms
_NAMED_TIMES = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}
Time = int | str | datetime


class NewTopic(NamedTuple):
    """A topic to make."""

    topic: str
    partitions: int | None = None  # num.partitions
    config: Mapping[str, Any] = {}  # Kafka's topic keys


class Admin:
    """Requests to the Controller and to partitions. Safe for threads."""

    def __init__(self, connection: RayConnection) -> None:
        self._connection = connection

    # -- topics ------------------------------------------------------------------------------------

    def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> "dict[str, Future[TopicDescription]]":
        """Make topics; the partitions of each serve when its future ends.

        ``validate_only``: only look whether each could be made now. The futures fail with
        InvalidTopic, TopicExists, TopicBusy, InvalidPartitions, InvalidConfig, NoLogDirs.
        """
        wanted = [NewTopic(entry) if isinstance(entry, str) else entry for entry in topics]
        _check_distinct([entry.topic for entry in wanted])
        return {
            entry.topic: self._connection.ask_controller(
                f"creating {entry.topic}",
                timeout_s,
                partial(
                    ControllerStub.create_topic,
                    topic=entry.topic,
                    partitions=entry.partitions,
                    config=dict(entry.config),
                    validate_only=validate_only,
                ),
            )
            for entry in wanted
        }

    def add_partitions(
        self,
        totals: Mapping[str, int],
        *,
        validate_only: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> "dict[str, Future[TopicDescription]]":
        """Extend topics to so many partitions: topic -> total. See ``Broker.add_partitions``."""
        return {
            topic: self._connection.ask_controller(
                f"extending {topic}",
                timeout_s,
                partial(
                    ControllerStub.add_partitions,
                    topic=topic,
                    total=total,
                    validate_only=validate_only,
                ),
            )
            for topic, total in totals.items()
        }

    def delete_topics(
        self, topics: Iterable[str], *, timeout_s: float = TIMEOUT_S
    ) -> "dict[str, Future[None]]":
        """Delete topics and their records. UnknownTopicOrPartition, TopicBusy."""
        return {
            topic: self._connection.ask_controller(
                f"deleting {topic}",
                timeout_s,
                partial(ControllerStub.delete_topic, topic=topic),
            )
            for topic in _check_distinct(topics)
        }

    def describe_topics(
        self, topics: Iterable[str], *, timeout_s: float = TIMEOUT_S
    ) -> "dict[str, Future[TopicDescription]]":
        """Topics, their configs, and where their partitions are. UnknownTopicOrPartition."""
        return {
            topic: self._connection.ask_controller(
                f"describing {topic}",
                timeout_s,
                partial(ControllerStub.describe_topic, topic=topic),
            )
            for topic in _check_distinct(topics)
        }

    def list_topics(self, *, timeout_s: float = TIMEOUT_S) -> "Future[list[str]]":
        """The names of all topics, sorted."""
        return self._connection.ask_controller(
            "listing topics", timeout_s, ControllerStub.list_topics
        )

    def describe_cluster(self, *, timeout_s: float = TIMEOUT_S) -> "Future[ClusterDescription]":
        """The cluster's id, its nodes, and where its Controller runs."""
        return self._connection.ask_controller(
            "describing the cluster", timeout_s, ControllerStub.describe_cluster
        )

    # -- offsets -----------------------------------------------------------------------------------

    def list_offsets(
        self,
        wanted: Mapping[tuple[str, int], Time],
        *,
        isolation: int = READ_UNCOMMITTED,
        timeout_s: float = TIMEOUT_S,
    ) -> "dict[TopicPartition, Future[OffsetAnswer]]":
        """The first record at or after a time, for each of many partitions.

        ``wanted``: (topic, partition) -> ms since the epoch, a ``datetime`` (UTC if it has no
        zone), "earliest", "latest", or "max_timestamp" for the record with the largest. An answer's
        offset is -1 where there is no such record. A future fails with UnknownTopicOrPartition, or
        with NotLeader while its partition is being started: ask again.
        """
        asked = {TopicPartition(*key): _timestamp(when) for key, when in wanted.items()}
        futures: dict[TopicPartition, Future[OffsetAnswer]] = {key: Future() for key in asked}
        for topic in {key.topic for key in asked}:
            mine = {key: futures[key] for key in asked if key.topic == topic}
            for key, future in mine.items():
                self._connection.deadlines.watch(future, f"an offset of {key}", timeout_s)
            metadata = self._connection.metadata(topic, timeout_s=timeout_s)
            metadata.add_done_callback(
                partial(self._ask_offsets, asked, mine, isolation, timeout_s)
            )
        return futures

    def _ask_offsets(
        self,
        asked: Mapping[TopicPartition, int],
        futures: "Mapping[TopicPartition, Future[OffsetAnswer]]",
        isolation: int,
        timeout_s: float,
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
                timestamp=asked[key],
                isolation=isolation,
            )
            answer = self._connection.list_offset(request, timeout_s=timeout_s)
            answer.add_done_callback(partial(self._hand_on, key, future))

    def _hand_on(
        self, partition: TopicPartition, future: "Future[Any]", done: "Future[Any]"
    ) -> None:
        error = done.exception()
        if error is None:
            end(future, done.result())
            return
        # whoever asks again must find the actor that serves the partition then
        self._connection.forget(*partition)
        fail(future, error)


def _check_distinct(topics: Iterable[str]) -> list[str]:
    """``topics`` as a list. InvalidRequest for a name that is there twice, or a bare string."""
    if isinstance(topics, str):
        raise InvalidRequest("topics", topics, "must be a list of names")
    names = list(topics)
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest("topics", name, "is there more than once")
    return names


def _timestamp(when: Time) -> int:
    """ms since the epoch, or Kafka's number for a time that has a name."""
    if isinstance(when, str):
        if when not in _NAMED_TIMES:
            raise InvalidRequest("time", when, f"must be one of {', '.join(_NAMED_TIMES)}")
        return _NAMED_TIMES[when]
    return timestamp_of(when, "time") if isinstance(when, datetime) else when
