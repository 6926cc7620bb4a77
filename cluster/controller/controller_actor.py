"""Controller: the Ray actor around the Controller's machine. One a broker, named and detached.

It decides nothing: what the topics are and what follows from the nodes' reports is in
``machine.py``, and how that is carried out in ``shell.py``. Here are
the methods that brokers, clients and LogManagers call, and the actor's own life:

- the first ``start`` opens the metadata, and raises why it cannot;
- where Ray starts the actor again, its constructor never raises, since Ray would not start it a
  third time. The metadata is opened in a thread, again and again, and until then calls get
  NotController with the reason;
- after a failed write of the metadata nobody knows what is on the disk. Everybody who waits is
  told, and ``raylog health`` says it. After a pause the Controller begins again in the same
  process, and reads the log back from the disk; where that fails again and again, the pauses grow
  (``lives.py``);
- after a mistake of our own the process ends, and Ray starts it again.

Look-ups have threads of their own that nothing else can fill, and are answered from memory.
"""

import dataclasses
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import ray

from raylog.actors.control import Report
from raylog.actors.errors import ActorAway, BrokerRunning, NotController, NotLeader
from raylog.actors.events import set_up_logs, warn
from raylog.actors.messages import ConfigEntry, LogDirStatus, UserDescription
from raylog.actors.metrics import Exporter, export_for_ever
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.plane.sasl.scram import Verifier
from raylog.actors.runtime.nodes import is_restarted, own_name, own_node, own_node_id
from raylog.actors.runtime.ray_metrics import ray_metric
from raylog.actors.runtime.release import end_if_replaced
from raylog.cluster.client.connection import TopicMetadata
from raylog.cluster.controller.added_dirs import added, check_usable
from raylog.cluster.controller.admin_door import answer_command, answer_lookup
from raylog.cluster.controller.asking import Lookups
from raylog.cluster.controller.config_changes import AppliedConfig, parsed_for
from raylog.cluster.controller.copies import Home
from raylog.cluster.controller.current import Current
from raylog.cluster.controller.describe import (
    BROKER_STOPS,
    ClusterDescription,
    PartitionDescription,
    TopicDescription,
)
from raylog.cluster.controller.events import Refused, Reported
from raylog.cluster.controller.following import CopyStatus
from raylog.cluster.controller.home import Known, Wanted, begin_home, known_by
from raylog.cluster.controller.kept_log_dirs import KeptLogDirs
from raylog.cluster.controller.lives import Lives, begin_again
from raylog.cluster.controller.log_dir_states import LogDirDescription
from raylog.cluster.controller.node_states import NodeDescription
from raylog.cluster.controller.ray_reach import RayNotes, RayReach
from raylog.cluster.controller.settings import broker_entries
from raylog.cluster.controller.shell import again_until_open, why_not_open
from raylog.cluster.controller.spread import short_key
from raylog.cluster.controller.starting import RunningController
from raylog.cluster.controller.stopping import stop_nodes
from raylog.cluster.controller.upgrade import UpgradeStatus
from raylog.storage.clock import SystemClock
from raylog.storage.errors import RaylogError, StorageError
from raylog.storage.files import RealFileSystem
from raylog.storage.names import TopicPartition
from raylog.storage.state.properties import random_id

logger = logging.getLogger(__name__)

# How long a Controller that made a mistake stays, so that its last answers arrive.
LINGER_S = 3.0
CONCURRENCY_GROUPS = {
    "control": 4,
    "life": 2,
    "commands": 64,
    "moves": 16,
    "ids": 8,
    "lookups": 8,
}


class ControllerImpl:
    """The methods that brokers call."""

    def __init__(self, namespace: str, config: BrokerConfig, start_id: str = "") -> None:
        """``config``: that the broker is started with; ``start_id``: another one for each start."""
        end_if_replaced()
        self._namespace = namespace
        self._config = config
        self._start_id = start_id
        self._life = random_id()  # of this process
        self._current = Current[RunningController](NotController("the broker", "it is starting"))
        self._kept = KeptLogDirs(RayNotes(), namespace, start_id)
        self._reach = RayReach(namespace, config, is_on_node=True, log_dirs=self._kept.find)
        self._lock = threading.Lock()  # of the next
        self._is_begun = is_restarted()
        self._lives = Lives()
        self._known = Known()
        self._node_name = short_key(own_node_id())  # Ray's head, which may be away, tells more
        if own_name():
            set_up_logs(own_name())
            self._export()
        if self._is_begun:
            try:
                threading.Thread(target=self._open_again, name="opening", daemon=True).start()
            except RuntimeError:  # no more threads: Ray starts a process again that has ended
                os._exit(1)

    def _export(self) -> None:
        """Export metrics for as long as the process lives."""
        exported = (Exporter(ray_metric, namespace=self._namespace), self._numbers)
        with suppress(RuntimeError):  # no more threads: metrics are not worth the Controller
            threading.Thread(
                target=export_for_ever, args=exported, name="metrics", daemon=True
            ).start()

    def _numbers(self) -> Mapping[str, float]:
        """Nothing while there is no metadata: that the metrics are missing is an alert."""
        try:
            return self._running().lookups.numbers()
        except NotLeader:
            return {}

    # -- the actor's life --------------------------------------------------------------------------

    @ray.method(concurrency_group="life")
    def start(
        self, home: Home | None = None, new_cluster: bool = False, older_metadata: bool = False
    ) -> str:
        """Open the metadata, have every node take part, open what is there; the cluster id.

        ``home``: where the metadata is; None: nobody has looked.
        ``new_cluster``: a new cluster may begin where it is not sure that there is none.
        ``older_metadata``: the metadata counts though there was a newer one.

        Raises why this node's log dirs cannot be used, with nothing left running, or BrokerRunning;
        of the other nodes, ``nodes()`` tells.
        """
        with self._lock:
            if self._is_begun:
                raise BrokerRunning(self._namespace)
            self._is_begun = True
        try:
            is_here = home is not None and home.node_id == own_node_id()
            if home is None or not is_here or self._reach.has_managers():
                wanted = Wanted(
                    may_begin=True, new_cluster=new_cluster, older_metadata=older_metadata
                )
                home = self._find_home(wanted)
            controller = self._open(home)
            controller.wait_until_serving(self._current.stopped.wait)
            return controller.cluster_id
        except BaseException:
            self._end()
            raise

    def _open(self, home: Home) -> RunningController:
        controller = RunningController(
            self._namespace, self._config, own_node(), home, self._failed, self._start_id
        )
        self._current.take_over(controller)
        self._lives.begin()
        try:
            controller.begin()
        except BaseException:  # no more threads: the next try must find the log unlocked
            why = NotController("the broker", "its Controller could not begin, and tries again")
            self._current.retire(why, why)
            raise
        return controller

    def _open_again(self) -> None:
        again_until_open(self._open_once, self._cannot_open, self._current.stopped.wait)

    def _open_once(self) -> None:
        node = own_node()
        self._node_name = short_key(node.key)
        node.check_alone()
        try:
            self._open(self._find_home(Wanted(known=self._known)))
        except RaylogError:
            end_if_replaced()  # the next process runs what is installed by now
            raise

    def _find_home(self, wanted: Wanted) -> Home:
        return begin_home(self._reach, RealFileSystem(), SystemClock(), wanted)

    def _cannot_open(self, error: Exception) -> None:
        warn(logger, "metadata-not-opened", trace=not isinstance(error, RaylogError), why=error)
        why = why_not_open(error, self._node_name)
        self._current.explain(NotController("the broker", why))

    def _failed(self, error: BaseException) -> None:
        """Nothing can go on: begin again after a pause, in this process or in another one."""
        if isinstance(error, StorageError):
            pause_s = self._lives.end()
            timer = threading.Timer(pause_s, self._begin_again, (error,))
        else:
            pause_s = LINGER_S
            timer = threading.Timer(pause_s, self._end_process)
        warn(logger, "controller-ends", why=error, again_s=pause_s)
        self._begin_timer(timer)

    def _begin_timer(self, timer: threading.Timer) -> None:
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # no more threads
            self._end_process()

    def _begin_again(self, error: StorageError) -> None:
        told = f"its Controller begins again, since a write of the metadata failed: {error}"
        why_not, why = NotController("the broker", told), ActorAway("the broker", told)
        with suppress(NotLeader):
            self._known = known_by(self._running().lookups.metadata_copies(), self._known)
        begin_again(lambda: self._current.retire(why_not, why), self._open_again, self._end_process)

    def _end_process(self) -> None:
        """Ray starts the actor again, and the locks go with the process."""
        if not self._current.stopped.is_set():
            os._exit(1)

    @ray.method(concurrency_group="life")
    def restart(self, life: str) -> None:
        """End this process in order; Ray starts another, with the raylog that is installed there.

        ``life``: as ``upgrade_status`` tells it. Nothing is done where that one has ended.
        """
        if life != self._life:
            return
        told = "its Controller is restarted"
        # Whether a command that is under way takes effect is not known: its client asks again.
        why_not, why = NotController("the broker", told), ActorAway("the broker", told)
        try:
            self._current.retire(why_not, why)
        finally:
            self._begin_timer(threading.Timer(LINGER_S, self._end_process))

    @ray.method(concurrency_group="life")
    def shutdown(self) -> bool:
        """Stop every LogManager in order, then close the metadata.

        Returns whether all was clean. From its first moment on, every other call gets NotLeader.
        """
        return self._end()

    def _end(self) -> bool:
        controller = self._current.stop(NotLeader("the broker", BROKER_STOPS))
        try:
            is_clean = stop_nodes(self._namespace)
        finally:
            is_closed = controller is None or controller.close()
        return is_clean and is_closed and self._current.is_retired()

    def _running(self) -> RunningController:
        return self._current.get()

    # -- from LogManagers --------------------------------------------------------------------------

    @ray.method(concurrency_group="control")
    def report(self, report: Report) -> None:
        """A node reports everything that it has and does."""
        self._running().put(Reported(report=report))

    @ray.method(concurrency_group="control")
    def refused(self, node: str, controller_epoch: int) -> None:
        """A node did not obey: it has seen a Controller of this epoch."""
        self._running().put(Refused(node=node, controller_epoch=controller_epoch))

    # -- commands; see ``asking.Commanding`` -------------------------------------------------------

    @ray.method(concurrency_group="commands")
    def create_topic(
        self,
        name: str,
        partitions: int | None,
        config: Mapping[str, Any],
        validate_only: bool = False,
        topic_id: str | None = None,
    ) -> TopicDescription:
        commanding = self._running().commanding
        return commanding.create_topic(name, partitions, config, validate_only, topic_id)

    @ray.method(concurrency_group="commands")
    def add_partitions(
        self,
        name: str,
        total: int,
        validate_only: bool = False,
        topic_id: str | None = None,
        is_repeated: bool = False,
    ) -> TopicDescription:
        commanding = self._running().commanding
        return commanding.add_partitions(name, total, validate_only, topic_id, is_repeated)

    @ray.method(concurrency_group="commands")
    def alter_topic_config(
        self,
        name: str,
        changes: Mapping[str, Any],
        delete: Sequence[str],
        validate_only: bool = False,
    ) -> TopicDescription:
        commanding = self._running().commanding
        return commanding.alter_topic_config(name, changes, delete, validate_only)

    @ray.method(concurrency_group="commands")
    def delete_topic(
        self, name: str, topic_id: str | None = None, is_repeated: bool = False
    ) -> None:
        self._running().commanding.delete_topic(name, topic_id, is_repeated)

    @ray.method(concurrency_group="moves")
    def move_partition(self, name: str, number: int, log_dir: str) -> PartitionDescription:
        """It holds one of the threads for moves until it is over."""
        return self._running().commanding.move_partition(name, number, log_dir)

    @ray.method(concurrency_group="commands")
    def cancel_move(self, name: str, number: int) -> PartitionDescription:
        return self._running().commanding.cancel_move(name, number)

    @ray.method(concurrency_group="commands")
    def log_dir_online(self, log_dir: str, node: str | None = None) -> LogDirDescription:
        return self._running().commanding.log_dir_online(log_dir, node)

    @ray.method(concurrency_group="moves")
    def log_dir_offline(self, log_dir: str, node: str | None = None) -> LogDirDescription:
        return self._running().commanding.log_dir_offline(log_dir, node)

    @ray.method(concurrency_group="moves")
    def drain_node(self, node: str, is_undone: bool = False) -> NodeDescription:
        return self._running().commanding.drain_node(node, is_undone)

    @ray.method(concurrency_group="moves")
    def stop_node(self, node: str) -> NodeDescription:
        return self._running().commanding.stop_node(node)

    @ray.method(concurrency_group="moves")
    def start_node(self, node: str) -> NodeDescription:
        return self._running().commanding.start_node(node)

    @ray.method(concurrency_group="moves")
    def apply_config(
        self, config: Mapping[str, Any], validate_only: bool = False, if_version: int | None = None
    ) -> AppliedConfig:
        running = self._running()
        self._check_added(running.lookups, running.cluster_id, config)
        return running.commanding.apply_config(config, validate_only, if_version)

    def _check_added(self, lookups: Lookups, cluster_id: str, config: Mapping[str, Any]) -> None:
        """Raise InvalidConfig where a node may not begin with log dirs that the config adds."""
        now = lookups.broker_config()
        new = parsed_for(now, config)
        paths = added(now, new)
        if paths:
            survey = RayReach(self._namespace, new, is_on_node=True).survey(tries_locks=True)
            in_use = {(status.node_id, status.path) for status in lookups.log_dirs()}
            check_usable(paths, survey.dirs, survey.errors, cluster_id, in_use)

    @ray.method(concurrency_group="commands")
    def finalize_upgrade(self, level: int, without: Sequence[str] = ()) -> int:
        return self._running().commanding.finalize_upgrade(level, without)

    @ray.method(concurrency_group="commands")
    def put_user(self, name: str, verifiers: Sequence[Verifier]) -> None:
        self._running().commanding.put_user(name, verifiers)

    @ray.method(concurrency_group="commands")
    def delete_user(self, name: str, is_repeated: bool = False) -> None:
        self._running().commanding.delete_user(name, is_repeated)

    @ray.method(concurrency_group="ids")
    def allocate_producer_id(self) -> int:
        return self._running().commanding.allocate_producer_id()

    # -- from Kafka's clients, by LogManagers; see ``admin_door.py`` -------------------------------

    @ray.method(concurrency_group="commands")
    def answer_command(self, frame: bytes) -> bytes:
        """A frame that creates, changes or deletes topics, answered."""
        running = self._running()
        return answer_command(frame, running.commanding, running.lookups)

    @ray.method(concurrency_group="lookups")
    def answer_lookup(self, frame: bytes) -> bytes:
        """A frame that asks for configs, answered."""
        return answer_lookup(frame, self._running().lookups)

    # -- look-ups; see ``asking.Lookups`` ----------------------------------------------------------

    @ray.method(concurrency_group="lookups")
    def cluster_id(self) -> str:
        return self._running().lookups.cluster_id()

    @ray.method(concurrency_group="lookups")
    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, its nodes, and where this actor runs."""
        lookups = self._running().lookups
        return ClusterDescription(lookups.cluster_id(), own_node_id(), lookups.nodes())

    @ray.method(concurrency_group="lookups")
    def metadata_copies(self) -> tuple[CopyStatus, ...]:
        """The copies of the metadata, that of this actor first."""
        return self._running().lookups.metadata_copies()

    @ray.method(concurrency_group="lookups")
    def nodes(self) -> dict[str, str | None]:
        """Ray's node id -> None where its LogManager obeys, else why it does not."""
        return self._running().lookups.nodes()

    @ray.method(concurrency_group="lookups")
    def describe_nodes(self) -> list[NodeDescription]:
        """Every node that the broker has, and what an operator has ordered of it."""
        return self._running().lookups.describe_nodes()

    @ray.method(concurrency_group="lookups")
    def upgrade_status(self) -> UpgradeStatus:
        """What each node runs, what this actor runs, and the level of the cluster."""
        return self._running().lookups.upgrade_status()._replace(life=self._life)

    @ray.method(concurrency_group="lookups")
    def log_dirs(self) -> list[LogDirStatus]:
        """Every log dir that the nodes reported. The LogManagers know more of their own."""
        return self._running().lookups.log_dirs()

    @ray.method(concurrency_group="lookups")
    def describe_log_dirs(self, log_dir: str) -> list[LogDirDescription]:
        """The log dirs of this path, or of this directory id."""
        return self._running().lookups.describe_log_dirs(log_dir)

    @ray.method(concurrency_group="lookups")
    def problems(self) -> dict[str, str]:
        return self._running().lookups.problems()

    @ray.method(concurrency_group="lookups")
    def broker_config(self) -> list[ConfigEntry]:
        """Every key that a broker has, with its value and who set it.

        Before it serves they are those of the start, with the log dirs of now.
        """
        with suppress(NotLeader):
            return broker_entries(self._running().lookups.broker_config())
        log_dirs = self._kept.find(self._config.log_dirs)
        return broker_entries(dataclasses.replace(self._config, log_dirs=log_dirs))

    @ray.method(concurrency_group="lookups")
    def users(self) -> list[UserDescription]:
        return self._running().lookups.users()

    @ray.method(concurrency_group="lookups")
    def list_topics(self) -> list[str]:
        return self._running().lookups.list_topics()

    @ray.method(concurrency_group="lookups")
    def describe_topic(self, name: str) -> TopicDescription:
        """A topic, its config, and where its partitions are. Raises UnknownTopicOrPartition."""
        return self._running().lookups.describe_topic(name)

    @ray.method(concurrency_group="lookups")
    def topic_metadata(self, name: str) -> TopicMetadata:
        """A topic as clients know it. Raises UnknownTopicOrPartition."""
        return self._running().lookups.topic_metadata(name)

    @ray.method(concurrency_group="lookups")
    def topic_config(self, name: str) -> list[ConfigEntry]:
        """Every key that a topic has, with its value and who set it."""
        return self._running().lookups.topic_config(name)

    @ray.method(concurrency_group="lookups")
    def explain(self, topic: str, partition: int) -> RaylogError | None:
        """Why a partition cannot be reached; None if it ought to be."""
        return self._running().lookups.explain(TopicPartition(topic, partition))


Controller = ray.remote(
    concurrency_groups=CONCURRENCY_GROUPS,
    num_cpus=0,
    max_restarts=-1,
    max_task_retries=0,
)(ControllerImpl)
