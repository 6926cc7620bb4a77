"""The LogManagers as the Controller reaches them: a line to each node, each with its own thread.

A LogManager that hangs keeps only its own line waiting. What is said is not queued: of several
orders only the newest is sent, since each message has everything (``actors/control.py``).

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
from typing import Protocol

from raylog.actors.control import Orders
from raylog.actors.errors import NotLeader
from raylog.actors.events import warn
from raylog.cluster.controller.events import Silent
from raylog.storage.errors import RaylogError

logger = logging.getLogger(__name__)


class LogManagers(Protocol):
    """The way to the nodes' LogManagers. Each method waits, and raises why it failed."""

    def start(self, node: str) -> None:
        """Have a LogManager run on a node, with the broker's config; fine if one does."""

    def obey(self, node: str, orders: Orders) -> None:
        """Give it orders. Raises RequestTimedOut after a while."""

    def kill(self, node: str) -> None:
        """End it, whatever it does."""


class _Line:
    """What is to be said to one node, and the thread that says it."""

    def __init__(self, node: str, managers: LogManagers, put: Callable[[Silent], None]) -> None:
        self.node = node
        self.problem: RaylogError | None = None  # why the last call failed; None: it went well
        self._managers, self._put = managers, put
        self._changed = threading.Condition()
        self._is_start_wanted = self._is_stopped = self._is_end = False
        self._orders: Orders | None = None
        self._thread = threading.Thread(target=self._run, name=f"line-{node}", daemon=True)
        self._thread.start()

    def start_manager(self) -> None:
        with self._changed:
            self._is_start_wanted = True
            self._changed.notify_all()

    def tell(self, orders: Orders) -> None:
        with self._changed:
            self._orders = orders
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

    def _next_work(self) -> Callable[[], None] | None:
        """The next thing to do; None when the line is stopped."""
        with self._changed:
            while not (self._is_stopped or self._is_start_wanted or self._orders):
                self._changed.wait()
            if self._is_stopped:
                return None
            if self._is_start_wanted:
                self._is_start_wanted = False
                return self._start
            orders, self._orders = self._orders, None
            assert orders is not None, "there is something to do"
            return lambda: self._managers.obey(self.node, orders)

    def _start(self) -> None:
        try:
            self._managers.start(self.node)
        finally:
            with self._changed:
                is_end = self._is_end
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
        self._put(Silent(node=self.node))


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

    def stop(self, timeout_s: float) -> None:
        """Say nothing any more. A LogManager that is being created now is killed when it is there.

        Waits for calls that are under way, ``timeout_s`` in all.
        """
        with self._lock:
            self._is_stopped = True
            lines = list(self._lines.values())
        for line in lines:
            line.stop(is_end=True)
        for line in lines:
            line.join(timeout_s / len(lines))

    def _line(self, node: str) -> _Line | None:
        with self._lock:
            if self._is_stopped:
                return None
            if node not in self._lines:
                self._lines[node] = _Line(node, self._managers, self._put)
            return self._lines[node]
