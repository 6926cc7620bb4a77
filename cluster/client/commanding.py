"""Requests to the Controller that wait while it is away: asked again until it answers.

Ray starts a Controller again within seconds. Until then a request fails in one of two ways:

=============  ============================  ====================================================
error          what it says                  the request is
=============  ============================  ====================================================
NotController  it takes no requests yet      asked again as it is: nothing was changed
ActorAway      the call was lost             asked again as one that is repeated: it may have
                                             taken effect, and must not do so twice
=============  ============================  ====================================================

Every other error is the answer. When the Controller has been away for too long, the request fails
with NothingChanged, or with RequestTimedOut if it may have taken effect.

Ray may hold a call to a process that has died for two seconds. So the Controller is looked for with
questions that do not wait for each other, and the request goes to it as soon as one is answered::

    request --ActorAway--> question, question, question ... --answer--> request
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from raylog.actors.errors import (
    ActorAway,
    NotController,
    NothingChanged,
    NotLeader,
    RequestTimedOut,
)
from raylog.actors.runtime.calls import Call
from raylog.cluster.client.deadlines import Deadlines, end, fail
from raylog.cluster.controller.stub import ControllerStub

# How long a Controller that is away is waited for: Kafka's default.api.timeout.ms.
PATIENCE_S: Final = 60.0
# Between two questions whether it is back: twice as long each time.
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 0.5

Answer = TypeVar("Answer")
Command = Callable[[ControllerStub, bool], Call[Answer]]


class AskController(Protocol):
    """``RayConnection.ask_controller``."""

    def __call__(
        self,
        what: str,
        timeout_s: float,
        ask: Callable[[ControllerStub], Call[Any]],
        *,
        is_read: bool = False,
    ) -> "Future[Any]": ...


class Commanding(Generic[Answer]):
    """One request. ``future``: its end."""

    def __init__(
        self,
        ask_controller: AskController,
        deadlines: Deadlines,
        command: "Command[Answer]",
        *,
        what: str,
        timeout_s: float,
        patience_s: float,
        is_read: bool,
    ) -> None:
        """``command``: makes the call; it gets whether an earlier one may have taken effect.

        ``patience_s``: how long the Controller may be away. ``timeout_s``: for all of it.
        ``is_read``: it changes nothing.
        """
        self.future: Future[Answer] = Future()
        self._ask_controller, self._deadlines = ask_controller, deadlines
        self._command, self._what = command, what
        self._patience_s, self._is_read = min(patience_s, timeout_s), is_read
        self._ends_at = deadlines.now() + timeout_s
        self._lock = threading.Lock()  # of what follows; held for moments
        self._asked_at = 0.0
        self._away_since: float | None = None
        self._search = 0  # the number of the present one; another one when it has ended
        self._may_be_done = False
        self._why: NotLeader | None = None  # the last error

    def begin(self) -> "Future[Answer]":
        """Ask for the first time. Returns at once."""
        self._ask()
        return self.future

    def _ask(self) -> None:
        self._asked_at = self._deadlines.now()
        is_repeated = self._may_be_done
        left_s = max(self._ends_at - self._asked_at, 0.0)
        asked = self._ask_controller(
            self._what,
            left_s,
            lambda controller: self._command(controller, is_repeated),
            is_read=self._is_read,
        )
        asked.add_done_callback(self._answered)

    def _answered(self, done: "Future[Answer]") -> None:
        error = done.exception()
        if error is None:
            end(self.future, done.result())
        elif isinstance(error, ActorAway | NotController):
            self._away(error)
        else:
            fail(self.future, error)

    def _away(self, error: NotLeader) -> None:
        now = self._deadlines.now()
        self._why = error
        self._may_be_done = self._may_be_done or isinstance(error, ActorAway)
        if self._away_since is None or now - self._asked_at > self._patience_s:
            self._away_since = now  # before, it was there for long
        with self._lock:
            self._search += 1
            search = self._search
        self._look(search, FIRST_PAUSE_S)

    # -- looking for the Controller ----------------------------------------------------------------

    def _look(self, search: int, pause_s: float) -> None:
        """Ask whether it is back, and after a pause again, whatever becomes of this question."""
        if self.future.done() or search != self._search:
            return
        assert self._away_since is not None, "it is away"
        give_up_at = min(self._away_since + self._patience_s, self._ends_at)
        left_s = give_up_at - self._deadlines.now()
        if left_s <= 0:
            if self._end_search(search):
                self._give_up()
            return
        question = self._ask_controller(
            "the Controller", left_s, ControllerStub.cluster_id, is_read=True
        )
        question.add_done_callback(partial(self._looked, search))
        again = partial(self._look, search, min(2 * pause_s, LONGEST_PAUSE_S))
        self._deadlines.call_later(min(pause_s, left_s), again)

    def _looked(self, search: int, done: "Future[str]") -> None:
        error = done.exception()
        if isinstance(error, NotLeader | RequestTimedOut):
            if isinstance(error, NotController):
                self._why = error
            return
        if not self._end_search(search):
            return
        if error is None:
            self._ask()
        else:
            fail(self.future, error)

    def _end_search(self, search: int) -> bool:
        """Whether the search was going on: only one answer counts, or the end of the patience."""
        with self._lock:
            if search != self._search or self.future.done():
                return False
            self._search += 1
            return True

    def _give_up(self) -> None:
        timeout_ms = round(self._patience_s * 1000)
        error: RequestTimedOut
        if self._may_be_done and not self._is_read:
            error = RequestTimedOut(self._what, timeout_ms)
        else:
            assert self._why is not None, "it is away"
            error = NothingChanged(self._what, timeout_ms, self._why.why)
        error.__cause__ = self._why
        fail(self.future, error)
