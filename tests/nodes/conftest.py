"""Ray clusters of several nodes on one machine, each node with log dirs of its own."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import ray

from raylog.actors.node.log_manager import LOG_DIRS_VARIABLE
from raylog.actors.runtime.names import NODE_LABEL

# Ray's own defaults take half a minute to call a node dead.
FAST_FAILURE_DETECTION = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "500",
}


class Nodes:
    """A cluster whose nodes are known by the folder of their disks."""

    def __init__(self, folder: Path, *, labels: bool = False) -> None:
        self.folder, self._has_labels = folder, labels
        # short: Ray puts Unix sockets below it
        self._temp_dir = tempfile.mkdtemp(prefix="rl-", dir="/tmp")
        self._nodes: dict[str, Any] = {}
        self.begin()

    def begin(self) -> None:
        """Start the head, and connect this process to it."""
        from ray.cluster_utils import Cluster

        head = {
            "temp_dir": self._temp_dir,
            "include_dashboard": False,
            **self._arguments("head", None),
        }
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        ray.init(self.address, log_to_driver=False)

    def _arguments(self, name: str, disk: str | None) -> dict[str, Any]:
        labels = {"labels": {NODE_LABEL: name}} if self._has_labels else {}
        return {
            "num_cpus": 4,
            "env_vars": {LOG_DIRS_VARIABLE: self.log_dir(disk or name)},
            **labels,
        }

    def log_dir(self, name: str) -> str:
        (self.folder / name).mkdir(exist_ok=True)
        return str(self.folder / name / "log")

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, name: str, *, disk: str | None = None, label: str | None = None) -> str:
        """Start a node with the disk of that name (default: its own); returns its id."""
        arguments = self._arguments(name, disk)
        if label is not None:
            arguments["labels"] = {NODE_LABEL: label}
        self._nodes[name] = self._cluster.add_node(**arguments)
        return str(self._nodes[name].node_id)

    def kill(self, name: str) -> None:
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def _raylet(self, name: str) -> Any:
        (raylet,) = self._nodes[name].all_processes["raylet"]
        return raylet.process

    def has_ended(self, name: str) -> bool:
        """Whether the node's raylet has ended by itself. (Asking reaps it, as init does in real
        life: to its workers a zombie is alive, and they would live on.)"""
        return self._raylet(name).poll() is not None

    def processes(self, name: str) -> list[int]:
        """The node's raylet and all that it has started."""
        pid = self._raylet(name).pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def forget(self, name: str) -> None:
        """The node's processes were ended by somebody else."""
        node = self._nodes.pop(name)
        with suppress(Exception):
            self._cluster.remove_node(node, allow_graceful=False)

    def end(self) -> None:
        """End every process at once, as a loss of power would."""
        ray.shutdown()
        for name in list(self._nodes):
            self.kill(name)
        self._cluster.remove_node(self._cluster.head_node, allow_graceful=False)
        self._cluster.shutdown()

    def close(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()
        self._nodes.clear()
        shutil.rmtree(self._temp_dir, ignore_errors=True)


@pytest.fixture(scope="module")
def start_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Nodes]]:
    """Start the head of a cluster; it ends with the module."""
    before = {key: os.environ.get(key) for key in FAST_FAILURE_DETECTION}
    os.environ.update(FAST_FAILURE_DETECTION)
    started: list[Nodes] = []

    def start(**options: bool) -> Nodes:
        started.append(Nodes(tmp_path_factory.mktemp("nodes"), **options))
        return started[-1]

    yield start
    for nodes in started:
        nodes.close()
    for key, value in before.items():
        os.environ.pop(key) if value is None else os.environ.update({key: value})


class Frozen:
    """Processes that stand still."""

    def __init__(self) -> None:
        self._pids: list[int] = []

    def stop(self, pids: list[int]) -> None:
        self._pids += pids
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        self._send(signal.SIGCONT)
        self._pids.clear()

    def _send(self, number: signal.Signals) -> None:
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


@pytest.fixture
def frozen() -> Iterator[Frozen]:
    made = Frozen()
    yield made
    made.go_on()
