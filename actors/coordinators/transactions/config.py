"""What an administrator sets for the coordinators of transactions."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from raylog.storage.wire import message


@message
class TransactionConfig(NamedTuple):
    """By Kafka's names; ``docs/CONFIG.md`` says what each is."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 7 * 24 * 3_600_000
    abort_interval_ms: int = 10_000
    expiry_interval_ms: int = 3_600_000


class StateTopic(NamedTuple):
    """How ``__transaction_state`` is made."""

    partitions: int = 1
    segment_bytes: int = 16_777_216

    @property
    def config(self) -> Mapping[str, str]:
        """An answer means that it is on the disk: a decision must not be forgotten by a power loss
        that its markers outlive.
        """
        return {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": str(self.segment_bytes),
            "flush.messages": "1",
        }


# As a broker has them that says nothing else.
TRANSACTIONS: Final = TransactionConfig()
STATE_TOPIC: Final = StateTopic()
