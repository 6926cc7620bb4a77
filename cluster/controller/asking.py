"""What users ask of the Controller, as calls that return an answer. No Ray.

Look-ups are answered from the loop's snapshot, at once. Commands become a request to the machine,
and wait for its answer with a deadline; nothing is held meanwhile.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from raylog.actors.errors import NoLogDirs, OlderMetadata
from raylog.actors.messages import ConfigEntry, LogDirStatus, UserDescription
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.plane.sasl.scram import Verifier
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, OPEN_TIMEOUT_S, WORK_TIMEOUT_S
from raylog.cluster.client.connection import TopicMetadata
from raylog.cluster.controller import describe
from raylog.cluster.controller.commands import (
    AddPartitions,
    AllocateProducerId,
    AlterTopic,
    ApplyConfig,
    CancelMove,
    Command,
    CreateTopic,
    DeleteTopic,
    DeleteUser,
    DrainNode,
    FinalizeUpgrade,
    ListChange,
    LogDirOnline,
    LogDirOut,
    MovePartition,
    PutUser,
    StartNode,
    StopNode,
    wanted_state,
)
from raylog.cluster.controller.config_changes import AppliedConfig
from raylog.cluster.controller.describe import (
    PartitionDescription,
    Snapshot,
    TopicDescription,
)
from raylog.cluster.controller.events import Asked
from raylog.cluster.controller.following import CopyStatus
from raylog.cluster.controller.instructions import Altered, Answered, Applied
from raylog.cluster.controller.judging import is_meant
from raylog.cluster.controller.log_dir_states import (
    LogDirDescription,
    describe_log_dir,
    describe_log_dirs,
)
from raylog.cluster.controller.managers import is_passing
from raylog.cluster.controller.meters import numbers
from raylog.cluster.controller.node_states import (
    NodeDescription,
    describe_node,
    describe_node_list,
    key_of,
    keys_of,
    no_such_node,
    not_serving,
    replaced,
)
from raylog.cluster.controller.records import DirRecord, PartitionRecord, TopicRecord
from raylog.cluster.controller.requests import Requests
from raylog.cluster.controller.rolling import digests_of, outdated_nodes
from raylog.cluster.controller.settings import topic_entries
from raylog.cluster.controller.spread import short_key
from raylog.cluster.controller.upgrade import UpgradeStatus, upgrade_status
from raylog.storage.errors import LogDirOffline, RaylogError
from raylog.storage.names import TopicPartition
from raylog.storage.state.properties import random_id

# How long a creation waits for nodes that are about to take part.
NODE_PATIENCE_S = 10.0
_INTERVAL_S = 0.1


class Lookups:
    """Answers from memory. ``others``: Ray's node id -> why a node takes no part."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        problems: Callable[[], Mapping[str, RaylogError]],
        others: Callable[[], Mapping[str, str]],
    ) -> None:
        self._snapshot = snapshot
        self._problems, self._others = problems, others

    def cluster_id(self) -> str:
        return self._snapshot().desired.cluster_id

    def users(self) -> list[UserDescription]:
        users = sorted(self._snapshot().desired.users.values(), key=lambda user: user.name)
        return [
            UserDescription(user.name, tuple(one.mechanism for one in user.verifiers))
            for user in users
        ]

    def list_topics(self) -> list[str]:
        return describe.list_topics(self._snapshot())

    def describe_topic(self, name: str) -> TopicDescription:
        return describe.describe_topic(self._snapshot(), name)

    def topic_metadata(self, name: str) -> TopicMetadata:
        snapshot = self._snapshot()
        return describe.topic_metadata(snapshot, name, snapshot.config.topic_defaults)

    def broker_config(self) -> BrokerConfig:
        return self._snapshot().config

    def topic_config(self, name: str) -> list[ConfigEntry]:
        snapshot = self._snapshot()
        topic = describe.topic_of(snapshot, name)
        return topic_entries(topic.config, snapshot.config.topic_defaults)

    def topic_name(self, topic_id: str) -> str | None:
        """Of the topic with this id; None where there is none."""
        topic = self._snapshot().desired.topics.get(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, name: str) -> str | None:
        """Of the topic with this name; None where there is none."""
        topics = self._snapshot().desired.topics.values()
        return next((topic.topic_id for topic in topics if topic.name == name), None)

    def kafka_ids(self) -> frozenset[int]:
        """The numbers of all brokers that Kafka's clients see."""
        desired = self._snapshot().desired
        own = [record.kafka_id for record in desired.nodes.values()]
        return frozenset(own + [record.kafka_id for record in desired.partitions.values()])

    def explain(self, partition: TopicPartition) -> RaylogError | None:
        return describe.explain(self._snapshot(), partition)

    def nodes(self) -> dict[str, str | None]:
        return describe.describe_nodes(self._snapshot(), self._problems(), self._others())

    def log_dirs(self) -> list[LogDirStatus]:
        return describe_log_dirs(self._snapshot())

    def describe_log_dirs(self, log_dir: str) -> list[LogDirDescription]:
        """The log dirs of this path, or of this directory id."""
        snapshot = self._snapshot()
        return [
            describe_log_dir(snapshot, record.directory_id)
            for record in snapshot.desired.dirs.values()
            if is_meant(record, log_dir)
        ]

    def metadata_copies(self) -> tuple[CopyStatus, ...]:
        """The copies of the metadata, the Controller's own log first."""
        return self._snapshot().copies

    def numbers(self) -> dict[str, float]:
        """The Controller's metrics; see ``meters.py``."""
        return numbers(self._snapshot())

    def upgrade_status(self) -> UpgradeStatus:
        """What each node runs, and the level of the cluster."""
        return upgrade_status(self._snapshot())

    def describe_nodes(self) -> list[NodeDescription]:
        return describe_node_list(self._snapshot(), self._problems(), self._others())

    def problems(self) -> dict[str, str]:
        """What is wrong that no other look-up tells: subject -> why.

        ``copies of the metadata``: there is one, though there are several nodes.
        ``failed copies of the metadata``: those that are not in sync, beside others that are.
        ``metadata``: nothing can be changed any more. ``older metadata``: the same, before somebody
        says what to do. ``metadata reserve``: it is not whole, since the disk is full.
        ``metadata snapshot``: the last one was not made. ``damaged metadata snapshot``: one cannot
        be read.
        ``upkeep of <Ray's node id>``: nobody removes there what is old.
        ``config of <Ray's node id>``: the node may obey an older config of the broker.
        """
        snapshot = self._snapshot()
        problems: dict[str, str] = {}
        if snapshot.failure is not None:
            is_older = isinstance(snapshot.failure, OlderMetadata)
            subject = describe.OLDER_METADATA if is_older else describe.METADATA
            problems[subject] = str(snapshot.failure)
        if snapshot.reserve_problem is not None:
            problems[describe.METADATA_RESERVE] = str(snapshot.reserve_problem)
        if snapshot.snapshot_problem is not None:
            problems[describe.METADATA_SNAPSHOT] = str(snapshot.snapshot_problem)
        if snapshot.damaged_snapshots:
            problems[describe.DAMAGED_SNAPSHOT] = "; ".join(snapshot.damaged_snapshots)
        copies = describe.missing_copies(snapshot)
        if copies:
            problems[describe.METADATA_COPIES] = copies
        failed = "" if copies else describe.failed_copies(snapshot)
        if failed:
            problems[describe.FAILED_COPIES] = failed
        for node_id, why in describe.missing_upkeep(snapshot).items():
            problems[describe.UPKEEP_OF + node_id] = why
        wanted = digests_of(snapshot.config)
        outdated = outdated_nodes(snapshot.desired, snapshot.observed, snapshot.now_ms, wanted)
        for key, why in outdated.items():
            problems[describe.CONFIG_OF + snapshot.node_ids.get(key, key)] = why
        return problems


class Commanding:
    """Commands, each until it is done. ``put``: takes the event for the machine."""

    def __init__(
        self,
        put: Callable[[Asked], None],
        requests: Requests,
        snapshot: Callable[[], Snapshot],
        problems: Callable[[], Mapping[str, RaylogError]],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``clock``: seconds that never go back."""
        self._put, self._requests = put, requests
        self._snapshot, self._problems = snapshot, problems
        self._clock, self._sleep = clock, sleep
        self._most_s = math.inf

    def within(self, most_s: float) -> "Commanding":
        """Commands whose client waits no longer: what takes more is RequestTimedOut, and goes on.

        Each holds a thread of the Controller for as long as it is waited for.
        """
        bounded = copy(self)
        bounded._most_s = most_s
        return bounded

    def create_topic(
        self,
        name: str,
        partitions: int | None,
        config: Mapping[str, Any],
        validate_only: bool = False,
        topic_id: str | None = None,
    ) -> TopicDescription:
        """Make a topic; when this returns its partitions serve, and nothing is left if it fails.

        ``validate_only``: raise what would keep it from being made now, and make nothing; the
        answer has neither an id nor partitions then. ``topic_id``: a random one, by which the
        request is known when it is repeated; None: it is not repeated.
        """
        command = CreateTopic(
            name=name,
            topic_id=topic_id or random_id(),
            partitions=partitions,
            config=config,
            validate_only=validate_only,
        )
        topic = self._make(command, f"creating {name}")
        if validate_only:
            return TopicDescription(name, topic_id="", config=topic.config, partitions=())
        return describe.describe_topic(self._snapshot(), name)

    def add_partitions(
        self,
        name: str,
        total: int,
        validate_only: bool = False,
        topic_id: str | None = None,
        is_repeated: bool = False,
    ) -> TopicDescription:
        """Extend a topic to ``total`` partitions; as ``create_topic``. See ``AddPartitions``."""
        command = AddPartitions(
            name=name,
            total=total,
            topic_id=topic_id,
            validate_only=validate_only,
            is_repeated=is_repeated,
        )
        self._make(command, f"extending {name}")
        return describe.describe_topic(self._snapshot(), name)

    def _make(self, command: Command, what: str) -> TopicRecord:
        """Try again for a while where no node may be used, but one is about to take part."""
        end_s = self._clock() + NODE_PATIENCE_S
        while True:
            try:
                made = self._ask(command, what, OPEN_TIMEOUT_S)
            except NoLogDirs:
                if self._clock() >= end_s or self._has_settled():
                    raise
                if isinstance(command, CreateTopic) and self._was_undone(command):
                    command = replace(command, topic_id=random_id())
                self._sleep(_INTERVAL_S)
                continue
            assert isinstance(made, TopicRecord), made
            return made

    def _has_settled(self) -> bool:
        """Whether waiting is of no use. A LogManager that was just killed is back in a moment."""
        lasting = [key for key, why in self._problems().items() if not is_passing(why)]
        return describe.has_settled(self._snapshot(), lasting)

    def _was_undone(self, creation: CreateTopic) -> bool:
        return self._snapshot().desired.was_removed(creation.topic_id)

    def alter_topic_config(
        self,
        name: str,
        changes: Mapping[str, Any],
        delete: Sequence[str],
        validate_only: bool = False,
        *,
        lists: Sequence[ListChange] = (),
        replaces: bool = False,
    ) -> TopicDescription:
        """Change a topic's config; when this returns, all partitions within reach obey it.

        The answer names the others in ``outdated``. They obey it when they are back, and nothing
        is removed from them under the config of before. ``validate_only``: raise what would keep it
        from being changed now, and change nothing; the answer has the config that the topic would
        have. ``replaces``: ``changes`` is the whole of its own config then.
        """
        command = AlterTopic(
            name=name,
            changes=changes,
            delete=tuple(delete),
            lists=tuple(lists),
            validate_only=validate_only,
            replaces=replaces,
        )
        answer = self._ask(command, f"configuring {name}", OPEN_TIMEOUT_S)
        described = describe.describe_topic(self._snapshot(), name)
        if not isinstance(answer, Altered):
            assert isinstance(answer, TopicRecord), answer
            return described._replace(config=answer.config)
        behind = {entry.partition.partition for entry in answer.behind}
        return described._replace(outdated=tuple(sorted(behind | set(described.outdated))))

    def apply_config(
        self, config: Mapping[str, Any], validate_only: bool = False, if_version: int | None = None
    ) -> AppliedConfig:
        """Have the broker obey another config; when this returns all within reach obey it.

        Raises InvalidConfig for what a living broker cannot take, with nothing changed.
        ``validate_only``: only say what differs, and how it would be taken. ``if_version``: see
        ``ApplyConfig``.
        """
        command = ApplyConfig(config=config, validate_only=validate_only, if_version=if_version)
        applied = self._ask(command, "the broker's config", WORK_TIMEOUT_S)
        assert isinstance(applied, Applied), applied
        return AppliedConfig(applied.changes, dict(applied.behind), applied.version)

    def delete_topic(
        self, name: str, topic_id: str | None = None, is_repeated: bool = False
    ) -> None:
        """Remove a topic and its records; returns when nothing within reach is left of it.

        ``topic_id``, ``is_repeated``: see ``DeleteTopic``. Raises what keeps records from being
        removed: the topic is gone then, and they will be.
        """
        command = DeleteTopic(name=name, topic_id=topic_id, is_repeated=is_repeated)
        self._ask(command, f"deleting {name}", OPEN_TIMEOUT_S)

    def move_partition(self, name: str, number: int, log_dir: str) -> PartitionDescription:
        """Move a partition to another log dir of its node; returns when it serves there."""
        command = MovePartition(name=name, number=number, log_dir=log_dir)
        moved = self._ask(command, f"moving {name}-{number}", WORK_TIMEOUT_S)
        assert isinstance(moved, PartitionRecord), moved
        return describe.describe_partition(self._snapshot(), moved)

    def cancel_move(self, name: str, number: int) -> PartitionDescription:
        """Leave a partition that is being moved where it is."""
        command = CancelMove(name=name, number=number)
        record = self._ask(command, f"cancelling the move of {name}-{number}", CALL_TIMEOUT_S)
        assert isinstance(record, PartitionRecord), record
        return describe.describe_partition(self._snapshot(), record)

    def log_dir_online(self, log_dir: str, node: str | None = None) -> LogDirDescription:
        """Use a log dir again that was offline; returns at once with what that needs.

        It is ``returning`` until its logs were read back from the disk. ``log_dir``: a path or a
        directory id. ``node``: the key of its node. Raises LogDirOffline for one that no node could
        read when it started, and has not looked at again since (``looking_again.py``).
        """
        command = LogDirOnline(log_dir=log_dir, node=node)
        record = self._ask(command, f"using {log_dir} again", CALL_TIMEOUT_S)
        assert isinstance(record, DirRecord), record
        if record.state == "online":
            why = describe.why_unread(self._snapshot(), record)
            if why is not None:
                raise LogDirOffline(record.path, why)
        return describe_log_dir(self._snapshot(), record.directory_id)

    def log_dir_offline(self, log_dir: str, node: str | None = None) -> LogDirDescription:
        """Take a log dir out of use in order; returns when its disk can be taken out.

        Or when nobody can tell when it can be: ``waits_for`` of the answer says what is missing. It
        may be asked again. ``node``: as of ``key_of``. Raises InvalidRequest for a log dir that is
        not known, or that cannot be spared: the Controller's with the metadata, or the last one of
        its node.
        """
        key = None if node is None else self._node(node)
        command = LogDirOut(log_dir=log_dir, node=key)
        record = self._ask(command, f"taking {log_dir} offline", WORK_TIMEOUT_S)
        assert isinstance(record, DirRecord), record
        return describe_log_dir(self._snapshot(), record.directory_id)

    def drain_node(self, node: str, is_undone: bool = False) -> NodeDescription:
        """Give a node no new partition, or give it some again. ``node``: as of ``key_of``.

        This and the next two return when it is so, or when nobody can tell when it will be:
        ``waits_for`` of the answer says what is missing. Each may be asked again. Raises
        InvalidRequest for a node that is not known, or that is stopped; NodeOrderReplaced where
        another order for the node came meanwhile.
        """
        key = self._node(node, is_start=is_undone)
        return self._operate(DrainNode(node=key, is_undone=is_undone), key)

    def stop_node(self, node: str) -> NodeDescription:
        """Close all that a node has in order, and have nothing run there."""
        key = self._node(node)
        return self._operate(StopNode(node=key), key)

    def start_node(self, node: str) -> NodeDescription:
        """Use a node again that was stopped or drained; the answer says what does not serve."""
        key = self._node(node, is_start=True)
        described = self._operate(StartNode(node=key), key)
        return described._replace(not_serving=not_serving(self._snapshot(), key))

    def finalize_upgrade(self, level: int, without: Sequence[str] = ()) -> int:
        """Have the cluster write a newer level, which nothing undoes; returns its level.

        ``without``: nodes that do not report and need not, as of ``key_of``. Raises UpgradeRefused
        with nothing changed, and InvalidRequest for a node that is not known.
        """
        keys = frozenset(self._node(name) for name in without)
        command = FinalizeUpgrade(level=level, without=keys)
        finalized = self._ask(command, f"level {level}", CALL_TIMEOUT_S)
        assert isinstance(finalized, int), finalized
        return finalized

    def put_user(self, name: str, verifiers: Sequence[Verifier]) -> None:
        """Let a user in by SASL, with this of his password, also in the place of another.

        Raises InvalidRequest for a name that is none, and for a cluster of an older level.
        """
        command = PutUser(name=name, verifiers=tuple(verifiers))
        self._ask(command, f"user {name}", CALL_TIMEOUT_S)

    def delete_user(self, name: str, is_repeated: bool = False) -> None:
        """Let a user in no more. Raises InvalidRequest for one that is not known."""
        command = DeleteUser(name=name, is_repeated=is_repeated)
        self._ask(command, f"deleting user {name}", CALL_TIMEOUT_S)

    def _node(self, name: str, *, is_start: bool = False) -> str:
        snapshot = self._snapshot()
        key = key_of(snapshot, name, is_start=is_start)
        if key is None:
            raise no_such_node(name, keys_of(snapshot))
        return key

    def _operate(self, command: DrainNode | StopNode | StartNode, key: str) -> NodeDescription:
        ordered = wanted_state(command)
        self._ask(command, f"{ordered} for node {short_key(key)}", WORK_TIMEOUT_S)
        snapshot, problems = self._snapshot(), self._problems()
        error = replaced(snapshot, key, ordered, problems)  # since it was answered
        if error is not None:
            raise error
        return describe_node(snapshot, key, problems)

    def allocate_producer_id(self) -> int:
        """A producer id that nobody has had."""
        producer_id = self._ask(AllocateProducerId(), "a producer id", CALL_TIMEOUT_S)
        assert isinstance(producer_id, int), producer_id
        return producer_id

    def _ask(self, command: Command, what: str, timeout_s: float) -> Answered:
        request = self._requests.begin()
        self._put(Asked(request=request.number, command=command))
        return self._requests.wait(request, what, min(timeout_s, self._most_s))
