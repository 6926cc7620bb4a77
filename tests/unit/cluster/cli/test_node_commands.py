"""``raylog node``: what is shown and said, and the exit status."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from raylog.actors.errors import NodeOrderReplaced
from raylog.cluster import start as start_module
from raylog.cluster.broker import Broker
from raylog.cluster.client.commanding import Command
from raylog.cluster.controller.node_states import NodeDescription
from raylog.cluster.controller.stub import ControllerStub
from raylog.storage.errors import RaylogError
from tests.harness.shell import run_here

Answer = TypeVar("Answer")

ID = "5f" * 28
ONLINE = NodeDescription(
    node="disk-1",
    node_id=ID,
    state="online",
    host="box",
    log_dirs=("/a", "/b"),
    serving=3,
    wanted=3,
    life="l" * 22,
    version="0.1.0",
)
STOPPED = ONLINE._replace(state="stopped", serving=0, life="", was_clean=True)


class Controller:
    """A Controller's handle that notes what it is asked, and answers ``answer``."""

    def __init__(self, answer: NodeDescription | RaylogError) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self._answer = answer
        for name in ("drain_node", "stop_node", "start_node"):
            setattr(self, name, SimpleNamespace(remote=self._noting(name)))

    def _noting(self, name: str) -> Callable[..., NodeDescription]:
        def call(*arguments: object) -> NodeDescription:
            self.asked.append((name, *arguments))
            if isinstance(self._answer, RaylogError):
                raise self._answer
            return self._answer

        return call


class FakeBroker(Broker):
    """A broker on no Ray."""

    def __init__(self, *nodes: NodeDescription, error: RaylogError | None = None) -> None:
        super().__init__()
        self.controller, self._nodes = Controller(error or nodes[0]), list(nodes)
        self.repeatable: list[bool] = []

    def _command(self, what: str, command: Command[Answer], timeout_s: float) -> Answer:
        self.repeatable.append(command.look_at is None)
        answer: Answer = command.call(ControllerStub(self.controller), False).reference
        return answer

    def describe_nodes(self, *, timeout_s: float = 0) -> list[NodeDescription]:
        return self._nodes


@pytest.fixture
def broker_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeBroker]:
    def connect(*nodes: NodeDescription, error: RaylogError | None = None) -> FakeBroker:
        broker = FakeBroker(*nodes, error=error)
        monkeypatch.setattr(start_module, "connect", lambda *_, **__: broker)
        return broker

    return connect


def test_the_list_names_each_node_as_the_other_commands_take_it(
    broker_with: Callable[..., FakeBroker],
) -> None:
    away = NodeDescription(node=ID, node_id=None, state="away", why="it is not in the Ray cluster")
    broker_with(ONLINE, away)
    header, first, second = (line.split("\t") for line in run_here("node", "list").lines())
    assert header[:5] == ["node", "host", "state", "serving", "wanted"]
    assert first == ["disk-1", "box", "online", "3", "3", "0.1.0", "l" * 8, "/a,/b", ID[:8], "-"]
    assert second[:3] == [ID[:8], "-", "away"]
    assert second[-1] == "it is not in the Ray cluster"


def test_the_list_says_of_a_suspect_node_that_it_may_be_dead(
    broker_with: Callable[..., FakeBroker],
) -> None:
    """Not only that its LogManager does not answer: it does not know how many serve."""
    why = "it has not reported for 25 s; what it serves is as it said last: it may be dead"
    suspect = ONLINE._replace(state="suspect", why=why, waits_for="its LogManager does not answer")
    broker_with(suspect)
    _, row = (line.split("\t") for line in run_here("node", "list").lines())
    assert row[-1] == why


def test_the_list_as_json_has_every_field(broker_with: Callable[..., FakeBroker]) -> None:
    broker_with(STOPPED)
    (node,) = json.loads(run_here("node", "list", "--format", "json").stdout)["nodes"]
    assert set(node) == set(NodeDescription._fields)
    assert (node["state"], node["was_clean"], node["log_dirs"]) == ("stopped", True, ["/a", "/b"])


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        (("drain", "disk-1"), ("drain_node", "disk-1", False)),
        (("drain", "--undo", "disk-1"), ("drain_node", "disk-1", True)),
        (("stop", "disk-1"), ("stop_node", "disk-1")),
        (("start", "disk-1"), ("start_node", "disk-1")),
    ],
)
def test_each_command_asks_for_its_node_and_may_be_asked_again(
    command: tuple[str, ...], asked: tuple[Any, ...], broker_with: Callable[..., FakeBroker]
) -> None:
    broker = broker_with(ONLINE)
    done = run_here("node", *command)
    assert (done.returncode, broker.controller.asked) == (0, [asked])
    assert broker.repeatable == [True]
    assert "disk-1" in done.stdout


def test_a_stop_says_what_starts_the_node_and_what_cannot_be_used_until_then(
    broker_with: Callable[..., FakeBroker],
) -> None:
    broker_with(STOPPED)
    done = run_here("node", "stop", "disk-1")
    assert done.stdout == "node disk-1 is stopped; `raylog node start disk-1` starts it\n"
    assert done.stderr == "its 3 partitions cannot be used until then\n"


def test_a_stop_that_was_not_in_order_says_that_the_next_start_recovers(
    broker_with: Callable[..., FakeBroker],
) -> None:
    broker_with(STOPPED._replace(was_clean=False))
    assert "recovers" in run_here("node", "stop", "disk-1").stderr


@pytest.mark.parametrize("command", ["drain", "stop", "start"])
def test_what_is_not_so_yet_is_named_and_the_exit_status_is_1(
    command: str, broker_with: Callable[..., FakeBroker]
) -> None:
    waiting = ONLINE._replace(
        state="suspect", why="it has not reported for 130 s", waits_for="3 partitions to be closed"
    )
    broker_with(waiting)
    done = run_here("node", command, "disk-1")
    assert done.returncode == 1
    assert "3 partitions to be closed" in done.stderr
    assert "has not reported for 130 s" in done.stderr


def test_a_stop_that_another_order_has_replaced_fails_and_says_what_the_node_is(
    broker_with: Callable[..., FakeBroker],
) -> None:
    broker_with(error=NodeOrderReplaced("disk-1", "stopped", "online"))
    done = run_here("node", "stop", "disk-1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "another order has replaced this one, and it is online now" in done.stderr


def test_a_start_names_the_partitions_that_do_not_serve(
    broker_with: Callable[..., FakeBroker],
) -> None:
    away = {f"t-{number}": "the log dir is offline" for number in range(30)}
    broker_with(ONLINE._replace(not_serving=away))
    done = run_here("node", "start", "disk-1")
    assert done.returncode == 1
    assert "t-0 does not serve: the log dir is offline" in done.stderr
    assert "and 10 more; see `raylog health`" in done.stderr


def test_a_start_of_a_node_that_is_away_says_when_it_is_used_and_fails_for_its_partitions(
    broker_with: Callable[..., FakeBroker],
) -> None:
    broker_with(ONLINE._replace(node_id=None, state="away", not_serving={"t-0": "it is away"}))
    done = run_here("node", "start", "disk-1")
    assert (done.returncode, "when it is back" in done.stderr) == (1, True)


def test_a_node_without_a_label_is_stopped_until_its_next_ray_start_and_that_is_said(
    broker_with: Callable[..., FakeBroker],
) -> None:
    broker_with(STOPPED._replace(node=ID))
    assert "it has no label" in run_here("node", "stop", ID).stderr
