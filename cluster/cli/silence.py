"""Names the partitions that do not answer, while a command waits for them.

A client asks a partition that is silent again and again, each time for ``request.timeout.ms``, and
raises nothing until it is sure. A person at a terminal wants to know sooner. So the command puts
``Watched`` before its connection, which notes who owes an answer and since when, over all requests
and their repetitions::

    consumer --request--> Watched --request--> connection
                             |
                        watching(): a thread that looks, tells, and gives up

A partition that restarts (NotLeader) is as silent as one that hangs.

While the command writes to a slow pipe (``Watched.resting``) it asks nobody again. That time counts
only for who has a request under way.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from raylog.actors.errors import NotLeader, RequestTimedOut

if TYPE_CHECKING:
    from raylog.cluster.client.connection import (
        ApiRequest,
        FetchRequest,
        GroupConnection,
        OffsetRequest,
    )

# A healthy partition answers in milliseconds, and a fetch that waits for records in half a second.
TOLD_AFTER_S: Final = 5.0
# Kafka's request.timeout.ms. Whoever reads to an end gives up then.
GIVE_UP_AFTER_S: Final = 30.0
LOOK_INTERVAL_S: Final = 0.5
CONTROLLER: Final = "the Controller"


@dataclass(slots=True)
class Owed:
    """An answer that somebody owes, over all requests for it.

    ``unasked_since``: nobody asks for it since then; None: somebody does, or will by itself.
    """

    since: float
    requests: int = 0
    unasked_since: float | None = None

    def is_asked(self, now: float) -> None:
        if self.unasked_since is not None:
            self.since += now - self.unasked_since
            self.unasked_since = None

    def silent_s(self, now: float) -> float:
        return (now if self.unasked_since is None else self.unasked_since) - self.since


class Watched:
    """A connection for reading, and who has not answered on it. Safe for threads."""

    max_in_flight = 1

    def __init__(self, connection: "GroupConnection", clock: Callable[[], float]) -> None:
        self._connection, self._clock = connection, clock
        self.namespace = getattr(connection, "namespace", None)
        self._lock = threading.Lock()  # held for moments
        self._owed: dict[str, Owed] = {}
        self._is_resting = False

    def silent(self, seconds: float) -> list[str]:
        """Who has owed an answer for so long, sorted."""
        now = self._clock()
        with self._lock:
            return sorted(who for who, owed in self._owed.items() if owed.silent_s(now) >= seconds)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """The command does something else in here, and repeats no request."""
        with self._lock:
            self._is_resting = True
            for owed in self._owed.values():
                self._rest(owed)
        try:
            yield
        finally:
            with self._lock:
                self._is_resting = False
                for owed in self._owed.values():
                    owed.is_asked(self._clock())

    def _rest(self, owed: Owed) -> None:
        """Nobody asks again. The caller holds the lock."""
        if self._is_resting and owed.requests == 0 and owed.unasked_since is None:
            owed.unasked_since = self._clock()

    def keep(self, partitions: Collection[str]) -> None:
        """Nobody wants an answer of other partitions any more."""
        with self._lock:
            for who in self._owed.keys() - {CONTROLLER, *partitions}:
                del self._owed[who]

    def metadata(self, topic: str, *, timeout_s: float) -> "Future[Any]":
        """See ``connection.Connection``, here and below."""
        return self._watch(CONTROLLER, self._connection.metadata(topic, timeout_s=timeout_s))

    def list_topics(self, *, timeout_s: float) -> "Future[Any]":
        return self._watch(CONTROLLER, self._connection.list_topics(timeout_s=timeout_s))

    def fetch(self, request: "FetchRequest", *, timeout_s: float) -> "Future[Any]":
        asked = self._connection.fetch(request, timeout_s=timeout_s)
        return self._watch(f"{request.topic}-{request.partition}", asked)

    def list_offset(self, request: "OffsetRequest", *, timeout_s: float) -> "Future[Any]":
        asked = self._connection.list_offset(request, timeout_s=timeout_s)
        return self._watch(f"{request.topic}-{request.partition}", asked)

    def ask(self, request: "ApiRequest", *, timeout_s: float) -> "Future[Any]":
        """Not watched: an answer of a coordinator may wait for other members."""
        return self._connection.ask(request, timeout_s=timeout_s)

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self._connection.call_later(seconds, call)

    def forget(self, topic: str, partition: int) -> None:
        self._connection.forget(topic, partition)

    def _watch(self, who: str, asked: "Future[Any]") -> "Future[Any]":
        now = self._clock()
        with self._lock:
            owed = self._owed.setdefault(who, Owed(now))
            owed.is_asked(now)
            owed.requests += 1
        asked.add_done_callback(lambda done: self._ended(who, owed, done))
        return asked

    def _ended(self, who: str, owed: Owed, done: "Future[Any]") -> None:
        is_lost = not done.cancelled() and isinstance(done.exception(), NotLeader | RequestTimedOut)
        with self._lock:
            owed.requests -= 1
            if is_lost:  # it is asked again, and owes the answer still
                self._rest(owed)
            else:
                self._owed.pop(who, None)


class Watch:
    """What is told of silence: each time that somebody falls silent, once."""

    def __init__(
        self,
        watched: Watched,
        tell: Callable[[str], None],
        give_up: Callable[[], None] | None = None,
    ) -> None:
        """``give_up``: called at each look while somebody is silent for too long."""
        self._watched, self._tell, self._give_up = watched, tell, give_up
        self._told: set[str] = set()

    def look(self) -> None:
        """Name those who have fallen silent since the last look."""
        from raylog.cluster.naming import named

        silent = self._watched.silent(TOLD_AFTER_S)
        new = [who for who in silent if who not in self._told]
        self._told = set(silent)
        if new:
            verb = "does" if len(new) == 1 else "do"
            self._tell(
                f"waiting: {named(new)} {verb} not answer; `raylog health` says why, and what to do"
            )
        if self._give_up is not None and self.given_up():
            self._give_up()

    def given_up(self) -> list[str]:
        """Who has been silent for too long."""
        return self._watched.silent(GIVE_UP_AFTER_S)


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Look in a thread."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(LOOK_INTERVAL_S):
            watch.look()

    thread = threading.Thread(target=run, name="raylog-silence", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


def watched(connection: "GroupConnection") -> Watched:
    """By the machine's clock."""
    return Watched(connection, time.monotonic)
