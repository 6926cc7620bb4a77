"""A topic's configuration: one table of Kafka's keys, from which parsing, errors and docs are made.

Values arrive as YAML or command line gives them (``"1048576"``, ``1048576``, ``1.0e6``); what
cannot be is refused with the key's name. Defaults are those of Kafka 4.x. Keys of Kafka that are
not in the table are refused too: a setting that nothing obeys would be a lie.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

from raylog.storage.errors import InvalidConfig
from raylog.storage.records.compression import CODECS

MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1
MIB = 1 << 20
MAX_DOUBLE = 1.7976931348623157e308
DELETE, COMPACT = "delete", "compact"


@dataclass(frozen=True, slots=True)
class Key:
    """One config key: ``parse`` returns the value or raises ValueError with what it must be."""

    name: str
    default: Any
    parse: Callable[[Any], Any]
    valid: str
    doc: str


def _integer(low: int, high: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        number = None if isinstance(value, bool) else _as_int(value)
        if number is None or not low <= number <= high:
            raise ValueError
        return number

    return parse


def _as_int(value: Any) -> int | None:
    try:
        return int(value) if not isinstance(value, float) or value.is_integer() else None
    except (TypeError, ValueError, OverflowError):
        return None


def _as_bool(value: Any) -> bool:
    known = {"true": True, "false": False}.get(str(value).strip().lower())
    if known is None:
        raise ValueError
    return known


def _one_of(*allowed: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in allowed:
            raise ValueError
        return str(value)

    return parse


def _refuse() -> Any:
    raise ValueError


def _fraction(value: Any) -> float:
    number = None if isinstance(value, bool) else float(value)
    if number is None or not 0 <= number <= 1:
        raise ValueError
    return number


def _rate(value: Any) -> float:
    number = None if isinstance(value, bool) else float(value)
    if number is None or not number > 0:
        raise ValueError
    return number


def _policies(value: Any) -> str:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not parts:
        raise ValueError
    names = [part.strip() if isinstance(part, str) else "" for part in parts]
    if not {*names} <= {COMPACT, DELETE}:
        raise ValueError
    return ",".join(dict.fromkeys(names))


def _number(name: str, default: int, low: int, high: int, doc: str) -> Key:
    text = {MAX_INT: "2^31-1", MAX_LONG: "2^63-1"}
    return Key(
        name, default, _integer(low, high), f"an integer from {low} to {text.get(high, high)}", doc
    )


def _choice(name: str, default: str, allowed: tuple[str, ...], doc: str) -> Key:
    return Key(name, default, _one_of(*allowed), "one of " + ", ".join(allowed), doc)


TOPIC_KEYS: dict[str, Key] = {
    key.name: key
    for key in (
        _number(
            "segment.bytes", 1 << 30, MIB, MAX_INT, "a segment rolls before it would grow past this"
        ),
        _number(
            "segment.ms",
            604_800_000,
            1,
            MAX_LONG,
            "a segment rolls when its records span more than this",
        ),
        _number(
            "segment.jitter.ms",
            0,
            0,
            MAX_LONG,
            "up to this much is taken off segment.ms, at random",
        ),
        _number("segment.index.bytes", 10 * MIB, 12, MAX_INT, "the most bytes of one index file"),
        _number("index.interval.bytes", 4096, 0, MAX_INT, "bytes of log between two index entries"),
        _number(
            "flush.messages",
            MAX_LONG,
            1,
            MAX_LONG,
            "fsync before an ack once so many records are unflushed",
        ),
        _number(
            "flush.ms", MAX_LONG, 0, MAX_LONG, "fsync when this long has passed since the last one"
        ),
        _number("retention.bytes", -1, -1, MAX_LONG, "bytes to keep at least; -1: no limit"),
        _number(
            "retention.ms", 604_800_000, -1, MAX_LONG, "how long records are kept; -1: for ever"
        ),
        _number(
            "file.delete.delay.ms", 60_000, 0, MAX_LONG, "how long a deleted segment stays readable"
        ),
        _number(
            "max.message.bytes", MIB + 12, 0, MAX_INT, "the largest record batch that is taken"
        ),
        Key(
            "cleanup.policy",
            DELETE,
            _policies,
            "delete, compact, or both with a comma between them",
            "what happens to old segments: they go, or keep the last record of every key",
        ),
        _number(
            "delete.retention.ms",
            86_400_000,
            0,
            MAX_LONG,
            "how long compaction keeps tombstones it has seen",
        ),
        _number(
            "min.compaction.lag.ms",
            0,
            0,
            MAX_LONG,
            "how long a record stays before compaction may come",
        ),
        _number(
            "max.compaction.lag.ms", MAX_LONG, 1, MAX_LONG, "after how long compaction must come"
        ),
        Key(
            "min.cleanable.dirty.ratio",
            0.5,
            _fraction,
            "a number from 0 to 1",
            "the share of a log, by bytes, that compaction waits for",
        ),
        Key(
            "preallocate",
            False,
            _as_bool,
            "true or false",
            "whether a new segment's room is reserved at once",
        ),
        _choice(
            "compression.type",
            "producer",
            ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
            "the codec of what is written; producer: batches stay as they came",
        ),
        Key(
            "compression.gzip.level",
            -1,
            lambda value: _integer(-1, 9)(value) or _refuse(),
            "an integer from 1 to 9, or -1",
            "when gzip compresses again; -1: the library's own",
        ),
        _number("compression.lz4.level", 9, 1, 17, "when lz4 compresses again"),
        _number("compression.zstd.level", 3, -131_072, 22, "when zstd compresses again"),
        _choice(
            "message.timestamp.type",
            "CreateTime",
            ("CreateTime", "LogAppendTime"),
            "whose clock stamps records",
        ),
        _number(
            "message.timestamp.before.max.ms",
            MAX_LONG,
            0,
            MAX_LONG,
            "how far behind now a timestamp may be",
        ),
        _number(
            "message.timestamp.after.max.ms",
            3_600_000,
            0,
            MAX_LONG,
            "how far ahead of now a timestamp may be",
        ),
        _number(
            "internal.segment.bytes",
            0,
            0,
            MAX_INT,
            "for tests: segment.bytes below 1 MiB; 0: unset",
        ),
    )
}


# Keys of Kafka for what raylog does not have: taken with their default, so that a topic's config
# can be carried over, and refused with any other value.
_ONE_REPLICA, _NO_TIERS = "a log has one replica", "there is no tiered storage"
FIXED_TOPIC_KEYS: dict[str, tuple[str, str]] = {
    "min.insync.replicas": ("1", _ONE_REPLICA),
    "unclean.leader.election.enable": ("false", _ONE_REPLICA),
    "leader.replication.throttled.replicas": ("", _ONE_REPLICA),
    "follower.replication.throttled.replicas": ("", _ONE_REPLICA),
    "remote.storage.enable": ("false", _NO_TIERS),
    "remote.log.copy.disable": ("false", _NO_TIERS),
    "remote.log.delete.on.disable": ("false", _NO_TIERS),
    "local.retention.ms": ("-2", _NO_TIERS),
    "local.retention.bytes": ("-2", _NO_TIERS),
}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What one log obeys. Made by hand it is not checked; :meth:`parse` checks."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * MIB
    index_interval_bytes: int = 4096
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = MIB + 12
    cleanup_policy: str = DELETE
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_LONG
    min_cleanable_dirty_ratio: float = 0.5
    compression_type: str = "producer"
    preallocate: bool = False
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_after_max_ms: int = 3_600_000
    internal_segment_bytes: int = 0
    # Whether a batch is appended without a look at its records: kept, since every append asks.
    is_opaque: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        looks_inside = (
            self.is_compacted
            or self.checks_record_timestamps
            or self.compression_type != "producer"
        )
        object.__setattr__(self, "is_opaque", not looks_inside)

    @property
    def is_compacted(self) -> bool:
        return COMPACT in self.cleanup_policy.split(",")

    @property
    def is_deleted(self) -> bool:
        """Whether size and time delete segments; those below the log start offset go in any
        case."""
        return DELETE in self.cleanup_policy.split(",")

    @property
    def max_segment_ms(self) -> int:
        """What a segment may span: compaction only comes to segments that are no longer written."""
        return (
            min(self.segment_ms, self.max_compaction_lag_ms)
            if self.is_compacted
            else self.segment_ms
        )

    @property
    def checks_record_timestamps(self) -> bool:
        """Whether every record's timestamp has bounds that the batch's header cannot tell."""
        return (
            self.message_timestamp_type == "CreateTime"
            and self.message_timestamp_before_max_ms < MAX_LONG
        )

    @property
    def target_codec(self) -> int | None:
        """The id of the codec to write with; None: the producer's."""
        name = "none" if self.compression_type == "uncompressed" else self.compression_type
        return CODECS.get(name)

    @property
    def compression_level(self) -> int | None:
        """The level for ``target_codec``, in Kafka's numbers."""
        return {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }.get(self.compression_type)

    @classmethod
    def parse(cls, overrides: Mapping[str, Any], base: "LogConfig | None" = None) -> "LogConfig":
        """``base`` (default: Kafka's) with ``overrides`` in Kafka's spelling; InvalidConfig by
        name."""
        values = {
            key.replace(".", "_"): parse_value(TOPIC_KEYS, key, value)
            for key, value in overrides.items()
            if not _is_fixed(key, value)
        }
        config = replace(base or cls(), **values)
        if config.internal_segment_bytes:
            config = replace(config, segment_bytes=config.internal_segment_bytes)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            why = f"must not be over max.compaction.lag.ms={config.max_compaction_lag_ms}"
            raise InvalidConfig("min.compaction.lag.ms", config.min_compaction_lag_ms, why)
        return config


def check_topic_key(key: str) -> None:
    """Raise InvalidConfig unless topics have this key."""
    if key not in TOPIC_KEYS and key not in FIXED_TOPIC_KEYS:
        raise InvalidConfig(key, None, _no_such_key(key, TOPIC_KEYS))


def topic_overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    """A topic's own config as its keys take it; InvalidConfig by name. Keys that can have one value
    only go."""
    return {
        key: parse_value(TOPIC_KEYS, key, value)
        for key, value in given.items()
        if not _is_fixed(key, value)
    }


def _is_fixed(key: str, value: Any) -> bool:
    """Whether it is a key that has one value only, and this is it; InvalidConfig if it is not."""
    if key not in FIXED_TOPIC_KEYS:
        return False
    only, why = FIXED_TOPIC_KEYS[key]
    if str(value).strip().lower() != only:
        raise InvalidConfig(key, value, f"{why}: leave it out, or give its default, {only!r}")
    return True


def parse_value(table: Mapping[str, Key], key: str, value: Any) -> Any:
    """The value that ``key`` takes for ``value``, or InvalidConfig."""
    if key not in table:
        raise InvalidConfig(key, value, _no_such_key(key, table))
    try:
        return table[key].parse(value)
    except (ValueError, TypeError):
        raise InvalidConfig(key, value, f"must be {table[key].valid}") from None


def _no_such_key(key: str, table: Mapping[str, Key]) -> str:
    is_broker = table is BROKER_KEYS
    if is_broker and key in BROKER_SYNONYMS:
        return (
            f"that is a topic's key; {BROKER_SYNONYMS[key][0][0]} is the broker's, for all topics"
        )
    if not is_broker and key in broker_keys():
        return "that is a broker's key, no topic's; see docs/CONFIG.md"
    known = broker_keys() if is_broker else set(table)
    close = get_close_matches(key, sorted(known), n=3)
    return (
        "no such key; "
        + ("like it are " if close else "there are ")
        + ", ".join(close or sorted(known))
    )


def broker_keys() -> set[str]:
    """All that a broker takes: its own keys, and those that set its topics' defaults."""
    return {*BROKER_KEYS, *(name for names in BROKER_SYNONYMS.values() for name, _ in names)}


# Broker keys that set a topic key's default, by priority, with the factor to the topic key's unit.
BROKER_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", 3_600_000),
    ),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "preallocate": (("log.preallocate", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
}


def _folders(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if (
        not isinstance(parts, list | tuple)
        or not parts
        or not all(isinstance(p, str) and p.strip() for p in parts)
    ):
        raise ValueError
    return tuple(part.strip() for part in parts)


BROKER_KEYS: dict[str, Key] = {
    key.name: key
    for key in (
        Key(
            "log.dirs",
            (),
            _folders,
            "a list of folders",
            "where partitions live; RAYLOG_LOG_DIRS overrides it on a node",
        ),
        _number("num.partitions", 1, 1, 10_000, "partitions of a topic that does not say"),
        _number(
            "num.recovery.threads.per.data.dir",
            2,
            1,
            MAX_INT,
            "how many logs of one log dir are opened at once at the start",
        ),
        _number(
            "log.retention.check.interval.ms", 300_000, 1, MAX_LONG, "how often retention looks"
        ),
        _number(
            "log.flush.offset.checkpoint.interval.ms",
            60_000,
            1,
            MAX_LONG,
            "how often recovery points and high watermarks are written down",
        ),
        _number(
            "log.flush.start.offset.checkpoint.interval.ms",
            60_000,
            1,
            MAX_LONG,
            "how often log start offsets are written down",
        ),
        Key(
            "replica.alter.log.dirs.io.max.bytes.per.second",
            MAX_DOUBLE,
            _rate,
            "a number above 0",
            "how fast all moves of a node between its log dirs may copy",
        ),
        _number(
            "producer.id.expiration.ms",
            86_400_000,
            1,
            MAX_LONG,
            "when a silent producer is forgotten",
        ),
        Key(
            "log.cleaner.enable",
            True,
            _as_bool,
            "true or false",
            (
                "whether topics are compacted at all; without, those with compact,delete get no "
                "retention either"
            ),
        ),
        _number(
            "log.cleaner.threads",
            1,
            0,
            1000,
            "how many compactions a node runs at once; 0: as log.cleaner.enable=false",
        ),
        _number(
            "log.cleaner.dedupe.buffer.size",
            134_217_728,
            1,
            MAX_LONG,
            "bytes for the keys of all compactions of a node at once: 24 a key",
        ),
        _number(
            "log.cleaner.io.buffer.size",
            524_288,
            0,
            MAX_INT,
            "bytes that compactions read and write at once",
        ),
        Key(
            "log.cleaner.io.buffer.load.factor",
            0.9,
            _fraction,
            "a number from 0 to 1",
            "how full the buffer for keys may become",
        ),
        Key(
            "log.cleaner.io.max.bytes.per.second",
            MAX_DOUBLE,
            _rate,
            "a number above 0",
            "how fast all compactions of a node may read and write",
        ),
        _number(
            "log.cleaner.backoff.ms",
            15_000,
            0,
            MAX_LONG,
            "how long to wait where nothing was to compact",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """What a broker obeys, and what its topics obey unless they say otherwise."""

    log_dirs: tuple[str, ...] = ()
    num_partitions: int = 1
    num_recovery_threads_per_data_dir: int = 2
    log_retention_check_interval_ms: int = 300_000
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    replica_alter_log_dirs_io_max_bytes_per_second: float = MAX_DOUBLE
    producer_id_expiration_ms: int = 86_400_000
    log_cleaner_enable: bool = True
    log_cleaner_threads: int = 1
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_io_buffer_size: int = 524_288
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_max_bytes_per_second: float = MAX_DOUBLE
    log_cleaner_backoff_ms: int = 15_000
    topic_defaults: LogConfig = LogConfig()

    @classmethod
    def parse(cls, overrides: Mapping[str, Any]) -> "BrokerConfig":
        """Kafka's defaults with ``overrides`` in Kafka's spelling; InvalidConfig by name."""
        synonyms = broker_keys() - set(BROKER_KEYS)
        own = {key: value for key, value in overrides.items() if key not in synonyms}
        values = {
            key.replace(".", "_"): parse_value(BROKER_KEYS, key, value)
            for key, value in own.items()
        }
        return cls(**values, topic_defaults=LogConfig.parse(dict(_topic_defaults(overrides))))


def _topic_defaults(overrides: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for topic_key, pairs in BROKER_SYNONYMS.items():
        for broker_key, factor in pairs:
            if broker_key in overrides:
                yield topic_key, _converted(topic_key, broker_key, overrides[broker_key], factor)
                break


def _converted(topic_key: str, broker_key: str, value: Any, factor: int) -> Any:
    """A broker key's value in the unit of its topic key; negative ones (no limit) have no unit."""
    number = _as_int(value) if factor > 1 else None
    scaled = value if number is None or number < 0 else number * factor
    try:
        return parse_value(TOPIC_KEYS, topic_key, scaled)
    except InvalidConfig:
        raise InvalidConfig(
            broker_key, value, f"as {topic_key} it must be {TOPIC_KEYS[topic_key].valid}"
        ) from None


assert {entry.name for entry in fields(LogConfig) if entry.init} == {
    name.replace(".", "_") for name in TOPIC_KEYS
}
