"""Where the broker runs: on a Ray node that ``raylog.start`` starts, or on two that we start.

A person has the second way on several machines: ``ray start`` on each of them, with the machine's
log dirs in RAYLOG_LOG_DIRS, and then ``raylog.start`` once. Here all nodes are on this machine and
bind to 127.0.0.1. Each has log dirs of its own, below a folder with the node's name.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import ray

import raylog
from raylog.storage.testing.waiting import wait_for

if TYPE_CHECKING:
    from raylog import Broker

DIRS_A_NODE = ("log-dir-1", "log-dir-2")
# A frame of all flights fits; Ray's default would be a third of the machine's memory.
OBJECT_STORE_BYTES = 512 << 20
# Spark's executor asks Ray for two CPUs and its master for one, so declare more than a small
# machine has; but Ray starts a worker of 100 MB for each.
CPUS = 4
SECOND_NODE = "second"
NODE_TIMEOUT_S = 120.0


class DemoCluster(Protocol):
    """Ray and the broker, which can be started again on the same log dirs after ``end``."""

    place: str  # in words
    node_count: int
    log_dirs: list[str]  # of all nodes

    def start(self) -> "Broker":
        """Start Ray, and the broker on all nodes."""

    def end(self) -> None:
        """End Ray, after the broker; also where it has not started, or only half."""


class OneNode:
    """What ``raylog.start`` does by itself."""

    place, node_count = "two log dirs", 1

    def __init__(self, data: Path, ray_dir: Path) -> None:
        self.log_dirs = [str(data / name) for name in DIRS_A_NODE]
        self._ray_options = {
            "_temp_dir": str(ray_dir),
            "include_dashboard": False,
            "num_cpus": CPUS,
            "object_store_memory": OBJECT_STORE_BYTES,
        }

    def start(self) -> "Broker":
        return raylog.start(self.log_dirs, ray_options=self._ray_options)

    def end(self) -> None:
        ray.shutdown()


class TwoNodes:
    """A Ray cluster of two nodes. This process and the Controller are on the head."""

    place, node_count = "two Ray nodes with two log dirs each", 2

    def __init__(self, data: Path, ray_dir: Path) -> None:
        # the tests' tool: it needs psutil, which ./dev setup installs
        from tests.harness.nodes import HEAD, PATIENT_DETECTION, Nodes

        os.environ.update(PATIENT_DETECTION.variables())
        self.nodes = Nodes(
            data,
            ray_dir,
            dirs_a_node=DIRS_A_NODE,
            cpus=CPUS,
            object_store_bytes=OBJECT_STORE_BYTES,
            has_labels=False,
        )
        self.log_dirs = [*self.nodes.log_dirs(HEAD), *self.nodes.log_dirs(SECOND_NODE)]

    def start(self) -> "Broker":
        self.nodes.begin()
        self.nodes.add(SECOND_NODE)
        broker = raylog.start(self.log_dirs[: len(DIRS_A_NODE)])
        wait_for(
            lambda: list(broker.nodes().values()) == [None] * self.node_count,
            NODE_TIMEOUT_S,
            "a broker on both nodes",
            poll_s=0.1,
        )
        return broker

    def end(self) -> None:
        self.nodes.shut_down()
