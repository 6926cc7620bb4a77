"""A broker with groups, for consumers of several processes, in a time that a test moves.

Partitions are those of ``consuming.py``, and the coordinator is the real machine
(``coordinating.py``): each request's body goes through the door that clients ask by socket. An
answer that waits for other members comes when they have come.
"""

import heapq
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import count
from random import Random
from typing import Any, NamedTuple

from raylog.actors.coordinators.group_config import GroupConfig
from raylog.actors.coordinators.group_messages import GroupAnswer, GroupRequest
from raylog.actors.errors import ActorAway
from raylog.actors.plane.apis.cluster import FIND_COORDINATOR
from raylog.actors.plane.apis.groups import DELETE_GROUPS, DESCRIBE_GROUPS, JOIN_GROUP
from raylog.actors.plane.frames import Request, parse, read_body
from raylog.actors.plane.groups import members
from raylog.actors.plane.groups.door import _ANSWERS
from raylog.cluster.client.connection import ApiRequest
from raylog.cluster.client.consumer.consumer import Consumer
from raylog.cluster.client.sockets import wire
from raylog.storage.errors import RaylogError
from raylog.storage.names import CONSUMER_OFFSETS, TopicPartition
from raylog.storage.schemas.types import Value
from tests.harness.consuming import FakeConnection, ManualWaiter
from tests.harness.coordinating import Coordinator
from tests.harness.futures import future_of

HOST = "/127.0.0.1"
LOST = 0.05  # so many requests, and so many answers, get lost in bad weather
NO_DELAY = GroupConfig(initial_rebalance_delay_ms=0)


class _Asking:
    """As ``groups/asking.py``; all partitions are there."""

    def __init__(self, told: Any) -> None:
        self._told = told

    def __call__(self, request: GroupRequest, kind: type[GroupAnswer]) -> Any:
        return self._told(request, kind)

    def missing(self, partitions: list[TopicPartition]) -> set[TopicPartition]:
        return set()


class _Asked(Exception):
    """The coordinator's request is known; its answer is not."""

    def __init__(self, request: GroupRequest) -> None:
        super().__init__()
        self.request = request


class _Parked(NamedTuple):
    request: ApiRequest
    future: "Future[Any]"


class GroupBroker(FakeConnection):
    """See the module's head. All consumers of a test share it."""

    def __init__(self, config: GroupConfig = NO_DELAY, **topics: int) -> None:
        super().__init__(**topics)
        self.coordinator = Coordinator(config)
        self.asked: list[tuple[str, Value]] = []  # the requests that came, by the API's name
        self.hanging: set[str] = set()  # APIs by name: nobody answers them
        self.held: dict[str, list[Future[Any]]] = {}  # by the API's name: a test answers them
        self.refusals: dict[str, RaylogError] = {}  # by the API's name: what it fails with
        self.codes: dict[str, list[int]] = {}  # by the API's name: error codes that it answers next
        self._parked_groups: dict[int, _Parked] = {}
        self._alarms: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.weather: Random | None = None  # None: answers come at once, and all of them

    def member(self, *topics: str, group_id: str = "g", **config: Any) -> Consumer:
        """A consumer of a group."""
        return Consumer(self, *topics, group_id=group_id, _waiter=ManualWaiter(self), **config)  # type: ignore[arg-type]

    # -- the connection ----------------------------------------------------------------------------

    def ask(self, request: ApiRequest, *, timeout_s: float) -> "Future[Any]":
        self.asked.append((request.api.name, request.body))
        if self.weather is None:
            return self._ask(request)
        answer: Future[Any] = Future()
        if self.weather.random() < LOST:
            return future_of(ActorAway(CONSUMER_OFFSETS, "it has ended the connection"))
        self.call_later(self.weather.random(), partial(self._ask_late, request, answer))
        return answer

    def _ask_late(self, request: ApiRequest, answer: "Future[Any]") -> None:
        if answer.done():
            return
        asked = self._ask(request)
        answer.add_done_callback(lambda done: asked.cancel() if done.cancelled() else None)
        asked.add_done_callback(partial(self._answer_late, answer))

    def _answer_late(self, answer: "Future[Any]", done: "Future[Any]") -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None and self.weather is not None and self.weather.random() < LOST:
            error = ActorAway(CONSUMER_OFFSETS, "it has ended the connection")
        outcome = done.result() if error is None else error
        self.call_later(0.05, partial(_end, answer, outcome))

    def _ask(self, request: ApiRequest) -> "Future[Any]":
        if request.api.name in self.hanging:
            return Future()
        if request.api.name in self.held:
            self.held[request.api.name].append(Future())
            return self.held[request.api.name][-1]
        if request.api.name in self.refusals:
            return future_of(self.refusals[request.api.name])
        if request.api is FIND_COORDINATOR:
            return future_of(self._make(request.body))
        assert (request.topic, request.partition) == (CONSUMER_OFFSETS, 0)
        if self.codes.get(request.api.name):
            code = self.codes[request.api.name].pop(0)
            return future_of(_with_code(request, code))
        future: Future[Any] = Future()
        try:
            future.set_result(self._answer(request, _raise))
        except _Asked as asked:
            token = self.coordinator.ask(asked.request)
            self._parked_groups[token] = _Parked(request, future)
        self._answer_parked()
        return future

    def hold(self, api: str) -> "list[Future[Any]]":
        """From now on, answers to requests of this API are given by hand."""
        return self.held.setdefault(api, [])

    def release(self, api: str) -> None:
        """They are answered at once again; those that are held stay so."""
        del self.held[api]

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._alarms, (self.now_s + seconds, next(self._order), call))

    def _make(self, body: Value) -> Value:
        self.create(CONSUMER_OFFSETS)
        (key,) = body["coordinatorKeys"]
        return {"coordinators": [{"key": key, "errorCode": 0, "errorMessage": "", "nodeId": 7}]}

    # -- the coordinator ---------------------------------------------------------------------------

    def restart_coordinator(self) -> None:
        """Its process dies, and another one reads its log: who waits for an answer hears of it."""
        parked, self._parked_groups = self._parked_groups, {}
        self.coordinator.restart()
        for one in parked.values():
            if not one.future.done():
                one.future.set_exception(ActorAway(CONSUMER_OFFSETS, "its process has ended"))

    def _answer(self, request: ApiRequest, told: Any) -> Value:
        """As its socket: the body of the answer, by the bytes of the request."""
        ask: Any = _Asking(told)
        frame = memoryview(b"".join(wire.request_frame(request.api, 0, request.body)))[4:]
        parsed: Request = parse(frame)
        body = read_body(parsed)
        if request.api is JOIN_GROUP:
            return members.join(parsed, body, HOST, ask)
        return _ANSWERS[request.api](parsed, body, ask)

    def _answer_parked(self) -> None:
        for token in list(self._parked_groups):
            if token in self.coordinator.answers and token in self._parked_groups:
                request, future = self._parked_groups.pop(token)
                answer = self.coordinator.answers[token]
                if not future.done():
                    future.set_result(self._answer(request, lambda _, __, given=answer: given))

    # -- time --------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        before_s = self.now_s
        if self._alarms:
            seconds = min(seconds, max(self._alarms[0][0] - self.now_s, 0))
        super().pass_time(min(seconds, 1.0))
        self.coordinator.wait(round((self.now_s - before_s) * 1000))
        self._answer_parked()
        while self._alarms and self._alarms[0][0] <= self.now_s:
            heapq.heappop(self._alarms)[2]()

    def idle(self, seconds: float) -> None:
        """Nobody polls for so long."""
        ends_s = self.now_s + seconds
        while self.now_s < ends_s:
            self.pass_time(ends_s - self.now_s)


def _end(answer: "Future[Any]", outcome: Any) -> None:
    if answer.done():
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


def _raise(request: GroupRequest, _: type[GroupAnswer]) -> GroupAnswer:
    raise _Asked(request)


def _with_code(request: ApiRequest, code: int) -> Value:
    """An answer that says nothing but the code."""
    if "topics" in request.body:
        return {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        {"partitionIndex": part["partitionIndex"], "errorCode": code}
                        for part in topic["partitions"]
                    ],
                }
                for topic in request.body["topics"]
            ]
        }
    if request.api is DESCRIBE_GROUPS:
        return {"groups": [{"groupId": request.body["groups"][0], "errorCode": code}]}
    if request.api is DELETE_GROUPS:
        return {"results": [{"groupId": request.body["groupsNames"][0], "errorCode": code}]}
    if "groups" in request.body:
        group = request.body["groups"][0]["groupId"]
        return {"groups": [{"groupId": group, "topics": [], "errorCode": code}]}
    return {"errorCode": code, "memberId": request.body.get("memberId", "")}
