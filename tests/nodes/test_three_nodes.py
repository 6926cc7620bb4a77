"""Three Ray nodes on one machine, each with log dirs of its own: placement, a killed node, its return."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import raylog
from raylog.actors.log_manager import LOG_DIRS_VARIABLE
from raylog.actors.messages import NotLeader
from raylog.cluster.broker import Broker
from raylog.storage.testing.waiting import wait_for

# Ray's own defaults take half a minute to call a node dead.
FAST_FAILURE_DETECTION = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "500",
}


class Nodes:
    """A cluster whose nodes are known by the folder of their disks."""

    def __init__(self, folder: Path, temp_dir: str) -> None:
        from ray.cluster_utils import Cluster

        self.folder = folder
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 4,
                "include_dashboard": False,
                "temp_dir": temp_dir,
                "env_vars": {LOG_DIRS_VARIABLE: self.log_dir("head")},
            },
        )
        self._nodes: dict[str, Any] = {}

    def log_dir(self, name: str) -> str:
        (self.folder / name).mkdir(exist_ok=True)
        return str(self.folder / name / "log")

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, name: str) -> None:
        self._nodes[name] = self._cluster.add_node(
            num_cpus=4, env_vars={LOG_DIRS_VARIABLE: self.log_dir(name)}
        )

    def kill(self, name: str) -> None:
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    before = {key: os.environ.get(key) for key in FAST_FAILURE_DETECTION}
    os.environ.update(FAST_FAILURE_DETECTION)
    temp_dir = tempfile.mkdtemp(prefix="rl-", dir="/tmp")
    started = Nodes(tmp_path_factory.mktemp("nodes"), temp_dir)
    started.add("one")
    started.add("two")
    ray.init(started.address, log_to_driver=False)
    yield started
    ray.shutdown()
    started.shutdown()
    shutil.rmtree(temp_dir, ignore_errors=True)
    for key, value in before.items():
        os.environ.pop(key) if value is None else os.environ.update({key: value})


@pytest.fixture(scope="module")
def broker(nodes: Nodes) -> Iterator[Broker]:
    running = raylog.start([nodes.log_dir("head")], namespace="three")
    wait_for(lambda: list(running.nodes().values()) == [None] * 3, 60, "three LogManagers")
    yield running
    running.stop()


def home(folder: str | None) -> str:
    """The node's name, of a partition's folder."""
    return Path(folder or "").parent.parent.name


def test_partitions_are_spread_over_the_nodes_each_on_its_own_disk(broker: Broker) -> None:
    created = broker.create_topic("spread", partitions=6)
    assert Counter(home(place.folder) for place in created.partitions) == {"head": 2, "one": 2, "two": 2}
    assert len({place.node_id for place in created.partitions}) == 3
    with broker.producer() as producer:
        for n in range(600):
            producer.send("spread", b"%d" % n, partition=n % 6)
    found = list(broker.consumer("spread", from_="earliest", to="latest"))
    assert sorted(int(record.value or b"") for record in found) == list(range(600))


@pytest.mark.timeout(240)
def test_a_killed_nodes_partitions_are_away_and_come_back_with_its_disk(broker: Broker, nodes: Nodes) -> None:
    created = broker.create_topic("moved", partitions=3)
    away = next(place.partition for place in created.partitions if home(place.folder) == "two")
    here = [place.partition for place in created.partitions if place.partition != away]
    with broker.producer() as producer:
        for n in range(300):
            producer.send("moved", b"%d" % n, partition=n % 3)
    old_node = created.partitions[away].node_id

    nodes.kill("two")

    def is_away() -> bool:
        try:
            broker.forget("moved", away)
            broker.partition("moved", away, timeout_s=0)
        except NotLeader as error:
            return "is away" in str(error)
        return False

    wait_for(is_away, 60, "the partition is said to be away")
    assert broker.describe_topic("moved").partitions[away].node_id is None
    with broker.producer() as producer:  # the others go on
        for partition in here:
            producer.send("moved", b"1000", partition=partition).result()

    with broker.producer(delivery_timeout_ms=120_000) as producer:
        waiting = producer.send("moved", b"sent while away", partition=away)
        nodes.add("two")
        assert waiting.result().offset == 100

    wait_for(
        lambda: broker.describe_topic("moved").partitions[away].node_id, 60, "the Controller hears of it, too"
    )
    place = broker.describe_topic("moved").partitions[away]
    assert home(place.folder) == "two"
    assert place.node_id != old_node, "under a new node id"
    found = broker.consumer("moved", from_="earliest", to="latest", partitions=[away])
    values = [record.value for record in found]
    assert values == [b"%d" % n for n in range(300) if n % 3 == away] + [b"sent while away"]


@pytest.mark.timeout(240)
def test_a_new_topic_avoids_a_node_that_is_away(broker: Broker, nodes: Nodes) -> None:
    nodes.kill("one")
    wait_for(lambda: len(broker.nodes()) == 2, 60, "the Controller has seen it go")
    broker.create_topic("elsewhere", partitions=2)
    assert "one" not in {home(place.folder) for place in broker.describe_topic("elsewhere").partitions}
    nodes.add("one")
    wait_for(
        lambda: all(p.node_id for p in broker.describe_topic("spread").partitions),
        60,
        "its partitions are back",
    )
    found = list(broker.consumer("spread", from_="earliest", to="latest"))
    assert len(found) == 600
