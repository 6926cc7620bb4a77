"""What a command waits for is said after a while, and again only when it is something else."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.errors import NotController, RequestTimedOut
from raylog.actors.runtime import clusters
from raylog.cluster import running
from raylog.cluster.cli import waiting
from raylog.cluster.cli.waiting import (
    config_waits_for,
    log_dir_waits_for,
    node_waits_for,
    start_waits_for,
    stop_waits_for,
    told_while_waiting,
    topic_waits_for,
)
from raylog.cluster.controller import stub
from raylog.cluster.controller.describe import PartitionDescription, TopicDescription
from raylog.cluster.controller.log_dir_states import LogDirDescription
from raylog.cluster.controller.node_states import NodeDescription
from raylog.cluster.running import parts_of
from raylog.storage.errors import InvalidConfig

WAIT_S = 10.0


def told(looks: list[str | Exception], capsys: pytest.CaptureFixture[str]) -> str:
    """What is printed while these are seen, one after another; an error is raised."""
    is_over = threading.Event()
    left = iter(looks)

    def look() -> str:
        seen = next(left, None)
        if seen is None:
            is_over.set()
            return ""
        if isinstance(seen, Exception):
            raise seen
        return seen

    with told_while_waiting(look, interval_s=0.001):
        assert is_over.wait(WAIT_S)
    printed = capsys.readouterr()
    assert printed.out == "", "it is no output of the command"
    return printed.err


def test_it_is_said_once_and_again_when_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    looks: list[str | Exception] = ["t-0, t-1", "t-0, t-1", "t-0", "", "t-0", "t-1"]
    assert told(looks, capsys).splitlines() == [
        "waiting: t-0, t-1",
        "waiting: t-0",
        "waiting: t-1",
    ]


def test_a_command_that_is_quick_says_nothing_and_nobody_looks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with told_while_waiting(lambda: pytest.fail("it looks")):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_controller_that_does_not_answer_is_waited_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    looks = [RequestTimedOut("the nodes", 2000), NotController("the broker", "it is starting")]
    assert told([*looks], capsys).splitlines() == [
        "waiting: the Controller (it does not answer)",
        "waiting: the Controller (it is starting)",
    ]


@pytest.mark.parametrize("error", [InvalidConfig("a", 1, "no"), RuntimeError("Ray ends")])
def test_nothing_fails_for_what_cannot_be_looked_at(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told([error, "t-0"], capsys) == "waiting: t-0\n"


# -- what is seen ----------------------------------------------------------------------------------


class FakeBroker:
    """It tells of these nodes and log dirs."""

    namespace = "raylog"

    def __init__(self, *dirs: LogDirDescription) -> None:
        self.dirs = dirs

    def describe_nodes(self, *, timeout_s: float) -> list[NodeDescription]:
        return [
            NodeDescription(node="disk-1", node_id="1" * 56, state="stopping", waits_for="t-0"),
            NodeDescription(node="2" * 56, node_id="2" * 56, state="starting", waits_for="t-1"),
        ]

    def describe_log_dirs(self, log_dir: str, *, timeout_s: float) -> tuple[Any, ...]:
        return self.dirs

    def describe_topic(self, topic: str, *, timeout_s: float) -> TopicDescription:
        serving, opening = (
            PartitionDescription(number, "id", "n", "/a", problem)
            for number, problem in enumerate((None, "it is being opened"))
        )
        return TopicDescription(topic, "id", {}, (serving, opening), outdated=(1,))


@pytest.mark.parametrize("name", ["disk-1", "1111"])
def test_of_a_node_its_own_order_is_seen(name: str) -> None:
    broker: Any = FakeBroker()
    assert node_waits_for(broker, name) == "node disk-1: t-0"


def test_of_a_log_dir_its_path_and_its_node_are_said() -> None:
    still = LogDirDescription("/a", "id", "disk-1", "offline", "/a", waits_for="t-0 to be closed")
    broker: Any = FakeBroker(still, still._replace(node="disk-2", waits_for=""))
    assert log_dir_waits_for(broker, "/a") == "/a of node disk-1: t-0 to be closed"


def test_of_a_topic_the_partitions_are_named_that_do_not_serve_or_obey_yet() -> None:
    broker: Any = FakeBroker()
    assert topic_waits_for(broker, "t") == "t-1 to be opened"
    assert config_waits_for(broker, "t") == "t-1 to obey it"


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    monkeypatch.setattr(clusters, "is_connected", lambda: False)
    return lambda: monkeypatch.setattr(clusters, "is_connected", lambda: True)


def test_a_start_waits_for_ray_then_for_the_log_dirs_then_for_the_nodes(
    connect: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker: Any = FakeBroker()
    assert start_waits_for(broker) == "Ray to start"
    connect()
    monkeypatch.setattr(stub, "find_controller", lambda _: None)
    assert start_waits_for(broker) == "the log dirs of all nodes, which are looked at"
    monkeypatch.setattr(stub, "find_controller", lambda _: object())
    assert start_waits_for(broker) == "node disk-1: t-0; node 22222222: t-1"


def test_a_stop_names_the_partitions_that_still_run_then_the_nodes(
    connect: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["LogManager:disk-1", "Log:t-1", "Log:t-0"]
    monkeypatch.setattr(running, "running_parts", lambda _: parts_of(names))
    connect()
    assert stop_waits_for("raylog") == "t-0, t-1 to be closed"
    del names[1:]
    assert stop_waits_for("raylog") == "the log dirs of node disk-1 to be closed"
    del names[:]
    assert stop_waits_for("raylog") == ""


def test_nobody_uses_ray_while_it_begins_or_ends(connect: Callable[[], None]) -> None:
    connect()
    with clusters._changing:
        assert stop_waits_for("raylog") == "Ray to end"
    with clusters.connected_throughout() as is_connected:
        assert is_connected
        assert clusters._changing.locked(), "its end waits"


def test_a_look_is_short_since_the_end_of_a_command_waits_for_it() -> None:
    assert waiting.LOOK_TIMEOUT_S <= 2.0
