"""The nodes' LogManagers as Ray actors: create them, call them, end them."""

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from raylog.actors.control import MetadataKept, MetadataPush, Orders
from raylog.actors.errors import NotLeader
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.log_manager import LogManager, NodeSpec
from raylog.actors.runtime.handles import create, find, kill, running
from raylog.actors.runtime.names import Node, log_manager_name
from raylog.actors.runtime.stubs import LogManagerStub

# A LogManager is a new process, and locks all of its log dirs before it answers.
START_TIMEOUT_S = 60.0
# It only puts the orders into its inbox.
OBEY_TIMEOUT_S = 10.0
# Its answer is waited for although the copy is dropped after 10 s: so long nothing else is sent.
PUSH_TIMEOUT_S = 60.0
# How long the name of an actor that was killed may stay.
END_TIMEOUT_S = 10.0
_INTERVAL_S = 0.05


class RayManagers:
    """See ``managers.LogManagers``.

    ``node_of``: a node's key -> the node, None where it is away. Safe for threads.
    """

    def __init__(
        self,
        namespace: str,
        config: BrokerConfig,
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
        """Have a LogManager run there that obeys this broker's config.

        One that lives from an earlier start, with another config, is replaced. Raises why its log
        dirs cannot be used: LogLocked, InconsistentClusterId, InvalidLogDir, ...
        """
        if self._begin(node, given_up):
            return
        self.kill(node)
        self._wait_until_gone(node)
        if not self._begin(node, given_up):
            raise NotLeader(log_manager_name(node), "one with an older config cannot be replaced")

    def _begin(self, node: str, given_up: "Future[None]") -> bool:
        """Whether it runs with this broker's config now, or nobody needs the answer."""
        there = self._node_of(node)
        if there is None:
            raise NotLeader(log_manager_name(node), "its node has left the Ray cluster")
        spec = NodeSpec(
            namespace=self._namespace,
            cluster_id=self._cluster_id,
            node_number=self._number_of(node),
            config=self._config,
        )
        handle = create(LogManager, log_manager_name(node), self._namespace, there, spec)
        self._handles[node] = handle
        call = LogManagerStub(handle, node).start(self._config)
        return call.get_unless(given_up, START_TIMEOUT_S) is not False

    def _number_of(self, node: str) -> int:
        """What ``meta.properties`` of a new log dir has for ``node.id``."""
        with self._lock:
            if node not in self._numbers:
                self._numbers[node] = next(self._next_number)
            return self._numbers[node]

    def _wait_until_gone(self, node: str) -> None:
        deadline_s = time.monotonic() + END_TIMEOUT_S
        while log_manager_name(node) in running(self._namespace):
            if time.monotonic() > deadline_s:
                raise NotLeader(log_manager_name(node), "one with an older config does not end")
            time.sleep(_INTERVAL_S)

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

    def kill(self, node: str) -> None:
        self._handles.pop(node, None)
        kill(log_manager_name(node), self._namespace)

    def forget(self, node: str) -> None:
        self._handles.pop(node, None)
        with self._lock:
            self._numbers.pop(node, None)
