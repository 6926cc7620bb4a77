"""The nodes' LogManagers as Ray actors: create them, call them, end them."""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from raylog.actors.cluster_image import ImageUpdate
from raylog.actors.control import MetadataKept, MetadataPush, Orders
from raylog.actors.errors import NotLeader
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.log_manager import LogManager, NodeSpec
from raylog.actors.runtime.handles import create, find, kill
from raylog.actors.runtime.names import Node, log_manager_name
from raylog.actors.runtime.stubs import LogManagerStub

# A LogManager is a new process, and locks all of its log dirs before it answers.
START_TIMEOUT_S = 60.0
# It only puts the orders into its inbox.
OBEY_TIMEOUT_S = 10.0
# Its answer is waited for although the copy is dropped after 10 s: so long nothing else is sent.
PUSH_TIMEOUT_S = 60.0


class RayManagers:
    """See ``managers.LogManagers``.

    ``config``: the broker's, of now. ``node_of``: a node's key -> the node, None where it is away.
    Safe for threads.
    """

    def __init__(
        self,
        namespace: str,
        config: Callable[[], BrokerConfig],
        cluster_id: str,
        node_of: Callable[[str], Node | None],
    ) -> None:
        self._namespace, self._config, self._cluster_id = namespace, config, cluster_id
        self._node_of = node_of
        self._lock = threading.Lock()  # of the numbers; held for moments
        self._next_number = itertools.count(1)
        self._numbers: dict[str, int] = {}
        self._handles: dict[str, Any] = {}

    def start(self, node: str, given_up: "Future[None]") -> None:
        """Have a LogManager run there; a new one begins with the broker's config.

        What one that lives obeys, its reports say. Raises why its log dirs cannot be used:
        LogLocked, InconsistentClusterId, InvalidLogDir, ...
        """
        there = self._node_of(node)
        if there is None:
            raise NotLeader(log_manager_name(node), "its node has left the Ray cluster")
        config = self._config()
        spec = NodeSpec(
            namespace=self._namespace,
            cluster_id=self._cluster_id,
            node_number=self._number_of(node),
            config=config,
        )
        handle = create(LogManager, log_manager_name(node), self._namespace, there, spec)
        self._handles[node] = handle
        LogManagerStub(handle, node).start(config).get_unless(given_up, START_TIMEOUT_S)

    def _number_of(self, node: str) -> int:
        """What ``meta.properties`` of a new log dir has for ``node.id``."""
        with self._lock:
            if node not in self._numbers:
                self._numbers[node] = next(self._next_number)
            return self._numbers[node]

    def obey(self, node: str, orders: Orders, given_up: "Future[None]") -> None:
        """Returns when the orders are in its inbox."""
        handle = self._handles.get(node) or find(log_manager_name(node), self._namespace)
        if handle is None:
            raise NotLeader(log_manager_name(node), "it does not run")
        try:
            LogManagerStub(handle, node).obey(orders).get_unless(given_up, OBEY_TIMEOUT_S)
            self._handles[node] = handle
        except BaseException:
            self._handles.pop(node, None)  # another one may run by now
            raise

    def push(self, node: str, push: MetadataPush, given_up: "Future[None]") -> MetadataKept | None:
        """Returns the answer, when it is on the disk there."""
        handle = self._handles.get(node) or find(log_manager_name(node), self._namespace)
        if handle is None:
            raise NotLeader(log_manager_name(node), "it does not run")
        return LogManagerStub(handle, node).metadata_push(push).get_unless(given_up, PUSH_TIMEOUT_S)

    def show(self, node: str, update: ImageUpdate) -> "Future[Any] | None":
        """Send it to a LogManager that was told something before; an older one does not take it."""
        handle = self._handles.get(node)
        show = getattr(handle, "show", None)
        return None if show is None else LogManagerStub(handle, node).show(update).future()

    def kill(self, node: str) -> None:
        self._handles.pop(node, None)
        kill(log_manager_name(node), self._namespace)

    def forget(self, node: str) -> None:
        self._handles.pop(node, None)
        with self._lock:
            self._numbers.pop(node, None)
