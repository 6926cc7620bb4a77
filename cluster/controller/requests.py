"""Requests that wait for their answer: number -> future. No lock is held while anybody waits."""

import itertools
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from copy import copy
from typing import NamedTuple

from raylog.actors.errors import RequestTimedOut
from raylog.cluster.controller.instructions import Answer, Answered
from raylog.storage.errors import RaylogError


class Request(NamedTuple):
    """A request that was not answered yet."""

    number: int
    future: "Future[Answered]"


class Requests:
    """Those that wait. Safe for threads."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()  # of what is below; held for moments
        self._waiting: dict[int, Future[Answered]] = {}
        self._why_closed: RaylogError | None = None

    def begin(self) -> Request:
        """A new one. Raises why none is answered any more."""
        future: Future[Answered] = Future()
        with self._lock:
            if self._why_closed is not None:
                raise copy(self._why_closed)
            number = next(self._numbers)
            self._waiting[number] = future
        return Request(number, future)

    def wait(self, request: Request, what: str, timeout_s: float) -> Answered:
        """The answer. Raises what it is instead, or RequestTimedOut; ``what`` it is for."""
        try:
            return request.future.result(timeout_s)
        except TimeoutError as error:
            raise RequestTimedOut(what, round(timeout_s * 1000)) from error
        finally:
            with self._lock:
                self._waiting.pop(request.number, None)

    def answer(self, answer: Answer) -> None:
        """The machine answers. Nobody may wait any more: then it is dropped."""
        with self._lock:
            future = self._waiting.pop(answer.request, None)
        if future is None:
            return
        with suppress(InvalidStateError):
            if answer.error is not None:
                future.set_exception(answer.error)
            else:
                future.set_result(answer.value)

    def close(self, why: RaylogError) -> None:
        """All that wait, and all that come, get this error."""
        with self._lock:
            self._why_closed = why
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            with suppress(InvalidStateError):
                future.set_exception(copy(why))
