"""Where clients find the processes of a node, and what they are told of the cluster there.

The Controller gives each process a number and a port, and tells them with everything else that
clients are to know (``actors/cluster_image.py``). A process whose port is somebody else's listens
at another one. So nobody is told of a port before its process has said that it listens there: who
came to somebody else's port might write into another cluster.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from raylog.actors.cluster_image import (
    NO_ENTRIES,
    VERSION,
    ClusterEntries,
    Endpoint,
    ImageKept,
    ImageUpdate,
)
from raylog.actors.control import LogId, Report
from raylog.actors.errors import UnsupportedVersion
from raylog.actors.metrics import Exporter
from raylog.actors.plane.sasl.scram import Verifier


class Listening(Protocol):
    """Sockets for clients: ``plane/node_sockets.py``. ``port``: where they listen; 0: nowhere."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    def verifier_of(self, mechanism: str, user: str) -> Verifier | None: ...
    def show(self, entries: ClusterEntries) -> None: ...
    def keep_up(self, endpoint: Endpoint | None) -> None: ...
    def export(self, exporter: Exporter) -> None: ...
    def close(self) -> None: ...


class Addresses:
    """See the module's head. Safe for threads."""

    def __init__(
        self,
        node: str,
        sockets: Listening | None,
        listens: Callable[[], object] = lambda: None,
        *,
        has_ports: bool = True,
    ) -> None:
        """``node``: its key. ``sockets``: of the LogManager; None where it has none.

        ``listens``: called when it has begun to listen. ``has_ports``: whether the node's processes
        open ports (``listeners``); else they are reached within the node alone.
        """
        self._node, self._sockets, self._listens = node, sockets, listens
        self._has_ports = has_ports
        self._lock = threading.Lock()  # of all below; sockets are opened with it held
        self._kept = ImageKept()
        self._entries = NO_ENTRIES

    def take(self, update: ImageUpdate) -> ImageKept:
        """Take an update in if it fits; returns what is known then. Raises UnsupportedVersion."""
        if update.version > VERSION:
            raise UnsupportedVersion(f"node {self._node}", update.version, VERSION)
        with self._lock:
            if self._fits(update):
                self._entries = self._entries.after(update)
                epoch, number = update.controller_epoch, update.number
                self._kept = ImageKept(controller_epoch=epoch, number=number)
                if self._sockets is not None:
                    self._sockets.show(self._entries)
            kept = self._kept
        self.keep_up()
        return kept

    def _fits(self, update: ImageUpdate) -> bool:
        kept = self._kept
        if update.controller_epoch != kept.controller_epoch:
            return update.controller_epoch > kept.controller_epoch and update.base == 0
        # One that was sent twice, or has been overtaken, is none.
        return update.number > kept.number and update.base in (0, kept.number)

    def keep_up(self) -> None:
        """Listen, if the LogManager does not do so yet."""
        if self._sockets is None:
            return
        with self._lock:
            before = self._sockets.port
            self._sockets.keep_up(self._own_endpoint())
            is_news = self._sockets.port != before
        if is_news:
            self._listens()

    def _own_endpoint(self) -> Endpoint | None:
        node = self._entries.nodes.get(self._node)
        return None if node is None or not self._has_ports else node.endpoint

    def endpoint_of(self, log: LogId) -> Endpoint | None:
        """Of the LogActor of a log; None while it is not known, or where it opens no port."""
        if not self._has_ports:
            return None
        return self._entries.endpoint_of(log.topic_id, log.partition.partition)

    def verifier_of(self, mechanism: str, user: str) -> Verifier | None:
        """See ``NodeSockets.verifier_of``."""
        return None if self._sockets is None else self._sockets.verifier_of(mechanism, user)

    def told_in(self, report: Report) -> Report:
        """The report, and where the LogManager listens, if it does."""
        if self._sockets is None or not self._sockets.port:
            return report
        return replace(report, host=self._sockets.host, port=self._sockets.port)

    def export(self, exporter: Exporter) -> None:
        """Export the metrics of the LogManager's sockets."""
        if self._sockets is not None:
            self._sockets.export(exporter)

    def stop(self) -> None:
        """Answer clients no more."""
        if self._sockets is not None:
            self._sockets.close()
