"""The scheduler finds what luck would miss, and the same schedule gives the same run."""

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.harness.interleaving import Deadlock, Meeting, Outcome, Schedule, schedules

HERE = ("test_interleaving.py",)


class Counter:
    def __init__(self, lock: Any = None) -> None:
        self.value = 0
        self.lock = lock

    def add(self) -> None:
        value = self.value
        value += 1
        self.value = value

    def add_under_lock(self) -> None:
        with self.lock:
            self.add()


def explore(run: Callable[[Meeting], tuple[Outcome, Any]]) -> dict[Schedule, Any]:
    """What each schedule ends with."""
    alone, _ = run(Meeting(HERE, Schedule()))
    return {schedule: run(Meeting(HERE, schedule))[1] for schedule in schedules(alone.lines)}


def two_adds(meeting: Meeting) -> tuple[Outcome, int]:
    counter = Counter()
    outcome = meeting.run(counter.add, counter.add)
    return outcome, counter.value


def two_adds_under_a_lock(meeting: Meeting) -> tuple[Outcome, int]:
    counter = Counter(meeting.lock())
    outcome = meeting.run(counter.add_under_lock, counter.add_under_lock)
    assert outcome.errors == [None, None]
    return outcome, counter.value


def test_a_lost_update_is_found() -> None:
    ends = explore(two_adds)
    assert ends[Schedule(0)] == 2, "one after the other"
    assert 1 in ends.values()


def test_a_lock_mends_it() -> None:
    ends = explore(two_adds_under_a_lock)
    assert set(ends.values()) == {2}
    assert len(ends) > 20


def test_the_same_schedule_gives_the_same_run() -> None:
    schedule = Schedule(first=1, switches=(2, 1))
    first, second = (two_adds(Meeting(HERE, schedule)) for _ in range(2))
    assert first == second
    assert len(first[0].places) == 2


def test_the_order_of_lines_is_the_schedules() -> None:
    order: list[str] = []

    def write(name: str) -> None:
        order.append(name + "1")
        order.append(name + "2")
        order.append(name + "3")

    outcome = Meeting(HERE, Schedule(0, (1, 2))).run(lambda: write("a"), lambda: write("b"))
    assert outcome.errors == [None, None]
    assert order == ["b1", "a1", "a2", "a3", "b2", "b3"]


def test_two_that_wait_for_each_other_are_told() -> None:
    def both(first: Any, second: Any) -> None:
        with first:
            second.acquire()
            second.release()

    deadlocks = []
    for schedule in schedules([4, 4]):
        meeting = Meeting(HERE, schedule)
        one, two = meeting.lock(), meeting.lock()
        try:
            meeting.run(partial(both, one, two), partial(both, two, one))
        except Deadlock as deadlock:
            deadlocks.append(str(deadlock))
    assert deadlocks
    assert all("thread 0 at test_interleaving.py" in text for text in deadlocks)


def test_an_error_of_a_thread_is_told() -> None:
    outcome = Meeting(HERE, Schedule()).run(lambda: 1 / 0, lambda: 7)
    assert isinstance(outcome.errors[0], ZeroDivisionError)
    assert outcome.answers == [None, 7]


def test_every_schedule_is_given_once() -> None:
    every = list(schedules([3, 4]))
    assert len(every) == len(set(every))
    assert Schedule(0) in every
    assert Schedule(1, (3, 2)) in every
    assert list(schedules([3, 4], pre_emptions=0)) == [Schedule(0), Schedule(1)]
