"""Where each partition is: on which node's disk, or why it is nowhere. The Controller's map; knows
no Ray.

A partition is bound to a log dir by the dir's id, for ever; a dir is on the node that brought it,
for as long as that node lives. A partition with neither a place nor a problem is away: its dir is
on no node, or it is about to be opened there.

What is opened, closed, set aside and where new partitions go is the Controller's to do; here it is
decided.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, NamedTuple

from raylog.actors.errors import LabelShared, NotLeader, UnknownTopicOrPartition
from raylog.actors.messages import OfflineDir
from raylog.actors.node.dirs import Found, Placed
from raylog.actors.runtime.names import NODE_LABEL, Node, log_actor_name
from raylog.cluster.controller.backoff import Backoff
from raylog.cluster.controller.metadata import Topic
from raylog.storage.errors import LogDirOffline, LogMissing, RaylogError
from raylog.storage.names import TopicPartition

BEING_OPENED = "it is being opened"


class PartitionDescription(NamedTuple):
    """One partition: where it is, or why it is not."""

    partition: int
    directory_id: str
    node_id: str | None
    folder: str | None
    problem: str | None


class TopicDescription(NamedTuple):
    """One topic."""

    name: str
    topic_id: str
    config: Mapping[str, Any]
    partitions: tuple[PartitionDescription, ...]


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
    """The map. Not safe for threads: the Controller holds its lock. A node is what its ``Node.key``
    says.

    ``clock``: seconds that never go back.
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
        wanted: Iterable[Wanted],
    ) -> list[Wanted]:
        """A node brought log dirs (directory id -> path) with these partitions.

        Returns which of them to open. A wanted one that is missing, or whose folder is another
        topic's, is a problem until its folder is back.
        """
        self.node_of.update(dict.fromkeys(directories, node))
        here = {(entry.directory_id, entry.partition): entry.topic_id for entry in found}
        to_open = []
        for one in wanted:
            if one.directory_id not in directories:
                continue
            self._openings.reset(one.partition)
            if here.get((one.directory_id, one.partition)) == one.topic.topic_id:
                self._problems.pop(one.partition, None)
                to_open.append(one)
            else:
                folder = f"{directories[one.directory_id]}/{one.partition}"
                self.failed(
                    one.partition,
                    LogMissing(
                        folder, "the partition's folder does not exist, or belongs to another topic"
                    ),
                )
        return to_open

    def foreign(self, node: str, directories: Mapping[str, str]) -> list[str]:
        """The paths of log dirs that another node has brought already: copies of a disk, or one
        disk twice."""
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
        for _, directory_id, _ in dirs:
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

    def configured(self, partition: TopicPartition, topic: Topic) -> None:
        """It obeys the topic's config in this version, or a newer one."""
        self._versions[partition] = max(topic.version, self._versions.get(partition, 0))

    def failed(self, partition: TopicPartition, problem: RaylogError) -> None:
        self._places.pop(partition, None)
        self._problems[partition] = problem
        self._openings.failed(partition)

    def forget(self, topic: Topic) -> None:
        """The topic was deleted."""
        for one in wanted_of([topic]):
            self._places.pop(one.partition, None)
            self._problems.pop(one.partition, None)
            self._versions.pop(one.partition, None)
            self._openings.reset(one.partition)

    # -- questions ---------------------------------------------------------------------------------

    @property
    def nodes(self) -> set[str]:
        """The nodes that have brought log dirs."""
        return set(self.node_of.values())

    def spread(
        self, partitions: int, wanted: Iterable[Wanted], making: Iterable[str] = ()
    ) -> list[str]:
        """A node for each of so many new partitions: always the one that has the fewest. There must
        be one.

        All count that are ``wanted`` there, whether they serve or not, and those that are being
        ``making``: the node of each.
        """
        counts = dict.fromkeys(sorted(self.nodes), 0)
        for node in (*(self.node_of.get(one.directory_id, "") for one in wanted), *making):
            if node in counts:
                counts[node] += 1
        chosen = []
        for _ in range(partitions):
            node = min(counts, key=counts.__getitem__)
            counts[node] += 1
            chosen.append(node)
        return chosen

    def lost(self, wanted: Iterable[Wanted], running: Set[str]) -> list[Wanted]:
        """Those to be opened again: on a node that is there, but without an actor (its start had
        failed, or somebody killed it for good) or a place. One that fails again and again is left
        in peace for longer each time; data that is missing until its node joins."""
        return [
            one
            for one in wanted
            if one.directory_id in self.node_of
            and not isinstance(self._problems.get(one.partition), LogMissing)
            and (one.partition not in self._places or log_actor_name(one.partition) not in running)
            and self._openings.is_due(one.partition)
        ]

    def outdated(self, wanted: Iterable[Wanted]) -> list[Wanted]:
        """Those that serve with another config than their topic's of now."""
        return [
            one
            for one in wanted
            if one.partition in self._places and self._versions[one.partition] != one.topic.version
        ]

    def describe(self, topic: Topic) -> TopicDescription:
        partitions = tuple(self._describe(one) for one in wanted_of([topic]))
        return TopicDescription(topic.name, topic.topic_id, topic.config, partitions)

    def _describe(self, one: Wanted) -> PartitionDescription:
        place, problem = self._places.get(one.partition), self._why_not(one)
        return PartitionDescription(
            one.partition.partition,
            one.directory_id,
            place.node_id if place else None,
            place.folder if place else None,
            str(problem) if isinstance(problem, RaylogError) else problem,
        )

    def _why_not(self, one: Wanted) -> RaylogError | str | None:
        if one.partition in self._places:
            return None
        if one.directory_id not in self.node_of:
            return self._why_away(one.directory_id)
        return self._problems.get(one.partition, BEING_OPENED)

    def why_offline(self) -> list[str]:
        """Of each log dir that cannot be used, why."""
        return [
            str(LogDirOffline(path, why))
            for dirs in self._offline.values()
            for path, _, why in dirs
        ]

    def _why_away(self, directory_id: str) -> RaylogError | str:
        offline = [dir for dirs in self._offline.values() for dir in dirs]
        for path, offline_id, why in offline:
            if offline_id == directory_id:
                return LogDirOffline(path, why)
        unread = [why for _, offline_id, why in offline if offline_id is None]
        hint = (
            f", or this log dir is one of those that are offline: {'; '.join(unread)}"
            if unread
            else ""
        )
        return f"the node with log dir {directory_id} is away{hint}"

    def explain(self, topic: Topic, number: object) -> RaylogError | None:
        """Why a partition cannot be reached; None if it ought to be."""
        wanted = wanted_of([topic])
        if not isinstance(number, int) or not 0 <= number < len(wanted):
            return UnknownTopicOrPartition(
                topic.name, number, f"the topic has {len(wanted)} partitions"
            )
        why = self._why_not(wanted[number])
        return NotLeader(f"{topic.name}-{number}", why) if isinstance(why, str) else why
