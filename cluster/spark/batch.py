"""Batch reads: ``spark.read.format("raylog")``.

Offsets are resolved when Spark plans the first action on a loaded frame, and stay: Spark keeps a
Python source's plan with what ``load()`` returned. Call ``load()`` again to see newer records.

That is also why there is no ``pushFilters``. Spark 4.2 keeps the plan of the *last* pushed filter
for every query over one ``load()`` (``PythonDataSourceV2.setReadInfo``), and a source cannot know
which query reads. With this filter in between, a plain ``df.count()`` would read partition 0 only::

    df.filter("partition = 0").count()
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from raylog.cluster.spark import resolve
from raylog.cluster.spark.options import Options
from raylog.cluster.spark.plan import Range, split_ranges
from raylog.cluster.spark.reading import broker_of, read, report, report_undecided


class RangePartition(InputPartition):
    """One range of offsets: what a task of Spark reads."""

    def __init__(self, wanted: Range | None) -> None:
        super().__init__(wanted)


class BatchReader(DataSourceReader):
    """Plans ranges of offsets and reads them."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self.options, self.columns = options, tuple(columns)

    def partitions(self) -> Sequence[InputPartition]:
        broker = broker_of(self.options)
        options = self.options
        planned = resolve.batch_ranges(broker, options)
        report(planned.lost, options.fail_on_data_loss)
        report_undecided(planned.undecided)
        tasks = split_ranges(
            planned.ranges, options.min_partitions, options.max_records_per_partition
        )
        # Spark answers an empty list with one partition of its own that has no range.
        return [RangePartition(task) for task in tasks] or [RangePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return iter(())
        return read(self.options, partition.value, self.columns)
