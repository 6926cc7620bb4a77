"""The other partitions of the cluster, as the process of one of them asks them.

Which topics there are, and with how many partitions, the LogManager of the node knows: it is asked
for Metadata, by its Unix socket. What was seen is remembered: topics keep their partitions, and one
that is gone, or was made anew, is noticed when its partition does not answer.

The process of a partition is looked for by its name first: on this node that finds it. Otherwise it
is asked by Ray call where it listens, once, and by socket for all else.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from raylog.actors.messages import DataAddress
from raylog.actors.plane.addresses import log_name
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.cluster import METADATA
from raylog.actors.plane.apis.records import INIT_PRODUCER_ID
from raylog.actors.plane.codes import INVALID_TOPIC, UNKNOWN_TOPIC_OR_PARTITION
from raylog.actors.plane.describing import NO_ID
from raylog.actors.plane.errors import PeerAway
from raylog.actors.plane.peers.channel import Channel, channel_by_address, channel_by_name
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.types import Value
from raylog.storage.state.properties import id_text

TIMEOUT_S: Final = 5.0
# Of each partition: so many connections wait for their next request.
KEPT: Final = 2
# Topics that are remembered.
MOST_TOPICS: Final = 10_000
# Of a topic and a partition: where its process listens. Raises RaylogError.
AddressOf: TypeAlias = Callable[[TopicPartition, str], DataAddress]


class Topic(NamedTuple):
    """``topic_id``: as text."""

    topic_id: str
    partitions: int


class Peers:
    """See the module's head. Safe for threads."""

    def __init__(self, broker: str, manager: str, address_of: AddressOf) -> None:
        """``broker``: as of ``broker_id``. ``manager``: the name of the LogManager's socket."""
        self._broker, self._manager, self._address_of = broker, manager, address_of
        self._lock = threading.Lock()
        self._topics: dict[str, Topic] = {}
        self._idle: dict[TopicPartition | None, deque[Channel]] = {}

    # -- topics ------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        """A topic; None where there is none. Raises PeerAway where nobody says it."""
        found = self._topics.get(name)
        return found if found is not None else self._look_up(name)

    def forget(self, name: str) -> None:
        """Look it up again the next time."""
        self._topics.pop(name, None)

    def missing(self, partitions: Sequence[TopicPartition]) -> set[TopicPartition]:
        """Those that are not there. Raises PeerAway."""
        found = set()
        for partition in partitions:
            topic = self.topic(partition.topic)
            if topic is not None and partition.partition >= topic.partitions:
                topic = self._look_up(partition.topic)  # it may have got more
            if topic is None or not 0 <= partition.partition < topic.partitions:
                found.add(partition)
        return found

    def _look_up(self, name: str) -> Topic | None:
        body = {
            "topics": [{"topicId": NO_ID, "name": name}],
            "allowAutoTopicCreation": False,
            "includeTopicAuthorizedOperations": False,
        }
        version = METADATA.last_version
        told = self._ask(
            None, lambda: channel_by_name(self._manager, TIMEOUT_S), METADATA, version, body
        )
        (topic,) = told["topics"]
        if topic["errorCode"] in (UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC):
            self.forget(name)
            return None
        if topic["errorCode"]:
            raise PeerAway(name, f"its metadata are not known (error {topic['errorCode']})")
        found = Topic(id_text(topic["topicId"]), len(topic["partitions"]))
        if len(self._topics) >= MOST_TOPICS:
            self._topics.clear()
        if found.partitions:  # else it is being made
            self._topics[name] = found
        return found

    def producer_id(self) -> int:
        """One that nobody has had, of the Controller. Raises PeerAway."""
        body = {
            "transactionalId": None,
            "transactionTimeoutMs": 0,
            "producerId": -1,
            "producerEpoch": -1,
        }
        told = self._ask_manager(INIT_PRODUCER_ID, INIT_PRODUCER_ID.last_version, body)
        if told["errorCode"]:
            raise PeerAway("the Controller", f"it gives no producer id (error {told['errorCode']})")
        return int(told["producerId"])

    def _ask_manager(self, api: Api, version: int, body: Value) -> Value:
        connect = partial(channel_by_name, self._manager, TIMEOUT_S)
        return self._ask(None, connect, api, version, body)

    # -- partitions --------------------------------------------------------------------------------

    def ask(self, partition: TopicPartition, api: Api, version: int, body: Value) -> Value:
        """What the process of a partition answers. Raises PeerAway; its fate is not known then."""
        topic = self.topic(partition.topic)
        if topic is None:
            raise PeerAway(str(partition), "there is no such topic")
        return self._ask(partition, partial(self._connect, partition, topic), api, version, body)

    def _connect(self, partition: TopicPartition, topic: Topic) -> Channel:
        name = log_name(self._broker, topic.topic_id, partition.partition)
        try:
            return channel_by_name(name, TIMEOUT_S)
        except PeerAway:
            pass  # it is on another node, or does not listen yet
        try:
            address = self._address_of(partition, topic.topic_id)
        except RaylogError as error:
            self.forget(partition.topic)  # it may have been made anew
            raise PeerAway(str(partition), str(error)) from None
        return channel_by_address(address, TIMEOUT_S)

    def _ask(
        self,
        key: TopicPartition | None,
        connect: Callable[[], Channel],
        api: Api,
        version: int,
        body: Value,
    ) -> Value:
        """By a connection that waits, or by a new one.

        One that has ended meanwhile is no answer. All that is asked here may be asked twice.
        """
        channel = self._take(key)
        if channel is not None:
            try:
                return self._ask_by(channel, key, api, version, body)
            except PeerAway:
                pass  # its process may be another one by now
        return self._ask_by(connect(), key, api, version, body)

    def _ask_by(
        self, channel: Channel, key: TopicPartition | None, api: Api, version: int, body: Value
    ) -> Value:
        try:
            answer = channel.ask(api, version, body, TIMEOUT_S)
        except BaseException:
            channel.close()
            raise
        with self._lock:
            idle = self._idle.setdefault(key, deque())
            if len(idle) < KEPT:
                idle.append(channel)
                return answer
        channel.close()
        return answer

    def _take(self, key: TopicPartition | None) -> Channel | None:
        with self._lock:
            idle = self._idle.get(key)
            return idle.pop() if idle else None

    def close(self) -> None:
        """Close the connections that wait."""
        with self._lock:
            channels = [one for idle in self._idle.values() for one in idle]
            self._idle.clear()
        for channel in channels:
            channel.close()
