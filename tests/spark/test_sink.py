"""Writes through Spark: ``df.write`` and ``df.writeStream`` with ``format("raylog")``."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import raylog
from raylog.storage.testing.waiting import wait_for

pytestmark = pytest.mark.timeout(300)

T0 = 1_700_000_000_000
QUERY_TIMEOUT_S = 120


def values(broker: Any, topic: str) -> list[bytes | None]:
    """The values of all records of a topic, sorted."""
    table = broker.read_table(topic, from_="earliest", to="latest")
    return sorted(table.column("value").to_pylist())


def append(frame: Any, **options: Any) -> None:
    frame.write.format("raylog").options(**options).mode("append").save()


@pytest.fixture
def drain(spark: Any, tmp_path: Path) -> Callable[..., Any]:
    """Run an AvailableNow query from one topic into another; the query when it has ended."""

    def run(source: str, transform: Callable[[Any], Any], **options: Any) -> Any:
        frame = (
            spark.readStream.format("raylog")
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .load()
        )
        writer = transform(frame).writeStream.format("raylog").options(**options)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the query did not end"
        return query

    return run


def test_all_columns_of_a_row_become_a_record(spark: Any, broker: Any, topics: Any) -> None:
    one, two = topics.create(partitions=3), topics.create()
    frame = spark.sql(
        f"""select * from values
            ('a', 'k', cast('v0' as binary), 2, timestamp_millis({T0}),
             array(struct('h' as key, cast('1' as binary) as value))),
            ('b', null, null, null, null, null)
            as t(which, key, value, partition, timestamp, headers)"""
    ).selectExpr(f"if(which = 'a', '{one}', '{two}') topic", "* except (which)", "1 other")
    append(frame)
    (record,) = broker.read_table(one, from_="earliest", to="latest").to_pylist()
    assert record["partition"] == 2
    assert record["key"] == b"k"
    assert record["value"] == b"v0"
    assert record["timestamp"].timestamp() * 1000 == T0
    assert record["headers"] == [{"key": "h", "value": b"1"}]
    (tombstone,) = broker.read_table(two, from_="earliest", to="latest").to_pylist()
    assert tombstone["key"] is None
    assert tombstone["value"] is None
    assert not tombstone["headers"]


def test_many_rows_of_several_tasks_arrive_once(spark: Any, broker: Any, topics: Any) -> None:
    topic = topics.create(partitions=4)
    frame = spark.range(0, 50_000, numPartitions=5)
    append(frame.selectExpr("cast(id as string) value", "cast(id as string) key"), topic=topic)
    assert values(broker, topic) == sorted(b"%d" % n for n in range(50_000))


def test_a_stream_goes_from_topic_through_spark_into_a_topic(
    broker: Any, topics: Any, drain: Any
) -> None:
    source, target = topics.create(partitions=2), topics.create(partitions=3)
    topics.append(source, 0, 10, headers=[("h", b"1")])
    topics.append(source, 1, 5)
    drain(source, lambda frame: frame.where("offset % 2 = 0"), topic=target)
    expected = [f"{source}-0@{n}".encode() for n in range(0, 10, 2)]
    expected += [f"{source}-1@{n}".encode() for n in range(0, 5, 2)]
    assert values(broker, target) == sorted(expected)
    copied = broker.read_table(target, from_="earliest", to="latest").to_pylist()
    assert [row["headers"] for row in copied if row["value"].endswith(b"-0@4")] == [
        [{"key": "h", "value": b"1"}]
    ]
    topics.append(source, 0, 2)
    drain(source, lambda frame: frame.where("offset % 2 = 0"), topic=target)
    assert values(broker, target) == sorted([*expected, f"{source}-0@10".encode()])


def test_in_complete_mode_each_micro_batch_appends_the_whole_result(
    spark: Any, broker: Any, topics: Any, tmp_path: Path
) -> None:
    source, target = topics.create(), topics.create()
    topics.append(source, 0, 3)
    frame = spark.readStream.format("raylog").option("subscribe", source)
    frame = frame.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 2)
    counts = frame.load().groupBy("partition").count()
    query = (
        counts.selectExpr("cast(count as string) value")
        .writeStream.format("raylog")
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_TIMEOUT_S), "the query did not end"
    assert values(broker, target) == [b"2", b"3"]


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["id"], {"topic": "T"}, "InvalidSparkSchema: column value binary: is missing"),
        (["id value"], {"topic": "T"}, "InvalidSparkSchema: column value bigint.*cast the column"),
        (["'x' value"], {}, "InvalidSparkOption: option topic=''.*add a column topic"),
        (["'x' value"], {"topic": "no-such"}, "InvalidSparkOption: option topic='no-such'.*exist"),
        (["'x' value"], {"topic": "T", "topik": "x"}, "InvalidSparkOption.*did you mean topic"),
        (
            ["'x' value"],
            {"topic": "T", "kafka.lingr.ms": "1"},
            "InvalidSparkOption.*did you mean kafka.linger.ms",
        ),
        (
            ["if(id = 900, null, 'T') topic", "'x' value"],
            {},
            "InvalidRecord: row 900: column topic is null",
        ),
        (
            ["if(id = 900, 'no-such', 'T') topic", "'x' value"],
            {},
            "UnknownTopicOrPartition: .*no-such",
        ),
    ],
)
def test_what_cannot_be_written_is_named_and_nothing_is_written(
    spark: Any, broker: Any, topics: Any, columns: list[str], options: dict[str, str], said: str
) -> None:
    topic = topics.create()
    options = {key: topic if value == "T" else value for key, value in options.items()}
    frame = spark.range(0, 1000, numPartitions=1)
    chosen = [column.replace("'T'", f"'{topic}'") for column in columns]
    with pytest.raises(Exception, match=f"(?s){said}"):
        append(frame.selectExpr(*chosen), **options)
    assert values(broker, topic) == []


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("overwrite", "InvalidSparkOption: option mode='overwrite'.*only appended to"),
        ("ignore", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
        ("errorifexists", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
    ],
)
def test_other_save_modes_are_refused(
    spark: Any, broker: Any, topics: Any, mode: str, said: str
) -> None:
    topic = topics.create()
    writer = spark.sql("select 'x' value").write.format("raylog").option("topic", topic)
    with pytest.raises(Exception, match=f"(?s){said}"):
        writer.mode(mode).save()
    assert values(broker, topic) == []


def test_a_task_that_fails_is_run_again_and_all_rows_are_written(
    spark: Any, broker: Any, topics: Any, tmp_path: Path
) -> None:
    topic = topics.create()
    flag = tmp_path / "fails"
    flag.touch()

    def fail_once_in_the_middle(batches: Any) -> Any:
        for number, batch in enumerate(batches):
            if number == 1 and flag.exists():
                flag.unlink()
                raise RuntimeError("the source broke")
            yield batch

    rows = spark.range(0, 30_000, numPartitions=1).selectExpr("cast(id as string) value")
    append(rows.mapInArrow(fail_once_in_the_middle, "value string"), topic=topic)
    assert not flag.exists()
    assert set(values(broker, topic)) == {b"%d" % n for n in range(30_000)}


def test_other_threads_and_new_sessions_write_once_they_have_registered(
    spark: Any, broker: Any, topics: Any
) -> None:
    """Spark looks for a writer in the session that is active in the calling thread."""
    topic = topics.create()

    def write(session: Any) -> None:
        raylog.spark.register(session, broker)
        append(session.sql("select 'x' value"), topic=topic)

    for session in (spark, spark.newSession()):
        with ThreadPoolExecutor(1) as thread:
            thread.submit(write, session).result()
    assert values(broker, topic) == [b"x", b"x"]


def test_a_query_that_is_cancelled_leaves_nobody_writing(
    spark: Any, broker: Any, topics: Any
) -> None:
    topic = topics.create()

    def for_ever(batches: Any) -> Any:
        for batch in list(batches):
            while True:
                yield batch

    rows = spark.range(0, 100, numPartitions=1).selectExpr("repeat('x', 100000) value")

    def cancel_once_it_writes() -> None:
        wait_for(lambda: values_begin(broker, topic), QUERY_TIMEOUT_S, "a record")
        spark.sparkContext.cancelAllJobs()

    with ThreadPoolExecutor(1) as pool:
        cancelled = pool.submit(cancel_once_it_writes)
        with pytest.raises(Exception, match=r"(?i)cancel"):
            append(rows.mapInArrow(for_ever, "value string"), topic=topic)
        cancelled.result()
    with broker.producer(linger_ms=0) as producer:
        wait_for(lambda: is_alone(producer, topic), QUERY_TIMEOUT_S, "nobody else writes")


def values_begin(broker: Any, topic: str) -> bool:
    return broker.list_offsets({(topic, 0): -1})[topic, 0] > 0


def is_alone(producer: Any, topic: str) -> bool:
    """Whether many records, sent one after another, get offsets one after another."""
    offsets = [producer.send(topic, b"mine").result().offset for _ in range(200)]
    return offsets == list(range(offsets[0], offsets[0] + len(offsets)))
