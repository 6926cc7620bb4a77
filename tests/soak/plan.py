"""The topics that live as long as a run, and what the broker is told."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.soak.history import COMPACT, DELETE, KEEP

KEYS = 200

BROKER = {
    "log.retention.check.interval.ms": 1000,
    "log.flush.offset.checkpoint.interval.ms": 2000,
    "log.cleaner.backoff.ms": 1000,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
}
# Of the transactions alone, which no other worker reads or writes.
TRANSFERS = "transfers"
TRANSFER_PARTITIONS = 4
FOR_EVER = {"retention.ms": -1}


class Topic(NamedTuple):
    """A topic of a run, and what the broker may do to its records."""

    name: str
    partitions: int
    policy: str
    padding: int  # bytes of a value, about
    config: Mapping[str, Any]


class Stable(NamedTuple):
    """A topic as the workers know it."""

    name: str
    topic_id: str
    partitions: int
    is_keyed: bool
    may_delete: bool
    padding: int


TOPICS = (
    Topic("plain", 4, KEEP, 80, FOR_EVER | {"internal.segment.bytes": 400_000}),
    Topic(
        "fsynced", 2, KEEP, 80, FOR_EVER | {"flush.messages": 1, "internal.segment.bytes": 400_000}
    ),
    Topic(
        "short",
        2,
        DELETE,
        200,
        FOR_EVER
        | {
            "retention.bytes": 300_000,
            "internal.segment.bytes": 100_000,
            "file.delete.delay.ms": 2000,
        },
    ),
    Topic(
        "keyed",
        2,
        COMPACT,
        60,
        FOR_EVER
        | {
            "cleanup.policy": "compact",
            "internal.segment.bytes": 60_000,
            "min.cleanable.dirty.ratio": 0.1,
            "delete.retention.ms": 3000,
            "file.delete.delay.ms": 2000,
        },
    ),
)
