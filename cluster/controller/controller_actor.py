"""Controller: the Ray actor that knows the topics, and has partitions opened where their disks are.

One a broker, named, detached, on the node that holds its log (``metadata_log.py``). It starts a
LogManager on every node, tells it which of the partitions found there to open, spreads new
partitions over the nodes, and watches: a node that dies takes its partitions away; when its disks
come back under whatever node id, they are opened there again. It never makes an empty partition in
the place of one that is missing. Where each partition is, is in ``placement.py``.

**The lock** guards the metadata and the map, and is never held while another actor is waited for:
look-ups are answered at once while a hundred partitions are made. **The watch** looks twice a
second which nodes and actors are there. What takes longer is done in threads beside it
(``jobs.py``): nodes join, partitions are opened (``opening.py``) and told of configs. What is done
to topics is in ``topics.py``.
"""

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Set
from functools import partial

import ray

from raylog.actors.errors import BrokerRunning, NotLeader
from raylog.actors.events import set_up_logs, warn
from raylog.actors.messages import Found, LogDirStatus, NodeState
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.log_manager import LogManager, node_log_dirs
from raylog.actors.node.mover import MOVES_AT_ONCE
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, Call, answered, gather
from raylog.actors.runtime.handles import create, kill, running
from raylog.actors.runtime.names import Node, log_manager_name
from raylog.actors.runtime.nodes import alive_nodes, is_restarted, own_name, own_node, own_node_id
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.cluster.controller.backoff import Backoff
from raylog.cluster.controller.metadata import producer_ids_record
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.moves import Moves
from raylog.cluster.controller.opening import Claim
from raylog.cluster.controller.placement import ClusterDescription, PartitionDescription, members
from raylog.cluster.controller.state import gather_patiently, stop_nodes
from raylog.storage.clock import SystemClock
from raylog.storage.errors import InvalidLogDir, RaylogError, StorageError
from raylog.storage.files import RealFileSystem

logger = logging.getLogger(__name__)

# Each fsync of the metadata log hands out so many producer ids.
PRODUCER_ID_BLOCK = 1000
WATCH_INTERVAL_S = 0.5
# How long the watch waits for LogManagers: one that hangs must not keep it from seeing others die.
ASK_TIMEOUT_S = 2.0
# How long others wait for a LogManager that hangs: less than their callers do.
PATIENCE_S = 10.0


class ControllerImpl(Moves):
    """The methods that brokers call."""

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        super().__init__(namespace, config)
        self._next_producer_id = 0
        # node id -> which life of its LogManager was told what to open
        self._lives: dict[str, str] = {}
        self._answers: dict[str, NodeState] = {}  # node id -> the last answer of its LogManager
        # node id -> the question after its life, until it is answered
        self._state_calls: dict[str, Call[NodeState]] = {}
        self._join_problems: dict[str, str] = {}  # node id -> why it could not join
        self._joins = Backoff(time.monotonic)
        self._is_starting = False
        if own_name():
            set_up_logs(own_name())
        if is_restarted():
            own_node().check_alone()
            # which opens the metadata, joins the nodes, and tries again where that fails
            self._begin_watch()

    # -- nodes -------------------------------------------------------------------------------------

    def start(self) -> str:
        """Open the metadata log, join every node, open what is there; returns the cluster id.

        Raises why this node's log dirs cannot be used, with nothing left running, or BrokerRunning;
        of the other nodes, ``nodes()`` tells.
        """
        with self._lock:
            if self._is_starting or self._metadata is not None:
                raise BrokerRunning(self._namespace)
            self._is_starting = True
        try:
            self._open_metadata()
            node = own_node()
            manager = self._start_manager(node)
            claims = self._look_through_or_leave(node, manager)
            self._jobs.begin("join", partial(self._open, claims))
            self._watch_once()
            self._begin_watch()  # opening may take minutes, in which others come and go
            self._jobs.wait()
            return self.cluster_id()
        except BaseException:
            self.shutdown()
            raise

    def _open_metadata(self) -> None:
        """Raises where another process at its end has the log locked, or a disk is mounted late.

        Then it may be called again.
        """
        metadata = MetadataLog(
            RealFileSystem(),
            SystemClock(),
            node_log_dirs(self._config)[0],
            must_exist=is_restarted(),
        )
        with self._lock:
            self._metadata = metadata
            self._next_producer_id = metadata.state.next_producer_id

    def _begin_watch(self) -> None:
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def _watch(self) -> None:
        while True:
            self._jobs.attempt("watch", self._watch_once)
            if self._stopped.wait(WATCH_INTERVAL_S):
                return

    def _watch_once(self) -> None:
        if self._metadata is None and not self._stopped.is_set():
            self._open_metadata()
        with self._lock:
            joined = dict(self._nodes)
        alive, problems = members(alive_nodes(), joined)
        names = running(self._namespace)
        begun_again = self._begun_again()
        for key, node in joined.items():
            is_there = key in alive and alive[key].node_id == node.node_id
            if not is_there or log_manager_name(key) not in names or key in begun_again:
                self._leave(key)
        self._record_problems({node.node_id for node in alive.values()}, problems)
        for key, node in alive.items():
            if key not in self._managers and self._joins.is_due(node.node_id):
                self._join(node)
        self._reopen_lost()
        self._jobs.begin_alone("upkeep", self._upkeep)

    def _record_problems(self, alive: Set[str], problems: Mapping[str, str]) -> None:
        with self._lock:
            self._join_problems = {
                key: why for key, why in self._join_problems.items() if key in alive
            }
            self._node_problems = {**problems, **self._join_problems}
            self._joins.keep(alive)

    def _begun_again(self) -> set[str]:
        """The nodes whose LogManager Ray has started again: it has forgotten what it was told.

        All are told the present config versions. Of the others, record which of their log dirs have
        failed. One that does not answer in time is asked no second time before it does.
        """
        with self._lock:
            if self._metadata is not None:
                self._versions.update(self._state.topics.values())
            for key, manager in self._managers.items():
                if key in self._lives and key not in self._state_calls:
                    self._state_calls[key] = self._ask_state(key, manager)
            calls = dict(self._state_calls)
        in_time = set(answered(list(calls.values()), ASK_TIMEOUT_S, wanted=len(calls)))
        gathered = gather({key: call for key, call in calls.items() if call in in_time})
        begun_again = set()
        with self._lock:
            for key in (*gathered.errors, *gathered.answers):
                self._state_calls.pop(key, None)
            for key, state in gathered.answers.items():
                if key not in self._lives:
                    continue  # it has left meanwhile
                if state.life != self._lives[key]:
                    begun_again.add(key)
                else:
                    self._answers[key] = state
                    self._placement.went_offline(key, state.offline)
        # Not earlier: a call that is kept would raise its error at every look.
        gathered.raise_faults()
        return begun_again

    def _ask_state(self, key: str, manager: LogManagerStub) -> Call[NodeState]:
        """The next exchange with a LogManager; see ``actors/node/confirmations.py``."""
        node_of = self._placement.node_of
        directory_ids = [directory_id for directory_id, node in node_of.items() if node == key]
        self._confirming.told(directory_ids, time.monotonic())
        return manager.state(self._versions.message_after(self._answers.get(key)))

    def _join(self, node: Node) -> None:
        """Bring the node in, beside the watch.

        Where that fails ``nodes()`` says why, and it is tried again later.
        """
        try:
            manager = self._start_manager(node)
            self._jobs.begin("join", partial(self._bring_in, node, manager))
        except Exception as error:
            self._leave(node.key)
            self._could_not_join(node, error)

    def _start_manager(self, node: Node) -> LogManagerStub:
        name = log_manager_name(node.key)
        with self._lock:
            if self._stopped.is_set():
                raise NotLeader("the broker", "it is stopping")
            arguments = (
                self._namespace,
                self._state.cluster_id,
                len(self._managers) + 1,
                self._config,
            )
            handle = create(LogManager, name, self._namespace, node, *arguments)
            manager = LogManagerStub(handle, node.key)
            self._nodes[node.key] = node
            self._managers[node.key] = manager  # at once: a shutdown must find it
            return manager

    def _bring_in(self, node: Node, manager: LogManagerStub) -> None:
        try:
            claims = self._look_through_or_leave(node, manager)
        except RaylogError:
            return  # ``nodes()`` says why
        self._open(claims)

    def _look_through_or_leave(self, node: Node, manager: LogManagerStub) -> list[Claim]:
        """What to open of a node's disks; its LogManager ends where that cannot be found out."""
        try:
            return self._look_through(node, manager)
        except BaseException as error:
            with self._lock:
                if self._managers.get(node.key) is manager:
                    self._leave(node.key)
                    self._could_not_join(node, error)
                    kill(log_manager_name(node.key), self._namespace)
            raise

    def _could_not_join(self, node: Node, error: BaseException) -> None:
        why = str(error)
        with self._lock:
            is_news = self._join_problems.get(node.node_id) != why
            self._join_problems[node.node_id] = self._node_problems[node.node_id] = why
            self._joins.failed(node.node_id)
        if is_news and not self._stopped.is_set():
            warn(logger, "node-not-joined", node=node, why=why)

    def _look_through(self, node: Node, manager: LogManagerStub) -> list[Claim]:
        """What to open of a node's disks.

        The node takes part when what belongs to no topic is out of the way of new ones.
        """
        directories = manager.start().get()
        with self._lock:
            desired = self._versions.message_after(None)  # which confirms nothing yet
        state = manager.state(desired).get()
        set_aside: set[Found] = set()  # or left, where that failed
        while True:
            found = manager.found().get()
            with self._lock:
                if self._managers.get(node.key) is not manager:
                    raise NotLeader(manager.name, "its node has left the Ray cluster")
                self._check_own(node, directories)  # before anything on these disks is touched
                strays = self._strays(node.key, found) - set_aside
                if not strays:
                    return self._take_in(node, directories, state, found)
            self._set_aside(manager, strays)
            set_aside |= strays

    def _check_own(self, node: Node, directories: Mapping[str, str]) -> None:
        for path in self._placement.foreign(node.key, directories):
            why = (
                "a log dir of another node has the same directory.id, so one of the two disks is a "
                "copy;"
            )
            raise InvalidLogDir(path, why + " leave one of the two out of log.dirs")

    def _take_in(
        self, node: Node, directories: Mapping[str, str], state: NodeState, found: list[Found]
    ) -> list[Claim]:
        self._lives[node.key], self._answers[node.key] = state.life, state
        self._has_joined = True
        self._join_problems.pop(node.node_id, None)
        self._joins.reset(node.node_id)
        self._placement.went_offline(node.key, state.offline)
        return self._claim(self._placement.joined(node.key, directories, found, self._wanted()))

    def _strays(self, node: str, found: Iterable[Found]) -> set[Found]:
        """What belongs to no topic.

        What a deletion has left over is not set aside but removed, wherever it turns up. A folder
        that cannot say which topic's it is stays where a topic wants one: its owner is told.
        """
        bound = {
            (wanted.partition, topic_id, wanted.directory_id)
            for wanted in self._wanted()
            for topic_id in (wanted.topic.topic_id, None)
        }
        strays = set()
        for entry in found:
            left_over = self._left_over.get((entry.partition, entry.topic_id or ""))
            if left_over is not None:
                self._note_left_over(left_over._replace(node=node))
                continue
            is_made = entry.topic_id in self._topics_being_made
            is_moved = entry.partition in self._moving
            if entry not in bound and not is_made and not is_moved:
                strays.add(entry)
        return strays

    def _set_aside(self, manager: LogManagerStub, strays: Iterable[Found]) -> None:
        for stray in sorted(strays, key=lambda stray: (stray.partition, stray.directory_id)):
            try:
                path = manager.set_aside(*stray).get()
                warn(logger, "stray-set-aside", partition=stray.partition, path=path)
            except RaylogError as error:
                warn(logger, "stray-left", partition=stray.partition, why=error)

    def _leave(self, key: str) -> None:
        with self._lock:
            self._void_claims(self._managers.get(key))
            for facts in (
                self._nodes,
                self._managers,
                self._lives,
                self._answers,
                self._state_calls,
            ):
                facts.pop(key, None)
            # A move that its LogManager did not see through is not committed any more.
            self._moving = {
                partition: node for partition, node in self._moving.items() if node != key
            }
            self._placement.left(key)

    def _reopen_lost(self) -> None:
        # before looking what runs: a topic that is published now has its actors
        wanted = self._wanted()
        names = running(self._namespace)
        with self._lock:
            claims = self._claim(self._placement.lost(wanted, names))
        if claims:
            try:
                self._jobs.begin("opening", partial(self._open, claims))
            except RuntimeError:  # no more threads: the next look claims them again
                with self._lock:
                    for claim in claims:
                        self._give_back(claim)
                raise

    def _upkeep(self) -> None:
        self._jobs.attempt("configuring", self._configure)
        self._jobs.attempt("removing", self._remove_left_over)

    # -- the rest ----------------------------------------------------------------------------------

    @ray.method(concurrency_group="move")
    def move_partition(self, name: str, number: int, log_dir: str) -> PartitionDescription:
        """See ``Moves``. It holds one of the threads for moves until it is over."""
        return super().move_partition(name, number, log_dir)

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
            joined = {self._nodes[key].node_id: None for key in self._placement.nodes}
            # one that has joined since the last look has no problem
            return {**self._node_problems, **joined}

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, its nodes, and where this actor runs."""
        return ClusterDescription(self.cluster_id(), own_node_id(), self.nodes())

    def log_dirs(self) -> list[LogDirStatus]:
        """Every log dir of the nodes that answer."""
        with self._lock:
            managers = dict(self._managers)
        calls = {key: manager.log_dirs() for key, manager in managers.items()}
        gathered = gather_patiently(calls, PATIENCE_S)
        for key, error in gathered.errors.items():
            warn(logger, "node-silent", node=key, why=error)
        return [log_dir for log_dirs in gathered.answers.values() for log_dir in log_dirs]

    def shutdown(self) -> bool:
        """Stop every LogManager in order, then close the metadata log.

        Returns whether all was clean. From its first moment on, every other call answers NotLeader.
        """
        self._stopped.set()
        with self._lock:
            metadata, self._metadata = self._metadata, None
            for key in dict(self._managers):
                self._leave(key)
        try:
            is_clean = stop_nodes(self._namespace)
            # which end now: nobody is left that they could wait for
            self._jobs.wait(CALL_TIMEOUT_S)
        finally:
            is_closed = metadata is None or _close(metadata)
        return is_clean and is_closed


def _close(metadata: MetadataLog) -> bool:
    try:
        metadata.close()
    except StorageError as error:  # every append was fsynced: nothing is lost
        warn(logger, "metadata-not-closed", why=error)
        return False
    return True


Controller = ray.remote(
    concurrency_groups={"move": MOVES_AT_ONCE},
    max_concurrency=16,
    num_cpus=0,
    max_restarts=-1,
    max_task_retries=0,
)(ControllerImpl)
