"""What clients of Kafka's protocol are to know of the cluster, on its way to each LogManager.

The Controller knows it, and each LogManager answers it. So the Controller sends it: all of it to
a LogManager that has none, and what has changed to one that has::

    Controller                                       LogManager
        | -- ImageUpdate(base=0, number=1: everything) -> |
        | <---------------- ImageKept(number=1) --------- |
        | -- ImageUpdate(base=1, number=3: changes) ----> |
        | <---------------- ImageKept(number=3) --------- |

Numbers belong to one Controller: those of another epoch mean nothing. An update that does not fit
to what a LogManager has changes nothing, and the answer says what it has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from raylog.actors.plane.sasl.scram import Verifier
from raylog.storage.wire import message

# Of every message here.
VERSION = 1


@message
class Endpoint(NamedTuple):
    """What a process is to clients: its number as a broker, and its port; 0 is any that is free.

    The port is where it listens, as far as it has said that; before, where it shall listen.
    """

    kafka_id: int
    port: int


@message
class NodeEntry(NamedTuple):
    """A node and its LogManager. ``host``: where clients find its processes; empty if unknown."""

    key: str
    endpoint: Endpoint
    host: str


@message
class PartitionEntry(NamedTuple):
    """A partition and its LogActor.

    ``number``: within its topic. ``node``: the key of its node; empty where that is not chosen.
    ``leader_epoch``: -1 where nobody knows it. ``is_online``: whether it serves and listens, as far
    as known. ``has_listened``: whether it has ever done so.
    """

    number: int
    endpoint: Endpoint
    node: str
    leader_epoch: int
    is_online: bool
    has_listened: bool = True


@message
class TopicEntry(NamedTuple):
    """A topic, with its partitions by number."""

    name: str
    topic_id: str
    partitions: tuple[PartitionEntry, ...]


@message
class UserEntry(NamedTuple):
    """Who may come in by SASL. ``verifiers``: one for each mechanism."""

    name: str
    verifiers: tuple[Verifier, ...]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class ImageUpdate:
    """What has changed since ``base``, or all of it where that is 0; ``number``: what it is then.

    ``controller``: the key of the Controller's node. ``nodes``: all of them. ``topics``: the new
    and the changed ones. ``removed``: ids of topics that are gone. ``users``: all of them; None
    where none has changed.
    """

    controller_epoch: int
    base: int
    number: int
    cluster_id: str
    controller: str
    nodes: tuple[NodeEntry, ...]
    topics: tuple[TopicEntry, ...]
    removed: tuple[str, ...] = ()
    users: tuple[UserEntry, ...] | None = None
    version: int = VERSION


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class ImageKept:
    """What a LogManager has: the number of an update, and of whom. 0: nothing."""

    controller_epoch: int = -1
    number: int = 0
    version: int = VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEntries:
    """All entries, as a LogManager has them. It never changes; another one takes its place."""

    cluster_id: str
    controller: str
    nodes: Mapping[str, NodeEntry]
    topics: Mapping[str, TopicEntry] = field(default_factory=dict)  # by id
    # by name, then by mechanism
    users: Mapping[str, Mapping[str, Verifier]] = field(default_factory=dict)

    def after(self, update: ImageUpdate) -> "ClusterEntries":
        """These entries and what has changed."""
        topics = {} if update.base == 0 else dict(self.topics)
        for topic_id in update.removed:
            topics.pop(topic_id, None)
        topics.update((topic.topic_id, topic) for topic in update.topics)
        return ClusterEntries(
            cluster_id=update.cluster_id,
            controller=update.controller,
            nodes={node.key: node for node in update.nodes},
            topics=topics,
            users=self.users if update.users is None else _by_name(update.users),
        )

    def endpoint_of(self, topic_id: str, number: int) -> Endpoint | None:
        """Of a partition; None where it is not known."""
        topic = self.topics.get(topic_id)
        if topic is None:
            return None
        return next((one.endpoint for one in topic.partitions if one.number == number), None)


def _by_name(users: Iterable[UserEntry]) -> dict[str, dict[str, Verifier]]:
    return {user.name: {one.mechanism: one for one in user.verifiers} for user in users}


NO_ENTRIES = ClusterEntries(cluster_id="", controller="", nodes={})
