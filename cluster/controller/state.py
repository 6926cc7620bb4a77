"""What the Controller knows: the metadata log, the LogManagers, the partitions' map; and its lock.

``opening.py``, ``topics.py``, ``moves.py`` and ``controller_actor.py`` work on this. The lock
guards all of it, and is never held while another actor is waited for.
"""

import logging
import threading
import time
from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

from raylog.actors.errors import NotLeader, UnknownTopicOrPartition
from raylog.actors.events import warn
from raylog.actors.messages import Configured, Placed
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, OPEN_TIMEOUT_S, Call, Gathered, gather
from raylog.actors.runtime.handles import kill, running
from raylog.actors.runtime.names import LOG_MANAGER, Node, is_ours
from raylog.actors.runtime.stubs import LogManagerStub, find_log_manager
from raylog.cluster.controller.metadata import ClusterState, Topic
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.placement import Placement, Wanted, wanted_of
from raylog.cluster.controller.versions import Confirming, TopicVersions
from raylog.storage.config import LogConfig
from raylog.storage.names import TopicPartition
from raylog.storage.state.properties import random_id

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Key = TypeVar("Key", bound=Hashable)

# The folders of a node that never returns cannot be removed. Beyond this number the oldest are
# forgotten. If one of them turns up later, it is set aside as a stray.
MAX_LEFT_OVER = 10_000


# How long the Controller waits for LogManagers. It is longer than a LogManager itself waits for a
# LogActor that hangs: with equal times, which of the two gives up first would be chance.
PATIENCE_S = CALL_TIMEOUT_S + 10.0


class LeftOver(NamedTuple):
    """A partition that is to be removed, but that its LogManager has not removed yet.

    ``node``: where its folder was seen last. A node without a label comes back under another key:
    there the folder is found again, by its topic's id.
    """

    partition: TopicPartition
    topic_id: str
    node: str
    why: str = ""  # why the last try failed


class ControllerState:
    """The facts; callers hold ``_lock`` where two of them must agree."""

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        self._namespace, self._config = namespace, config
        self._lock = threading.RLock()
        self._metadata: MetadataLog | None = None
        self._nodes: dict[str, Node] = {}  # those that have joined, or are about to, by their key
        # the same nodes' LogManagers, from their making on
        self._managers: dict[str, LogManagerStub] = {}
        self._placement = Placement()
        self._has_joined = False  # whether a node took part, now or earlier in this life
        self._node_problems: dict[str, str] = {}  # node id -> why it takes no part
        # the node of each partition that is being made
        self._nodes_of_new: list[str] = []
        # the ids of the topics that are being made or extended
        self._topics_being_made: set[str] = set()
        # by partition and topic id
        self._left_over: dict[tuple[TopicPartition, str], LeftOver] = {}
        self._reserved: dict[str, str] = {}  # names of topics -> what is being done to them
        self._moving: dict[TopicPartition, str] = {}  # partitions that nobody else opens -> node id
        # what LogManagers are told of the config versions, and until when they believe it
        self._versions = TopicVersions(random_id())
        self._confirming = Confirming(time.monotonic())

    @property
    def _log(self) -> MetadataLog:
        if self._metadata is None:
            raise NotLeader("the broker", "it is starting or stopping")
        return self._metadata

    @property
    def _state(self) -> ClusterState:
        return self._log.state

    def _topic(self, name: str) -> Topic:
        topic = self._state.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(name, None, "the topic does not exist")
        return topic

    def _wanted(self) -> list[Wanted]:
        with self._lock:
            return wanted_of(self._state.topics.values())

    def _config_of(self, topic: Topic) -> LogConfig:
        """What a topic's partitions obey."""
        return LogConfig.parse(topic.config, self._config.topic_defaults)

    def _opening(
        self, manager: LogManagerStub, partition: TopicPartition, topic: Topic, directory_id: str
    ) -> Call[Placed]:
        """The call that opens a partition. Raises InvalidConfig."""
        configured = Configured(self._config_of(topic), topic.version)
        return manager.open_partition(partition, topic.topic_id, configured, directory_id)

    def _manager_of(self, directory_id: str) -> LogManagerStub | None:
        """The LogManager that has a log dir; None while its node is away."""
        return self._managers.get(self._placement.node_of.get(directory_id, ""))

    def _note_left_over(self, left_over: LeftOver) -> None:
        self._left_over[left_over.partition, left_over.topic_id] = left_over
        if len(self._left_over) > MAX_LEFT_OVER:
            oldest = next(iter(self._left_over))
            del self._left_over[oldest]


def gather_patiently(
    calls: Mapping[Key, Call[Answer]], patience_s: float = PATIENCE_S
) -> Gathered[Key, Answer]:
    """The answers to calls, and the raylog errors of those that failed.

    Calls that hang cost ``patience_s`` together, however long the others take: the time begins anew
    with each answer. Raises an error that has no raylog name.
    """
    gathered = gather(calls, patience_s, from_last_answer=True)
    gathered.raise_faults()
    return gathered


def all_answers(calls: Mapping[Key, Call[Answer]]) -> dict[Key, Answer]:
    """The answers to calls that may take as long as opening a log, in their order.

    Raises the first error among them, but not before all have ended.
    """
    gathered = gather_patiently(calls, OPEN_TIMEOUT_S)
    for error in gathered.errors.values():
        raise error
    return gathered.answers


def stop_nodes(namespace: str) -> bool:
    """Stop every LogManager in order, then end what is left; returns whether all was in order.

    Left are actors of nodes that are away, and those of a LogManager that died while it stopped.
    """
    names = [name for name in sorted(running(namespace)) if name.startswith(LOG_MANAGER)]
    # All of them are found before any is stopped: a look-up that fails leaves nothing half done.
    managers = {name: find_log_manager(name.removeprefix(LOG_MANAGER), namespace) for name in names}
    calls = {name: manager.shutdown() for name, manager in managers.items() if manager is not None}
    gathered = gather_patiently(calls, OPEN_TIMEOUT_S)
    ends: dict[str, bool | Exception] = {**gathered.answers, **gathered.errors}
    not_in_order = {name: end for name, end in ends.items() if end is not True}
    for name, end in not_in_order.items():
        warn(logger, "node-not-stopped-in-order", node=name, why=end)
    for name in filter(is_ours, running(namespace)):
        kill(name, namespace)
    return not not_in_order
