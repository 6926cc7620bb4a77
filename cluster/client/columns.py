"""Arrow tables in clients: which rows go to which partition, and a consumer's columns."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from raylog.storage.records.murmur2 import partitions_for_column

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
# What poll_arrow gives, and with it what Spark's Kafka source calls these columns.
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)


def split_by_key(table: Any, partitions: int) -> Iterator[tuple[int | None, Any]]:
    """(partition, rows) of a table by the murmur2 of its keys.

    The partition is None for rows that any partition may take.
    """
    if "key" not in table.schema.names or not table.num_rows:
        yield None, table
        return
    if partitions == 1:
        yield 0, table
        return
    column = table.column("key")
    key = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    numbers = partitions_for_column(key, partitions)  # -1 for a row without a key
    order = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers + 1, minlength=partitions + 1)
    start = 0
    for number, count in enumerate(counts.tolist(), start=-1):
        if count:
            yield None if number < 0 else number, table.take(pa.array(order[start : start + count]))
        start += count


def to_table(records: pa.RecordBatch, topic: str, partition: int) -> pa.RecordBatch:
    """Decoded records with the columns of ``SCHEMA``."""
    rows = records.num_rows
    values = {
        "topic": pa.repeat(pa.scalar(topic, pa.string()), rows),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), rows),
    }
    columns = [
        (values[field.name] if field.name in values else records.column(field.name)).cast(
            field.type
        )
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
