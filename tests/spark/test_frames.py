"""Records as a frame through Ray's object store: ``raylog.spark.frame``."""

import gc
from typing import Any

import pytest

import raylog

pytestmark = pytest.mark.timeout(300)


def test_a_frame_has_the_rows_and_schema_of_the_data_source(
    spark: Any, broker: Any, topics: Any, load: Any
) -> None:
    topic = topics.create(partitions=2)
    topics.append(topic, 0, 10)
    topics.append(topic, 1, 10, headers=[("h", b"1"), ("n", None)])
    for headers in (False, True):
        frame = raylog.spark.frame(spark, broker, topic, include_headers=headers)
        source = load(subscribe=topic, includeHeaders=headers)
        assert frame.schema == source.schema
        ordered = [each.orderBy("partition", "offset").collect() for each in (frame, source)]
        assert ordered[0] == ordered[1]
        assert len(ordered[0]) == 20


def test_an_empty_topic_is_an_empty_frame_with_the_schema(
    spark: Any, broker: Any, topics: Any
) -> None:
    frame = raylog.spark.frame(spark, broker, topics.create())
    assert frame.collect() == []
    assert frame.columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]


def test_offsets_and_several_topics(spark: Any, broker: Any, topics: Any) -> None:
    one, two = topics.create(), topics.create()
    topics.append(one, 0, 10)
    topics.append(two, 0, 10)
    starting = {one: {0: 7}, two: {0: -2}}
    frame = raylog.spark.frame(
        spark,
        broker,
        [one, two],
        starting_offsets=starting,
        ending_offsets={one: {0: -1}, two: {0: 2}},
    )
    assert sorted((row.topic, row.offset) for row in frame.collect()) == [
        *[(one, offset) for offset in (7, 8, 9)],
        *[(two, offset) for offset in (0, 1)],
    ]


def test_large_topics_are_cut_into_blocks(
    spark: Any, broker: Any, topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create()
    for _ in range(10):
        topics.append(topic, 0, 5_000)
    monkeypatch.setattr("raylog.cluster.spark.frames.BLOCK_BYTES", 1 << 20)
    frame = raylog.spark.frame(spark, broker, topic)
    (row,) = frame.selectExpr("count(*)", "count(distinct offset)", "max(offset)").collect()
    assert tuple(row) == (50_000, 50_000, 49_999)
    assert frame.rdd.getNumPartitions() >= 5


def test_the_blocks_live_as_long_as_a_frame_made_from_the_frame(
    spark: Any, broker: Any, topics: Any
) -> None:
    topic = topics.create()
    topics.append(topic, 0, 10)
    derived = raylog.spark.frame(spark, broker, topic).filter("offset < 5").select("offset")
    gc.collect()
    assert derived.count() == 5


def test_a_topic_that_does_not_exist_is_named(spark: Any, broker: Any) -> None:
    from raylog.cluster.spark.errors import InvalidSparkOption

    with pytest.raises(InvalidSparkOption, match=r"no-such-topic.*does not exist"):
        raylog.spark.frame(spark, broker, "no-such-topic")


def test_a_second_session_is_refused(spark: Any, broker: Any) -> None:
    from raylog.cluster.spark.errors import SparkSessionExists

    with pytest.raises(
        SparkSessionExists, match="'raylog' is already running; use it, or stop it first"
    ):
        raylog.spark.session(broker)
