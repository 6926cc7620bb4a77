"""What raylog uses of Ray's private modules: a version of Ray without it is named here."""

import inspect
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import ray
from ray._private import services, state, worker

from raylog.actors.errors import RayNotFound
from raylog.actors.messages import ActorProcess
from raylog.actors.runtime import clusters, ray_private
from tests.harness.paths import ROOT


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


# -- the Ray that is installed ---------------------------------------------------------------------


def test_ray_tells_the_clusters_of_this_machine() -> None:
    assert parameters(services.find_gcs_addresses) == []
    assert all(isinstance(address, str) for address in ray_private.addresses_here())


def test_ray_tells_where_the_last_ray_start_was() -> None:
    assert len(parameters(services.find_bootstrap_address)) == 1
    assert isinstance(ray_private.latest_address(), str | None)


def test_ray_reads_its_environment_again_and_looks_for_a_token_again() -> None:
    raylet: Any = import_module("ray._raylet")
    assert callable(raylet.Config.initialize)
    assert callable(raylet.AuthenticationTokenLoader.instance().reset_cache)
    ray_private.turn_tokens_on()


def test_ray_tells_where_an_actor_runs() -> None:
    from ray._private import state

    assert parameters(state.actors)[0] == "actor_id"
    source = inspect.getsource(state.GlobalState)
    assert all(f'"{fact}"' in source for fact in ("State", "Address", "NodeID", "Pid"))


def test_ray_gives_a_driver_its_messages_by_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "print_to_stdstream", worker.print_to_stdstream)
    assert parameters(worker.print_to_stdstream)[0] == "data"
    messages: list[str] = []
    ray_private.take_messages(messages.append)
    worker.print_to_stdstream({"lines": ["it died"], "pid": "raylet"}, ignore_prefix=False)
    assert messages == ["it died"]


@pytest.mark.parametrize(
    ("told", "process"),
    [
        ({"State": "ALIVE", "Pid": 7, "Address": {"NodeID": "n"}}, ActorProcess("n", 7)),
        ({"State": "RESTARTING", "Pid": 7, "Address": {"NodeID": "n"}}, None),
        ({}, None),
        ({"State": "ALIVE", "ProcessId": 7}, None),
    ],
)
def test_ray_tells_the_process_of_an_actor_that_lives(
    monkeypatch: pytest.MonkeyPatch,
    told: Mapping[str, Any],
    process: ActorProcess | None,
) -> None:
    assert parameters(state.actors)[0] == "actor_id"
    actor_id = ray.ActorID.from_random()
    answers = {actor_id.hex(): told}
    monkeypatch.setattr(state, "actors", answers.__getitem__)
    assert isinstance(ray.actor.ActorHandle._actor_id, property)
    assert ray_private.process_of(SimpleNamespace(_actor_id=actor_id)) == process


def test_nothing_else_of_ray_is_private() -> None:
    users = [
        str(path.relative_to(ROOT))
        for folder in ("storage", "actors", "cluster", "raylog")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"\bray\._\w|from ray import _", path.read_text())
        and not path.resolve().is_relative_to(ROOT / "raylog")
    ]
    assert sorted(set(users)) == ["actors/runtime/ray_private.py"]


# -- a Ray that has it not -------------------------------------------------------------------------


@pytest.fixture
def another_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ray whose private modules are others."""
    for module in ("ray._private.services", "ray._private.state", "ray._raylet"):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    monkeypatch.setattr(ray, "__version__", "9.9.9")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.usefixtures("another_ray")
def test_without_it_the_error_says_which_ray_and_what_to_do() -> None:
    with pytest.raises(RayNotFound, match=r"Ray 9\.9\.9 .* give the address .*find_gcs_addresses"):
        clusters.join_ray()


@pytest.mark.usefixtures("another_ray")
def test_with_an_address_nothing_of_it_is_needed() -> None:
    with pytest.raises(RayNotFound, match=r"127\.0\.0\.1:1"):
        clusters.join_ray("127.0.0.1:1")
    assert ray_private.latest_address() is None
    assert ray_private.process_of(SimpleNamespace(_actor_id=ray.ActorID.from_random())) is None


@pytest.mark.usefixtures("another_ray")
def test_without_it_nobody_knows_where_an_actor_runs() -> None:
    assert ray_private.actor_place("0" * 32) is None


@pytest.mark.parametrize(
    ("facts", "place"),
    [
        ({"State": "ALIVE", "Address": {"NodeID": "n"}, "Pid": 7}, ("n", 7)),
        ({"State": "RESTARTING", "Address": {"NodeID": "n"}, "Pid": 7}, ("", 0)),
        ({}, None),
    ],
)
def test_an_actor_is_where_the_gcs_has_it(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, object], place: tuple[str, int] | None
) -> None:
    from ray._private import state

    monkeypatch.setattr(state, "actors", lambda actor_id: facts)
    assert ray_private.actor_place("a") == place
