"""Calls are judged as they end: a hanging one does not keep the error of another back."""

from concurrent.futures import Future
from typing import Any

import pytest

from raylog.actors.errors import InvalidRequest, RequestTimedOut
from raylog.actors.runtime.calls import Call, as_they_end
from tests.harness.futures import Timeline, future_of


@pytest.fixture(autouse=True)
def _futures(monkeypatch: pytest.MonkeyPatch) -> None:
    Timeline(monkeypatch)


def call(answer: Any) -> Call[Any]:
    return Call(future_of(answer), "it")


def silent(what: str = "closing orders-0") -> Call[Any]:
    return Call(Future(), what)


def test_a_lasting_error_is_told_before_a_call_that_hangs() -> None:
    calls = {"hangs": silent(), "fails": call(InvalidRequest("offset", -5, "is negative"))}
    first = next(iter(as_they_end(calls)))
    assert first.key == "fails"
    with pytest.raises(InvalidRequest):
        first.get()


def test_what_hangs_is_told_when_nothing_ends_any_more() -> None:
    calls = {"hangs": silent(), "hangs, too": silent("closing orders-1"), "ends": call(7)}
    ends = list(as_they_end(calls, timeout_s=0.01))
    assert [(ended.key, ended.is_answered) for ended in ends] == [
        ("ends", True),
        ("hangs", False),
        ("hangs, too", False),
    ]
    assert ends[0].get() == 7
    with pytest.raises(RequestTimedOut, match="closing orders-0: no answer within 10 ms"):
        ends[1].get(0.01)


def test_a_single_call_is_waited_for_by_its_get() -> None:
    (ended,) = as_they_end({"alone": silent()})
    with pytest.raises(RequestTimedOut, match="closing orders-0: no answer within 10 ms"):
        ended.get(0.01)


def test_no_calls_end_at_once() -> None:
    assert list(as_they_end({})) == []
