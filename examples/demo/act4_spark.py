"""Act 4: Spark on Ray reads the topic in two ways, joins it with another, and we draw what it
finds.

``format("raylog")`` is a Spark data source: its tasks read the segments in Python workers and give
Spark Arrow batches. ``raylog.spark.frame`` moves the records through Ray's object store into
Spark's JVM. One query runs over both, and both answers are compared with what pandas makes of the
source.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

import raylog
from examples.demo.picture import draw, short_name
from examples.demo.stage import Demo, Stopwatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PICTURE = "delays.png"
# 336,776 flights make too few rows for Spark's default of 200 tasks a shuffle.
SPARK_CONFIG = {"spark.sql.shuffle.partitions": "2"}
TOLERANCE = 1e-9


class Delays(NamedTuple):
    """Mean departure delays in minutes: (carrier, name, flights, mean) worst first; (hour, flights,
    mean)."""

    by_carrier: list[tuple[str, str, int, float]]
    by_hour: list[tuple[int, int, float]]


def run(demo: Demo) -> None:
    stage = demo.stage
    stage.act(4, "Spark on Ray: mean delays, read in two ways")
    watch = Stopwatch()
    with stage.progress("starting Spark on Ray (RayDP)"):
        demo.spark = raylog.spark.session(
            demo.running_broker,
            app_name="raylog-demo",
            executor_cores=2,
            config=SPARK_CONFIG,
        )
    stage.say(
        f"raylog.spark.session() started Spark {demo.spark.version} on Ray in {watch.seconds:.1f} s"
    )
    delays = _both_ways(demo)
    expected = delays_by_pandas(demo.flights.frame)
    stage.check(
        agree(delays, expected),
        "the means are equal to those that pandas computes from the source",
    )
    _show(demo, delays)


def _both_ways(demo: Demo) -> Delays:
    """The answer of the data source, once it is that of the frame."""
    stage, spark, answers = demo.stage, demo.running_spark, {}
    airlines = decoded(
        spark.read.format("raylog").option("subscribe", "airlines").load(),
        "carrier string, name string",
    )
    ways = {
        'spark.read.format("raylog")': lambda: (
            spark.read.format("raylog").option("subscribe", "flights").load()
        ),
        "raylog.spark.frame()": lambda: raylog.spark.frame(spark, demo.running_broker, "flights"),
    }
    for name, read in ways.items():
        watch = Stopwatch()
        with stage.progress(name):
            answers[name] = delays_by_spark(read(), airlines)
        stage.say(
            f"{name:<27}: read, join with airlines, compute both means: {watch.seconds:.1f} s"
        )
    stage.report.text(
        "The time is from the creation of the frame to the last row of both results. The first of "
        "the two ways includes the start of Spark's first job and of its Python workers."
    )
    first, second = answers.values()
    stage.check(
        agree(first, Delays([(c, "", n, m) for c, _, n, m in second.by_carrier], second.by_hour)),
        "both ways give the same means",
    )
    return first


def decoded(records: "DataFrame", columns: str) -> "DataFrame":
    """The JSON values of records as columns."""
    from pyspark.sql import functions as sql

    return records.select(
        sql.from_json(sql.col("value").cast("string"), columns).alias("row")
    ).select("row.*")


def delays_by_spark(records: "DataFrame", airlines: "DataFrame") -> Delays:
    """The query of this act. ``records`` are raylog's columns, as either way gives them."""
    from pyspark.sql import functions as sql

    flights = (
        decoded(records, "carrier string, hour int, dep_delay int")
        .join(sql.broadcast(airlines), "carrier")
        .cache()
    )
    # count and avg leave out nulls: flights that never left
    measures = sql.count("dep_delay").alias("flights"), sql.avg("dep_delay").alias("mean")
    by_carrier = (
        flights.groupBy("carrier", "name").agg(*measures).orderBy(sql.desc("mean")).collect()
    )
    by_hour = flights.groupBy("hour").agg(*measures).where("flights > 0").orderBy("hour").collect()
    flights.unpersist()
    return Delays(
        [(row["carrier"], row["name"], row["flights"], row["mean"]) for row in by_carrier],
        [(row["hour"], row["flights"], row["mean"]) for row in by_hour],
    )


def delays_by_pandas(flights: pd.DataFrame) -> Delays:
    """The same from the source, without names."""
    flew = flights.dropna(subset=["dep_delay"]).astype({"dep_delay": "float64"})
    by_carrier = (
        flew.groupby("carrier")["dep_delay"]
        .agg(["count", "mean"])
        .sort_values("mean", ascending=False)
    )
    by_hour = flew.groupby("hour")["dep_delay"].agg(["count", "mean"]).sort_index()
    return Delays(
        [
            (str(carrier), "", int(count), float(mean))
            for carrier, count, mean in by_carrier.itertuples()
        ],
        [(int(hour), int(count), float(mean)) for hour, count, mean in by_hour.itertuples()],
    )


def agree(one: Delays, other: Delays) -> bool:
    """The same groups and counts, and the same means but for the last bits of a float; names do not
    count."""
    return _same(
        [(c, n, m) for c, _, n, m in one.by_carrier], [(c, n, m) for c, _, n, m in other.by_carrier]
    ) and _same(one.by_hour, other.by_hour)


def _same(one: Sequence[tuple], other: Sequence[tuple]) -> bool:
    left, right = ({row[0]: row[1:] for row in rows} for rows in (one, other))
    return left.keys() == right.keys() and all(
        left[key][0] == right[key][0]
        and abs(left[key][1] - right[key][1]) < TOLERANCE * max(abs(left[key][1]), 1)
        for key in left
    )


def _show(demo: Demo, delays: Delays) -> None:
    stage = demo.stage
    worst, best = delays.by_carrier[0], delays.by_carrier[-1]
    stage.line("")
    stage.line("   mean departure delay      flights   minutes")
    for carrier, name, count, mean in delays.by_carrier:
        stage.line(f"   {carrier} {short_name(name):<22} {count:>8,} {mean:>8.1f}")
    early, late = (max(delays.by_hour, key=lambda row: sign * row[2]) for sign in (-1, 1))
    stage.line("")
    stage.say(
        f"mean delay by carrier: highest {worst[3]:.1f} minutes ({short_name(worst[1])}), "
        f"lowest {best[3]:.1f} ({short_name(best[1])})"
    )
    stage.say(
        f"mean delay by scheduled hour: highest {late[2]:.1f} minutes ({late[0]}:00), "
        f"lowest {early[2]:.1f} ({early[0]}:00)"
    )
    with stage.progress("drawing"):
        draw(
            "July 2013" if demo.is_quick else "2013",
            delays.by_carrier,
            delays.by_hour,
            demo.output / PICTURE,
        )
    stage.say(f"picture: {demo.output / PICTURE}")
    stage.report.table(
        ("carrier", "airline", "flights that left", "mean delay, minutes"), delays.by_carrier
    )
    stage.report.table(
        ("scheduled hour", "flights that left", "mean delay, minutes"),
        [(f"{h}:00", n, m) for h, n, m in delays.by_hour],
    )
    stage.report.text(f"![Mean departure delay by carrier and by scheduled hour]({PICTURE})")
