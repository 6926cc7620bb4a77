"""FindCoordinator: who coordinates a group or a transactional id, and how its topic comes to be.

A group belongs to one partition of ``__consumer_offsets``, and a transactional id to one of
``__transaction_state``, by the hash of its name. The LogActor of that partition is its coordinator.
The topic is made when somebody asks for the first time: a group may live for hours before it
commits anything. Until it serves the answer is 15, "not available", and clients ask again.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from raylog.actors.coordinators.codes import COORDINATOR_NOT_AVAILABLE, NONE
from raylog.actors.coordinators.homes import partition_of
from raylog.actors.plane.apis.topics import CREATE_TOPICS
from raylog.actors.plane.codes import INVALID_REQUEST
from raylog.actors.plane.frames import read_answer, request_frame
from raylog.actors.plane.image import NO_NODE, BrokerImage, ClusterImage
from raylog.storage.errors import RaylogError
from raylog.storage.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from raylog.storage.schemas.types import Value

_GROUP, _TRANSACTION = 0, 1  # types of keys
_SEVERAL_FROM: Final = 4
_TOPIC_EXISTS: Final = 36
# To make the topic: a LogActor starts in a second or two.
MAKE_TIMEOUT_S: Final = 20.0


class Commands(Protocol):
    """See ``cluster_door.py``."""

    def answer_command(self, frame: bytes, timeout_s: float) -> bytes: ...


class TopicPlan(Protocol):
    """How an internal topic is made: ``OffsetsTopic``, ``StateTopic``."""

    @property
    def partitions(self) -> int: ...
    @property
    def config(self) -> Mapping[str, str]: ...


class _Home(NamedTuple):
    """Where the keys of a type have their coordinators."""

    topic: str
    plan: TopicPlan


class CoordinatorFinder:
    """See the module's head. Any number of threads at once."""

    def __init__(
        self, commands: Commands, offsets_topic: TopicPlan, state_topic: TopicPlan
    ) -> None:
        """How the topics of groups and of transactions are made."""
        self._commands = commands
        self._homes = {
            _GROUP: _Home(CONSUMER_OFFSETS, offsets_topic),
            _TRANSACTION: _Home(TRANSACTION_STATE, state_topic),
        }
        self._making = threading.Lock()

    def answer(self, version: int, body: Value, image: ClusterImage) -> Value:
        """The answer to a FindCoordinator request."""
        keys: Sequence[str] = body["coordinatorKeys"] if version >= _SEVERAL_FROM else [body["key"]]
        home, why = self._homes.get(body["keyType"]), ""
        if home is not None and keys and home.topic not in image.topics:
            why = self._make(home) or f"{home.topic} is being made"
        found = [_found(key, home, image, why) for key in keys]
        if version >= _SEVERAL_FROM:
            return {"throttleTimeMs": 0, "coordinators": found}
        answer = {"throttleTimeMs": 0, **found[0]}
        del answer["key"]
        if not version:
            del answer["errorMessage"]  # it has none
        return answer

    def _make(self, home: _Home) -> str:
        """Have the topic made; who comes while somebody is at it does not wait.

        Returns why it could not be made, or nothing.
        """
        if not self._making.acquire(blocking=False):
            return ""
        try:
            topic = {
                "name": home.topic,
                "numPartitions": home.plan.partitions,
                "replicationFactor": 1,
                "assignments": [],
                "configs": [
                    {"name": name, "value": value} for name, value in home.plan.config.items()
                ],
            }
            body = {
                "topics": [topic],
                "timeoutMs": int(MAKE_TIMEOUT_S * 1000),
                "validateOnly": False,
            }
            version = CREATE_TOPICS.last_version
            frame = request_frame(CREATE_TOPICS, version, body)
            answered = self._commands.answer_command(frame, MAKE_TIMEOUT_S)
            made = read_answer(CREATE_TOPICS, version, answered)["topics"][0]
        except RaylogError as error:
            return f"{home.topic} is not made yet: {error}"
        finally:
            self._making.release()
        if made["errorCode"] in (NONE, _TOPIC_EXISTS):
            return ""
        return f"{home.topic} cannot be made: {made['errorMessage']}"


def _found(key: str, home: _Home | None, image: ClusterImage, why: str) -> Value:
    found = _coordinator(key, home, image, why)
    if isinstance(found, BrokerImage):
        code, message = NONE, ""
    else:
        code, message = found
        found = BrokerImage(NO_NODE, "", -1)
    return {
        "key": key,
        "errorCode": code,
        "errorMessage": message,
        "nodeId": found.node_id,
        "host": found.host,
        "port": found.port,
    }


def _coordinator(
    key: str, home: _Home | None, image: ClusterImage, why: str
) -> BrokerImage | tuple[int, str]:
    """The broker; or the code and the words that say why there is none. ``why``: of no topic."""
    if home is None:
        return INVALID_REQUEST, "a key is of a group (0) or of a transaction (1)"
    topic = image.topics.get(home.topic)
    if topic is None or not topic.partitions:
        return COORDINATOR_NOT_AVAILABLE, why
    number = partition_of(key, len(topic.partitions))
    leader = topic.partitions[number]
    if leader.is_online:
        for broker in image.brokers:
            if broker.node_id == leader.leader:
                return broker
    return COORDINATOR_NOT_AVAILABLE, f"{home.topic}-{number} is not served now"
