"""A whole Controller without Ray: its shell and its threads, over nodes that obey at once.

``FakeManagers`` is the way to the LogManagers. A node can hang, or fail to start, when a test says
so; what it reports comes back at once.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from raylog.actors.cluster_image import NO_ENTRIES, ClusterEntries, ImageKept, ImageUpdate
from raylog.actors.control import MetadataKept, MetadataPush, Orders
from raylog.actors.errors import RequestTimedOut
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.metadata_copy import MetadataCopy
from raylog.cluster.controller.events import NodesSeen, Reported
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.shell import ControllerShell
from raylog.storage.errors import RaylogError
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.testing.waiting import wait_for
from tests.harness.control_nodes import PerfectNode

LOG_DIR = "/disk/log"
CLUSTER = "cluster-1"
WITHIN_S = 20.0


class FakeManagers:
    """See ``managers.LogManagers``. Called by many threads."""

    def __init__(self, *nodes: PerfectNode) -> None:
        self.nodes = {node.key: node for node in nodes}
        self.hanging: dict[str, threading.Event] = {}  # until each is set
        self.errors: dict[str, RaylogError] = {}  # why a node's LogManager cannot start
        self.started: list[str] = []
        self.killed: list[str] = []
        self.shown: dict[str, ClusterEntries] = {}  # what each knows for its clients
        self.report: Callable[[Reported], None] = lambda _: None
        self._lock = threading.Lock()
        # Of the nodes, each on a disk of its own.
        self.copies = {
            node.key: MetadataCopy(
                MemoryFileSystem(),
                ManualClock(),
                "/disk",
                cluster_id=CLUSTER,
                node=node.key,
                life=node.life,
                directory_id=next(iter(node.dirs)),
            )
            for node in nodes
        }
        self.copying: dict[str, threading.Event] = {}  # pushes wait until each is set
        self.is_controller = True

    def push(self, node: str, push: MetadataPush, given_up: "Future[None]") -> MetadataKept | None:
        event = self.copying.get(node)
        if event is not None and not event.wait(WITHIN_S):
            raise RequestTimedOut(node, 1)
        return self.copies[node].take(push)

    def show(self, node: str, update: ImageUpdate) -> "Future[ImageKept] | None":
        """Each node takes it at once."""
        with self._lock:
            self.shown[node] = self.shown.get(node, NO_ENTRIES).after(update)
        kept: Future[ImageKept] = Future()
        epoch, number = update.controller_epoch, update.number
        kept.set_result(ImageKept(controller_epoch=epoch, number=number))
        return kept

    def start(self, node: str, given_up: "Future[None]") -> None:
        self._pass(node)
        with self._lock:
            self.started.append(node)
            if node in self.errors:
                raise self.errors[node]
            if self.nodes[node].ended:
                self.nodes[node].restart()
        self.reports(node)

    def obey(self, node: str, orders: Orders, given_up: "Future[None]") -> None:
        self._pass(node)
        with self._lock:
            self.nodes[node].obey(orders)
        self.reports(node)

    def forget(self, node: str) -> None:
        pass

    def kill(self, node: str) -> None:
        with self._lock:
            self.killed.append(node)

    def reports(self, node: str) -> None:
        with self._lock:
            report = self.nodes[node].report()
        self.report(Reported(report=report))

    def hangs(self, node: str) -> threading.Event:
        """Calls to the node wait until the event is set."""
        self.hanging[node] = threading.Event()
        return self.hanging[node]

    def _pass(self, node: str) -> None:
        event = self.hanging.get(node)
        if event is not None and not event.wait(WITHIN_S):
            raise RequestTimedOut(node, 1)


class ShellPlay:
    """A Controller on node ``a``, whose disk is in memory, and its nodes."""

    def __init__(
        self,
        *nodes: PerfectNode,
        fs: MemoryFileSystem | None = None,
        clock: ManualClock | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """``clock``: of the machine; None for a real one. ``config``: of the broker."""
        self.managers = FakeManagers(*nodes)
        dirs = self.managers.nodes["a"].dirs
        first = next(iter(dirs))
        dirs[first] = replace(dirs[first], path=LOG_DIR)
        self.fs = fs or new_disk()
        self.clock = clock
        self.config = BrokerConfig.parse({"log.dirs": [LOG_DIR], **(config or {})})
        self.failures: list[BaseException] = []
        self.shell = self._new_shell()

    def _new_shell(self) -> ControllerShell:
        metadata = MetadataLog(self.fs, ManualClock(), LOG_DIR, new_cluster=CLUSTER)
        shell = ControllerShell(
            self.config,
            metadata,
            "a",
            self.managers,
            failed=self.failures.append,
            clock=self.clock,
            is_controller=lambda question: self.managers.is_controller,
        )
        self.managers.report = shell.put
        return shell

    def start_again(self) -> None:
        """After ``end``: another Controller, which has to ``begin``."""
        self.shell = self._new_shell()

    def begin(self) -> None:
        """Return when all nodes take part."""
        self.shell.begin()
        self.sees(*self.managers.nodes)
        self.shell.wait_until_serving(threading.Event().wait)

    def sees(self, *keys: str) -> None:
        """These nodes are in the Ray cluster."""
        names = [name for key in keys for name in self.managers.nodes[key].actors()]
        nodes = {key: f"ray-{key}" for key in keys}
        self.shell.put(NodesSeen(nodes=nodes, actors=frozenset(names)))

    def end(self) -> bool:
        for event in (*self.managers.hanging.values(), *self.managers.copying.values()):
            event.set()
        self.shell.leave(RequestTimedOut("stopped", 0))
        return self.shell.close()

    def is_soon(self, condition: Callable[[], object], what: str) -> None:
        wait_for(lambda: bool(condition()), WITHIN_S, what)


def new_disk() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_dir("/disk")
    return fs
