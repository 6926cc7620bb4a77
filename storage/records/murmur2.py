"""Which partition a key goes to: Kafka's murmur2, so that every client agrees.

A record without a key has no such partition; the producer then chooses one
(``partitions_for_column`` says -1). Source: ``org.apache.kafka.common.utils.Utils.murmur2`` and
``BuiltInPartitioner``.
"""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidPartitions
from raylog.storage.limits import MAX_INT
from raylog.storage.records import kernel

if TYPE_CHECKING:
    import pyarrow as pa

_POSITIVE = 0x7FFFFFFF


def murmur2(key: Buffer) -> int:
    """The hash of the key's bytes, an int32."""
    return kernel.ops.murmur2(key)


def partition_for_key(key: Buffer, partitions: int) -> int:
    """The partition of ``key``, over all partitions, whether they are available or not.

    Raises InvalidPartitions.
    """
    if not 1 <= partitions <= MAX_INT:
        raise InvalidPartitions(partitions, 1, MAX_INT)
    return (kernel.ops.murmur2(key) & _POSITIVE) % partitions


def partitions_for_column(array: "pa.Array", partitions: int) -> npt.NDArray[np.int32]:
    """The partition of every key of a binary or string array; -1 for null.

    Raises InvalidPartitions.
    """
    # Arrow, which single keys can do without
    from raylog.storage.records.columns import text_column

    if not 1 <= partitions <= MAX_INT:
        raise InvalidPartitions(partitions, 1, MAX_INT)
    return np.frombuffer(
        kernel.ops.partition_column(text_column("key", array), partitions), np.int32
    )
