"""The sockets of a LogManager: it answers what concerns the cluster, for all of its node."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from raylog.actors.cluster_image import ClusterEntries, Endpoint
from raylog.actors.coordinators.group_config import OFFSETS_TOPIC, OffsetsTopic
from raylog.actors.coordinators.transactions.config import STATE_TOPIC, StateTopic
from raylog.actors.listeners import LOOPBACK, ON_LOOPBACK, Listener
from raylog.actors.messages import LogDirStatus
from raylog.actors.metrics import Exporter
from raylog.actors.plane.addresses import manager_name
from raylog.actors.plane.cluster_door import ClusterDoor, Commands
from raylog.actors.plane.door import Door
from raylog.actors.plane.errors import ClusterUnknown
from raylog.actors.plane.image import image_of
from raylog.actors.plane.meters import OF_LOG_MANAGER
from raylog.actors.plane.sasl.scram import Verifier
from raylog.actors.plane.sockets import Entrance, Sockets

CLOSE_S: Final = 1.0


class NodeSockets:
    """See the module's head. ``host``: where clients find the processes of the node."""

    def __init__(
        self,
        broker: str,
        node: str,
        commands: Commands,
        log_dirs: Callable[[], Sequence[LogDirStatus]],
        on_failure: Callable[[BaseException], object],
        listeners: Sequence[Listener] = (ON_LOOPBACK,),
        host: str = LOOPBACK,
        offsets_topic: OffsetsTopic = OFFSETS_TOPIC,
        state_topic: StateTopic = STATE_TOPIC,
    ) -> None:
        """``broker``: as of ``broker_id``. ``node``: its key. ``log_dirs``: those of the node.

        ``on_failure``: hears of an error that is not raylog's. ``listeners``: for Kafka's clients.
        ``host``: where they find it, as of ``advertised_host``. ``offsets_topic``, ``state_topic``:
        how the topics of groups and of transactions are made.
        """
        self._node, self.host = node, host
        self._entries: ClusterEntries | None = None
        self._doors = [
            (
                ClusterDoor(
                    commands, log_dirs, offsets_topic=offsets_topic, state_topic=state_topic
                ),
                listener,
            )
            for listener in listeners
        ]
        entrances = [
            Entrance(listener, Door(door), manager_name(broker, node, number))
            for number, (door, listener) in enumerate(self._doors)
        ]
        self._sockets = Sockets(entrances, on_failure, verifier_of=self.verifier_of)

    @property
    def port(self) -> int:
        """Where it listens; 0: nowhere."""
        return self._sockets.port

    def verifier_of(self, mechanism: str, user: str) -> Verifier | None:
        """What is kept of a user's password; None where there is no such user.

        Raises ClusterUnknown while the Controller has not said which there are.
        """
        if self._entries is None:
            raise ClusterUnknown("a user")
        return self._entries.users.get(user, {}).get(mechanism)

    def show(self, entries: ClusterEntries) -> None:
        """Answer by this from now on."""
        self._entries = entries
        image = image_of(self._with_own_address(entries))
        for door, listener in self._doors:
            door.image = image.seen_by(listener)

    def _with_own_address(self, entries: ClusterEntries) -> ClusterEntries:
        """The entries, and where this LogManager listens.

        The Controller hears of it later. Who comes meanwhile, and is told of no broker at all, may
        not ask again for minutes.
        """
        own = entries.nodes.get(self._node)
        if own is None or not self.port:
            return entries
        here = own._replace(host=self.host, endpoint=own.endpoint._replace(port=self.port))
        return replace(entries, nodes={**entries.nodes, self._node: here})

    def keep_up(self, endpoint: Endpoint | None) -> None:
        """Listen, if it does not do so yet. ``endpoint``: None while it is not known."""
        before = self.port
        self._sockets.keep_up(endpoint)
        if self.port != before and self._entries is not None:
            self.show(self._entries)

    def export(self, exporter: Exporter) -> None:
        """Export its metrics."""
        self._sockets.export(exporter, OF_LOG_MANAGER)

    def close(self) -> None:
        """Answer what is in hand, and nothing more."""
        self._sockets.close(CLOSE_S)
