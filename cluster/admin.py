"""Many things asked of a cluster at once: each gets a future, as with Kafka's admin clients.

    futures = broker.admin().create_topics([NewTopic("orders", 4), NewTopic("returns")])
    for topic, future in futures.items():
        print(future.result())

Nothing here waits, and nothing raises what a future can tell: of several topics each succeeds or
fails by itself. A request waits while the Controller is started again. A future ends within
``timeout_s``: with RequestTimedOut where nobody knows whether the request took effect (AnswerLost
where the Controller ended meanwhile: only ``alter_configs``, which is not repeated), with
NothingChanged where it did not, with ReadTimedOut where it changes nothing. Arguments that can mean
nothing raise InvalidRequest at once. ``Broker`` has the same for one topic at a time, which waits
until it is done.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from raylog.actors.errors import InvalidRequest
from raylog.actors.messages import ConfigEntry
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.stubs import LogActorStub
from raylog.cluster.client.commanding import Command
from raylog.cluster.client.commands import (
    add_partitions,
    altering,
    asking,
    creating,
    delete_topic,
)
from raylog.cluster.client.connection import READ_UNCOMMITTED, OffsetAnswer, TopicMetadata
from raylog.cluster.client.consumer.places import offset_of, partition_of, timestamp_of
from raylog.cluster.client.offsets import list_offsets
from raylog.cluster.client.partitions import ask_partitions
from raylog.cluster.client.ray_connection import RayConnection
from raylog.cluster.client.repeating import repeated, then
from raylog.cluster.client.socket_connection import SocketConnection
from raylog.cluster.controller.describe import ClusterDescription, TopicDescription
from raylog.cluster.controller.stub import ControllerStub
from raylog.storage.limits import MAX_INT
from raylog.storage.names import TopicPartition
from raylog.storage.readable import EARLIEST, LATEST, MAX_TIMESTAMP

TIMEOUT_S = 60.0  # Kafka's default.api.timeout.ms
MOST_TIMEOUT_S = MAX_INT // 1000  # Kafka's timeouts are int32 ms
_NAMED_TIMES = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}
Time = int | str | datetime
Answer = TypeVar("Answer")
Futures = dict[TopicPartition, Future[Answer]]


class NewTopic(NamedTuple):
    """A topic to make."""

    topic: str
    partitions: int | None = None  # num.partitions
    config: Mapping[str, Any] | None = None  # Kafka's topic keys


class Admin:
    """Requests to the Controller and to partitions. Safe for threads."""

    def __init__(
        self,
        connection: SocketConnection[RayConnection],
        *,
        most_patience_s: float = MOST_TIMEOUT_S,
    ) -> None:
        """``most_patience_s``: for a Controller that is away, however long a request may take."""
        self._connection, self._by_ray = connection, connection.cluster
        self._most_patience_s = most_patience_s

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
        requests = {
            entry.topic: creating(
                entry.topic,
                entry.partitions,
                dict(entry.config or {}),
                validate_only=validate_only,
            )
            for entry in _new_topics(topics)
        }
        return self._ask_controller("creating", requests, timeout_s)

    def add_partitions(
        self,
        totals: Mapping[str, int],
        *,
        validate_only: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> "dict[str, Future[TopicDescription]]":
        """Extend topics to so many partitions: topic -> total. See ``Broker.add_partitions``."""
        limit_s = _seconds(timeout_s)
        return {
            topic: add_partitions(
                self._by_ray,
                topic,
                total,
                limit_s,
                patience_s=self._patience_s(limit_s),
                validate_only=validate_only,
            )
            for topic, total in totals.items()
        }

    def delete_topics(
        self, topics: Iterable[str], *, timeout_s: float = TIMEOUT_S
    ) -> "dict[str, Future[None]]":
        """Delete topics and their records. UnknownTopicOrPartition, TopicBusy."""
        limit_s = _seconds(timeout_s)
        return {
            topic: delete_topic(self._by_ray, topic, limit_s, patience_s=self._patience_s(limit_s))
            for topic in _check_distinct(topics)
        }

    def describe_topics(
        self, topics: Iterable[str], *, timeout_s: float = TIMEOUT_S
    ) -> "dict[str, Future[TopicDescription]]":
        """Topics, their configs, and where their partitions are. UnknownTopicOrPartition."""
        return self._ask_controller(
            "describing", _each(ControllerStub.describe_topic, topics), timeout_s
        )

    def list_topics(self, *, timeout_s: float = TIMEOUT_S) -> "Future[list[str]]":
        """The names of all topics, sorted."""
        return self._command(
            "listing topics", _seconds(timeout_s), asking(ControllerStub.list_topics)
        )

    def describe_cluster(self, *, timeout_s: float = TIMEOUT_S) -> "Future[ClusterDescription]":
        """The cluster's id, its nodes, and where its Controller runs."""
        request = asking(ControllerStub.describe_cluster)
        return self._command("describing the cluster", _seconds(timeout_s), request)

    # -- configs -----------------------------------------------------------------------------------

    def describe_configs(
        self, topics: Iterable[str], *, timeout_s: float = TIMEOUT_S
    ) -> "dict[str, Future[list[ConfigEntry]]]":
        """Every key of each topic, by name, with its value and who set it.

        UnknownTopicOrPartition.
        """
        return self._ask_controller(
            "the config of", _each(ControllerStub.topic_config, topics), timeout_s
        )

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
        requests = {
            topic: altering(
                topic,
                changes={key: value for key, value in values.items() if value is not None},
                delete=[key for key, value in values.items() if value is None],
                validate_only=validate_only,
            )
            for topic, values in changes.items()
        }
        return self._ask_controller("configuring", requests, timeout_s)

    def _ask_controller(
        self,
        what: str,
        requests: Mapping[str, Command[Answer]],
        timeout_s: float,
    ) -> "dict[str, Future[Answer]]":
        """A request for each topic. ``what``: as errors say it, with the topic behind."""
        limit_s = _seconds(timeout_s)
        return {
            topic: self._command(f"{what} {topic}", limit_s, request)
            for topic, request in requests.items()
        }

    def _command(self, what: str, limit_s: float, request: Command[Answer]) -> "Future[Answer]":
        patience_s = self._patience_s(limit_s)
        return self._by_ray.command(what, limit_s, request, patience_s=patience_s)

    def _patience_s(self, limit_s: float) -> float:
        return min(limit_s, self._most_patience_s)

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
        offset is -1 where there is no such record. A partition that is being started is asked again
        within ``timeout_s``. A future fails with UnknownTopicOrPartition, or NotLeader.
        """
        limit_s = _seconds(timeout_s)
        asked = {partition_of(key): _timestamp(when) for key, when in wanted.items()}

        def ask(keys: Iterable[TopicPartition], left_s: float) -> Futures[OffsetAnswer]:
            times = {key: asked[key] for key in keys}
            return list_offsets(self._connection, times, isolation=isolation, timeout_s=left_s)

        return self._ask_again("an offset of", asked, ask, limit_s, is_read=True)

    def delete_records(
        self, before: Mapping[tuple[str, int], int], *, timeout_s: float = TIMEOUT_S
    ) -> "dict[TopicPartition, Future[int]]":
        """Make the records of partitions below an offset unreadable.

        ``before``: (topic, partition) -> offset; -1: all that there are now. The futures have the
        new log start offsets. A partition that is being started is asked again within
        ``timeout_s``. The futures fail with OffsetOutOfRange, UnknownTopicOrPartition,
        PolicyViolation where ``cleanup.policy`` has no delete, NotLeader, or ConfigUnconfirmed
        while no Controller runs; what is done twice is done once.
        """
        limit_s = _seconds(timeout_s)
        wanted = {partition_of(key): _before(offset) for key, offset in before.items()}
        futures = self._delete_before(
            {key: offset for key, offset in wanted.items() if offset != -1}, limit_s
        )
        # Their ends first, since what is asked again must not delete what came in between.
        whole = [key for key, offset in wanted.items() if offset == -1]
        ends_at = self._by_ray.deadlines.now() + limit_s
        ends = self.list_offsets(dict.fromkeys(whole, "latest"), timeout_s=limit_s)
        for key, end in ends.items():
            futures[key] = then(end, partial(self._delete_all, key, ends_at))
        return {key: futures[key] for key in wanted}

    def _delete_all(self, key: TopicPartition, ends_at: float, end: OffsetAnswer) -> "Future[int]":
        left_s = max(ends_at - self._by_ray.deadlines.now(), 0.0)
        return self._delete_before({key: end.offset}, left_s)[key]

    def _delete_before(
        self, wanted: Mapping[TopicPartition, int], timeout_s: float
    ) -> "dict[TopicPartition, Future[int]]":
        def ask(keys: Iterable[TopicPartition], left_s: float) -> Futures[int]:
            def delete(key: TopicPartition, _: TopicMetadata) -> "Future[int]":
                request = partial(LogActorStub.delete_records, before_offset=wanted[key])
                return self._by_ray.ask_partition(key, left_s, request)

            return ask_partitions(self._connection, keys, delete, timeout_s=left_s)

        return self._ask_again("deleting records of", wanted, ask, timeout_s)

    def _ask_again(
        self,
        what: str,
        keys: Iterable[TopicPartition],
        ask: Callable[[Iterable[TopicPartition], float], Futures[Answer]],
        timeout_s: float,
        *,
        is_read: bool = False,
    ) -> Futures[Answer]:
        """``ask`` all partitions at once, and those again that are away. It gets what time is left.

        ``what``: as RequestTimedOut says it, with the partition behind.
        """

        def ask_one(key: TopicPartition, left_s: float) -> "Future[Answer]":
            return ask([key], left_s)[key]

        return {
            key: repeated(
                first,
                partial(ask_one, key),
                self._by_ray.deadlines,
                what=f"{what} {key}",
                timeout_s=timeout_s,
                is_read=is_read,
            )
            for key, first in ask(keys, timeout_s).items()
        }


def _before(offset: Any) -> int:
    """Where a deletion ends; -1: at the log's end. Raises InvalidRequest."""
    try:
        return -1 if offset == -1 else offset_of(offset)
    except InvalidRequest:
        why = "must be an offset of 0 or more, up to the log's end, or -1 for all records"
        raise InvalidRequest("before", offset, why) from None


def _each(ask: Callable[..., Call[Answer]], topics: Iterable[str]) -> dict[str, Command[Answer]]:
    """The same question for each topic."""
    return {topic: asking(partial(ask, topic=topic)) for topic in _check_distinct(topics)}


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


def _seconds(timeout_s: Any) -> float:
    """A time to wait. Raises InvalidRequest."""
    is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    if not is_number or not 0 <= timeout_s <= MOST_TIMEOUT_S:
        why = f"must be seconds, from 0 to {MOST_TIMEOUT_S}"
        raise InvalidRequest("timeout_s", timeout_s, why)
    return float(timeout_s)


def _timestamp(when: Time) -> int:
    """ms since the epoch, or Kafka's number for a time that has a name."""
    if isinstance(when, str):
        if when not in _NAMED_TIMES:
            raise InvalidRequest("time", when, f"must be one of {', '.join(_NAMED_TIMES)}")
        return _NAMED_TIMES[when]
    if isinstance(when, datetime):
        return timestamp_of(when, "time")
    if isinstance(when, bool) or not isinstance(when, int):
        raise InvalidRequest("time", when, "must be a datetime, ms since the epoch, or a name")
    return when
