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

from raylog.actors.errors import InvalidRequest
from raylog.actors.messages import ConfigEntry
from raylog.actors.requests import READ_UNCOMMITTED, OffsetAnswer
from raylog.actors.runtime.stubs import LogActorStub
from raylog.cluster.client.consumer.places import offset_of, timestamp_of
from raylog.cluster.client.offsets import list_offsets
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
    config: Mapping[str, Any] | None = None  # Kafka's topic keys


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
        wanted = {entry.topic: entry for entry in _new_topics(topics)}
        return {
            topic: self._connection.ask_controller(
                f"creating {topic}",
                timeout_s,
                partial(
                    ControllerStub.create_topic,
                    topic=topic,
                    partitions=entry.partitions,
                    config=dict(entry.config or {}),
                    validate_only=validate_only,
                ),
            )
            for topic, entry in wanted.items()
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

    # -- configs -----------------------------------------------------------------------------------

    def describe_configs(
        self, topics: Iterable[str], *, timeout_s: float = TIMEOUT_S
    ) -> "dict[str, Future[list[ConfigEntry]]]":
        """Every key of each topic, by name, with its value and who set it.

        UnknownTopicOrPartition.
        """
        return {
            topic: self._connection.ask_controller(
                f"the config of {topic}",
                timeout_s,
                partial(ControllerStub.topic_config, topic=topic),
            )
            for topic in _check_distinct(topics)
        }

    def alter_configs(
        self,
        changes: Mapping[str, Mapping[str, Any]],
        *,
        validate_only: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> "dict[str, Future[TopicDescription]]":
        """Change the configs of topics while they serve: topic -> key -> value.

        None as a value: the topic's own value goes, and the broker's applies again. Other keys keep
        their values, as with Kafka's incrementalAlterConfigs. Of one topic either all changes are
        made, or none. ``outdated`` of a result names the partitions that do not obey the change
        yet: they do when they are back, and nothing is removed from them before.
        ``validate_only``: only look whether each could be made now. The futures fail with
        UnknownTopicOrPartition, InvalidConfig, UnknownConfigKey.
        """
        for topic, values in changes.items():
            _check_mapping(f"changes[{topic!r}]", values)
        return {
            topic: self._connection.ask_controller(
                f"configuring {topic}",
                timeout_s,
                partial(
                    ControllerStub.alter_topic_config,
                    topic=topic,
                    changes={key: value for key, value in values.items() if value is not None},
                    delete=[key for key, value in values.items() if value is None],
                    validate_only=validate_only,
                ),
            )
            for topic, values in changes.items()
        }

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
        futures = list_offsets(self._connection, asked, isolation=isolation, timeout_s=timeout_s)
        for key, future in futures.items():
            self._connection.deadlines.watch(future, f"an offset of {key}", timeout_s)
        return futures

    def delete_records(
        self, before: Mapping[tuple[str, int], int], *, timeout_s: float = TIMEOUT_S
    ) -> "dict[TopicPartition, Future[int]]":
        """Make the records of partitions below an offset unreadable.

        ``before``: (topic, partition) -> offset; -1: all that there are. The futures have the new
        log start offsets. They fail with OffsetOutOfRange, UnknownTopicOrPartition, PolicyViolation
        where ``cleanup.policy`` has no delete, NotLeader while the partition is being started, or
        ConfigUnconfirmed while no Controller runs; what is done twice is done once.
        """
        wanted = {
            TopicPartition(*key): offset if offset == -1 else offset_of(offset, "before")
            for key, offset in before.items()
        }
        return {
            key: self._connection.ask_partition(
                key, timeout_s, partial(LogActorStub.delete_records, before_offset=offset)
            )
            for key, offset in wanted.items()
        }


def _new_topics(topics: Iterable[NewTopic | str]) -> list[NewTopic]:
    """``topics`` as a list of those to make, each with what the Controller takes."""
    if isinstance(topics, str):
        raise InvalidRequest("topics", topics, "must be a list of names, or of NewTopic")
    wanted = [NewTopic(entry) if isinstance(entry, str) else entry for entry in topics]
    for entry in wanted:
        if not isinstance(entry, NewTopic):
            raise InvalidRequest("topics", entry, "must be a name, or a NewTopic")
        if entry.config is not None:
            _check_mapping(f"config of {entry.topic}", entry.config)
    _check_distinct([entry.topic for entry in wanted])
    return wanted


def _check_mapping(argument: str, given: object) -> None:
    if not isinstance(given, Mapping):
        raise InvalidRequest(
            argument, given, "must be a dict of Kafka's topic keys and their values"
        )


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
