"""A future ends in time, whatever becomes of the request."""

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from raylog.actors.errors import RequestTimedOut
from raylog.cluster.client.deadlines import Deadlines, end, fail
from raylog.storage.testing.waiting import DEADLINE_S


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def watched(*timeouts_s: float) -> tuple[Clock, Deadlines, "list[Future[Any]]"]:
    clock = Clock()
    deadlines = Deadlines(clock, threaded=False)
    futures: list[Future[Any]] = [Future() for _ in timeouts_s]
    for future, timeout_s in zip(futures, timeouts_s, strict=True):
        deadlines.watch(future, "orders-0", timeout_s)
    return clock, deadlines, futures


def test_a_future_fails_when_its_time_is_up_and_not_before() -> None:
    clock, deadlines, (first, second) = watched(5.0, 9.0)
    clock.now_s += 4.9
    assert deadlines.expire() == 105.0
    assert not first.done()
    clock.now_s += 0.1
    assert deadlines.expire() == 109.0
    error = first.exception(0)
    assert isinstance(error, RequestTimedOut)
    assert (error.what, error.timeout_ms) == ("orders-0", 5000)
    assert not second.done()


def test_a_future_that_has_ended_is_kept_no_longer() -> None:
    clock, deadlines, (first, second, third) = watched(5.0, 5.0, 5.0)
    end(first, "answer")
    fail(second, ValueError())
    third.cancel()
    assert len(deadlines) == 0
    clock.now_s += 5
    assert deadlines.expire() is None
    assert first.result(0) == "answer"


def test_an_answer_that_comes_late_changes_nothing() -> None:
    clock, deadlines, (future,) = watched(5.0)
    clock.now_s += 5
    deadlines.expire()
    end(future, "answer")
    fail(future, ValueError())
    assert isinstance(future.exception(0), RequestTimedOut)


def test_whoever_hears_of_the_end_may_ask_again_at_once() -> None:
    clock, deadlines, (future,) = watched(5.0)
    again: Future[Any] = Future()
    future.add_done_callback(lambda _: deadlines.watch(again, "again", 1.0))
    clock.now_s += 5
    assert deadlines.expire() == 106.0


def test_a_thread_ends_futures_without_anybody_asking() -> None:
    deadlines = Deadlines()
    late: Future[Any] = Future()
    soon: Future[Any] = Future()
    deadlines.watch(late, "late", 3600.0)
    deadlines.watch(soon, "soon", 0.0)
    assert isinstance(soon.exception(30), RequestTimedOut)
    assert not late.done()


def test_a_thread_that_could_not_be_started_is_started_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else no deadline of the process would end any more."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    deadlines, late = Deadlines(), Future[None]()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError):
            deadlines.watch(Future(), "never", 60)
    deadlines.watch(late, "an answer", 0.001)
    assert isinstance(late.exception(DEADLINE_S), RequestTimedOut)
