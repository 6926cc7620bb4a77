"""Batch reads through Spark: ``spark.read.format("raylog")``."""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(300)

T0 = 1_700_000_000_000


def places(frame: Any) -> list[tuple[int, int]]:
    """(partition, offset) of every row, in order."""
    return sorted(
        (row.partition, row.offset) for row in frame.select("partition", "offset").collect()
    )


def span(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(start, end)]


def test_every_record_comes_back_once_in_the_columns_of_sparks_kafka_source(
    topics: Any, load: Any
) -> None:
    topic = topics.create(partitions=2)
    topics.append(topic, 0, 3)
    topics.append(topic, 1, 1)
    in_ms = load(subscribe=topic).selectExpr(
        "* except (timestamp)", "unix_millis(timestamp) timestamp"
    )
    rows = in_ms.orderBy("partition", "offset").collect()
    assert [row.asDict() for row in rows[1:4:2]] == [
        {
            "key": b"1",
            "value": f"{topic}-0@1".encode(),
            "topic": topic,
            "partition": 0,
            "offset": 1,
            "timestamp": T0 + 1,
            "timestampType": 0,
        },
        {
            "key": None,
            "value": f"{topic}-1@0".encode(),
            "topic": topic,
            "partition": 1,
            "offset": 0,
            "timestamp": T0,
            "timestampType": 0,
        },
    ]
    assert places(load(subscribe=topic)) == span(0, 0, 3) + span(1, 0, 1)


def test_the_schema_is_that_of_sparks_kafka_source(topics: Any, load: Any) -> None:
    topic = topics.create()
    assert load(subscribe=topic).schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int>"
    )
    with_headers = load(subscribe=topic, includeHeaders=True).schema["headers"].dataType
    assert with_headers.simpleString() == "array<struct<key:string,value:binary>>"


def test_an_empty_topic_is_an_empty_frame(topics: Any, load: Any) -> None:
    assert load(subscribe=topics.create(partitions=2)).collect() == []


def test_headers_come_back_and_are_null_where_there_are_none(topics: Any, load: Any) -> None:
    topic = topics.create()
    topics.append(topic, 0, 1, headers=[("a", b"1"), ("a", None), ("é", b"")])
    topics.append(topic, 0, 1)
    found = load(subscribe=topic, includeHeaders=True).orderBy("offset").select("headers").collect()
    assert [None if row.headers is None else [tuple(h) for h in row.headers] for row in found] == [
        [("a", b"1"), ("a", None), ("é", b"")],
        None,
    ]


def test_a_schema_of_the_users_chooses_columns(topics: Any, load: Any) -> None:
    topic = topics.create()
    topics.append(topic, 0, 5)
    found = load(schema="offset long, topic string", subscribe=topic)
    assert found.columns == ["offset", "topic"]
    assert found.orderBy("offset").first() == (0, topic)
    assert found.count() == 5


@pytest.mark.parametrize(
    ("schema", "advice"),
    [
        ("nope int", "the columns are key, value, topic"),
        ("value string", "the source has the type binary"),
        ("headers array<struct<key string, value binary>>", "includeHeaders=true"),
    ],
)
def test_a_schema_that_is_no_subset_is_refused(
    topics: Any, load: Any, schema: str, advice: str
) -> None:
    with pytest.raises(Exception, match=f"InvalidSparkSchema.*{advice}"):
        load(schema=schema, subscribe=topics.create()).collect()


def test_offsets_bound_a_read(topics: Any, load: Any) -> None:
    topic = topics.create(partitions=2)
    topics.append(topic, 0, 10)
    topics.append(topic, 1, 10)
    start = json.dumps({topic: {"0": 4, "1": -2}})
    end = json.dumps({topic: {"0": -1, "1": 2}})
    found = load(subscribe=topic, startingOffsets=start, endingOffsets=end)
    assert places(found) == span(0, 4, 10) + span(1, 0, 2)


def test_times_bound_a_read(topics: Any, load: Any) -> None:
    topic = topics.create(partitions=2)
    topics.append(topic, 0, 10)
    topics.append(topic, 1, 6)
    found = load(subscribe=topic, startingTimestamp=T0 + 3, endingTimestamp=T0 + 8)
    assert places(found) == span(0, 3, 8) + span(1, 3, 6)
    each = json.dumps({topic: {"0": T0 + 9, "1": T0}})
    assert places(load(subscribe=topic, startingOffsetsByTimestamp=each)) == span(0, 9, 10) + span(
        1, 0, 6
    )
    late = {"subscribe": topic, "startingTimestamp": T0 + 8}
    with pytest.raises(Exception, match="startingOffsetsByTimestampStrategy=latest"):
        load(**late).collect()
    assert places(load(**late, startingOffsetsByTimestampStrategy="latest")) == span(0, 8, 10)


def test_several_topics_patterns_and_single_partitions_can_be_read(topics: Any, load: Any) -> None:
    one, two = topics.create(partitions=2), topics.create()
    topics.append(one, 0, 1)
    topics.append(one, 1, 2)
    topics.append(two, 0, 3)
    assert load(subscribe=f"{one}, {two}").count() == 6
    assert load(subscribePattern=topics.prefix + "-.").count() == 6
    assert load(assign=json.dumps({one: [1], two: [0]})).count() == 5


def test_one_loaded_frame_serves_many_filters(topics: Any, load: Any) -> None:
    """What Spark 4.2 gets wrong for a source that pushes filters: the last one would hold for
    all."""
    topic = topics.create(partitions=2)
    topics.append(topic, 0, 3)
    topics.append(topic, 1, 4)
    loaded = load(subscribe=topic)
    assert loaded.filter("partition = 0").count() == 3
    assert loaded.count() == 7
    assert loaded.filter("partition = 0").union(loaded.filter("partition = 1")).count() == 7


def test_max_records_per_partition_makes_tasks_that_are_small_enough(
    topics: Any, load: Any
) -> None:
    topic = topics.create(partitions=2)
    topics.append(topic, 0, 30)
    topics.append(topic, 1, 10)
    found = load(subscribe=topic, maxRecordsPerPartition=10)
    assert found.rdd.getNumPartitions() == 4
    assert places(found) == span(0, 0, 30) + span(1, 0, 10)


def test_min_partitions_makes_more_tasks_of_the_same_records(topics: Any, load: Any) -> None:
    topic = topics.create(partitions=2)
    topics.append(topic, 0, 30)
    topics.append(topic, 1, 10)
    found = load(subscribe=topic, minPartitions=8)
    assert found.rdd.getNumPartitions() == 8
    assert places(found) == span(0, 0, 30) + span(1, 0, 10)


def test_large_ranges_come_back_whole(topics: Any, load: Any) -> None:
    topic = topics.create()
    for _ in range(20):
        topics.append(topic, 0, 5_000)
    found = load(schema="offset long, value binary", subscribe=topic)
    (row,) = found.selectExpr("count(*)", "count(distinct offset)", "max(offset)").collect()
    assert tuple(row) == (100_000, 100_000, 99_999)
    assert found.filter(f"cast(value as string) != concat('{topic}-0@', offset)").count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscrib": "x"}, "InvalidSparkOption.*did you mean subscribe"),
        ({"subscribe": "no-such-topic"}, "InvalidSparkOption.*no-such-topic.*does not exist"),
        (
            {"subscribe": "x", "startingOffsets": "latest"},
            "InvalidSparkOption.*the query would read nothing",
        ),
        (
            {"subscribe": "x", "kafka.bootstrap.servers": "h:1"},
            "InvalidSparkOption.*remove the option",
        ),
    ],
)
def test_mistakes_are_named_in_sparks_error(load: Any, options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=f"(?s){said}"):
        load(**options).collect()


def test_records_that_retention_took_fail_a_batch_that_names_them_unless_loss_is_allowed(
    topics: Any, load: Any
) -> None:
    topic = topics.create()
    topics.append(topic, 0, 10)
    topics.let_retention_delete_all(topic)
    topics.append(topic, 0, 1)
    from_zero = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 0}})}
    with pytest.raises(
        Exception, match=r"(?s)DataLoss: .*-0: offsets \[0, 10\) cannot all be read"
    ):
        load(**from_zero).collect()
    assert places(load(**from_zero, failOnDataLoss=False)) == span(0, 10, 11)
    assert places(load(subscribe=topic)) == span(0, 10, 11)
