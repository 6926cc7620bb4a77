"""Spark's scan of a topic, by ``format("raylog")`` and as a RayDP frame, beside the same data in
Parquet."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import raylog
from benchmarks.measure import alternate, rate, seconds
from raylog.cluster.broker import Broker
from tests.harness.clusters import local_ray

VALUE_BYTES = 1000
PARTITIONS = 4


def run(quick: bool = False) -> list[dict[str, Any]]:
    megabytes = 200 if quick else 1000
    with local_ray(num_cpus=16) as folder, raylog.start([f"{folder}/log"]) as broker:
        _fill(broker, str(folder), megabytes)
        return _scan(broker, str(folder), megabytes, 3)


def _fill(broker: Broker, folder: str, megabytes: int) -> None:
    import numpy as np

    broker.create_topic("scanned", partitions=PARTITIONS)
    parquet = Path(folder, "parquet")
    parquet.mkdir()
    random = np.random.default_rng(7)
    rows = 50_000
    for part in range(megabytes * 1_000_000 // (rows * VALUE_BYTES)):
        data = random.integers(0, 256, rows * VALUE_BYTES, dtype=np.uint8)
        offsets = np.arange(0, (rows + 1) * VALUE_BYTES, VALUE_BYTES, dtype=np.int32)
        values = pa.Array.from_buffers(
            pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        table = pa.table({"value": values})
        with broker.producer() as producer:
            producer.send_arrow("scanned", table)
        pq.write_table(table, parquet / f"{part}.parquet", compression="none", use_dictionary=False)


def _scan(broker: Broker, folder: str, megabytes: int, rounds: int) -> list[dict[str, Any]]:
    spark = raylog.spark.session(broker, executors=1, executor_cores=2, executor_memory="1g")
    try:

        def total(frame: Any) -> None:
            """Reads every value: the sum of their lengths."""
            assert frame.selectExpr("sum(octet_length(value))").first()[0] == megabytes * 1_000_000

        source = spark.read.format("raylog").option("subscribe", "scanned")
        times = alternate(
            rounds,
            lambda: seconds(lambda: total(source.load())),
            lambda: seconds(lambda: total(raylog.spark.frame(spark, broker, "scanned"))),
            lambda: seconds(lambda: total(spark.read.parquet(f"{folder}/parquet"))),
        )
    finally:
        raylog.spark.stop(spark)
    by_source, by_frame, by_parquet = (megabytes / taken for taken in times)
    peer = "Spark reading Parquet"
    return [
        rate('Spark scan, format("raylog")', by_source, "MB/s", peer, by_parquet),
        rate(
            "Spark scan, RayDP frame (decoding and shipping included)",
            by_frame,
            "MB/s",
            peer,
            by_parquet,
        ),
    ]
