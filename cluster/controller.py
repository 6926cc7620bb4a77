"""Controller: the Ray actor that knows which topics there are and has their partitions opened where their disks are.

One a broker, named, detached, on the node that holds its log (``metadata_log.py``). It starts a LogManager on
every node, tells it which of the partitions found there to open, spreads new partitions over the nodes, and
watches: a node that dies takes its partitions away; when its disks come back under whatever node id, they are
opened there again. It never makes an empty partition in the place of one that is missing. Where each one is,
``placement.py`` keeps.

**The lock** guards the metadata and the map, and is never held while another actor is waited for: look-ups are
answered at once while a hundred partitions are made. The name of a topic that is being made or deleted is
reserved meanwhile. A topic is published, by its record in the metadata log, when all of its partitions serve.
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import ray

from raylog.actors.log_manager import LogManager, Placed, node_log_dirs
from raylog.actors.messages import (
    BrokerRunning,
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
    is_restarted,
    kill,
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
from raylog.cluster.placement import Placement, TopicDescription, Wanted, wanted_of
from raylog.storage.clock import SystemClock
from raylog.storage.config import TOPIC_KEYS, BrokerConfig, LogConfig, parse_value
from raylog.storage.errors import RaylogError
from raylog.storage.files import RealFileSystem
from raylog.storage.names import TopicPartition, check_topic_name, collision_key
from raylog.storage.state.properties import random_id

logger = logging.getLogger(__name__)

# A partition is a process of about 50 MB; beyond this it is more likely a mistake than a wish.
MAX_PARTITIONS = 10_000
# Each fsync of the metadata log hands out so many producer ids.
PRODUCER_ID_BLOCK = 1000
WATCH_INTERVAL_S = 0.5


class Home(NamedTuple):
    """A partition and the LogManager of its node."""

    partition: TopicPartition
    manager: Any


class ControllerImpl:
    """The methods that brokers call."""

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        self._namespace, self._config = namespace, config
        self._lock = threading.RLock()
        self._metadata: MetadataLog | None = None
        self._managers: dict[str, Any] = {}  # node id -> its LogManager, from its making on
        self._placement = Placement()
        self._node_problems: dict[str, str] = {}
        self._reserved: list[str] = []  # names of topics that are being made or deleted
        self._next_producer_id = 0
        self._is_starting = False
        self._stopped = threading.Event()
        if is_restarted():
            self._open_metadata()
            self._begin_watch()  # which joins the nodes, and tries again where that fails

    # -- nodes ---------------------------------------------------------------------------------------------

    def start(self) -> str:
        """Open the metadata log, join every node; returns the cluster id.

        Raises why this node's log dirs cannot be used, with nothing left running, or BrokerRunning; of the other
        nodes, ``nodes()`` tells.
        """
        with self._lock:
            if self._is_starting or self._metadata is not None:
                raise BrokerRunning(self._namespace)
            self._is_starting = True
        try:
            self._open_metadata()
            self._join(own_node_id())
            self._watch_once()
            cluster_id = self.cluster_id()
        except BaseException:
            self.shutdown()
            raise
        self._begin_watch()
        return cluster_id

    def _open_metadata(self) -> None:
        metadata = MetadataLog(RealFileSystem(), SystemClock(), node_log_dirs(self._config)[0])
        with self._lock:
            self._metadata = metadata
            self._next_producer_id = metadata.state.next_producer_id

    def _begin_watch(self) -> None:
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    @property
    def _log(self) -> MetadataLog:
        if self._metadata is None:
            raise NotLeader("the broker", "it is being started or stopped")
        return self._metadata

    @property
    def _state(self) -> ClusterState:
        return self._log.state

    def _watch(self) -> None:
        while True:
            try:
                self._watch_once()
            except Exception:
                if not self._stopped.is_set():
                    logger.exception("watching the nodes failed; trying again")
            if self._stopped.wait(WATCH_INTERVAL_S):
                return

    def _watch_once(self) -> None:
        with self._lock:
            managers = set(self._managers)
        alive, names = set(alive_nodes()), running(self._namespace)
        for node_id in managers:
            if node_id not in alive or log_manager_name(node_id) not in names:
                self._leave(node_id)
        problems = {}
        for node_id in alive - set(self._managers):
            try:
                self._join(node_id)
            except Exception as error:
                problems[node_id] = str(error)
        self._node_problems = problems
        self._reopen_lost()

    def _join(self, node_id: str) -> None:
        """Start the node's LogManager and open what lies on its disks; if that fails, no LogManager is left."""
        with self._lock:
            if self._stopped.is_set():
                raise NotLeader("the broker", "it is being stopped")
            arguments = (self._namespace, self._state.cluster_id, len(self._managers) + 1, self._config)
            manager = create(LogManager, log_manager_name(node_id), self._namespace, node_id, *arguments)
            self._managers[node_id] = manager  # at once: a shutdown must find it
        try:
            directories = wait_for(manager.start.remote(), f"the LogManager of node {node_id[:8]}")
            found = wait_for(manager.found.remote(), "looking through the log dirs")
        except BaseException:
            self._leave(node_id)
            kill(log_manager_name(node_id), self._namespace)
            raise
        with self._lock:
            to_open, strays = self._placement.joined(node_id, directories, found, self._wanted())
            strays = [entry for entry in strays if entry.partition.topic not in self._reserved]
        self._open(to_open)
        for entry in strays:
            try:
                call = manager.set_aside.remote(entry.partition, entry.topic_id)
                path = wait_for(call, f"setting {entry.partition} aside")
                logger.warning("%s belongs to no topic and was set aside as %s", entry.partition, path)
            except RaylogError as error:
                logger.warning(
                    "%s belongs to no topic and could not be set aside: %s", entry.partition, error
                )

    def _leave(self, node_id: str) -> None:
        with self._lock:
            self._managers.pop(node_id, None)
            self._placement.left(node_id)

    def _wanted(self) -> list[Wanted]:
        with self._lock:
            return wanted_of(self._state.topics.values())

    def _reopen_lost(self) -> None:
        wanted = self._wanted()  # before looking what runs: a topic that is published now has its actors
        names = running(self._namespace)
        with self._lock:
            lost = self._placement.lost(wanted, names)
        self._open(lost)

    def _open(self, wanted: Iterable[Wanted]) -> None:
        """Have these opened, and take down where they are or why they are not.

        Not of a topic that was deleted meanwhile (its deletion has ended the actor), or a node that has left.
        """
        with self._lock:
            managers = dict(self._managers)
            calls = [
                (one, node_id, self._opening(managers[node_id], one.partition, one.topic))
                for one in wanted
                if (node_id := self._placement.node_of.get(one.directory_id)) is not None
            ]
        for one, node_id, reference in calls:
            answer = _answer_of(reference, f"opening {one.partition}")
            with self._lock:
                if self._state.topics.get(one.topic.name) != one.topic:
                    continue
                if self._managers.get(node_id) is not managers[node_id]:
                    continue
                if isinstance(answer, RaylogError):
                    self._placement.failed(one.partition, answer)
                else:
                    self._placement.opened(one.partition, answer)

    def _opening(self, manager: Any, partition: TopicPartition, topic: Topic) -> Any:
        config = LogConfig.parse(topic.config, self._config.topic_defaults)
        return manager.open_partition.remote(partition, topic.topic_id, config)

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
        # As parsed, since what a caller means by a number (numpy's, say) may not be what msgpack takes for one.
        parsed = {key: parse_value(TOPIC_KEYS, key, value) for key, value in config.items()}
        LogConfig.parse(parsed, self._config.topic_defaults)
        topic = Topic(name, random_id(), parsed, ())
        with self._reserve(name, must_be_free=True):
            with self._lock:
                managers = dict(self._managers)
                homes = self._homes(name, partitions)
            try:
                placed = self._make_partitions(topic, homes)
                topic = topic._replace(directories=tuple(place.directory_id for place in placed))
                self._publish(topic, placed, managers)
            except BaseException:
                self._unmake_partitions(topic, homes)
                raise
        return self.describe_topic(name)

    @contextmanager
    def _reserve(self, name: str, *, must_be_free: bool) -> Iterator[None]:
        """Until this ends, nobody makes a topic of this name. Raises TopicExists."""
        with self._lock:
            if must_be_free:
                self._check_free(name)
            self._reserved.append(name)
        try:
            yield
        finally:
            with self._lock:
                self._reserved.remove(name)

    def _check_free(self, name: str) -> None:
        key = collision_key(name)
        for existing in [*self._state.topics, *self._reserved]:
            if collision_key(existing) == key:
                raise TopicExists(name, existing)

    def _homes(self, name: str, partitions: int) -> list[Home]:
        """Where each of a new topic's partitions goes."""
        if not self._placement.nodes:
            raise NoLogDirs("no node's LogManager runs: " + "; ".join(self._node_problems.values()))
        nodes = self._placement.spread(partitions)
        return [Home(TopicPartition(name, number), self._managers[node]) for number, node in enumerate(nodes)]

    def _make_partitions(self, topic: Topic, homes: list[Home]) -> list[Placed]:
        """All the folders, then all the actors. Raises the first failure, when every call has been answered."""
        made = [home.manager.create_partition.remote(home.partition, topic.topic_id) for home in homes]
        _all_answers(made, f"creating {topic.name}")
        opened = [self._opening(home.manager, home.partition, topic) for home in homes]
        return _all_answers(opened, f"opening {topic.name}")

    def _unmake_partitions(self, topic: Topic, homes: list[Home]) -> None:
        calls = [home.manager.delete_partition.remote(home.partition, topic.topic_id) for home in homes]
        for home, reference in zip(homes, calls, strict=True):
            answer = _answer_of(reference, f"removing {home.partition}")
            if isinstance(answer, RaylogError):
                logger.warning("%s is left over: %s", home.partition, answer)

    def _publish(self, topic: Topic, placed: list[Placed], managers: Mapping[str, Any]) -> None:
        with self._lock:
            self._log.append(topic_record(topic))
            for number, place in enumerate(placed):
                # Where the LogManager is another by now, it has yet to be told of the partition: the watch does it.
                if self._managers.get(place.node_id) is managers[place.node_id]:
                    self._placement.opened(TopicPartition(topic.name, number), place)

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records. Raises UnknownTopicOrPartition, or what kept records from being removed."""
        with self._reserve(name, must_be_free=False):
            with self._lock:
                topic = self._topic(name)
                self._log.append(topic_removed_record(name))
                self._placement.forget(topic)
                # Those of a node that is away are set aside as strays when it returns.
                homes = [
                    Home(one.partition, self._managers[self._placement.node_of[one.directory_id]])
                    for one in wanted_of([topic])
                    if one.directory_id in self._placement.node_of
                ]
            calls = [home.manager.delete_partition.remote(home.partition, topic.topic_id) for home in homes]
            _all_answers(calls, f"deleting {name}")

    def list_topics(self) -> list[str]:
        with self._lock:
            return sorted(self._state.topics)

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic, its config, and where its partitions are. Raises UnknownTopicOrPartition."""
        with self._lock:
            return self._placement.describe(self._topic(name))

    def explain(self, topic: str, partition: int) -> RaylogError | None:
        """Why a partition cannot be reached; None if it ought to be."""
        with self._lock:
            found = self._state.topics.get(topic)
            if found is None:
                return UnknownTopicOrPartition(topic, partition, "no such topic")
            return self._placement.explain(found, partition)

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
            return {**dict.fromkeys(self._placement.nodes), **self._node_problems}

    def status(self) -> list[PartitionStatus]:
        """What every partition that answers says of itself."""
        with self._lock:
            managers = dict(self._managers)
        pending = {node_id: manager.status.remote() for node_id, manager in managers.items()}
        found: list[PartitionStatus] = []
        for node_id, reference in pending.items():
            try:
                found += wait_for(reference, "status")
            except RaylogError as error:
                logger.warning("node %s does not answer: %s", node_id[:8], error)
        return found

    def shutdown(self) -> bool:
        """Stop every LogManager in order, then close the metadata log; returns whether all of it was clean.

        From its first moment on, every other call answers NotLeader.
        """
        self._stopped.set()
        with self._lock:
            metadata, self._metadata = self._metadata, None
            managers = dict(self._managers)
            for node_id in managers:
                self._leave(node_id)
        pending = {node_id: manager.shutdown.remote() for node_id, manager in managers.items()}
        clean = True
        for node_id, reference in pending.items():
            answer = _answer_of(reference, f"stopping node {node_id[:8]}")
            if answer is not True:
                logger.warning("node %s did not stop in order: %s", node_id[:8], answer)
                clean = False
            kill(log_manager_name(node_id), self._namespace)
        if metadata is not None:
            metadata.close()
        return clean


def _answer_of(reference: Any, what: str) -> Any:
    """The answer to a call that may take as long as opening a log, or the error that it ended with."""
    try:
        return wait_for(reference, what, OPEN_TIMEOUT_S)
    except RaylogError as error:
        return error


def _all_answers(references: list[Any], what: str) -> list[Any]:
    """The answers to all of the calls; raises the first error among them, but not before all have ended."""
    answers = [_answer_of(reference, what) for reference in references]
    for answer in answers:
        if isinstance(answer, RaylogError):
            raise answer
    return answers


Controller = ray.remote(max_concurrency=16, num_cpus=0, max_restarts=-1, max_task_retries=0)(ControllerImpl)
