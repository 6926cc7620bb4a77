"""What the Controller knows: the metadata log, the LogManagers, the map of partitions. And its
lock.

``opening.py``, ``topics.py``, ``moves.py`` and ``controller.py`` work on this; the lock guards all
of it, and is never held while another actor is waited for.
"""

import logging
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import ray

from raylog.actors.errors import NotLeader, RequestTimedOut, UnknownTopicOrPartition
from raylog.actors.events import warn
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, OPEN_TIMEOUT_S, wait_for
from raylog.actors.runtime.handles import find, kill, running
from raylog.actors.runtime.names import LOG_MANAGER, Node, is_ours
from raylog.cluster.controller.metadata import ClusterState, Topic
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.placement import Placement, Wanted, wanted_of
from raylog.storage.config import LogConfig
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition

logger = logging.getLogger(__name__)

# The folders of nodes that never come back are waited for in vain: beyond this the oldest are
# forgotten. One that turns up later is set aside as a stray.
MAX_LEFT_OVER = 10_000
# How often it is looked whether some of many calls have been answered.
LOOK_INTERVAL_S = 5.0


class LeftOver(NamedTuple):
    """A partition that is to be removed, but whose LogManager did not do it yet.

    ``node``: where its folder was seen last. A node without a label comes back under another key:
    there the folder is found again, by its topic's id.
    """

    partition: TopicPartition
    topic_id: str
    node: str
    why: str = ""  # it could not be removed yet


class ControllerState:
    """The facts; callers hold ``_lock`` where two of them must agree."""

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        self._namespace, self._config = namespace, config
        self._lock = threading.RLock()
        self._metadata: MetadataLog | None = None
        self._nodes: dict[str, Node] = {}  # those that have joined, or are about to, by their key
        self._managers: dict[str, Any] = {}  # the same nodes' LogManagers, from their making on
        self._placement = Placement()
        self._node_problems: dict[str, str] = {}  # node id -> why it takes no part
        self._making: list[str] = []  # the nodes where partitions are being made
        self._made_now: set[str] = set()  # the ids of the topics that are being made or extended
        # by partition and topic id
        self._left_over: dict[tuple[TopicPartition, str], LeftOver] = {}
        self._reserved: dict[str, str] = {}  # names of topics -> what is being done to them
        self._moving: dict[TopicPartition, str] = {}  # partitions that nobody else opens -> node id

    @property
    def _log(self) -> MetadataLog:
        if self._metadata is None:
            raise NotLeader("the broker", "it is being started or stopped")
        return self._metadata

    @property
    def _state(self) -> ClusterState:
        return self._log.state

    def _topic(self, name: str) -> Topic:
        topic = self._state.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(name, None, "no such topic")
        return topic

    def _wanted(self) -> list[Wanted]:
        with self._lock:
            return wanted_of(self._state.topics.values())

    def _config_of(self, topic: Topic) -> LogConfig:
        """What a topic's partitions obey."""
        return LogConfig.parse(topic.config, self._config.topic_defaults)

    def _opening(
        self, manager: Any, partition: TopicPartition, topic: Topic, directory_id: str
    ) -> Any:
        config = self._config_of(topic)
        return manager.open_partition.remote(
            partition, topic.topic_id, config, topic.version, directory_id
        )

    def _manager_of(self, directory_id: str) -> Any | None:
        """The LogManager that has a log dir; None while its node is away."""
        return self._managers.get(self._placement.node_of.get(directory_id, ""))

    def _note_left_over(self, left: LeftOver) -> None:
        self._left_over[left.partition, left.topic_id] = left
        if len(self._left_over) > MAX_LEFT_OVER:
            del self._left_over[next(iter(self._left_over))]


def answer_of(reference: Any, what: str, timeout_s: float = OPEN_TIMEOUT_S) -> Any:
    """The answer to a call that may take as long as opening a log, or the error that it ended
    with."""
    try:
        return wait_for(reference, what, timeout_s)
    except RaylogError as error:
        return error


def answers_of(calls: Mapping[Any, str], patience_s: float = CALL_TIMEOUT_S) -> dict[Any, Any]:
    """The answers to calls (reference -> what for), or the errors that they ended with.

    Those that hang cost ``patience_s`` together: for so long none of them was answered. Then they
    are RequestTimedOut.
    """
    left, answers, silent_s = list(calls), {}, 0.0
    while left and silent_s < patience_s:
        ready, left = ray.wait(left, num_returns=len(left), timeout=LOOK_INTERVAL_S)
        silent_s = 0.0 if ready else silent_s + LOOK_INTERVAL_S
        answers.update({reference: answer_of(reference, calls[reference]) for reference in ready})
    timed_out = {
        reference: RequestTimedOut(calls[reference], int(patience_s * 1000)) for reference in left
    }
    return {**answers, **timed_out}


def all_answers(references: list[Any], what: str) -> list[Any]:
    """The answers to all of the calls; raises the first error among them, but not before all have
    ended."""
    answers = [answer_of(reference, what) for reference in references]
    for answer in answers:
        if isinstance(answer, RaylogError):
            raise answer
    return answers


def stop_nodes(namespace: str) -> bool:
    """Stop every LogManager in order, then end what is left: actors of nodes that are away, or that
    a LogManager left which died over it. Returns whether all of it was in order."""
    names = sorted(name for name in running(namespace) if name.startswith(LOG_MANAGER))
    handles = {name: find(name, namespace) for name in names}
    pending = {
        name: handle.shutdown.remote() for name, handle in handles.items() if handle is not None
    }
    clean = True
    for name, reference in pending.items():
        answer = answer_of(reference, f"stopping node {name.removeprefix(LOG_MANAGER)}")
        if answer is not True:
            warn(logger, "node-not-stopped-in-order", node=name, why=answer)
            clean = False
    for name in filter(is_ours, running(namespace)):
        kill(name, namespace)
    return clean
