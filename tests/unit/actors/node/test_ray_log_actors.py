"""The LogActors as a node reaches them: names are looked up once, and again after an error. No Ray:
names and calls are faked."""

from concurrent.futures import Future
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError

from raylog.actors.control import LogId
from raylog.actors.errors import ActorAway, NotLeader, RequestTimedOut
from raylog.actors.node import ray_log_actors
from raylog.actors.node.ray_log_actors import RayLogActors
from raylog.actors.node_messages import LogSays
from raylog.actors.runtime.names import Node, log_actor_name
from raylog.storage.names import TopicPartition
from tests.harness.futures import Timeline, future_of

HERE, ELSEWHERE = "ab" * 28, "cd" * 28
ORDERS = TopicPartition("orders", 0)
NAME = log_actor_name(ORDERS)
DIED, RESTARTS = ActorDiedError(), ActorUnavailableError("it is restarted", None)


def says(life: str, node_id: str = HERE) -> LogSays:
    log = LogId(partition=ORDERS, topic_id=life)
    return LogSays(log=log, directory_id="d", folder="/d", node_id=node_id, state="serving")


class Handle:
    """Ray's handle of one actor: what each of its methods ends with."""

    def __init__(self, ending: Any) -> None:
        self.ending = ending

    def __getattr__(self, name: str) -> Any:
        return self

    def remote(self, *arguments: Any) -> "Future[Any]":
        return Future() if self.ending is None else future_of(self.ending)


class Names:
    """Ray's named actors, and how often a name was looked up."""

    def __init__(self) -> None:
        self.handles: dict[str, Handle] = {}
        self.lookups = 0
        self.killed: list[Handle] = []

    def find(self, name: str, namespace: str) -> Handle | None:
        self.lookups += 1
        return self.handles.get(name)

    def kill(self, name: str, namespace: str) -> None:
        self.killed.append(self.handles.pop(name))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    Timeline(monkeypatch)
    made = Names()
    monkeypatch.setattr("raylog.actors.runtime.stubs.find", made.find)
    monkeypatch.setattr(ray_log_actors, "find", made.find)
    monkeypatch.setattr(ray_log_actors, "kill", made.kill)
    return made


@pytest.fixture
def actors() -> RayLogActors:
    return RayLogActors("test", Node(HERE, ""))


def test_an_actor_that_answers_is_looked_up_once(names: Names, actors: RayLogActors) -> None:
    names.handles[NAME] = Handle(says("a"))
    for _ in range(3):
        assert actors.says(ORDERS) == says("a")
        assert actors.says_all([ORDERS]) == {ORDERS: says("a")}
    assert names.lookups == 1


def test_a_name_that_nobody_has_is_not_remembered(names: Names, actors: RayLogActors) -> None:
    assert actors.says(ORDERS) is None
    names.handles[NAME] = Handle(says("a"))
    assert actors.says(ORDERS) == says("a")


@pytest.mark.parametrize("error", [DIED, RESTARTS])
def test_after_an_error_of_ray_it_is_asked_once_more_who_has_the_name_then(
    names: Names, actors: RayLogActors, error: Exception
) -> None:
    names.handles[NAME] = first = Handle(says("a"))
    actors.says(ORDERS)
    first.ending, names.handles[NAME] = error, Handle(says("b"))
    assert actors.says(ORDERS) == says("b")
    names.handles[NAME].ending = error
    with pytest.raises(ActorAway):
        actors.says(ORDERS)


def test_after_silence_too_it_is_looked_up_again(names: Names, actors: RayLogActors) -> None:
    names.handles[NAME] = first = Handle(says("a"))
    actors.says(ORDERS)
    first.ending = None
    with pytest.raises(RequestTimedOut):
        actors.says(ORDERS, 0.01)
    names.handles[NAME] = Handle(says("b"))
    assert actors.says(ORDERS) == says("b")


def test_an_actor_that_died_and_whose_name_is_free_is_none_at_once(
    names: Names, actors: RayLogActors
) -> None:
    names.handles[NAME] = first = Handle(says("a"))
    actors.says(ORDERS)
    first.ending = DIED
    del names.handles[NAME]
    assert actors.says(ORDERS) is None
    names.handles[NAME] = Handle(says("b"))
    assert actors.says_all([ORDERS]) == {ORDERS: says("b")}
    names.handles[NAME].ending = DIED
    del names.handles[NAME]
    assert actors.says_all([ORDERS]) == {ORDERS: None}
    assert actors.close_all([ORDERS], 1) == {}


def test_an_order_to_an_actor_that_died_is_an_error_and_reaches_no_other(
    names: Names, actors: RayLogActors
) -> None:
    names.handles[NAME] = first = Handle(says("a"))
    actors.says(ORDERS)
    first.ending, names.handles[NAME] = DIED, Handle(says("b"))
    with pytest.raises(NotLeader):
        actors.roll(ORDERS)
    del names.handles[NAME]
    with pytest.raises(NotLeader, match="not running"):
        actors.roll(ORDERS)


def test_an_error_that_the_actor_raised_is_passed_on(names: Names, actors: RayLogActors) -> None:
    refused = NotLeader(str(ORDERS), "it is opening")
    names.handles[NAME] = Handle(RayTaskError("m", "trace", refused).as_instanceof_cause())
    with pytest.raises(NotLeader, match="it is opening"):
        actors.roll(ORDERS)


def test_who_is_killed_is_who_has_the_name_then(names: Names, actors: RayLogActors) -> None:
    names.handles[NAME] = Handle(says("a"))
    actors.says(ORDERS)
    names.handles[NAME] = second = Handle(says("b"))
    actors.kill(ORDERS)
    assert names.killed == [second]
    assert not actors.is_there(ORDERS)
    assert actors.says(ORDERS) is None


def test_an_actor_of_another_node_is_not_kept(names: Names, actors: RayLogActors) -> None:
    names.handles[NAME] = Handle(says("a", ELSEWHERE))
    for _ in range(2):
        actors.says_all([ORDERS])
        actors.says(ORDERS)
    assert names.lookups == 4


def test_an_actor_that_took_the_name_of_a_dead_one_answers(
    names: Names, actors: RayLogActors
) -> None:
    """Else who wants to end the dead one ends the other, which may be another node's."""
    names.handles[NAME] = Handle(says("a"))
    assert actors.says(ORDERS) == says("a")
    names.handles[NAME].ending = DIED
    names.handles[NAME] = Handle(says("b", ELSEWHERE))
    assert actors.says(ORDERS) == says("b", ELSEWHERE)
