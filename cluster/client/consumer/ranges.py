"""Records between two offsets, as columns: what Spark's tasks and frames read."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from raylog.actors.errors import RangeUndecided
from raylog.cluster.client.connection import READ_COMMITTED, READ_UNCOMMITTED, GroupConnection
from raylog.cluster.client.consumer.config import ISOLATIONS
from raylog.cluster.client.consumer.consumer import Consumer
from raylog.cluster.client.consumer.waiter import Waiter
from raylog.storage.names import TopicPartition

MAX_BYTES = 16 << 20
# How long a reader of committed records waits for the end of a transaction: Kafka's longest one
# (transaction.max.timeout.ms), and a minute for its coordinator to end it.
UNDECIDED_WAIT_S: Final = 16 * 60.0


def read_range(
    connection: GroupConnection,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    isolation: int = READ_UNCOMMITTED,
    max_bytes: int = MAX_BYTES,
    _waiter: Waiter | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records with ``start`` <= offset < ``end``.

    The batches are as ``decode_table`` makes them, of ``max_bytes`` of records, or of one record
    that is larger. While one is used the next fetch is on its way. Raises OffsetOutOfRange if
    ``start`` is not in the log, or behind all that there is if the log ends before ``end``, and
    RaylogErrors of the partition.

    ``isolation`` READ_COMMITTED leaves out the records of aborted transactions, and waits for one
    that is open before ``end``. It raises RangeUndecided, behind all that is decided, where no
    record came for UNDECIDED_WAIT_S.
    """
    if start >= end:
        return
    place = TopicPartition(topic, partition)
    reader = Consumer(
        connection,
        _waiter=_waiter,
        _reads_ranges=True,
        auto_offset_reset="none",
        isolation_level=ISOLATIONS[isolation],
    )
    wait_s = UNDECIDED_WAIT_S if isolation == READ_COMMITTED else None
    with reader:
        reader.assign([place], from_={place: start}, to={place: end})
        while (batch := reader.next_batch(max_bytes, wait_s)) is not None:
            yield batch
        if not reader.is_at_end:
            at = reader.position(topic, partition)
            raise RangeUndecided(str(place), at, end, int(UNDECIDED_WAIT_S * 1000))
