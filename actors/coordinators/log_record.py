"""A record that a coordinator writes into the log that it lives beside."""

from typing import NamedTuple


class LogRecord(NamedTuple):
    """``value``: None for a tombstone."""

    key: bytes
    value: bytes | None
