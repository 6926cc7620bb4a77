"""Actors by name: found, made, listed and ended; Ray's own errors come out as raylog's."""

from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import GetTimeoutError, RaySystemError

from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.runtime import handles
from raylog.actors.runtime.handles import create, find, kill, running
from raylog.actors.runtime.names import NODE_LABEL, Node
from raylog.cluster.broker import Broker
from raylog.cluster.cli.broker import _may_run
from raylog.storage.errors import RaylogError


def raising(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_actor", fail)
    monkeypatch.setattr(handles, "list_named_actors", fail)


ERRORS = [
    (GetTimeoutError("the GCS is slow"), RequestTimedOut),
    (RaySystemError("it is away"), NotLeader),
]


@pytest.mark.parametrize(("error", "named"), ERRORS)
def test_a_head_that_does_not_answer_is_an_error_by_name(
    monkeypatch: pytest.MonkeyPatch, error: Exception, named: type[RaylogError]
) -> None:
    raising(monkeypatch, error)
    for look in (
        lambda: find("Log:t-0", "test"),
        lambda: kill("Log:t-0", "test"),
        lambda: running("test"),
    ):
        with pytest.raises(named):
            look()


def test_an_actor_that_is_not_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, ValueError("no such actor"))
    assert find("Log:t-0", "test") is None
    assert not _may_run(Broker())


@pytest.mark.parametrize("error", [error for error, _ in ERRORS])
def test_who_stays_with_a_broker_stays_though_the_head_is_slow(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    raising(monkeypatch, error)
    assert _may_run(Broker())


class Actors:
    """Ray's named actors: (namespace, name) -> handle; and the handles that were ended."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.handles: dict[tuple[str, str], str] = {}
        self.killed: list[tuple[str, bool]] = []
        patch.setattr(ray, "is_initialized", lambda: True)
        patch.setattr(ray, "get_actor", self._get)
        patch.setattr(ray, "kill", self._kill)
        patch.setattr(handles, "list_named_actors", self._list)

    def _get(self, name: str, namespace: str) -> str:
        if (namespace, name) not in self.handles:
            raise ValueError(name)
        return self.handles[namespace, name]

    def _kill(self, handle: str, no_restart: bool) -> None:
        self.killed.append((handle, no_restart))

    def _list(self, all_namespaces: bool) -> list[dict[str, str]]:
        assert all_namespaces
        return [{"namespace": namespace, "name": name} for namespace, name in self.handles]


@pytest.fixture
def actors(monkeypatch: pytest.MonkeyPatch) -> Actors:
    made = Actors(monkeypatch)
    made.handles = {("test", "Log:t-0"): "the log", ("other", "Log:u-0"): "another's"}
    return made


def test_an_actor_is_found_in_its_namespace_only(actors: Actors) -> None:
    assert find("Log:t-0", "test") == "the log"
    assert find("Log:u-0", "test") is None


def test_the_actors_of_other_namespaces_are_not_listed(actors: Actors) -> None:
    assert running("test") == {"Log:t-0"}
    assert running("nobody's") == set()


def test_an_actor_is_ended_for_good_and_one_that_is_gone_is_fine(actors: Actors) -> None:
    kill("Log:t-0", "test")
    kill("Log:u-0", "test")
    assert actors.killed == [("the log", True)]


def test_an_actor_is_made_with_its_name_detached_and_on_its_node() -> None:
    given: dict[str, Any] = {}
    arguments: list[Any] = []

    def remote(*sent: Any) -> str:
        arguments.extend(sent)
        return "the handle"

    def options(**options: Any) -> Any:
        given.update(options)
        return SimpleNamespace(remote=remote)

    node = Node("id", "disk-1")
    actor = SimpleNamespace(options=options)
    handle = create(actor, "Log:t-0", "test", node, 1, "two", max_concurrency=3)
    assert handle == "the handle"
    assert arguments == [1, "two"]
    assert given == {
        "name": "Log:t-0",
        "namespace": "test",
        "lifetime": "detached",
        "get_if_exists": True,
        "label_selector": {NODE_LABEL: "disk-1"},
        "max_concurrency": 3,
    }
