"""The sockets of a LogActor: it answers for its partition, and relays what concerns the cluster."""

import threading
from collections.abc import Callable
from typing import Final

from raylog.actors.cluster_image import Endpoint
from raylog.actors.coordinators.coordinator_log import PartitionLog
from raylog.actors.coordinators.group_coordinator import GroupCoordinator
from raylog.actors.coordinators.transactions.coordinator import TransactionCoordinator
from raylog.actors.errors import NotLeader
from raylog.actors.messages import DataAddress
from raylog.actors.metrics import Exporter
from raylog.actors.partition.partition import Partition
from raylog.actors.partition.spec import LogSpec
from raylog.actors.plane.addresses import log_name, manager_name
from raylog.actors.plane.door import Door
from raylog.actors.plane.errors import AcceptFailed, AddressTaken
from raylog.actors.plane.hosts import Host, Hosts
from raylog.actors.plane.meters import OF_LOG_ACTOR
from raylog.actors.plane.peers.peers import AddressOf, Peers
from raylog.actors.plane.relay import Relay
from raylog.actors.plane.sockets import Entrance, Sockets
from raylog.actors.plane.transactions.markers import MarkerSender
from raylog.actors.plane.transactions.service import Transactions
from raylog.actors.plane.transactions.verifying import Verifier
from raylog.actors.plane.users import VerifierOf
from raylog.storage.clock import SteadyClock, SystemClock
from raylog.storage.names import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicPartition
from raylog.storage.state.properties import id_uuid

# What has been appended shall be answered before the process ends.
CLOSE_S: Final = 1.0


def _nowhere(partition: TopicPartition, topic_id: str) -> DataAddress:
    raise NotLeader(str(partition), "it is on another node, and nobody says where")


class LogSockets:
    """See the module's head."""

    def __init__(
        self,
        spec: LogSpec,
        broker: str,
        verifier_of: VerifierOf = lambda mechanism, user: None,
        address_of: AddressOf = _nowhere,
    ) -> None:
        """``broker``: as of ``broker_id``. ``verifier_of``: of a mechanism and a user.

        ``address_of``: of a partition and its topic's id, where its process listens.
        """
        self._spec, self._broker, self._verifier_of = spec, broker, verifier_of
        self._keeping_up = threading.Lock()
        self._sockets: Sockets | None = None
        self._coordinator: GroupCoordinator | None = None
        self._peers = Peers(broker, manager_name(broker, spec.node), address_of)
        self._transactions = Transactions(self._peers, Verifier(self._peers))
        self._markers: MarkerSender | None = None

    def begin(
        self,
        partition: Partition,
        remove: Callable[[int], int],
        on_failure: Callable[[BaseException], object],
    ) -> None:
        """Answer for this partition from now on; ``keep_up`` makes it listen.

        ``remove``: see ``Host``. ``on_failure``: hears of an error that is not raylog's.
        """
        spec = self._spec
        topic, number = spec.partition
        hosts = Hosts([Host(topic, id_uuid(spec.topic_id).bytes, number, partition, remove)])
        if topic == CONSUMER_OFFSETS:
            self._coordinator = GroupCoordinator(
                str(spec.partition),
                PartitionLog(partition),
                SteadyClock(),
                SystemClock(),
                spec.groups,
                on_failure,
            )
            self._coordinator.begin()
        if topic == TRANSACTION_STATE:
            self._begin_transactions(partition, on_failure)
        entrances = [
            Entrance(one, self._door(place, hosts))
            for place, one in enumerate((spec.listener, *spec.further_listeners))
        ]
        entrances[0].name = log_name(self._broker, spec.topic_id, number)
        self._sockets = Sockets(entrances, on_failure, verifier_of=self._verifier_of)

    def _begin_transactions(
        self, partition: Partition, on_failure: Callable[[BaseException], object]
    ) -> None:
        markers = MarkerSender(self._peers, partition.leader_epoch, on_failure)
        coordinator = TransactionCoordinator(
            str(self._spec.partition),
            PartitionLog(partition),
            SteadyClock(),
            SystemClock(),
            self._spec.transactions,
            markers,
            self._peers.producer_id,
            on_failure,
        )
        markers.begin(coordinator.marked)
        coordinator.begin()
        self._markers = markers
        number = self._spec.partition.partition
        self._transactions = self._transactions._replace(coordinator=coordinator, number=number)

    def _door(self, place: int, hosts: Hosts) -> Door:
        relay = Relay(manager_name(self._broker, self._spec.node, place))
        return Door(relay, hosts, self._coordinator, self._transactions)

    @property
    def port(self) -> int:
        """Where it listens; 0: nowhere."""
        return 0 if self._sockets is None else self._sockets.port

    @property
    def is_everywhere(self) -> bool:
        """Whether it listens wherever it shall."""
        return self._sockets is not None and self._sockets.is_everywhere

    def keep_up(self, ask: Callable[[], Endpoint | None]) -> None:
        """Listen, if it does not do so yet. ``ask``: for the endpoint; None: not known yet.

        Any thread; one that comes while another is at it returns at once.
        """
        sockets = self._sockets
        if sockets is None or sockets.is_everywhere:
            return
        if not self._keeping_up.acquire(blocking=False):
            return
        try:
            sockets.keep_up(None if sockets.port else ask())
        finally:
            self._keeping_up.release()

    def open_inner(self, host: str) -> tuple[int, str]:
        """See ``Sockets.open_inner``. Raises NotLeader where it cannot listen, or not yet."""
        partition = str(self._spec.partition)
        if self._sockets is None:
            raise NotLeader(partition, "its log is not open yet")
        try:
            return self._sockets.open_inner(host)
        except (AcceptFailed, AddressTaken) as error:  # clients try again, also after its end
            raise NotLeader(partition, str(error)) from None

    def export(self, exporter: Exporter) -> None:
        """Export its metrics."""
        if self._sockets is not None:
            self._sockets.export(exporter, OF_LOG_ACTOR)
        if self._coordinator is not None:
            self._coordinator.export(exporter)

    def close(self) -> None:
        """Answer what is in hand, and nothing more."""
        if self._coordinator is not None:
            self._coordinator.stop()
        if self._transactions.coordinator is not None:
            self._transactions.coordinator.stop()
        if self._markers is not None:
            self._markers.stop()
        if self._sockets is not None:
            self._sockets.close(CLOSE_S)
        self._peers.close()
