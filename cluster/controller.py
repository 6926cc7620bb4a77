"""Controller: the Ray actor that knows which topics there are and has their partitions opened where their disks are.

One a broker, named, detached, on the node that holds its log (``metadata_log.py``). It starts a LogManager on
every node, tells it which of the partitions found there to open, spreads new partitions over the nodes, and
watches: a node that dies takes its partitions away; when its disks come back under whatever node id, they are
opened there again. It never makes an empty partition in the place of one that is missing. Where each one is,
``placement.py`` keeps.

**The lock** guards the metadata and the map, and is never held while another actor is waited for: look-ups are
answered at once while a hundred partitions are made. What is done to topics is in ``topics.py``.
"""

import logging
import threading
from collections.abc import Iterable
from typing import Any

import ray

from raylog.actors.log_manager import LogManager, node_log_dirs
from raylog.actors.messages import BrokerRunning, NotLeader, PartitionStatus
from raylog.actors.runtime import (
    alive_nodes,
    create,
    is_restarted,
    kill,
    log_manager_name,
    own_node_id,
    running,
    wait_for,
)
from raylog.cluster.controller_state import answer_of
from raylog.cluster.metadata import producer_ids_record
from raylog.cluster.metadata_log import MetadataLog
from raylog.cluster.placement import Wanted
from raylog.cluster.topics import Topics
from raylog.storage.clock import SystemClock
from raylog.storage.config import BrokerConfig
from raylog.storage.errors import RaylogError
from raylog.storage.files import RealFileSystem

logger = logging.getLogger(__name__)

# Each fsync of the metadata log hands out so many producer ids.
PRODUCER_ID_BLOCK = 1000
WATCH_INTERVAL_S = 0.5
# How long the watch waits for LogManagers: one that hangs must not keep it from seeing others die.
ASK_TIMEOUT_S = 2.0


class ControllerImpl(Topics):
    """The methods that brokers call."""

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        super().__init__(namespace, config)
        self._next_producer_id = 0
        self._lives: dict[str, str] = {}  # node id -> which life of its LogManager was told what to open
        self._asked: dict[str, Any] = {}  # node id -> the question after it
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
        begun_again = self._begun_again()
        for node_id in managers:
            if node_id not in alive or log_manager_name(node_id) not in names or node_id in begun_again:
                self._leave(node_id)
        problems = {}
        for node_id in alive - set(self._managers):
            try:
                self._join(node_id)
            except Exception as error:
                problems[node_id] = str(error)
        self._node_problems = problems
        self._reopen_lost()
        self._configure()

    def _begun_again(self) -> set[str]:
        """The nodes whose LogManager Ray has started again: what it was told is gone.

        One that does not answer in time is asked no second time before it does.
        """
        with self._lock:
            for node_id, manager in self._managers.items():
                if node_id in self._lives and node_id not in self._asked:
                    self._asked[node_id] = manager.life.remote()
            asked = {reference: node_id for node_id, reference in self._asked.items()}
        answered = ray.wait(list(asked), num_returns=len(asked), timeout=ASK_TIMEOUT_S)[0] if asked else []
        begun_again = set()
        for reference in answered:
            node_id = asked[reference]
            life = answer_of(reference, f"the LogManager of node {node_id[:8]}")
            with self._lock:
                self._asked.pop(node_id, None)
                if isinstance(life, str) and life != self._lives.get(node_id, life):
                    begun_again.add(node_id)
        return begun_again

    def _join(self, node_id: str) -> None:
        """Start the node's LogManager and open what lies on its disks; if that fails, no LogManager is left."""
        with self._lock:
            if self._stopped.is_set():
                raise NotLeader("the broker", "it is being stopped")
            arguments = (self._namespace, self._state.cluster_id, len(self._managers) + 1, self._config)
            manager = create(LogManager, log_manager_name(node_id), self._namespace, node_id, *arguments)
            self._managers[node_id] = manager  # at once: a shutdown must find it
        try:
            life = wait_for(manager.life.remote(), f"the LogManager of node {node_id[:8]}")
            directories = wait_for(manager.start.remote(), f"the LogManager of node {node_id[:8]}")
            found = wait_for(manager.found.remote(), "looking through the log dirs")
        except BaseException:
            self._leave(node_id)
            kill(log_manager_name(node_id), self._namespace)
            raise
        with self._lock:
            self._lives[node_id] = life
            to_open, strays = self._placement.joined(node_id, directories, found, self._wanted())
            strays = [entry for entry in strays if entry.partition.topic not in self._reserved]
        self._open(to_open)
        for entry in strays:
            try:
                call = manager.set_aside.remote(*entry)
                path = wait_for(call, f"setting {entry.partition} aside")
                logger.warning("%s belongs to no topic and was set aside as %s", entry.partition, path)
            except RaylogError as error:
                logger.warning(
                    "%s belongs to no topic and could not be set aside: %s", entry.partition, error
                )

    def _leave(self, node_id: str) -> None:
        with self._lock:
            for facts in (self._managers, self._lives, self._asked):
                facts.pop(node_id, None)
            self._placement.left(node_id)

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
            answer = answer_of(reference, f"opening {one.partition}")
            with self._lock:
                topic = self._state.topics.get(one.topic.name)
                if topic is None or topic.topic_id != one.topic.topic_id:
                    continue
                if self._managers.get(node_id) is not managers[node_id]:
                    continue
                if isinstance(answer, RaylogError):
                    self._placement.failed(one.partition, answer)
                else:
                    self._placement.opened(one.partition, answer, one.topic.version)

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
            answer = answer_of(reference, f"stopping node {node_id[:8]}")
            if answer is not True:
                logger.warning("node %s did not stop in order: %s", node_id[:8], answer)
                clean = False
            kill(log_manager_name(node_id), self._namespace)
        if metadata is not None:
            metadata.close()
        return clean


Controller = ray.remote(max_concurrency=16, num_cpus=0, max_restarts=-1, max_task_retries=0)(ControllerImpl)
