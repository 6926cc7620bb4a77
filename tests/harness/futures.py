"""Futures in the place of Ray's references, for tests of what waits for actors."""

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
    if num_returns < len(references):
        wait_for_futures(references, timeout, FIRST_COMPLETED)
    else:
        wait_for_futures(references, timeout)
    done = [reference for reference in references if reference.done()][:num_returns]
    return done, [reference for reference in references if reference not in done]


def get(reference: "Future[Any]", timeout: float | None = None) -> Any:
    """As ``ray.get`` of one reference."""
    try:
        return reference.result(timeout)
    except TimeoutError:
        raise GetTimeoutError("late") from None


def future_of(outcome: Any) -> "Future[Any]":
    """A call that has ended: with an error if ``outcome`` is one, else with that answer."""
    future: Future[Any] = Future()
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
    return future
