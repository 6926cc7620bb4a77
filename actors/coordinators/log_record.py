"""What a coordinator writes into the log that it lives beside."""

from typing import NamedTuple


class LogRecord(NamedTuple):
    """``value``: None for a tombstone."""

    key: bytes
    value: bytes | None


class Producer(NamedTuple):
    """Whose transaction records are part of."""

    producer_id: int
    epoch: int
