"""The settings of a consumer, by Kafka's names, dotted or with underscores."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from raylog.cluster.client.settings import by_name
from raylog.storage.errors import InvalidConfig

Deserializer = Callable[[bytes], Any]

RESETS: Final = ("earliest", "latest", "none")
ISOLATIONS: Final = ("read_uncommitted", "read_committed")

_NO_GROUPS = "there are no groups yet: keep positions(), and begin at them with from_ or seek"
_NO_MEMBERS = "there are no groups yet: assign partitions; no consumer is expelled"
_RAYS_NETWORK = "Ray's own network is used"
_PATTERNS = "subscribe to a pattern with what it is to match"
# Kafka's keys, and librdkafka's and kafka-python's, that mean nothing here, and what to do; a key
# that ends in a dot: all that begin so.
_ELSEWHERE: Final = {
    "bootstrap.servers": "a consumer belongs to its broker: raylog.connect(address)",
    "metadata.broker.list": "a consumer belongs to its broker: raylog.connect(address)",
    "group.": _NO_GROUPS,
    "enable.auto.commit": _NO_GROUPS,
    "enable.auto.offset.store": _NO_GROUPS,
    "auto.commit.": _NO_GROUPS,
    "session.timeout.ms": _NO_MEMBERS,
    "heartbeat.interval.ms": _NO_MEMBERS,
    "max.poll.interval.ms": _NO_MEMBERS,
    "partition.assignment.strategy": _NO_MEMBERS,
    "exclude.internal.topics": _PATTERNS,
    "allow.auto.create.topics": "no topic is made by reading it: broker.create_topic(name)",
    "interceptor.classes": "call them on what poll returns",
    "consumer.timeout.ms": "poll(timeout_ms) returns in time; to= ends a loop",
    "enable.partition.eof": "give to=; is_at_end tells when everything before it was read",
    "fetch.message.max.bytes": "it is called max.partition.fetch.bytes",
    "fetch.wait.max.ms": "it is called fetch.max.wait.ms",
    "queued.min.messages": "give queued.max.messages.kbytes",
    "client.rack": "each partition has one replica, which is read",
    "check.crcs": "checksums are always checked",
    "api.version": "clients and brokers of one raylog understand each other",
    "on.commit": _NO_GROUPS,
    "error.cb": "a call raises its error",
    "stats.cb": "see docs/METRICS.md, and raylog status",
    "api.version.": "clients and brokers of one raylog understand each other",
    "connections.max.idle.ms": _RAYS_NETWORK,
    "receive.": _RAYS_NETWORK,
    "reconnect.": _RAYS_NETWORK,
    "sasl.": _RAYS_NETWORK,
    "security.": _RAYS_NETWORK,
    "send.": _RAYS_NETWORK,
    "socket.": _RAYS_NETWORK,
    "ssl.": _RAYS_NETWORK,
}


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """What a consumer obeys; ``broker.consumer(fetch_min_bytes=5)`` sets ``fetch.min.bytes``."""

    # where a partition goes on without a valid position; None: see ``with_start``
    auto_offset_reset: str | None = None
    client_id: str = ""  # stands in what the consumer logs
    # of records, not of tables; None is not given to them
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    max_poll_records: int = 500  # of one poll, and of one step of an iteration
    max_poll_bytes: int = 32 << 20  # of one poll's records, decompressed; one record may be more
    # Kafka has 1 MiB; a call of Ray costs a millisecond whatever it carries, so ask for more
    max_partition_fetch_bytes: int = 8 << 20
    fetch_max_bytes: int = 50 << 20  # of one answer: each partition answers for itself here
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500  # how long a partition without so many bytes waits for them
    queued_max_messages_kbytes: int = 65_536  # fetched and not handed out yet, of all partitions
    isolation_level: str = "read_uncommitted"
    metadata_max_age_ms: int = 300_000  # how soon added partitions are read
    request_timeout_ms: int = 30_000  # how long a partition may be away before a poll says so
    default_api_timeout_ms: int = 60_000  # of look-ups
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000

    def __post_init__(self) -> None:
        _check_choice("auto.offset.reset", self.auto_offset_reset or "latest", RESETS)
        _check_choice("isolation.level", self.isolation_level, ISOLATIONS)
        for key in ("key_deserializer", "value_deserializer"):
            given = getattr(self, key)
            if given is not None and not callable(given):
                why = "must be a function that takes bytes"
                raise InvalidConfig(key.replace("_", "."), given, why)
        if not isinstance(self.client_id, str):
            raise InvalidConfig("client.id", self.client_id, "must be a str")
        for field in fields(self):
            if field.type is int:
                least = 0 if field.name == "fetch_max_wait_ms" else 1
                _check_integer(field.name.replace("_", "."), getattr(self, field.name), least)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Settings by either spelling. Raises InvalidConfig, which says what there is instead."""
        return cls(**by_name(settings, {field.name for field in fields(cls)}, _ELSEWHERE))

    def with_start(self, start: object) -> Self:
        """With an ``auto.offset.reset`` in any case.

        Kafka's default is latest. Who has said where to start, and not at the end, wants what is
        there: a partition whose records retention took goes on at the oldest that are left.
        """
        if self.auto_offset_reset is not None:
            return self
        reset = "latest" if start is None or start == "latest" else "earliest"
        return replace(self, auto_offset_reset=reset)

    @property
    def reset(self) -> str:
        return self.auto_offset_reset or "latest"

    @property
    def isolation(self) -> int:
        return ISOLATIONS.index(self.isolation_level)

    @property
    def partition_fetch_bytes(self) -> int:
        return min(self.max_partition_fetch_bytes, self.fetch_max_bytes)

    @property
    def queued_max_bytes(self) -> int:
        return self.queued_max_messages_kbytes << 10

    @property
    def metadata_max_age_s(self) -> float:
        return self.metadata_max_age_ms / 1000

    @property
    def request_timeout_s(self) -> float:
        return self.request_timeout_ms / 1000

    @property
    def retry_backoff_s(self) -> float:
        return self.retry_backoff_ms / 1000

    @property
    def retry_backoff_max_s(self) -> float:
        return self.retry_backoff_max_ms / 1000


def _check_choice(key: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidConfig(key, value, f"must be one of {', '.join(choices)}")


def _check_integer(key: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidConfig(key, value, f"must be an integer of {least} or more")
