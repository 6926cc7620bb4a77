"""The object that users have: topics, clients, and what a running broker tells.

A broker is a set of detached actors in one namespace of a Ray cluster: it outlives the process that
started it (unless that process started Ray too). ``Broker`` is a light handle: make as many as you
like, in drivers, tasks and actors, and pass it between them.
"""

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from raylog.actors.errors import (
    THROTTLED,
    BrokerNotFound,
    InvalidRequest,
    NotLeader,
    RequestTimedOut,
)
from raylog.actors.listeners import parse_addresses
from raylog.actors.messages import (
    CompactionStatus,
    ConfigEntry,
    LogDirStatus,
    PartitionStatus,
    RetentionStatus,
    UserDescription,
)
from raylog.actors.node.broker_config import BrokerConfig, names_log_dirs
from raylog.actors.plane.users import SCRAM_MECHANISMS, verifiers_of
from raylog.actors.runtime.calls import (
    CALL_TIMEOUT_S,
    OPEN_TIMEOUT_S,
    WORK_TIMEOUT_S,
    Call,
    answered,
    as_they_end,
    gather,
)
from raylog.actors.runtime.clusters import (
    is_connected,
    leave_ray,
    own_address,
    stay_joined,
)
from raylog.actors.runtime.names import NAMESPACE
from raylog.actors.runtime.nodes import hosts
from raylog.actors.runtime.stubs import (
    CompactionActorStub,
    LogActorStub,
    LogManagerStub,
    RetentionActorStub,
    find_compaction_actor,
    find_log_actor,
    find_log_manager,
    find_retention_actor,
)
from raylog.cluster.client.added_partitions import partitions_added
from raylog.cluster.client.commanding import Command
from raylog.cluster.client.commands import (
    add_partitions,
    altering,
    asking,
    creating,
    delete_topic,
    once,
    shall_be,
)
from raylog.cluster.client.connection import READ_COMMITTED, READ_UNCOMMITTED
from raylog.cluster.config_file import different, read_config_file
from raylog.cluster.controller.config_changes import AppliedConfig
from raylog.cluster.controller.describe import (
    PartitionDescription,
    TopicDescription,
)
from raylog.cluster.controller.log_dir_states import LogDirDescription, merged_log_dirs
from raylog.cluster.controller.node_states import (
    NodeDescription,
    bootstrap_servers,
    meant_node,
    no_such_node,
)
from raylog.cluster.controller.stopping import stop_controller
from raylog.cluster.controller.stub import ControllerStub, find_controller
from raylog.cluster.looking_again import online_again
from raylog.cluster.meant_log_dir import meant_log_dir
from raylog.cluster.running import Running, running_parts
from raylog.storage.errors import LogClosed, RaylogError
from raylog.storage.names import TopicPartition
from raylog.storage.readable import COMMITTED, HIGH_WATERMARK, Isolation

if TYPE_CHECKING:
    import pyarrow as pa

    from raylog.cluster.admin import Admin
    from raylog.cluster.client.consumer import AsyncConsumer, Consumer
    from raylog.cluster.client.consumer.places import Places
    from raylog.cluster.client.groups import Groups
    from raylog.cluster.client.producer import AsyncProducer, Producer
    from raylog.cluster.client.ray_connection import RayConnection
    from raylog.cluster.client.socket_connection import SocketConnection
    from raylog.cluster.client.transactions import Transactions
    from raylog.cluster.health.facts import Finding

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Status = TypeVar("Status", CompactionStatus, RetentionStatus)
PartitionKey = tuple[str, int]  # topic and partition, as callers give them: also a TopicPartition

# How long a lookup waits for a partition whose actor is being started again.
LOOKUP_TIMEOUT_S = 30.0
RETRY_INTERVAL_S = 0.1
# For the address of a node that has just begun.
LISTEN_PATIENCE_S = 10.0
# How long a log dir that is used again is waited for; its neighbours wait as long for a disk.
ONLINE_TIMEOUT_S = 120.0
# Of each of two rounds of questions: thousands of partitions take their time, and one that hangs
# takes all of it.
STATUS_TIMEOUT_S = 10.0
# What a LogManager that hangs would tell of its log dirs is waited for so long.
LOG_DIRS_TIMEOUT_S = 5.0


class Broker:
    """A broker, seen from one process.

    It can be pickled: its copy works in any process that can reach the Ray cluster, and connects to
    it on first use where the process is not connected. As a context manager it stops the broker in
    the end if it is the object that :func:`raylog.start` returned; any other, and any copy, leaves
    the broker running.
    """

    def __init__(
        self,
        namespace: str = NAMESPACE,
        address: str | None = None,
        *,
        is_starter: bool = False,
        owns_ray: bool = False,
    ) -> None:
        """``address``: of the Ray cluster; None: that of the process."""
        self.namespace = namespace
        self._address = address
        self._is_starter, self._owns_ray = is_starter, owns_ray
        self._log_actors: dict[TopicPartition, LogActorStub] = {}
        # what the Controller is asked and has not answered yet
        self._explanations: dict[TopicPartition, Call[RaylogError | None]] = {}
        self._connection: RayConnection | None = None
        self._client_connection: SocketConnection[RayConnection] | None = None

    def __reduce__(self) -> Any:
        address = self._address or (own_address() if is_connected() else None)
        return (Broker, (self.namespace, address))

    def __repr__(self) -> str:
        return f"Broker(namespace={self.namespace!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_starter:
            self.stop()

    @property
    def address(self) -> str:
        """The address of the Ray cluster, for ``connect`` in another process."""
        self._join()
        return self._address or own_address()

    def _join(self) -> None:
        """Connect this process to the broker's Ray cluster, where it is connected to none."""
        stay_joined(self._address)

    def _controller(self) -> ControllerStub:
        self._join()
        controller = find_controller(self.namespace)
        if controller is None:
            raise BrokerNotFound(self.namespace)
        return controller

    def _command(self, what: str, command: Command[Answer], timeout_s: float) -> Answer:
        """Ask the Controller, and again while it is away: see ``commanding.py``."""
        self._join()
        return self.connection().command(what, timeout_s, command).result()

    def _ask_controller(
        self,
        what: str,
        ask: Callable[[ControllerStub], Call[Answer]],
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Answer:
        """As ``_command``, of what changes nothing."""
        self._join()
        asked = self.connection().command(what, timeout_s, asking(ask))
        answer: Answer = asked.result()
        return answer

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
            raise InvalidRequest(
                "config", config, "must be a dict of Kafka's topic keys and their values"
            )
        command = creating(topic, partitions, dict(config or {}))
        return self._command(f"creating {topic}", command, WORK_TIMEOUT_S)

    def alter_topic_config(
        self,
        topic: str,
        set: Mapping[str, Any] | None = None,
        delete: Iterable[str] = (),
    ) -> TopicDescription:
        """Change a topic's config while it serves: no restart, no pause.

        ``set``: Kafka's topic keys with new values; ``delete``: keys that get the broker's value
        again. When this returns, all partitions obey it but for those that ``outdated`` of the
        result names: they do when they are back, and nothing is removed from them before. (Such a
        partition makes the call take up to 30 seconds.) What a segment is made with
        (``segment.index.bytes``, ``segment.jitter.ms``, ``preallocate``) counts from the next one.
        Raises UnknownTopicOrPartition, or InvalidConfig with nothing changed.
        """
        if set is not None and not isinstance(set, Mapping):
            raise InvalidRequest(
                "set", set, "must be a dict of Kafka's topic keys and their values"
            )
        keys = [delete] if isinstance(delete, str) else list(delete)
        command = altering(topic, dict(set or {}), keys)
        return self._command(f"configuring {topic}", command, OPEN_TIMEOUT_S)

    def topic_config(self, topic: str) -> list[ConfigEntry]:
        """Every key of a topic's config, by name, with its value and who set it.

        Raises UnknownTopicOrPartition.
        """
        ask = partial(ControllerStub.topic_config, topic=topic)
        return self._ask_controller(f"the config of {topic}", ask)

    def broker_config(self) -> list[ConfigEntry]:
        """Every key of the broker's config, by name, with its value and who set it."""
        return self._ask_controller("the broker's config", ControllerStub.broker_config)

    def apply_config(
        self,
        config: Mapping[str, Any] | str | os.PathLike[str],
        *,
        validate_only: bool = False,
        if_version: int | None = None,
    ) -> AppliedConfig:
        """Have the broker obey another config while it serves; says what differed, and how.

        ``config``: Kafka's broker keys, or a YAML file of them; all that the broker shall have: a
        key that is missing gets Kafka's default; only the log dirs stay. Most keys are taken at
        once. For the others each node is closed in order and started again, one after the other.
        When this returns, all obey the config but what ``behind`` of the answer names; nothing is
        removed there under the config of before. That takes up to 30 s, or 120 s with starts.
        ``validate_only``: change nothing. ``if_version``: the version of the answer to that; refuse
        where another config counts by now. Raises InvalidConfig, or InvalidRequest for that, with
        nothing changed; AnswerLost where the Controller ended while it was asked.
        """
        settings = read_config_file(config) if not isinstance(config, Mapping) else dict(config)
        if names_log_dirs(settings):
            settings["log.dirs"] = different(BrokerConfig.parse(settings).log_dirs)
        ask = partial(
            ControllerStub.apply_config,
            config=settings,
            validate_only=validate_only,
            if_version=if_version,
        )
        look_at = "raylog config get --broker"
        command = asking(ask) if validate_only else once(ask, look_at=look_at)
        return self._command("the broker's config", command, WORK_TIMEOUT_S)

    def add_partitions(self, topic: str, total: int) -> TopicDescription:
        """Extend a topic to ``total`` partitions; when this returns the new ones serve.

        Records that are there stay where they are: from now on a key may go to another partition
        than before. Producers and consumers of this process use them at once, others within their
        ``metadata.max.age.ms``. Raises UnknownTopicOrPartition, InvalidPartitions unless there are
        fewer now, TopicBusy, NoLogDirs; then nothing is changed.
        """
        self._join()
        described = add_partitions(self.connection(), topic, total, WORK_TIMEOUT_S).result()
        partitions_added(self.namespace, topic, len(described.partitions))
        return described

    def move_partition(self, topic: str, partition: int, log_dir: str) -> PartitionDescription:
        """Move a partition to another log dir of its node; returns when it serves there.

        It is read and written meanwhile. Callers wait for a second or two at the end, when the
        partition changes over; nothing acknowledged is lost. The topic can be neither deleted nor
        extended meanwhile. ``replica.alter.log.dirs.io.max.bytes.per.second`` slows it down.

        ``log_dir``: a path or directory id, see :meth:`log_dirs`; a relative path is below this
        process's working directory. What can be both is a path where a log dir lies there. Raises
        UnknownTopicOrPartition, InvalidRequest, TopicBusy, NoRoom; the partition serves on where it
        was then.
        """
        log_dir = meant_log_dir(log_dir)
        command = once(
            partial(
                ControllerStub.move_partition, topic=topic, partition=partition, log_dir=log_dir
            ),
            look_at=f"raylog topic describe {topic}",
        )
        what = f"moving {topic}-{partition}"
        moved: PartitionDescription = self._command(what, command, WORK_TIMEOUT_S)
        self.forget(topic, partition)
        return moved

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and its records. Raises UnknownTopicOrPartition."""
        self._join()
        delete_topic(self.connection(), topic, OPEN_TIMEOUT_S).result()
        self._log_actors = {
            partition: log_actor
            for partition, log_actor in self._log_actors.items()
            if partition.topic != topic
        }

    # -- users -------------------------------------------------------------------------------------

    def add_user(
        self, name: str, password: str, mechanisms: Collection[str] = SCRAM_MECHANISMS
    ) -> None:
        """Let somebody in by SASL who proves that he knows this password; see `listeners`.

        One who is known gets this password instead. The password stays in this process: the broker
        is told what lets nobody log in. ``mechanisms``: with PLAIN among those of the listener,
        SCRAM-SHA-256 has to be one. Raises InvalidRequest.
        """
        verifiers = verifiers_of(password, mechanisms)
        ask = partial(ControllerStub.put_user, name=name, verifiers=verifiers)
        self._command(f"user {name}", shall_be(ask), CALL_TIMEOUT_S)

    def delete_user(self, name: str) -> None:
        """Let a user in no more; connections that he has go on until they end.

        Raises InvalidRequest for one that is not known.
        """

        def call(controller: ControllerStub, is_repeated: bool) -> Call[None]:
            return controller.delete_user(name, is_repeated)

        self._command(f"deleting user {name}", Command(call=call), CALL_TIMEOUT_S)

    def users(self) -> list[UserDescription]:
        """All users, by name."""
        return self._ask_controller("the users", ControllerStub.users)

    # -- topics ------------------------------------------------------------------------------------

    def list_topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return self._ask_controller("listing topics", ControllerStub.list_topics)

    def describe_topic(self, topic: str, *, timeout_s: float = CALL_TIMEOUT_S) -> TopicDescription:
        """A topic, its config, and where its partitions are. Raises UnknownTopicOrPartition."""
        ask = partial(ControllerStub.describe_topic, topic=topic)
        return self._ask_controller(f"describing {topic}", ask, timeout_s)

    # -- partitions --------------------------------------------------------------------------------

    def partition(self, topic: str, partition: int, timeout_s: float = LOOKUP_TIMEOUT_S) -> Any:
        """Ray's handle of the partition's LogActor: ``append``, ``fetch``, ``poll``, ``offsets``...

        Waits up to ``timeout_s`` for an actor that is being started, or for its node; with 0 for
        nothing at all. A handle outlives its actor: when a call ends with an error of Ray, ask for
        another one. Raises UnknownTopicOrPartition, LogMissing, or NotLeader (its node is still
        away, or it is still being started).
        """
        self._log_actors.pop(TopicPartition(topic, partition), None)
        return self.log_actor(topic, partition, timeout_s).handle

    def log_actor(
        self, topic: str, partition: int, timeout_s: float = LOOKUP_TIMEOUT_S
    ) -> LogActorStub:
        """As ``partition``, typed, and from what this process knows already.

        Call :meth:`forget` when it proves wrong.
        """
        wanted = TopicPartition(topic, partition)
        deadline = time.monotonic() + timeout_s
        log_actor = self._log_actors.get(wanted)
        while log_actor is None:
            left_s = max(deadline - time.monotonic(), 0)
            with self._again_until(deadline, topic, partition):
                log_actor = self._look_up(wanted, left_s)
                if log_actor is None:
                    raise NotLeader(str(wanted), "it is starting")
            if log_actor is None:
                time.sleep(RETRY_INTERVAL_S)
        self._log_actors[wanted] = log_actor
        return log_actor

    def _look_up(self, partition: TopicPartition, timeout_s: float) -> LogActorStub | None:
        """The partition's actor; None while it is being started, or no Controller answers in time.

        A partition that runs is found without the Controller, which is busy, at times, for seconds.
        Where none runs the Controller says why, and that is raised; its answer may come in a later
        call.
        """
        # else it would be another's name
        is_number = isinstance(partition.partition, int) and partition.partition >= 0
        self._join()
        log_actor = find_log_actor(partition, self.namespace) if is_number else None
        explanation = self._explanations.pop(partition, None)
        if log_actor is not None:
            return log_actor
        if explanation is None:
            explanation = self._controller().explain(partition)
        if not answered([explanation], timeout_s):
            self._explanations[partition] = explanation
            return None
        why = explanation.get()
        if why is not None:
            raise why
        return None

    def forget(self, topic: str, partition: int) -> None:
        """Look a partition up afresh next time: its actor did not answer."""
        self._log_actors.pop(TopicPartition(topic, partition), None)

    def list_offsets(
        self, wanted: Mapping[PartitionKey, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[PartitionKey, int | None]:
        """The offset at a time, for many partitions at once.

        ``wanted``: (topic, partition) -> -1 for the log end offset, -2 for the log start offset,
        else ms since the epoch for the first record at or after it (None if there is none).
        ``isolation``: Kafka's; with 1 (read committed) the end is the last stable offset, and there
        is no record at or behind it.
        """
        seen: Isolation = COMMITTED if isolation == READ_COMMITTED else HIGH_WATERMARK
        places = self.ask(
            wanted, lambda key, log_actor: log_actor.offset_for_timestamp(wanted[key], seen)
        )
        return {key: None if place is None else place.offset for key, place in places.items()}

    def ask(
        self,
        partitions: Iterable[PartitionKey],
        question: Callable[[PartitionKey, LogActorStub], Call[Answer]],
    ) -> dict[PartitionKey, Answer]:
        """The answers of many partitions to a question that may be repeated, in their order.

        While an actor or the Controller is being started, it is asked again. ``question`` gets
        (topic, partition) and the partition's actor, and returns the call.
        """
        deadline = time.monotonic() + LOOKUP_TIMEOUT_S
        answers: dict[PartitionKey, Answer] = {}
        asked = list(partitions)
        left = asked
        while left:
            began_s = time.monotonic()
            calls: dict[PartitionKey, Call[Answer]] = {}
            for key in left:
                with self._again_until(deadline, *key):
                    calls[key] = question(key, self.log_actor(*key, timeout_s=0))
            for ended in as_they_end(calls):
                with self._again_until(deadline, *ended.key):
                    answers[ended.key] = ended.get()
            left = [key for key in left if key not in answers]
            if left:
                # Hundreds that are being started need the machine more than who asks for them.
                time.sleep(max(RETRY_INTERVAL_S, time.monotonic() - began_s))
        return {key: answers[key] for key in asked}

    @contextmanager
    def _again_until(self, deadline: float, topic: str, partition: int) -> Iterator[None]:
        """Swallow, until the deadline, the errors that pass by themselves."""
        try:
            yield
        except THROTTLED:
            if time.monotonic() >= deadline:
                raise
        except (NotLeader, RequestTimedOut, LogClosed):
            self.forget(topic, partition)
            if time.monotonic() >= deadline:
                raise

    def delete_records(self, topic: str, partition: int, before_offset: int = -1) -> int:
        """Make the records of a partition below an offset unreadable; returns its log start offset.

        -1: all that there are when it is called. An offset that is deleted already changes nothing.
        Segments that hold nothing else are removed by the next round of retention. No crash makes
        the records readable again, but on a full disk: there it may, until the next checkpoint.
        Raises OffsetOutOfRange for an offset behind the end or below -1, UnknownTopicOrPartition,
        PolicyViolation where ``cleanup.policy`` has no delete, or ConfigUnconfirmed while no
        Controller runs.
        """
        key = (topic, partition)
        if before_offset == -1:  # once: when the call is repeated, there may be newer records
            before_offset = self.list_offsets({key: -1})[key] or 0
        starts = self.ask([key], lambda _, log_actor: log_actor.delete_records(before_offset))
        return starts[key]

    # -- clients -----------------------------------------------------------------------------------

    def producer(self, config: Mapping[str, Any] | None = None, /, **more: Any) -> "Producer":
        """A producer; see :class:`raylog.cluster.client.producer.Producer`.

        Settings by Kafka's names: ``producer(linger_ms=5)`` or ``producer({"linger.ms": 5})``.
        """
        from raylog.cluster.client.producer import Producer

        return Producer(self.client_connection(), config, **more)

    def async_producer(
        self, config: Mapping[str, Any] | None = None, /, **more: Any
    ) -> "AsyncProducer":
        """A producer for asyncio, with the same settings; use it with ``async with``."""
        from raylog.cluster.client.producer import AsyncProducer

        return AsyncProducer(self.client_connection(), config, **more)

    def consumer(self, *topics: str, **config: Any) -> "Consumer":
        """A consumer of all partitions of ``topics``.

        See :class:`raylog.cluster.client.consumer.Consumer` for ``config``.
        """
        from raylog.cluster.client.consumer import Consumer

        return Consumer(self.client_connection(), *topics, **config)

    def async_consumer(self, *topics: str, **config: Any) -> "AsyncConsumer":
        """As :meth:`consumer`, for asyncio: ``async with`` it, and ``async for``."""
        from raylog.cluster.client.consumer import AsyncConsumer

        return AsyncConsumer(self.client_connection(), *topics, **config)

    def read_table(
        self,
        topic: str,
        from_: "Places" = "earliest",
        to: "Places" = "latest",
        partitions: Iterable[int] | None = None,
        **config: Any,
    ) -> "pa.Table":
        """All records of a topic at once, as an Arrow table, or a range of them.

        See :meth:`raylog.cluster.client.consumer.Consumer.read_table`; ``config``: as of a
        consumer.
        """
        with self.consumer(**config) as consumer:
            return consumer.read_table(topic, from_, to, partitions)

    def groups(self) -> "Groups":
        """The groups of consumers: who is in one, how far it has read; moved, or deleted."""
        from raylog.cluster.client.groups import Groups

        return Groups(self.client_connection())

    def transactions(self) -> "Transactions":
        """Transactions: which are open, who writes in them, which hang; or ended."""
        from raylog.cluster.client.transactions import Transactions

        return Transactions(self.client_connection())

    def admin(self) -> "Admin":
        """Several topics or partitions a call, with futures and timeouts."""
        from raylog.cluster.admin import Admin

        return Admin(self.client_connection())

    def connection(self) -> "RayConnection":
        """What this object's commands stand on: Ray calls."""
        if self._connection is None:
            from raylog.cluster.client.ray_connection import RayConnection

            self._connection = RayConnection(self.namespace, self._address)
        return self._connection

    def client_connection(self) -> "SocketConnection[RayConnection]":
        """What this object's producers and consumers stand on; one for all of them."""
        if self._client_connection is None:
            from raylog.cluster.client.socket_connection import SocketConnection

            self._client_connection = SocketConnection(self.connection())
        return self._client_connection

    # -- the broker --------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        """The id that the log dirs carry in ``meta.properties``."""
        return self._ask_controller("the cluster id", ControllerStub.cluster_id)

    @property
    def bootstrap_servers(self) -> str:
        """Host and port of each node, for any client of Kafka's protocol.

        They are the same in each life of the broker, unless somebody else takes a port: a node is
        known by its label, or by its log dirs. A node listens a moment after it begins: this waits
        for the first, at most 10 s; it is empty then, and where ``listeners`` is.
        """
        return "" if self._listeners() == "" else self._servers(None)

    def bootstrap_servers_of(self, listener: str) -> str:
        """The same by another of the ``listeners``: its name, for example ``SASL_SSL``.

        Raises InvalidRequest for one that there is not.
        """
        known = [address.name for address in parse_addresses(self._listeners() or "")]
        if listener.upper() not in known:
            why = f"is none of the broker's `listeners`: {', '.join(known) or 'there are none'}"
            raise InvalidRequest("the listener", listener, why)
        return self._servers(listener.upper())

    def _servers(self, listener: str | None) -> str:
        ends_at = time.monotonic() + LISTEN_PATIENCE_S
        while not (found := bootstrap_servers(self.describe_nodes(), listener)):
            if time.monotonic() >= ends_at:
                break
            time.sleep(RETRY_INTERVAL_S)
        return found

    def _listeners(self) -> str | None:
        """None where an older broker does not say them."""
        return next((one.value for one in self.broker_config() if one.name == "listeners"), None)

    def nodes(self) -> dict[str, str | None]:
        """Ray node id -> None where its LogManager obeys the Controller, else why it does not."""
        return self._ask_controller("the nodes", ControllerStub.nodes)

    def describe_nodes(self, *, timeout_s: float = CALL_TIMEOUT_S) -> list[NodeDescription]:
        """Every node of the broker: its state, its log dirs, how many of its partitions serve.

        Also one that is away, if it has log dirs, or is drained or stopped.
        """
        nodes = self._ask_controller("the nodes", ControllerStub.describe_nodes, timeout_s)
        known = hosts()
        return [node._replace(host=known.get(node.node_id or "", "")) for node in nodes]

    def drain_node(self, node: str, *, undo: bool = False) -> NodeDescription:
        """Give a node no new partition from now on; ``undo``: give it some again.

        What it has it keeps and serves. ``node``: its label, Ray's id of it, or the beginning of
        that. This, :meth:`stop_node` and :meth:`start_node` return when it is so, or, where nobody
        can tell when it will be, with what it ``waits_for``. Each may be repeated. They raise
        InvalidRequest for a node that is not known, and NodeOrderReplaced where another of them
        came for the same node before it was so.
        """
        ask = partial(ControllerStub.drain_node, node=node, is_undone=undo)
        return self._command(f"draining node {node}", shall_be(ask), WORK_TIMEOUT_S)

    def stop_node(self, node: str) -> NodeDescription:
        """Close every partition of a node in order, and have nothing run there, while others serve.

        It stays stopped, also after a restart of the broker, until :meth:`start_node`; without a
        label only until its next ``ray start``, since it has another id then. Its partitions answer
        NotLeader until then: there is no replication.
        """
        ask = partial(ControllerStub.stop_node, node=node)
        return self._command(f"stopping node {node}", shall_be(ask), WORK_TIMEOUT_S)

    def start_node(self, node: str) -> NodeDescription:
        """Use a node again that was stopped or drained; ``not_serving`` of the answer says why."""
        ask = partial(ControllerStub.start_node, node=node)
        return self._command(f"starting node {node}", shall_be(ask), WORK_TIMEOUT_S)

    def log_dirs(self) -> list[LogDirStatus]:
        """Every log dir of the nodes that answer.

        What it holds, what there is room for, why it is offline. Of a node that does not answer
        within seconds it is what the Controller knows, without sizes.
        """
        known = self._ask_controller("the log dirs", ControllerStub.log_dirs)
        calls = {node: manager.log_dirs() for node, manager in self._log_managers().items()}
        gathered = gather(calls, LOG_DIRS_TIMEOUT_S)
        for node, error in gathered.errors.items():
            logger.warning("the LogManager of node %s does not answer: %s", node, error)
        told = [log_dir for log_dirs in gathered.answers.values() for log_dir in log_dirs]
        return merged_log_dirs(told, known)

    def describe_log_dirs(
        self, log_dir: str, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> list[LogDirDescription]:
        """The log dirs of this path, or this id: which partitions serve, and what is waited for.

        ``log_dir``: as of :meth:`move_partition`. One that no node could read is not among them.
        """
        ask = partial(ControllerStub.describe_log_dirs, log_dir=meant_log_dir(log_dir))
        return self._ask_controller(f"the log dir {log_dir}", ask, timeout_s)

    def log_dir_online(
        self, log_dir: str, node: str | None = None, *, timeout_s: float = ONLINE_TIMEOUT_S
    ) -> list[LogDirDescription]:
        """Use a log dir again that was offline: its disk is repaired, or a copy restored.

        Its logs are read back from the disk first, so what a failed fsync has left in the page
        cache does not count; then its partitions open. Returns when they serve, or, where some will
        not or ``timeout_s`` is over, with what is ``not_serving``, and what it ``waits_for``: it
        goes on all the same. One that could not be read when its node began is looked at afresh.
        ``log_dir``: as of :meth:`move_partition`; ``node``: as of :meth:`drain_node`, where several
        nodes have a log dir at this path. Raises InvalidRequest where no node, or several, have
        such a dir, or it still cannot be read. Of several at one path, all those are used, and
        returned, that a look has found.
        """
        meant = meant_log_dir(log_dir)
        key = None if node is None else self._key_of(node)
        known = self._ask_controller("the log dirs", ControllerStub.log_dirs)
        ends_at_s = time.monotonic() + timeout_s

        def order(node: str | None) -> LogDirDescription:
            ask = partial(ControllerStub.log_dir_online, log_dir=meant, node=node)
            command = once(ask, look_at="raylog log-dirs")
            return self._command(f"using {log_dir} again", command, CALL_TIMEOUT_S)

        used = online_again(meant, known, self._log_managers(), order, key)
        while any(dir.waits_for for dir in used) and time.monotonic() < ends_at_s:
            time.sleep(RETRY_INTERVAL_S)
            ids = {dir.directory_id for dir in used}
            used = [dir for id in sorted(ids) for dir in self.describe_log_dirs(id)]
        return used

    def _key_of(self, node: str) -> str:
        """The key of the node that a person means. Raises InvalidRequest."""
        nodes = self._ask_controller("the nodes", ControllerStub.describe_nodes)
        key = meant_node(nodes, node)
        if key is None:
            raise no_such_node(node, [known.node for known in nodes])
        return key

    def log_dir_offline(self, log_dir: str, node: str | None = None) -> LogDirDescription:
        """Take a log dir out of use while everything else serves, to check or swap its disk.

        Its logs are closed in order, so nothing is recovered when :meth:`log_dir_online` brings it
        back, as a new start of its node does. Until then its partitions answer LogDirTakenOffline,
        and no new one goes there. Returns when its disk can be unmounted, or, where nobody can tell
        when it can be, with what it ``waits_for``; it may be repeated. ``log_dir``: as of
        :meth:`move_partition`; ``node``: as of :meth:`drain_node`, where several nodes have a log
        dir at this path. Raises InvalidRequest where there is none, or several, and for one that
        cannot be spared: with the metadata that the Controller writes, or the last of its node.
        """
        meant = meant_log_dir(log_dir)
        ask = partial(ControllerStub.log_dir_offline, log_dir=meant, node=node)
        return self._command(f"taking {log_dir} offline", shall_be(ask), WORK_TIMEOUT_S)

    def status(self) -> list[PartitionStatus]:
        """What every partition that answers within seconds says of itself, by name."""
        from raylog.cluster.health.gathering import gather_facts

        self._controller()  # raises BrokerNotFound
        facts = gather_facts(self.namespace, STATUS_TIMEOUT_S)
        return sorted(facts.partitions, key=lambda status: status.partition)

    def health(self) -> list["Finding"]:
        """What is wrong, why, and what to do; errors first, empty if all is well.

        Answers within seconds.
        """
        from raylog.cluster.health.findings import findings
        from raylog.cluster.health.gathering import gather_facts

        return findings(gather_facts(self.namespace))

    def compaction(self) -> list[CompactionStatus]:
        """Compaction of every compacted partition: what is to do, what runs, the last round."""
        calls = {actor.name: actor.status() for actor in self._compaction_actors()}
        return self._by_partition(calls)

    def retention(self) -> list[RetentionStatus]:
        """Retention of every partition that it has come to: the last round, and all of them."""
        calls = {actor.name: actor.status() for actor in self._retention_actors()}
        of_compacted = {actor.name: actor.retention() for actor in self._compaction_actors()}
        return [*self._by_partition(calls), *self._by_partition(of_compacted)]

    def _compaction_actors(self) -> list[CompactionActorStub]:
        nodes = self._running().compaction
        actors = [find_compaction_actor(node, self.namespace) for node in nodes]
        return [actor for actor in actors if actor is not None]

    def _retention_actors(self) -> list[RetentionActorStub]:
        nodes = self._running().retention
        actors = [find_retention_actor(node, self.namespace) for node in nodes]
        return [actor for actor in actors if actor is not None]

    def _log_managers(self) -> dict[str, LogManagerStub]:
        nodes = running_parts(self.namespace).log_managers
        found = {node: find_log_manager(node, self.namespace) for node in nodes}
        return {node: manager for node, manager in found.items() if manager is not None}

    def _running(self) -> Running:
        self._join()
        return running_parts(self.namespace)

    def _by_partition(self, calls: Mapping[str, Call[list[Status]]]) -> list[Status]:
        """The answers of one kind of actor on all nodes, together.

        Those that are being started again, or that hang, say nothing.
        """
        gathered = gather(calls, from_last_answer=True)
        for name, error in gathered.errors.items():
            if not isinstance(error, NotLeader | RequestTimedOut):
                raise error
            logger.warning("%s does not answer: %s", name, error)
        statuses = [status for answer in gathered.answers.values() for status in answer]
        return sorted(statuses, key=lambda status: status.partition)

    def stop(self) -> bool:
        """Stop the broker in order; returns whether all of it was clean.

        All logs are flushed and closed, checkpoints and clean markers written. Also ends Ray, if
        ``start`` started it. Where the Controller cannot be reached for 30 s, because its node is
        away, or answers no question for a minute, the nodes are stopped without it: its process is
        ended first, and a warning says so. Raises RequestTimedOut where a Controller that answers
        needs more than 10 minutes.
        """
        self._join()
        self._is_starter = False
        is_clean = stop_controller(self.namespace)
        if self._owns_ray:
            self._owns_ray = False
            leave_ray()
        return is_clean
