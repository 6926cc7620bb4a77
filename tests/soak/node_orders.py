"""An operator who stops, starts and drains nodes by command (``raylog node``). Each command is
given again until it has taken effect, as the command says itself; and the next one comes then."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from raylog.cluster.controller.node_states import NodeDescription
from raylog.storage.errors import RaylogError
from tests.soak.history import DRAIN, INFO, OK, START, STOP, UNDRAIN, NodeOrder, Writer

RETRY_S = 0.5


class Commands(Protocol):
    """What a :class:`Broker` does with nodes."""

    def stop_node(self, node: str) -> NodeDescription: ...
    def start_node(self, node: str) -> NodeDescription: ...
    def drain_node(self, node: str, *, undo: bool = False) -> NodeDescription: ...


class Given(NamedTuple):
    """A command that has not taken effect yet. ``node``: its name in the soak."""

    order: str
    node: str


class NodeOrders:
    """A thread; use it as a context manager.

    A node that is away has no id. It comes back under another one, and what was ordered of the old
    one does not matter any more: to stop it, or to drain it, is given up.
    """

    def __init__(
        self, broker: Commands, node_id: Callable[[str], str | None], writer: Writer
    ) -> None:
        """``node_id``: Ray's id of a node by its name; None while it is away."""
        self._broker, self._node_id, self._writer = broker, node_id, writer
        self._given: deque[Given] = deque()
        self._busy = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node orders")

    def __enter__(self) -> "NodeOrders":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """No command is tried meanwhile."""
        with self._busy:
            yield

    def use(self, broker: Commands) -> None:
        """The broker was started again."""
        self._broker = broker

    def give(self, order: str, node: str) -> None:
        self._given.append(Given(order, node))

    @property
    def waiting(self) -> str:
        """What has not taken effect yet; empty if all has."""
        return ", ".join(f"node {given.order} {given.node}" for given in list(self._given))

    def _run(self) -> None:
        while not self._stop.wait(RETRY_S):
            with self._busy:
                while self._given and self.obey():
                    pass

    def obey(self) -> bool:
        """Try the first command once; whether the next one may come."""
        given = self._given[0]
        node_id = self._node_id(given.node)
        if node_id is None and given.order in (START, UNDRAIN):
            return False
        if node_id is None or self._try(given, node_id):
            self._given.popleft()
            return True
        return False

    def _try(self, given: Given, node_id: str) -> bool:
        """Whether it has taken effect. Of a node that is away only its record has."""
        invoked, outcome, is_done = time.monotonic_ns(), INFO, False
        try:
            told = self._command(given.order, node_id)
            is_done = not told.waits_for
            if is_done and told.node_id is not None:
                outcome = OK
            else:
                why = told.waits_for or "it is away"
                print(f"node {given.order} {given.node}: {why}", flush=True)
        except RaylogError as error:
            print(f"node {given.order} {given.node}: {type(error).__name__}: {error}", flush=True)
        op = NodeOrder(given.order, given.node, invoked, time.monotonic_ns(), outcome)
        self._writer.write(op)
        return is_done

    def _command(self, order: str, node_id: str) -> NodeDescription:
        if order == STOP:
            return self._broker.stop_node(node_id)
        if order == START:
            return self._broker.start_node(node_id)
        assert order in (DRAIN, UNDRAIN), order
        return self._broker.drain_node(node_id, undo=order == UNDRAIN)
