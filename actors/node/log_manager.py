"""LogManager: the Ray actor that owns one node's log dirs. A shell over ``running_node.py``.

One a node, named, detached, pinned to its node. What it does is decided by the machine in
``machine.py``. The Controller starts it and sends it orders; it sends reports. After a restart by
Ray it begins by itself, with the config of its first start, and adopts the LogActors that have
lived on. It tells which config that is, and opens and removes nothing before the Controller has
ordered it: by then it has been told the present one, or is replaced.

=========  =====================================================================================
group      methods
=========  =====================================================================================
control    ``start`` and ``shutdown``, which take long; ``obey`` and ``failed``, which do not wait
disks      ``log_dirs``, ``record_cleaner_offset`` and ``record_log_start``, which wait for a disk,
           for some seconds
metadata   ``metadata_...``: the node's copy of the metadata, one request after the other
lookups    everything else, answered from memory: nothing else can fill its threads
=========  =====================================================================================

Source: ``LogManager`` of Kafka.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import ray

from raylog.actors.cluster_image import Endpoint, ImageKept, ImageUpdate
from raylog.actors.control import Confirmed, LogId, MetadataKept, MetadataPush, Orders
from raylog.actors.errors import LabelShared, NotLeader, UnsupportedLevel
from raylog.actors.events import event, set_up_logs, warn
from raylog.actors.known_brokers import BrokerFiles, KnownBroker
from raylog.actors.listeners import advertised_host
from raylog.actors.messages import LogDirStatus, PartitionOffsets, Recovering
from raylog.actors.metrics import Exporter
from raylog.actors.node.broker_config import BrokerConfig, node_log_dirs
from raylog.actors.node.disk_work import DiskWork
from raylog.actors.node.log_start import NodeFacts
from raylog.actors.node.ray_controller import RayController
from raylog.actors.node.ray_log_actors import RayLogActors
from raylog.actors.node.ray_upkeep_actors import RayUpkeepActors
from raylog.actors.node.room import measured_room
from raylog.actors.node.running_node import NodePorts, RunningNode
from raylog.actors.node.timer import RealTimer
from raylog.actors.node_messages import LogOrder, LogSays
from raylog.actors.plane.node_sockets import NodeSockets
from raylog.actors.plane.sasl.scram import Verifier
from raylog.actors.runtime.calls import OPEN_TIMEOUT_S
from raylog.actors.runtime.clusters import own_address
from raylog.actors.runtime.handles import end_own_actor
from raylog.actors.runtime.names import log_manager_name
from raylog.actors.runtime.nodes import broker_id, is_restarted, own_host, own_name, own_node
from raylog.actors.runtime.ray_metrics import ray_metric
from raylog.actors.runtime.release import end_if_replaced
from raylog.storage.clock import SteadyClock, SystemClock
from raylog.storage.errors import RaylogError, StorageError
from raylog.storage.files import RealFileSystem
from raylog.storage.names import TopicPartition
from raylog.storage.report import Progress
from raylog.storage.state.properties import random_id
from raylog.storage.wire import message

__all__ = ["LogManager", "LogManagerImpl", "NodeSpec"]

logger = logging.getLogger(__name__)

# Between two attempts to begin after a restart: a process at its end may still have the dirs.
RETRY_S = 1.0
# How long Ray may take to end this process.
END_TIMEOUT_S = 10.0
# How long a start or a shutdown waits for another: each holds a thread.
PATIENCE_S = 20.0
# Threads: a start and a shutdown wait long, and orders must come through beside them.
CONTROL_AT_ONCE, DISKS_AT_ONCE, LOOKUPS_AT_ONCE = 8, 8, 8
GROUPS = {
    "control": CONTROL_AT_ONCE,
    "disks": DISKS_AT_ONCE,
    "metadata": 1,
    "lookups": LOOKUPS_AT_ONCE,
}


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """What a LogManager is started with. ``node_number``: as ``node.id`` of meta.properties."""

    namespace: str
    cluster_id: str
    node_number: int
    config: BrokerConfig


class LogManagerImpl:
    """The methods that callers see as ``handle.method.remote(...)``."""

    def __init__(self, spec: NodeSpec) -> None:
        """Returns at once. After a restart by Ray the node begins in a thread."""
        end_if_replaced()
        set_up_logs(own_name())
        self._spec = spec
        self._config = spec.config  # that it begins with
        self._ray_node = own_node()
        self._timer = RealTimer()
        self._starting = threading.Lock()  # held while the node begins or ends
        self._stopped = threading.Event()
        self._is_ending = threading.Event()  # by the Controller's order
        self._node: RunningNode | None = None
        self._why_not = "it has not begun yet"  # there is no node
        self._known: KnownBroker | None = None  # as the file tells the command line
        if is_restarted():
            threading.Thread(target=self._begin_again, name="begin-again", daemon=True).start()

    # -- the beginning and the end -----------------------------------------------------------------

    @ray.method(concurrency_group="control")
    def start(self, config: BrokerConfig) -> None:
        """Lock the log dirs and begin with this config. If it has begun, it reports at once.

        Its reports say which config it obeys. Raises LabelShared, LogLocked, InconsistentClusterId,
        DuplicateLogDir, IdentityMissing, NoLogDirs, or why the first dir cannot be used where none
        can. Nothing has begun then.
        """
        self._ray_node = own_node()
        self._begin(is_restarted=is_restarted(), config=config)

    @ray.method(concurrency_group="control")
    def shutdown(self) -> bool:
        """Close every log in order, write checkpoints and markers, unlock the dirs.

        Returns whether all of it was clean.
        """
        self._stopped.set()
        # Who calls ends the LogActors next: those that are being closed by order need their time.
        with self._alone(OPEN_TIMEOUT_S if self._is_ending.is_set() else PATIENCE_S):
            node, self._node = self._node, None
            is_clean = True if node is None else node.shutdown()
            self._tell_no_more()
            return is_clean

    def _begin(self, *, is_restarted: bool, config: BrokerConfig | None = None) -> None:
        with self._alone(PATIENCE_S):
            if self._stopped.is_set():
                raise NotLeader(log_manager_name(self._ray_node.key), "it is stopping")
            if self._node is not None:
                self._node.want_report()
                return
            if is_restarted:  # else the Controller has put it here
                self._ray_node.check_alone()
            self._config = config or self._config
            node = self._make_node()
            node.begin(node_log_dirs(self._config), is_restarted=is_restarted)
            self._node = node
            self._tell_where()

    def _tell_where(self) -> None:
        """Write where the command line finds this node; without that, it asks Ray."""
        spec = self._spec
        known = KnownBroker(
            namespace=spec.namespace,
            ray_address=own_address(),
            broker=broker_id(spec.cluster_id, spec.namespace),
            node=self._ray_node.key,
        )
        try:
            BrokerFiles().write(known)
            self._known = known
        except OSError as error:
            warn(logger, "broker-file-not-written", why=error)

    def _tell_no_more(self) -> None:
        if self._known is not None:
            BrokerFiles().remove(self._known)

    def _end_for_good(self) -> None:
        """End the node in order, and then this actor, as the Controller has ordered it."""
        threading.Thread(target=self._end, name="end-node", daemon=True).start()

    def _end(self) -> None:
        self._stopped.set()
        try:
            with self._alone(PATIENCE_S):
                self._is_ending.set()
                node, self._node = self._node, None
                if node is not None:
                    node.end()
                self._tell_no_more()
            end_own_actor()
        except Exception:
            event(logger, "node-not-ended", level=logging.CRITICAL, trace=True)
            end_process()
            return
        # Ray's head may have lost that it was to end. The next life is ordered to end again.
        time.sleep(END_TIMEOUT_S)
        end_process()

    @contextmanager
    def _alone(self, patience_s: float) -> Iterator[None]:
        """Begin or end the node, one thread at a time; others must not wait for a disk that hangs.

        Raises NotLeader where another thread is still at it.
        """
        if not self._starting.acquire(timeout=patience_s):
            why = "another start or shutdown of it is under way; a disk may hang"
            raise NotLeader(log_manager_name(self._ray_node.key), why)
        try:
            yield
        finally:
            self._starting.release()

    def _begin_again(self) -> None:
        """Begin after a restart by Ray; while something keeps it from that, try again."""
        while not self._stopped.is_set():
            try:
                self._begin(is_restarted=True)
                return
            except LabelShared as error:
                warn(logger, "log-manager-ended", why=error)
                end_own_actor()
                return
            except RaylogError as error:
                if str(error) != self._why_not:
                    warn(logger, "node-not-begun", why=error)
                self._why_not = str(error)
            except Exception:
                event(logger, "node-not-begun", level=logging.CRITICAL, trace=True)
                end_process()
            self._timer.wait(self._stopped, RETRY_S)

    def _make_node(self) -> RunningNode:
        spec, config, node = self._spec, self._config, self._ray_node
        actors = RayLogActors(spec.namespace, node)
        disk = DiskWork(
            RealFileSystem(),
            SystemClock(),
            cluster_id=spec.cluster_id,
            node_number=spec.node_number,
            delete_delay_ms=config.topic_defaults.file_delete_delay_ms,
            copy_rate=config.replica_alter_log_dirs_io_max_bytes_per_second,
            roll=lambda log: actors.roll(log.partition),
        )
        listeners = config.listeners_at(own_host())
        facts = NodeFacts(
            namespace=spec.namespace,
            node=node.key,
            node_id=node.node_id,
            producer_expiration=config.producer_expiration,
            cluster_id=spec.cluster_id,
            listeners=listeners,
            groups=config.groups,
            transactions=config.transactions,
        )
        controller = RayController(spec.namespace)
        ports = NodePorts(
            disk=disk,
            actors=actors,
            upkeep=RayUpkeepActors(spec.namespace, node, config),
            controller=controller,
            exporter=Exporter(ray_metric, node=node.node_id),
            clock=SteadyClock(),
            timer=self._timer,
            room=measured_room,
            end_process=end_process,
            end_node=self._end_for_good,
            sockets=NodeSockets(
                broker_id(spec.cluster_id, spec.namespace),
                node.key,
                controller,
                self._log_dirs,
                self._socket_failed,
                listeners,
                advertised_host(listeners, own_host()),
                config.offsets_topic,
                config.state_topic,
            ),
        )
        return RunningNode(facts, random_id(), config, ports)

    def _log_dirs(self) -> list[LogDirStatus]:
        return self._running().log_dirs()

    def _socket_failed(self, failure: BaseException) -> None:
        """An error that is not raylog's: the state of this process is not trusted any more."""
        event(logger, "socket-failed", level=logging.CRITICAL, trace=True)
        end_process()

    # -- orders and failures -----------------------------------------------------------------------

    @ray.method(concurrency_group="control")
    def obey(self, orders: Orders) -> None:
        """Take orders in; returns at once. What became of them is in the reports.

        Raises NotLeader before the node has begun, with what keeps it from that, and
        UnsupportedLevel: where another raylog is installed by now, the next process runs that.
        """
        try:
            self._running().obey(orders)
        except UnsupportedLevel:
            end_if_replaced()
            raise

    @ray.method(concurrency_group="control")
    def failed(self, log: LogId, error: StorageError) -> None:
        """Hear that a LogActor's log has failed. If its disk has, the whole dir goes offline.

        Raises NotLeader before the node has begun: it is to be told again.
        """
        self._running().failed(log, error)

    # -- what looks at a disk ----------------------------------------------------------------------

    @ray.method(concurrency_group="disks")
    def log_dirs(self) -> list[LogDirStatus]:
        """Every log dir of this node. Raises NotLeader before the node has begun."""
        return self._running().log_dirs()

    @ray.method(concurrency_group="disks")
    def look_again(self, path: str) -> str:
        """Look afresh at a log dir that could not be used.

        Returns why it still cannot be used; empty where it is used. Raises NotLeader as
        ``log_dirs``, and OutOfResources.
        """
        return self._running().look_again(path)

    @ray.method(concurrency_group="disks")
    def record_cleaner_offset(self, log: LogId, offset: int) -> None:
        """Write down where the compaction of a log goes on.

        Nothing is written if it is not served here. Raises NotLeader as ``log_dirs``.
        """
        self._running().record_cleaner_offset(log, offset)

    @ray.method(concurrency_group="disks")
    def record_log_start(self, log: LogId, offsets: PartitionOffsets) -> None:
        """Write down where a log begins; it is on the disk when this answers.

        On a full disk it is kept for the next checkpoint. Raises NotLeader where it is not served
        here, RequestTimedOut where the disk hangs, and StorageError.
        """
        self._running().record_log_start(log, offsets)

    # -- the copy of the metadata; all raise NotLeader before the node has begun -------------------

    @ray.method(concurrency_group="metadata")
    def metadata_push(self, push: MetadataPush) -> MetadataKept:
        """Take what follows in the metadata; it is fsynced when this answers.

        Raises UnsupportedVersion.
        """
        return self._running().metadata.push(push)

    @ray.method(concurrency_group="metadata")
    def metadata_status(self) -> MetadataKept:
        """What the copy has."""
        return self._running().metadata.status()

    @ray.method(concurrency_group="metadata")
    def metadata_promise(self, epoch: int) -> MetadataKept:
        """Take nothing of a Controller with a lower epoch from now on."""
        return self._running().metadata.promise(epoch)

    @ray.method(concurrency_group="metadata")
    def metadata_read(self, first: int, most_bytes: int) -> tuple[bytes, ...]:
        """Whole batches from the one with the record ``first`` on; none at the end.

        Raises why the copy cannot be read.
        """
        return self._running().metadata.read(first, most_bytes)

    @ray.method(concurrency_group="metadata")
    def metadata_release(self) -> None:
        """Close and unlock the copy: a Controller begins over it."""
        self._running().metadata.release()

    # -- look-ups ----------------------------------------------------------------------------------

    @ray.method(concurrency_group="lookups")
    def order_of(self, log: LogId) -> LogOrder | None:
        """What a LogActor that Ray has started again shall obey.

        None: nobody has ordered it in this life of the LogManager.
        """
        node = self._node
        return None if node is None else node.order_of(log)

    @ray.method(concurrency_group="lookups")
    def endpoint_of(self, log: LogId) -> Endpoint | None:
        """What the LogActor of a log is to clients; None while that is not known here."""
        node = self._node
        return None if node is None else node.addresses.endpoint_of(log)

    @ray.method(concurrency_group="lookups")
    def verifier_of(self, mechanism: str, user: str) -> Verifier | None:
        """What is kept of a user's password; None where there is no such user.

        Raises ClusterUnknown while that is not known here.
        """
        return self._running().addresses.verifier_of(mechanism, user)

    @ray.method(concurrency_group="lookups")
    def said(self, says: LogSays) -> None:
        """Hear at once what a LogActor would say when it is asked next: where it listens."""
        node = self._node
        if node is not None:
            node.said(says)

    @ray.method(concurrency_group="lookups")
    def show(self, update: ImageUpdate) -> ImageKept:
        """Hear what clients are to know of the cluster; returns what is known here then.

        Raises NotLeader as ``log_dirs``, and UnsupportedVersion.
        """
        return self._running().addresses.take(update)

    @ray.method(concurrency_group="lookups")
    def confirmed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Confirmed]:
        """The right to remove records, for those that are served under a confirmed config."""
        node = self._node
        return {} if node is None else node.confirmed(partitions)

    @ray.method(concurrency_group="lookups")
    def recovering(self, partition: TopicPartition, progress: Progress | None) -> None:
        """Hear how far the recovery of a partition has come; None: it is over."""
        node = self._node
        if node is not None:
            node.recovering(partition, progress)

    @ray.method(concurrency_group="lookups")
    def recoveries(self) -> list[Recovering]:
        """The partitions whose recovery takes long, and how far it has come."""
        node = self._node
        return [] if node is None else node.recoveries()

    @ray.method(concurrency_group="lookups")
    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Where the compaction of each partition goes on. Raises NotLeader as ``log_dirs``."""
        return self._running().cleaner_offsets()

    def _running(self) -> RunningNode:
        node = self._node
        if node is None:
            why = "it is stopping" if self._stopped.is_set() else self._why_not
            raise NotLeader(log_manager_name(self._ray_node.key), why)
        return node


def end_process() -> None:
    """End this process at once; Ray starts another."""
    logging.shutdown()
    os._exit(1)


LogManager = ray.remote(
    concurrency_groups=GROUPS,
    num_cpus=0,
    max_restarts=-1,
    max_task_retries=0,
)(LogManagerImpl)
