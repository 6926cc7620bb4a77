"""Ray nodes on this machine, each with log dirs of its own.

A test starts, kills and freezes them, and starts them again with the same disks. A node is known by
a name. Its log dirs are folders below a folder of that name, so a node that comes back under the
same name has the same disks. An actor's process is found by its title below the node's raylet: one
that hangs is found as well.
"""

import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import ray
from ray.cluster_utils import Cluster

from raylog.actors.node.broker_config import LOG_DIRS_VARIABLE
from raylog.actors.runtime.names import NODE_LABEL
from tests.harness.clusters import environment, short_folder

HEAD = "head"
# A process that was killed ends as soon as the kernel has run it.
END_S = 30.0
# On a busy machine a node may not come up within the 30 seconds that Ray gives it.
START_ATTEMPTS = 3
# ray::LogManagerImpl, or ray::Log:topic-0:LogActorImpl.append while a method runs.
ACTOR_TITLE = re.compile(r"ray::(?:.*:)?(\w+)Impl\b")


class FailureDetection(NamedTuple):
    """When Ray calls a node dead. Its own defaults take half a minute."""

    timeout_ms: int
    failures: int
    period_ms: int = 500

    def variables(self) -> dict[str, str]:
        return {
            "RAY_health_check_period_ms": str(self.period_ms),
            "RAY_health_check_initial_delay_ms": str(self.period_ms),
            "RAY_health_check_timeout_ms": str(self.timeout_ms),
            "RAY_health_check_failure_threshold": str(self.failures),
        }


FAST_DETECTION = FailureDetection(timeout_ms=500, failures=3)
# For nodes under so much load that a healthy one may be late with its answer.
PATIENT_DETECTION = FailureDetection(timeout_ms=1000, failures=5)


class ActorProcess(NamedTuple):
    """A process of an actor; ``actor`` is the name of its class."""

    node: str
    pid: int
    actor: str


class Nodes:
    """A cluster, with this process as its driver. Made by ``running_nodes``."""

    def __init__(
        self,
        disks: Path,
        temp_dir: Path,
        *,
        dirs_a_node: Sequence[str],
        cpus: int,
        object_store_bytes: int | None,
        has_labels: bool,
        has_packages: bool = False,
    ) -> None:
        self.temp_dir = temp_dir
        self._has_packages = has_packages
        self._disks, self._dirs_a_node = disks, dirs_a_node
        self._cpus, self._object_store_bytes = cpus, object_store_bytes
        self._has_labels = has_labels
        self._cluster: Cluster | None = None
        self._nodes: dict[str, Any] = {}

    def begin(self) -> None:
        """Start the head, and connect this process to it."""
        head = {
            "temp_dir": str(self.temp_dir),
            "include_dashboard": False,
            **self._arguments(HEAD, HEAD, HEAD),
        }
        self._make_address_folder()
        self._cluster = self._patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
        self._nodes[HEAD] = self._cluster.head_node
        ray.init(self.address, log_to_driver=False, logging_level="ERROR")

    def _make_address_folder(self) -> None:
        """Make the folder where Ray's ``Cluster`` writes its address, whatever ``temp_dir`` says.

        It is not made by Ray where each Ray of the machine has a folder of its own.
        """
        above = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
        os.makedirs(os.path.join(above, "ray"), exist_ok=True)

    def _arguments(self, name: str, disk: str, label: str) -> dict[str, Any]:
        (self._disks / disk).mkdir(parents=True, exist_ok=True)
        variables = {LOG_DIRS_VARIABLE: ",".join(self.log_dirs(disk))}
        if self._has_packages:
            variables["PYTHONPATH"] = str(self._packages(disk))
        arguments: dict[str, Any] = {"num_cpus": self._cpus, "env_vars": variables}
        if self._object_store_bytes is not None:
            arguments["object_store_memory"] = self._object_store_bytes
        if self._has_labels:
            arguments["labels"] = {NODE_LABEL: label}
        return arguments

    @property
    def cluster(self) -> Cluster:
        assert self._cluster is not None, "the head has begun"
        return self._cluster

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    @property
    def names(self) -> list[str]:
        """Of the nodes that are up."""
        return list(self._nodes)

    def node_id(self, name: str) -> str | None:
        """Ray's id of the node's present life; None while it is away."""
        node = self._nodes.get(name)
        return None if node is None else str(node.node_id)

    def log_dirs(self, disk: str) -> list[str]:
        """The log dirs on the disks of that name."""
        return [str(self._disks / disk / log_dir) for log_dir in self._dirs_a_node]

    def _packages(self, disk: str) -> Path:
        return self._disks / disk / "packages"

    def install(self, disk: str, package: Path) -> None:
        """What the processes of the node import as ``raylog`` from now on, if they begin now.

        Only where each node has packages of its own. ``package``: the folder of a copy of raylog.
        """
        packages = self._packages(disk)
        packages.mkdir(parents=True, exist_ok=True)
        (packages / "next").symlink_to(package, target_is_directory=True)
        (packages / "next").replace(packages / "raylog")

    # -- the life of a node ------------------------------------------------------------------------

    def add(self, name: str, *, disk: str | None = None, label: str | None = None) -> str:
        """Start a node; returns its id.

        Its disks and its label are those of its name unless others are given.
        """
        arguments = self._arguments(name, disk or name, label or name)
        self._nodes[name] = self._patiently(lambda: self.cluster.add_node(**arguments))
        return str(self._nodes[name].node_id)

    def _patiently(self, start: Callable[[], Any]) -> Any:
        for _ in range(START_ATTEMPTS - 1):
            try:
                return start()
            except Exception:
                self._end_half_started()
        return start()

    def _end_half_started(self) -> None:
        known = {
            info.process.pid
            for node in self._nodes.values()
            for infos in node.all_processes.values()
            for info in infos
        }
        for child in psutil.Process().children():
            if child.name() in ("raylet", "gcs_server") and child.pid not in known:
                child.kill()

    def kill(self, name: str) -> None:
        """End the node's raylet by SIGKILL, and with it its processes."""
        self.cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def crash(self, name: str) -> None:
        """SIGKILL all processes of the node at once, as when its machine is lost; ``end`` follows.

        ``kill`` ends the raylet only, and its actors live until they notice.
        """
        processes = _all_processes(self._nodes[name])
        for process in processes:
            send_signal(process.pid, signal.SIGKILL)
        psutil.wait_procs(processes, END_S)

    def lose_head(self) -> None:
        """``crash`` the head, and disconnect this process.

        Ray may end a driver whose raylet is dead. So this process leaves before, and the head's
        actors stand still meanwhile.
        """
        for one in self.actors():
            if one.node == HEAD:
                send_signal(one.pid, signal.SIGSTOP)
        ray.shutdown()
        self.crash(HEAD)

    def has_ended(self, name: str) -> bool:
        """Whether the node's raylet has ended by itself.

        Asking reaps it, as init does in real life: to its workers a zombie is alive, and they would
        live on.
        """
        return _raylet(self._nodes[name]).poll() is not None

    def forget(self, name: str) -> None:
        """The node has ended by itself."""
        node = self._nodes.pop(name)
        with suppress(Exception):
            self.cluster.remove_node(node, allow_graceful=False)

    def end(self) -> None:
        """End every process at once, as a loss of power would. ``begin`` may follow."""
        ray.shutdown()
        head = self._nodes.pop(HEAD)
        for node in self._nodes.values():
            self.cluster.remove_node(node, allow_graceful=False)
        self.cluster.remove_node(head, allow_graceful=False)
        self.shut_down()

    def shut_down(self) -> None:
        """Disconnect this process, and stop the nodes in order."""
        ray.shutdown()
        self._nodes.clear()
        if self._cluster is not None:
            self._cluster.shutdown()
            self._cluster = None

    # -- processes ---------------------------------------------------------------------------------

    def pids(self, name: str) -> list[int]:
        """The node's raylet and all that it has started."""
        pid = _raylet(self._nodes[name]).pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def actors(self) -> list[ActorProcess]:
        """The actors' processes of all nodes, by node and pid."""
        found = []
        for name, node in list(self._nodes.items()):  # nodes come and go in another thread
            for pid, actor in _actors_below(_raylet(node).pid):
                found.append(ActorProcess(name, pid, actor))
        return sorted(found)


@contextmanager
def running_nodes(
    disks: Path,
    *,
    dirs_a_node: Sequence[str] = ("log",),
    cpus: int = 4,
    object_store_bytes: int | None = None,
    has_labels: bool = False,
    package: Path | None = None,
    detection: FailureDetection = FAST_DETECTION,
) -> Iterator[Nodes]:
    """A cluster of a head; ``Nodes.add`` adds to it.

    ``package``: the copy of raylog that the head imports; each node has packages of its own then,
    to be installed before it is added (``Nodes.install``). Ray has its processes import from the
    driver's working directory first: there must be no raylog in it.

    In any case the cluster ends, and only its disks are left.
    """
    with short_folder() as temp_dir, environment(detection.variables()):
        nodes = Nodes(
            disks,
            temp_dir,
            dirs_a_node=dirs_a_node,
            cpus=cpus,
            object_store_bytes=object_store_bytes,
            has_labels=has_labels,
            has_packages=package is not None,
        )
        if package is not None:
            nodes.install(HEAD, package)
        try:
            nodes.begin()
            yield nodes
        finally:
            nodes.shut_down()


def _raylet(node: Any) -> Any:
    (raylet,) = node.all_processes["raylet"]
    return raylet.process


def _all_processes(node: Any) -> list[psutil.Process]:
    """What Ray has started on the node, and all below it. The raylet starts nothing meanwhile."""
    send_signal(_raylet(node).pid, signal.SIGSTOP)
    found = []
    for infos in node.all_processes.values():
        for info in infos:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(info.process.pid)
                found += [process, *process.children(recursive=True)]
    return found


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


class Frozen:
    """Processes that are stopped by SIGSTOP until ``go_on``."""

    def __init__(self) -> None:
        self._pids: list[int] = []

    def stop(self, pids: Iterable[int]) -> None:
        for pid in pids:
            self._pids.append(pid)
            send_signal(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        for pid in self._pids:
            send_signal(pid, signal.SIGCONT)
        self._pids.clear()


def send_signal(pid: int, number: int) -> None:
    """To a process that may have ended meanwhile."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def private_bytes(pid: int) -> int:
    """Memory that would be free if the process ended; 0 if it has ended.

    The maps of the object store are not counted.
    """
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    kilobytes = [
        int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_")
    ]
    return sum(kilobytes) << 10
