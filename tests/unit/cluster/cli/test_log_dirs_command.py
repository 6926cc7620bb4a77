"""``raylog log-dirs`` and ``raylog partition move``: what is shown, and which dir is meant."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import pytest

from raylog.actors.messages import LogDirStatus
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.cluster import start as start_module
from raylog.cluster.broker import Broker
from raylog.cluster.client.commanding import Command
from raylog.cluster.controller.describe import PartitionDescription
from raylog.cluster.controller.log_dir_states import LogDirDescription
from raylog.cluster.controller.node_states import NodeDescription
from raylog.cluster.controller.stub import ControllerStub
from raylog.storage.state.properties import random_id
from tests.harness.shell import run_here

Answer = TypeVar("Answer")

ID = random_id()
NODES = [
    NodeDescription(node=key, node_id=node_id, state="online")
    for key, node_id in (("disk-1", "1" * 56), ("2" * 56, "2" * 56))
]


class Controller:
    """A Controller's handle that notes the log dirs that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.move_partition = SimpleNamespace(remote=self._move)
        self.log_dir_online = SimpleNamespace(remote=self._online)
        self.log_dir_offline = SimpleNamespace(remote=self._offline)
        self.nodes: list[str | None] = []
        self.taken = LogDirDescription(
            "/a", ID, "n", "offline", "/a", "an operator took it offline", was_clean=True
        )
        # What it says of a log dir that is used again, one after another.
        self.returning = [LogDirDescription("/a", ID, "n", "online", "/a", serving=2)]
        self.describe_log_dirs = SimpleNamespace(remote=lambda _: [self._next()])
        self.describe_nodes = SimpleNamespace(remote=lambda: NODES)
        self.log_dirs = SimpleNamespace(remote=list)

    def _move(self, _topic: str, _partition: int, log_dir: str) -> PartitionDescription:
        self.asked.append(log_dir)
        return PartitionDescription(0, ID, "n", f"{log_dir}/t-0", None)

    def _online(self, log_dir: str, node: str | None) -> LogDirDescription:
        self.asked.append(log_dir)
        self.nodes.append(node)
        return self._next()

    def _next(self) -> LogDirDescription:
        return self.returning.pop(0) if len(self.returning) > 1 else self.returning[0]

    def _offline(self, log_dir: str, node: str | None) -> LogDirDescription:
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

    def _ask_controller(
        self,
        what: str,
        ask: Callable[[ControllerStub], Call[Answer]],
        timeout_s: float = 0,
    ) -> Answer:
        answer: Answer = ask(ControllerStub(self.controller)).reference
        return answer

    def _log_managers(self) -> dict[str, LogManagerStub]:
        return {}

    def log_dirs(self) -> list[LogDirStatus]:
        return self._log_dirs

    def describe_nodes(self, *, timeout_s: float = 0) -> list[NodeDescription]:
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
        "/a is offline (an operator took it offline), and not in use; `raylog log-dirs online /a` "
        "brings it back\n"
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


# -- used again ------------------------------------------------------------------------------------


def test_one_that_is_used_again_is_told_when_its_partitions_serve(
    connect_to: Callable[[FakeBroker], FakeBroker],
) -> None:
    broker = connect_to(FakeBroker())
    used = broker.controller.returning[0]
    opening = used._replace(state="returning", serving=0, waits_for="t-0, t-1 to be opened")
    broker.controller.returning = [opening, opening, used]
    ended = run_here("log-dirs", "online", "/a")
    assert ended == (0, "/a is online; 2 of its 2 partitions serve\n", "")


def test_one_that_is_not_in_use_in_time_is_exit_status_1_and_says_for_what_it_waits(
    connect_to: Callable[[FakeBroker], FakeBroker],
) -> None:
    broker = connect_to(FakeBroker())
    opening = {"t-0": "it is being opened"}
    broker.controller.returning = [
        LogDirDescription(
            "/a", ID, "n", "returning", "/a", "why", "t-0 to be opened", not_serving=opening
        )
    ]
    ended = run_here("log-dirs", "online", "/a", "--timeout", "0")
    assert ended.returncode == 1
    assert "t-0 to be opened. It goes on by itself" in ended.stderr
    assert ended.stdout == "/a is returning; 0 of its 1 partitions serve\n"


def test_partitions_that_will_not_serve_are_named_with_the_reason_and_nobody_waits(
    connect_to: Callable[[FakeBroker], FakeBroker],
) -> None:
    broker = connect_to(FakeBroker())
    used = broker.controller.returning[0]
    broker.controller.returning = [used._replace(not_serving={"t-2": "its folder is missing"})]
    ended = run_here("log-dirs", "online", "/a")
    assert ended.returncode == 1
    assert ended.stderr == "t-2 does not serve: its folder is missing\n"
    assert ended.stdout == "/a is online; 2 of its 3 partitions serve\n"


def test_one_that_cannot_be_read_back_says_why(
    connect_to: Callable[[FakeBroker], FakeBroker],
) -> None:
    broker = connect_to(FakeBroker())
    why = "its logs cannot be read back: EIO"
    broker.controller.returning = [
        LogDirDescription("/a", ID, "n", "returning", "/a", why, not_serving={"t-0": why})
    ]
    ended = run_here("log-dirs", "online", "/a")
    assert (ended.returncode, ended.stderr) == (1, f"/a is not in use: {why}\n")


@pytest.mark.parametrize(
    ("given", "key"), [("disk-1", "disk-1"), ("1111", "disk-1"), ("22", "2" * 56)]
)
def test_the_node_of_a_log_dir_is_named_as_in_other_commands(
    given: str, key: str, connect_to: Callable[[FakeBroker], FakeBroker]
) -> None:
    broker = connect_to(FakeBroker())
    assert run_here("log-dirs", "online", "/a", "--node", given).returncode == 0
    assert broker.controller.nodes == [key]


def test_a_node_that_is_not_known_is_refused_with_those_that_are(
    connect_to: Callable[[FakeBroker], FakeBroker],
) -> None:
    broker = connect_to(FakeBroker())
    ended = run_here("log-dirs", "online", "/a", "--node", "disk-9")
    assert (ended.returncode, broker.controller.asked) == (1, [])
    assert "its nodes are: 22222222, disk-1" in ended.stderr
