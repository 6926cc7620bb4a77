"""Requests to the coordinator of a group or of a transactional id, which is looked up first.

It is the LogActor of a partition of ``__consumer_offsets`` or ``__transaction_state``
(``groups/finding.py``). While the topic is not there, any process of the broker is asked for the
coordinator: it has the topic made.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from raylog.actors.coordinators.errors import CoordinatorNotAvailable
from raylog.actors.coordinators.homes import partition_of
from raylog.actors.errors import NotLeader, UnknownTopicId, UnknownTopicOrPartition
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.cluster import FIND_COORDINATOR
from raylog.cluster.client.connection import ApiRequest, Connection, TopicMetadata
from raylog.cluster.client.deadlines import end, fail
from raylog.storage.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from raylog.storage.schemas.types import Value

# The topic is made in this time; who is asked for the coordinator waits for it.
_MAKE_TIMEOUT_S = 30.0
# To look for it, however long the request itself may take.
_FIND_TIMEOUT_S = 30.0


class Kind(NamedTuple):
    """What is coordinated. ``key_type``: as FindCoordinator asks for it."""

    key_type: int
    topic: str
    name: str


GROUP: Final = Kind(0, CONSUMER_OFFSETS, "group")
TRANSACTION: Final = Kind(1, TRANSACTION_STATE, "transactional id")


class Place(NamedTuple):
    """A partition, and the id of its topic."""

    topic: str
    topic_id: str
    partition: int


class _Waiting(NamedTuple):
    api: Api
    body: Value
    timeout_s: float
    may_wait: bool
    future: "Future[Value]"


class Coordinator:
    """See the module's head. Safe for threads; nothing waits, and nothing raises."""

    def __init__(
        self,
        connection: Connection,
        kind: Kind,
        key: str,
        topics: Callable[[], Sequence[str]],
    ) -> None:
        """``key``: the group or the id. ``topics``: whose processes can be asked for the
        coordinator; where there is none, the cluster is asked which topics it has."""
        self._connection, self._topics = connection, topics
        self._kind, self._key, self._name = kind, key, f"{kind.name} {key}"
        self._tries = 0
        self._lock = threading.Lock()
        self._place: Place | None = None
        self._is_finding = False
        self._waiting: list[_Waiting] = []  # until it is known where the coordinator is

    def ask(
        self, api: Api, body: Value, *, timeout_s: float, may_wait: bool = False
    ) -> "Future[Value]":
        """The answer's body. ``may_wait``: it may come much later than those behind it."""
        asked = _Waiting(api, body, timeout_s, may_wait, Future())
        with self._lock:
            place = self._place
            is_first = place is None and not self._is_finding
            if place is None:
                self._is_finding = True
                self._waiting.append(asked)
        if place is not None:
            self._send(place, asked)
        elif is_first:
            limit_s = min(timeout_s, _FIND_TIMEOUT_S)
            found = self._connection.metadata(self._kind.topic, timeout_s=limit_s)
            found.add_done_callback(self._found)
        return asked.future

    def begin_again(self) -> None:
        """A look for it was interrupted: who waits for that asks again."""
        self._give_up(CoordinatorNotAvailable(self._name, "it is looked for again"))

    def forget(self) -> None:
        """It does not coordinate the group any more."""
        with self._lock:
            place, self._place = self._place, None
        if place is not None:
            self._connection.forget(place.topic, place.partition)

    def _found(self, done: "Future[TopicMetadata]") -> None:
        error = done.exception()
        if error is None:
            known = done.result()
            number = partition_of(self._key, len(known.partitions))
            self._settle(Place(known.topic, known.topic_id, number))
        elif isinstance(error, UnknownTopicOrPartition):
            self._make()
        else:
            self._give_up(error)

    def _make(self) -> None:
        """Ask one of the topics' processes, another one each time."""
        topics = self._topics()
        if topics:
            self._make_through(topics)
            return
        listed = self._connection.list_topics(timeout_s=_MAKE_TIMEOUT_S)
        listed.add_done_callback(self._listed)

    def _listed(self, done: "Future[list[str]]") -> None:
        error = done.exception()
        if error is not None:
            self._give_up(error)
        else:
            self._make_through(done.result())

    def _make_through(self, topics: Sequence[str]) -> None:
        if not topics:
            why = "there is no topic yet whose process could be asked to make it"
            self._give_up(CoordinatorNotAvailable(self._name, why))
            return
        self._tries += 1
        topic = topics[self._tries % len(topics)]
        known = self._connection.metadata(topic, timeout_s=_MAKE_TIMEOUT_S)
        known.add_done_callback(self._ask_for_it)

    def _ask_for_it(self, done: "Future[TopicMetadata]") -> None:
        error = done.exception()
        if error is not None:
            self._give_up(error)
            return
        known = done.result()
        number = self._tries % max(len(known.partitions), 1)
        body = {"coordinatorKeys": [self._key], "keyType": self._kind.key_type}
        request = ApiRequest(
            known.topic, known.topic_id, number, FIND_COORDINATOR, body, may_wait=True
        )
        asked = self._connection.ask(request, timeout_s=_MAKE_TIMEOUT_S)
        asked.add_done_callback(self._made)

    def _made(self, done: "Future[Value]") -> None:
        """Who asked asks again, and finds it then."""
        error = done.exception()
        if error is None:
            (found,) = done.result()["coordinators"]
            why = found["errorMessage"] or "its topic has just been made"
            error = CoordinatorNotAvailable(self._name, why)
        self._give_up(error)

    def _settle(self, place: Place) -> None:
        """Send what waits, in order; whoever comes meanwhile waits, too."""
        while True:
            with self._lock:
                waiting, self._waiting = self._waiting, []
                if not waiting:
                    self._place, self._is_finding = place, False
                    return
            for asked in waiting:
                self._send(place, asked)

    def _give_up(self, error: BaseException) -> None:
        with self._lock:
            waiting, self._waiting, self._is_finding = self._waiting, [], False
        for asked in waiting:
            fail(asked.future, error)

    def _send(self, place: Place, asked: _Waiting) -> None:
        request = ApiRequest(*place, asked.api, asked.body, may_wait=asked.may_wait)
        sent = self._connection.ask(request, timeout_s=asked.timeout_s)
        sent.add_done_callback(lambda done: self._answered(asked.future, done))
        # Who gives up does not leave a place in the coordinator's process behind.
        asked.future.add_done_callback(lambda done: sent.cancel() if done.cancelled() else None)

    def _answered(self, future: "Future[Any]", done: "Future[Value]") -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            end(future, done.result())
            return
        if isinstance(error, NotLeader | UnknownTopicId):
            self.forget()
        fail(future, error)
