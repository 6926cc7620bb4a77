"""Requests by Ray calls: nothing waits, every future ends, and with raylog's errors."""

import pickle
import struct
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
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
from raylog.actors.messages import FetchResult
from raylog.actors.requests import Serves, decode_fetch, decode_offset, records_in
from raylog.actors.runtime import clusters
from raylog.actors.runtime.names import CONTROLLER
from raylog.cluster.client import ray_connection
from raylog.cluster.client.connection import (
    FetchRequest,
    OffsetAnswer,
    OffsetRequest,
    PartitionMetadata,
    ProduceAnswer,
    ProduceRequest,
    TopicMetadata,
)
from raylog.cluster.client.deadlines import Deadlines
from raylog.cluster.client.ray_connection import RayConnection
from raylog.storage.errors import LogMissing, SegmentDeleted
from raylog.storage.names import TopicPartition
from raylog.storage.readable import Slice
from raylog.storage.testing.logs import batch
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
        patch.setattr(ray_connection, "own_node_id", lambda: HERE)

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

    def produce(
        self, records: bytes = b"batch", timeout_s: float = 30.0
    ) -> "Future[ProduceAnswer]":
        request = ProduceRequest("orders", "id", 0, -1, records)
        return self.connection.produce(request, timeout_s=timeout_s)

    def fetch(self, offset: int = 0, max_wait_ms: int = 0) -> "Future[Any]":
        request = FetchRequest("orders", "id", 0, -1, offset, 1 << 20, 1, max_wait_ms)
        return self.connection.fetch(request, timeout_s=30.0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def metadata(node_id: str) -> TopicMetadata:
    return TopicMetadata("orders", "id", (PartitionMetadata(0, -1, node_id),), 1 << 20)


ANSWER = ProduceAnswer(7, -1, 0, 3, False)
WRITTEN = ANSWER.encode()
SERVES = Serves(TopicPartition("orders", 0), "id", 5)


# -- looking for actors ----------------------------------------------------------------------------


def test_no_call_waits_for_a_look_at_rays_head(world: World) -> None:
    log_actor = world.serve()
    future = world.produce()
    assert world.looks == []
    world.work()
    assert world.looks == ["Log:orders-0"]
    log_actor.answer(WRITTEN)
    assert future.result(0) == ANSWER


def test_an_actor_that_is_known_is_called_at_once(world: World) -> None:
    log_actor = world.serve()
    first, second = world.produce(), world.produce()
    world.work()
    assert world.looks == ["Log:orders-0"]
    world.produce()
    assert len(log_actor.calls) == 3
    assert not first.done()
    assert not second.done()


def test_a_partition_that_nobody_serves_fails_at_once(world: World) -> None:
    future = world.produce()
    world.work()
    assert isinstance(future.exception(0), NotLeader)


def test_the_controllers_reason_is_what_the_next_request_hears(world: World) -> None:
    controller = world.serve(CONTROLLER)
    world.produce()
    world.produce()
    world.work()
    assert len(controller.calls) == 1
    reason = LogMissing("/disk/orders-0", "gone")
    _, partition, call = controller.calls.pop(0)
    assert partition == ("orders", 0)
    call.set_result(reason)
    future = world.produce()
    world.work()
    assert future.exception(0) is reason
    controller.answer(None)
    last = world.produce()
    world.work()
    assert isinstance(last.exception(0), NotLeader)


def test_a_partition_that_is_served_again_is_found(world: World) -> None:
    world.produce()
    world.work()
    log_actor = world.serve()
    future = world.produce()
    world.work()
    log_actor.answer(WRITTEN)
    assert future.result(0) == ANSWER


def test_an_actor_that_is_forgotten_is_looked_for_again(world: World) -> None:
    old = world.serve()
    world.produce()
    world.work()
    world.connection.forget("orders", 0)
    new = world.serve()
    world.produce()
    world.work()
    assert (len(old.calls), len(new.calls)) == (1, 1)


@pytest.mark.parametrize("number", [-1, "0"])
def test_a_number_that_is_none_finds_no_other_partition(world: World, number: Any) -> None:
    """Their actors would have the names of partition 1 of ``orders-``, and of orders' 0."""
    world.serve("Log:orders--1")
    world.serve("Log:orders-0")
    request = ProduceRequest("orders", "id", number, -1, b"batch")
    future = world.connection.produce(request, timeout_s=30.0)
    assert isinstance(future.exception(0), UnknownTopicOrPartition)
    assert world.works == []


# -- errors ----------------------------------------------------------------------------------------


def test_an_actors_error_is_the_futures(world: World) -> None:
    log_actor = world.serve()
    future = world.produce()
    world.work()
    cause = LogMissing("/disk", "gone")
    log_actor.answer(RayTaskError("append", "traceback", cause))
    assert future.exception(0) is cause


def test_an_actor_that_is_being_restarted_is_not_the_leader(world: World) -> None:
    log_actor = world.serve()
    future = world.produce()
    world.work()
    log_actor.answer(ActorUnavailableError("restarting", b"1" * 16))
    assert isinstance(future.exception(0), NotLeader)


def test_an_actor_that_hangs_is_answered_for_when_the_time_is_up(world: World) -> None:
    log_actor = world.serve()
    future = world.produce(timeout_s=2.0)
    world.work()
    world.clock.now_s += 2.0
    world.deadlines.expire()
    assert isinstance(future.exception(0), RequestTimedOut)
    log_actor.answer(WRITTEN)  # late: nobody waits any more


def test_a_request_whose_time_was_up_before_its_actor_was_found_is_not_sent(world: World) -> None:
    log_actor = world.serve()
    world.produce(timeout_s=2.0)
    world.clock.now_s += 2.0
    world.deadlines.expire()
    world.work()
    assert log_actor.calls == []


def test_what_ray_raises_at_the_call_is_in_the_future(world: World) -> None:
    class Broken(Actor):
        def __getattr__(self, method: str) -> Any:
            raise RuntimeError("the object store is full")

    world.actors["Log:orders-0"] = Broken()
    future = world.produce()
    world.work()
    assert isinstance(future.exception(0), RuntimeError)


def test_an_answer_that_cannot_be_read_fails_the_future(world: World) -> None:
    log_actor = world.serve()
    future = world.fetch()
    world.work()
    log_actor.answer(b"short")
    assert isinstance(future.exception(0), struct.error)


# -- requests --------------------------------------------------------------------------------------


def test_a_small_batch_travels_in_the_call_and_a_large_one_as_an_array(world: World) -> None:
    log_actor = world.serve()
    world.produce(b"small")
    world.produce(bytes(100_000))
    world.work()
    (request,) = log_actor.answer(WRITTEN)
    assert bytes(records_in(request)) == b"small"
    request, payload = log_actor.answer(WRITTEN)
    assert bytes(records_in(request)) == b""
    assert isinstance(payload, np.ndarray)
    assert payload.nbytes == 100_000


def test_an_offset_is_looked_up_by_time(world: World) -> None:
    log_actor = world.serve()
    request = OffsetRequest("orders", "id", 0, -1, 1000)
    futures = [world.connection.list_offset(request, timeout_s=30.0) for _ in range(2)]
    world.work()
    (asked,) = log_actor.answer(OffsetAnswer(5, 1001, 2).encode())
    assert decode_offset(asked, SERVES) == request._replace(leader_epoch=-1)
    log_actor.answer(OffsetAnswer(-1, -1, -1).encode())
    assert [future.result(0) for future in futures] == [
        OffsetAnswer(5, 1001, 2),
        OffsetAnswer(-1, -1, -1),
    ]


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


# -- fetches ---------------------------------------------------------------------------------------


def located(path: Path, content: bytes) -> bytes:
    """The answer of a LogActor of this node."""
    path.write_bytes(content)
    place = Slice(str(path), path.stat().st_ino, 0, len(content))
    return FetchResult(None, place, high_watermark=9, log_start_offset=2, end_offset=7).encode()


def test_a_fetch_that_may_wait_is_a_poll(world: World) -> None:
    log_actor = world.serve()
    world.fetch()
    world.fetch(max_wait_ms=500)
    world.work()
    assert [name for name, *_ in log_actor.calls] == ["fetch_batches", "poll_batches"]


def test_a_fetch_from_another_node_brings_the_bytes(world: World) -> None:
    log_actor = world.serve()
    future = world.fetch()
    world.work()
    log_actor.answer(FetchResult(np.frombuffer(b"batches", np.uint8), None, 9, 2, 7))
    answer = future.result(0)
    assert (answer.high_watermark, answer.log_start_offset, answer.end_offset) == (9, 2, 7)
    assert bytes(answer.read()) == b"batches"


def test_a_fetch_at_the_end_brings_nothing(world: World) -> None:
    log_actor = world.serve()
    future = world.fetch()
    world.work()
    log_actor.answer(FetchResult(None, None, 9, 2, -1))
    assert future.result(0).read() is None


def test_a_fetch_on_the_partitions_node_reads_the_file(world: World, tmp_path: Path) -> None:
    log_actor = world.serve()
    future = world.fetch()
    world.work()
    log_actor.answer(located(tmp_path / "segment", b"batches"))
    answer = future.result(0)
    assert (answer.high_watermark, answer.log_start_offset, answer.end_offset) == (9, 2, 7)
    assert bytes(answer.read()) == b"batches"


def test_a_file_that_was_written_anew_since_the_answer_is_not_read(
    world: World, tmp_path: Path
) -> None:
    """The log lost its end after the actor had looked, and was opened again, under epoch 4."""
    log_actor = world.serve()
    for epoch, is_refused in ((3, False), (4, True)):
        future = world.fetch()
        world.work()
        answer = located(tmp_path / f"segment{epoch}", bytes(batch(leader_epoch=epoch)))
        log_actor.answer(FetchResult.decode(answer)._replace(leader_epoch=3).encode())
        if is_refused:
            with pytest.raises(SegmentDeleted):
                future.result(0).read()
        else:
            assert future.result(0).read() == batch(leader_epoch=3)


def test_a_file_that_cannot_be_read_here_is_asked_for_by_call(world: World, tmp_path: Path) -> None:
    log_actor = world.serve()

    def wants_location() -> bool:
        world.fetch()
        _, (request,), _ = log_actor.calls.pop()
        return decode_fetch(request, SERVES)[1] == HERE

    for by_call in (1, 2, 4):  # fewer tries each time: maybe it never can
        answer = world.fetch()
        world.work()
        log_actor.answer(located(tmp_path / "segment", b"batches"))
        (tmp_path / "segment").unlink()
        with pytest.raises(SegmentDeleted):
            answer.result(0).read()
        assert [wants_location() for _ in range(by_call + 1)] == [False] * by_call + [True]


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
        world.produce(),
        world.connection.new_producer_id(timeout_s=30.0),
    ]
    world.work()
    assert all(isinstance(future.exception(0), RayNotFound) for future in futures)
    assert world.looks == []


def test_a_pickled_connection_knows_its_broker(world: World) -> None:
    copy = pickle.loads(pickle.dumps(RayConnection("ns", "there:7")))
    assert (copy.namespace, copy.address) == ("ns", "there:7")
