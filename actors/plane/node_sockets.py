"""The sockets of a LogManager: it answers what concerns the cluster, for all of its node."""

from collections.abc import Callable
from typing import Final

from raylog.actors.cluster_image import ClusterEntries, Endpoint
from raylog.actors.plane.addresses import manager_name
from raylog.actors.plane.cluster_door import ClusterDoor, Commands
from raylog.actors.plane.door import Door
from raylog.actors.plane.image import image_of
from raylog.actors.plane.sockets import LOOPBACK, Sockets

CLOSE_S: Final = 1.0


class NodeSockets:
    """See the module's head. ``host``: where clients find the processes of the node."""

    host: Final = LOOPBACK

    def __init__(
        self,
        cluster_id: str,
        node: str,
        commands: Commands,
        on_failure: Callable[[BaseException], object],
    ) -> None:
        """``node``: its key. ``on_failure``: hears of an error that is not raylog's."""
        self._cluster = ClusterDoor(commands)
        name = manager_name(cluster_id, node)
        self._sockets = Sockets(name, Door(self._cluster), on_failure)

    @property
    def port(self) -> int:
        """Where it listens; 0: nowhere."""
        return self._sockets.port

    def show(self, entries: ClusterEntries) -> None:
        """Answer by this from now on."""
        self._cluster.image = image_of(entries)

    def keep_up(self, endpoint: Endpoint | None) -> None:
        """Listen, if it does not do so yet. ``endpoint``: None while it is not known."""
        self._sockets.keep_up(endpoint)

    def close(self) -> None:
        """Answer what is in hand, and nothing more."""
        self._sockets.close(CLOSE_S)
