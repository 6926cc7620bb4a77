"""Many things asked at once: each succeeds or fails by itself, and in time."""

from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError

from raylog.actors.errors import (
    AnswerLost,
    InvalidRequest,
    NotLeader,
    ReadTimedOut,
    RequestTimedOut,
    TopicExists,
    UnknownTopicOrPartition,
)
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.names import CONTROLLER
from raylog.actors.runtime.stubs import LogActorStub
from raylog.cluster.admin import Admin, NewTopic
from raylog.cluster.client.connection import (
    READ_COMMITTED,
    OffsetAnswer,
    OffsetRequest,
    PartitionMetadata,
    TopicMetadata,
)
from raylog.cluster.client.ray_connection import RayConnection
from raylog.cluster.client.socket_connection import SocketConnection
from raylog.storage.errors import InvalidTopic, OffsetOutOfRange
from raylog.storage.names import TopicPartition
from tests.unit.cluster.client.test_ray_connection import HERE, Actor, World, metadata

KEY = ("orders", 0)


class Sockets(SocketConnection[RayConnection]):
    """Asks for offsets by the calls that a test ends."""

    def list_offset(self, request: OffsetRequest, *, timeout_s: float) -> "Future[OffsetAnswer]":
        def ask(actor: LogActorStub) -> Call[OffsetAnswer]:
            return Call(actor.handle.list_offset.remote(request), "an offset")

        key = TopicPartition(request.topic, request.partition)
        return self.cluster.ask_partition(key, timeout_s, ask, is_read=True)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.fixture
def controller(world: World) -> Actor:
    return world.serve(CONTROLLER)


@pytest.fixture
def admin(world: World) -> Admin:
    return Admin(Sockets(world.connection))


def failed(error: Exception) -> RayTaskError:
    return RayTaskError("a method", "traceback", error)


# -- topics ----------------------------------------------------------------------------------------


def test_topics_are_made_at_once_and_each_fails_by_itself(
    world: World, controller: Actor, admin: Admin
) -> None:
    futures = admin.create_topics([NewTopic("a", 2, {"retention.ms": 5}), "b"])
    world.work()
    assert len(controller.calls) == 2, "none waits for another"
    assert controller.answer("described")[:4] == ("a", 2, {"retention.ms": 5}, False)
    exists = TopicExists("b", "b")
    assert controller.answer(failed(exists))[:4] == ("b", None, {}, False)
    assert futures["a"].result(0) == "described"  # type: ignore[comparison-overlap]
    assert futures["b"].exception(0) is exists


def test_a_request_says_whether_it_only_asks(world: World, controller: Actor, admin: Admin) -> None:
    admin.create_topics(["a"], validate_only=True)
    world.work()
    assert controller.answer("described")[:4] == ("a", None, {}, True)
    admin.add_partitions({"a": 5}, validate_only=True)
    answer_topic_metadata(world, controller)
    assert controller.answer("described") == ("a", 5, True, "id", False)


def test_a_topic_that_is_extended_is_the_one_that_has_the_name_now(
    world: World, controller: Actor, admin: Admin
) -> None:
    """A repetition must not extend one that somebody has made meanwhile."""
    extended = admin.add_partitions({"orders": 5})["orders"]
    world.work()
    assert controller.answer(metadata(HERE)) == ("orders",)
    assert controller.answer(ActorDiedError()) == ("orders", 5, False, "id", False)
    world.work()
    assert controller.answer("cluster-1") == ()
    world.work()
    assert controller.answer("described") == ("orders", 5, False, "id", True)
    assert extended.exception(0) is None


def test_the_metadata_is_refused_by_name_as_a_topic_to_extend(
    world: World, controller: Actor, admin: Admin
) -> None:
    extended = admin.add_partitions({"__cluster_metadata": 2})["__cluster_metadata"]
    world.work()
    assert isinstance(extended.exception(0), InvalidTopic)
    assert controller.calls == []


def test_a_change_of_a_config_is_not_repeated(
    world: World, controller: Actor, admin: Admin
) -> None:
    """Somebody may have changed it since, or made another topic of the name."""
    altered = admin.alter_configs({"a": {"retention.ms": 5}})["a"]
    world.work()
    assert controller.answer("cluster-1") == ()
    world.work()
    controller.answer(ActorDiedError())
    world.work()
    assert isinstance(altered.exception(0), AnswerLost)
    assert controller.calls == []


def test_a_topic_that_is_deleted_is_the_one_that_has_the_name_now(
    world: World, controller: Actor, admin: Admin
) -> None:
    """A repetition must not delete one that somebody has made meanwhile."""
    deleted = admin.delete_topics(["orders"])["orders"]
    world.work()
    assert controller.answer(metadata(HERE)) == ("orders",)
    assert controller.answer(ActorDiedError()) == ("orders", "id", False)
    world.work()
    assert controller.answer("cluster-1") == ()
    world.work()
    assert controller.answer(None) == ("orders", "id", True)
    assert deleted.exception(0) is None


def test_a_topic_that_is_made_has_the_same_id_when_the_request_is_repeated(
    world: World, controller: Actor, admin: Admin
) -> None:
    made = admin.create_topics(["a", "b"])
    world.work()
    first = controller.answer(ActorDiedError())
    second = controller.answer("described")
    assert first[4] != second[4]
    world.work()
    assert controller.answer("cluster-1") == ()
    world.work()
    assert controller.answer("described") == first
    assert made["a"].exception(0) is None


def test_deleting_describing_and_listing_ask_for_each(
    world: World, controller: Actor, admin: Admin
) -> None:
    admin.delete_topics(["a", "b"])
    admin.describe_topics(["c"])
    admin.list_topics()
    admin.describe_cluster()
    world.work()
    assert [(name, arguments) for name, arguments, _ in controller.calls] == [
        ("topic_metadata", ("a",)),
        ("topic_metadata", ("b",)),
        ("describe_topic", ("c",)),
        ("list_topics", ()),
        ("describe_cluster", ()),
    ]


def test_a_request_ends_in_time(world: World, controller: Actor, admin: Admin) -> None:
    futures = admin.create_topics(["a"], timeout_s=3.0)
    world.work()
    world.clock.now_s += 3.0
    world.deadlines.expire()
    error = futures["a"].exception(0)
    assert isinstance(error, RequestTimedOut)
    assert (error.what, error.timeout_ms) == ("creating a", 3000)


@pytest.mark.parametrize("topics", ["orders", ["a", "b", "a"]])
def test_names_are_a_list_of_different_ones(admin: Admin, topics: Any) -> None:
    with pytest.raises(InvalidRequest):
        admin.delete_topics(topics)


@pytest.mark.parametrize("topics", ["abc", [5], [NewTopic("a", config="x")]])  # type: ignore[arg-type]
def test_topics_to_make_are_a_list_of_names_or_new_topics(
    world: World, controller: Actor, admin: Admin, topics: Any
) -> None:
    with pytest.raises(InvalidRequest):
        admin.create_topics(topics)
    world.work()
    assert controller.calls == []


def test_configs_of_several_topics_are_changed_and_each_fails_by_itself(
    world: World, controller: Actor, admin: Admin
) -> None:
    futures = admin.alter_configs(
        {"a": {"retention.ms": 5, "segment.bytes": None}, "b": {}}, validate_only=True
    )
    world.work()
    assert len(controller.calls) == 2, "none waits for another"
    asked = controller.answer("described")
    assert asked == ("a", {"retention.ms": 5}, ["segment.bytes"], True)
    unknown = UnknownTopicOrPartition("b", None, "the topic does not exist")
    assert controller.answer(failed(unknown)) == ("b", {}, [], True)
    assert futures["a"].result(0) == "described"  # type: ignore[comparison-overlap]
    assert futures["b"].exception(0) is unknown


def test_configs_of_several_topics_are_described(
    world: World, controller: Actor, admin: Admin
) -> None:
    futures = admin.describe_configs(["a", "b"])
    world.work()
    assert [(name, arguments) for name, arguments, _ in controller.calls] == [
        ("topic_config", ("a",)),
        ("topic_config", ("b",)),
    ]
    controller.answer(["entries"])
    assert futures["a"].result(0) == ["entries"]  # type: ignore[comparison-overlap]


def test_a_config_that_is_no_mapping_is_refused_at_once(admin: Admin) -> None:
    with pytest.raises(InvalidRequest):
        admin.alter_configs({"a": ["retention.ms=5"]})  # type: ignore[dict-item]


# -- arguments, and times that are over ------------------------------------------------------------

READS: dict[str, Callable[..., Any]] = {
    "describe_topics": lambda admin, **more: admin.describe_topics(["a"], **more),
    "describe_configs": lambda admin, **more: admin.describe_configs(["a"], **more),
    "list_topics": lambda admin, **more: admin.list_topics(**more),
    "describe_cluster": lambda admin, **more: admin.describe_cluster(**more),
    "list_offsets": lambda admin, **more: admin.list_offsets({KEY: "latest"}, **more),
}
CHANGES: dict[str, Callable[..., Any]] = {
    "create_topics": lambda admin, **more: admin.create_topics(["a"], **more),
    "add_partitions": lambda admin, **more: admin.add_partitions({"a": 2}, **more),
    "delete_topics": lambda admin, **more: admin.delete_topics(["a"], **more),
    "alter_configs": lambda admin, **more: admin.alter_configs({"a": {}}, **more),
    "delete_records": lambda admin, **more: admin.delete_records({KEY: 7}, **more),
}


def test_every_call_of_an_admin_is_looked_at() -> None:
    assert {*READS, *CHANGES} == {name for name in vars(Admin) if not name.startswith("_")}


@pytest.mark.parametrize("timeout_s", [None, "5", float("nan"), float("inf"), -1, True])
@pytest.mark.parametrize("call", [*READS, *CHANGES])
def test_a_timeout_is_seconds(admin: Admin, call: str, timeout_s: Any) -> None:
    with pytest.raises(InvalidRequest, match="timeout_s"):
        {**READS, **CHANGES}[call](admin, timeout_s=timeout_s)


@pytest.mark.parametrize("call", [*READS, *CHANGES])
def test_only_a_request_that_changes_something_may_have_taken_effect(
    world: World, controller: Actor, admin: Admin, call: str
) -> None:
    world.serve()
    asked = {**READS, **CHANGES}[call](admin, timeout_s=10.0)
    future = next(iter(asked.values())) if isinstance(asked, dict) else asked
    answer_topic_metadata(world, controller)
    world.clock.now_s += 11.0
    world.deadlines.expire()
    error = future.exception(0)
    assert isinstance(error, RequestTimedOut)
    assert isinstance(error, ReadTimedOut) == (call in READS)
    assert ("may have taken effect" in str(error)) == (call in CHANGES)


def answer_topic_metadata(world: World, controller: Actor) -> None:
    """What comes before the request itself."""
    world.work()
    before = {"topic_metadata": metadata(HERE), "cluster_id": "cluster-1"}
    while controller.calls and controller.calls[0][0] in before:
        controller.answer(before[controller.calls[0][0]])
        world.work()


def test_a_time_that_is_over_is_none_and_not_below(
    world: World, controller: Actor, admin: Admin
) -> None:
    log_actor = world.serve()
    (future,) = admin.delete_records({KEY: -1}, timeout_s=10.0).values()
    answer_topic_metadata(world, controller)
    world.clock.now_s += 11.0
    log_actor.answer(OffsetAnswer(7, -1, 2))
    answer_topic_metadata(world, controller)
    world.deadlines.expire()
    error = future.exception(0)
    assert isinstance(error, RequestTimedOut)
    assert error.timeout_ms == 0


@pytest.mark.parametrize("key", ["orders", ("orders", "0"), ("orders", -1), ("orders",)])
def test_a_partition_is_a_topic_and_a_number(admin: Admin, key: Any) -> None:
    for call in (admin.list_offsets, admin.delete_records):
        with pytest.raises(InvalidRequest, match="partition"):
            call({key: 5})


@pytest.mark.parametrize("when", [None, 5.5, True, "middle"])
def test_a_time_is_named_or_a_number(admin: Admin, when: Any) -> None:
    with pytest.raises(InvalidRequest, match="time"):
        admin.list_offsets({KEY: when})


# -- offsets ---------------------------------------------------------------------------------------


def test_offsets_are_asked_of_the_topic_that_the_metadata_names(
    world: World, controller: Actor, admin: Admin
) -> None:
    log_actor = world.serve()
    key = TopicPartition("orders", 0)
    futures = admin.list_offsets({("orders", 0): "latest"}, isolation=READ_COMMITTED)
    world.work()
    controller.answer(metadata(HERE))
    world.work()
    (request,) = log_actor.answer(OffsetAnswer(7, -1, 2))
    asked = request
    assert (asked.topic_id, asked.timestamp, asked.isolation) == ("id", -1, READ_COMMITTED)
    assert futures[key].result(0) == OffsetAnswer(7, -1, 2)


QUESTIONS: dict[str, tuple[Callable[[Admin], Any], Any, Any]] = {
    "list_offsets": (
        lambda admin: admin.list_offsets({KEY: "latest"}, timeout_s=10.0),
        OffsetAnswer(7, -1, 2),
        OffsetAnswer(7, -1, 2),
    ),
    "delete_records": (lambda admin: admin.delete_records({KEY: 7}, timeout_s=10.0), 7, 7),
}


def pass_time(world: World, controller: Actor, seconds: float) -> None:
    """So many seconds; the Controller answers what it is asked then."""
    world.clock.now_s += seconds
    world.deadlines.expire()
    answer_metadata(world, controller)


def answer_metadata(world: World, controller: Actor) -> None:
    world.work()
    while controller.calls:
        method, _, _ = controller.calls[0]
        controller.answer(metadata(HERE) if method == "topic_metadata" else None)
        world.work()


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_partition_that_is_away_is_asked_again_when_it_is_back(
    world: World, controller: Actor, admin: Admin, question: str
) -> None:
    ask, answer, expected = QUESTIONS[question]
    dead = world.serve()
    (future,) = ask(admin).values()
    answer_metadata(world, controller)
    dead.answer(ActorDiedError())
    del world.actors["Log:orders-0"]
    looks = len(world.looks)
    pass_time(world, controller, 0.07)
    assert len(world.looks) == looks, "it pauses"
    for _ in range(3):
        pass_time(world, controller, 1.3)
        assert not future.done()
    successor = world.serve()
    pass_time(world, controller, 1.3)
    successor.answer(answer)
    assert future.result(0) == expected
    assert len(world.deadlines) == 0


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_partition_that_stays_away_is_named_in_time(
    world: World, controller: Actor, admin: Admin, question: str
) -> None:
    (future,) = QUESTIONS[question][0](admin).values()
    for _ in range(6):
        pass_time(world, controller, 1.3)
        assert not future.done()
    for _ in range(22):
        pass_time(world, controller, 0.1)
    assert isinstance(future.exception(0), NotLeader)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_partition_that_does_not_answer_is_told_in_time(
    world: World, controller: Actor, admin: Admin, question: str
) -> None:
    world.serve()
    (future,) = QUESTIONS[question][0](admin).values()
    answer_metadata(world, controller)
    pass_time(world, controller, 10.0)
    assert isinstance(future.exception(0), RequestTimedOut)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_slow_controller_takes_of_the_same_time(
    world: World, controller: Actor, admin: Admin, question: str
) -> None:
    world.serve()
    (future,) = QUESTIONS[question][0](admin).values()
    for _ in range(2):
        world.work()
        assert not future.done()
        world.clock.now_s += 5.0
        answer_metadata(world, controller)
    world.deadlines.expire()
    assert isinstance(future.exception(0), RequestTimedOut)


def test_what_nobody_waits_for_is_not_asked_again(
    world: World, controller: Actor, admin: Admin
) -> None:
    (future,) = QUESTIONS["delete_records"][0](admin).values()
    answer_metadata(world, controller)
    assert future.cancel()
    looks = len(world.looks)
    pass_time(world, controller, 1.3)
    assert len(world.looks) == looks


@pytest.mark.parametrize(
    ("when", "timestamp"),
    [
        (1234, 1234),
        ("earliest", -2),
        ("max_timestamp", -3),
        (datetime(2026, 1, 2, tzinfo=UTC), 1_767_312_000_000),
        (datetime(2026, 1, 2), 1_767_312_000_000),
        (datetime(2026, 1, 2, 1, tzinfo=timezone(timedelta(hours=1))), 1_767_312_000_000),
    ],
)
def test_a_time_may_be_a_number_a_name_or_a_datetime(
    world: World, controller: Actor, admin: Admin, when: Any, timestamp: int
) -> None:
    log_actor = world.serve()
    admin.list_offsets({("orders", 0): when})
    world.work()
    controller.answer(metadata(HERE))
    world.work()
    _, (request,), _ = log_actor.calls[0]
    assert request.timestamp == timestamp


def test_a_topic_or_partition_that_does_not_exist_fails_alone(
    world: World, controller: Actor, admin: Admin
) -> None:
    futures = admin.list_offsets({("orders", 9): -1, ("none", 0): -1})
    world.work()
    unknown = UnknownTopicOrPartition("none", None, "the topic does not exist")
    for _ in range(2):
        _, (topic,), _ = controller.calls[0]
        controller.answer(metadata(HERE) if topic == "orders" else failed(unknown))
    assert futures[TopicPartition("none", 0)].exception(0) is unknown
    error = futures[TopicPartition("orders", 9)].exception(0)
    assert isinstance(error, UnknownTopicOrPartition)


def test_a_time_that_is_none_is_refused_at_once(admin: Admin) -> None:
    with pytest.raises(InvalidRequest, match="earliest, latest"):
        admin.list_offsets({("orders", 0): "yesterday"})


def test_records_of_several_partitions_are_deleted_and_each_fails_by_itself(
    world: World, controller: Actor, admin: Admin
) -> None:
    first, second = world.serve("Log:orders-0"), world.serve("Log:orders-1")
    futures = admin.delete_records({("orders", 0): 7, ("orders", 1): 9})
    world.work()
    here = PartitionMetadata(0, -1, HERE)
    controller.answer(TopicMetadata("orders", "id", (here, here), 1 << 20))
    world.work()
    assert first.answer(7) == (7,)
    refused = OffsetOutOfRange("orders-1", 9, 0, 5)
    assert second.answer(failed(refused)) == (9,)
    assert futures[TopicPartition("orders", 0)].result(0) == 7
    assert futures[TopicPartition("orders", 1)].exception(0) is refused


def test_all_records_are_those_that_are_there_when_it_is_asked_first(
    world: World, controller: Actor, admin: Admin
) -> None:
    """What is repeated must not delete what came in between."""
    log_actor = world.serve()
    (future,) = admin.delete_records({KEY: -1}).values()
    answer_metadata(world, controller)
    log_actor.answer(OffsetAnswer(7, -1, 2))
    answer_metadata(world, controller)
    assert log_actor.answer(ActorDiedError()) == (7,)
    log_actor = world.serve()
    pass_time(world, controller, 0.2)
    assert log_actor.answer(7) == (7,)
    assert future.result(0) == 7


def test_all_records_of_what_has_no_end_are_not_deleted(
    world: World, controller: Actor, admin: Admin
) -> None:
    futures = admin.delete_records({("orders", 3): -1, ("orders", 4): 5})
    answer_metadata(world, controller)
    for future in futures.values():
        with pytest.raises(UnknownTopicOrPartition, match="the topic has 1 partitions"):
            future.result(0)


@pytest.mark.parametrize("offset", [-2, "5", True, 1.5])
def test_an_offset_that_is_none_is_refused_at_once(admin: Admin, offset: Any) -> None:
    with pytest.raises(InvalidRequest, match="up to the log's end, or -1 for all records"):
        admin.delete_records({("orders", 0): offset})
