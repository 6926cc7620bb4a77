"""Which Controller of a process answers, and that a stop waits for the end of the one before."""

import threading

import pytest

from raylog.actors.errors import NotLeader
from raylog.cluster.controller.current import Current
from raylog.storage.errors import RaylogError
from raylog.storage.testing.waiting import DEADLINE_S, wait_for

BEGINS = NotLeader("the broker", "it begins")
AGAIN = NotLeader("the broker", "it begins again")
STOPS = NotLeader("the broker", "it is stopping")


class Controller:
    """It is closed when ``may_close`` is set."""

    def __init__(self, *, is_in_order: bool = True) -> None:
        self.is_in_order = is_in_order
        self.done: list[str] = []
        self.closing, self.may_close = threading.Event(), threading.Event()
        self.may_close.set()

    def leave(self, why: RaylogError, *, is_end: bool = True) -> None:
        self.done.append("left for good" if is_end else "left")

    def make_room(self) -> None:
        self.done.append("made room")

    def close(self) -> bool:
        self.closing.set()
        assert self.may_close.wait(DEADLINE_S)
        self.done.append("closed")
        return self.is_in_order


class Stop:
    """A stop of the broker, in a thread."""

    def __init__(self, current: Current[Controller], timeout_s: float = DEADLINE_S) -> None:
        self.has_ended = threading.Event()
        self._current, self._timeout_s = current, timeout_s
        threading.Thread(target=self._run, daemon=True).start()
        assert current.stopped.wait(DEADLINE_S)

    def _run(self) -> None:
        self._current.stop(STOPS, self._timeout_s)
        self.has_ended.set()


def why_not(current: Current[Controller]) -> NotLeader:
    with pytest.raises(NotLeader) as caught:
        current.get()
    return caught.value


def in_thread(current: Current[Controller]) -> threading.Thread:
    thread = threading.Thread(target=current.retire, args=(AGAIN, AGAIN), daemon=True)
    thread.start()
    return thread


def test_while_there_is_none_everybody_hears_why() -> None:
    current = Current[Controller](BEGINS)
    assert str(why_not(current)) == str(BEGINS)
    current.explain(AGAIN)
    assert str(why_not(current)) == str(AGAIN)
    controller = Controller()
    current.take_over(controller)
    assert current.get() is controller


def test_one_that_is_retired_is_ended_and_another_follows() -> None:
    current, first, second = Current[Controller](BEGINS), Controller(), Controller()
    current.take_over(first)
    assert current.retire(AGAIN, AGAIN)
    assert first.done == ["left", "closed"]
    assert str(why_not(current)) == str(AGAIN)
    current.take_over(second)
    assert current.get() is second
    assert current.stop(STOPS) is second
    assert second.done == ["left for good", "made room"]
    assert current.is_retired()


def test_a_stop_waits_for_the_end_of_one_that_is_being_retired() -> None:
    current, controller = Current[Controller](BEGINS), Controller()
    current.take_over(controller)
    controller.may_close.clear()
    retiring = in_thread(current)
    assert controller.closing.wait(DEADLINE_S)
    stop = Stop(current)
    assert not stop.has_ended.is_set()
    assert controller.done == ["left"]
    assert str(why_not(current)) == str(STOPS)
    controller.may_close.set()
    assert stop.has_ended.wait(DEADLINE_S)
    assert controller.done == ["left", "closed"]
    assert current.is_retired()
    retiring.join(DEADLINE_S)


def test_it_does_not_wait_for_ever() -> None:
    current, controller = Current[Controller](BEGINS), Controller()
    current.take_over(controller)
    controller.may_close.clear()
    retiring = in_thread(current)
    assert controller.closing.wait(DEADLINE_S)
    stop = Stop(current, timeout_s=0.0)
    assert stop.has_ended.wait(DEADLINE_S)
    assert not current.is_retired()
    controller.may_close.set()
    retiring.join(DEADLINE_S)
    wait_for(current.is_retired)


def test_one_that_could_not_be_closed_makes_the_end_unclean() -> None:
    current = Current[Controller](BEGINS)
    current.take_over(Controller(is_in_order=False))
    assert not current.retire(AGAIN, AGAIN)
    current.stop(STOPS)
    assert not current.is_retired()


def test_one_that_was_closed_well_does_not_hide_one_that_was_not() -> None:
    current = Current[Controller](BEGINS)
    for is_in_order in (False, True):
        current.take_over(Controller(is_in_order=is_in_order))
        current.retire(AGAIN, AGAIN)
    current.stop(STOPS)
    assert not current.is_retired()


def test_one_that_comes_after_a_stop_and_cannot_be_closed_makes_the_end_unclean() -> None:
    current = Current[Controller](BEGINS)
    current.stop(STOPS)
    with pytest.raises(NotLeader):
        current.take_over(Controller(is_in_order=False))
    assert not current.is_retired()


def test_after_a_stop_none_begins_and_none_is_retired() -> None:
    current, late = Current[Controller](BEGINS), Controller()
    assert current.stop(STOPS) is None
    with pytest.raises(NotLeader, match="stopping"):
        current.take_over(late)
    assert late.done == ["closed"]
    assert not current.retire(AGAIN, AGAIN)
    current.explain(AGAIN)
    assert str(why_not(current)) == str(STOPS)
    assert current.is_retired()
