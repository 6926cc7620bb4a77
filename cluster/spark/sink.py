"""Writes: ``df.write.format("raylog")`` and ``df.writeStream.format("raylog")``.

Spark asks for a writer on the driver, before anything runs: what can be refused there, is. It
pickles the writer into the tasks, each of which writes its rows with a producer of its own and
answers with a commit message.

A log is appended to as rows come. So there is nothing left to commit, and nothing that an abort
could take back: rows of a task that runs again are there twice. That is at least once, as Spark's
Kafka connector has it.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from raylog.cluster.spark.reading import broker_of
from raylog.cluster.spark.sink_options import SinkOptions
from raylog.cluster.spark.writing import write_rows

if TYPE_CHECKING:
    from raylog.cluster.client.producer import Producer

logger = logging.getLogger("raylog.spark")


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """What a task has written, for the driver."""

    rows: int
    # For exactly once: the open transaction that holds the rows, which the driver's commit ends.
    transactional_id: str | None = None


@dataclass(frozen=True)
class BatchSink(DataSourceArrowWriter):
    """Writes the rows of a batch query."""

    options: SinkOptions
    columns: tuple[str, ...]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        return _write(iterator, self.options, self.columns)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _report_abort(messages)


@dataclass(frozen=True)
class StreamSink(DataSourceStreamArrowWriter):
    """Writes the rows of each micro-batch."""

    options: SinkOptions
    columns: tuple[str, ...]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        return _write(iterator, self.options, self.columns)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: the rows are in their logs."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _report_abort(messages)


def _write(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, columns: tuple[str, ...]
) -> TaskCommit:
    def new_producer() -> "Producer":
        return broker_of(options).producer(dict(options.producer))

    return TaskCommit(write_rows(batches, columns, options.topic, new_producer))


def _report_abort(messages: Sequence[WriterCommitMessage | None]) -> None:
    rows = sum(message.rows for message in messages if isinstance(message, TaskCommit))
    logger.warning(
        "a write was aborted; %d rows of finished tasks stay in their topics, as do rows that "
        "failed tasks had sent",
        rows,
    )
