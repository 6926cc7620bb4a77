"""The columns that Spark sees, and how decoded records become them.

They are those of Spark's Kafka source; ``headers`` only with ``includeHeaders``, null where a
record has none::

    key binary, value binary, topic string, partition int, offset long,
    timestamp timestamp, timestampType int
    [, headers array<struct<key string, value binary>>]

The log's decoder gives offset, timestamp (ms), timestampType, key, value, headers. Here topic and
partition join them, times become Spark's microseconds in UTC, and columns that nobody asked for are
left out.
"""

import sys
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from raylog.cluster.spark.options import BATCH_BYTES_MAX

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
ALL = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)


def names(include_headers: bool) -> list[str]:
    """The columns of a read without a schema of the user's."""
    return [name for name in ALL.names if include_headers or name != "headers"]


def schema(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of the given columns."""
    return pa.schema([ALL.field(name) for name in columns])


def to_spark(
    records: pa.RecordBatch, topic: str, partition: int, columns: Sequence[str]
) -> pa.RecordBatch:
    """Decoded records as the given columns, in the given order."""
    arrays = [_column(records, name, topic, partition) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema(columns))


def bounded(batch: pa.RecordBatch, max_bytes: int = BATCH_BYTES_MAX) -> Iterator[pa.RecordBatch]:
    """The batch in slices of about ``max_bytes`` (a single row may be over it). Copies nothing."""
    slices = min(batch.num_rows, -(-batch.nbytes // max_bytes))
    if slices <= 1:
        yield batch
        return
    rows = -(-batch.num_rows // slices)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _column(records: pa.RecordBatch, name: str, topic: str, partition: int) -> pa.Array:
    rows = records.num_rows
    if name == "topic":
        return pa.repeat(_text(topic), rows)
    if name == "partition":
        number = pa.py_buffer(partition.to_bytes(4, sys.byteorder))
        return pa.repeat(pa.Array.from_buffers(pa.int32(), 1, [None, number])[0], rows)
    column = records.column(name)
    if name == "timestamp":
        return column.cast(pa.timestamp("ms", tz="UTC")).cast(ALL.field(name).type)
    if name == "headers":
        return _null_if_empty(column)
    wanted = ALL.field(name).type
    return column if column.type == wanted else column.cast(wanted)


def _text(text: str) -> pa.Scalar:
    # pa.scalar would import pandas: a third of a second in each of Spark's workers
    content = text.encode()
    ends = bytes(4) + len(content).to_bytes(4, sys.byteorder)
    return pa.StringArray.from_buffers(1, pa.py_buffer(ends), pa.py_buffer(content))[0]


def _null_if_empty(headers: pa.Array) -> pa.Array:
    filled = pc.fill_null(pc.greater(pc.list_value_length(headers), 0), False)
    with_headers = filled.true_count
    if with_headers == 0:
        return pa.nulls(len(headers), HEADERS)
    if with_headers < len(headers):
        headers = pc.if_else(filled, headers, pa.scalar(None, headers.type))
    return headers if headers.type.equals(HEADERS) else headers.cast(HEADERS)
