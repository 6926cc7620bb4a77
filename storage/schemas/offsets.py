"""The committed offsets in ``__consumer_offsets``: one key for each group, topic and partition.

Key and value begin with a version, an int16. A key's version is its type: 0 and 1 are offsets,
which are read alike (1 is written); all others are of the groups themselves, ``groups.py``. A
record without a value deletes the offset.

Of the values' versions Kafka 3.9 writes 3, and 1 where the commit asked for a time of expiry.
Source: the schemas of Kafka's group coordinator.
"""

from typing import Final

from raylog.storage.schemas.schema import schema

OFFSET_KEY: Final = schema(
    "OffsetCommitKey",
    """
    group string
    topic string
    partition int32
    """,
    last_version=1,
)
OFFSET_VALUE: Final = schema(
    "OffsetCommitValue",
    """
    offset int64
    leaderEpoch int32 3+ default=-1
    metadata string
    commitTimestamp int64
    expireTimestamp int64 1-1 default=-1
    """,
    last_version=4,
    flexible=4,
)
