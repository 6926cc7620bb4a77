"""``raylog log-dirs`` and ``raylog partition move``: what is shown, and which dir is meant."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar, cast

import pytest

from raylog.actors.messages import LogDirStatus
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.cluster import start as start_module
from raylog.cluster.broker import Broker
from raylog.cluster.client.commanding import Command
from raylog.cluster.controller.describe import PartitionDescription
from raylog.cluster.controller.leaving_dirs import OfflineLogDir
from raylog.cluster.controller.node_states import NodeDescription
from raylog.cluster.controller.stub import ControllerStub
from raylog.storage.state.properties import random_id
from tests.harness.shell import run_here

Answer = TypeVar("Answer")

ID = random_id()


class Controller:
    """A Controller's handle that notes the log dirs that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.move_partition = SimpleNamespace(remote=self._move)
        self.log_dir_online = SimpleNamespace(remote=self._online)
        self.log_dir_offline = SimpleNamespace(remote=self._offline)
        self.nodes: list[str | None] = []
        self.taken = OfflineLogDir("/a", ID, "n", "an operator took it offline", "", True)

    def _move(self, _topic: str, _partition: int, log_dir: str) -> PartitionDescription:
        self.asked.append(log_dir)
        return PartitionDescription(0, ID, "n", f"{log_dir}/t-0", None)

    def _online(self, log_dir: str, _node: str | None) -> str:
        self.asked.append(log_dir)
        return "returning"

    def _offline(self, log_dir: str, node: str | None) -> OfflineLogDir:
        self.asked.append(log_dir)
        self.nodes.append(node)
        return self.taken


class FakeBroker(Broker):
    """A broker on no Ray."""

    def __init__(self, *log_dirs: LogDirStatus) -> None:
        super().__init__()
        self.controller, self._log_dirs = Controller(), list(log_dirs)
        self.described: list[NodeDescription] = []

    def _command(self, what: str, command: Command[Answer], timeout_s: float) -> Answer:
        answer: Answer = command.call(ControllerStub(self.controller), False).reference
        return answer

    def _ask_controller(self, what: str, ask: Callable[[ControllerStub], Call[Answer]]) -> Answer:
        return cast(Answer, self._log_dirs)

    def _log_managers(self) -> dict[str, LogManagerStub]:
        return {}

    def log_dirs(self) -> list[LogDirStatus]:
        return self._log_dirs

    def describe_nodes(self) -> list[NodeDescription]:
        return self.described


@pytest.fixture
def connect_to(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeBroker], FakeBroker]:
    def connect(broker: FakeBroker) -> FakeBroker:
        monkeypatch.setattr(start_module, "connect", lambda *_, **__: broker)
        return broker

    return connect


@pytest.mark.parametrize(
    "command",
    [("partition", "move", "t", "0"), ("log-dirs", "online"), ("log-dirs", "offline")],
)
def test_a_relative_path_counts_from_the_callers_folder(
    command: tuple[str, ...],
    connect_to: Callable[[FakeBroker], FakeBroker],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = connect_to(FakeBroker())
    monkeypatch.chdir(tmp_path)
    for given in ("data/log-1", "./log 2/", "/mnt/a", ID):
        assert run_here(*command, given).returncode == 0
    wanted = [f"{tmp_path}/data/log-1", f"{tmp_path}/log 2", "/mnt/a", ID]
    assert broker.controller.asked == wanted


def test_the_files_of_a_log_dir_are_bytes_and_what_is_not_known_is_no_number(
    connect_to: Callable[[FakeBroker], FakeBroker],
) -> None:
    online = LogDirStatus(
        node_id="n" * 56,
        path="/a",
        directory_id=ID,
        is_online=True,
        problem=None,
        partitions=2,
        size_bytes=4096,
        total_bytes=10_000,
        usable_bytes=5000,
        loaded=2,
        to_load=2,
    )
    connect_to(FakeBroker(online, LogDirStatus.offline("n" * 56, "/b", ID, "EIO")))
    header, first, second = (line.split("\t") for line in run_here("log-dirs").lines())
    assert header[4:7] == ["bytes", "disk", "free"]
    assert first[4:7] == ["4096", "10000", "5000"]
    assert second[4:7] == ["-", "-", "-"]


def test_a_log_dir_names_its_node_as_commands_take_it(
    connect_to: Callable[[FakeBroker], FakeBroker],
) -> None:
    labelled, other = "1" * 56, "2" * 56
    broker = connect_to(
        FakeBroker(*(LogDirStatus.offline(node, "/a", ID, "EIO") for node in (labelled, other)))
    )
    broker.described = [NodeDescription(node="disk-1", node_id=labelled, state="online")]
    names = [line.split("\t")[0] for line in run_here("log-dirs").lines()]
    assert names == ["node", "disk-1", "22222222"]


def test_a_log_dir_that_is_out_of_use_is_told_with_what_brings_it_back(
    connect_to: Callable[[FakeBroker], FakeBroker],
) -> None:
    broker = connect_to(FakeBroker())
    ended = run_here("log-dirs", "offline", "/a", "--node", "disk-1")
    assert ended.returncode == 0
    assert ended.stdout == (
        "/a is offline (an operator took it offline), and not in use; `raylog log-dirs online "
        f"{ID}` brings it back\n"
    )
    assert broker.controller.nodes == ["disk-1"]


def test_one_that_is_still_in_use_is_exit_status_1_and_says_for_what(
    connect_to: Callable[[FakeBroker], FakeBroker],
) -> None:
    broker = connect_to(FakeBroker())
    broker.controller.taken = broker.controller.taken._replace(waits_for="t-0 to be closed")
    ended = run_here("log-dirs", "offline", "/a")
    assert ended.returncode == 1
    assert "/a is still in use: t-0 to be closed" in ended.stderr


def test_logs_that_were_not_closed_in_order_are_told(
    connect_to: Callable[[FakeBroker], FakeBroker],
) -> None:
    broker = connect_to(FakeBroker())
    broker.controller.taken = broker.controller.taken._replace(was_clean=False)
    assert "recovered when it is back" in run_here("log-dirs", "offline", "/a").stderr
