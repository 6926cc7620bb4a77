"""Two nodes go to a newer release one after the other while a producer goes on.

The newer release is a copy of the package with another version, a level and a config key more, and
more fields in messages. Each node imports raylog from a folder of its own, and an installation puts
another copy there.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import raylog
from raylog.actors.levels import LEVELS
from raylog.cluster.broker import Broker
from raylog.cluster.upgrading import restart_controller, upgrade_status
from raylog.storage.testing.waiting import wait_for
from raylog.storage.wire import RELEASE
from tests.harness.paths import ROOT

NAMESPACE = "upgraded"
LEVEL = LEVELS.newest  # of this release
NEWER = "9.0.0"
PARTITIONS = 4
pytestmark = pytest.mark.timeout(600)


def copied(folder: Path) -> Path:
    """The package as it is."""
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(ROOT / "raylog", folder / "raylog", ignore=ignored))


def replace(path: Path, old: str, new: str) -> None:
    content = path.read_text()
    assert content.count(old) == 1, f"{path}: {old}"
    path.write_text(content.replace(old, new))


def newer(folder: Path) -> Path:
    """The next release: it has a level and a config key more, and other fields in messages."""
    package = copied(folder)
    replace(package / "__init__.py", f'"{RELEASE}"', f'"{NEWER}"')
    levels = package / "actors" / "levels.py"
    replace(
        levels, "RELEASES = {FIRST_LEVEL:", f'RELEASES = {{{LEVEL + 1}: "{NEWER}", FIRST_LEVEL:'
    )
    more = '    novelty: str = "only the newer release knows it"\n'
    control = package / "actors" / "control.py"
    for line in ("    is_ending: bool = False\n", "    level: int = FIRST_LEVEL\n"):
        replace(control, line, line + more)  # of reports, and of orders
    defaults = "    topic_defaults: LogConfig = field(default_factory=LogConfig)\n"
    key = '    log_novelty_ms: int = integer(7, 1, MAX_LONG, "a time")\n'
    replace(package / "actors" / "node" / "broker_config.py", defaults, key + defaults)
    says = "    problem: RaylogError | None = None\n"
    replace(package / "actors" / "node_messages.py", says, says + more)
    return package


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The older and the newer package."""
    folder = tmp_path_factory.mktemp("releases")
    return copied(folder / "older"), newer(folder / "newer")


@pytest.fixture(scope="module")
def nodes(
    start_nodes: Callable[..., Any],
    releases: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Any]:
    older, _ = releases
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("work"))  # Ray's processes import from here first
    try:
        started = start_nodes(has_labels=True, package=older)
        started.install("one", older)
        started.add("one")
        yield started
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def broker(nodes: Any) -> Iterator[Broker]:
    running = raylog.start(nodes.log_dirs("head"), namespace=NAMESPACE)
    wait_for(lambda: list(running.nodes().values()) == [None] * 2, 60, "two LogManagers")
    yield running
    running.stop()


def by_newer(package: Path, nodes: Any, *arguments: str) -> str:
    """What a command of the newer raylog prints."""
    where = ["--address", nodes.address, "--namespace", NAMESPACE]
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    done = subprocess.run(
        [sys.executable, "-m", "raylog", *arguments, *where],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def run_by(broker: Broker) -> dict[str, str]:
    """Which release each node and the Controller run."""
    found = upgrade_status(broker)
    nodes = {node.node: node.release for node in found.nodes}
    return {**nodes, "Controller": found.release}


def produce_until(stop: Event, broker: Broker) -> list["Future[Any]"]:
    """A record to each partition, again and again; all receipts."""
    receipts: list[Future[Any]] = []
    count = 0
    with broker.producer(delivery_timeout_ms=300_000) as producer:
        while not stop.wait(0.02):
            for partition in range(PARTITIONS):
                receipts.append(producer.send("t", b"%d" % count, partition=partition))
            count += 1
    return receipts


def restarted(broker: Broker, nodes: Any, name: str, package: Path) -> None:
    """As an operator upgrades a node."""
    pids = {process.pid for process in nodes.actors() if process.node == name}
    controllers = {entry.pid for entry in nodes.actors() if entry.actor == "Controller"}
    nodes.install(name, package)
    stopped = broker.stop_node(name)
    assert (stopped.state, stopped.was_clean) == ("stopped", True)
    assert broker.start_node(name).not_serving == {}
    again = {process.pid for process in nodes.actors() if process.node == name}
    assert again & pids <= controllers, "every actor but the Controller has another process"


def test_nodes_go_to_a_newer_release_one_by_one_while_a_producer_goes_on(
    broker: Broker, nodes: Any, releases: tuple[Path, Path]
) -> None:
    _, newer_package = releases
    broker.create_topic("t", partitions=PARTITIONS)
    assert run_by(broker) == {"head": RELEASE, "one": RELEASE, "Controller": RELEASE}
    is_over = Event()
    with ThreadPoolExecutor() as pool:
        producing = pool.submit(produce_until, is_over, broker)
        try:
            _upgrade(broker, nodes, newer_package)
        finally:
            is_over.set()
        receipts = producing.result()
    for receipt in receipts:
        receipt.result(120)
    found = list(broker.consumer("t", from_="earliest", to="latest"))
    values = {(record.partition, record.value) for record in found}
    assert len(found) == len(values) == len(receipts), "each record is there once"
    wait_for(lambda: broker.health() == [], 60, "no node obeys an old config, nothing is wrong")
    reports = [status.report for status in broker.status()]
    assert all(report.totals == () for report in reports), "nothing had to be mended"


def _upgrade(broker: Broker, nodes: Any, package: Path) -> None:
    restarted(broker, nodes, "one", package)
    assert run_by(broker) == {"head": RELEASE, "one": NEWER, "Controller": RELEASE}
    broker.create_topic("between", partitions=2)
    assert broker.apply_config({"log.retention.check.interval.ms": 299_000}).behind == {}
    assert "raylog node stop head" in by_newer(package, nodes, "upgrade", "status")

    restarted(broker, nodes, "head", package)
    assert "restart-controller" in by_newer(package, nodes, "upgrade", "status")
    assert restart_controller(broker).release == NEWER
    wait_for(
        lambda: run_by(broker) == {"head": NEWER, "one": NEWER, "Controller": NEWER},
        60,
        "all nodes report to the new Controller",
    )
    assert upgrade_status(broker).level == LEVEL
    assert f"cluster is of level {LEVEL + 1}" in by_newer(package, nodes, "upgrade", "finalize")


def test_a_node_of_the_older_release_is_refused_by_name_and_goes_on_when_it_is_upgraded(
    broker: Broker, nodes: Any, releases: tuple[Path, Path]
) -> None:
    older, newer_package = releases
    assert upgrade_status(broker).level == LEVEL + 1
    nodes.kill("one")
    nodes.install("one", older)
    nodes.add("one")

    def why() -> str:
        return next(node.why for node in broker.describe_nodes() if node.node == "one")

    wait_for(lambda: f"install raylog {NEWER} there" in why(), 90, "it refuses the level")
    nodes.install("one", newer_package)
    wait_for(lambda: run_by(broker).get("one") == NEWER, 90, "its next process is of the newer one")
    assert broker.start_node("one").not_serving == {}
