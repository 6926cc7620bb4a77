"""A broker's configuration: Kafka's broker keys, and those of them that set its topics' defaults.

What a topic obeys, and how a value is parsed, is ``raylog.storage.config``.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from raylog.actors.coordinators.group_config import GroupConfig, OffsetsTopic
from raylog.actors.coordinators.transactions.config import StateTopic, TransactionConfig
from raylog.actors.errors import NoLogDirs
from raylog.actors.listeners import (
    FIRST_PORT,
    LAST_PORT,
    LEAST_DISTANCE,
    LOOPBACK,
    MAX_CONNECTIONS,
    MAX_FRAME_BYTES,
    MAX_IDLE_MS,
    MECHANISMS,
    MOST_LISTENERS,
    ON_LOOPBACK,
    OWN_NAMES,
    PLAINTEXT,
    PROTOCOLS,
    Listener,
    parse_addresses,
    parse_protocols,
    why_not_open,
    why_not_together,
)
from raylog.storage.config import (
    TOPIC_KEYS,
    LogConfig,
    as_bool,
    as_fraction,
    as_int,
    attribute_of,
    choice,
    integer,
    keys_of,
    no_such_key,
    parse_value,
    setting,
)
from raylog.storage.errors import InvalidConfig
from raylog.storage.limits import MAX_INT, MAX_LONG
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.state.properties import META_PROPERTIES
from raylog.storage.wire import message

MAX_DOUBLE = 1.7976931348623157e308
# The environment variable of a node's Ray that names its own log dirs.
LOG_DIRS_VARIABLE = "RAYLOG_LOG_DIRS"

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
    "max.plain.batch.bytes": (("log.max.plain.batch.bytes", 1),),
    "check.compressed.batches": (("log.check.compressed.batches", 1),),
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


def _listeners(value: Any) -> str:
    """Listeners, or none. Names are written as an older raylog reads them."""
    parts = _parts(value)
    parse_addresses(",".join(parts))
    named = (part.partition("://") for part in parts)
    return ",".join(f"{name.upper()}{colon}{where}" for name, colon, where in named)


def _protocols(value: Any) -> str:
    parts = [part.replace(" ", "").upper() for part in _parts(value)]
    parse_protocols(",".join(parts))
    return ",".join(parts)


def _parts(value: Any) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(one, str) for one in parts):
        raise ValueError
    return [part.strip() for part in parts]


def _mechanisms(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not parts:
        raise ValueError
    names = [part.strip() if isinstance(part, str) else "" for part in parts]
    if not {*names} <= {*MECHANISMS}:
        raise ValueError
    return tuple(dict.fromkeys(names))


def _path(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError
    path = value.strip()
    if path and not os.path.isabs(path):
        raise ValueError
    return path


def _folders(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if (
        not isinstance(parts, list | tuple)
        or not parts
        or not all(isinstance(p, str) and p.strip() for p in parts)
    ):
        raise ValueError
    return tuple(part.strip() for part in parts)


@message
@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """What a broker obeys, and what its topics obey unless they say otherwise."""

    log_dirs: tuple[str, ...] = setting(
        (),
        _folders,
        "a list of folders",
        "folders that hold the partitions, one per disk; RAYLOG_LOG_DIRS overrides it on a node",
    )
    listeners: str = setting(
        f"{PLAINTEXT}://{LOOPBACK}:{FIRST_PORT}",
        _listeners,
        f"a list of at most {MOST_LISTENERS} NAME://HOST:PORT, with a PORT from 1 to {LAST_PORT} "
        "and no NAME twice; or empty",
        "where Kafka's clients come in. The first node has this port, and each further node and "
        "each partition one of those behind it. A port that was given stays, unless it is below "
        f"this one. NAME is a protocol ({', '.join(PROTOCOLS)}) or a name of "
        "`listener.security.protocol.map`. PLAINTEXT is for 127.0.0.1 alone. An empty HOST is each "
        "node's own address; all that are not on the loopback have the same. Empty: no port is "
        "opened. The ports of a further listener are as far behind those of the first one as its "
        f"PORT: keep some thousand between them, and {LEAST_DISTANCE} at least, since each process "
        "has one of each",
    )
    listener_security_protocol_map: str = setting(
        OWN_NAMES,
        _protocols,
        f"a list of NAME:PROTOCOL, of {', '.join(PROTOCOLS)}",
        "of which protocol the listeners are that have these names. The protocols are names, too",
    )
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        MECHANISMS[1:],
        _mechanisms,
        "a list of " + ", ".join(MECHANISMS),
        "ways in which a client of a SASL listener may prove who it is; users: raylog user add",
    )
    ssl_keystore_location: str = setting(
        "",
        _path,
        "an absolute path, or empty",
        "PEM file, on each node, with the key of an SSL listener and its certificates. The key is "
        "not encrypted. A file that is replaced is read again",
    )
    ssl_keystore_type: str = choice("PEM", ("PEM",), "format of that file")
    ssl_truststore_location: str = setting(
        "",
        _path,
        "an absolute path, or empty",
        "PEM file, on each node, with the authorities that sign clients' certificates",
    )
    ssl_truststore_type: str = choice("PEM", ("PEM",), "format of that file")
    ssl_client_auth: str = choice(
        "none",
        ("none", "requested", "required"),
        "whether a client of an SSL listener has a certificate of its own; requested: one that it "
        "has is checked",
    )
    max_connections: int = integer(
        MAX_CONNECTIONS,
        1,
        MAX_INT,
        "number of connections of Kafka's clients that a process serves at once by a listener; who "
        "comes later waits. Each takes a thread",
    )
    connections_max_idle_ms: int = integer(
        MAX_IDLE_MS,
        1000,
        MAX_LONG,
        "time after which a connection of Kafka's clients without a request is closed",
    )
    socket_request_max_bytes: int = integer(
        MAX_FRAME_BYTES, 1024, MAX_INT, "maximum size of a request of Kafka's clients"
    )
    num_partitions: int = integer(
        1, 1, 10_000, "number of partitions of a topic that is created without a number"
    )
    num_recovery_threads_per_data_dir: int = integer(
        2,
        1,
        MAX_INT,
        "number of logs of one log dir that are opened at the same time when the broker starts",
    )
    log_retention_check_interval_ms: int = integer(
        300_000, 1, MAX_LONG, "time between two rounds of retention"
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        60_000, 1, MAX_LONG, "time between two checkpoints of recovery points and high watermarks"
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        60_000, 1, MAX_LONG, "time between two checkpoints of log start offsets"
    )
    replica_alter_log_dirs_io_max_bytes_per_second: float = setting(
        MAX_DOUBLE,
        _rate,
        "a number above 0",
        "maximum rate at which all moves between log dirs of a node copy together",
    )
    producer_id_expiration_ms: int = integer(
        86_400_000,
        1,
        MAX_LONG,
        "time without an append after which the state of a producer is deleted",
    )
    producer_id_expiration_check_interval_ms: int = integer(
        600_000, 1, MAX_LONG, "time between two looks for producers whose state is to be deleted"
    )
    group_min_session_timeout_ms: int = integer(
        6_000, 1, MAX_INT, "shortest session timeout that a member of a group may have"
    )
    group_max_session_timeout_ms: int = integer(
        1_800_000, 1, MAX_INT, "longest session timeout that a member of a group may have"
    )
    group_initial_rebalance_delay_ms: int = integer(
        200,
        0,
        MAX_INT,
        "time for which the first members of a group are waited for before they share partitions; "
        "it begins again with each that comes",
    )
    group_max_size: int = integer(1_000, 1, MAX_INT, "maximum number of members of a group")
    offset_metadata_max_bytes: int = integer(
        4_096,
        0,
        MAX_INT,
        "maximum number of characters of the text that is committed with an offset",
    )
    offsets_retention_minutes: int = integer(
        10_080,
        1,
        MAX_INT,
        "time after which offsets of a group are deleted: counted from when its last member went, "
        "or from the commit where it had none, or where nobody in it reads the topic any more",
    )
    offsets_retention_check_interval_ms: int = integer(
        600_000, 1, MAX_LONG, "time between two looks for offsets that are to be deleted"
    )
    offsets_topic_num_partitions: int = integer(
        1,
        1,
        50,
        "number of partitions of __consumer_offsets, which is made when the first group asks for "
        "its coordinator; it stays as it was made. Each is a process",
    )
    offsets_topic_segment_bytes: int = integer(
        16_777_216,
        1,
        MAX_INT,
        "size of its segments; a coordinator reads all of them when it begins",
    )
    transaction_max_timeout_ms: int = integer(
        900_000, 1, MAX_INT, "longest timeout that a producer may ask for its transactions"
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000,
        1,
        MAX_INT,
        "time between two looks for transactions that are open for longer than their timeout, and "
        "are aborted",
    )
    transactional_id_expiration_ms: int = integer(
        604_800_000,
        1,
        MAX_INT,
        "time without a transaction after which a transactional id is forgotten",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        3_600_000,
        1,
        MAX_INT,
        "time between two looks for transactional ids that are to be forgotten",
    )
    transaction_state_log_num_partitions: int = integer(
        1,
        1,
        50,
        "number of partitions of __transaction_state, which is made when the first producer asks "
        "for its coordinator; it stays as it was made. Each is a process",
    )
    transaction_state_log_segment_bytes: int = integer(
        16_777_216,
        1,
        MAX_INT,
        "size of its segments; a coordinator reads all of them when it begins",
    )
    log_cleaner_enable: bool = setting(
        True,
        as_bool,
        "true or false",
        "whether compaction runs; if false, topics with compact,delete get no retention either",
    )
    log_cleaner_threads: int = integer(
        1,
        0,
        1000,
        "number of compactions that a node runs at the same time; 0: the same as "
        "log.cleaner.enable=false",
    )
    log_cleaner_dedupe_buffer_size: int = integer(
        134_217_728,
        1,
        MAX_LONG,
        "memory for the keys of all compactions of a node together, in bytes; 24 bytes per key",
    )
    log_cleaner_io_buffer_size: int = integer(
        524_288,
        0,
        MAX_INT,
        "memory for the read and write buffers of all compactions of a node together, in bytes",
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        0.9,
        as_fraction,
        "a number from 0 to 1",
        "maximum share of the memory for keys that is used",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        MAX_DOUBLE,
        _rate,
        "a number above 0",
        "maximum rate at which all compactions of a node read and write together",
    )
    log_cleaner_backoff_ms: int = integer(
        15_000, 0, MAX_LONG, "time to wait after no log needed compaction"
    )
    metadata_log_max_record_bytes_between_snapshots: int = integer(
        20_971_520,
        1,
        MAX_LONG,
        "size of the metadata's records after which a snapshot of it is made, in bytes",
    )
    topic_defaults: LogConfig = field(default_factory=LogConfig)

    @property
    def groups(self) -> GroupConfig:
        """For the coordinators of groups."""
        return GroupConfig(
            min_session_timeout_ms=self.group_min_session_timeout_ms,
            max_session_timeout_ms=self.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            max_size=self.group_max_size,
            offset_metadata_max_chars=self.offset_metadata_max_bytes,
            offsets_retention_ms=self.offsets_retention_minutes * 60_000,
            expiry_interval_ms=self.offsets_retention_check_interval_ms,
        )

    @property
    def offsets_topic(self) -> OffsetsTopic:
        """How the topic of groups' offsets is made."""
        return OffsetsTopic(self.offsets_topic_num_partitions, self.offsets_topic_segment_bytes)

    @property
    def transactions(self) -> TransactionConfig:
        """For the coordinators of transactions."""
        expiry_ms = self.transaction_remove_expired_transaction_cleanup_interval_ms
        return TransactionConfig(
            max_timeout_ms=self.transaction_max_timeout_ms,
            id_expiration_ms=self.transactional_id_expiration_ms,
            abort_interval_ms=self.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            expiry_interval_ms=expiry_ms,
        )

    @property
    def state_topic(self) -> StateTopic:
        """How the topic of transactions is made."""
        return StateTopic(
            self.transaction_state_log_num_partitions, self.transaction_state_log_segment_bytes
        )

    @property
    def listens(self) -> bool:
        """Whether ports are opened for Kafka's clients."""
        return self.listeners != ""

    @property
    def first_port(self) -> int:
        """Where those of the first listener begin."""
        addresses = parse_addresses(self.listeners)
        return addresses[0].port if addresses else FIRST_PORT

    def listeners_at(self, own_host: str) -> tuple[Listener, ...]:
        """What each process of a node opens; that of the loopback where it opens none.

        ``own_host``: the node's own address.
        """
        addresses = parse_addresses(self.listeners)
        protocols = parse_protocols(self.listener_security_protocol_map)
        made = [
            Listener(
                name=address.name,
                distance=address.port - addresses[0].port,
                protocol=protocols[address.name],
                host=address.host or own_host,
                mechanisms=self.sasl_enabled_mechanisms,
                keystore=self.ssl_keystore_location,
                truststore=self.ssl_truststore_location,
                client_auth=self.ssl_client_auth,
                max_connections=self.max_connections,
                max_idle_ms=self.connections_max_idle_ms,
                max_frame_bytes=self.socket_request_max_bytes,
            )
            for address in addresses
        ]
        return tuple(made) or (ON_LOOPBACK,)

    def _check_listeners(self) -> None:
        """Raise InvalidConfig for one that would let in who has not said who he is."""
        protocols = parse_protocols(self.listener_security_protocol_map)
        addresses = parse_addresses(self.listeners)
        why = why_not_together(addresses)
        if why:
            raise InvalidConfig("listeners", self.listeners, why)
        for address in addresses:
            if address.name not in protocols:
                why = (
                    f"{address.name} is no protocol ({', '.join(PROTOCOLS)}), and "
                    "listener.security.protocol.map does not say of which it is"
                )
                raise InvalidConfig("listeners", self.listeners, why)
        for listener in self.listeners_at(""):
            why = why_not_open(listener)
            if why:
                where = "" if listener.name == listener.protocol else f"{listener.name}: "
                raise InvalidConfig("listeners", self.listeners, f"{where}{why}")

    @property
    def producer_expiration(self) -> ProducerExpiration:
        """When the logs forget their producers."""
        return ProducerExpiration(
            self.producer_id_expiration_ms, self.producer_id_expiration_check_interval_ms
        )

    @classmethod
    def parse(cls, overrides: Mapping[str, Any]) -> "BrokerConfig":
        """Kafka's defaults with ``overrides`` in Kafka's spelling. Raises InvalidConfig."""
        parsed = cls._parse_each(overrides)
        parsed._check_listeners()
        return parsed

    @classmethod
    def check(cls, key: str, value: Any) -> None:
        """Raise InvalidConfig for a value that is invalid whatever the others are."""
        cls._parse_each({key: value})

    @classmethod
    def _parse_each(cls, overrides: Mapping[str, Any]) -> "BrokerConfig":
        values: dict[str, Any] = {}
        for key, value in overrides.items():
            _check_key(key, value)
            if key in BROKER_KEYS:
                values[attribute_of(key)] = parse_value(BROKER_KEYS, key, value)
        for alias, key in BROKER_ALIASES.items():
            if alias in overrides:
                values.setdefault(attribute_of(key), _of_alias(alias, key, overrides[alias]))
        return cls(**values, topic_defaults=LogConfig.parse(dict(_topic_defaults(overrides))))


BROKER_KEYS = keys_of(BrokerConfig)
# Other names of a broker's own keys. Where both are set, the key itself applies.
BROKER_ALIASES = {"log.dir": "log.dirs"}


def broker_keys() -> set[str]:
    """All that a broker takes: its own keys, and those that set its topics' defaults."""
    synonyms = {name for names in BROKER_SYNONYMS.values() for name, _ in names}
    return {*BROKER_KEYS, *BROKER_ALIASES, *synonyms}


def shown_as(key: str) -> str:
    """The broker key whose value is shown for ``key``: itself, or the one that it is a name of.

    Of several keys for one default of topics it is the one with the finest unit.
    """
    for names in BROKER_SYNONYMS.values():
        if key in (name for name, _ in names):
            return names[0][0]
    return BROKER_ALIASES.get(key, key)


def names_log_dirs(settings: Collection[str]) -> bool:
    """Whether the settings say where the log dirs are."""
    return "log.dirs" in settings or "log.dir" in settings


def _of_alias(alias: str, key: str, value: Any) -> Any:
    try:
        return parse_value(BROKER_KEYS, key, value)
    except InvalidConfig as error:
        raise InvalidConfig(alias, value, error.args[2]) from None


def _check_key(key: str, value: Any) -> None:
    why = why_no_broker_key(key)
    if why:
        raise InvalidConfig(key, value, why)


def why_no_broker_key(key: str) -> str:
    """Why a broker does not take this key; empty if it does."""
    if key in broker_keys():
        return ""
    if key in BROKER_SYNONYMS:
        of_broker = BROKER_SYNONYMS[key][0][0]
        return f"this is a topic key; for all topics, use the broker key {of_broker}"
    return no_such_key(key, broker_keys())


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


def absolute(paths: Iterable[str]) -> list[str]:
    """``paths`` below the working directory of the process whose user gave them."""
    return [os.path.abspath(path) for path in paths]


def log_dirs_of_environment() -> tuple[str, ...]:
    """The log dirs that this process's environment names, as it does; () where it names none.

    Raises InvalidConfig.
    """
    given = os.environ.get(LOG_DIRS_VARIABLE)
    if not given:
        return ()
    try:
        return BrokerConfig.parse({"log.dirs": given}).log_dirs
    except InvalidConfig as error:
        raise InvalidConfig(LOG_DIRS_VARIABLE, given, error.why) from None


@contextmanager
def absolute_log_dirs_variable() -> Iterator[None]:
    """Meanwhile the paths in this process's RAYLOG_LOG_DIRS are absolute.

    For the start of a Ray, whose processes inherit it and run in other folders. Raises
    InvalidConfig.
    """
    given = os.environ.get(LOG_DIRS_VARIABLE)
    paths = absolute(log_dirs_of_environment())
    if given is None or not paths:
        yield
        return
    os.environ[LOG_DIRS_VARIABLE] = ",".join(paths)
    try:
        yield
    finally:
        os.environ[LOG_DIRS_VARIABLE] = given


def node_log_dirs(config: BrokerConfig) -> tuple[str, ...]:
    """The log dirs of the node that this runs on: those of its environment, or ``log.dirs``.

    Raises NoLogDirs, InvalidConfig; also for a relative path: Ray's processes run in folders of
    their own, so nobody knows which one its user meant.
    """
    paths = log_dirs_of_environment() or config.log_dirs
    if not paths:
        raise NoLogDirs("log.dirs is not set; set log.dirs, or RAYLOG_LOG_DIRS on this node")
    for path in paths:
        if not os.path.isabs(path):
            raise InvalidConfig(LOG_DIRS_VARIABLE, path, _why_not_relative(path))
    return paths


def _why_not_relative(path: str) -> str:
    """What to do, so that records of an earlier raylog, which took it, are not left behind."""
    whole = os.path.abspath(path)
    must = "must be absolute paths on a node of Ray"
    again = "run `ray stop` and `ray start` on this node again"
    if os.path.exists(os.path.join(whole, META_PROPERTIES)):
        return (
            f"{must}; its data are in {whole}: set that path, or move them to the one that you "
            f"set, and {again}"
        )
    return f"{must}; here it means {whole}, where no log dir is: set absolute ones, and {again}"
