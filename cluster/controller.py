"""Controller: the Ray actor that knows which topics there are and on which node's disk each partition lies.

One a broker, named, detached, on the node that holds its log (``metadata_log.py``). It starts a LogManager on
every node, tells it which of the partitions found there to open, spreads new partitions over the nodes, and
watches: a node that dies takes its partitions away; when its disks come back under whatever node id, they are
opened there again. It never makes an empty partition in the place of one that is missing.
"""

import logging
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import ray

from raylog.actors.log_manager import LogManager, Placed, node_log_dirs
from raylog.actors.messages import (
    InvalidPartitions,
    NoLogDirs,
    NotLeader,
    PartitionStatus,
    TopicExists,
    UnknownTopicOrPartition,
)
from raylog.actors.runtime import (
    OPEN_TIMEOUT_S,
    alive_nodes,
    create,
    kill,
    log_actor_name,
    log_manager_name,
    own_node_id,
    running,
    wait_for,
)
from raylog.cluster.metadata import (
    ClusterState,
    Topic,
    producer_ids_record,
    topic_record,
    topic_removed_record,
)
from raylog.cluster.metadata_log import MetadataLog
from raylog.storage.clock import SystemClock
from raylog.storage.config import BrokerConfig, LogConfig
from raylog.storage.errors import LogMissing, RaylogError
from raylog.storage.files import RealFileSystem
from raylog.storage.names import TopicPartition, check_topic_name, collision_key
from raylog.storage.state.properties import random_id

logger = logging.getLogger(__name__)

# A partition is a process of about 50 MB; beyond this it is more likely a mistake than a wish.
MAX_PARTITIONS = 10_000
# Each fsync of the metadata log hands out so many producer ids.
PRODUCER_ID_BLOCK = 1000
WATCH_INTERVAL_S = 0.5


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


class ControllerImpl:
    """The methods that brokers call."""

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        self._namespace, self._config = namespace, config
        self._lock = threading.RLock()
        self._metadata: MetadataLog | None = None
        self._managers: dict[str, Any] = {}
        self._directories: dict[str, str] = {}  # directory id -> node id
        self._places: dict[TopicPartition, Placed] = {}
        self._problems: dict[TopicPartition, RaylogError] = {}
        self._node_problems: dict[str, str] = {}
        self._next_producer_id = 0
        self._stopped = threading.Event()
        if ray.get_runtime_context().was_current_actor_reconstructed:
            self.start()

    # -- nodes ---------------------------------------------------------------------------------------------

    def start(self) -> str:
        """Open the metadata log, join every node; returns the cluster id.

        Raises why this node's log dirs cannot be used; of the other nodes, ``nodes()`` tells.
        """
        self._metadata = MetadataLog(RealFileSystem(), SystemClock(), node_log_dirs(self._config)[0])
        self._next_producer_id = self._state.next_producer_id
        self._join(own_node_id())
        self._watch_once()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        return self._state.cluster_id

    @property
    def _log(self) -> MetadataLog:
        if self._metadata is None:
            raise NotLeader("the broker", "it is being started or stopped")
        return self._metadata

    @property
    def _state(self) -> ClusterState:
        return self._log.state

    def _watch(self) -> None:
        while not self._stopped.wait(WATCH_INTERVAL_S):
            try:
                self._watch_once()
            except Exception:
                logger.exception("watching the nodes failed; trying again")

    def _watch_once(self) -> None:
        alive = alive_nodes()
        for node_id in set(self._managers) - set(alive):
            self._leave(node_id)
        for node_id in set(alive) - set(self._managers):
            try:
                self._join(node_id)
                self._node_problems.pop(node_id, None)
            except RaylogError as error:
                self._node_problems[node_id] = str(error)
        self._reopen_lost()

    def _join(self, node_id: str) -> None:
        """Start the node's LogManager and open what lies on its disks."""
        number = len(self._managers) + 1
        arguments = (self._namespace, self._state.cluster_id, number, self._config)
        manager = create(LogManager, log_manager_name(node_id), self._namespace, node_id, *arguments)
        try:
            directories = wait_for(manager.start.remote(), f"the LogManager of node {node_id[:8]}")
        except RaylogError:
            kill(log_manager_name(node_id), self._namespace)
            raise
        found = wait_for(manager.found.remote(), "looking through the log dirs")
        with self._lock:
            self._managers[node_id] = manager
            self._directories.update(dict.fromkeys(directories, node_id))
        known = {entry.partition: entry for entry in found}
        for partition, topic, directory_id in self._partitions():
            if directory_id in directories:
                entry = known.pop(partition, None)
                if entry is None or entry.topic_id != topic.topic_id:
                    folder = f"{directories[directory_id]}/{partition}"
                    self._problems[partition] = LogMissing(
                        folder, "the partition's folder is gone or another topic's"
                    )
                else:
                    self._problems.pop(partition, None)  # it is back
        self._open(
            node_id,
            [
                (partition, topic)
                for partition, topic, directory_id in self._partitions()
                if directory_id in directories and partition not in self._problems
            ],
        )
        for partition in known:
            path = wait_for(manager.set_aside.remote(partition), f"setting {partition} aside")
            logger.warning("%s belongs to no topic and was set aside as %s", partition, path)

    def _leave(self, node_id: str) -> None:
        """The node is gone, and its partitions with it, until its disks come back."""
        with self._lock:
            self._managers.pop(node_id, None)
            self._directories = {key: value for key, value in self._directories.items() if value != node_id}
            self._places = {key: place for key, place in self._places.items() if place.node_id != node_id}

    def _open(self, node_id: str, partitions: list[tuple[TopicPartition, Topic]]) -> None:
        """Have the node's LogManager open these, at once; what fails is kept as the partition's problem."""
        manager = self._managers[node_id]
        pending = {
            partition: manager.open_partition.remote(
                partition, topic.topic_id, self._log_config(topic.config)
            )
            for partition, topic in partitions
        }
        for partition, reference in pending.items():
            try:
                place = wait_for(reference, f"opening {partition}", OPEN_TIMEOUT_S)
            except RaylogError as error:
                self._problems[partition] = error
            else:
                with self._lock:
                    self._places[partition] = place
                    self._problems.pop(partition, None)

    def _reopen_lost(self) -> None:
        """Open again what should run and has no actor: its start had failed, or somebody killed it for good."""
        alive = running(self._namespace)
        for partition, topic, directory_id in self._partitions():
            node_id = self._directories.get(directory_id)
            problem = self._problems.get(partition)
            if node_id is None or isinstance(problem, LogMissing):
                continue
            if problem is not None or log_actor_name(partition) not in alive:
                self._open(node_id, [(partition, topic)])

    def _partitions(self) -> list[tuple[TopicPartition, Topic, str]]:
        with self._lock:
            return [
                (TopicPartition(topic.name, number), topic, directory_id)
                for topic in self._state.topics.values()
                for number, directory_id in enumerate(topic.directories)
            ]

    def _log_config(self, overrides: Mapping[str, Any]) -> LogConfig:
        return LogConfig.parse(overrides, self._config.topic_defaults)

    # -- topics --------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int | None, config: Mapping[str, Any]) -> TopicDescription:
        """Make a topic; when this returns its partitions serve. Nothing is left of it if that fails."""
        partitions = self._config.num_partitions if partitions is None else partitions
        check_topic_name(name)
        if (
            isinstance(partitions, bool)
            or not isinstance(partitions, int)
            or not 1 <= partitions <= MAX_PARTITIONS
        ):
            raise InvalidPartitions(partitions, MAX_PARTITIONS)
        self._log_config(config)
        with self._lock:
            self._check_free(name)
            topic_id = random_id()
            placed = self._place(name, topic_id, partitions)
            topic = Topic(name, topic_id, dict(config), tuple(place.directory_id for place in placed))
            try:
                self._log.append(topic_record(topic))
            except RaylogError:
                self._undo(name, placed)
                raise
            self._places.update({TopicPartition(name, n): place for n, place in enumerate(placed)})
            by_node: dict[str, list[tuple[TopicPartition, Topic]]] = {}
            for number, place in enumerate(placed):
                by_node.setdefault(place.node_id, []).append((TopicPartition(name, number), topic))
            for node_id, entries in by_node.items():
                self._open(node_id, entries)
        return self.describe_topic(name)

    def _check_free(self, name: str) -> None:
        key = collision_key(name)
        for existing in self._state.topics:
            if collision_key(existing) == key:
                raise TopicExists(name, existing)

    def _place(self, name: str, topic_id: str, partitions: int) -> list[Placed]:
        """Make the folders, each on the node that has the fewest partitions."""
        counts = dict.fromkeys(self._managers, 0)
        for place in self._places.values():
            counts[place.node_id] += 1
        if not counts:
            raise NoLogDirs("no node's LogManager runs: " + "; ".join(self._node_problems.values()))
        placed: list[Placed] = []
        try:
            for number in range(partitions):
                node_id = min(counts, key=counts.__getitem__)
                counts[node_id] += 1
                call = self._managers[node_id].create_partition.remote(TopicPartition(name, number), topic_id)
                placed.append(wait_for(call, f"creating {name}-{number}"))
        except RaylogError:
            self._undo(name, placed)
            raise
        return placed

    def _undo(self, name: str, placed: list[Placed]) -> None:
        for number, place in enumerate(placed):
            call = self._managers[place.node_id].delete_partition.remote(TopicPartition(name, number))
            try:
                wait_for(call, f"removing {name}-{number}")
            except RaylogError as error:
                logger.warning("%s-%d is left over: %s", name, number, error)

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records."""
        with self._lock:
            topic = self._topic(name)
            self._log.append(topic_removed_record(name))
            for number, directory_id in enumerate(topic.directories):
                partition = TopicPartition(name, number)
                self._places.pop(partition, None)
                self._problems.pop(partition, None)
                node_id = self._directories.get(directory_id)
                if node_id is not None:  # of a node that is away: set aside as stray when it returns
                    call = self._managers[node_id].delete_partition.remote(partition)
                    wait_for(call, f"deleting {partition}", OPEN_TIMEOUT_S)

    def list_topics(self) -> list[str]:
        with self._lock:
            return sorted(self._state.topics)

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic, its config, and where its partitions are. Raises UnknownTopicOrPartition."""
        with self._lock:
            topic = self._topic(name)
            partitions = tuple(self._describe(topic, number) for number in range(len(topic.directories)))
            return TopicDescription(name, topic.topic_id, topic.config, partitions)

    def _describe(self, topic: Topic, number: int) -> PartitionDescription:
        partition, directory_id = TopicPartition(topic.name, number), topic.directories[number]
        place, problem = self._places.get(partition), self._problems.get(partition)
        why = str(problem) if problem else None if place else f"the node with log dir {directory_id} is away"
        return PartitionDescription(
            number, directory_id, place.node_id if place else None, place.folder if place else None, why
        )

    def explain(self, topic: str, partition: int) -> RaylogError | None:
        """Why a partition cannot be reached; None if it ought to be."""
        try:
            described = self.describe_topic(topic)
        except UnknownTopicOrPartition:
            return UnknownTopicOrPartition(topic, partition, "no such topic")
        if not isinstance(partition, int) or not 0 <= partition < len(described.partitions):
            return UnknownTopicOrPartition(
                topic, partition, f"the topic has {len(described.partitions)} partitions"
            )
        problem = self._problems.get(TopicPartition(topic, partition))
        if problem is not None:
            return problem
        why = described.partitions[partition].problem
        return NotLeader(f"{topic}-{partition}", why) if why else None

    def _topic(self, name: str) -> Topic:
        topic = self._state.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(name, None, "no such topic")
        return topic

    # -- the rest ------------------------------------------------------------------------------------------

    def allocate_producer_id(self) -> int:
        """A producer id that nobody has had."""
        with self._lock:
            if self._next_producer_id >= self._state.next_producer_id:
                self._log.append(producer_ids_record(self._next_producer_id + PRODUCER_ID_BLOCK))
            self._next_producer_id += 1
            return self._next_producer_id - 1

    def cluster_id(self) -> str:
        return str(self._state.cluster_id)

    def nodes(self) -> dict[str, str | None]:
        """Node id -> None where its LogManager runs, else why it does not."""
        with self._lock:
            return {**dict.fromkeys(self._managers), **self._node_problems}

    def status(self) -> list[PartitionStatus]:
        """What every partition that answers says of itself."""
        pending = [manager.status.remote() for manager in self._managers.values()]
        return [status for reference in pending for status in wait_for(reference, "status")]

    def shutdown(self) -> bool:
        """Stop every LogManager in order, then close the metadata log; returns whether all of it was clean."""
        self._stopped.set()
        with self._lock:
            if self._metadata is None:
                return True
            pending = {node: manager.shutdown.remote() for node, manager in self._managers.items()}
            clean = True
            for node_id, reference in pending.items():
                try:
                    clean &= wait_for(reference, f"stopping node {node_id[:8]}", OPEN_TIMEOUT_S)
                except RaylogError as error:
                    logger.warning("node %s did not stop in order: %s", node_id[:8], error)
                    clean = False
                kill(log_manager_name(node_id), self._namespace)
            self._metadata.close()
            self._metadata = None
            return clean


Controller = ray.remote(max_concurrency=16, num_cpus=0, max_restarts=-1, max_task_retries=0)(ControllerImpl)
