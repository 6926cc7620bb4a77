"""The columns of a consumer's tables."""

import pyarrow as pa

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
