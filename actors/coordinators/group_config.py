"""What an administrator sets for the coordinators of groups."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from raylog.storage.wire import message


@message
class GroupConfig(NamedTuple):
    """By Kafka's names; ``docs/CONFIG.md`` says what each is."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 200
    max_size: int = 1_000
    offset_metadata_max_chars: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    expiry_interval_ms: int = 600_000


class OffsetsTopic(NamedTuple):
    """How ``__consumer_offsets`` is made."""

    partitions: int = 1
    segment_bytes: int = 16_777_216

    @property
    def config(self) -> Mapping[str, str]:
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.segment_bytes),
        }


# As a broker has them that says nothing else.
GROUPS: Final = GroupConfig()
OFFSETS_TOPIC: Final = OffsetsTopic()
