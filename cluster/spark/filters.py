"""Filters that Spark pushes down, as bounds on what is read.

Spark evaluates every filter again on what comes back, so a bound may be too wide and must never be
too narrow:

* ``topic`` and ``partition`` comparisons leave whole partitions out,
* ``offset`` comparisons cut ranges,
* ``timestamp >= t`` starts at the first offset whose record has a time of t or later: every record
  before it is earlier. ``timestamp < t`` bounds nothing, since records carry their producers'
  times, in any order.

Filters are recognised by their class's name, so that this module needs no Spark. A kind, column or
value that is not listed here is left to Spark.
"""

import datetime
import operator
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from raylog.cluster.spark.plan import Range

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_COMPARE = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda left, right: left in right,
}
_TYPES: dict[str, type] = {
    "offset": int,
    "partition": int,
    "topic": str,
    "timestamp": datetime.datetime,
}


class Condition(NamedTuple):
    """One comparison; all of them must be true. ``column``: offset, partition, topic, timestamp."""

    column: str
    compare: str
    value: Any


def conditions(filters: Iterable[Any]) -> tuple[Condition, ...]:
    """The comparisons among Spark's filters that can bound a read."""
    read = [_condition(each) for each in filters]
    return tuple(condition for condition in read if condition is not None)


def _condition(each: Any) -> Condition | None:
    compare = type(each).__name__
    if compare not in _COMPARE or len(each.attribute) != 1 or each.attribute[0] not in _TYPES:
        return None
    column = each.attribute[0]
    values = each.value if compare == "In" else [each.value]
    values = [v for v in values if v is not None]  # no row is equal to null
    if not all(isinstance(v, _TYPES[column]) and not isinstance(v, bool) for v in values):
        return None
    if column == "timestamp":
        if any(v.tzinfo is None for v in values):
            return None
        values = [(v - _EPOCH) // datetime.timedelta(milliseconds=1) for v in values]
    if compare == "In":
        return Condition(column, compare, tuple(values))
    return Condition(column, compare, values[0]) if values else None


def keeps(wanted: Iterable[Condition], topic: str, partition: int) -> bool:
    """Whether a partition can hold matching records."""
    have = {"topic": topic, "partition": partition}
    return all(_COMPARE[c.compare](have[c.column], c.value) for c in wanted if c.column in have)


def narrow(wanted: Iterable[Condition], ranges: Iterable[Range]) -> Iterator[Range]:
    """The parts of the ranges that can have matching records.

    As far as topic, partition and offset say.
    """
    wanted = tuple(wanted)
    low, high = _offset_bounds(wanted)
    for r in ranges:
        start = r.start if low is None else max(r.start, low)
        end = r.end if high is None else min(r.end, high)
        if start < end and keeps(wanted, r.topic, r.partition):
            yield r._replace(start=start, end=end)


def earliest_time(wanted: Iterable[Condition]) -> int | None:
    """No matching record is earlier than this time in ms; None if any time matches."""
    times = []
    for column, compare, value in wanted:
        if column != "timestamp":
            continue
        if compare == "In":
            times += [min(value)] if value else []
        elif compare not in ("LessThan", "LessThanOrEqual"):
            times.append(value)
    return max(times, default=None)


def _offset_bounds(wanted: Iterable[Condition]) -> tuple[int | None, int | None]:
    low: list[int] = []
    high: list[int] = []
    for column, compare, value in wanted:
        if column != "offset":
            continue
        if compare == "In":
            low.append(min(value, default=0))
            high.append(max(value, default=-1) + 1)
        if compare in ("EqualTo", "EqualNullSafe", "GreaterThanOrEqual"):
            low.append(value)
        if compare == "GreaterThan":
            low.append(value + 1)
        if compare in ("EqualTo", "EqualNullSafe", "LessThanOrEqual"):
            high.append(value + 1)
        if compare == "LessThan":
            high.append(value)
    return max(low, default=None), min(high, default=None)
