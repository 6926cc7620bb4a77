"""Batch reads: ``spark.read.format("raylog")``.

Offsets are resolved when Spark plans the first action on a loaded frame, and stay: Spark keeps a
Python source's plan with what ``load()`` returned. Call ``load()`` again to see newer records.

That is also why filters are pushed down only with ``pushFilters=true``. Spark 4.2 keeps the plan of
the *last* pushed filter for every query over one ``load()``. With this filter in between, a plain
``df.count()`` would read partition 0 only::

    df.filter("partition = 0").count()

So whoever asks for it promises to use what ``load()`` returned in one query.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from raylog.cluster.spark import filters, resolve
from raylog.cluster.spark.options import Options
from raylog.cluster.spark.plan import Range, split_ranges
from raylog.cluster.spark.reading import broker_of, read, report


class RangePartition(InputPartition):
    """One range of offsets: what a task of Spark reads."""

    def __init__(self, wanted: Range | None) -> None:
        super().__init__(wanted)


class BatchReader(DataSourceReader):
    """Plans ranges of offsets and reads them."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self.options, self.columns = options, tuple(columns)
        self.conditions: tuple[filters.Condition, ...] = ()

    def partitions(self) -> Sequence[InputPartition]:
        broker = broker_of(self.options)
        ranges, lost = resolve.batch_ranges(broker, self.options)
        report(lost, self.options.fail_on_data_loss)
        ranges = list(filters.narrow(self.conditions, ranges))
        ranges = resolve.start_at_time(broker, ranges, filters.earliest_time(self.conditions))
        tasks = split_ranges(ranges, self.options.min_partitions)
        # Spark answers an empty list with one partition of its own that has no range.
        return [RangePartition(task) for task in tasks] or [RangePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return iter(())
        return read(self.options, partition.value, self.columns)


class FilteringBatchReader(BatchReader):
    """The same, with filters pushed down.

    A class of its own: Spark refuses any reader that has ``pushFilters`` while the setting
    ``spark.sql.python.filterPushdown.enabled`` is false.
    """

    def pushFilters(self, filters_: list[Any]) -> Iterable[Any]:
        self.conditions = filters.conditions(filters_)
        return filters_  # Spark checks them all again: what is pushed only bounds the read
