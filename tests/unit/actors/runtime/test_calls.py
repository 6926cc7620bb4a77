"""Calls and gather over futures in the place of Ray's references."""

import pickle
import traceback
from concurrent.futures import Future
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RaySystemError, RayTaskError

from raylog.actors.errors import ActorAway, NeededActorAway, NotLeader, RequestTimedOut
from raylog.actors.runtime.calls import Call, answered, gather, named_error
from raylog.storage.errors import LogShorterThanFlushed, StorageError, UnsupportedMessage
from tests.harness.futures import Timeline, future_of


@pytest.fixture(autouse=True)
def timeline(monkeypatch: pytest.MonkeyPatch) -> Timeline:
    """No test here takes any time."""
    return Timeline(monkeypatch)


def call(answer: Any = None, *, what: str = "it") -> Call[Any]:
    return Call(future_of(answer), what)


def at(timeline: Timeline, second: float, answer: Any = None) -> Call[Any]:
    return Call(timeline.ends_at(second, answer), "it")


def task_error(cause: Exception) -> RayTaskError:
    """As ``ray.get`` raises what a method raised."""
    error: RayTaskError = RayTaskError("method", "traceback", cause).as_instanceof_cause()
    return error


def silent(what: str = "silent") -> Call[Any]:
    return Call(Future(), what)


def test_a_call_has_its_answer() -> None:
    assert call(7).get() == 7
    assert call(7).is_answered()
    assert not silent().is_answered()


def test_a_call_without_an_answer_in_time_is_told_by_what_it_is_for() -> None:
    with pytest.raises(RequestTimedOut, match="opening orders-0: no answer within 10 ms"):
        silent("opening orders-0").get(0.01)


def test_an_answer_that_nobody_needs_any_more_is_not_waited_for() -> None:
    class Reference(Future[Any]):
        def future(self) -> Future[Any]:
            return self

    answer: Call[int] = Call(Reference(), "it")
    given_up: Future[None] = Future()
    with pytest.raises(RequestTimedOut, match="no answer within 10 ms"):
        answer.get_unless(given_up, 0.01)
    given_up.set_result(None)
    assert answer.get_unless(given_up, 3_600) is None
    answer.reference.set_result(7)
    assert answer.get_unless(given_up, 3_600) == 7, "it is there all the same"
    assert answer.get_unless(Future(), 3_600) == 7


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
    assert gather({}) == ({}, {}, set())


def test_gather_waits_for_the_slower_call_until_the_deadline_though_the_first_is_answered(
    timeline: Timeline,
) -> None:
    calls = {"quick": at(timeline, 1, "a"), "slow": at(timeline, 4.5, "b")}
    assert gather(calls, timeout_s=5).answers == {"quick": "a", "slow": "b"}
    assert timeline.waits == [(2, 5)]
    assert timeline.now_s == 4.5


def test_without_from_last_answer_the_time_does_not_begin_anew(timeline: Timeline) -> None:
    calls = {"quick": at(timeline, 4, "a"), "late": at(timeline, 6, "b")}
    found = gather(calls, timeout_s=5)
    assert found.answers == {"quick": "a"}
    assert found.unanswered == {"late"}
    assert timeline.now_s == 5


def test_with_from_last_answer_the_time_begins_anew_with_each_answer(timeline: Timeline) -> None:
    calls = {second: at(timeline, second, str(second)) for second in (4, 8, 12)}
    calls[0] = silent()
    found = gather(calls, timeout_s=5, from_last_answer=True)
    assert found.answers == {4: "4", 8: "8", 12: "12"}
    assert found.unanswered == {0}
    assert timeline.now_s == 12 + 5, "what hangs costs the time once, from the last answer on"


def test_a_call_that_ends_after_the_time_from_the_last_answer_is_late(timeline: Timeline) -> None:
    calls = {"quick": at(timeline, 1, "a"), "late": at(timeline, 6.5, "b")}
    found = gather(calls, timeout_s=5, from_last_answer=True)
    assert found.answers == {"quick": "a"}
    assert found.unanswered == {"late"}


@pytest.mark.parametrize("others", [0, 1])
def test_a_time_out_that_the_actor_raised_is_an_answer(timeline: Timeline, others: int) -> None:
    raised = RequestTimedOut("the disk", 7)
    calls = {"raised": at(timeline, 1, task_error(raised))}
    calls |= {str(number): silent() for number in range(others)}
    found = gather(calls, timeout_s=5)
    assert found.errors["raised"] is raised
    assert "raised" not in found.unanswered
    assert len(found.unanswered) == others


def test_one_call_that_hangs_is_unanswered(timeline: Timeline) -> None:
    assert gather({"a": silent()}, timeout_s=5).unanswered == {"a"}


def test_what_the_actor_raised_has_its_name_and_without_a_name_stays_rays() -> None:
    named = StorageError("/disk", "I/O error")
    assert named_error(task_error(named), "it") is named
    for unnamed in (KeyError("a bug"), ActorDiedError()):
        error = task_error(unnamed)
        assert named_error(error, "it") is error
        with pytest.raises(RayTaskError) as raised:
            call(error).get()
        assert raised.value is error


def test_an_actor_that_answers_is_not_away_though_one_that_it_needs_is() -> None:
    """A LogActor killed during its move was told to the user as the end of the Controller."""
    away = ActorAway("rolling t-0", "The actor died")
    error = named_error(task_error(away), "moving t-0")
    assert not isinstance(error, ActorAway)
    assert isinstance(error, NotLeader)
    assert (
        error.problem == "rolling t-0: an actor that this needs cannot be reached: The actor died"
    )
    with pytest.raises(NeededActorAway):
        call(task_error(away)).get()


def test_answered_waits_for_so_many_as_are_wanted_and_tells_all(timeline: Timeline) -> None:
    one, two, three, hangs = (at(timeline, second) for second in (1, 2, 2, float("inf")))
    assert answered([three, two, one, hangs], 5, wanted=2) == [three, two, one]
    assert timeline.now_s == 2
    assert answered([one, hangs], 5, wanted=2) == [one]
    assert timeline.now_s == 2 + 5


def test_of_several_calls_those_that_are_answered_are_told() -> None:
    one, two, hangs = call(1), call(2), silent()
    assert answered([one, hangs, two]) == [one, two]
    assert answered([hangs], timeout_s=0) == []
    assert answered([]) == []
    assert answered([one, two], wanted=2) == [one, two]
    assert answered([one, hangs], timeout_s=0.01, wanted=2) == [one]


def test_an_actor_that_refused_its_log_tells_what_to_do_about_the_log() -> None:
    """Ray keeps only the text of what the creation of an actor raised."""
    refused = LogShorterThanFlushed("/disk/orders-0", 4000, 5000)
    try:
        raise refused
    except LogShorterThanFlushed:
        text = traceback.format_exc()
    dead = ActorDiedError(RayTaskError("__init__", text, refused))
    error = named_error(dead, "opening orders-0")
    assert isinstance(error, NotLeader)
    assert error.problem == f"opening orders-0 failed: LogShorterThanFlushed: {refused.problem}"
    assert error.advice == refused.advice
    assert pickle.loads(pickle.dumps(error)).args == error.args


def test_an_actor_that_failed_otherwise_is_away() -> None:
    text = "Traceback\nValueError: raylog; no"
    error = named_error(
        ActorDiedError(RayTaskError("__init__", text, ValueError("no"))), "opening orders-0"
    )
    assert type(error) is ActorAway
    sentence = "opening orders-0: the actor cannot be reached: ValueError: raylog; no; the request"
    assert str(error).startswith(sentence)


def test_a_message_of_another_release_that_cannot_be_read_is_told_by_its_name() -> None:
    unread = UnsupportedMessage("raylog.actors.control.Report", "9.9.0", "0.1.0", "not known")
    by_ray = RaySystemError(unread, "traceback")
    assert named_error(by_ray, "it") is unread
    assert named_error(task_error(by_ray), "it") is unread
    assert isinstance(named_error(RaySystemError(ValueError("x")), "it"), ActorAway)
