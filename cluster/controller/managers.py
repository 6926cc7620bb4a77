"""The LogManagers as the Controller reaches them: a line to each node, each with its own thread.

A LogManager that hangs keeps only its own line waiting. What is said is not queued: of several
orders only the newest is sent, since each message has everything (``actors/control.py``). An answer
of a LogManager that has died may be late by seconds, so it is not waited for where another life of
it has reported meanwhile: orders for that one are sent at once.

::

    start_manager(node) ---+--> line of a node: one call under way --> LogManager
    tell(orders)        ---+          |
                                      +--> Silent(node), where a call fails or is not answered

A call that fails tells nothing about what the node did. So nothing is decided here: the machine
hears that the node was silent, has its LogManager started again with longer and longer pauses, and
tells it everything anew when it reports.
"""

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Protocol

from raylog.actors.control import Orders
from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.events import warn
from raylog.cluster.controller.events import Silent
from raylog.storage.errors import RaylogError

logger = logging.getLogger(__name__)


class LogManagers(Protocol):
    """The way to the nodes' LogManagers. Each method waits, and raises why it failed.

    ``given_up``: when it ends nobody needs the answer any more, and the method returns.
    """

    def start(self, node: str, given_up: "Future[None]") -> None:
        """Have a LogManager run on a node, with the broker's config; fine if one does."""

    def obey(self, node: str, orders: Orders, given_up: "Future[None]") -> None:
        """Give it orders. Raises RequestTimedOut after a while."""

    def kill(self, node: str) -> None:
        """End it, whatever it does."""

    def forget(self, node: str) -> None:
        """The node is gone: remember nothing of it. One that comes back is found again."""


class _Line:
    """What is to be said to one node, and the thread that says it."""

    def __init__(self, node: str, managers: LogManagers, put: Callable[[Silent], None]) -> None:
        self.node = node
        self.problem: RaylogError | None = None  # why the last call failed; None: it went well
        self._managers, self._put = managers, put
        self._changed = threading.Condition()
        self._is_start_wanted = self._is_stopped = self._is_end = False
        self._orders: Orders | None = None
        self._life = ""  # that was told something last
        self._given_up: Future[None] = Future()  # ends the wait for the answer of the present call
        self._thread = threading.Thread(target=self._run, name=f"line-{node}", daemon=True)
        self._thread.start()

    def start_manager(self) -> None:
        with self._changed:
            self._is_start_wanted = True
            self._changed.notify_all()

    def tell(self, orders: Orders) -> None:
        with self._changed:
            self._orders = orders
            if self._life not in ("", orders.life) and not self._given_up.done():
                self._given_up.set_result(None)
            self._changed.notify_all()

    def stop(self, *, is_end: bool) -> None:
        """``is_end``: of the broker, and not only of this line."""
        with self._changed:
            self._is_stopped, self._is_end = True, is_end
            self._changed.notify_all()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (work := self._next_work()) is not None:
            try:
                work()
                self.problem = None
            except Exception as error:
                self._failed(error)
        self._managers.forget(self.node)

    def _next_work(self) -> Callable[[], None] | None:
        """The next thing to do; None when the line is stopped."""
        with self._changed:
            while not (self._is_stopped or self._is_start_wanted or self._orders):
                self._changed.wait()
            if self._is_stopped:
                return None
            given_up = self._given_up = Future()
            if self._is_start_wanted:
                self._is_start_wanted = False
                return lambda: self._start(given_up)
            orders, self._orders = self._orders, None
            assert orders is not None, "there is something to do"
            self._life = orders.life
            return lambda: self._managers.obey(self.node, orders, given_up)

    def _start(self, given_up: "Future[None]") -> None:
        try:
            self._managers.start(self.node, given_up)
        finally:
            with self._changed:
                is_end = self._is_end
                if given_up.done():  # whether the new life has this broker's config is to be asked
                    self._is_start_wanted = True
                    self._life = ""
            if is_end:  # it was created behind the back of who ended all the others
                self._managers.kill(self.node)

    def _failed(self, error: Exception) -> None:
        named = error if isinstance(error, RaylogError) else NotLeader(self.node, repr(error))
        with self._changed:
            if self._is_stopped:
                return
        if str(self.problem) != str(named):
            is_named = isinstance(error, RaylogError)
            warn(logger, "log-manager-silent", trace=not is_named, node=self.node, why=named)
        self.problem = named
        self._put(Silent(node=self.node, is_refused=not is_passing(named)))


def is_passing(problem: RaylogError) -> bool:
    """Whether a call failed for what passes: an actor that starts, or an answer that is late."""
    return isinstance(problem, NotLeader | RequestTimedOut)


class Managers:
    """A line to each node that was ever told something. Safe for threads."""

    def __init__(self, managers: LogManagers, put: Callable[[Silent], None]) -> None:
        self._managers, self._put = managers, put
        self._lock = threading.Lock()  # of what is below; held for moments
        self._lines: dict[str, _Line] = {}
        self._is_stopped = False

    def start_manager(self, node: str) -> None:
        """Have a LogManager run there. Returns at once."""
        line = self._line(node)
        if line is not None:
            line.start_manager()

    def tell(self, node: str, orders: Orders) -> None:
        """Send orders. Returns at once; orders that were not sent yet are replaced."""
        line = self._line(node)
        if line is not None:
            line.tell(orders)

    def problems(self) -> dict[str, RaylogError]:
        """The key of a node -> why the last call to its LogManager failed, where it did."""
        with self._lock:
            lines = list(self._lines.values())
        return {line.node: line.problem for line in lines if line.problem is not None}

    def keep(self, nodes: Collection[str]) -> None:
        """Only these nodes are there now: nothing is said to the others any more."""
        with self._lock:
            gone = [line for node, line in self._lines.items() if node not in nodes]
            for line in gone:
                del self._lines[line.node]
        for line in gone:
            line.stop(is_end=False)  # who is back by then has another line, and is left alone

    def stop(self, timeout_s: float, *, is_end: bool = True) -> None:
        """Say nothing any more. Waits for calls that are under way, ``timeout_s`` in all.

        ``is_end``: of the broker, so that a LogManager that is being created now is killed when it
        is there. Else the next Controller goes on with it.
        """
        with self._lock:
            self._is_stopped = True
            lines = list(self._lines.values())
        for line in lines:
            line.stop(is_end=is_end)
        for line in lines:
            line.join(timeout_s / len(lines))

    def _line(self, node: str) -> _Line | None:
        with self._lock:
            if self._is_stopped:
                return None
            if node not in self._lines:
                self._lines[node] = _Line(node, self._managers, self._put)
            return self._lines[node]
