"""``raylog status`` and ``raylog log-dirs`` say of stopped nodes why nothing of them is shown."""

from types import SimpleNamespace

import pytest

from raylog.cluster import start as start_module
from raylog.cluster.cli import status
from raylog.cluster.controller.node_states import NodeDescription
from raylog.cluster.health import gathering
from raylog.cluster.health.facts import Facts
from tests.harness.shell import Done, run_here

ONLINE = NodeDescription(node="disk-1", node_id="5f" * 28, state="online", log_dirs=("/a",))
STOPPED = ONLINE._replace(state="stopped", wanted=3)
NOTE = (
    "node disk-1 is stopped: its log dirs and partitions are used again after "
    "`raylog node start disk-1`"
)


@pytest.fixture(params=["status", "log-dirs"])
def command(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def run(command: str, monkeypatch: pytest.MonkeyPatch, *nodes: NodeDescription) -> Done:
    """The command, in a broker that has these nodes and shows nothing else."""
    broker = SimpleNamespace(
        namespace="raylog",
        address="127.0.0.1:1",
        log_dirs=list,
        describe_nodes=lambda: list(nodes),
    )
    monkeypatch.setattr(start_module, "connect", lambda *_, **__: broker)
    monkeypatch.setattr(status, "connected", lambda *_: broker)
    monkeypatch.setattr(gathering, "gather_facts", lambda *_, **__: Facts(node_list=nodes))
    return run_here(command)


def test_a_node_that_is_stopped_is_named_with_what_starts_it(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(command, monkeypatch, STOPPED)
    assert len(done.lines()) == 1
    assert done.stderr.splitlines() == [NOTE]


def test_a_node_without_a_label_is_named_as_the_command_takes_it(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(command, monkeypatch, STOPPED._replace(node="5f" * 28, state="stopping"))
    assert "node 5f5f5f5f is stopping" in done.stderr
    assert "`raylog node start 5f5f5f5f`" in done.stderr


def test_of_other_nodes_nothing_is_said(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = (ONLINE, ONLINE._replace(node="disk-2", state="draining"))
    assert run(command, monkeypatch, *nodes).stderr == ""
