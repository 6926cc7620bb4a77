"""The object that users hold: start a broker on a Ray cluster, or connect to one; topics, and doors
to the rest.

A broker is a set of detached actors in one namespace of a Ray cluster: it outlives the process that
started it (unless that process started Ray too). ``Broker`` is a light handle: make as many as you
like, in drivers, tasks and actors, and pass it between them.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import ray

from raylog.actors.errors import (
    THROTTLED,
    BrokerNotFound,
    BrokerRunning,
    InvalidRequest,
    NotLeader,
    RequestTimedOut,
)
from raylog.actors.messages import (
    CompactionStatus,
    ConfigEntry,
    LogDirStatus,
    PartitionStatus,
    RetentionStatus,
)
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.calls import OPEN_TIMEOUT_S, WORK_TIMEOUT_S, wait_for
from raylog.actors.runtime.clusters import LOCAL, join_ray, join_ray_with
from raylog.actors.runtime.handles import create, find, kill, running
from raylog.actors.runtime.names import COMPACTION, CONTROLLER, NAMESPACE, RETENTION, log_actor_name
from raylog.cluster.client.topic_watch import partitions_added
from raylog.cluster.config_file import read_config_file
from raylog.cluster.controller.controller_actor import Controller
from raylog.cluster.controller.home import seat
from raylog.cluster.controller.placement import PartitionDescription, TopicDescription
from raylog.cluster.controller.state import stop_nodes
from raylog.storage.errors import InvalidConfig, LogClosed, RaylogError
from raylog.storage.names import TopicPartition

if TYPE_CHECKING:
    from raylog.cluster.client.consumer import Consumer
    from raylog.cluster.client.producer import Producer
    from raylog.cluster.health.findings import Finding

logger = logging.getLogger(__name__)

# How long a lookup waits for a partition whose actor is being started again.
LOOKUP_TIMEOUT_S = 30.0
RETRY_INTERVAL_S = 0.1
# Of each of two rounds of questions: thousands of partitions take their time, and one that hangs
# takes all of it.
STATUS_TIMEOUT_S = 10.0
# Spark's executors and a user's own tasks each ask Ray for a CPU; a laptop has few.
MIN_DECLARED_CPUS = 8


def start(
    log_dirs: Sequence[str] | None = None,
    *,
    config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    address: str | None = None,
    namespace: str = NAMESPACE,
    ray_options: Mapping[str, Any] | None = None,
) -> "Broker":
    """Start a broker and return when it serves.

    Joins the Ray cluster that this process is connected to, or the one at ``address`` or
    RAY_ADDRESS; without them, or where they say "local", it starts Ray on this machine
    (``ray_options`` go to ``ray.init``) and :meth:`Broker.stop` ends it again.

    ``log_dirs``: folders for partitions, on every node alike, made if missing (their parents must
    exist); a node can have its own in the environment variable RAYLOG_LOG_DIRS. ``config``: Kafka's
    broker keys (docs/CONFIG.md), or a YAML file of them. ``namespace``: one broker a namespace.

    On a Ray cluster over disks that hold a raylog cluster already it goes on with that one,
    whichever node asks.

    Raises InvalidConfig, InvalidLogDir, LogLocked, LogMissing, InconsistentClusterId,
    SeveralClusters, BrokerRunning, RayNotFound; nothing is left running then.
    """
    settings = (
        read_config_file(config) if isinstance(config, str | os.PathLike) else dict(config or {})
    )
    if log_dirs is not None:
        settings["log.dirs"] = [log_dirs] if isinstance(log_dirs, str) else list(log_dirs)
    elif "log.dirs" not in settings and os.environ.get("RAYLOG_LOG_DIRS"):
        settings["log.dirs"] = os.environ["RAYLOG_LOG_DIRS"]
    if "log.dirs" not in settings:
        raise InvalidConfig("log.dirs", None, "name at least one folder for partitions")
    settings["log.dirs"] = [os.path.abspath(path) for path in BrokerConfig.parse(settings).log_dirs]
    parsed = BrokerConfig.parse(settings)
    owns_ray = _ensure_ray(address, ray_options)
    try:
        if find(CONTROLLER, namespace) is not None:
            raise BrokerRunning(namespace)
        _start_controller(namespace, parsed)
    except BaseException:
        if owns_ray:
            ray.shutdown()
        raise
    return Broker(namespace, owns_ray=owns_ray)


def _start_controller(namespace: str, config: BrokerConfig) -> None:
    controller = create(Controller, CONTROLLER, namespace, seat(config), namespace, config)
    try:
        wait_for(controller.start.remote(), "starting the broker", WORK_TIMEOUT_S)
    except BrokerRunning:
        raise  # somebody else's, started at the same time
    except BaseException:  # KeyboardInterrupt, too: what is half started is not left to itself
        try:
            wait_for(controller.shutdown.remote(), "stopping the broker", OPEN_TIMEOUT_S)
        except RaylogError as error:
            logger.warning("the broker that did not start was not stopped in order: %s", error)
        finally:
            kill(CONTROLLER, namespace)
        raise


def connect(address: str | None = None, namespace: str = NAMESPACE) -> "Broker":
    """The broker that runs in ``namespace``; from any driver, task or actor.

    Looks in the Ray cluster that this process is connected to, or at ``address``, or in
    RAY_ADDRESS; without any in all Ray clusters of this machine. Raises BrokerNotFound,
    RayNotFound, SeveralBrokers.
    """
    if ray.is_initialized():
        if find(CONTROLLER, namespace) is None:
            raise BrokerNotFound(namespace)
    else:
        join_ray_with(lambda: find(CONTROLLER, namespace) is not None, namespace, address)
    return Broker(namespace)


def _ensure_ray(address: str | None, options: Mapping[str, Any] | None) -> bool:
    """Connect to Ray; True if that started it on this machine."""
    if ray.is_initialized():
        return False
    address = address or os.environ.get("RAY_ADDRESS")
    if address and address != LOCAL:
        join_ray(address)
        return False
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", **(options or {})}
    settings.setdefault("num_cpus", max(MIN_DECLARED_CPUS, os.cpu_count() or 1))
    settings.setdefault("include_dashboard", False)
    ray.init(LOCAL, **settings)
    return True


class Broker:
    """A broker, seen from one process. Picklable: its copy works in any task or actor of the
    cluster."""

    def __init__(self, namespace: str = NAMESPACE, *, owns_ray: bool = False) -> None:
        self.namespace = namespace
        self._owns_ray = owns_ray
        self._handles: dict[TopicPartition, Any] = {}
        self._topics: dict[str, TopicDescription] = {}
        self._questions: dict[TopicPartition, Any] = {}
        self._answers: dict[str, Callable[[], TopicDescription | None]] = {}

    def __reduce__(self) -> Any:
        return (Broker, (self.namespace,))

    def __repr__(self) -> str:
        return f"Broker(namespace={self.namespace!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """The address of the Ray cluster, for ``connect`` in another process."""
        return str(ray.get_runtime_context().gcs_address)

    def _controller(self) -> Any:
        handle = find(CONTROLLER, self.namespace)
        if handle is None:
            raise BrokerNotFound(self.namespace)
        return handle

    # -- topics ------------------------------------------------------------------------------------

    def create_topic(
        self, topic: str, partitions: int | None = None, config: Mapping[str, Any] | None = None
    ) -> TopicDescription:
        """Create a topic; when this returns its partitions serve.

        ``partitions``: default ``num.partitions``. ``config``: Kafka's topic keys, see
        docs/CONFIG.md. Raises InvalidTopic, TopicExists, InvalidPartitions, InvalidConfig,
        NoLogDirs; then nothing of it is left.
        """
        if config is not None and not isinstance(config, Mapping):
            raise InvalidRequest("config", config, "must be a map of Kafka's topic keys to values")
        call = self._controller().create_topic.remote(topic, partitions, dict(config or {}))
        created: TopicDescription = wait_for(call, f"creating {topic}", WORK_TIMEOUT_S)
        return created

    def alter_topic_config(
        self,
        topic: str,
        set: Mapping[str, Any] | None = None,
        delete: Iterable[str] = (),
    ) -> TopicDescription:
        """Change a topic's config while it serves: no restart, no pause.

        ``set``: Kafka's topic keys with new values; ``delete``: keys that get the broker's value
        again. When this returns all partitions obey it that can be reached; one that is away does
        when it is back. What a segment is made with (``segment.index.bytes``,
        ``segment.jitter.ms``, ``preallocate``) counts from the next one. Raises
        UnknownTopicOrPartition, or InvalidConfig with nothing changed.
        """
        if set is not None and not isinstance(set, Mapping):
            raise InvalidRequest("set", set, "must be a map of Kafka's topic keys to values")
        keys = [delete] if isinstance(delete, str) else list(delete)
        call = self._controller().alter_topic_config.remote(topic, dict(set or {}), keys)
        described: TopicDescription = wait_for(call, f"configuring {topic}", OPEN_TIMEOUT_S)
        self._topics[topic] = described
        return described

    def topic_config(self, topic: str) -> list[ConfigEntry]:
        """Every key of a topic's config, by name, with its value and who set it. Raises
        UnknownTopicOrPartition."""
        call = self._controller().topic_config.remote(topic)
        entries: list[ConfigEntry] = wait_for(call, f"the config of {topic}")
        return entries

    def broker_config(self) -> list[ConfigEntry]:
        """Every key of the broker's config, by name, with its value and whether it is Kafka's
        default."""
        call = self._controller().broker_config.remote()
        entries: list[ConfigEntry] = wait_for(call, "the broker's config")
        return entries

    def add_partitions(self, topic: str, total: int) -> TopicDescription:
        """Extend a topic to ``total`` partitions; when this returns the new ones serve.

        Records that are there stay where they are: from now on a key may go to another partition
        than before. Producers and consumers of this process use them at once, others within their
        ``metadata.max.age.ms``. Raises UnknownTopicOrPartition, InvalidPartitions unless there are
        fewer now, TopicBusy, NoLogDirs; then nothing is changed.
        """
        call = self._controller().add_partitions.remote(topic, total)
        described: TopicDescription = wait_for(call, f"extending {topic}", WORK_TIMEOUT_S)
        self._topics[topic] = described
        partitions_added(self.namespace, topic, len(described.partitions))
        return described

    def move_partition(self, topic: str, partition: int, log_dir: str) -> PartitionDescription:
        """Move a partition to another log dir of its node, while it is read and written; returns
        when it serves there.

        ``log_dir``: a path or directory id, see :meth:`log_dirs`. Callers wait for a second or two
        at the end, when the partition changes over; nothing acknowledged is lost. The topic can be
        neither deleted nor extended meanwhile. ``replica.alter.log.dirs.io.max.bytes.per.second``
        slows it down. Raises UnknownTopicOrPartition, InvalidRequest, TopicBusy, NoRoom; the
        partition serves on where it was then.
        """
        call = self._controller().move_partition.remote(topic, partition, log_dir)
        moved: PartitionDescription = wait_for(call, f"moving {topic}-{partition}", WORK_TIMEOUT_S)
        self.forget(topic, partition)
        return moved

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and its records. Raises UnknownTopicOrPartition."""
        wait_for(self._controller().delete_topic.remote(topic), f"deleting {topic}", OPEN_TIMEOUT_S)
        self._topics.pop(topic, None)
        self._handles = {key: handle for key, handle in self._handles.items() if key.topic != topic}

    def list_topics(self) -> list[str]:
        """The names of all topics, sorted."""
        names: list[str] = wait_for(self._controller().list_topics.remote(), "listing topics")
        return names

    def describe_topic(self, topic: str) -> TopicDescription:
        """A topic, its config, and where its partitions are. Raises UnknownTopicOrPartition."""
        described: TopicDescription = wait_for(
            self._controller().describe_topic.remote(topic), f"describing {topic}"
        )
        self._topics[topic] = described
        return described

    def describe_later(self, topic: str) -> Callable[[], TopicDescription | None]:
        """As ``describe_topic``, without waiting: call what this returns until it gives the answer,
        or raises."""
        call = self._controller().describe_topic.remote(topic)

        def answer() -> TopicDescription | None:
            if not ray.wait([call], timeout=0)[0]:
                return None
            self._topics[topic] = wait_for(call, f"describing {topic}")
            return self._topics[topic]

        return answer

    def topic(self, topic: str) -> TopicDescription:
        """As ``describe_topic``, from what this process knows already. Call :meth:`forget` when it
        proves wrong."""
        return self._topics.get(topic) or self.describe_topic(topic)

    def topic_if_known(self, topic: str) -> TopicDescription | None:
        """As ``topic``, without waiting: None until the Controller has answered, which a later call
        may see."""
        if topic not in self._topics:
            try:
                answer = self._answers.pop(topic, None) or self.describe_later(topic)
                if answer() is None:
                    self._answers[topic] = answer
            except RaylogError:
                return None  # the Controller is away: asked again by the next call
        return self._topics.get(topic)

    # -- partitions --------------------------------------------------------------------------------

    def partition(self, topic: str, partition: int, timeout_s: float = LOOKUP_TIMEOUT_S) -> Any:
        """The handle of the partition's LogActor: ``append``, ``fetch``, ``poll``, ``offsets`` and
        more.

        Waits up to ``timeout_s`` for an actor that is being started, or for its node; with 0 for
        nothing at all. A handle outlives its actor: when a call ends with an error of Ray, ask for
        another one. Raises UnknownTopicOrPartition, LogMissing, or NotLeader (its node is still
        away, or it is still being started).
        """
        self._handles.pop(TopicPartition(topic, partition), None)
        return self.log_actor(topic, partition, timeout_s)

    def log_actor(self, topic: str, partition: int, timeout_s: float = LOOKUP_TIMEOUT_S) -> Any:
        """As ``partition``, from what this process knows already. Call :meth:`forget` when it
        proves wrong."""
        wanted = TopicPartition(topic, partition)
        deadline = time.monotonic() + timeout_s
        handle = self._handles.get(wanted)
        while handle is None:
            left_s = max(deadline - time.monotonic(), 0)
            with self._again_until(deadline, topic, partition):
                handle = self._look_up(wanted, left_s)
                if handle is None:
                    raise NotLeader(str(wanted), "it is being started")
            if handle is None:
                time.sleep(RETRY_INTERVAL_S)
        self._handles[wanted] = handle
        return handle

    def _look_up(self, wanted: TopicPartition, timeout_s: float) -> Any | None:
        """The partition's actor; None while it is being started, or the Controller does not answer
        in time.

        A partition that runs is found without the Controller, which is busy, at times, for seconds.
        Where there is none the Controller tells why, and that is raised; its answer may come in a
        later call.
        """
        # else another's name
        is_number = isinstance(wanted.partition, int) and wanted.partition >= 0
        handle = find(log_actor_name(wanted), self.namespace) if is_number else None
        question = self._questions.pop(wanted, None)
        if handle is not None:
            return handle
        if question is None:
            question = self._controller().explain.remote(*wanted)
        ready, _ = ray.wait([question], timeout=timeout_s)
        if not ready:
            self._questions[wanted] = question
            return None
        why = wait_for(question, f"looking for {wanted}")
        if why is not None:
            raise why
        return None

    def forget(self, topic: str, partition: int) -> None:
        """Look a partition up afresh next time: its actor did not answer."""
        self._handles.pop(TopicPartition(topic, partition), None)
        self._topics.pop(topic, None)
        self._answers.pop(topic, None)

    def list_offsets(
        self, wanted: Mapping[tuple[str, int], int]
    ) -> dict[tuple[str, int], int | None]:
        """The offset at a time, for many partitions at once.

        ``wanted``: (topic, partition) -> -1 for the log end offset, -2 for the log start offset,
        else ms since the epoch for the first record at or after it (None if there is none).
        """
        found = self.ask(
            wanted, lambda key, handle: handle.offset_for_timestamp.remote(wanted[key])
        )
        return {key: None if answer is None else answer.offset for key, answer in found.items()}

    def ask(
        self, partitions: Iterable[tuple[str, int]], call: Callable[[tuple[str, int], Any], Any]
    ) -> dict[tuple[str, int], Any]:
        """The answers of many partitions to a call that may be repeated: while an actor or the
        Controller is being started, it is asked again. ``call`` gets (topic, partition) and the
        handle, and returns the call's reference."""
        deadline = time.monotonic() + LOOKUP_TIMEOUT_S
        answers: dict[tuple[str, int], Any] = {}
        left = list(partitions)
        while left:
            pending: dict[tuple[str, int], Any] = {}
            for key in left:
                with self._again_until(deadline, *key):
                    pending[key] = call(key, self.log_actor(*key, timeout_s=0))
            for key, reference in pending.items():
                with self._again_until(deadline, *key):
                    answers[key] = wait_for(reference, f"{key[0]}-{key[1]}")
            left = [key for key in left if key not in answers]
            if left:
                time.sleep(RETRY_INTERVAL_S)
        return answers

    @contextmanager
    def _again_until(self, deadline: float, topic: str, partition: int) -> Iterator[None]:
        """Swallow, until the deadline, what passes by itself."""
        try:
            yield
        except THROTTLED:
            if time.monotonic() > deadline:
                raise
        except (NotLeader, RequestTimedOut, LogClosed):
            self.forget(topic, partition)
            if time.monotonic() > deadline:
                raise

    def delete_records(self, topic: str, partition: int, before_offset: int = -1) -> int:
        """Make the records of a partition below an offset unreadable; returns its log start offset.

        -1: all that there are when it is called. Segments that hold nothing else are removed by the
        next round of retention. Raises OffsetOutOfRange, UnknownTopicOrPartition, or
        PolicyViolation where ``cleanup.policy`` has no delete.
        """
        key = (topic, partition)
        if before_offset == -1:  # once: when the call is repeated, there may be newer records
            before_offset = self.list_offsets({key: -1})[key] or 0
        found: int = self.ask([key], lambda _, handle: handle.delete_records.remote(before_offset))[
            key
        ]
        return found

    # -- clients -----------------------------------------------------------------------------------

    def producer(self, **config: Any) -> "Producer":
        """A producer; see :class:`raylog.cluster.client.producer.Producer` for ``config``."""
        from raylog.cluster.client.producer import Producer

        return Producer(self, **config)

    def consumer(self, *topics: str, **config: Any) -> "Consumer":
        """A consumer of all partitions of ``topics``; see
        :class:`raylog.cluster.client.consumer.Consumer`."""
        from raylog.cluster.client.consumer import Consumer

        return Consumer(self, *topics, **config)

    def allocate_producer_id(self) -> int:
        """A producer id that nobody has had."""
        allocated: int = wait_for(self._controller().allocate_producer_id.remote(), "a producer id")
        return allocated

    # -- the broker --------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        """The id that the log dirs carry in ``meta.properties``."""
        return str(wait_for(self._controller().cluster_id.remote(), "the cluster id"))

    def nodes(self) -> dict[str, str | None]:
        """Ray node id -> None where a LogManager runs, else why it does not."""
        found: dict[str, str | None] = wait_for(self._controller().nodes.remote(), "the nodes")
        return found

    def log_dirs(self) -> list[LogDirStatus]:
        """Every log dir of the nodes that answer: what it holds, what there is room for, why it is
        offline."""
        found: list[LogDirStatus] = wait_for(self._controller().log_dirs.remote(), "the log dirs")
        return found

    def status(self) -> list[PartitionStatus]:
        """What every partition that answers within seconds says of itself, by name."""
        from raylog.cluster.health.gathering import gather

        self._controller()  # raises BrokerNotFound
        facts = gather(self.namespace, STATUS_TIMEOUT_S)
        return sorted(facts.partitions, key=lambda one: one.partition)

    def health(self) -> list["Finding"]:
        """What is wrong, why, and what to do; errors first, empty if all is well. Answers within
        seconds."""
        from raylog.cluster.health.findings import findings
        from raylog.cluster.health.gathering import gather

        return findings(gather(self.namespace))

    def compaction(self) -> list[CompactionStatus]:
        """Compaction of every compacted partition: what is to do, what runs, what the last round
        did."""
        return self._ask_upkeep(COMPACTION, "status")

    def retention(self) -> list[RetentionStatus]:
        """Retention of every partition that it has come to: what the last round removed, and all of
        them."""
        return [*self._ask_upkeep(RETENTION, "status"), *self._ask_upkeep(COMPACTION, "retention")]

    def _ask_upkeep(self, prefix: str, method: str) -> list[Any]:
        """The answers of one kind of actor on all nodes together. Those that are being started
        again say nothing."""
        names = [name for name in running(self.namespace) if name.startswith(prefix)]
        handles = {name: find(name, self.namespace) for name in sorted(names)}
        pending = {
            name: getattr(handle, method).remote() for name, handle in handles.items() if handle
        }
        found: list[Any] = []
        for name, reference in pending.items():
            try:
                found += wait_for(reference, name)
            except (NotLeader, RequestTimedOut) as error:
                logger.warning("%s does not answer: %s", name, error)
        return sorted(found, key=lambda one: str(one.partition))

    def stop(self) -> bool:
        """Stop the broker in order: all logs flushed and closed, checkpoints and clean markers
        written.

        Returns whether all of it was clean. Also ends Ray, if ``start`` started it. Where the
        Controller cannot be reached for 30 s, its node being away, the other nodes are stopped
        without it.
        """
        clean = self._shut_down()
        kill(CONTROLLER, self.namespace)
        if self._owns_ray:
            self._owns_ray = False
            ray.shutdown()
        return clean

    def _shut_down(self) -> bool:
        deadline = time.monotonic() + LOOKUP_TIMEOUT_S
        while True:
            try:
                controller = find(CONTROLLER, self.namespace)
                if controller is None:
                    break
                return bool(
                    wait_for(controller.shutdown.remote(), "stopping the broker", OPEN_TIMEOUT_S)
                )
            except NotLeader as error:
                if time.monotonic() > deadline:
                    logger.warning(
                        "the Controller cannot be reached; stopping without it: %s", error
                    )
                    break
                time.sleep(RETRY_INTERVAL_S)
        return stop_nodes(self.namespace)
