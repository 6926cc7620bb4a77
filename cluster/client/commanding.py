"""Requests to the Controller that wait while it is away: asked again until it answers.

Ray starts a Controller again within seconds. Until then a request fails in one of two ways:

=============  ============================  ====================================================
error          what it says                  the request is
=============  ============================  ====================================================
NotController  it takes no requests yet      asked again as it is: nothing was changed
ActorAway      the call was lost             asked again as one that is repeated, where the
                                             Controller can tell that it has taken effect, or
                                             where it changes nothing; else it ends: AnswerLost
=============  ============================  ====================================================

What the Controller cannot know again (``Command.look_at``) is not repeated, since it would undo
what others have done in between. So that it waits all the same while the Controller is away, it is
sent only when a question was answered.

Every other error is the answer. When the Controller has been away for too long, the request fails
with NothingChanged, or with RequestTimedOut if it may have taken effect.

Ray may hold a call to a process that has died for two seconds. So the Controller is looked for with
questions that do not wait for each other, and the request goes to it as soon as one is answered::

    request --ActorAway--> question, question, question ... --answer--> request

A Controller that hangs (its process is stopped, its machine is stuck) loses no call and answers
none. A request may take days, so its own time says nothing. So while it is under way the Controller
is asked a question now and then; one that leaves questions unanswered for ``patience_s`` is given
up, with RequestTimedOut: the request may take effect later. The time between two questions does not
count: this process may have been suspended in it.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from raylog.actors.errors import (
    ActorAway,
    AnswerLost,
    NotController,
    NothingChanged,
    NotLeader,
    ReadTimedOut,
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
# Between two questions whether a Controller that works on a request still answers.
LISTEN_INTERVAL_S: Final = 10.0

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[Answer]):
    """What is asked.

    ``call``: makes the call; it gets whether an earlier one may have taken effect. ``is_read``: it
    changes nothing. ``look_at``: None where the Controller can tell whether the command has taken
    effect; else it is never repeated, and this is the command line that shows what became of it.
    """

    call: Callable[[ControllerStub, bool], Call[Answer]]
    is_read: bool = False
    look_at: str | None = None


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
    ) -> None:
        """``patience_s``: how long the Controller may be away or silent. ``timeout_s``: for all."""
        self.future: Future[Answer] = Future()
        self._ask_controller, self._deadlines = ask_controller, deadlines
        self._command, self._what = command, what
        self._patience_s = min(patience_s, timeout_s)
        self._ends_at = deadlines.now() + timeout_s
        self._lock = threading.Lock()  # of what follows; held for moments
        self._asked_at = 0.0
        # When the oldest question since the last answer was asked, while a request is under way.
        self._silent_since: float | None = None
        self._away_since: float | None = None
        self._search = 0  # the number of the present one; another one when it has ended
        self._may_be_done = False
        self._why: NotLeader | None = None  # the last error

    def begin(self) -> "Future[Answer]":
        """Ask for the first time. Returns at once."""
        if self._command.look_at is None:
            self._ask()
        else:
            self._away_since = self._deadlines.now()
            self._search_anew()
        return self.future

    def _ask(self) -> None:
        self._asked_at = self._deadlines.now()
        is_repeated = self._may_be_done
        left_s = max(self._ends_at - self._asked_at, 0.0)
        asked = self._ask_controller(
            self._what,
            left_s,
            lambda controller: self._command.call(controller, is_repeated),
            is_read=self._command.is_read,
        )
        asked.add_done_callback(self._answered)
        if left_s > self._patience_s:  # else its own time ends it
            self._silent_since = None
            self._listen(asked)

    # -- while it is under way ---------------------------------------------------------------------

    def _listen(self, asked: "Future[Answer]") -> None:
        """After a pause, ask whether the Controller still answers; give up what it does not."""
        pause_s = LISTEN_INTERVAL_S
        since = self._silent_since
        if since is not None:
            pause_s = min(pause_s, since + self._patience_s - self._deadlines.now())
        self._deadlines.call_later(max(pause_s, 0.0), partial(self._ask_if_there, asked))

    def _ask_if_there(self, asked: "Future[Answer]") -> None:
        if asked.done():
            return
        now, since = self._deadlines.now(), self._silent_since
        if since is None:
            self._silent_since = now
        elif now >= since + self._patience_s:
            fail(asked, self._timed_out())
            return
        question = self._ask_controller(
            "the Controller", self._patience_s, ControllerStub.cluster_id, is_read=True
        )
        question.add_done_callback(self._heard)
        self._listen(asked)

    def _heard(self, done: "Future[str]") -> None:
        if not isinstance(done.exception(), ActorAway | RequestTimedOut):
            self._silent_since = None

    def _timed_out(self) -> RequestTimedOut:
        error = ReadTimedOut if self._command.is_read else RequestTimedOut
        return error(self._what, round(self._patience_s * 1000))

    # -- its end -----------------------------------------------------------------------------------

    def _answered(self, done: "Future[Answer]") -> None:
        error = done.exception()
        if error is None:
            end(self.future, done.result())
        elif isinstance(error, ActorAway | NotController):
            self._away(error)
        else:
            fail(self.future, error)

    def _away(self, error: NotLeader) -> None:
        if isinstance(error, ActorAway) and self._command.look_at is not None:
            lost = AnswerLost(self._what, self._command.look_at)
            lost.__cause__ = error
            fail(self.future, lost)
            return
        now = self._deadlines.now()
        self._why = error
        self._may_be_done = self._may_be_done or isinstance(error, ActorAway)
        if self._away_since is None or now - self._asked_at > self._patience_s:
            self._away_since = now  # before, it was there for long
        self._search_anew()

    # -- looking for the Controller ----------------------------------------------------------------

    def _search_anew(self) -> None:
        with self._lock:
            self._search += 1
            search = self._search
        self._look(search, FIRST_PAUSE_S)

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
            is_better = self._why is None or isinstance(error, NotController)
            if is_better and isinstance(error, NotLeader):
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
        if self._may_be_done and not self._command.is_read:
            error = RequestTimedOut(self._what, timeout_ms)
        else:
            why = "it does not answer" if self._why is None else self._why.why
            error = NothingChanged(self._what, timeout_ms, why)
        error.__cause__ = self._why
        fail(self.future, error)
