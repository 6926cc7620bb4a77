"""How a Broker finds partitions: it waits only where it may, and there with patience."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from raylog.actors.errors import (
    BrokerRunning,
    MetadataInDoubt,
    NotLeader,
    OlderMetadata,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.names import CONTROLLER
from raylog.cluster import broker as module
from raylog.cluster import start as start_module
from raylog.cluster.broker import Broker
from raylog.cluster.client.ray_connection import RayConnection
from raylog.cluster.controller import placing
from raylog.cluster.controller.describe import TopicDescription
from raylog.storage.errors import LogMissing, RaylogError, StorageError
from raylog.storage.indexes.time_index import TimestampOffset
from tests.harness.futures import Timeline, future_of, get, wait


def answer(value: Any = None) -> "Future[Any]":
    """A call that has ended well; the Controller explains by returning an error."""
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class Controller:
    """Explains what it is told to, call by call; the last for ever."""

    def __init__(self, *answers: "Future[Any]") -> None:
        self.answers, self.explained = list(answers), list[Future[Any]]()
        self.explain = self

    def remote(self, *_: Any) -> "Future[Any]":
        self.explained.append(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
        return self.explained[-1]

    @property
    def asked(self) -> int:
        return len(self.explained)


class Time:
    """A broker's module ``time``: it passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Cluster:
    """Ray, as far as a lookup sees it: named actors, and futures for references."""

    def __init__(self) -> None:
        self.actors: dict[str, Any] = {CONTROLLER: Controller(answer())}
        self.waited_s: list[float] = []  # for the Controller's explanations
        self.early_looks = 0  # so many looks for a partition find nothing yet

    def get_actor(self, name: str, namespace: str) -> Any:
        if name != CONTROLLER and self.early_looks:
            self.early_looks -= 1
            raise ValueError(name)
        if name not in self.actors:
            raise ValueError(name)
        return self.actors[name]

    def wait(self, references: "list[Future[Any]]", num_returns: int, timeout: float) -> Any:
        if any(reference in self.explanations for reference in references):
            self.waited_s.append(timeout)
        return wait(references, num_returns, 0)

    @property
    def explanations(self) -> "list[Future[Any]]":
        controller = self.actors.get(CONTROLLER)
        return controller.explained if isinstance(controller, Controller) else []


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_actor", made.get_actor)
    monkeypatch.setattr(ray, "wait", made.wait)
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(module, "time", Time())
    return made


def ask(broker: Broker, *ends: "Future[Any]") -> Any:
    """One partition's answer, where its calls end one after another as given."""
    left = list(ends)
    return broker.ask([("t", 0)], lambda _key, _log_actor: Call(left.pop(0), "t-0"))[("t", 0)]


def test_a_stop_returns_when_ray_has_forgotten_the_controller(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray kills an actor a moment after it was asked to; a start would find it until then."""
    looks = iter([True, True, True, False])
    handle = SimpleNamespace(shutdown=SimpleNamespace(remote=lambda: answer(True)))
    cluster.actors[CONTROLLER] = handle
    is_killed = False

    def kill(actor: object, no_restart: bool) -> None:
        nonlocal is_killed
        is_killed = actor is handle

    def get_actor(name: str, namespace: str) -> object:
        if is_killed and not next(looks):
            raise ValueError(name)
        return handle

    monkeypatch.setattr(ray, "kill", kill)
    monkeypatch.setattr(ray, "get_actor", get_actor)
    assert Broker().stop()
    assert next(looks, None) is None


def test_a_partition_that_runs_is_found_without_the_controller(cluster: Cluster) -> None:
    cluster.actors = {"Log:t-0": "actor"}
    assert Broker().partition("t", 0) == "actor"


def test_a_user_gets_the_actor_of_now_and_a_client_the_one_that_it_knows_until_it_proves_wrong(
    cluster: Cluster,
) -> None:
    cluster.actors["Log:t-0"] = "first"
    broker = Broker()
    assert broker.log_actor("t", 0).handle == broker.partition("t", 0) == "first"
    cluster.actors["Log:t-0"] = "second"  # as after the node has come back
    assert broker.log_actor("t", 0).handle == "first"
    assert broker.partition("t", 0) == broker.log_actor("t", 0).handle == "second"
    cluster.actors["Log:t-0"] = "third"
    broker.forget("t", 0)
    assert broker.log_actor("t", 0).handle == "third"


@pytest.mark.parametrize("partition", ["0", -1])
def test_a_number_that_is_none_finds_no_other_partition(cluster: Cluster, partition: Any) -> None:
    """Their actors would have the names of t's partition 0, and of partition 1 of ``t-``."""
    cluster.actors["Log:t-0"] = cluster.actors["Log:t--1"] = "another's actor"
    cluster.actors[CONTROLLER] = Controller(answer(UnknownTopicOrPartition("t", partition, "no")))
    with pytest.raises(UnknownTopicOrPartition):
        Broker().partition("t", partition)


def test_without_time_a_lookup_waits_for_nobody_and_hears_the_reason_later(
    cluster: Cluster,
) -> None:
    reason: Future[Any] = Future()
    cluster.actors[CONTROLLER] = controller = Controller(reason)
    broker = Broker()
    for _ in range(3):
        with pytest.raises(NotLeader, match="is starting"):
            broker.partition("t", 0, timeout_s=0)
    assert cluster.waited_s == [0, 0, 0]
    assert controller.asked == 1, "the question that is open is not asked again"
    reason.set_result(LogMissing("/disk/t-0", "gone"))
    with pytest.raises(LogMissing):
        broker.partition("t", 0, timeout_s=0)


def test_with_time_a_lookup_waits_for_an_actor_that_is_being_started(cluster: Cluster) -> None:
    cluster.actors["Log:t-0"], cluster.early_looks = "actor", 3
    assert Broker().partition("t", 0) == "actor"


def test_with_time_a_lookup_waits_for_a_node_that_is_away(cluster: Cluster) -> None:
    """A Controller that was started again says so of every partition that it has not heard of."""
    away = NotLeader("t-0", "the node with log dir d is away")
    cluster.actors[CONTROLLER] = Controller(answer(away))
    cluster.actors["Log:t-0"], cluster.early_looks = "actor", 3
    with pytest.raises(NotLeader, match="is away"):
        Broker().partition("t", 0, timeout_s=0)
    assert Broker().partition("t", 0) == "actor"
    cluster.actors.pop("Log:t-0")
    with pytest.raises(NotLeader, match="is away"):
        Broker().partition("t", 0, timeout_s=600.0)


def test_asking_goes_on_while_the_partition_or_the_controller_is_being_started(
    cluster: Cluster,
) -> None:
    restarting = future_of(NotLeader("the broker", "it is starting"))
    cluster.actors[CONTROLLER] = controller = Controller(restarting, Future())
    cluster.actors["Log:t-0"], cluster.early_looks = "actor", 5
    assert ask(Broker(), future_of(NotLeader("t-0", "died")), answer(7)) == 7
    assert controller.asked == 2
    assert set(cluster.waited_s) == {0}, "no partition waits in front of the others"


@pytest.mark.parametrize(
    "error", [UnknownTopicOrPartition("t", 0, "no such topic"), LogMissing("/disk/t-0", "gone")]
)
def test_what_does_not_pass_by_itself_is_raised_at_once(
    cluster: Cluster, error: RaylogError
) -> None:
    cluster.actors[CONTROLLER] = Controller(answer(error))
    with pytest.raises(type(error)):
        ask(Broker())
    cluster.actors["Log:t-0"] = "actor"
    with pytest.raises(StorageError):
        ask(Broker(), future_of(StorageError("/disk/t-0", "offline")), answer(7))


@pytest.mark.parametrize("error", [NotLeader("t-0", "died"), RequestTimedOut("t-0", 30_000)])
def test_asking_ends_when_the_time_is_up(cluster: Cluster, error: RaylogError) -> None:
    cluster.actors["Log:t-0"] = "actor"
    with pytest.raises(type(error)):
        Broker().ask([("t", 0)], lambda _key, _log_actor: Call[Any](future_of(error), "t-0"))


def test_partitions_that_answer_slowly_one_after_another_are_asked_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = Timeline(monkeypatch)
    asked: list[int] = []

    def question(key: tuple[str, int], _: Any) -> Call[int]:
        _, number = key
        asked.append(number)
        return Call(timeline.ends_at(25 * (number + 1), number), "t")

    cluster.actors |= {f"Log:t-{number}": "actor" for number in range(3)}
    keys = [("t", number) for number in range(3)]
    assert Broker().ask(keys, question) == {("t", 0): 0, ("t", 1): 1, ("t", 2): 2}
    assert asked == [0, 1, 2]


def test_answers_come_in_the_order_of_the_question_whoever_answers_first(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = Timeline(monkeypatch)

    def question(key: tuple[str, int], _: Any) -> Call[int]:
        _, number = key
        return Call(timeline.ends_at(3 - number, number), "t")

    cluster.actors |= {f"Log:t-{number}": "actor" for number in range(3)}
    answers = Broker().ask([("t", number) for number in range(3)], question)
    assert list(answers.values()) == [0, 1, 2]


def test_upkeep_of_many_nodes_that_answer_slowly_one_after_another_is_told_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timeline = Timeline(monkeypatch)
    statuses: list[Any] = [SimpleNamespace(partition=f"t-{number}") for number in range(3)]
    calls = {
        f"Retention:{number}": Call[list[Any]](timeline.ends_at(25 * number, [status]), "it")
        for number, status in enumerate(statuses, start=1)
    }
    assert Broker()._by_partition(calls) == statuses


class LogActor:
    """Its first deletion is recorded, but the answer is lost; meanwhile records are appended."""

    def __init__(self) -> None:
        self.end, self.deleted_before = 5, list[int]()
        self.offset_for_timestamp, self.delete_records = (
            SimpleNamespace(remote=self._offset),
            SimpleNamespace(remote=self._delete),
        )

    def _offset(self, timestamp: int) -> "Future[Any]":
        assert timestamp == -1
        return answer(TimestampOffset(-1, self.end))

    def _delete(self, before_offset: int) -> "Future[Any]":
        self.deleted_before.append(before_offset)
        if len(self.deleted_before) == 1:
            self.end += 3
            return future_of(NotLeader("t-0", "died"))
        return answer(before_offset)


def test_deleting_all_records_means_those_of_the_moment_of_the_call(cluster: Cluster) -> None:
    cluster.actors["Log:t-0"] = actor = LogActor()
    assert Broker().delete_records("t", 0) == 5
    assert actor.deleted_before == [5, 5]
    assert Broker().delete_records("t", 0, before_offset=2) == 2


@pytest.mark.parametrize("error", [OlderMetadata, MetadataInDoubt])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_survey_that_another_start_has_disturbed_says_that_a_broker_runs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: type[RaylogError], is_there: bool
) -> None:
    """The other start's Controller wrote its epoch when one log dir was surveyed already."""
    doubt = error(*[f"<{field}>" for field in error.fields])

    def find_node(*_: object, **__: object) -> None:
        if not is_there:
            del cluster.actors[CONTROLLER]
        raise doubt

    monkeypatch.setattr(placing, "find_node", find_node)
    with pytest.raises(BrokerRunning if is_there else error):
        start_module._start_controller(
            "test", BrokerConfig.parse({}), new_cluster=False, older_metadata=False
        )


def test_starting_and_making_topics_are_waited_for_as_long_as_they_take(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who gave up after minutes would tear down a broker that only reads its logs back."""
    waited_s: list[float] = []

    def get(_: Any, timeout: float) -> Any:
        waited_s.append(timeout)
        return "the cluster id"

    def command(
        connection: object, what: str, timeout_s: float, command: object, **_: float
    ) -> "Future[Any]":
        waited_s.append(timeout_s)
        return answer(TopicDescription(name="t", topic_id="id", config={}, partitions=()))

    controller = SimpleNamespace(start=SimpleNamespace(remote=lambda *_: answer()))
    cluster.actors[CONTROLLER] = controller
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(start_module, "create", lambda *_, **__: controller)
    monkeypatch.setattr(RayConnection, "command", command)
    monkeypatch.setattr(placing, "find_node", lambda *_, **__: (None, None))
    start_module._start_controller(
        "test", BrokerConfig.parse({}), new_cluster=False, older_metadata=False
    )
    Broker().create_topic("t")
    Broker().add_partitions("t", 2)
    assert len(waited_s) == 4, "of an extension, the topic's id is looked up first"
    assert min(waited_s) >= 86_400
