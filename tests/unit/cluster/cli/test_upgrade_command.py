"""``raylog upgrade``: what is shown, what is to be done next, and what the Controller is asked."""

import json
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.actors.errors import UpgradeRefused
from raylog.actors.levels import LEVELS, Levels
from raylog.cluster import start as start_module
from raylog.cluster.broker import Broker
from raylog.cluster.client.commanding import Command
from raylog.cluster.controller.stub import ControllerStub
from raylog.cluster.controller.upgrade import NodeRelease, UpgradeStatus
from raylog.storage.errors import RaylogError
from raylog.storage.wire import RELEASE
from tests.harness.shell import run_here

OLD, NEW = Levels(1, 1), Levels(1, 2)
OLDER = NodeRelease(node="b", release="0.0.9", levels=OLD, wanted=2)
NEWER = NodeRelease(node="a", release=RELEASE, levels=NEW, wanted=3)
UPGRADED = UpgradeStatus(
    level=1,
    release=RELEASE,
    levels=NEW,
    controller="a",
    nodes=(NEWER, OLDER._replace(release=RELEASE, levels=NEW)),
    life="life-1",
)
MIXED = UPGRADED._replace(nodes=(NEWER, OLDER), release="0.0.9", levels=OLD)


class Controller:
    """A Controller's handle that notes what it is asked; the next one begins with a restart."""

    def __init__(self, status: UpgradeStatus, error: RaylogError | None) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self._status, self._error = status, error
        self.upgrade_status = SimpleNamespace(remote=lambda: self._status)
        self.finalize_upgrade = SimpleNamespace(remote=self._finalize)
        self.restart = SimpleNamespace(remote=self._restart)

    def _finalize(self, level: int, without: tuple[str, ...]) -> int:
        self.asked.append(("finalize", level, without))
        if self._error is not None:
            raise self._error
        return level

    def _restart(self, life: str) -> None:
        self.asked.append(("restart", life))
        self._status = self._status._replace(life="life-2", release=RELEASE)


class FakeBroker(Broker):
    """A broker on no Ray, and its connection."""

    def __init__(self, status: UpgradeStatus, error: RaylogError | None = None) -> None:
        super().__init__()
        self.controller = Controller(status, error)

    def connection(self) -> Any:
        return self

    def command(self, what: str, timeout_s: float, command: Command[Any]) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            done.set_result(command.call(ControllerStub(self.controller), False).reference)
        except RaylogError as error:
            done.set_exception(error)
        return done


Given = Callable[..., FakeBroker]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    def connect(status: UpgradeStatus, error: RaylogError | None = None) -> FakeBroker:
        broker = FakeBroker(status, error)
        monkeypatch.setattr(start_module, "connect", lambda *_, **__: broker)
        return broker

    monkeypatch.setattr("time.sleep", lambda _: None)
    return connect


def next_steps(status: UpgradeStatus, given: Given) -> list[str]:
    given(status)
    level, *steps = run_here("upgrade", "status").stderr.splitlines()
    assert level == f"the cluster is of level {status.level}"
    return steps


def test_the_status_has_a_line_for_each_node_and_for_the_controller(given: Given) -> None:
    given(MIXED)
    assert [line.split("\t") for line in run_here("upgrade", "status").lines()] == [
        ["node", "raylog", "levels", "partitions", "state"],
        ["a", RELEASE, "1-2", "3", "reports"],
        ["b", "0.0.9", "1", "2", "reports"],
        ["Controller on a", "0.0.9", "1", "-", "reports"],
    ]


def test_the_status_as_json_has_every_field(given: Given) -> None:
    given(MIXED)
    shown = json.loads(run_here("upgrade", "status", "--format", "json").stdout)
    assert set(shown) == set(UpgradeStatus._fields)
    assert shown["nodes"][1]["levels"] == {"oldest": 1, "newest": 1}


def test_nodes_come_first_then_the_controller_then_the_level(given: Given) -> None:
    (step,) = next_steps(MIXED, given)
    assert "raylog node stop b" in step
    (step,) = next_steps(UPGRADED._replace(release="0.0.9"), given)
    assert step.endswith("`raylog upgrade restart-controller`")
    (step,) = next_steps(UPGRADED, given)
    assert step.endswith("`raylog upgrade finalize`")
    assert next_steps(UPGRADED._replace(level=2), given) == ["nothing is to be done"]


def test_a_node_that_does_not_report_is_to_be_started_or_left_out(given: Given) -> None:
    away = NodeRelease(node="b", release="", levels=OLD, problem="away")
    (step,) = next_steps(UPGRADED._replace(nodes=(NEWER, away)), given)
    assert "node b is away" in step
    assert step.endswith("`raylog upgrade finalize --without b`")


def test_finalize_asks_for_the_newest_level_that_anybody_knows(given: Given) -> None:
    broker = given(UPGRADED)
    assert run_here("upgrade", "finalize", "--without", "b").lines() == [
        f"the cluster is of level {LEVELS.newest}"
    ]
    assert broker.controller.asked == [("finalize", LEVELS.newest, ("b",))]


def test_a_refusal_is_one_line_with_what_to_do(given: Given) -> None:
    given(UPGRADED, UpgradeRefused(1, 2, "node b runs raylog 0.0.9"))
    refused = run_here("upgrade", "finalize")
    assert refused.returncode == 1
    assert "node b runs raylog 0.0.9; see `raylog upgrade status`" in refused.stderr


def test_the_controller_is_restarted_once_and_waited_for(given: Given) -> None:
    broker = given(UPGRADED._replace(release="0.0.9"))
    (line,) = run_here("upgrade", "restart-controller").lines()
    assert line == f"the Controller runs raylog {RELEASE} on node a"
    assert broker.controller.asked == [("restart", "life-1")]
