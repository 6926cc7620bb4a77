"""Two threads meet by a schedule, not by luck: every line of chosen files is a place to switch.

A *schedule* says which thread begins, and after how many of its lines each pre-emption comes::

    Schedule(first=0, switches=(12, 3))    thread 0 runs 12 lines, thread 1 runs 3,
                                           then thread 0 runs to its end, then thread 1

A line counts when the thread is about to run it (``sys.settrace``). Only one thread runs at a time,
so that a schedule gives the same run each time. A thread that wants a lock which the other holds
gives way until the lock is free: locks are made by :class:`Meeting` for that reason. Two threads
that wait for each other are a :class:`Deadlock`, told with both places.

``schedules`` gives all schedules with at most two pre-emptions, which find nearly all races of two
threads (CHESS, Musuvathi and Qadeer 2008). Where these are too many, ``stride`` takes every n-th
line, with an offset that the caller draws.

There are tens of thousands of meetings, and to wake a thread is what they cost: threads wait for
the next one, and are woken for their turns alone.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FrameType, TracebackType
from typing import Any, NamedTuple

# A thread that runs neither to a line nor to its end for so long hangs outside of the schedule.
HANG_TIMEOUT_S = 60.0
FOR_EVER = sys.maxsize

Work = Callable[[], Any]


class Schedule(NamedTuple):
    """Who begins, and how many lines each turn has before it is pre-empted."""

    first: int = 0
    switches: tuple[int, ...] = ()


class Deadlock(Exception):
    """Every thread that is left waits for a lock that another one holds."""


class _Thread:
    """A thread for one meeting after the other. It waits until ``turn`` is released."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.turn.acquire()
        self.job: Callable[[], None] | None = None
        threading.Thread(target=self._run, name="meeting", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.turn.acquire()
            assert self.job is not None, "it has a turn and nothing to do"
            self.job()


# They are in no meeting. One that hangs in its meeting does not come back.
_idle: list[_Thread] = []
os.register_at_fork(after_in_child=_idle.clear)


@dataclass(slots=True)
class _Runner:
    """One side of a meeting: what it has done, and where it is."""

    number: int
    work: Work
    thread: _Thread = field(default_factory=lambda: _idle.pop() if _idle else _Thread())
    lines: int = 0
    place: str = ""
    wants: "MeetingLock | None" = None
    is_done: bool = False
    answer: Any = None
    error: BaseException | None = None


class Outcome(NamedTuple):
    """What the threads answered or raised, and how many lines each of them ran."""

    answers: list[Any]
    errors: list[BaseException | None]
    lines: list[int]
    places: list[str]  # where each pre-emption came: "log.py:338"


class MeetingLock:
    """A lock that gives way by the schedule. Not re-entrant, like ``threading.Lock``."""

    def __init__(self, meeting: "Meeting") -> None:
        self._meeting = meeting
        self.owner: _Runner | None = None
        self._is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        while self._is_held:
            if not blocking:
                return False
            self._meeting.wait_for(self)
        self._is_held = True
        self.owner = self._meeting.current()
        return True

    def release(self) -> None:
        assert self._is_held, "released a lock that nobody holds"
        self._is_held = False
        self.owner = None

    def locked(self) -> bool:
        return self._is_held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class Meeting:
    """Runs threads by one schedule. ``files``: the ends of the paths whose lines count."""

    def __init__(self, files: Sequence[str], schedule: Schedule) -> None:
        self._files = tuple(files)
        self._schedule = schedule
        self._turns = iter(schedule.switches)
        self._left = next(self._turns, FOR_EVER)
        self._runners: list[_Runner] = []
        self._by_thread: dict[int, _Runner] = {}
        self._over = threading.Lock()
        self._over.acquire()
        self._deadlock: Deadlock | None = None
        self._places: list[str] = []

    def lock(self) -> MeetingLock:
        """A lock for the threads of this meeting, to stand where ``threading.Lock()`` would."""
        return MeetingLock(self)

    def current(self) -> "_Runner | None":
        """The runner of this thread; None of the thread that set the scene."""
        return self._by_thread.get(threading.get_ident())

    def run(self, *works: Work) -> Outcome:
        """Run the threads to their ends. Raises Deadlock."""
        self._runners = [_Runner(number, work) for number, work in enumerate(works)]
        for runner in self._runners:
            runner.thread.job = partial(self._run, runner)
        self._runners[self._schedule.first].thread.turn.release()
        if not self._over.acquire(timeout=HANG_TIMEOUT_S):
            where = ", ".join(runner.place for runner in self._runners if not runner.is_done)
            raise TimeoutError(f"{self._schedule}: hangs outside of the schedule, last at {where}")
        if self._deadlock is not None:
            raise self._deadlock
        _idle.extend(runner.thread for runner in self._runners)
        return Outcome(
            answers=[runner.answer for runner in self._runners],
            errors=[runner.error for runner in self._runners],
            lines=[runner.lines for runner in self._runners],
            places=self._places,
        )

    # -- in the threads ----------------------------------------------------------------------------

    def _run(self, runner: _Runner) -> None:
        self._by_thread[threading.get_ident()] = runner
        sys.settrace(self._trace)
        try:
            runner.answer = runner.work()
        except BaseException as error:
            runner.error = error
        finally:
            sys.settrace(None)
        runner.is_done = True
        self._left = next(self._turns, FOR_EVER)
        self._hand_over(runner)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(self._files):
            return None
        return self._trace_lines

    def _trace_lines(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            runner = self._by_thread[threading.get_ident()]
            runner.lines += 1
            runner.place = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
            if self._left == 0:
                self._pre_empt(runner)
            self._left -= 1
        return self._trace_lines

    def _pre_empt(self, runner: _Runner) -> None:
        self._left = next(self._turns, FOR_EVER)
        if self._next_after(runner) is not None:
            self._places.append(runner.place)
            self._hand_over(runner)
            runner.thread.turn.acquire()

    def wait_for(self, lock: MeetingLock) -> None:
        """Give way until the lock may be free. Called by the thread that wants it."""
        runner = self.current()
        assert runner is not None, "who sets the scene must not wait for a lock"
        runner.wants = lock
        self._hand_over(runner)
        runner.thread.turn.acquire()
        runner.wants = None

    def _hand_over(self, runner: _Runner) -> None:
        """Let the next thread run that can, or end the meeting."""
        following = self._next_after(runner)
        if following is not None:
            following.thread.turn.release()
            return
        waiting = [other for other in self._runners if not other.is_done]
        if waiting:
            places = ", ".join(f"thread {other.number} at {other.place}" for other in waiting)
            self._deadlock = Deadlock(f"{self._schedule}: {places}")
        self._over.release()

    def _next_after(self, runner: _Runner) -> _Runner | None:
        count = len(self._runners)
        for step in range(1, count + 1):
            other = self._runners[(runner.number + step) % count]
            is_blocked = other.wants is not None and other.wants.locked()
            if not other.is_done and not is_blocked and (other is not runner or runner.wants):
                return other
        return None


def schedules(
    lines: Sequence[int], *, pre_emptions: int = 2, stride: int = 1, offset: int = 0
) -> Iterator[Schedule]:
    """All schedules of two threads that run so many lines alone, with at most two pre-emptions."""
    assert len(lines) == 2, "two threads"
    assert pre_emptions <= 2, "more than two are more than a suite can run"
    for first in (0, 1):
        own, other = lines[first], lines[1 - first]
        yield Schedule(first)
        if pre_emptions < 1:
            continue
        for begin in range(1 + offset, own, stride):
            yield Schedule(first, (begin,))
            if pre_emptions == 2:
                for middle in range(1 + offset, other, stride):
                    yield Schedule(first, (begin, middle))
