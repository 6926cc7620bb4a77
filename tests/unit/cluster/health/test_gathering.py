"""The facts come from each kind of actor; one that does not answer is named, and why. No Ray."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError

from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.messages import ActorProcess, LogDirStatus
from raylog.cluster.controller.describe import TopicDescription
from raylog.cluster.controller.log_dir_states import merged_log_dirs
from raylog.cluster.health import gathering as module
from raylog.cluster.health.gathering import gather_facts
from tests.harness.futures import Timeline, future_of


def log_dir(node_id: str, path: str, *, is_online: bool = True) -> LogDirStatus:
    status = LogDirStatus.offline(node_id, path, "id", "recorded", "do it")
    return status if not is_online else status._replace(is_online=True, problem=None, todo="")


DIR_A1, DIR_A2, DIR_B = log_dir("a", "/1"), log_dir("a", "/2"), log_dir("b", "/1")
TOPIC = TopicDescription(name="t", topic_id="id-t", config={}, partitions=())
ANSWERS: dict[str, dict[str, Any]] = {
    "Controller": {
        "cluster_id": "cluster-1",
        "nodes": {"node-1": None},
        "describe_nodes": [],
        "log_dirs": [DIR_A1, DIR_B],
        "problems": {"metadata": "EIO"},
        "list_topics": ["t"],
        "broker_config": [
            SimpleNamespace(name="log.retention.check.interval.ms", value=77),
            SimpleNamespace(name="num.partitions", value=1),
        ],
        "describe_topic": TOPIC,
    },
    "LogManager:a": {"log_dirs": [DIR_A1, DIR_A2], "recoveries": ["recovery on a"]},
    "LogManager:b": {"log_dirs": [DIR_B], "recoveries": []},
    "Log:t-0": {"status": "status of t-0"},
    "Log:t-1": {"status": "status of t-1"},
    "Compaction:a": {"status": ["compaction of a"], "retention": ["retention in compaction"]},
    "Retention:b": {"status": ["retention of b"]},
}


class Actors:
    """The named actors. ``ends``: (name, method) -> the call, where it is no answer of the list."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.timeline = Timeline(patch)
        self.names = {*ANSWERS, "Log:no partition", "somebody else's"}
        self.ends: dict[tuple[str, str], Future[Any]] = {}
        patch.setattr(module, "running", lambda _: sorted(self.names))
        patch.setattr(module, "find", self._find)
        patch.setattr(module, "process_of", lambda handle: handle.process)
        self.processes: dict[str, ActorProcess] = {}

    def _find(self, name: str, _: str) -> Any:
        if name == "somebody else's":
            return None  # it has ended since it was listed
        methods = {
            method: self._method(name, method, answer)
            for method, answer in ANSWERS.get(name, {}).items()
        }
        return SimpleNamespace(process=self.processes.get(name), **methods)

    def _method(self, name: str, method: str, answer: Any) -> Any:
        end = self.ends.get((name, method)) or future_of(answer)
        return SimpleNamespace(remote=lambda *_: end)

    def hang(self, *questions: tuple[str, str]) -> None:
        self.ends |= {question: Future() for question in questions}


@pytest.fixture
def actors(monkeypatch: pytest.MonkeyPatch) -> Actors:
    return Actors(monkeypatch)


def test_facts_are_gathered_from_each_kind_of_actor(actors: Actors) -> None:
    facts: Any = gather_facts("test")
    assert facts.cluster_id == "cluster-1"
    assert facts.controller_problem is None
    assert facts.nodes == {"node-1": None}
    assert facts.problems == {"metadata": "EIO"}
    assert facts.topics == [TOPIC]
    assert facts.log_dirs == [DIR_A1, DIR_A2, DIR_B]
    assert facts.partitions == ["status of t-0", "status of t-1"]
    assert facts.recovering == ["recovery on a"]
    assert facts.compaction == ["compaction of a"]
    assert facts.retention == ["retention of b", "retention in compaction"]
    assert facts.retention_interval_ms == 77
    assert facts.silent_nodes == facts.silent_partitions == facts.silent_upkeep == {}


def test_those_that_do_not_answer_in_time_are_named_and_cost_the_time_once(actors: Actors) -> None:
    actors.hang(("LogManager:b", "log_dirs"), ("Log:t-1", "status"), ("Retention:b", "status"))
    actors.hang(("Controller", "nodes"))
    facts: Any = gather_facts("test", timeout_s=3)
    late = "no answer within 3 s"
    assert facts.silent_nodes == {"b": late}
    assert facts.silent_partitions == {"t-1": late}
    assert facts.silent_upkeep == {"Retention:b": late}
    assert facts.controller_problem == late
    assert facts.log_dirs == [DIR_A1, DIR_A2, DIR_B], "of b as the Controller knows it"
    assert facts.partitions == ["status of t-0"]
    assert actors.timeline.now_s == 3


def test_who_has_not_answered_after_two_seconds_is_told_meanwhile(actors: Actors) -> None:
    told: list[tuple[float, list[str]]] = []
    gather_facts("test", 3, lambda names: told.append((actors.timeline.now_s, names)))
    assert told == []
    actors.hang(("LogManager:b", "log_dirs"), ("LogManager:b", "recoveries"))
    actors.hang(("Log:t-1", "status"), ("Controller", "nodes"))
    gather_facts("test", 3, lambda names: told.append((actors.timeline.now_s, names)))
    assert told == [(2, ["t-1", "the Controller", "the LogManager actor of node b"])]


def test_the_process_of_a_partition_that_does_not_answer_is_found_where_ray_knows_it(
    actors: Actors,
) -> None:
    actors.processes = {"Log:t-0": ActorProcess("node-1", 7), "Log:t-1": ActorProcess("node-1", 8)}
    actors.hang(("Log:t-1", "status"))
    assert gather_facts("test").processes == {"Log:t-1": ActorProcess("node-1", 8)}
    actors.processes = {}
    assert gather_facts("test").processes == {}


def test_who_answers_nothing_is_told_from_who_answers_late_or_an_error(actors: Actors) -> None:
    """Nobody shall end the process of one that answers."""
    actors.processes = {name: ActorProcess("node-1", 7) for name in ANSWERS}
    actors.hang(*(("Controller", question) for question in ANSWERS["Controller"]))
    actors.ends["Log:t-0", "status"] = future_of(ActorUnavailableError("it may hang", b"1" * 16))
    actors.ends["Log:t-1", "status"] = future_of(NotLeader("t-1", "it is opening its log"))
    actors.hang(("LogManager:a", "log_dirs"))
    facts = gather_facts("test")
    assert facts.hanging == {"Controller", "Log:t-0"}
    assert facts.processes.keys() == {"Controller", "Log:t-0", "Log:t-1", "LogManager:a"}


def test_what_is_recorded_of_a_log_dir_counts_and_what_its_log_manager_knows_is_kept() -> None:
    offline = log_dir("a", "/1", is_online=False)
    told = DIR_A1._replace(size_bytes=7)
    (merged,) = merged_log_dirs([told], [offline])
    assert (merged.is_online, merged.problem, merged.todo) == (False, "recorded", "do it")
    assert merged.size_bytes == 7
    assert merged_log_dirs([told], [DIR_A1]) == [told]


def test_of_a_log_dir_that_is_offline_the_controller_knows_how_many_have_their_place_there() -> (
    None
):
    told = log_dir("a", "/1", is_online=False)
    (merged,) = merged_log_dirs([told], [told._replace(partitions=3)])
    assert merged.partitions == 3
    (merged,) = merged_log_dirs([told], [DIR_A1._replace(partitions=3)])
    assert merged.partitions == 3, "it has not heard of it yet"
    in_use = DIR_A1._replace(partitions=4)
    assert merged_log_dirs([in_use], [DIR_A1._replace(partitions=3)]) == [in_use]


def test_the_advice_of_a_log_manager_is_kept_where_the_controller_has_none() -> None:
    told = log_dir("a", "/1", is_online=False)._replace(todo="restore the file")
    known = LogDirStatus.offline("a", "/1", None, "meta.properties is missing")
    (merged,) = merged_log_dirs([told], [known])
    assert merged.todo == "restore the file"


def test_a_topic_that_is_not_described_in_time_is_left_out(actors: Actors) -> None:
    actors.hang(("Controller", "describe_topic"))
    facts = gather_facts("test", timeout_s=3)
    assert facts.topics == []
    assert facts.controller_problem is None


def test_a_time_out_that_the_actor_raised_is_told_in_its_own_words(actors: Actors) -> None:
    raised = RayTaskError(
        "status", "traceback", RequestTimedOut("the disk", 7)
    ).as_instanceof_cause()
    actors.ends["Log:t-0", "status"] = future_of(raised)
    facts = gather_facts("test", timeout_s=3)
    assert facts.silent_partitions["t-0"].startswith("the disk: no answer within 7 ms")


def test_an_actor_that_died_or_is_wrong_is_told_by_its_reason(actors: Actors) -> None:
    actors.ends["Log:t-0", "status"] = future_of(NotLeader("t-0", "its disk failed"))
    actors.ends["Log:t-1", "status"] = future_of(ActorDiedError())
    actors.ends["LogManager:a", "log_dirs"] = future_of(KeyError("a\n  bug"))
    facts = gather_facts("test")
    assert facts.silent_partitions["t-0"] == "its disk failed"
    assert "died" in facts.silent_partitions["t-1"]
    assert "bug" in facts.silent_nodes["a"]
    assert "\n" not in facts.silent_nodes["a"]


def test_without_a_controller_the_others_are_asked(actors: Actors) -> None:
    actors.names.discard("Controller")
    facts = gather_facts("test")
    assert facts.controller_problem == "it is not running"
    assert facts.cluster_id == ""
    assert facts.topics == []
    assert facts.retention_interval_ms == 0
    assert len(facts.partitions) == 2
