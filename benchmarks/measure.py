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


class Times(NamedTuple):
    """How long a client is warmed up, and then measured."""

    warm_up_s: float
    steady_s: float

    @classmethod
    def of(cls, quick: bool) -> "Times":
        return cls(0.2, 1.0) if quick else cls(2.0, 10.0)


TURNS = 4


def steady(times: Times, *works: Callable[[], int]) -> list[float]:
    """Each work's rate, the median of its turns; a work does one round and returns its count.

    The works take turns, so that what else the machine does falls on all of them. The first half of
    each turn is not counted: what a client has fetched ahead, while the others had their turns, is
    used up then.
    """
    for work in works:
        _rate_of(times.warm_up_s, work)
    turn_s = times.steady_s / TURNS
    rates: list[list[float]] = [[] for _ in works]
    for _ in range(TURNS):
        for work, of_work in zip(works, rates, strict=True):
            if len(works) > 1:
                _rate_of(turn_s, work)
            of_work.append(_rate_of(turn_s, work))
    return [statistics.median(of_work) for of_work in rates]


def _rate_of(duration_s: float, work: Callable[[], int]) -> float:
    """Counts a second over all rounds, waits between them included."""
    started, count = time.perf_counter(), 0
    while (elapsed_s := time.perf_counter() - started) < duration_s:
        count += work()
    return count / elapsed_s


def rate(
    name: str, value: float, unit: str, limit_name: str, limit_value: float, target: str = ""
) -> dict[str, Any]:
    """A figure whose larger is better, beside its limit or peer."""
    return Figure(name, value, unit, limit_name, limit_value, value / limit_value, target).as_dict()
