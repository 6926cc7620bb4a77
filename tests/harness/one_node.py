"""A LogManager of its own with real LogActors, ordered about as a Controller would.

Its Controller is an actor that only writes down what it is told: the orders come from the test.
"""

import os
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray

from raylog.actors.control import Create, DirReport, LogId, LogReport, Order, Orders, Report, Serve
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.log_manager import LogManager, NodeSpec
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.handles import create, find, kill, running
from raylog.actors.runtime.names import CONTROLLER, LOG, log_actor_name, log_manager_name
from raylog.actors.runtime.nodes import own_node
from raylog.storage.config import LogConfig
from raylog.storage.files import RealFileSystem
from raylog.storage.names import DELETE_DIR_SUFFIX, TopicPartition
from raylog.storage.records.encode import encode_records
from raylog.storage.state.checkpoints import RECOVERY_POINTS, read_offsets
from raylog.storage.state.properties import random_id
from raylog.storage.testing.waiting import wait_for
from tests.harness.recorders import recording_controller

ORDERS = LogId(partition=TopicPartition("orders", 0), topic_id=random_id())
CLUSTER = random_id()
EPOCH = 3
DEADLINE_S = 90.0


class OneNode:
    """A LogManager, who orders it about, and what lies on its disks and runs in its namespace."""

    def __init__(self, root: Path, names: Sequence[str] = ("a",), **config: Any) -> None:
        self.dirs = [root / name for name in names]
        self.namespace = f"node-{uuid.uuid4().hex[:8]}"
        paths = [str(path) for path in self.dirs]
        quick = {"log.flush.offset.checkpoint.interval.ms": 100}
        self.config = BrokerConfig.parse({"log.dirs": paths, **quick, **config})
        self.key = own_node().key
        self.manager: Any = None
        self.controller = recording_controller(self.namespace)
        self._number = 0

    # -- its life ----------------------------------------------------------------------------------

    def begin(self, cluster_id: str = CLUSTER) -> None:
        """Make the LogManager; it is not started yet."""
        spec = NodeSpec(
            namespace=self.namespace, cluster_id=cluster_id, node_number=1, config=self.config
        )
        name = log_manager_name(self.key)
        self.manager = create(LogManager, name, self.namespace, own_node(), spec)

    def start(self) -> Report:
        """Make the LogManager and start it; returns the first report of its life."""
        before = self._life()
        self.begin()
        self.call("start", self.config)
        return self.wait_for(lambda report: report.life != before, "it reports")

    def shutdown(self) -> bool:
        """Stop the LogManager in order; returns what it answers."""
        is_in_order = bool(self.call("shutdown"))
        self.kill_manager()
        return is_in_order

    def kill_manager(self) -> None:
        """End the LogManager for good; its actors live on."""
        name = log_manager_name(self.key)
        kill(name, self.namespace)
        wait_for(lambda: find(name, self.namespace) is None, DEADLINE_S, "the name is free")

    def end(self) -> None:
        if find(log_manager_name(self.key), self.namespace) is not None:
            self.shutdown()
        kill(CONTROLLER, self.namespace)
        for name in running(self.namespace):
            kill(name, self.namespace)
        wait_for(lambda: not running(self.namespace), DEADLINE_S, "all actors have ended")

    def call(self, method: str, *arguments: Any) -> Any:
        return Call(getattr(self.manager, method).remote(*arguments), method).get(DEADLINE_S)

    def manager_pid(self) -> int:
        return pid_of(self.manager)

    def log_actors(self) -> list[str]:
        """The names of those that live."""
        return [name for name in running(self.namespace) if name.startswith(LOG)]

    # -- reports -----------------------------------------------------------------------------------

    def _last(self) -> Report | None:
        report = ray.get(self.controller.last_report.remote(), timeout=DEADLINE_S)
        assert report is None or isinstance(report, Report)
        return report

    def _life(self) -> str:
        report = self._last()
        return "" if report is None else report.life

    def report(self) -> Report:
        report = self._last()
        assert report is not None, "it has reported"
        return report

    def wait_for(self, condition: Callable[[Report], object], what: str) -> Report:
        """The first report of which the condition is true."""
        found: list[Report] = []

        def is_there() -> bool:
            report = self._last()
            if report is None or not condition(report):
                return False
            found.append(report)
            return True

        wait_for(is_there, DEADLINE_S, what, poll_s=0.05)
        return found[0]

    def wait_for_log(self, state: str, log: LogId = ORDERS, **facts: Any) -> LogReport:
        """What is reported of a log when it is in this state and these facts are true of it."""

        def entry_of(report: Report) -> LogReport | None:
            for entry in entries(report, log):
                if entry.state == state and all(
                    getattr(entry, name) == value for name, value in facts.items()
                ):
                    return entry
            return None

        found = entry_of(self.wait_for(entry_of, f"{log.partition} is {state} {facts or ''}"))
        assert found is not None
        return found

    def wait_for_dir(self, path: Path, state: str) -> DirReport:
        def entry_of(report: Report) -> DirReport | None:
            wanted = (str(path), state)
            return next((one for one in report.dirs if (one.path, one.state) == wanted), None)

        found = entry_of(self.wait_for(entry_of, f"{path} is {state}"))
        assert found is not None
        return found

    def id_of(self, path: Path) -> str:
        """The id of a log dir that is online."""
        [found] = [one.directory_id for one in self.report().dirs if one.path == str(path)]
        assert found is not None
        return found

    # -- orders ------------------------------------------------------------------------------------

    def order(self, *orders: Order, epoch: int = EPOCH, confirms: int = -1) -> int:
        """Send orders; returns their number. ``confirms``: the number of a report."""
        self._number += 1
        envelope = Orders(
            controller_epoch=epoch,
            number=self._number,
            node=self.key,
            life=self.report().life,
            report=confirms,
            orders=orders,
        )
        self.call("obey", envelope)
        return self._number

    def serve(self, log: LogId, directory_id: str, version: int = 0, **config: Any) -> LogReport:
        """Order it, and return when it serves with that config."""
        self.order(
            Serve(
                log=log,
                directory_id=directory_id,
                config=LogConfig(**config),
                config_version=version,
            )
        )
        return self.wait_for_log("serving", log, directory_id=directory_id, config_version=version)

    def make(self, log: LogId = ORDERS, **config: Any) -> LogReport:
        """Have the log made and served."""
        self.order(Create(log=log))
        return self.serve(log, self.wait_for_log("found", log).directory_id, **config)

    # -- its logs ----------------------------------------------------------------------------------

    def actor(self, log: LogId = ORDERS) -> Any:
        return find(log_actor_name(log.partition), self.namespace)

    def ask(self, method: str, *arguments: Any, log: LogId = ORDERS) -> Any:
        actor = self.actor(log)
        assert actor is not None, f"{log.partition} has an actor"
        return Call(getattr(actor, method).remote(*arguments), method).get(DEADLINE_S)

    def append(self, count: int = 1, log: LogId = ORDERS) -> int:
        """Records in one batch; returns the offset of the first."""
        rows = [(int(time.time() * 1000), None, b"x", ())] * count
        return int(self.ask("append", bytes(encode_records(rows)), log=log).base_offset)

    def log_end_offset(self, log: LogId = ORDERS) -> int:
        return int(self.ask("offsets", log=log).log_end_offset)

    def pid(self, log: LogId = ORDERS) -> int:
        return int(self.ask("status", log=log).pid)

    def recovery_points(self) -> dict[TopicPartition, int]:
        return read_offsets(RealFileSystem(), str(self.dirs[0] / RECOVERY_POINTS))

    def folders(self, path: Path | None = None) -> list[str]:
        """The names of the folders in a log dir, without those that wait to be removed."""
        names = [entry.name for entry in (path or self.dirs[0]).iterdir() if entry.is_dir()]
        return sorted(name for name in names if not name.endswith(DELETE_DIR_SUFFIX))


def entries(report: Report, log: LogId) -> list[LogReport]:
    return [entry for entry in report.logs if entry.log == log]


def is_serving(report: Report) -> bool:
    return any(entry.state == "serving" for entry in entries(report, ORDERS))


def pid_of(actor: Any) -> int:
    return int(ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=DEADLINE_S))
