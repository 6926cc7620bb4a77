"""Questions that are asked again while their errors may pass, and questions one behind another.

Consumers and producers ask again in loops of their own. This is for those who have none: nothing
here waits, and a pause is a deadline that passes (``deadlines.py``).
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from random import Random
from typing import Final, Generic, TypeVar

from raylog.cluster.client.deadlines import Deadlines, end, fail
from raylog.cluster.client.patience import PASSING, backoff_s

# Kafka's retry.backoff.ms and retry.backoff.max.ms.
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 1.0

Found = TypeVar("Found")
Answer = TypeVar("Answer")


def repeated(
    first: "Future[Answer]",
    ask_again: "Callable[[float], Future[Answer]]",
    deadlines: Deadlines,
    *,
    what: str,
    timeout_s: float,
    is_read: bool = False,
) -> "Future[Answer]":
    """It ends with an answer, with an error that does not pass, or when the time is up.

    ``first``: the question was asked already. ``ask_again`` gets the seconds that are left.
    ``what``, ``is_read``: see ``Deadlines.watch``.
    """
    repeating = _Repeating(ask_again, deadlines, deadlines.now() + timeout_s)
    deadlines.watch(repeating.future, what, timeout_s, is_read=is_read)
    first.add_done_callback(repeating.answered)
    return repeating.future


def then(first: "Future[Found]", ask: "Callable[[Found], Future[Answer]]") -> "Future[Answer]":
    """The answer to a question that needs what another one found; or the first error."""
    future: Future[Answer] = Future()

    def go_on(done: "Future[Found]") -> None:
        error = done.exception()
        if error is None:
            ask(done.result()).add_done_callback(partial(_hand_on, future))
        else:
            fail(future, error)

    first.add_done_callback(go_on)
    return future


def taken(first: "Future[Found]", take: Callable[[Found], Answer]) -> "Future[Answer]":
    """The answer as ``take`` makes it, which may raise; or the error of ``first``."""
    future: Future[Answer] = Future()

    def settle(done: "Future[Found]") -> None:
        error = done.exception()
        if error is not None:
            fail(future, error)
            return
        try:
            end(future, take(done.result()))
        except Exception as refused:
            fail(future, refused)

    first.add_done_callback(settle)
    return future


def _hand_on(future: "Future[Answer]", done: "Future[Answer]") -> None:
    error = done.exception()
    if error is None:
        end(future, done.result())
    else:
        fail(future, error)


class _Repeating(Generic[Answer]):
    def __init__(
        self, ask: "Callable[[float], Future[Answer]]", deadlines: Deadlines, ends_at: float
    ) -> None:
        self.future: Future[Answer] = Future()
        self._ask, self._deadlines, self._ends_at = ask, deadlines, ends_at
        self._failures = 0
        self._random = Random()

    def answered(self, done: "Future[Answer]") -> None:
        """An answer, or an error: for ``add_done_callback``."""
        pause_s = backoff_s(self._failures, FIRST_PAUSE_S, LONGEST_PAUSE_S, self._random)
        is_too_late = self._deadlines.now() + pause_s >= self._ends_at
        if is_too_late or not isinstance(done.exception(), PASSING):
            _hand_on(self.future, done)
            return
        self._failures += 1
        self._deadlines.call_later(pause_s, self._ask_again)

    def _ask_again(self) -> None:
        if self.future.done():  # it was cancelled
            return
        left_s = self._ends_at - self._deadlines.now()
        self._ask(left_s).add_done_callback(self.answered)
