"""What the Controller waits for, and how long; how a cluster's nodes are stopped. No Ray."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.actors.errors import NotLeader, RequestTimedOut, UnknownTopicOrPartition
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.cluster.controller import state as module
from raylog.cluster.controller.state import ControllerState, all_answers, stop_nodes
from raylog.storage.errors import StorageError
from tests.harness.futures import Timeline, future_of


@pytest.fixture
def timeline(monkeypatch: pytest.MonkeyPatch) -> Timeline:
    return Timeline(monkeypatch)


class Actors:
    """The named actors of a namespace; the LogManagers among them end as a test says."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.names: set[str] = set()
        self.shutdowns: dict[str, Future[Any]] = {}  # node -> its LogManager's answer
        self.stopped: list[str] = []
        self.reported: list[str] = []
        patch.setattr(module, "running", lambda _: set(self.names))
        patch.setattr(module, "find_log_manager", self._find)
        patch.setattr(module, "kill", lambda name, _: self.names.discard(name))
        patch.setattr(module, "warn", lambda *_, node, **__: self.reported.append(node))

    def _find(self, node: str, _: str) -> LogManagerStub | None:
        if node not in self.shutdowns:
            return None
        return LogManagerStub(SimpleNamespace(shutdown=self._shutdown(node)), node)

    def _shutdown(self, node: str) -> Any:
        def remote() -> Any:
            self.stopped.append(node)
            return self.shutdowns[node]

        return SimpleNamespace(remote=remote)

    def has(self, node: str, end: "Future[Any]") -> None:
        self.names.add(f"LogManager:{node}")
        self.shutdowns[node] = end


@pytest.fixture
def actors(timeline: Timeline, monkeypatch: pytest.MonkeyPatch) -> Actors:
    return Actors(monkeypatch)


def test_a_topic_that_does_not_exist_is_refused_by_its_name() -> None:
    state = ControllerState("test", BrokerConfig.parse({}))
    state._metadata = SimpleNamespace(state=SimpleNamespace(topics={"t": "its topic"}))  # type: ignore[assignment]
    assert state._topic("t") == "its topic"  # type: ignore[comparison-overlap]
    with pytest.raises(UnknownTopicOrPartition, match="topic 'other': the topic does not exist"):
        state._topic("other")


def test_before_the_metadata_is_open_no_topic_is_known() -> None:
    with pytest.raises(NotLeader, match="the broker cannot be reached: it is starting"):
        ControllerState("test", BrokerConfig.parse({}))._topic("t")


@pytest.mark.parametrize("number", [1, 2])
def test_calls_that_open_logs_may_take_ten_minutes_each(timeline: Timeline, number: int) -> None:
    calls = {n: Call[int](timeline.ends_at(590 * (n + 1), n), "it") for n in range(number)}
    assert all_answers(calls) == {n: n for n in range(number)}


def test_an_error_is_raised_when_all_calls_have_ended(timeline: Timeline) -> None:
    calls = {
        "fails": Call[str](timeline.ends_at(1, StorageError("/disk", "I/O error")), "it"),
        "slow": Call[str](timeline.ends_at(590, "done"), "it"),
    }
    with pytest.raises(StorageError):
        all_answers(calls)
    assert timeline.now_s == 590


def test_a_call_that_hangs_is_given_up_after_ten_minutes(timeline: Timeline) -> None:
    with pytest.raises(RequestTimedOut):
        all_answers({"a": Call[int](Future(), "it"), "b": Call[int](future_of(1), "it")})
    assert timeline.now_s == 600


def test_all_log_managers_are_stopped_however_long_they_take_and_then_all_else_is_ended(
    timeline: Timeline, actors: Actors
) -> None:
    actors.has("a", timeline.ends_at(300, True))
    actors.has("b", timeline.ends_at(800, True))
    actors.names |= {"Log:t-0", "Compaction:a", "Retention:b", "Controller", "somebody else's"}
    assert stop_nodes("test")
    assert actors.stopped == ["a", "b"]
    assert actors.reported == []
    assert actors.names == {"Controller", "somebody else's"}


def test_of_a_stop_it_is_told_which_log_manager_did_not_end_in_order(
    timeline: Timeline, actors: Actors
) -> None:
    actors.has("died", timeline.ends_at(1, NotLeader("LogManager:died", "it died")))
    actors.has("fine", timeline.ends_at(2, True))
    actors.has("hangs", Future())
    actors.has("unclean", timeline.ends_at(3, False))
    actors.names.add("LogManager:gone")
    assert not stop_nodes("test")
    assert sorted(actors.reported) == ["LogManager:died", "LogManager:hangs", "LogManager:unclean"]
    assert actors.names == set()


def test_where_nothing_runs_a_stop_is_in_order(actors: Actors) -> None:
    assert stop_nodes("test")
