"""Pushed filters bound a read; they may leave too much in and never too much out."""

import datetime
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.cluster.spark.filters import conditions, earliest_time, keeps, narrow
from raylog.cluster.spark.plan import Range


class Filter(NamedTuple):
    """The shape of Spark's comparisons; its kinds differ in name only."""

    attribute: tuple[str, ...]
    value: Any = None


class EqualTo(Filter): ...


class EqualNullSafe(Filter): ...


class GreaterThan(Filter): ...


class GreaterThanOrEqual(Filter): ...


class LessThan(Filter): ...


class LessThanOrEqual(Filter): ...


class In(Filter): ...


class IsNotNull(Filter): ...


class Not(NamedTuple):
    child: Filter


TRUTH: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda a, b: a == b,
    EqualNullSafe: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    In: lambda a, b: a in b,
}


def at(ms: Any, **more: Any) -> Any:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(
        milliseconds=ms, **more
    )


def narrowed(
    *filters: Any, start: Any = 0, end: Any = 100, topic: Any = "t", partition: Any = 1
) -> Any:
    found = list(narrow(conditions(filters), [Range(topic, partition, start, end)]))
    return [(r.start, r.end) for r in found]


values = {
    "offset": st.integers(-5, 30),
    "partition": st.integers(-1, 4),
    "topic": st.sampled_from("abc"),
}


@st.composite
def filters(draw: Any) -> Any:
    column = draw(st.sampled_from(sorted(values)))
    kind = draw(st.sampled_from(list(TRUTH)))
    value = draw(st.lists(values[column], max_size=4) if kind is In else values[column])
    return kind((column,), value)


@given(st.lists(filters(), max_size=4))
def test_no_matching_record_is_left_out(wanted: Any) -> None:
    ranges = [Range(topic, partition, 3, 25) for topic in "abc" for partition in range(3)]
    rows = {(r.topic, r.partition, offset) for r in ranges for offset in range(r.start, r.end)}
    read = {
        (r.topic, r.partition, offset)
        for r in narrow(conditions(wanted), ranges)
        for offset in range(r.start, r.end)
    }

    def matches(row: Any) -> Any:
        have = dict(zip(("topic", "partition", "offset"), row, strict=True))
        return all(TRUTH[type(f)](have[f.attribute[0]], f.value) for f in wanted)

    assert read <= rows
    assert {row for row in rows if matches(row)} <= read


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        (GreaterThan(("offset",), 5), [(6, 100)]),
        (GreaterThanOrEqual(("offset",), 5), [(5, 100)]),
        (LessThan(("offset",), 5), [(0, 5)]),
        (LessThanOrEqual(("offset",), 5), [(0, 6)]),
        (EqualTo(("offset",), 5), [(5, 6)]),
        (In(("offset",), [5, 9]), [(5, 10)]),
        (In(("offset",), []), []),
        (EqualTo(("partition",), 1), [(0, 100)]),
        (EqualTo(("partition",), 2), []),
        (EqualTo(("topic",), "u"), []),
        (GreaterThan(("offset",), 100), []),
    ],
)
def test_topic_partition_and_offset_bound_what_is_read(wanted: Any, left: Any) -> None:
    assert narrowed(wanted) == left


@pytest.mark.parametrize(
    "unknown",
    [
        Not(EqualTo(("partition",), 1)),
        IsNotNull(("offset",)),
        EqualTo(("key",), b"x"),
        EqualTo(("headers", "key"), 5),
        EqualTo(("offset",), 5.5),
        EqualTo(("offset",), True),
        EqualTo(("offset",), None),
        EqualTo(("timestamp",), datetime.datetime(2024, 1, 1)),
    ],
)
def test_what_is_not_understood_is_left_to_spark(unknown: Any) -> None:
    assert conditions([unknown]) == ()


def test_times_bound_the_start_only_and_are_rounded_down_to_the_log_s_milliseconds() -> None:
    assert (
        earliest_time(conditions([GreaterThanOrEqual(("timestamp",), at(1500, microseconds=900))]))
        == 1500
    )
    assert (
        earliest_time(
            conditions([EqualTo(("timestamp",), at(7)), GreaterThan(("timestamp",), at(5))])
        )
        == 7
    )
    assert earliest_time(conditions([In(("timestamp",), [at(9), at(4)])])) == 4
    assert earliest_time(conditions([LessThan(("timestamp",), at(5))])) is None
    assert earliest_time(conditions([GreaterThan(("timestamp",), at(-1, microseconds=500))])) == -1
    assert earliest_time(()) is None


def test_a_partition_is_kept_unless_a_filter_rules_it_out() -> None:
    wanted = conditions(
        [GreaterThan(("partition",), 0), EqualTo(("topic",), "t"), EqualTo(("offset",), 3)]
    )
    assert keeps(wanted, "t", 1)
    assert not keeps(wanted, "t", 0)
    assert not keeps(wanted, "u", 1)
