"""Commands that ask a broker by socket, and do not join its Ray cluster, which takes a second.

The broker is known by ``--bootstrap-servers``, or since it runs on this machine: its LogManager
wrote a file (``known_brokers.py``). Where several brokers could be meant, or something of the one
that is meant does not answer, Ray is asked: it knows which there are, and why one is away.
"""

import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from raylog.actors.known_brokers import BrokerFiles, KnownBroker
from raylog.cluster.cli.common import connected, quiet_ray
from raylog.storage.errors import RaylogError

if TYPE_CHECKING:
    from raylog.cluster.client.bootstrap import Bootstrap, Place
    from raylog.cluster.client.connection import GroupConnection
    from raylog.cluster.client.sockets.cluster_socket import ClusterSocket
    from raylog.storage.schemas.types import Value

Servers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        envvar="RAYLOG_BOOTSTRAP_SERVERS",
        help="Ask the broker that listens there, without Ray. Default: the broker of this machine.",
    ),
]
# Ray's words for a cluster of this machine.
_HERE: Final = ("", "auto", "local")
# A LogManager of this machine that is silent for so long is left to Ray.
_PATIENCE_S: Final = 2.0
ASK_TIMEOUT_S: Final = 5.0
# Kafka's special times of ListOffsets.
_LATEST, _EARLIEST = -1, -2
# Connections at once.
_AT_ONCE: Final = 16


class Holds(NamedTuple):
    """What a partition holds."""

    records: int
    size_bytes: int


class TopicHolds(NamedTuple):
    """What a topic holds; None for a partition that does not answer."""

    name: str
    partitions: list[Holds | None]


class Wanted(NamedTuple):
    """Which broker is meant."""

    context: typer.Context  # of the command, which tells who says so
    servers: str | None
    address: str | None
    namespace: str


def bootstrap(wanted: Wanted) -> "Bootstrap | None":
    """Where a broker can be asked by socket; None: it is to be looked for by Ray.

    Raises InvalidRequest of its servers.
    """
    from raylog.cluster.client.bootstrap import Bootstrap, bootstrap_of

    if wanted.servers is not None and not _is_overruled(wanted.context):
        return bootstrap_of(wanted.servers)
    ray_address = None if (wanted.address or "") in _HERE else wanted.address
    found = BrokerFiles().find(wanted.namespace, ray_address)
    if len(found) > 1:
        found = [known for known in found if _may_run(known)]
    if len(found) != 1:
        return None
    there = Bootstrap(found[0])
    return there if _answers(there) else None


def _is_overruled(context: typer.Context) -> bool:
    """Whether the environment names addresses, and the command line another broker.

    Raises BadParameter where the command line names both.
    """
    sources = {name: context.get_parameter_source(name) for name in Wanted._fields[1:]}
    given = {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}
    is_other = bool(given & {"address", "namespace"})
    if "servers" in given and is_other:
        raise typer.BadParameter("give --bootstrap-servers, or --address and --namespace")
    return is_other


def _may_run(known: KnownBroker) -> bool:
    """Whether its Ray cluster may be there yet: not where nobody listens at its address."""
    host, _, port = known.ray_address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_PATIENCE_S):
            return True
    except ConnectionRefusedError:
        return False
    except (OSError, ValueError):
        return True


def _answers(bootstrap: "Bootstrap") -> bool:
    """Whether its LogManager listens, and has been told of the cluster."""
    from raylog.actors.errors import BrokerUnreachable
    from raylog.cluster.client.bootstrap import metadata_of

    try:
        bootstrap.ask(lambda cluster: metadata_of(cluster, []), _PATIENCE_S)
    except BrokerUnreachable:
        return False
    return True


def connection(wanted: Wanted) -> "GroupConnection":
    """What a producer or a consumer stands on: by socket if it can be, else by Ray."""
    there = bootstrap(wanted)
    if there is None:
        return connected(wanted.address, wanted.namespace).client_connection()
    quiet_ray()  # it is joined where a partition is on another machine
    from raylog.cluster.client.ray_connection import RayConnection
    from raylog.cluster.client.socket_cluster import SocketCluster
    from raylog.cluster.client.socket_connection import SocketConnection

    known = there.known
    by_ray = None if known is None else RayConnection(known.namespace, known.ray_address)
    return SocketConnection(SocketCluster(there, by_ray))


# -- topics ----------------------------------------------------------------------------------------


def topic_names(bootstrap: "Bootstrap") -> list[str]:
    """The names of all topics, sorted. Raises BrokerUnreachable."""
    return sorted(_places(bootstrap))


def topics(bootstrap: "Bootstrap") -> list[TopicHolds] | None:
    """All topics by name, and what each of their partitions holds. Raises BrokerUnreachable.

    None where a partition does not answer, and Ray may know more of it.
    """
    places = _places(bootstrap)
    ends_at = time.monotonic() + ASK_TIMEOUT_S

    def ask(topic: str, place: "Place") -> Holds | None:
        return _holds(bootstrap, topic, place, ends_at)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = {
            topic: [pool.submit(ask, topic, place) for place in places[topic]]
            for topic in sorted(places)
        }
        found = [TopicHolds(name, [one.result() for one in all]) for name, all in asked.items()]
    is_whole = all(None not in topic.partitions for topic in found)
    return found if is_whole or bootstrap.known is None else None


def _places(bootstrap: "Bootstrap") -> "Mapping[str, Sequence[Place]]":
    from raylog.cluster.client.bootstrap import metadata_of, places_of

    return places_of(bootstrap.ask(metadata_of, ASK_TIMEOUT_S))


def _holds(bootstrap: "Bootstrap", topic: str, place: "Place", ends_at: float) -> Holds | None:
    """What a partition holds; None where it does not answer."""
    from raylog.actors.plane.apis.cluster import DESCRIBE_LOG_DIRS

    left_s = ends_at - time.monotonic()
    if left_s <= 0:
        return None
    # ValueError: what answers there is no LogActor.
    with suppress(RaylogError, ValueError), bootstrap.log(place, left_s) as log:
        start = _offset(log, topic, place, _EARLIEST)
        end = _offset(log, topic, place, _LATEST)
        asked = {"topics": [{"topic": topic, "partitions": [place.number]}]}
        size_bytes = _size(log.ask(DESCRIBE_LOG_DIRS, asked))
        return None if size_bytes is None else Holds(end - start, size_bytes)
    return None


def _offset(log: "ClusterSocket", topic: str, place: "Place", timestamp: int) -> int:
    """Raises RaylogError, and ValueError."""
    from raylog.cluster.client.connection import OffsetRequest
    from raylog.cluster.client.sockets.wire import offset_answer, offset_request

    request = OffsetRequest(topic, place.topic_id, place.number, -1, timestamp)
    frame = log.answer_to(partial(offset_request, request))
    return offset_answer(frame, f"{topic}-{place.number}").offset


def _size(body: "Value") -> int | None:
    """Of the one partition that was asked for; None where it is not there."""
    sizes: list[Any] = [
        part["partitionSize"]
        for log_dir in body["results"]
        for topic in log_dir["topics"]
        for part in topic["partitions"]
    ]
    return int(sizes[0]) if len(sizes) == 1 else None
