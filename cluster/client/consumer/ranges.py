"""Records between two offsets, as columns: what Spark's tasks and frames read."""

from collections.abc import Iterator

import pyarrow as pa

from raylog.cluster.client.connection import GroupConnection
from raylog.cluster.client.consumer.consumer import Consumer
from raylog.cluster.client.consumer.waiter import Waiter

MAX_BYTES = 16 << 20


def read_range(
    connection: GroupConnection,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    max_bytes: int = MAX_BYTES,
    _waiter: Waiter | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records with ``start`` <= offset < ``end``.

    The batches are as ``decode_table`` makes them, of ``max_bytes`` of records, or of one record
    that is larger. While one is used the next fetch is on its way. Raises OffsetOutOfRange if
    ``start`` is not in the log, or behind all that there is if the log ends before ``end``, and
    RaylogErrors of the partition.
    """
    if start >= end:
        return
    place = (topic, partition)
    reader = Consumer(connection, _waiter=_waiter, _reads_ranges=True, auto_offset_reset="none")
    with reader:
        reader.assign([place], from_={place: start}, to={place: end})
        while (batch := reader.next_batch(max_bytes)) is not None:
            yield batch
