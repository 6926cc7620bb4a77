"""Calls to actors: wait for one, or for many by one deadline; Ray's errors by raylog's names.

A :class:`Call` is a method call that is under way, with the type of its answer, and with what it is
for. The stubs (``stubs.py``) make them, so that nothing else needs ``.remote``::

    call = log_actor.says()                     Call[LogSays]
    call.get()                                  LogSays, or the error that the actor raised
    gather({key: call, ...}, timeout_s)         the answers, and the errors, of all of them
"""

import re
from collections.abc import Collection, Hashable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Generic, NamedTuple, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayError, RaySystemError, RayTaskError

from raylog.actors.errors import ActorAway, LogRefused, NeededActorAway, RequestTimedOut
from raylog.actors.runtime.ray_texts import first_sentence
from raylog.storage.errors import RaylogError

Answer = TypeVar("Answer")
Key = TypeVar("Key", bound=Hashable)

# For a call that neither waits for records nor moves data. A healthy actor answers in milliseconds.
CALL_TIMEOUT_S = 30.0
# Opening after a crash reads every unflushed byte back.
OPEN_TIMEOUT_S = 600.0
# What takes as long as the disk does: to move 20 TB at 30 MB/s, to open what a crash has left of
# thousands of logs. An actor that dies over it is noticed at once.
WORK_TIMEOUT_S = 7 * 86_400.0

# The line of a traceback with an error of raylog's: its class, what happened, what to do. Ray keeps
# nothing else of what the creation of an actor raised.
NAMED_ERROR = re.compile(r"raylog\.[\w.]+\.(\w+): (.+?); (.+)")


class Call(Generic[Answer]):
    """A call to an actor that is under way.

    ``reference``: Ray's. ``what``: what the call is for, as errors say it ("opening orders-0").
    """

    __slots__ = ("reference", "what")

    def __init__(self, reference: Any, what: str) -> None:
        self.reference = reference
        self.what = what

    def get(self, timeout_s: float = CALL_TIMEOUT_S) -> Answer:
        """The answer. Raises what the actor raised, or RequestTimedOut or ActorAway."""
        answer: Answer
        try:
            answer = ray.get(self.reference, timeout=timeout_s)
        except Exception as error:
            raise named_error(error, self.what, timeout_s) from error
        return answer

    def get_unless(self, given_up: "Future[None]", timeout_s: float) -> Answer | None:
        """As ``get``; None where ``given_up`` ends before there is an answer."""
        wait([self.future(), given_up], timeout_s, FIRST_COMPLETED)
        if self.is_answered():
            return self.get(timeout_s)
        if given_up.done():
            return None
        raise RequestTimedOut(self.what, int(timeout_s * 1000))

    def is_answered(self) -> bool:
        """Whether ``get`` returns, or raises, at once."""
        return bool(answered([self], timeout_s=0))

    def future(self) -> "Future[Any]":
        """The answer as a future. Its error is Ray's: ``named_error`` makes raylog's of it."""
        future: Future[Any] = self.reference.future()
        return future

    def ignore(self) -> None:
        """Nobody waits for the answer any more.

        Ray prints the error of an answer that nobody has looked at; this looks at it.
        """
        self.future()


class Gathered(NamedTuple, Generic[Key, Answer]):
    """The outcome of each call, by key: in ``answers`` or in ``errors``.

    ``unanswered``: the calls whose time was up, each of which has the error RequestTimedOut. A call
    that the actor answered with this error is not among them.
    """

    answers: dict[Key, Answer]
    errors: dict[Key, Exception]
    unanswered: set[Key]

    def raise_faults(self) -> None:
        """Raise the first error that has no raylog name: nobody is prepared for it."""
        for error in self.errors.values():
            if not isinstance(error, RaylogError):
                raise error


def gather(
    calls: Mapping[Key, Call[Answer]],
    timeout_s: float = CALL_TIMEOUT_S,
    *,
    from_last_answer: bool = False,
) -> Gathered[Key, Answer]:
    """Wait for many calls at once, for ``timeout_s`` in all.

    ``from_last_answer``: the time begins anew with each answer, so that many calls may take long
    while those that hang cost ``timeout_s`` together. A call without an answer is RequestTimedOut.
    """
    left: set[Any] = set()
    if len(calls) > 1:  # ``get`` waits for a single one: a wait before it costs 0.2 ms
        left = {call.reference for call in calls.values()}
    while left:
        done = _wait(left, timeout_s, wanted=1 if from_last_answer else len(left))
        left -= done
        if not done or not from_last_answer:
            break
    gathered: Gathered[Key, Answer] = Gathered({}, {}, set())
    for key, call in calls.items():
        if call.reference in left:
            gathered.errors[key] = RequestTimedOut(call.what, int(timeout_s * 1000))
            gathered.unanswered.add(key)
            continue
        try:
            gathered.answers[key] = call.get(timeout_s)
        except Exception as error:  # also an error that has no name: it is this call's alone
            gathered.errors[key] = error
            if isinstance(error.__cause__, GetTimeoutError):
                gathered.unanswered.add(key)
    return gathered


class Ended(NamedTuple, Generic[Key, Answer]):
    """A call of several: whether it has ended, or nothing was heard for too long."""

    key: Key
    call: Call[Answer]
    is_answered: bool

    def get(self, timeout_s: float = CALL_TIMEOUT_S) -> Answer:
        """As ``Call.get``; ``timeout_s`` is the time that was waited."""
        if not self.is_answered:
            raise RequestTimedOut(self.call.what, int(timeout_s * 1000))
        return self.call.get(timeout_s)


def as_they_end(
    calls: Mapping[Key, Call[Answer]], timeout_s: float = CALL_TIMEOUT_S
) -> Iterator[Ended[Key, Answer]]:
    """Each call when it has ended. When none ends for ``timeout_s``, all that are left."""
    left = dict(calls)
    while len(left) > 1:
        done = set(answered(left.values(), timeout_s))
        for key, call in list(left.items()):
            if call in done or not done:
                del left[key]
                yield Ended(key, call, is_answered=bool(done))
    for key, call in left.items():  # ``get`` waits for a single one: a wait before it costs 0.2 ms
        yield Ended(key, call, is_answered=True)


def answered(
    calls: Collection[Call[Answer]], timeout_s: float | None = None, *, wanted: int = 1
) -> list[Call[Answer]]:
    """Those of ``calls`` that are answered, once ``wanted`` of them are or the time is up.

    ``timeout_s``: None waits for ever.
    """
    if not calls:
        return []
    done = _wait([call.reference for call in calls], timeout_s, wanted=wanted)
    return [call for call in calls if call.reference in done]


def _wait(references: Collection[Any], timeout_s: float | None, *, wanted: int) -> set[Any]:
    """All that are answered once ``wanted`` of them are, or the time is up."""
    pending = list(references)
    done, _ = ray.wait(pending, num_returns=wanted, timeout=timeout_s)
    if done and len(done) < len(pending):
        done, _ = ray.wait(pending, num_returns=len(pending), timeout=0)
    return set(done)


def named_error(
    error: BaseException, what: str, timeout_s: float = CALL_TIMEOUT_S
) -> BaseException:
    """Ray's error by raylog's name: an actor that restarts, a time-out, what the actor raised.

    Also what could not be read, here or there, since another release of raylog has written it.
    """
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, RaySystemError):
        cause = cause.client_exc
    if cause is not error and isinstance(cause, ActorAway):
        return NeededActorAway(cause.what, cause.why)  # the one that was asked has answered
    if cause is not error and isinstance(cause, RaylogError):
        return cause
    if isinstance(error, GetTimeoutError):
        return RequestTimedOut(what, int(timeout_s * 1000))
    if isinstance(error, RayError) and not isinstance(error, RayTaskError):
        # the actor, its node or its owner died, or cannot be placed
        summary = _summary(error)
        refused = NAMED_ERROR.fullmatch(summary)
        if refused is not None:
            return LogRefused(what, *refused.groups())
        return ActorAway(what, first_sentence(summary))
    return error


def _summary(error: BaseException) -> str:
    """The line of Ray's text that tells the cause.

    It is the last of a failed start (the error that was raised there), else the first.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[-1] if "creation task" in lines[0] else lines[0]
