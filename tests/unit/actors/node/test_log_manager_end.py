"""How a LogManager ends for good by the Controller's order. No Ray."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.actors.errors import NotLeader
from raylog.actors.node import log_manager as module
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.log_manager import LogManagerImpl, NodeSpec
from raylog.actors.runtime.calls import OPEN_TIMEOUT_S
from raylog.storage.testing.waiting import DEADLINE_S


class World:
    """What the LogManager does to its process and its actor."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.is_ray_away = False
        self.done: list[str] = []
        self.has_ended = threading.Event()
        patch.setattr(module, "own_name", lambda: "LogManager:n")
        patch.setattr(module, "own_node", lambda: SimpleNamespace(key="n"))
        patch.setattr(module, "is_restarted", lambda: False)
        patch.setattr(module, "set_up_logs", lambda _: None)
        patch.setattr(module, "end_own_actor", self._end_actor)
        patch.setattr(module, "end_process", self._end_process)
        patch.setattr(module, "END_TIMEOUT_S", 0.0)

    def _end_actor(self) -> None:
        if self.is_ray_away:
            raise NotLeader("the Ray cluster", "its head is away")
        self.done.append("actor ended")

    def _end_process(self) -> None:
        self.done.append("process ended")
        self.has_ended.set()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def with_node(node: Any) -> LogManagerImpl:
    spec = NodeSpec(namespace="raylog", cluster_id="c", node_number=1, config=BrokerConfig())
    manager = LogManagerImpl(spec)
    manager._node = node
    return manager


def ends(world: World, node: Any) -> None:
    with_node(node)._end_for_good()
    assert world.has_ended.wait(DEADLINE_S)


def test_the_node_ends_first_and_then_the_actor(world: World) -> None:
    ends(world, SimpleNamespace(end=lambda: world.done.append("node ended")))
    assert world.done == ["node ended", "actor ended", "process ended"]


def test_a_node_that_cannot_end_ends_its_process_so_that_the_next_life_does(world: World) -> None:
    def fails() -> None:
        raise OSError("a mistake")

    ends(world, SimpleNamespace(end=fails))
    assert world.done == ["process ended"]


def test_an_actor_that_ray_does_not_end_ends_its_process_else_nobody_could_start_it(
    world: World,
) -> None:
    world.is_ray_away = True
    ends(world, SimpleNamespace(end=lambda: None))
    assert world.done == ["process ended"]


def test_a_shutdown_of_the_broker_waits_for_an_end_that_is_under_way(world: World) -> None:
    is_closing, may_end, is_waiting = threading.Event(), threading.Event(), threading.Event()
    answers: list[bool] = []
    patience_s: list[float] = []

    def end() -> None:
        is_closing.set()
        assert may_end.wait(DEADLINE_S)

    manager = with_node(SimpleNamespace(end=end))
    lock = manager._starting

    def acquire(timeout: float) -> bool:
        patience_s.append(timeout)
        is_waiting.set()
        return lock.acquire(timeout=timeout)

    manager._end_for_good()
    assert is_closing.wait(DEADLINE_S)
    watched: Any = SimpleNamespace(acquire=acquire, release=lock.release)
    manager._starting = watched
    waiting = threading.Thread(target=lambda: answers.append(manager.shutdown()), daemon=True)
    waiting.start()
    assert is_waiting.wait(DEADLINE_S)
    may_end.set()
    waiting.join(DEADLINE_S)
    assert (answers, patience_s) == ([True], [OPEN_TIMEOUT_S])
    assert world.has_ended.wait(DEADLINE_S)
