"""The settings of a consumer, by Kafka's names, dotted or with underscores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from raylog.actors.coordinators.assignment.assignors import ASSIGNORS, COOPERATIVE_STICKY
from raylog.cluster.client.settings import by_name, dotted
from raylog.storage.errors import InvalidConfig

Deserializer = Callable[[bytes], Any]

RESETS: Final = ("earliest", "latest", "none")
# The settings that have a meaning in a group alone.
OF_GROUPS: Final = frozenset(
    {
        "group_id",
        "group_instance_id",
        "partition_assignment_strategy",
        "session_timeout_ms",
        "heartbeat_interval_ms",
        "max_poll_interval_ms",
        "enable_auto_commit",
        "auto_commit_interval_ms",
        "enable_auto_offset_store",
    }
)
ISOLATIONS: Final = ("read_uncommitted", "read_committed")

_RAYS_NETWORK = "Ray's own network is used"
_PATTERNS = "subscribe to a pattern with what it is to match"
# Kafka's keys, and librdkafka's and kafka-python's, that mean nothing here, and what to do; a key
# that ends in a dot: all that begin so.
_ELSEWHERE: Final = {
    "bootstrap.servers": "a consumer belongs to its broker: raylog.connect(address)",
    "metadata.broker.list": "a consumer belongs to its broker: raylog.connect(address)",
    "group.protocol": "groups are of the classic protocol: leave it out",
    "group.remote.assignor": "groups are of the classic protocol: partition.assignment.strategy",
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
    "on.commit": "commit_async returns a future",
    "rebalance.cb": "subscribe(on_assign=, on_revoke=, on_lost=)",
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
    # None: no group; positions are the user's own
    group_id: str | None = None
    group_instance_id: str | None = (
        None  # of a static member, which may restart without a rebalance
    )
    # names, or one string of them with commas; Kafka's own has range, too, and so stops all members
    partition_assignment_strategy: Sequence[str] | str = COOPERATIVE_STICKY.name
    session_timeout_ms: int = 45_000  # without a heartbeat for so long, others get its partitions
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000  # without a poll for so long it leaves its group
    enable_auto_commit: bool | None = None  # None: where there is a group
    auto_commit_interval_ms: int = 5_000
    # False: only what store_offsets was given is committed
    enable_auto_offset_store: bool = True

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
        _check_group(self)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Settings by either spelling. Raises InvalidConfig, which says what there is instead."""
        known = by_name(settings, {field.name for field in fields(cls)}, _ELSEWHERE)
        if known.get("group_id") is None:
            for name in known.keys() & OF_GROUPS - {"group_id"}:
                if (name, known[name]) != ("enable_auto_commit", False):
                    raise InvalidConfig(dotted(name), known[name], "needs a group.id")
        return cls(**known)

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
    def commits_by_itself(self) -> bool:
        return self.group_id is not None and self.enable_auto_commit is not False

    @property
    def assignors(self) -> tuple[str, ...]:
        given = self.partition_assignment_strategy
        names = given.split(",") if isinstance(given, str) else given
        return tuple(name.strip() for name in names)

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


def without_group(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings for a consumer that is in no group."""
    return {key: value for key, value in settings.items() if key.replace(".", "_") not in OF_GROUPS}


def _check_group(config: ConsumerConfig) -> None:
    for name in ("group_id", "group_instance_id"):
        given = getattr(config, name)
        if given is not None and (not isinstance(given, str) or not given):
            raise InvalidConfig(dotted(name), given, "must be a str of one or more characters")
    for name in ("enable_auto_commit", "enable_auto_offset_store"):
        if not isinstance(getattr(config, name), bool | None):
            raise InvalidConfig(dotted(name), getattr(config, name), "must be True or False")
    key = "partition.assignment.strategy"
    if not config.assignors:
        raise InvalidConfig(key, "", f"must have one of {', '.join(ASSIGNORS)}")
    for assignor in config.assignors:
        _check_choice(key, assignor, tuple(ASSIGNORS))
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        why = f"must be less than session.timeout.ms={config.session_timeout_ms}"
        raise InvalidConfig("heartbeat.interval.ms", config.heartbeat_interval_ms, why)


def _check_choice(key: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidConfig(key, value, f"must be one of {', '.join(choices)}")


def _check_integer(key: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidConfig(key, value, f"must be an integer of {least} or more")
