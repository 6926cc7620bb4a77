"""Act 5: a streaming query counts ``flights-live`` while an actor writes to it.

The writer is an ordinary Ray actor: it got a broker as an argument and makes its own producer. The
query keeps running counts by carrier; where it is, it knows from the offsets in its checkpoint.
"""

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import ray

from examples.demo.act1_start import KEEP
from examples.demo.stage import Demo, Stopwatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from raylog import Broker

TOPIC = "flights-live"
RECORDS, QUICK_RECORDS = 50_000, 15_000
RECORDS_PER_S, QUICK_RECORDS_PER_S = 3_000, 1_500
WRITES_PER_S = 10
# Written first: the query's first micro-batch starts Python workers, which takes seconds.
WARM_UP_RECORDS = 1_000
LOOK_INTERVAL_S = 3.0
COUNT_TIMEOUT_S = 120.0


class Progress(NamedTuple):
    """How far a writer is: what it has sent may be counted, what is acknowledged must be, soon."""

    sent: int
    acknowledged: int


class WriterImpl:
    """Writes tables to a topic at a steady pace, and says how far it is."""

    def __init__(self, broker: "Broker", topic: str) -> None:
        self._producer, self._topic = broker.producer(), topic
        self._progress = Progress(0, 0)

    def write(self, table: pa.Table, records_per_s: int) -> int:
        """Write it all; returns how many records are acknowledged, now and before."""
        rows = max(records_per_s // WRITES_PER_S, 1)
        due = time.monotonic()
        for start in range(0, table.num_rows, rows):
            part = table.slice(start, rows)
            sent = self._progress.sent + part.num_rows
            self._progress = self._progress._replace(sent=sent)
            self._producer.send_arrow(self._topic, part)
            self._producer.flush()
            self._progress = Progress(sent, sent)
            due += 1 / WRITES_PER_S
            time.sleep(max(due - time.monotonic(), 0))
        return self._progress.acknowledged

    def progress(self) -> Progress:
        return self._progress


class Look(NamedTuple):
    """What both sides said at one time."""

    counted: int
    writer: Progress


def run(demo: Demo) -> None:
    stage, broker, spark = demo.stage, demo.running_broker, demo.running_spark
    table = demo.flights.table.slice(0, QUICK_RECORDS if demo.is_quick else RECORDS)
    stage.act(
        5,
        f"Streaming: a query counts {TOPIC} while an actor writes {table.num_rows:,} records to it",
    )
    broker.create_topic(TOPIC, 2, KEEP)
    query = start_query(spark, str(demo.data / "checkpoint"))
    # One call writes, the other asks: two threads.
    writer = ray.remote(num_cpus=0, max_concurrency=2)(WriterImpl).remote(broker, TOPIC)
    try:
        watch = Stopwatch()
        with stage.progress("the query's first micro-batch"):
            ray.get(
                writer.write.remote(table.slice(0, WARM_UP_RECORDS), WARM_UP_RECORDS * WRITES_PER_S)
            )
            wait_until_counted(spark, WARM_UP_RECORDS)
        stage.say(
            f"the query counted the first {WARM_UP_RECORDS:,} records after {watch.seconds:.1f} s"
        )
        looks = _watch(demo, writer, table)
        behind_s = wait_until_counted(spark, table.num_rows)
        stage.say(f"the query had counted all records {behind_s:.1f} s after the writer ended")
        _compare(demo, table, looks)
    finally:
        query.stop()
        ray.kill(writer)


def start_query(spark: "SparkSession", checkpoint: str) -> Any:
    """Running counts by key, in a table in Spark's memory named ``live``."""
    live = (
        spark.readStream.format("raylog")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
    )
    counts = live.selectExpr("cast(key as string) as carrier").groupBy("carrier").count()
    writer = counts.writeStream.format("memory").queryName("live").outputMode("complete")
    return (
        writer.option("checkpointLocation", checkpoint).trigger(processingTime="1 second").start()
    )


def counted(spark: "SparkSession") -> Counter[str]:
    """What the query has counted so far."""
    return Counter({row["carrier"]: row["count"] for row in spark.table("live").collect()})


def _watch(demo: Demo, writer: Any, table: pa.Table) -> list[Look]:
    """Have the rest written, and look at both sides from time to time."""
    pace = QUICK_RECORDS_PER_S if demo.is_quick else RECORDS_PER_S
    writing = writer.write.remote(table.slice(WARM_UP_RECORDS), pace)
    looks: list[Look] = []
    with demo.stage.progress("writing", table.num_rows) as done:
        while not ray.wait([writing], timeout=LOOK_INTERVAL_S)[0]:
            # In this order: what was counted had been sent before.
            look = Look(counted(demo.running_spark).total(), ray.get(writer.progress.remote()))
            done(look.writer.acknowledged - (looks[-1].writer.acknowledged if looks else 0))
            looks.append(look)
            demo.stage.say(
                f"acknowledged {look.writer.acknowledged:>7,}   counted by the query "
                f"{look.counted:>7,}"
            )
    assert ray.get(writing) == table.num_rows, "the writer says what it wrote"
    return looks


def wait_until_counted(spark: "SparkSession", total: int) -> float:
    """Wait until the query has counted so many, but not for ever; returns the seconds."""
    watch = Stopwatch()
    while counted(spark).total() < total and watch.seconds < COUNT_TIMEOUT_S:
        time.sleep(0.1)
    return watch.seconds


def _compare(demo: Demo, table: pa.Table, looks: list[Look]) -> None:
    found = counted(demo.running_spark)
    expected = Counter(key.decode() for key in table.column("key").to_pylist())
    seen = [look.counted for look in looks]
    demo.stage.check(
        seen == sorted(seen) and all(look.counted <= look.writer.sent for look in looks),
        "the count never decreased, and never exceeded the records sent",
    )
    demo.stage.check(
        found == expected,
        (
            f"the counts of all {len(expected)} carriers are equal to the source: "
            f"{found.total():,} records"
        ),
    )
