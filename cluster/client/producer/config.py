"""The settings of a producer: Kafka's names and defaults.

``linger.ms`` and ``linger_ms`` are the same; ``broker.producer(linger_ms=5)`` or
``broker.producer({"linger.ms": 5})`` sets it.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from raylog.cluster.client.producer.batches import Compression
from raylog.cluster.client.settings import by_name
from raylog.storage.errors import InvalidConfig, UnsupportedCompressionType
from raylog.storage.limits import MAX_INT
from raylog.storage.records.compression import CODECS

PARTITIONERS: Final = ("murmur2", "sticky", "round_robin")
# Kafka's values of ``acks`` that mean the same while a partition has one replica.
_ACKS: Final = ("all", "1", "-1", 1, -1)

_BROKER = "a producer belongs to its broker: raylog.connect(address)"
_ATTEMPTS = "a batch is sent again until delivery.timeout.ms is over, however often: set that"
_BUFFER = "use buffer.memory, in bytes"
_NETWORK = "Ray's own network is used"
# Kafka's keys, and those of librdkafka, that mean nothing here, and what to use instead. A key that
# ends in a dot: all that begin so.
_INSTEAD: Final = {
    "bootstrap.servers": _BROKER,
    "metadata.broker.list": _BROKER,
    "retries": _ATTEMPTS,
    "message.send.max.retries": _ATTEMPTS,
    "message.timeout.ms": "use delivery.timeout.ms",
    "request.required.acks": "use acks",
    "max.in.flight": "use max.in.flight.requests.per.connection",
    "message.max.bytes": "use max.request.size, and max.message.bytes of the topic",
    "batch.num.messages": "bytes bound a batch: use batch.size and max.request.size",
    "queue.buffering.max.ms": "use linger.ms",
    "queue.buffering.max.messages": _BUFFER,
    "queue.buffering.max.kbytes": _BUFFER,
    "compression.codec": "use compression.type",
    "compression.level": (
        "use that of the codec: compression.gzip.level, compression.lz4.level, "
        "compression.zstd.level"
    ),
    "partitioner.": (
        f"use partitioner: one of {', '.join(PARTITIONERS)}, or a function; sticky ignores keys"
    ),
    "interceptor.classes": "there are none: use a callback of what send returns",
    "on.delivery": "use add_done_callback of what send returns",
    "delivery.report.": "use add_done_callback of what send returns",
    "error.cb": "send, flush and close raise errors, and what send returns has its own",
    "stats.cb": "see docs/METRICS.md, and raylog status",
    "api.version": "clients and brokers of one raylog understand each other",
    "api.version.": "clients and brokers of one raylog understand each other",
    "security.": _NETWORK,
    "sasl.": _NETWORK,
    "ssl.": _NETWORK,
}

Partitioner = Callable[[str, bytes | None, int], int]
Serializer = Callable[[Any], bytes | None]


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """What a producer obeys."""

    acks: str | int = "all"  # durability is the topic's matter: flush.messages
    batch_size: int = 16_384  # bytes that make a batch ready before linger.ms; it can grow beyond
    buffer_memory: int = 32 << 20  # bytes that may wait; beyond them send waits
    client_id: str = ""  # the name of the producer's thread, and of what it logs
    compression_type: str = "none"
    compression_gzip_level: int | None = None
    compression_lz4_level: int | None = None
    compression_zstd_level: int | None = None
    delivery_timeout_ms: int = 120_000  # from send of a batch's first record to giving up
    enable_idempotence: bool = True
    key_serializer: Serializer | None = None
    linger_ms: int = 5
    max_block_ms: int = 60_000  # how long send waits for room, or for a topic's partitions
    max_in_flight_requests_per_connection: int = 5
    max_request_size: int = 1 << 20  # bytes of a batch, and of a record, before compression
    metadata_max_age_ms: int = 300_000  # how soon partitions are used that were added elsewhere
    partitioner: str | Partitioner = "murmur2"
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    # how long a transaction may be open before the coordinator aborts it
    transaction_timeout_ms: int = 60_000
    transactional_id: str | None = None  # whose transactions these are: one producer at a time
    value_serializer: Serializer | None = None

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            _check_integer(name, getattr(self, name), least)
        if self.max_request_size > MOST_REQUEST_BYTES:
            why = f"must be at most {MOST_REQUEST_BYTES}, since a partition takes no larger request"
            raise _invalid("max_request_size", self.max_request_size, why)
        if self.compression_type not in CODECS:
            raise UnsupportedCompressionType(self.compression_type)
        for codec in ("gzip", "lz4", "zstd"):
            level = getattr(self, f"compression_{codec}_level")
            if level is not None and level not in _LEVELS[codec]:
                raise _invalid(f"compression_{codec}_level", level, "must be " + _levels(codec))
        if self.acks not in _ACKS:
            raise _invalid(
                "acks",
                self.acks,
                "must be 'all' or 1, which are the same here: a record is acknowledged when its "
                "partition has it; set flush.messages=1 in the topic to have it on the disk",
            )
        if not callable(self.partitioner) and self.partitioner not in PARTITIONERS:
            raise _invalid(
                "partitioner",
                self.partitioner,
                f"must be one of {', '.join(PARTITIONERS)}, or a function (topic, key, "
                "partitions) -> partition",
            )
        for name in ("key_serializer", "value_serializer"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise _invalid(name, getattr(self, name), "must be a function that returns bytes")
        if not isinstance(self.client_id, str):
            raise _invalid("client_id", self.client_id, "must be a str")
        if not isinstance(self.enable_idempotence, bool):
            raise _invalid("enable_idempotence", self.enable_idempotence, "must be True or False")
        self._check_transactions()
        if self.linger_ms >= self.delivery_timeout_ms:
            raise _invalid("linger_ms", self.linger_ms, "must be less than delivery.timeout.ms")

    def _check_transactions(self) -> None:
        name = self.transactional_id
        if name is None:
            return
        if not isinstance(name, str) or not 1 <= len(name.encode()) <= MOST_ID_BYTES:
            why = f"must be a str of 1 to {MOST_ID_BYTES} bytes"
            raise _invalid("transactional_id", name, why)
        if not self.enable_idempotence:
            why = "must be True where transactional.id is set"
            raise _invalid("enable_idempotence", False, why)

    @property
    def compression(self) -> Compression:
        """The codec, and its level if one was given."""
        level = getattr(self, f"compression_{self.compression_type}_level", None)
        return Compression(self.compression_type, level)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Settings by either spelling. Raises InvalidConfig, UnsupportedCompressionType."""
        known = [field.name for field in dataclasses.fields(cls)]
        return cls(**by_name(settings, known, _INSTEAD))


MOST_ID_BYTES: Final = 32_767  # of a transactional id, in the key of a record
# A LogActor takes frames of 100 MiB, and a batch may grow by compression.
MOST_REQUEST_BYTES: Final = 100_000_000
# Kafka's.
_LEVELS: Final = {
    "gzip": (-1, *range(1, 10)),
    "lz4": range(1, 18),
    "zstd": range(-131_072, 23),
}
_LEAST: Final = {
    "batch_size": 1,
    "buffer_memory": 1,
    "delivery_timeout_ms": 1,
    "linger_ms": 0,
    "max_block_ms": 1,
    "max_in_flight_requests_per_connection": 1,
    "max_request_size": 1,
    "metadata_max_age_ms": 1,
    "request_timeout_ms": 1,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 1,
    "transaction_timeout_ms": 1,
}


def _check_integer(name: str, value: object, least: int) -> None:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if not is_integer or not least <= value <= MAX_INT:  # type: ignore[operator]
        # buffer.memory is a long in Kafka
        if is_integer and name == "buffer_memory" and value > MAX_INT:  # type: ignore[operator]
            return
        raise _invalid(name, value, f"must be an integer of {least} or more, and below 2^31")


def _invalid(name: str, value: object, why: str) -> InvalidConfig:
    return InvalidConfig(name.replace("_", "."), value, why)


def _levels(codec: str) -> str:
    levels = _LEVELS[codec]
    if codec == "gzip":  # which has no level between -1, its default, and 1
        return "an integer from 1 to 9, or -1"
    return f"an integer from {min(levels)} to {max(levels)}"
