"""FindCoordinator: which broker coordinates a group, and how its topic comes into being.

A group belongs to one partition of ``__consumer_offsets``, by the hash of its name. The LogActor of
that partition is its coordinator. The topic is made when somebody asks for the first time: a group
may live for hours before it commits anything. Until it serves the answer is 15, "not available",
and clients ask again.
"""

import threading
from collections.abc import Sequence
from typing import Final, Protocol

from raylog.actors.coordinators.codes import COORDINATOR_NOT_AVAILABLE, NONE
from raylog.actors.coordinators.group_config import OffsetsTopic
from raylog.actors.plane.apis.topics import CREATE_TOPICS
from raylog.actors.plane.codes import INVALID_REQUEST
from raylog.actors.plane.frames import read_answer, request_frame
from raylog.actors.plane.image import NO_NODE, BrokerImage, ClusterImage
from raylog.storage.errors import RaylogError
from raylog.storage.names import CONSUMER_OFFSETS
from raylog.storage.schemas.types import Value

_GROUP, _TRANSACTION = 0, 1  # types of keys
_SEVERAL_FROM: Final = 4
_INT, _UINT = 0x7FFF_FFFF, 0xFFFF_FFFF
_TOPIC_EXISTS: Final = 36
# To make the topic: a LogActor starts in a second or two.
MAKE_TIMEOUT_S: Final = 20.0


class Commands(Protocol):
    """See ``cluster_door.py``."""

    def answer_command(self, frame: bytes, timeout_s: float) -> bytes: ...


class CoordinatorFinder:
    """See the module's head. Any number of threads at once."""

    def __init__(self, commands: Commands, topic: OffsetsTopic) -> None:
        self._commands, self._topic = commands, topic
        self._making = threading.Lock()

    def answer(self, version: int, body: Value, image: ClusterImage) -> Value:
        """The answer to a FindCoordinator request."""
        keys: Sequence[str] = body["coordinatorKeys"] if version >= _SEVERAL_FROM else [body["key"]]
        why = f"{CONSUMER_OFFSETS} is being made"
        if body["keyType"] == _GROUP and keys and CONSUMER_OFFSETS not in image.topics:
            why = self._make() or why
        found = [_found(key, body["keyType"], image, why) for key in keys]
        if version >= _SEVERAL_FROM:
            return {"throttleTimeMs": 0, "coordinators": found}
        answer = {"throttleTimeMs": 0, **found[0]}
        del answer["key"]
        if not version:
            del answer["errorMessage"]  # it has none
        return answer

    def _make(self) -> str:
        """Have the topic made; who comes while somebody is at it does not wait.

        Returns why it could not be made, or nothing.
        """
        if not self._making.acquire(blocking=False):
            return ""
        try:
            topic = {
                "name": CONSUMER_OFFSETS,
                "numPartitions": self._topic.partitions,
                "replicationFactor": 1,
                "assignments": [],
                "configs": [
                    {"name": name, "value": value} for name, value in self._topic.config.items()
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
            return f"{CONSUMER_OFFSETS} is not made yet: {error}"
        finally:
            self._making.release()
        if made["errorCode"] in (NONE, _TOPIC_EXISTS):
            return ""
        return f"{CONSUMER_OFFSETS} cannot be made: {made['errorMessage']}"


def _found(key: str, key_type: int, image: ClusterImage, why: str) -> Value:
    found = _coordinator(key, key_type, image, why)
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
    key: str, key_type: int, image: ClusterImage, why: str
) -> BrokerImage | tuple[int, str]:
    """The broker; or the code and the words that say why there is none. ``why``: of no topic."""
    if key_type == _TRANSACTION:
        return COORDINATOR_NOT_AVAILABLE, "there are no transactions yet"
    if key_type != _GROUP:
        return INVALID_REQUEST, "a key is of a group (0) or of a transaction (1)"
    topic = image.topics.get(CONSUMER_OFFSETS)
    if topic is None or not topic.partitions:
        return COORDINATOR_NOT_AVAILABLE, why
    number = group_partition(key, len(topic.partitions))
    leader = topic.partitions[number]
    if leader.is_online:
        for broker in image.brokers:
            if broker.node_id == leader.leader:
                return broker
    return COORDINATOR_NOT_AVAILABLE, f"{CONSUMER_OFFSETS}-{number} is not served now"


def group_partition(group: str, partitions: int) -> int:
    """The partition of ``__consumer_offsets`` that a group belongs to.

    Source: ``GroupCoordinatorService.partitionFor`` of Kafka.
    """
    number = 0
    text = group.encode("utf-16-be", "surrogatepass")
    for high, low in zip(text[::2], text[1::2], strict=True):
        number = (31 * number + 256 * high + low) & _UINT
    if number > _INT:  # Java's numbers have a sign
        number = -(number - _UINT - 1)
    return (number & _INT) % partitions
