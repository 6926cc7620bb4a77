"""Where a broker can be asked by socket: by the names of its sockets here, or at addresses."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from raylog.actors.errors import BrokerUnreachable, InvalidRequest
from raylog.actors.known_brokers import KnownBroker
from raylog.actors.plane.addresses import log_name, manager_name
from raylog.actors.plane.apis.cluster import METADATA
from raylog.cluster.client.sockets.cluster_socket import ClusterSocket
from raylog.storage.schemas.types import Value
from raylog.storage.state.properties import id_text

Answer = TypeVar("Answer")

_LEAST_S: Final = 0.001
_NO_ID: Final = UUID(int=0)
_PORTS: Final = range(1, 1 << 16)
_BOOTSTRAP: Final = "bootstrap.servers"


class Place(NamedTuple):
    """Where the LogActor of a partition is, as Metadata says it."""

    topic_id: str
    number: int
    host: str  # empty: nobody serves it now, or it listens at no port
    port: int


class Bootstrap:
    """See the module's head."""

    def __init__(
        self, known: KnownBroker | None = None, addresses: Sequence[tuple[str, int]] = ()
    ) -> None:
        """``known``: a broker of this machine; or the addresses of any processes of one."""
        self.known, self._addresses = known, tuple(addresses)

    def __str__(self) -> str:
        if self.known is not None:
            return manager_name(self.known.broker, self.known.node)
        return ",".join(f"{host}:{port}" for host, port in self._addresses)

    def ask(self, question: Callable[[ClusterSocket], Answer], timeout_s: float) -> Answer:
        """Ask who answers for the cluster; of several the first that does. BrokerUnreachable."""
        ends_at = time.monotonic() + timeout_s
        connections = self._connections()
        error: BrokerUnreachable | None = None
        for number, connect in enumerate(connections):
            share_s = (ends_at - time.monotonic()) / (len(connections) - number)
            try:
                with connect(max(share_s, _LEAST_S)) as cluster:
                    return question(cluster)
            except BrokerUnreachable as one:
                error = error or one
        assert error is not None, "there are no addresses"
        raise error

    def _connections(self) -> list[Callable[[float], ClusterSocket]]:
        if self.known is not None:
            return [partial(ClusterSocket.by_name, str(self))]
        return [partial(ClusterSocket.by_address, *address) for address in self._addresses]

    def log(self, place: Place, timeout_s: float) -> ClusterSocket:
        """A connection to a partition's LogActor. Raises BrokerUnreachable.

        A broker that is known by name opens ports on the loopback alone, or to who says a password:
        a LogActor of another machine is not reached.
        """
        if self.known is not None:
            name = log_name(self.known.broker, place.topic_id, place.number)
            return ClusterSocket.by_name(name, timeout_s)
        if not place.host:
            raise BrokerUnreachable(str(self), "nobody serves the partition")
        return ClusterSocket.by_address(place.host, place.port, timeout_s)


def bootstrap_of(servers: str) -> Bootstrap:
    """``host:port,host:port``, as Kafka's ``bootstrap.servers``. Raises InvalidRequest."""
    addresses = [_address(server.strip()) for server in servers.split(",") if server.strip()]
    if not addresses:
        raise InvalidRequest(_BOOTSTRAP, servers, "give HOST:PORT, or several of them with commas")
    return Bootstrap(addresses=addresses)


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")  # of IPv6
    if not host or not port.isdecimal() or int(port) not in _PORTS:
        raise InvalidRequest(_BOOTSTRAP, server, "an address has the form HOST:PORT")
    return host, int(port)


def metadata_of(cluster: ClusterSocket, topics: Sequence[str] | None = None) -> Value:
    """What the cluster is, and these topics, or all. Raises BrokerUnreachable."""
    body = {
        "topics": None if topics is None else [{"topicId": _NO_ID, "name": one} for one in topics],
        "allowAutoTopicCreation": False,
        "includeTopicAuthorizedOperations": False,
    }
    return cluster.ask(METADATA, body)


def places_of(body: Value) -> dict[str, Sequence[Place]]:
    """Where each topic's partitions are, by the answer to a Metadata request."""
    brokers = {one["nodeId"]: (one["host"], one["port"]) for one in body["brokers"]}
    return {
        topic["name"]: [
            Place(
                id_text(topic["topicId"]),
                part["partitionIndex"],
                *brokers.get(part["leaderId"], ("", 0)),
            )
            for part in sorted(topic["partitions"], key=lambda part: part["partitionIndex"])
        ]
        for topic in body["topics"]
        if not topic["errorCode"]
    }
