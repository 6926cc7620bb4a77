"""What is known of a broker (``Facts``), and what follows from it (``Finding``)."""

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from raylog.actors.messages import (
    ActorProcess,
    CompactionStatus,
    LogDirStatus,
    PartitionStatus,
    Recovering,
    RetentionStatus,
)
from raylog.actors.runtime.names import LOG, LOG_MANAGER
from raylog.cluster.controller.describe import PartitionDescription, TopicDescription
from raylog.cluster.controller.node_states import NodeDescription
from raylog.cluster.controller.spread import short_key

ERROR, WARNING, INFO = "error", "warning", "info"


class Finding(NamedTuple):
    """One problem.

    Severity ``error``: records cannot be written or read, or deleted ones can be read again.
    ``warning``: this will happen soon, the broker is slower than it should be, or somebody has to
    decide. ``info``: nothing is wrong.
    """

    severity: str
    subject: str
    what: str
    todo: str


class SilentPartition(NamedTuple):
    """A partition that ought to serve, and does not answer; what is known of its process.

    ``node``: as users see it; None where nobody knows, as with ``pid`` and ``folder``.
    """

    partition: str
    why: str
    node: str | None
    pid: int | None
    folder: str | None


class AwayPartition(NamedTuple):
    """A partition that does not serve, why, and what to do (None: to wait).

    ``folder``: its place; None where nobody knows the path of its log dir.
    """

    partition: str
    why: str
    todo: str | None
    folder: str | None


@dataclass(frozen=True)
class Facts:
    """The state of a broker.

    ``silent_...``: who did not answer in time -> why, if it is known. ``hanging``: the names of
    actors that answered nothing, not even an error. ``processes``: by the actor's name, of those
    that are silent, as far as Ray knows them.
    """

    cluster_id: str = ""
    controller_problem: str | None = None
    # What the Controller says of itself: ``asking.Lookups.problems``.
    problems: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str | None] = field(default_factory=dict)
    # The same nodes, as an operator sees them.
    node_list: Sequence[NodeDescription] = ()
    silent_nodes: Mapping[str, str] = field(default_factory=dict)
    log_dirs: Sequence[LogDirStatus] = ()
    # The names of all topics; None where the Controller does not say them.
    topic_names: Sequence[str] | None = None
    topics: Sequence[TopicDescription] = ()
    partitions: Sequence[PartitionStatus] = ()
    silent_partitions: Mapping[str, str] = field(default_factory=dict)
    hanging: Set[str] = frozenset()
    processes: Mapping[str, ActorProcess] = field(default_factory=dict)
    compaction: Sequence[CompactionStatus] = ()
    retention: Sequence[RetentionStatus] = ()
    recovering: Sequence[Recovering] = ()
    silent_upkeep: Mapping[str, str] = field(default_factory=dict)
    retention_interval_ms: int = 0
    now_ms: int = 0

    def stopped_nodes(self) -> list[NodeDescription]:
        """Those that an operator has stopped: nothing is wrong with them."""
        return [node for node in self.node_list if node.state in ("stopping", "stopped")]

    def gone_nodes(self) -> list[NodeDescription]:
        """Those that are not in the Ray cluster any more: what ran there answers nobody."""
        return [node for node in self.node_list if node.state == "away"]

    def _is_of_no_topic(self, partition: str) -> bool:
        """Whether there is no topic of which this could be a partition."""
        topic = partition.rpartition("-")[0]
        return self.topic_names is not None and topic not in self.topic_names

    def described(self) -> Iterator[tuple[str, PartitionDescription]]:
        """All partitions that the metadata lists, with their names."""
        for topic in self.topics:
            for partition in topic.partitions:
                yield f"{topic.name}-{partition.partition}", partition

    def node_name(self, node_id: str) -> str:
        """A node as users see it. ``node_id``: Ray's id of it, or its key."""
        return short_key(self._key_of(node_id))

    def _key_of(self, node_id: str) -> str:
        keys = {node.node_id: node.node for node in self.node_list}
        return keys.get(node_id, node_id)

    def hanging_process(self, actor: str) -> ActorProcess | None:
        """The process of an actor that answers nothing; None where it does, or nobody knows."""
        return self.processes.get(actor) if actor in self.hanging else None

    def hanging_manager(self, node_id: str) -> ActorProcess | None:
        """The same of a node's LogManager. ``node_id``: as of ``node_name``."""
        return self.hanging_process(LOG_MANAGER + self._key_of(node_id))

    def answers_on(self, node_id: str) -> dict[str, bool]:
        """Whether each partition whose place is on a node has answered. ``node_id``: as above."""
        key = self._key_of(node_id)
        answered = {status.partition for status in self.partitions}
        return {
            name: name in answered
            for name, known in self.described()
            if known.node_id and self._key_of(known.node_id) == key
        }

    def away(self) -> list[AwayPartition]:
        """Partitions that do not serve, where it is known why."""
        answered = {status.partition for status in self.partitions}
        paths = {log_dir.directory_id: log_dir.path for log_dir in self.log_dirs}
        away: list[AwayPartition] = []
        for name, known in self.described():
            if known.problem is None or name in answered:
                continue
            path = paths.get(known.directory_id) if known.directory_id else None
            folder = None if path is None else os.path.join(path, name)
            away.append(AwayPartition(name, known.problem, known.todo, folder))
        return away

    def without_answer(self) -> list[SilentPartition]:
        """Partitions that do not answer, though nothing else says why they do not serve."""
        described = dict(self.described())
        answered = {status.partition for status in self.partitions}
        gone = {name: "its process is gone" for name in described if name not in answered}
        recovering = {entry.partition for entry in self.recovering}
        silent: list[SilentPartition] = []
        for name, why in {**gone, **self.silent_partitions}.items():
            known, process = described.get(name), self.processes.get(LOG + name)
            if name in recovering or (known is not None and known.problem is not None):
                continue
            if known is None and self._is_of_no_topic(name):
                continue  # the topic is deleted, and its process ends with its node, or later
            node_id = process.node_id if process is not None else known and known.node_id
            silent.append(
                SilentPartition(
                    partition=name,
                    why=why,
                    node=None if node_id is None else self.node_name(node_id),
                    pid=None if process is None else process.pid,
                    folder=None if known is None else known.folder,
                )
            )
        return silent
