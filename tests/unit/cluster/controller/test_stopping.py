"""How a cluster's nodes are stopped. No Ray."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.actors.errors import ActorAway, NotLeader, RequestTimedOut
from raylog.actors.runtime.names import CONTROLLER
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.cluster.controller import stopping as module
from raylog.cluster.controller.stopping import stop_nodes
from raylog.cluster.running import parts_of
from tests.harness.futures import Timeline


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
        patch.setattr(module, "running_parts", lambda _: parts_of(self.names))
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


def test_all_log_managers_are_stopped_at_once_and_then_all_else_is_ended(
    timeline: Timeline, actors: Actors
) -> None:
    actors.has("a", timeline.ends_at(300, True))
    actors.has("b", timeline.ends_at(590, True))
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


# -- a Controller that is asked to end -------------------------------------------------------------


class Ending:
    """A Controller that answers questions until a time, each after ``lag_s``; it ends at another.

    ``stands_still``: (when, for how long) nothing runs here.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        answers_until_s: float,
        ends_at_s: float = float("inf"),
        *,
        lag_s: float = 0.0,
        stands_still: tuple[float, float] | None = None,
    ) -> None:
        self.now_s = 0.0
        self.answers_until_s, self.ends_at_s = answers_until_s, ends_at_s
        self.lag_s, self.stands_still = lag_s, stands_still
        time = SimpleNamespace(monotonic=lambda: self.now_s, sleep=self._sleep)
        patch.setattr(module, "time", time)
        patch.setattr(module, "answered", self._wait)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def _wait(self, calls: list[Any], timeout_s: float) -> list[Any]:
        if self.stands_still is not None and self.now_s >= self.stands_still[0]:
            timeout_s, self.stands_still = self.stands_still[1], None
        is_ended = self.ends_at_s <= self.now_s + timeout_s
        self.now_s = self.ends_at_s if is_ended else self.now_s + timeout_s
        return calls if is_ended else []

    def end(self) -> bool:
        stub: Any = SimpleNamespace(cluster_id=self._question)
        ending: Any = SimpleNamespace(get=lambda: True)
        return module._answer(stub, ending)

    def _question(self) -> Any:
        answered_at_s = self.now_s + self.lag_s
        if self.now_s >= self.answers_until_s:
            answered_at_s = float("inf")
        return SimpleNamespace(is_answered=lambda: self.now_s >= answered_at_s, ignore=lambda: None)


def test_a_controller_that_answers_may_take_minutes_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Ending(monkeypatch, answers_until_s=500, ends_at_s=500).end()


@pytest.mark.parametrize("lag_s", [12, 35])
def test_a_controller_that_answers_each_question_late_is_there(
    monkeypatch: pytest.MonkeyPatch, lag_s: float
) -> None:
    assert Ending(monkeypatch, answers_until_s=500, ends_at_s=500, lag_s=lag_s).end()


@pytest.mark.parametrize("since_s", [0, 20])
def test_time_in_which_nothing_runs_here_is_no_silence(
    monkeypatch: pytest.MonkeyPatch, since_s: float
) -> None:
    """The command was suspended, or the machine."""
    ending = Ending(monkeypatch, 500, ends_at_s=200, stands_still=(since_s, 90))
    assert ending.end()


def test_a_controller_that_hangs_is_ended_after_a_minute_and_the_nodes_stop_without_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It must not go on with its work when it wakes."""
    ending = Ending(monkeypatch, answers_until_s=0)
    stub: Any = SimpleNamespace(cluster_id=ending._question, shutdown=lambda: None)
    done: list[str] = []
    found = iter([stub])
    monkeypatch.setattr(module, "find_controller", lambda _: next(found, None))
    monkeypatch.setattr(module, "kill", lambda name, _: done.append(f"kill {name}"))

    def stop_nodes(_namespace: str) -> bool:
        done.append("stop the nodes")
        return True

    monkeypatch.setattr(module, "stop_nodes", stop_nodes)
    assert module.stop_controller("test")
    assert done == [f"kill {CONTROLLER}", "stop the nodes", f"kill {CONTROLLER}"]
    assert ending.now_s == 70 + module.KILLED_WITHIN_S, "the first question is asked at 10 s"
    (told,) = caplog.messages
    assert "not answered for 60 s: its process is ended" in told
    assert "have all nodes running before the next `raylog start`" in told


def test_a_controller_that_ray_does_not_reach_is_ended_too_and_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may hang: it must not start again what is being stopped when it wakes."""
    time = Ending(monkeypatch, answers_until_s=0)
    stub: Any = SimpleNamespace(shutdown=lambda: None)
    done: list[str] = []
    monkeypatch.setattr(module, "find_controller", lambda _: None if done else stub)
    monkeypatch.setattr(module, "kill", lambda name, _: done.append(f"kill {name}"))

    def stop_nodes(_namespace: str) -> bool:
        done.append("stop the nodes")
        return True

    monkeypatch.setattr(module, "stop_nodes", stop_nodes)

    def away(*_: object) -> bool:
        raise ActorAway("stopping the broker", "The actor 0a1b is unavailable")

    monkeypatch.setattr(module, "_answer", away)
    assert module.stop_controller("test")
    assert done == [f"kill {CONTROLLER}", "stop the nodes", f"kill {CONTROLLER}"]
    assert time.now_s == pytest.approx(30 + module.KILLED_WITHIN_S, abs=1)
    (told,) = caplog.messages
    assert told.startswith(
        "the Controller cannot be reached (The actor 0a1b is unavailable): its process is ended, "
        "and the nodes are stopped without it. "
    )


def test_a_controller_that_answers_is_waited_for_ten_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ending = Ending(monkeypatch, answers_until_s=10_000)
    with pytest.raises(RequestTimedOut, match="stopping the broker: no answer within 600000 ms"):
        ending.end()
    assert ending.now_s == 600
