"""Futures that end in time: with RequestTimedOut, where nothing else has ended them. And pauses.

An actor that hangs answers nothing, and Ray tells nobody. So one thread looks after all requests of
a process, and sleeps until the next of them is due.
"""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Final, NamedTuple

from raylog.actors.errors import ReadTimedOut, RequestTimedOut


class _Due(NamedTuple):
    at: float  # by the clock
    what: str
    timeout_s: float
    is_read: bool

    def error(self) -> RequestTimedOut:
        error = ReadTimedOut if self.is_read else RequestTimedOut
        return error(self.what, int(self.timeout_s * 1000))


class Deadlines:
    """The futures of a process that have not ended. Safe for threads."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, threaded: bool = True
    ) -> None:
        """``threaded``: False where the owner calls :meth:`expire` itself, as tests do."""
        self._clock, self._is_threaded = clock, threaded
        self.start_anew()

    def start_anew(self) -> None:
        """Forget everything: this process was forked off, and the thread is its parent's."""
        self._is_running = not self._is_threaded
        self._changed = threading.Condition()
        self._due: dict[Future[Any], _Due] = {}
        self._wakes_at = float("inf")

    def __len__(self) -> int:
        return len(self._due)

    def now(self) -> float:
        return self._clock()

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call, after so long, what neither waits nor raises."""
        pause: Future[None] = Future()
        pause.add_done_callback(lambda _: call())
        self.watch(pause, "a pause", seconds)

    def watch(
        self, future: "Future[Any]", what: str, timeout_s: float, *, is_read: bool = False
    ) -> None:
        """Fail ``future`` with RequestTimedOut(what), unless it ends within ``timeout_s``.

        ``is_read``: with ReadTimedOut, since what was asked for changes nothing.
        """
        due = _Due(self._clock() + timeout_s, what, timeout_s, is_read)
        with self._changed:
            self._due[future] = due
            if not self._is_running:
                threading.Thread(target=self._run, name="raylog-deadlines", daemon=True).start()
                self._is_running = True  # not where no thread could be started
            elif due.at < self._wakes_at:
                self._changed.notify()
        future.add_done_callback(self._ended)

    def expire(self) -> float | None:
        """Fail the futures whose time is up; returns when the next one is due, by the clock."""
        now = self._clock()
        with self._changed:
            overdue = [(future, due) for future, due in self._due.items() if due.at <= now]
        for future, due in overdue:  # without the lock: whoever waits for them runs here
            fail(future, due.error())
        with self._changed:
            return min((due.at for due in self._due.values()), default=None)

    def _ended(self, future: "Future[Any]") -> None:
        with self._changed:
            self._due.pop(future, None)

    def _run(self) -> None:
        while True:
            self.expire()
            with self._changed:
                # Looked at anew: one may have come since, and nobody was woken for it.
                self._wakes_at = min((due.at for due in self._due.values()), default=float("inf"))
                left_s = self._wakes_at - self._clock()
                if left_s > 0:
                    self._changed.wait(None if left_s == float("inf") else left_s)


DEADLINES: Final = Deadlines()  # the process's
# A process that is forked off has none of its parent's threads.
os.register_at_fork(after_in_child=DEADLINES.start_anew)


def end(future: "Future[Any]", answer: object) -> None:
    """End a future well. One that has ended stays as it is."""
    with suppress(InvalidStateError):  # its time was up, or it was cancelled
        future.set_result(answer)


def fail(future: "Future[Any]", error: BaseException) -> None:
    """End a future with an error. One that has ended stays as it is."""
    with suppress(InvalidStateError):
        future.set_exception(error)
