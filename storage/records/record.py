"""A record as a value: what a reader gets, one at a time.

A record has no bytes of its own on disk; it is a part of a batch (``batch.py``), with its offset
and timestamp written as differences to the batch's. Large reads and writes go through Arrow columns
instead (``encode_table``, ``decode_table``), which make no object per record.
"""

from typing import Any, NamedTuple


class Header(NamedTuple):
    """A name and a value beside the record's own. Names may repeat; their order is kept."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """One record of a partition. A null ``value`` is a tombstone: compaction deletes its key."""

    offset: int
    timestamp: int  # ms since 1970; the append time where the batch says LogAppendTime; -1 is none
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class ConsumerRecord(NamedTuple):
    """A record, and where it was read: what a consumer hands to its users."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # ms since 1970, -1 if it has none
    timestamp_type: int  # 0 CreateTime, 1 LogAppendTime, -1 none: Kafka before 0.10 wrote it
    key: Any  # bytes or None, unless the consumer has a deserializer
    value: Any
    headers: tuple[Header, ...] = ()
