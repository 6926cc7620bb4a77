"""Many LogActors asked at once: each answer, or error, is its own partition's."""

from typing import Any

import pytest
import ray

from raylog.actors.control import Confirmed, LogId
from raylog.actors.errors import ConfigUnconfirmed, NotLeader
from raylog.actors.messages import RemovedSegments
from raylog.actors.upkeep.node_logs import NodeLogs
from raylog.storage.errors import StorageError
from raylog.storage.names import TopicPartition
from tests.harness.futures import Timeline, future_of

SERVES, FAILS, HAS_A_BUG, IS_AWAY, UNCONFIRMED = (
    TopicPartition("orders", number) for number in range(5)
)
LOG = LogId(partition=SERVES, topic_id="id")
RIGHT, MANAGER = Confirmed(log=LOG, config_version=3, until_ms=7), "LogManager:n1"
REMOVED = RemovedSegments(segments=2, size_bytes=100, seconds=0.1)
FAILURE, BUG = StorageError("/logs/orders-1", "Input/output error"), KeyError("of its own")
ANSWERS: dict[str, Any] = {
    "Log:orders-0": REMOVED,
    "Log:orders-1": FAILURE,
    "Log:orders-2": BUG,
    "Log:orders-4": REMOVED,
}


class Handle:
    """A LogActor's. What its method returns stands for the reference: the actor's name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.delete_old_segments = self

    def remote(self, confirmed: Confirmed) -> str:
        assert confirmed == RIGHT
        return self.name


class Manager:
    """A LogManager's handle, whose one method says which configs are confirmed."""

    def __init__(self) -> None:
        self.confirmed = self

    def remote(self, partitions: list[TopicPartition]) -> str:
        ANSWERS[MANAGER] = {name: RIGHT for name in partitions if name != UNCONFIRMED}
        return MANAGER


@pytest.fixture(autouse=True)
def log_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    def get_actor(name: str, namespace: str) -> Handle | Manager:
        if name == MANAGER:
            return Manager()
        if name not in ANSWERS:
            raise ValueError("no such actor")
        return Handle(name)

    def get(reference: str, timeout: float) -> Any:
        answer = ANSWERS[reference]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_actor", get_actor)
    monkeypatch.setattr(ray, "wait", lambda references, **_: (references, []))
    monkeypatch.setattr(ray, "get", get)


def test_an_error_of_one_log_is_its_answer_and_the_others_are_asked() -> None:
    logs = NodeLogs("test", "n1")
    answers = logs.delete_old_segments([SERVES, FAILS, HAS_A_BUG, IS_AWAY])
    assert answers[SERVES] == REMOVED
    assert answers[FAILS] is FAILURE
    assert answers[HAS_A_BUG] is BUG
    assert isinstance(answers[IS_AWAY], NotLeader)


def test_a_log_whose_config_is_not_confirmed_is_not_asked() -> None:
    answers = NodeLogs("test", "n1").delete_old_segments([SERVES, UNCONFIRMED])
    assert answers[SERVES] == REMOVED
    assert isinstance(answers[UNCONFIRMED], ConfigUnconfirmed)
    with pytest.raises(ConfigUnconfirmed):
        NodeLogs("test", "n1").view(UNCONFIRMED)


def test_of_many_logs_that_answer_slowly_one_after_another_none_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timeline = Timeline(monkeypatch)
    seconds = {"Log:orders-0": 25, "Log:orders-1": 50, "Log:orders-2": 75}
    ends = {name: timeline.ends_at(second, REMOVED) for name, second in seconds.items()}
    monkeypatch.setattr(Handle, "remote", lambda self, _: ends[self.name])
    monkeypatch.setattr(Manager, "remote", lambda _, asked: future_of(dict.fromkeys(asked, RIGHT)))
    partitions = [SERVES, FAILS, HAS_A_BUG]
    answers = NodeLogs("test", "n1").delete_old_segments(partitions)
    assert answers == dict.fromkeys(partitions, REMOVED)


def test_of_no_logs_nothing_is_asked() -> None:
    assert NodeLogs("test", "n1").delete_old_segments([]) == {}


def test_without_a_log_manager_nothing_is_written_down() -> None:
    with pytest.raises(NotLeader, match="LogManager:n2 cannot be reached: it is not running"):
        NodeLogs("test", "n2").record_cleaner_offset(LOG, 7)
