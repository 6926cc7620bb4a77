"""Calls and gather over futures in the place of Ray's references."""

from concurrent.futures import Future
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError

from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.runtime.calls import Call, answered, gather
from tests.harness.futures import future_of, futures_are_references


@pytest.fixture(autouse=True)
def references(monkeypatch: pytest.MonkeyPatch) -> None:
    futures_are_references(monkeypatch)


def call(answer: Any = None, *, what: str = "it") -> Call[Any]:
    return Call(future_of(answer), what)


def silent(what: str = "silent") -> Call[Any]:
    return Call(Future(), what)


def test_a_call_has_its_answer() -> None:
    assert call(7).get() == 7
    assert call(7).is_answered()
    assert not silent().is_answered()


def test_a_call_without_an_answer_in_time_is_told_by_what_it_is_for() -> None:
    with pytest.raises(RequestTimedOut, match="opening orders-0: no answer within 10 ms"):
        silent("opening orders-0").get(0.01)


def test_a_dead_actor_is_no_leader() -> None:
    with pytest.raises(NotLeader, match="orders-0"):
        call(ActorDiedError(), what="orders-0").get()


def test_gather_tells_answers_and_errors_apart() -> None:
    bug = KeyError("a fault of the actor's own")
    found = gather({"a": call(1), "b": call(bug), "c": silent("closing c")}, timeout_s=0.01)
    assert found.answers == {"a": 1}
    assert found.errors["b"] is bug
    assert str(found.errors["c"]).startswith("closing c: no answer within 10 ms")
    with pytest.raises(KeyError, match="a fault of the actor's own"):
        found.raise_faults()


def test_an_error_with_a_name_is_no_fault() -> None:
    gather({"a": call(ActorDiedError()), "b": silent()}, timeout_s=0.01).raise_faults()


def test_gather_of_one_call_waits_for_it_as_long() -> None:
    assert gather({"a": call(1)}).answers == {"a": 1}
    late = gather({"a": silent("closing a")}, timeout_s=0.01).errors["a"]
    assert str(late).startswith("closing a: no answer within 10 ms")


def test_gather_of_nothing_waits_for_nothing() -> None:
    assert gather({}) == ({}, {})


def test_the_time_may_begin_anew_with_each_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, hangs = silent("first"), silent("second"), silent("hangs")
    coming = [first, second]
    waits: list[int] = []

    def wait(references: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], Any]:
        if timeout == 0:
            return [reference for reference in references if reference.done()], None
        waits.append(len(references))
        if not coming:
            return [], references
        answer = coming.pop(0)
        answer.reference.set_result(answer.what)
        return [answer.reference], None

    monkeypatch.setattr(ray, "wait", wait)
    found = gather({1: first, 2: second, 3: hangs}, timeout_s=5, from_last_answer=True)
    assert found.answers == {1: "first", 2: "second"}
    assert isinstance(found.errors[3], RequestTimedOut)
    assert waits == [3, 2, 1]


def test_of_several_calls_those_that_are_answered_are_told() -> None:
    one, two, hangs = call(1), call(2), silent()
    assert answered([one, hangs, two]) == [one, two]
    assert answered([hangs], timeout_s=0) == []
    assert answered([]) == []
    assert answered([one, two], wanted=2) == [one, two]
    assert answered([one, hangs], timeout_s=0.01, wanted=2) == [one]
