"""Streaming reads: ``spark.readStream.format("raylog")``.

The planning half runs in one Python process on Spark's driver, the reading half in the workers. A
micro-batch reads the offsets between two positions (see ``plan.py``), which Spark writes to the
checkpoint before it runs: after a crash the same micro-batch reads the same offsets again. Nothing
is kept in the broker for a query.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from raylog.cluster.spark import plan, resolve
from raylog.cluster.spark.batch import RangePartition
from raylog.cluster.spark.options import Options
from raylog.cluster.spark.reading import broker_of, read, report


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A position in each partition, moved on by Spark."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self.options, self.columns = options, tuple(columns)
        self.target: plan.Offsets | None = None  # where AvailableNow stops

    def initialOffset(self) -> dict[str, Any]:
        broker = broker_of(self.options)
        now = resolve.edges(broker, resolve.required_partitions(broker, self.options.selection))
        return plan.to_json(resolve.starts(broker, self.options, now))

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self._latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        at = plan.from_json(start)
        end, lost = plan.next_offsets(at, self._latest(), self.target)
        report(lost, self.options.fail_on_data_loss)
        if isinstance(limit, ReadMaxRows):
            end = plan.limit_offsets(at, end, limit.max_rows)
        return plan.to_json(end)

    def reportLatestOffset(self) -> dict[str, Any]:
        return plan.to_json(self._latest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        until = plan.from_json(end)
        edges = resolve.edges(broker_of(self.options), until)
        ranges, lost = plan.stream_ranges(plan.from_json(start), until, edges)
        report(lost, self.options.fail_on_data_loss)
        return [
            RangePartition(task) for task in plan.split_ranges(ranges, self.options.min_partitions)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self.options, partition.value, self.columns)

    def _latest(self) -> plan.Offsets:
        broker = broker_of(self.options)
        return resolve.latest(broker, resolve.partitions(broker, self.options.selection))
