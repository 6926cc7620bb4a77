"""Streaming reads: ``spark.readStream.format("raylog")``.

The planning half runs in one Python process on Spark's driver, the reading half in the workers. A
micro-batch reads the offsets between two positions (see ``plan.py``), which Spark writes to the
checkpoint before it runs: after a crash the same micro-batch reads the same offsets again. Nothing
is kept in the broker for a query.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
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
        self.latest: plan.Offsets | None = None  # where the partitions ended when last asked
        self.pace = plan.Pace(
            min_offsets=options.min_offsets_per_trigger,
            max_delay_s=options.max_trigger_delay_ms / 1000,
        )

    def initialOffset(self) -> dict[str, Any]:
        broker = broker_of(self.options)
        wanted = resolve.required_partitions(broker, self.options.selection)
        now = resolve.edges(broker, wanted, self.options.isolation)
        return plan.to_json(resolve.starts(broker, self.options, now))

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self._ask_latest({})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        at = plan.from_json(start)
        self.latest = self._ask_latest(at)
        end, lost = plan.next_offsets(at, self.latest, self.target)
        report(lost, self.options.fail_on_data_loss)
        return plan.to_json(end if isinstance(limit, ReadAllAvailable) else self._bounded(at, end))

    def _bounded(self, at: plan.Offsets, end: plan.Offsets) -> plan.Offsets:
        """By the options: Spark can hand over one limit only, and no delay."""
        # AvailableNow takes the last few as well: it ends before there can be more.
        if self.target is None and self.pace.waits(at, end, time.monotonic()):
            return at
        most = self.options.max_offsets_per_trigger
        return end if most is None else plan.limit_offsets(at, end, most)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self.latest is None else plan.to_json(self.latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        until = plan.from_json(end)
        edges = resolve.edges(broker_of(self.options), until)
        ranges, lost = plan.stream_ranges(plan.from_json(start), until, edges)
        report(lost, self.options.fail_on_data_loss)
        options = self.options
        tasks = plan.split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self.options, partition.value, self.columns)

    def _ask_latest(self, at: plan.Offsets) -> plan.Offsets:
        broker = broker_of(self.options)
        wanted = resolve.partitions(broker, self.options.selection)
        return resolve.readable_ends(broker, wanted, self.options.isolation, at)
