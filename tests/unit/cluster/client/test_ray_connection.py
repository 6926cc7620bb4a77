"""Ray calls: nothing waits, every future ends, and with raylog's errors."""

import pickle
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
import ray
from ray.exceptions import ActorUnavailableError, RayTaskError

from raylog.actors.errors import (
    BrokerNotFound,
    NotLeader,
    RayNotFound,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from raylog.actors.messages import PartitionOffsets
from raylog.actors.runtime import clusters
from raylog.actors.runtime.names import CONTROLLER
from raylog.actors.runtime.stubs import LogActorStub
from raylog.cluster.client.connection import PartitionMetadata, TopicMetadata
from raylog.cluster.client.deadlines import Deadlines
from raylog.cluster.client.ray_connection import RayConnection
from raylog.storage.errors import LogMissing
from raylog.storage.names import TopicPartition
from tests.unit.cluster.client.test_deadlines import Clock

HERE = "node-here"


class Actor:
    """A remote actor: its calls are kept, and a test ends them."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], Future[Any]]] = []

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        return Method(self, method)

    def answer(self, outcome: Any) -> tuple[Any, ...]:
        """End the oldest call; returns what it was given."""
        _, arguments, reference = self.calls.pop(0)
        if isinstance(outcome, BaseException):
            reference.set_exception(outcome)
        else:
            reference.set_result(outcome)
        return arguments


class Method:
    def __init__(self, actor: Actor, name: str) -> None:
        self._actor, self._name = actor, name

    def remote(self, *arguments: Any) -> Any:
        reference: Any = Future()
        reference.future = lambda: reference
        self._actor.calls.append((self._name, arguments, reference))
        return reference


class World:
    """A connection, and everything around it that a test moves on by hand."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.actors: dict[str, Actor] = {}
        self.looks: list[str] = []
        self.works: list[Callable[[], None]] = []
        self.clock = Clock()
        self.deadlines = Deadlines(self.clock, threaded=False)
        self.connection = RayConnection("ns", run=self.works.append, deadlines=self.deadlines)
        patch.setattr(ray, "is_initialized", lambda: True)
        patch.setattr(ray, "get_actor", self._get_actor)

    def _get_actor(self, name: str, namespace: str) -> Actor:
        self.looks.append(name)
        if name not in self.actors:
            raise ValueError(name)
        return self.actors[name]

    def work(self) -> None:
        while self.works:
            self.works.pop(0)()

    def serve(self, name: str = "Log:orders-0") -> Actor:
        self.actors[name] = Actor()
        return self.actors[name]

    def ask(self, timeout_s: float = 30.0, number: Any = 0) -> "Future[PartitionOffsets]":
        partition = TopicPartition("orders", number)
        return self.connection.ask_partition(partition, timeout_s, LogActorStub.offsets)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def metadata(node_id: str) -> TopicMetadata:
    return TopicMetadata("orders", "id", (PartitionMetadata(0, -1, node_id),), 1 << 20)


OFFSETS = PartitionOffsets(0, 3, 5, 7)


# -- looking for actors ----------------------------------------------------------------------------


def test_no_call_waits_for_a_look_at_rays_head(world: World) -> None:
    log_actor = world.serve()
    future = world.ask()
    assert world.looks == []
    world.work()
    assert world.looks == ["Log:orders-0"]
    log_actor.answer(OFFSETS)
    assert future.result(0) == OFFSETS


def test_an_actor_that_is_known_is_called_at_once(world: World) -> None:
    log_actor = world.serve()
    first, second = world.ask(), world.ask()
    world.work()
    assert world.looks == ["Log:orders-0"]
    world.ask()
    assert len(log_actor.calls) == 3
    assert not first.done()
    assert not second.done()


def test_a_partition_that_nobody_serves_fails_at_once(world: World) -> None:
    future = world.ask()
    world.work()
    assert isinstance(future.exception(0), NotLeader)


def test_the_controllers_reason_is_what_the_next_request_hears(world: World) -> None:
    controller = world.serve(CONTROLLER)
    world.ask()
    world.ask()
    world.work()
    assert len(controller.calls) == 1
    reason = LogMissing("/disk/orders-0", "gone")
    _, partition, call = controller.calls.pop(0)
    assert partition == ("orders", 0)
    call.set_result(reason)
    future = world.ask()
    world.work()
    assert future.exception(0) is reason
    controller.answer(None)
    last = world.ask()
    world.work()
    assert isinstance(last.exception(0), NotLeader)


def test_a_partition_that_is_served_again_is_found(world: World) -> None:
    world.ask()
    world.work()
    log_actor = world.serve()
    future = world.ask()
    world.work()
    log_actor.answer(OFFSETS)
    assert future.result(0) == OFFSETS


def test_an_actor_that_is_forgotten_is_looked_for_again(world: World) -> None:
    old = world.serve()
    world.ask()
    world.work()
    world.connection.forget("orders", 0)
    new = world.serve()
    world.ask()
    world.work()
    assert (len(old.calls), len(new.calls)) == (1, 1)


@pytest.mark.parametrize("number", [-1, "0"])
def test_a_number_that_is_none_finds_no_other_partition(world: World, number: Any) -> None:
    """Their actors would have the names of partition 1 of ``orders-``, and of orders' 0."""
    world.serve("Log:orders--1")
    world.serve("Log:orders-0")
    future = world.ask(number=number)
    assert isinstance(future.exception(0), UnknownTopicOrPartition)
    assert world.works == []


# -- errors ----------------------------------------------------------------------------------------


def test_an_actors_error_is_the_futures(world: World) -> None:
    log_actor = world.serve()
    future = world.ask()
    world.work()
    cause = LogMissing("/disk", "gone")
    log_actor.answer(RayTaskError("append", "traceback", cause))
    assert future.exception(0) is cause


def test_an_actor_that_is_being_restarted_is_not_the_leader(world: World) -> None:
    log_actor = world.serve()
    future = world.ask()
    world.work()
    log_actor.answer(ActorUnavailableError("restarting", b"1" * 16))
    assert isinstance(future.exception(0), NotLeader)


def test_an_actor_that_hangs_is_answered_for_when_the_time_is_up(world: World) -> None:
    log_actor = world.serve()
    future = world.ask(timeout_s=2.0)
    world.work()
    world.clock.now_s += 2.0
    world.deadlines.expire()
    assert isinstance(future.exception(0), RequestTimedOut)
    log_actor.answer(OFFSETS)  # late: nobody waits any more


def test_a_request_whose_time_was_up_before_its_actor_was_found_is_not_sent(world: World) -> None:
    log_actor = world.serve()
    world.ask(timeout_s=2.0)
    world.clock.now_s += 2.0
    world.deadlines.expire()
    world.work()
    assert log_actor.calls == []


def test_what_ray_raises_at_the_call_is_in_the_future(world: World) -> None:
    class Broken(Actor):
        def __getattr__(self, method: str) -> Any:
            raise RuntimeError("the object store is full")

    world.actors["Log:orders-0"] = Broken()
    future = world.ask()
    world.work()
    assert isinstance(future.exception(0), RuntimeError)


# -- requests --------------------------------------------------------------------------------------


def test_a_producer_id_and_metadata_come_from_the_controller(world: World) -> None:
    controller = world.serve(CONTROLLER)
    producer_id = world.connection.new_producer_id(timeout_s=30.0)
    topic = world.connection.metadata("orders", timeout_s=30.0)
    world.work()
    controller.answer(9)
    controller.answer(metadata(HERE))
    assert producer_id.result(0) == 9
    assert topic.result(0) == metadata(HERE)


def test_while_the_controller_is_away_a_topic_is_as_it_was_known(world: World) -> None:
    controller = world.serve(CONTROLLER)

    def ask(answer: object) -> "Future[TopicMetadata]":
        asked = world.connection.metadata("orders", timeout_s=30.0)
        world.work()
        controller.answer(answer)
        return asked

    gone = ActorUnavailableError("gone", b"1" * 16)
    unknown = UnknownTopicOrPartition("orders", None, "it was deleted")
    assert isinstance(ask(gone).exception(0), NotLeader)
    assert ask(metadata(HERE)).result(0) == metadata(HERE)
    assert ask(gone).result(0) == metadata(HERE)
    assert ask(RayTaskError("topic_metadata", "traceback", unknown)).exception(0) is unknown
    assert isinstance(ask(gone).exception(0), NotLeader)


def test_a_topic_that_does_not_exist_is_told_by_name(world: World) -> None:
    controller = world.serve(CONTROLLER)
    topic = world.connection.metadata("orders", timeout_s=30.0)
    world.work()
    unknown = UnknownTopicOrPartition("orders", None, "the topic does not exist")
    controller.answer(RayTaskError("topic_metadata", "traceback", unknown))
    assert topic.exception(0) is unknown


def test_a_controller_that_is_gone_is_looked_for_again(world: World) -> None:
    first = world.connection.new_producer_id(timeout_s=30.0)
    world.work()
    assert isinstance(first.exception(0), BrokerNotFound)
    old = world.serve(CONTROLLER)
    second = world.connection.new_producer_id(timeout_s=30.0)
    world.work()
    old.answer(ActorUnavailableError("gone", b"1" * 16))
    assert isinstance(second.exception(0), NotLeader)
    new = world.serve(CONTROLLER)
    third = world.connection.new_producer_id(timeout_s=30.0)
    world.work()
    new.answer(4)
    assert third.result(0) == 4


# -- where there is no connection to Ray -----------------------------------------------------------


def test_a_process_without_ray_joins_the_brokers_cluster_in_the_background(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    joined: list[str] = []
    monkeypatch.setattr(ray, "is_initialized", lambda: bool(joined))
    monkeypatch.setattr(clusters, "_join", joined.append)
    original = RayConnection("ns", "there:7", run=world.works.append, deadlines=world.deadlines)
    future = original.new_producer_id(timeout_s=30.0)
    assert joined == []
    world.work()
    assert joined == ["there:7"]
    assert isinstance(future.exception(0), BrokerNotFound)


def test_without_an_address_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    futures: list[Future[Any]] = [
        world.ask(),
        world.connection.new_producer_id(timeout_s=30.0),
    ]
    world.work()
    assert all(isinstance(future.exception(0), RayNotFound) for future in futures)
    assert world.looks == []


def test_a_pickled_connection_knows_its_broker(world: World) -> None:
    copy = pickle.loads(pickle.dumps(RayConnection("ns", "there:7")))
    assert (copy.namespace, copy.address) == ("ns", "there:7")
