"""Act 5: Spark counts ``flights-live`` while an actor writes to it: as a stream, and in batches.

The writer is an ordinary Ray actor. It has no producer: it holds the handles of the partitions'
actors, encodes record batches, and calls ``append.remote``. It writes until it is told to stop, so
all that Spark counts meanwhile is counted over partitions that grow.

The proof is in the order of events. The writer says how many records are acknowledged, a batch
query counts, the writer says it again::

    acknowledged before <= counted <= acknowledged after

The left side: the query found each record that was acknowledged when it began. The right side: it
found no record that does not exist. A record is readable a moment before its writer knows of it, so
the writer answers between two appends, when it knows of all.
"""

import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import ray

import raylog
from examples.demo.act1_start import KEEP
from examples.demo.stage import Demo, NotInTime, Stopwatch
from raylog.cluster.admin import NewTopic
from raylog.storage.records.murmur2 import partition_for_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, PARTITIONS = "flights-live", 2
RECORDS_PER_S, QUICK_RECORDS_PER_S = 3_000, 1_500
APPENDS_PER_S = 10
# Batch queries while the writer writes.
BATCH_QUERIES, QUICK_BATCH_QUERIES = 8, 3
COUNT_TIMEOUT_S = 120.0
COUNT_INTERVAL_S = 0.1


class WriterImpl:
    """Appends to partitions by the handles of their actors, at a steady pace, until ``stop``."""

    def __init__(self, log_actors: Sequence[Any]) -> None:
        """``log_actors``: Ray's handles of all partitions of one topic, in their order."""
        self._log_actors = log_actors
        self._is_stopped = threading.Event()
        # Held from the first append of a step to its last acknowledgement.
        self._appending = threading.Lock()
        self._acknowledged = 0

    def write(self, table: pa.Table, records_per_s: int) -> int:
        """Write the table, and again from its start; returns how many records are acknowledged."""
        rows = records_per_s // APPENDS_PER_S
        due = time.monotonic()
        for start in itertools.cycle(range(0, table.num_rows, rows)):
            self._append(batches_of(table.slice(start, rows), len(self._log_actors)))
            due += 1 / APPENDS_PER_S
            if self._is_stopped.wait(max(due - time.monotonic(), 0)):
                break
        return self.acknowledged()

    def _append(self, batches: Mapping[int, bytearray]) -> None:
        """One batch to each partition. Nothing is repeated: that is what a producer is for."""
        with self._appending:
            calls = [self._log_actors[n].append.remote(batch) for n, batch in batches.items()]
            for answer in ray.get(calls):
                self._acknowledged += answer.last_offset - answer.base_offset + 1

    def acknowledged(self) -> int:
        """The records that are acknowledged; no append is on its way."""
        with self._appending:
            return self._acknowledged

    def stop(self) -> None:
        """``write`` returns soon."""
        self._is_stopped.set()


class Look(NamedTuple):
    """What a batch query counted, what the stream had counted, what was acknowledged around it."""

    acknowledged_before: int
    counted: int
    streamed: int
    acknowledged_after: int
    has_gaps: bool  # some partition has offsets without a record


def run(demo: Demo) -> None:
    stage, table = demo.stage, demo.flights.table
    stage.act(5, f"Spark counts {TOPIC} while an actor appends to it: a stream, and batch queries")
    broker, spark = demo.running_broker, demo.running_spark
    broker.admin().create_topics([NewTopic(TOPIC, PARTITIONS, KEEP)])[TOPIC].result()
    query = start_query(spark, str(demo.data / "checkpoint"))
    log_actors = [broker.partition(TOPIC, number) for number in range(PARTITIONS)]
    # One call writes; another asks, or stops it.
    writer = ray.remote(num_cpus=0, max_concurrency=2)(WriterImpl).remote(log_actors)
    pace = QUICK_RECORDS_PER_S if demo.is_quick else RECORDS_PER_S
    try:
        watch = Stopwatch()
        writing = writer.write.remote(table, pace)
        with stage.progress("the stream's first micro-batch"):
            wait_until_counted(query, spark, 1)
        stage.say(
            f"the writer appends {pace:,} records a second; the stream had counted its first "
            f"records after {watch.seconds:.1f} s"
        )
        looks = _look_on(demo, writer, writing)
        writer.stop.remote()
        total = ray.get(writing)
        behind_s = wait_until_counted(query, spark, total)
        stage.say(
            f"the writer stopped at {total:,} records; the stream had counted all of them "
            f"{behind_s:.1f} s later"
        )
        for claim, holds in looks_hold(looks).items():
            stage.check(holds, claim)
        _check_end(demo, total)
    finally:
        _end(query, writer)


def _end(query: Any, writer: Any) -> None:
    """End both. Where that fails, the error of the act is the one that is told."""
    for end in (query.stop, partial(ray.kill, writer)):
        try:
            end()
        except Exception as error:
            print(f"the end of act 5: {error}", file=sys.stderr)  # into logs/console.log


# -- the writer's batches --------------------------------------------------------------------------


def batches_of(part: pa.Table, partitions: int) -> dict[int, bytearray]:
    """Partition -> one record batch of the rows whose keys belong there."""
    rows: dict[int, list[Any]] = {}
    columns = (part.column(name).to_pylist() for name in ("timestamp", "key", "value"))
    for timestamp, key, value in zip(*columns, strict=True):
        number = partition_for_key(key, partitions)
        rows.setdefault(number, []).append((timestamp, key, value, []))
    return {number: raylog.encode_records(found) for number, found in rows.items()}


def written(table: pa.Table, total: int) -> Counter[str]:
    """Key -> records, of the first ``total`` that a writer of this table wrote."""
    rounds, rest = divmod(total, table.num_rows)
    keys = [key.decode() for key in table.column("key").to_pylist()]
    whole = Counter({key: count * rounds for key, count in Counter(keys).items() if rounds})
    return whole + Counter(keys[:rest])


# -- the stream ------------------------------------------------------------------------------------


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


def streamed(spark: "SparkSession") -> Counter[str]:
    """What the stream has counted so far."""
    return Counter({row["carrier"]: row["count"] for row in spark.table("live").collect()})


def wait_until_counted(query: Any, spark: "SparkSession", total: int) -> float:
    """Wait until the stream has counted so many, but not for ever; returns the seconds.

    Raises NotInTime, or what ended the query.
    """
    watch = Stopwatch()
    while (count := streamed(spark).total()) < total:
        if query.exception() is not None:
            raise query.exception()
        if watch.seconds > COUNT_TIMEOUT_S:
            raise NotInTime(_not_read_yet(count, total))
        time.sleep(COUNT_INTERVAL_S)
    return watch.seconds


def _not_read_yet(count: int, total: int) -> str:
    """How far a stream has come that is too slow."""
    return (
        f"the stream has read {count:,} of {total:,} records in {COUNT_TIMEOUT_S:.0f} s; the other "
        f"{total - count:,} are not read yet, and nothing says that any is lost. The machine may "
        "be too busy: try again when it is idle, or with --quick"
    )


# -- the batch queries -----------------------------------------------------------------------------


def _look_on(demo: Demo, writer: Any, writing: Any) -> list[Look]:
    """Count several times while the writer writes."""
    looks: list[Look] = []
    wanted = QUICK_BATCH_QUERIES if demo.is_quick else BATCH_QUERIES
    with demo.stage.progress("batch queries", wanted) as done:
        while len(looks) < wanted:
            if ray.wait([writing], timeout=0)[0]:
                ray.get(writing)  # raises what ended the writer
            watch = Stopwatch()
            look = _look(demo.running_spark, writer)
            looks.append(look)
            done(1)
            demo.stage.say(
                f"batch query {len(looks)}: {look.acknowledged_before:>6,} acknowledged <= "
                f"{look.counted:>6,} counted <= {look.acknowledged_after:>6,} acknowledged, in "
                f"{watch.seconds:.1f} s; the stream: {look.streamed:>6,}"
            )
    return looks


def _look(spark: "SparkSession", writer: Any) -> Look:
    from pyspark.sql import functions as sql

    before = ray.get(writer.acknowledged.remote())
    # load() each time: a frame keeps the offsets of its first action.
    records = (
        spark.read.format("raylog")
        .schema("partition int, offset long")
        .option("subscribe", TOPIC)
        .load()
    )
    measures = sql.count("offset").alias("records"), sql.max("offset").alias("last")
    partitions = records.groupBy("partition").agg(*measures).collect()
    stream = streamed(spark).total()
    after = ray.get(writer.acknowledged.remote())
    return Look(
        acknowledged_before=before,
        counted=sum(row["records"] for row in partitions),
        streamed=stream,
        acknowledged_after=after,
        has_gaps=any(row["records"] != row["last"] + 1 for row in partitions),
    )


def looks_hold(looks: Sequence[Look]) -> dict[str, bool]:
    """Claim -> whether all looks show it."""
    streams = [look.streamed for look in looks]
    return {
        f"the writer appended during each of the {len(looks)} batch queries": len(looks) > 1
        and all(look.acknowledged_before < look.acknowledged_after for look in looks),
        "each counted all records that were acknowledged before it began": all(
            look.acknowledged_before <= look.counted for look in looks
        ),
        "none counted more records than were acknowledged after it ended": all(
            look.counted <= look.acknowledged_after for look in looks
        ),
        "none left an offset out": not any(look.has_gaps for look in looks),
        "the stream's count never decreased, and never exceeded what was acknowledged": (
            streams == sorted(streams)
            and all(look.streamed <= look.acknowledged_after for look in looks)
        ),
    }


def _check_end(demo: Demo, total: int) -> None:
    expected = written(demo.flights.table, total)
    demo.stage.check(
        streamed(demo.running_spark) == expected and expected.total() == total,
        (
            f"the stream's counts of all {len(expected)} carriers are equal to what was written: "
            f"{total:,} records"
        ),
    )
