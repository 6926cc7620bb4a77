"""How every benchmark measures: two things in turn, in one run, and the medians' ratio.

Absolute figures of a shared machine mean little; a ratio to a limit or a peer, measured alternately
in the same run, carries over.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """One line of the table. ``ratio`` is value / limit_value, unless told otherwise."""

    name: str
    value: float
    unit: str
    limit_name: str
    limit_value: float
    ratio: float
    target: str

    def as_dict(self) -> dict[str, Any]:
        return self._asdict()


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def alternate(rounds: int, *works: Callable[[], float]) -> list[float]:
    """The medians of several measurements, each taken ``rounds`` times, in turn, after one round to
    warm up."""
    for work in works:
        work()
    taken = [[work() for work in works] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def rate(
    name: str, value: float, unit: str, limit_name: str, limit_value: float, target: str = ""
) -> dict[str, Any]:
    """A figure whose larger is better, beside its limit or peer."""
    return Figure(name, value, unit, limit_name, limit_value, value / limit_value, target).as_dict()
