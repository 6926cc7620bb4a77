"""A broker's configuration: Kafka's broker keys, and those of them that set its topics' defaults.

What a topic obeys, and how a value is parsed, is ``raylog.storage.config``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from raylog.storage.config import (
    TOPIC_KEYS,
    Key,
    LogConfig,
    as_bool,
    as_fraction,
    as_int,
    no_such_key,
    number_key,
    parse_value,
)
from raylog.storage.errors import InvalidConfig
from raylog.storage.limits import MAX_INT, MAX_LONG
from raylog.storage.state.producers import ProducerExpiration

MAX_DOUBLE = 1.7976931348623157e308

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


def _rate(value: Any) -> float:
    number = None if isinstance(value, bool) else float(value)
    if number is None or not number > 0:
        raise ValueError
    return number


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
            name="log.dirs",
            default=(),
            parse=_folders,
            valid="a list of folders",
            doc=(
                "folders that hold the partitions, one per disk; RAYLOG_LOG_DIRS overrides it on a "
                "node"
            ),
        ),
        number_key(
            "num.partitions",
            1,
            1,
            10_000,
            "number of partitions of a topic that is created without a number",
        ),
        number_key(
            "num.recovery.threads.per.data.dir",
            2,
            1,
            MAX_INT,
            "number of logs of one log dir that are opened at the same time when the broker starts",
        ),
        number_key(
            "log.retention.check.interval.ms",
            300_000,
            1,
            MAX_LONG,
            "time between two rounds of retention",
        ),
        number_key(
            "log.flush.offset.checkpoint.interval.ms",
            60_000,
            1,
            MAX_LONG,
            "time between two checkpoints of recovery points and high watermarks",
        ),
        number_key(
            "log.flush.start.offset.checkpoint.interval.ms",
            60_000,
            1,
            MAX_LONG,
            "time between two checkpoints of log start offsets",
        ),
        Key(
            name="replica.alter.log.dirs.io.max.bytes.per.second",
            default=MAX_DOUBLE,
            parse=_rate,
            valid="a number above 0",
            doc="maximum rate at which all moves between log dirs of a node copy together",
        ),
        number_key(
            "producer.id.expiration.ms",
            86_400_000,
            1,
            MAX_LONG,
            "time without an append after which the state of a producer is deleted",
        ),
        number_key(
            "producer.id.expiration.check.interval.ms",
            600_000,
            1,
            MAX_LONG,
            "time between two looks for producers whose state is to be deleted",
        ),
        Key(
            name="log.cleaner.enable",
            default=True,
            parse=as_bool,
            valid="true or false",
            doc=(
                "whether compaction runs; if false, topics with compact,delete get no retention "
                "either"
            ),
        ),
        number_key(
            "log.cleaner.threads",
            1,
            0,
            1000,
            "number of compactions that a node runs at the same time; 0: the same as "
            "log.cleaner.enable=false",
        ),
        number_key(
            "log.cleaner.dedupe.buffer.size",
            134_217_728,
            1,
            MAX_LONG,
            "memory for the keys of all compactions of a node together, in bytes; 24 bytes per key",
        ),
        number_key(
            "log.cleaner.io.buffer.size",
            524_288,
            0,
            MAX_INT,
            "memory for the read and write buffers of all compactions of a node together, in bytes",
        ),
        Key(
            name="log.cleaner.io.buffer.load.factor",
            default=0.9,
            parse=as_fraction,
            valid="a number from 0 to 1",
            doc="maximum share of the memory for keys that is used",
        ),
        Key(
            name="log.cleaner.io.max.bytes.per.second",
            default=MAX_DOUBLE,
            parse=_rate,
            valid="a number above 0",
            doc="maximum rate at which all compactions of a node read and write together",
        ),
        number_key(
            "log.cleaner.backoff.ms",
            15_000,
            0,
            MAX_LONG,
            "time to wait after no log needed compaction",
        ),
    )
}


def broker_keys() -> set[str]:
    """All that a broker takes: its own keys, and those that set its topics' defaults."""
    return {*BROKER_KEYS, *(name for names in BROKER_SYNONYMS.values() for name, _ in names)}


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
    producer_id_expiration_check_interval_ms: int = 600_000
    log_cleaner_enable: bool = True
    log_cleaner_threads: int = 1
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_io_buffer_size: int = 524_288
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_max_bytes_per_second: float = MAX_DOUBLE
    log_cleaner_backoff_ms: int = 15_000
    topic_defaults: LogConfig = field(default_factory=LogConfig)

    @property
    def producer_expiration(self) -> ProducerExpiration:
        """When the logs forget their producers."""
        return ProducerExpiration(
            self.producer_id_expiration_ms, self.producer_id_expiration_check_interval_ms
        )

    @classmethod
    def parse(cls, overrides: Mapping[str, Any]) -> "BrokerConfig":
        """Kafka's defaults with ``overrides`` in Kafka's spelling. Raises InvalidConfig."""
        synonyms = broker_keys() - set(BROKER_KEYS)
        own = {key: value for key, value in overrides.items() if key not in synonyms}
        for key, value in own.items():
            _check_key(key, value)
        values = {
            key.replace(".", "_"): parse_value(BROKER_KEYS, key, value)
            for key, value in own.items()
        }
        return cls(**values, topic_defaults=LogConfig.parse(dict(_topic_defaults(overrides))))


def _check_key(key: str, value: Any) -> None:
    if key in BROKER_KEYS:
        return
    if key in BROKER_SYNONYMS:
        of_broker = BROKER_SYNONYMS[key][0][0]
        why = f"this is a topic key; to set it for all topics, use the broker key {of_broker}"
        raise InvalidConfig(key, value, why)
    raise InvalidConfig(key, value, no_such_key(key, broker_keys()))


def _topic_defaults(overrides: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for topic_key, pairs in BROKER_SYNONYMS.items():
        for broker_key, factor in pairs:
            if broker_key in overrides:
                yield topic_key, _converted(topic_key, broker_key, overrides[broker_key], factor)
                break


def _converted(topic_key: str, broker_key: str, value: Any, factor: int) -> Any:
    """A broker key's value in the unit of its topic key; negative ones (no limit) have no unit."""
    number = as_int(value) if factor > 1 else None
    scaled = value if number is None or number < 0 else number * factor
    try:
        return parse_value(TOPIC_KEYS, topic_key, scaled)
    except InvalidConfig:
        raise InvalidConfig(
            broker_key, value, f"as {topic_key} it must be {TOPIC_KEYS[topic_key].valid}"
        ) from None
