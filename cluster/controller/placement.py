"""Where each partition is: on which node's disk, or why it is nowhere. The Controller's map.

A partition is bound to a log dir by the dir's id; only a move binds it to another. A dir is on the
node that brought it, for as long as that node lives. A partition with neither a place nor a problem
is away: its dir is on no node, or it is about to be opened there.

This module decides what is opened and closed and where new partitions go; the Controller does it.
It knows no Ray.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, NamedTuple

from raylog.actors.errors import LabelShared, LogRefused, NotLeader, UnknownTopicOrPartition
from raylog.actors.messages import Found, OfflineDir, Placed
from raylog.actors.runtime.names import NODE_LABEL, Node, log_actor_name
from raylog.cluster.controller.backoff import Backoff
from raylog.cluster.controller.metadata import Topic
from raylog.storage.errors import LogDirOffline, LogMissing, RaylogError, TopicIdUnreadable
from raylog.storage.names import TopicPartition

BEING_OPENED = "it is being opened"


class PartitionDescription(NamedTuple):
    """One partition: where it is, or why it is not, and what to do."""

    partition: int
    directory_id: str
    node_id: str | None
    folder: str | None
    problem: str | None
    todo: str | None = None


class TopicDescription(NamedTuple):
    """One topic."""

    name: str
    topic_id: str
    config: Mapping[str, Any]
    partitions: tuple[PartitionDescription, ...]
    # The numbers of those that do not report this config: they obey an older one, or do not serve.
    outdated: tuple[int, ...] = ()


class ClusterDescription(NamedTuple):
    """The cluster as a whole. ``nodes``: id -> None where a LogManager runs, else why not."""

    cluster_id: str
    controller_node_id: str
    nodes: Mapping[str, str | None]


class Wanted(NamedTuple):
    """A partition that ought to be, and the log dir that it is bound to."""

    partition: TopicPartition
    topic: Topic
    directory_id: str


def wanted_of(topics: Iterable[Topic]) -> list[Wanted]:
    """All the partitions of ``topics``."""
    return [
        Wanted(TopicPartition(topic.name, number), topic, directory_id)
        for topic in topics
        for number, directory_id in enumerate(topic.directories)
    ]


def members(
    alive: Iterable[Node], in_use: Mapping[str, Node]
) -> tuple[dict[str, Node], dict[str, str]]:
    """The nodes that take part, by their key, and why others do not, by their id.

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


class Placement:
    """The map. Not safe for threads: the Controller guards it with its lock.

    A node is known by its ``Node.key``. ``clock``: seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.node_of: dict[str, str] = {}  # directory id -> node
        self._places: dict[TopicPartition, Placed] = {}
        self._problems: dict[TopicPartition, RaylogError] = {}
        self._versions: dict[TopicPartition, int] = {}  # of the configs that they obey
        # node -> its log dirs that cannot be used
        self._offline: dict[str, tuple[OfflineDir, ...]] = {}
        self._openings = Backoff(clock)  # of those that failed

    # -- events ------------------------------------------------------------------------------------

    def joined(
        self,
        node: str,
        directories: Mapping[str, str],
        found: Iterable[Found],
        partitions: Iterable[Wanted],
    ) -> list[Wanted]:
        """A node brought log dirs (directory id -> path), and these partitions were found there.

        ``partitions``: all that ought to be, anywhere. Returns which of them to open. One that is
        missing is a problem until its folder is back; so is one whose folder does not say which
        topic's it is.
        """
        self.node_of.update(dict.fromkeys(directories, node))
        topic_ids = {(entry.directory_id, entry.partition): entry.topic_id for entry in found}
        to_open = []
        for wanted in partitions:
            if wanted.directory_id not in directories:
                continue
            self._openings.reset(wanted.partition)
            place = (wanted.directory_id, wanted.partition)
            if topic_ids.get(place) == wanted.topic.topic_id:
                self._problems.pop(wanted.partition, None)
                to_open.append(wanted)
                continue
            folder = f"{directories[wanted.directory_id]}/{wanted.partition}"
            is_unread = place in topic_ids and topic_ids[place] is None
            self.failed(wanted.partition, _why_not_here(wanted, folder, is_unread))
        return to_open

    def foreign(self, node: str, directories: Mapping[str, str]) -> list[str]:
        """The paths of log dirs that another node has brought already.

        They are on copies of a disk, or on one disk that both nodes use.
        """
        return [path for key, path in directories.items() if self.node_of.get(key, node) != node]

    def left(self, node: str) -> None:
        """The node is gone, and its partitions with it, until its disks come back."""
        self.node_of = {key: value for key, value in self.node_of.items() if value != node}
        self._offline.pop(node, None)
        self._places = {
            key: place for key, place in self._places.items() if place.directory_id in self.node_of
        }

    def went_offline(self, node: str, dirs: tuple[OfflineDir, ...]) -> None:
        """These log dirs of a node cannot be used, and with them go their partitions."""
        self._offline[node] = dirs
        for offline in dirs:
            directory_id = offline.directory_id
            if directory_id is not None and self.node_of.pop(directory_id, None) is not None:
                self._places = {
                    key: place
                    for key, place in self._places.items()
                    if place.directory_id != directory_id
                }

    def opened(self, partition: TopicPartition, place: Placed, version: int = 0) -> None:
        """It serves, with this version of its topic's config."""
        self._problems.pop(partition, None)
        self._openings.reset(partition)
        self._places[partition] = place
        self._versions[partition] = version

    def configured(self, partition: TopicPartition, version: int) -> None:
        """It has reported that it obeys this version of its topic's config."""
        self._versions[partition] = max(version, self._versions.get(partition, 0))

    def failed(self, partition: TopicPartition, problem: RaylogError) -> None:
        self._places.pop(partition, None)
        self._problems[partition] = problem
        self._openings.failed(partition)

    def has_no_actor(self, partition: TopicPartition) -> bool:
        """Whether it is certain that no process has its log: it could not be opened."""
        problem = self._problems.get(partition)
        return partition not in self._places and isinstance(problem, LogRefused | LogMissing)

    def forget(self, topic: Topic) -> None:
        """The topic was deleted."""
        for wanted in wanted_of([topic]):
            self._places.pop(wanted.partition, None)
            self._problems.pop(wanted.partition, None)
            self._versions.pop(wanted.partition, None)
            self._openings.reset(wanted.partition)

    # -- questions ---------------------------------------------------------------------------------

    @property
    def nodes(self) -> set[str]:
        """The nodes that have brought log dirs."""
        return set(self.node_of.values())

    def spread(
        self, count: int, partitions: Iterable[Wanted], being_made: Iterable[str] = ()
    ) -> list[str]:
        """A node for each of ``count`` new partitions: always the one that has the fewest.

        There must be a node. ``partitions``: all that ought to be; they count for their node
        whether they serve or not. ``being_made``: the node of each partition that is being made.
        """
        counts = dict.fromkeys(sorted(self.nodes), 0)
        homes = [self.node_of.get(wanted.directory_id, "") for wanted in partitions]
        for node in (*homes, *being_made):
            if node in counts:
                counts[node] += 1
        chosen = []
        for _ in range(count):
            node = min(counts, key=counts.__getitem__)
            counts[node] += 1
            chosen.append(node)
        return chosen

    def lost(self, partitions: Iterable[Wanted], running: Set[str]) -> list[Wanted]:
        """Those to be opened again: their node is there, but they have no actor or no place.

        The actor's start failed, or somebody killed it for good. One that fails again and again is
        left alone for longer each time; one whose folder is missing, until its node joins again.
        ``running``: the names of all actors.
        """
        return [wanted for wanted in partitions if self._is_lost(wanted, running)]

    def _is_lost(self, wanted: Wanted, running: Set[str]) -> bool:
        partition = wanted.partition
        if wanted.directory_id not in self.node_of:
            return False
        if isinstance(self._problems.get(partition), LogMissing):
            return False
        if partition in self._places and log_actor_name(partition) in running:
            return False
        return self._openings.is_due(partition)

    def outdated(self, partitions: Iterable[Wanted]) -> list[Wanted]:
        """Those that serve with another config than their topic has now."""
        return [
            wanted
            for wanted in partitions
            if wanted.partition in self._places
            and self._versions[wanted.partition] != wanted.topic.version
        ]

    def behind(self, topic: Topic) -> list[Wanted]:
        """Those that do not report the topic's version or a newer one; some may not serve."""
        return [
            wanted
            for wanted in wanted_of([topic])
            if wanted.partition not in self._places
            or self._versions[wanted.partition] < topic.version
        ]

    def describe(self, topic: Topic) -> TopicDescription:
        return TopicDescription(
            name=topic.name,
            topic_id=topic.topic_id,
            config=topic.config,
            partitions=tuple(self._describe(wanted) for wanted in wanted_of([topic])),
            outdated=tuple(wanted.partition.partition for wanted in self.behind(topic)),
        )

    def _describe(self, wanted: Wanted) -> PartitionDescription:
        place, problem = self._places.get(wanted.partition), self._problem(wanted)
        return PartitionDescription(
            partition=wanted.partition.partition,
            directory_id=wanted.directory_id,
            node_id=place.node_id if place else None,
            folder=place.folder if place else None,
            problem=problem.problem if isinstance(problem, RaylogError) else problem,
            todo=problem.advice if isinstance(problem, RaylogError) else None,
        )

    def _problem(self, wanted: Wanted) -> RaylogError | str | None:
        """Why a partition does not serve; None if it does."""
        if wanted.partition in self._places:
            return None
        if wanted.directory_id not in self.node_of:
            return self._why_away(wanted.directory_id)
        return self._problems.get(wanted.partition, BEING_OPENED)

    def why_offline(self) -> list[str]:
        """Of each log dir that cannot be used, why."""
        return [
            str(LogDirOffline(offline.path, offline.why))
            for dirs in self._offline.values()
            for offline in dirs
        ]

    def _why_away(self, directory_id: str) -> RaylogError | str:
        all_offline = [offline for dirs in self._offline.values() for offline in dirs]
        for offline in all_offline:
            if offline.directory_id == directory_id:
                return LogDirOffline(offline.path, offline.why)
        unread = [offline.why for offline in all_offline if offline.directory_id is None]
        hint = ""
        if unread:
            hint = f", or this log dir is one of those that are offline: {'; '.join(unread)}"
        return f"the node with log dir {directory_id} is away{hint}"

    def explain(self, topic: Topic, number: object) -> RaylogError | None:
        """Why a partition cannot be reached; None if it ought to be."""
        partitions = wanted_of([topic])
        if not isinstance(number, int) or not 0 <= number < len(partitions):
            why = f"the topic has {len(partitions)} partitions"
            return UnknownTopicOrPartition(topic.name, number, why)
        problem = self._problem(partitions[number])
        if isinstance(problem, str):
            return NotLeader(f"{topic.name}-{number}", problem)
        return problem


def _why_not_here(wanted: Wanted, folder: str, is_unread: bool) -> RaylogError:
    """Why a partition cannot be opened from its log dir.

    ``is_unread``: its folder is there, but does not say which topic's it is.
    """
    if is_unread:
        return TopicIdUnreadable(folder, wanted.topic.topic_id, "is missing or damaged")
    return LogMissing(
        folder,
        "the partition's folder does not exist (a folder of another topic with this name was "
        f"renamed {wanted.partition}.<id>-stray)",
    )
