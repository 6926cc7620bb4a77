"""Futures in the place of Ray's references, for tests of what waits for actors.

Two fakes of ``ray.wait`` and ``ray.get``: ``futures_are_references`` waits in real time, for
futures that other threads end. A :class:`Timeline` waits in a time of its own, for futures that end
at the times that a test gives them.
"""

import time
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for_futures
from typing import Any

import pytest
import ray
from ray.exceptions import GetTimeoutError


def futures_are_references(patch: pytest.MonkeyPatch) -> None:
    """Have ``ray.wait`` and ``ray.get`` take futures."""
    patch.setattr(ray, "wait", wait)
    patch.setattr(ray, "get", get)


def wait(
    references: "list[Future[Any]]", num_returns: int = 1, timeout: float | None = None
) -> "tuple[list[Future[Any]], list[Future[Any]]]":
    """As ``ray.wait``."""
    deadline_s = None if timeout is None else time.monotonic() + timeout
    while True:
        pending = [reference for reference in references if not reference.done()]
        if len(references) - len(pending) >= num_returns:
            break
        left_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0)
        if not wait_for_futures(pending, left_s, FIRST_COMPLETED).done:
            break
    return _ended(references, num_returns)


def get(reference: "Future[Any]", timeout: float | None = None) -> Any:
    """As ``ray.get`` of one reference."""
    try:
        return reference.result(timeout)
    except TimeoutError:
        raise GetTimeoutError("late") from None


def future_of(outcome: Any) -> "Future[Any]":
    """A call that has ended: with an error if ``outcome`` is one, else with that answer."""
    future: Future[Any] = Future()
    _end(future, outcome)
    return future


class Timeline:
    """``ray.wait`` and ``ray.get`` in a time that passes only while they wait.

    ``now_s``: the time. ``waits``: what ``ray.wait`` was asked for, as (num_returns, timeout).
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.waits: list[tuple[int, float | None]] = []
        self._ends: dict[Future[Any], tuple[float, Any]] = {}  # its time, and its outcome
        patch.setattr(ray, "wait", self.wait)
        patch.setattr(ray, "get", self.get)

    def ends_at(self, second: float, outcome: Any) -> "Future[Any]":
        """A call that ends at this time, as ``future_of`` says. ``Future()`` never ends."""
        future: Future[Any] = Future()
        self._ends[future] = (second, outcome)
        return future

    def wait(
        self, references: "list[Future[Any]]", num_returns: int = 1, timeout: float | None = None
    ) -> "tuple[list[Future[Any]], list[Future[Any]]]":
        """As ``ray.wait``."""
        self.waits.append((num_returns, timeout))
        self._pass_time(references, num_returns, timeout)
        return _ended(references, num_returns)

    def get(self, reference: "Future[Any]", timeout: float | None = None) -> Any:
        """As ``ray.get`` of one reference."""
        self._pass_time([reference], 1, timeout)
        return get(reference, 0)

    def _pass_time(
        self, references: "list[Future[Any]]", wanted: int, timeout: float | None
    ) -> None:
        """To the moment when ``wanted`` of them have ended, or the time is up."""
        times = sorted(self._time_of(reference) for reference in references)
        enough_s = max(times[wanted - 1], self.now_s)
        up_s = float("inf") if timeout is None else self.now_s + timeout
        self.now_s = min(enough_s, up_s)
        assert self.now_s < float("inf"), "this wait would never end"
        for future, (second, outcome) in self._ends.items():
            if second <= self.now_s and not future.done():
                _end(future, outcome)

    def _time_of(self, reference: "Future[Any]") -> float:
        if reference.done():
            return self.now_s
        return self._ends[reference][0] if reference in self._ends else float("inf")


def _ended(
    references: "list[Future[Any]]", most: int
) -> "tuple[list[Future[Any]], list[Future[Any]]]":
    """Those that have ended, at most so many; and the others."""
    done = [reference for reference in references if reference.done()][:most]
    return done, [reference for reference in references if reference not in done]


def _end(future: "Future[Any]", outcome: Any) -> None:
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
