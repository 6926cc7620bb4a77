"""Ray nodes on this machine, each with log dirs of its own, and their processes, to be killed or
stopped.

The head holds Ray's own state (its GCS) and the Controller's log; it is not killed whole. The
others are, and come back with their dirs under a new node id. An actor's process is found by its
title below the node's raylet, so that one that hangs, or that nobody can ask, is found as well.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from ray.cluster_utils import Cluster

from raylog.actors.node.log_manager import LOG_DIRS_VARIABLE

HEAD, OTHERS = "head", ("one", "two")
DIRS_A_NODE = ("a", "b")
OBJECT_STORE_BYTES = 200 << 20
START_ATTEMPTS = 3
# Ray's own defaults take half a minute to call a node dead.
FAST_FAILURE_DETECTION = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "5",
    "RAY_health_check_initial_delay_ms": "500",
}


# ray::LogManagerImpl, ray::Log:topic-0:LogActorImpl.append: with the actor's name while a method
# runs.
ACTOR_TITLE = re.compile(r"ray::(?:.*:)?(\w+)Impl\b")


class ActorProcess(NamedTuple):
    """A process of an actor; ``actor`` is the name of its class."""

    node: str
    pid: int
    actor: str


class Nodes:
    """The cluster. Its temp dir must be short: Ray puts Unix sockets below it."""

    def __init__(self, disks: Path, temp_dir: str) -> None:
        os.environ.update(FAST_FAILURE_DETECTION)
        self._disks = disks
        arguments = {"include_dashboard": False, "temp_dir": temp_dir, **self._arguments(HEAD)}
        self._cluster = Cluster(initialize_head=True, head_node_args=arguments)
        self._nodes: dict[str, Any] = {HEAD: self._cluster.head_node}
        for name in OTHERS:
            self.start(name)

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def names(self) -> list[str]:
        """Of the nodes that are up."""
        return list(self._nodes)

    def log_dirs(self, name: str) -> list[str]:
        return [str(self._disks / name / log_dir) for log_dir in DIRS_A_NODE]

    def _arguments(self, name: str) -> dict[str, Any]:
        (self._disks / name).mkdir(parents=True, exist_ok=True)
        return {
            "num_cpus": 1,  # raylog's actors take none, and Ray starts a worker beforehand for each
            "object_store_memory": OBJECT_STORE_BYTES,
            "env_vars": {LOG_DIRS_VARIABLE: ",".join(self.log_dirs(name))},
        }

    def start(self, name: str) -> None:
        """Ray gives a node 30 seconds, which a busy machine may not have: what is half started
        goes, and again."""
        for attempts_left in reversed(range(START_ATTEMPTS)):
            try:
                self._nodes[name] = self._cluster.add_node(**self._arguments(name))
                return
            except Exception:
                if not attempts_left:
                    raise
                self._end_half_started()

    def _end_half_started(self) -> None:
        known = {_raylet_of(node) for node in self._nodes.values()}
        for child in psutil.Process().children():
            if child.name() == "raylet" and child.pid not in known:
                child.kill()

    def kill(self, name: str) -> None:
        """End the node's raylet, and with it its processes, without a word."""
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()

    def processes(self) -> list[ActorProcess]:
        """The actors' processes of all nodes, by node and pid."""
        found = []
        for name, node in self._nodes.items():
            found += [
                ActorProcess(name, pid, actor) for pid, actor in _actors_below(_raylet_of(node))
            ]
        return sorted(found)


def _raylet_of(node: Any) -> int:
    (raylet,) = node.all_processes["raylet"]
    return int(raylet.process.pid)


def _actors_below(raylet: int) -> Iterable[tuple[int, str]]:
    try:
        children = psutil.Process(raylet).children()
    except psutil.NoSuchProcess:
        return
    for child in children:
        try:
            title = "".join(child.cmdline())
        except psutil.Error:
            continue
        found = ACTOR_TITLE.match(title)
        if found:
            yield child.pid, found[1]


def private_bytes(pid: int) -> int:
    """What a process has for itself; the object store's maps are not counted. 0 if it is gone."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(
        int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Private_")
    )
