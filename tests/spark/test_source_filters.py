"""Filters give the same rows whether they are pushed down or not, and pushed ones read less."""

from typing import Any

import pytest

pytestmark = pytest.mark.timeout(300)

T0 = 1_700_000_000_000

# over 3 partitions of 10 records each, times T0 to T0 + 9
FILTERS = [
    ("partition = 1", 10),
    ("partition in (0, 2)", 20),
    ("partition > 0 and offset < 3", 6),
    ("offset >= 8", 6),
    ("offset between 2 and 4", 9),
    ("offset = 5 or offset = 7", 6),
    ("topic = 'other'", 0),
    (f"timestamp >= timestamp_millis({T0 + 7})", 9),
    (f"timestamp < timestamp_millis({T0 + 7})", 21),
    (f"timestamp = timestamp_millis({T0 + 7})", 3),
    (f"timestamp > timestamp_millis({T0 + 99})", 0),
    ("offset % 2 = 0", 15),
    ("not (partition = 1)", 20),
    ("key is not null and offset > 3", 9),
    ("offset <=> 3", 3),
    ("offset > 1000000", 0),
]


def test_pushed_filters_lose_no_row(topics: Any, load: Any) -> None:
    topic = topics.create(partitions=3)
    for partition in range(3):
        topics.append(topic, partition, 10)
    for condition, count in FILTERS:
        pushed = load(subscribe=topic, pushFilters=True).filter(condition)
        assert pushed.count() == count, condition


def test_a_pushed_filter_leaves_partitions_unread(topics: Any, load: Any) -> None:
    topic = topics.create(partitions=3)
    for partition in range(3):
        topics.append(topic, partition, 10)
    assert load(subscribe=topic).filter("partition = 1").rdd.getNumPartitions() == 3
    assert (
        load(subscribe=topic, pushFilters=True).filter("partition = 1").rdd.getNumPartitions() == 1
    )


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


def test_a_spark_without_the_setting_reads_and_says_what_to_set(
    spark: Any, topics: Any, load: Any
) -> None:
    topic = topics.create()
    topics.append(topic, 0, 2)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert load(subscribe=topic).filter("offset > 0").count() == 1
        with pytest.raises(Exception, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
            load(subscribe=topic, pushFilters=True).filter("offset > 0").count()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
