"""Spark's scan of a topic, by ``format("raylog")`` and as a RayDP frame, and its write into one,
beside the same data in Parquet; and what the first queries of a session cost."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

import raylog
from benchmarks.measure import alternate, rate, seconds
from raylog.cluster.broker import Broker
from tests.harness.clusters import local_ray

PARTITIONS = 4
VALUE_BYTES = (1000, 100)
PART_BYTES = 50_000_000  # of one table that is sent, and one file of Parquet
SCAN_PEER = "Spark reading Parquet"
WRITE_PEER = "Spark writing Parquet"


def run(quick: bool = False) -> list[dict[str, Any]]:
    megabytes = 200 if quick else 1000
    with local_ray(num_cpus=16) as folder, raylog.start([f"{folder}/log"]) as broker:
        for size in VALUE_BYTES:
            _fill(broker, str(folder), megabytes, size)
        spark = raylog.spark.session(broker, executors=1, executor_cores=2, executor_memory="1g")
        try:
            figures = _first_queries(broker, spark)
            for size in VALUE_BYTES:
                figures += _scan(broker, spark, str(folder), megabytes, size)
                figures += _write(broker, spark, str(folder), megabytes, size)
        finally:
            raylog.spark.stop(spark)
        return figures


def _fill(broker: Broker, folder: str, megabytes: int, size: int) -> None:
    import numpy as np

    broker.create_topic(f"scanned-{size}", partitions=PARTITIONS)
    parquet = Path(folder, f"parquet-{size}")
    parquet.mkdir()
    random = np.random.default_rng(7)
    rows = PART_BYTES // size
    for part in range(megabytes * 1_000_000 // PART_BYTES):
        data = random.integers(0, 256, rows * size, dtype=np.uint8)
        offsets = np.arange(0, (rows + 1) * size, size, dtype=np.int32)
        values = pa.Array.from_buffers(
            pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        table = pa.table({"value": values})
        with broker.producer() as producer:
            producer.send_arrow(f"scanned-{size}", table)
        pq.write_table(table, parquet / f"{part}.parquet", compression="none", use_dictionary=False)


class _EmptyReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from ()


class _EmptyStream(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"at": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from ()


class _Empty(DataSource):
    """A Python source that does nothing: what it costs is Spark's."""

    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return "a long"

    def reader(self, schema: Any) -> DataSourceReader:
        return _EmptyReader()

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _EmptyStream()


def _first_queries(broker: Broker, spark: Any) -> list[dict[str, Any]]:
    """What comes first in a session costs more: Spark's JVM, its Python processes, and ours."""
    broker.create_topic("first", partitions=1)
    with broker.producer() as producer:
        producer.send("first", b"x")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(_Empty)
    ours = {"subscribe": "first", "startingOffsets": "earliest"}
    steps: list[tuple[str, Callable[[], float]]] = [
        ("job, no Python", lambda: seconds(lambda: spark.range(10).count())),
        ("job, empty Python source", lambda: _batch(spark, "empty", {})),
        ("job, topic", lambda: _batch(spark, "raylog", ours)),
        ("micro-batch, empty Python source", lambda: _micro_batch(spark, "empty", {})),
        ("micro-batch, topic", lambda: _micro_batch(spark, "raylog", ours)),
    ]
    figures = []
    for what, work in steps:
        first, second = work(), work()
        figures.append(rate(f"first {what}", first, "s", "the second", second))
    return figures


def _batch(spark: Any, source: str, options: dict[str, str]) -> float:
    return seconds(lambda: spark.read.format(source).options(**options).load().count())


def _micro_batch(spark: Any, source: str, options: dict[str, str]) -> float:
    """From start until a query has read all there is."""
    frame = spark.readStream.format(source).options(**options).load()
    with tempfile.TemporaryDirectory() as checkpoint:
        started = time.perf_counter()
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        query.processAllAvailable()
        taken = time.perf_counter() - started
        query.stop()
    return taken


def _scan(
    broker: Broker, spark: Any, folder: str, megabytes: int, size: int
) -> list[dict[str, Any]]:
    topic = f"scanned-{size}"

    def total(frame: Any) -> None:
        """Reads every value: the sum of their lengths."""
        assert frame.selectExpr("sum(octet_length(value))").first()[0] == megabytes * 1_000_000

    source = spark.read.format("raylog").option("subscribe", topic)
    times = alternate(
        3,
        lambda: seconds(lambda: total(source.load())),
        lambda: seconds(lambda: total(raylog.spark.frame(spark, broker, topic))),
        lambda: seconds(lambda: total(spark.read.parquet(f"{folder}/parquet-{size}"))),
    )
    by_source, by_frame, by_parquet = (megabytes / taken for taken in times)
    frame = f"Spark scan of {size} B, RayDP frame (decoding and shipping included)"
    return [
        rate(f'Spark scan of {size} B, format("raylog")', by_source, "MB/s", SCAN_PEER, by_parquet),
        rate(frame, by_frame, "MB/s", SCAN_PEER, by_parquet),
    ]


def _write(
    broker: Broker, spark: Any, folder: str, megabytes: int, size: int
) -> list[dict[str, Any]]:
    """Both writes read the rows from Parquet."""
    rows = spark.read.parquet(f"{folder}/parquet-{size}")
    numbers = count()

    def into_topic() -> float:
        topic = f"written-{size}-{next(numbers)}"
        broker.create_topic(topic, partitions=PARTITIONS)
        writer = rows.write.format("raylog").option("topic", topic).mode("append")
        taken = seconds(writer.save)
        broker.delete_topic(topic)
        return taken

    def into_parquet() -> float:
        writer = rows.write.mode("overwrite").option("compression", "none")
        return seconds(lambda: writer.parquet(f"{folder}/written-{size}"))

    by_sink, by_parquet = (megabytes / taken for taken in alternate(3, into_topic, into_parquet))
    return [rate(f"Spark write of {size} B", by_sink, "MB/s", WRITE_PEER, by_parquet)]
