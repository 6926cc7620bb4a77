"""Writing rows of Spark into topics: what rows must be, and what a task does with them.

::

    driver   check_columns: names and types            topic of the option exists (sink.py)
    task     one producer; for each 8 MB of Spark's rows:
             check_rows -> by topic and partition -> topics exist -> send_arrow
             flush, close -> the number of rows

What is wrong with these rows is raised before any of them is sent. A task that fails gives
up what it has not sent yet. What it has sent stays, and Spark runs the task again: at least once.

The columns are those of Spark's Kafka connector. Other columns are left out, as there.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raylog.actors.errors import ProduceFailed, UnknownTopicOrPartition
from raylog.cluster.spark.errors import InvalidSparkOption, InvalidSparkSchema
from raylog.storage.errors import InvalidRecord
from raylog.storage.records.columns import indices

if TYPE_CHECKING:
    from raylog.cluster.client.producer import Producer
    from raylog.cluster.client.producer.tables import SentTable

_TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
_RECORD = ("key", "value", "headers", "timestamp")


# Spark's batches have 10,000 rows. 1 MB of them, split by key over 16 partitions, would become
# requests of 64 KB. Gathered, they cost a third of the processor's time.
GATHER_BYTES = 8 << 20


class Part(NamedTuple):
    """Rows for one topic; for one partition of it, unless keys decide (None)."""

    topic: str
    partition: int | None
    records: pa.RecordBatch


# -- on the driver ---------------------------------------------------------------------------------


def check_columns(columns: Iterable[tuple[str, str]], topic: str | None) -> tuple[str, ...]:
    """The names of the columns that are written, of (name, Spark's name of the type).

    Raises InvalidSparkSchema, and InvalidSparkOption where nothing names the topic.
    """
    wanted = [(name, kind) for name, kind in columns if name in _TYPES]
    if topic is not None:
        wanted = [(name, kind) for name, kind in wanted if name != "topic"]
    names = [name for name, _ in wanted]
    for name, kind in wanted:
        if names.count(name) > 1:
            raise InvalidSparkSchema(name, kind, "exists more than once; drop all but one")
        if kind not in _TYPES[name]:
            why = f"a write takes {' or '.join(_TYPES[name])}; cast the column"
            raise InvalidSparkSchema(name, kind, why)
    if "value" not in names:
        why = "is missing; add it (a null value is a tombstone)"
        raise InvalidSparkSchema("value", "binary", why)
    if topic is None and "topic" not in names:
        raise InvalidSparkOption("topic", "", "set it, or add a column topic to the rows")
    return tuple(names)


# -- in a task -------------------------------------------------------------------------------------


def write_rows(
    batches: Iterable[pa.RecordBatch],
    columns: Sequence[str],
    topic: str | None,
    new_producer: Callable[[], "Producer"],
) -> int:
    """Write all rows, and return their number once all are acknowledged.

    Where it raises, it leaves no producer behind. Raises InvalidRecord, UnknownTopicOrPartition,
    ProduceFailed and what a producer's ``send_arrow`` raises.
    """
    producer: Producer | None = None
    rows = 0
    try:
        sent: deque[SentTable] = deque()
        for batch in gather((each.select(columns) for each in batches), GATHER_BYTES):
            if producer is None:
                producer = new_producer()
            parts = split(batch, topic)
            _check_topics(producer, parts)
            for part in parts:
                table = producer.send_arrow(part.topic, part.records, partition=part.partition)
                sent.append(table)
            rows += batch.num_rows
            _raise_failure(sent)
        if producer is not None:
            producer.close()  # flushes
    except BaseException as error:
        if producer is not None:
            _give_up(producer, error)
        raise
    return rows


def gather(batches: Iterable[pa.RecordBatch], least_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in larger batches; none is empty."""
    some: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        some.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= least_bytes:
            yield _joined(some)
            some, size_bytes = [], 0
    if some:
        yield _joined(some)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _raise_failure(sent: "deque[SentTable]") -> None:
    """Raise what has failed by now, instead of reading the rest of Spark's rows in vain."""
    while sent and sent[0].done():
        sent.popleft().result()


def _give_up(producer: "Producer", error: BaseException) -> None:
    try:
        producer.close(0)
    except ProduceFailed as failure:
        error.add_note(f"rows before it: {failure}")


def _check_topics(producer: "Producer", parts: Iterable[Part]) -> None:
    for part in parts:
        numbers = producer.partitions_for(part.topic)
        if part.partition is not None and part.partition not in numbers:
            raise UnknownTopicOrPartition(
                part.topic, part.partition, f"the topic has {len(numbers)} partitions"
            )


def split(batch: pa.RecordBatch, topic: str | None) -> list[Part]:
    """The rows of a batch by topic and partition; within a part they keep their order.

    Raises InvalidRecord for rows that no record can be.
    """
    _check_rows(batch)
    records = batch.select([name for name in _RECORD if name in batch.schema.names])
    topics, topic_of_row = _topics(batch, topic)
    partition_of_row = _partitions(batch)
    key = topic_of_row * (partition_of_row.max(initial=0) + 2) + partition_of_row + 1
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    parts = []
    for rows in np.split(order, starts[1:]):
        partition = int(partition_of_row[rows[0]])
        parts.append(
            Part(
                topic=topics[topic_of_row[rows[0]]],
                partition=None if partition < 0 else partition,
                records=records if len(starts) == 1 else records.take(indices(rows)),
            )
        )
    return parts


def _check_rows(batch: pa.RecordBatch) -> None:
    names = batch.schema.names
    if "topic" in names and batch.column("topic").null_count:
        raise InvalidRecord(
            f"row {_first(pc.is_null(batch.column('topic')))}: column topic is null; fill it, or "
            "set the option topic for all rows"
        )
    if "partition" in names:
        _refuse_negative(batch, "partition", "use 0 or more, or null to have the key decide")
    if "timestamp" in names:
        _refuse_negative(batch, "timestamp", "use 1970 or later, or null for the time of writing")
    if "headers" in names:
        headers = batch.column("headers").flatten()
        if headers.flatten()[0].null_count:  # a null header is one without a key, too
            raise InvalidRecord("column headers: a header's key is null; give it one")


def _refuse_negative(batch: pa.RecordBatch, name: str, advice: str) -> None:
    column = batch.column(name)
    is_negative = pc.less(column.cast(pa.int64()), 0)
    row = _first(is_negative)
    if row >= 0:
        raise InvalidRecord(f"row {row}: column {name} is {column[row].as_py()}; {advice}")


def _first(mask: pa.Array) -> int:
    """The first row for which it is true; -1 if there is none."""
    return pc.index(mask, True).as_py()


def _topics(batch: pa.RecordBatch, topic: str | None) -> tuple[list[str], np.ndarray]:
    """The topics of a batch, and the place of each row's topic among them."""
    if topic is not None:
        return [topic], np.zeros(batch.num_rows, np.int64)
    encoded = pc.dictionary_encode(batch.column("topic"))
    return encoded.dictionary.to_pylist(), np.asarray(encoded.indices).astype(np.int64)


def _partitions(batch: pa.RecordBatch) -> np.ndarray:
    """Each row's partition; -1 where its key decides."""
    if "partition" not in batch.schema.names:
        return np.full(batch.num_rows, -1, np.int64)
    filled = pc.fill_null(batch.column("partition"), -1)
    return np.asarray(filled).astype(np.int64)
