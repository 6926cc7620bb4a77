"""A topic's configuration: each of Kafka's keys is stated once, as a field of :class:`LogConfig`.

The field's name is the key's with ``_`` for the dots. Its default, how a value is parsed, what is
valid and what it means stand beside it; the table of keys, errors and docs are made from that. To
add a key, add a field, here with its default, its smallest and its largest value::

    retention_bytes: int = integer(-1, -1, MAX_LONG, "minimum size to keep ...")

Values arrive as YAML or the command line gives them (``"1048576"``, ``1048576``, ``1.0e6``). An
invalid value is refused with the key's name. Defaults are those of Kafka 4.x. A key that is not in
the table is refused too, because it would have no effect.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

from raylog.storage.errors import InvalidConfig
from raylog.storage.limits import MAX_INT, MAX_LONG
from raylog.storage.records.compression import CODECS, MAX_PLAIN_BYTES
from raylog.storage.records.layout import LOG_OVERHEAD
from raylog.storage.records.rules import RecordRules
from raylog.storage.wire import message

MIB = 1 << 20
DELETE, COMPACT = "delete", "compact"
# The first must not exceed the second; every other key stands alone.
MIN_LAG, MAX_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"
MAX_PLAIN_BATCH_BYTES = 100 * MIB  # enough for 1 MiB of text; a bomb is a thousand times as much


@dataclass(frozen=True, slots=True)
class Key:
    """One config key. ``parse`` returns the value, or raises ValueError or TypeError.

    ``valid``: what it must be, to follow "must be".
    """

    name: str
    default: Any
    parse: Callable[[Any], Any]
    valid: str
    doc: str


def _parse_integer(low: int, high: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        number = None if isinstance(value, bool) else as_int(value)
        if number is None or not low <= number <= high:
            raise ValueError
        return number

    return parse


def as_int(value: Any) -> int | None:
    try:
        return int(value) if not isinstance(value, float) or value.is_integer() else None
    except (TypeError, ValueError, OverflowError):
        return None


def as_bool(value: Any) -> bool:
    flag = {"true": True, "false": False}.get(str(value).strip().lower())
    if flag is None:
        raise ValueError
    return flag


def _one_of(*allowed: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in allowed:
            raise ValueError
        return str(value)

    return parse


def _refuse() -> Any:
    raise ValueError


def as_fraction(value: Any) -> float:
    number = None if isinstance(value, bool) else float(value)
    if number is None or not 0 <= number <= 1:
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


def setting(default: Any, parse: Callable[[Any], Any], valid: str, doc: str) -> Any:
    """A field of a config that a key sets: the one of its name, with dots. See :class:`Key`."""
    return field(default=default, metadata={"parse": parse, "valid": valid, "doc": doc})


def integer(default: int, low: int, high: int, doc: str) -> Any:
    """A setting that is an integer from ``low`` to ``high``."""
    text = {MAX_INT: "2^31-1", MAX_LONG: "2^63-1"}
    valid = f"an integer from {low} to {text.get(high, high)}"
    return setting(default, _parse_integer(low, high), valid, doc)


def choice(default: str, allowed: tuple[str, ...], doc: str) -> Any:
    """A setting that is one of a few words."""
    return setting(default, _one_of(*allowed), "one of " + ", ".join(allowed), doc)


def keys_of(config: type) -> dict[str, Key]:
    """The keys that set the fields of a config, by name, in their order."""
    keys = {}
    for own in fields(config):
        if own.metadata:
            name = own.name.replace("_", ".")
            keys[name] = Key(name=name, default=own.default, **own.metadata)
    return keys


def attribute_of(key: str) -> str:
    """The field that a key sets."""
    return key.replace(".", "_")


@message
@dataclass(frozen=True, slots=True)
class LogConfig:
    """What one log obeys. Made by hand it is not checked; :meth:`parse` checks."""

    segment_bytes: int = integer(
        1 << 30,
        MIB,
        MAX_INT,
        "maximum size of a segment; a batch that would exceed it begins a new segment",
    )
    segment_ms: int = integer(
        604_800_000,
        1,
        MAX_LONG,
        "maximum time span of the records in a segment; a later batch begins a new segment",
    )
    segment_jitter_ms: int = integer(
        0, 0, MAX_LONG, "maximum random time that is subtracted from segment.ms"
    )
    segment_index_bytes: int = integer(10 * MIB, 12, MAX_INT, "maximum size of an index file")
    index_interval_bytes: int = integer(4096, 0, MAX_INT, "bytes of log between two index entries")
    flush_messages: int = integer(
        MAX_LONG,
        1,
        MAX_LONG,
        "number of unflushed records at which an append is fsynced before it is acknowledged; "
        "1: every append",
    )
    flush_ms: int = integer(
        MAX_LONG, 0, MAX_LONG, "maximum time between two fsyncs of a log that has unflushed records"
    )
    retention_bytes: int = integer(
        -1,
        -1,
        MAX_LONG,
        "minimum size to keep: the oldest segments are deleted while the rest is at least "
        "this large; -1: no limit",
    )
    retention_ms: int = integer(
        604_800_000, -1, MAX_LONG, "time for which records are kept; -1: forever"
    )
    file_delete_delay_ms: int = integer(
        60_000, 0, MAX_LONG, "time for which the files of a deleted segment stay readable"
    )
    max_message_bytes: int = integer(
        MIB + LOG_OVERHEAD, 0, MAX_INT, "maximum size of a record batch"
    )
    cleanup_policy: str = setting(
        DELETE,
        _policies,
        "delete, compact, or both separated by a comma",
        "what happens to old segments; delete: they are deleted; compact: only the last "
        "record of every key is kept",
    )
    delete_retention_ms: int = integer(
        86_400_000,
        0,
        MAX_LONG,
        "time for which compaction keeps a tombstone after it first read it",
    )
    min_compaction_lag_ms: int = integer(
        0, 0, MAX_LONG, "minimum age of a record before it may be compacted"
    )
    max_compaction_lag_ms: int = integer(
        MAX_LONG, 1, MAX_LONG, "maximum age of a record before its log must be compacted"
    )
    min_cleanable_dirty_ratio: float = setting(
        0.5,
        as_fraction,
        "a number from 0 to 1",
        "minimum share of a log, by bytes, that is new since its last compaction, before it "
        "is compacted again",
    )
    preallocate: bool = setting(
        False,
        as_bool,
        "true or false",
        "whether the disk space of a segment is reserved when the segment is created",
    )
    compression_type: str = choice(
        "producer",
        ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "codec of the log; producer: each batch keeps the codec of its producer",
    )
    compression_gzip_level: int = setting(
        -1,
        lambda value: _parse_integer(-1, 9)(value) or _refuse(),
        "an integer from 1 to 9, or -1",
        "gzip level with which the log compresses a batch again; -1: the default of the library",
    )
    compression_lz4_level: int = integer(
        9, 1, 17, "lz4 level with which the log compresses a batch again"
    )
    compression_zstd_level: int = integer(
        3, -131_072, 22, "zstd level with which the log compresses a batch again"
    )
    message_timestamp_type: str = choice(
        "CreateTime",
        ("CreateTime", "LogAppendTime"),
        "timestamp of a record; CreateTime: from the producer; LogAppendTime: the time of the "
        "append",
    )
    message_timestamp_before_max_ms: int = integer(
        MAX_LONG,
        0,
        MAX_LONG,
        "maximum time by which a record's timestamp may be before the current time",
    )
    message_timestamp_after_max_ms: int = integer(
        3_600_000,
        0,
        MAX_LONG,
        "maximum time by which a record's timestamp may be after the current time",
    )
    max_plain_batch_bytes: int = integer(
        MAX_PLAIN_BATCH_BYTES,
        1,
        MAX_PLAIN_BYTES,
        "raylog's own: maximum size of a compressed record batch after it is decompressed",
    )
    check_compressed_batches: bool = setting(
        True,
        as_bool,
        "true or false",
        "raylog's own: whether a compressed batch is decompressed to check its records; "
        "false only where every producer is trusted",
    )
    internal_segment_bytes: int = integer(
        0, 0, MAX_INT, "only for tests: replaces segment.bytes and may be below 1 MiB; 0: not set"
    )
    # What is demanded of each record that is appended: kept, since every append asks.
    record_rules: RecordRules = field(init=False, compare=False)

    def __post_init__(self) -> None:
        is_create_time = self.message_timestamp_type == "CreateTime"
        rules = RecordRules(
            max_bytes=min(self.max_message_bytes, self.segment_bytes),
            before_max_ms=self.message_timestamp_before_max_ms if is_create_time else MAX_LONG,
            after_max_ms=self.message_timestamp_after_max_ms if is_create_time else MAX_LONG,
            is_create_time=is_create_time,
            needs_keys=self.is_compacted,
        )
        object.__setattr__(self, "record_rules", rules)

    @property
    def is_compacted(self) -> bool:
        return COMPACT in self.cleanup_policy.split(",")

    @property
    def is_deleted(self) -> bool:
        """Whether size and time delete segments.

        Segments below the log start offset are deleted in any case.
        """
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
        """``base`` (default: Kafka's) with ``overrides`` in Kafka's spelling.

        Raises InvalidConfig with the key's name.
        """
        config = cls.unchecked(overrides, base)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            why = f"must not exceed {MAX_LAG}={config.max_compaction_lag_ms}"
            raise InvalidConfig(MIN_LAG, config.min_compaction_lag_ms, why)
        return config

    @classmethod
    def unchecked(
        cls, overrides: Mapping[str, Any], base: "LogConfig | None" = None
    ) -> "LogConfig":
        """The same, though keys may not go together. No log is to be opened with it."""
        values = {
            attribute_of(key): parse_value(TOPIC_KEYS, key, value)
            for key, value in overrides.items()
            if not is_fixed(key, value)
        }
        config = replace(base or cls(), **values)
        if config.internal_segment_bytes:
            config = replace(config, segment_bytes=config.internal_segment_bytes)
        return config


TOPIC_KEYS = keys_of(LogConfig)

# Keys of Kafka for features that raylog does not have. Their default value is accepted, so that a
# topic's config can be copied from Kafka. Any other value is refused.
_ONE_REPLICA = "raylog keeps one replica of a log"
_NO_TIERS = "raylog has no tiered storage"
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


def is_fixed(key: str, value: Any) -> bool:
    """Whether it is a key that has one value only, and this is it; InvalidConfig if it is not."""
    if key not in FIXED_TOPIC_KEYS:
        return False
    only, why = FIXED_TOPIC_KEYS[key]
    if str(value).strip().lower() != only:
        raise InvalidConfig(
            key, value, f"{why}; remove the key, or set it to its default, {only!r}"
        )
    return True


def parse_value(table: Mapping[str, Key], key: str, value: Any) -> Any:
    """The value that ``key`` takes for ``value``, or InvalidConfig."""
    if key not in table:
        raise InvalidConfig(key, value, no_such_key(key, table))
    try:
        return table[key].parse(value)
    except (ValueError, TypeError):
        raise InvalidConfig(key, value, f"must be {table[key].valid}") from None


def no_such_key(key: str, known: Collection[str]) -> str:
    """What is said of a key that is not ``known``: those like it, or all that there are."""
    close = get_close_matches(key, sorted(known), n=3)
    if close:
        return f"unknown key; similar keys are {', '.join(close)}"
    return f"unknown key; the known keys are {', '.join(sorted(known))}"
