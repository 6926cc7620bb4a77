"""Commands that ask a broker by socket, and do not join its Ray cluster, which takes a second.

The broker is known by ``--bootstrap-servers``, or since it runs on this machine: its LogManager
wrote a file (``known_brokers.py``). Where several brokers could be meant, or the one that is meant
does not answer, Ray is asked: it knows which there are, and why one is away.
"""

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from raylog.actors.known_brokers import BrokerFiles
from raylog.cluster.cli.common import connected
from raylog.cluster.cli.interrupts import end_on_sigterm

if TYPE_CHECKING:
    from raylog.cluster.client.bootstrap import Bootstrap, Place
    from raylog.cluster.client.connection import Connection
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


def bootstrap(servers: str | None, address: str | None, namespace: str) -> "Bootstrap | None":
    """Where the broker can be asked by socket; None: it is to be looked for by Ray.

    Raises InvalidRequest, BrokerUnreachable of ``servers``.
    """
    from raylog.cluster.client.bootstrap import Bootstrap, bootstrap_of

    if servers is not None:
        return bootstrap_of(servers)
    wanted = None if (address or "") in _HERE else address
    found = [Bootstrap(known) for known in BrokerFiles().find(namespace, wanted)]
    alive = [one for one in found if _answers(one)]
    return alive[0] if len(alive) == 1 else None


def _answers(bootstrap: "Bootstrap") -> bool:
    """Whether its LogManager listens, and has been told of the cluster."""
    from raylog.actors.errors import BrokerUnreachable
    from raylog.cluster.client.bootstrap import metadata_of

    try:
        with bootstrap.cluster(_PATIENCE_S) as cluster:
            metadata_of(cluster, [])
    except BrokerUnreachable:
        return False
    return True


def connection(servers: str | None, address: str | None, namespace: str) -> "Connection":
    """What a producer or a consumer stands on: by socket if it can be, else by Ray."""
    there = bootstrap(servers, address, namespace)
    if there is None:
        return connected(address, namespace).client_connection()
    end_on_sigterm()
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    from raylog.cluster.client.socket_cluster import SocketCluster
    from raylog.cluster.client.socket_connection import SocketConnection

    return SocketConnection(SocketCluster(there))


# -- topics ----------------------------------------------------------------------------------------


def topic_names(bootstrap: "Bootstrap") -> list[str]:
    """The names of all topics, sorted. Raises BrokerUnreachable."""
    return sorted(_places(bootstrap))


def topics(bootstrap: "Bootstrap") -> list[TopicHolds]:
    """All topics by name, and what each of their partitions holds. Raises BrokerUnreachable."""
    places = _places(bootstrap)
    ends_at = time.monotonic() + ASK_TIMEOUT_S

    def ask(topic: str, place: "Place") -> Holds | None:
        return _holds(bootstrap, topic, place, ends_at)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = {
            topic: [pool.submit(ask, topic, place) for place in places[topic]]
            for topic in sorted(places)
        }
        return [TopicHolds(name, [one.result() for one in all]) for name, all in asked.items()]


def _places(bootstrap: "Bootstrap") -> "Mapping[str, Sequence[Place]]":
    from raylog.cluster.client.bootstrap import metadata_of, places_of

    with bootstrap.cluster(ASK_TIMEOUT_S) as cluster:
        return places_of(metadata_of(cluster))


def _holds(bootstrap: "Bootstrap", topic: str, place: "Place", ends_at: float) -> Holds | None:
    """What a partition holds; None where it does not answer."""
    from raylog.actors.errors import BrokerUnreachable
    from raylog.actors.plane.apis.cluster import DESCRIBE_LOG_DIRS
    from raylog.actors.plane.apis.records import LIST_OFFSETS

    left_s = ends_at - time.monotonic()
    if left_s <= 0:
        return None
    with suppress(BrokerUnreachable), bootstrap.log(place, left_s) as log:
        start, end = (
            _offset(log.ask(LIST_OFFSETS, _offsets_of(topic, place, timestamp)))
            for timestamp in (_EARLIEST, _LATEST)
        )
        asked = {"topics": [{"topic": topic, "partitions": [place.number]}]}
        size_bytes = _size(log.ask(DESCRIBE_LOG_DIRS, asked))
        if start is not None and end is not None and size_bytes is not None:
            return Holds(end - start, size_bytes)
    return None


_LATEST, _EARLIEST = -1, -2


def _offsets_of(topic: str, place: "Place", timestamp: int) -> "Value":
    part = {"partitionIndex": place.number, "currentLeaderEpoch": -1, "timestamp": timestamp}
    topics = [{"name": topic, "partitions": [part]}]
    return {"replicaId": -1, "isolationLevel": 0, "topics": topics, "timeoutMs": 0}


def _offset(body: "Value") -> int | None:
    for topic in body["topics"]:
        for part in topic["partitions"]:
            return None if part["errorCode"] else int(part["offset"])
    return None


def _size(body: "Value") -> int | None:
    """Of the one partition that was asked for; None where it is not there."""
    sizes: list[Any] = [
        part["partitionSize"]
        for log_dir in body["results"]
        for topic in log_dir["topics"]
        for part in topic["partitions"]
    ]
    return int(sizes[0]) if len(sizes) == 1 else None
