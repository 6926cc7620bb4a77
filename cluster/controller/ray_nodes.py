"""Which nodes the Ray cluster has, and which of them take part: looked at once a second."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from raylog.actors.errors import LabelShared
from raylog.actors.events import warn
from raylog.actors.runtime.handles import running
from raylog.actors.runtime.names import NODE_LABEL, Node, log_manager_name
from raylog.actors.runtime.nodes import alive_nodes
from raylog.cluster.controller.events import NodesSeen, Silent

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0


def members(
    alive: Iterable[Node], in_use: Mapping[str, Node]
) -> tuple[dict[str, Node], dict[str, str]]:
    """The nodes that take part, by their key, and why others do not, by Ray's id.

    Of several with one label it is the one that is ``in_use``, or else the first by its id.
    """
    chosen: dict[str, Node] = {}
    for node in alive:
        used = in_use.get(node.key)
        if node.key not in chosen or (used is not None and used.node_id == node.node_id):
            chosen[node.key] = node
    others = [node for node in alive if chosen[node.key] != node]
    return chosen, {
        node.node_id: str(LabelShared(node.node_id, NODE_LABEL, node.label)) for node in others
    }


class NodeWatch:
    """Tells the machine of the nodes: NodesSeen, and Silent where no LogManager's actor is.

    A look that hangs or fails, because Ray's head does, keeps nobody else waiting.
    """

    def __init__(self, namespace: str, put: Callable[[NodesSeen | Silent], None]) -> None:
        self._namespace, self._put = namespace, put
        self.nodes: Mapping[str, Node] = {}  # those that take part, by their key
        self.others: Mapping[str, str] = {}  # Ray's id of the others -> why they do not
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def node(self, key: str) -> Node | None:
        """The node with this key; None while it is away."""
        return self.nodes.get(key)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.look()
            except Exception as error:
                warn(logger, "nodes-not-seen", trace=True, why=error)
            self._stopped.wait(INTERVAL_S)

    def look(self) -> None:
        """Look once. Raises what Ray raises."""
        self.see(alive_nodes(), running(self._namespace))

    def see(self, alive: Iterable[Node], names: Iterable[str]) -> None:
        """These nodes are up, and actors of these names run."""
        self.nodes, self.others = members(list(alive), self.nodes)
        known = frozenset(names)
        ids = {key: node.node_id for key, node in self.nodes.items()}
        self._put(NodesSeen(nodes=ids, actors=known))
        for key in self.nodes:
            if log_manager_name(key) not in known:
                self._put(Silent(node=key))
