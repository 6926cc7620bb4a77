"""The settings of a producer, by Kafka's names."""

from dataclasses import dataclass
from typing import Any, Self

from raylog.cluster.client.topic_watch import METADATA_MAX_AGE_MS, check_max_age
from raylog.storage.errors import InvalidConfig, UnsupportedCompressionType
from raylog.storage.records.compression import CODECS


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """What a producer obeys; ``broker.producer(linger_ms=5)`` sets ``linger.ms``."""

    compression_type: str = "none"
    # bytes that make a batch ready before linger.ms; a batch can grow beyond
    batch_size: int = 16_384
    linger_ms: int = 5
    buffer_memory: int = 64 << 20  # bytes that may wait; beyond them send waits
    max_block_ms: int = 60_000  # how long send waits for room
    delivery_timeout_ms: int = 120_000  # from send to giving up
    retry_backoff_ms: int = 50
    enable_idempotence: bool = True
    # how soon partitions are used that were added elsewhere
    metadata_max_age_ms: int = METADATA_MAX_AGE_MS

    def __post_init__(self) -> None:
        if self.compression_type not in CODECS:
            raise UnsupportedCompressionType(self.compression_type)
        for name in (
            "batch_size",
            "buffer_memory",
            "max_block_ms",
            "delivery_timeout_ms",
            "retry_backoff_ms",
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InvalidConfig(
                    name.replace("_", "."), value, "must be an integer of 1 or more"
                )
        if not isinstance(self.linger_ms, int) or self.linger_ms < 0:
            raise InvalidConfig("linger.ms", self.linger_ms, "must be an integer of 0 or more")
        check_max_age(self.metadata_max_age_ms)
        if self.linger_ms >= self.delivery_timeout_ms:
            raise InvalidConfig(
                "linger.ms", self.linger_ms, "must be less than delivery.timeout.ms"
            )

    @classmethod
    def of(cls, settings: dict[str, Any]) -> Self:
        unknown = set(settings) - set(cls.__slots__)
        if unknown:
            key = sorted(unknown)[0]
            raise InvalidConfig(
                key,
                settings[key],
                f"unknown setting of a producer; the settings are {', '.join(cls.__slots__)}",
            )
        return cls(**settings)
