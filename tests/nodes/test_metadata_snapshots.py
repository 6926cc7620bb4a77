"""Snapshots of the metadata on real nodes: gone on behind, and sent to a copy that is behind."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import raylog
from raylog.actors.metadata_snapshot import SnapshotId, snapshot_ids
from raylog.actors.runtime.names import CONTROLLER
from raylog.cluster.broker import Broker
from raylog.cluster.controller.stub import find_controller
from raylog.storage.names import base_offsets
from raylog.storage.testing.waiting import wait_for
from tests.harness.faults import kill, pid_of

NAMESPACE = "snapshots"
# A topic of one partition writes about 600 bytes of records.
CONFIG = {"metadata.log.max.record.bytes.between.snapshots": 2_000}
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nodes(start_nodes: Callable[..., Any]) -> Any:
    started = start_nodes()
    started.add("one")
    return started


@pytest.fixture(scope="module")
def broker(nodes: Any) -> Iterator[Broker]:
    running = raylog.start(nodes.log_dirs("head"), namespace=NAMESPACE, config=CONFIG)
    wait_for(lambda: list(running.nodes().values()) == [None] * 2, 60, "two LogManagers")
    yield running
    running.stop()


def files(nodes: Any, name: str) -> list[str]:
    """Of the metadata in the log dir of a node."""
    (folder,) = nodes.log_dirs(name)
    return [path.name for path in Path(folder, "__cluster_metadata-0").iterdir()]


def snapshots(nodes: Any, name: str) -> list[SnapshotId]:
    return snapshot_ids(files(nodes, name))


def wait_until_level(nodes: Any) -> None:
    """Both nodes have all records, and the newest snapshot."""

    def are_level() -> bool:
        controller = find_controller(NAMESPACE)
        assert controller is not None
        copies = controller.metadata_copies().get(30)
        ends = {copy.end for copy in copies}
        newest = {name: snapshots(nodes, name)[:1] for name in ("head", "one")}
        is_same = newest["head"] == newest["one"] != []
        return len(ends) == 1 and all(copy.is_in_sync for copy in copies) and is_same

    wait_for(are_level, 90, "both nodes are level", poll_s=0.1)


def create(broker: Broker, *names: str) -> None:
    for name in names:
        broker.create_topic(name)


def test_the_next_controller_goes_on_behind_a_snapshot(broker: Broker, nodes: Any) -> None:
    create(broker, *"abcdefgh")
    wait_until_level(nodes)
    for name in ("head", "one"):
        assert 0 < min(base_offsets(files(nodes, name))) <= snapshots(nodes, name)[-1].end
    kill(pid_of(broker, CONTROLLER))
    create(broker, "i")
    assert broker.list_topics() == [*"abcdefghi"]
    wait_until_level(nodes)


def test_a_node_that_is_behind_the_snapshot_is_brought_level_with_it(
    broker: Broker, nodes: Any
) -> None:
    wait_until_level(nodes)
    before = snapshots(nodes, "one")[0].end
    nodes.kill("one")
    wait_for(lambda: len(broker.nodes()) == 1, 60, "the Controller has seen it go")
    create(broker, *"jklmnopq")
    wait_for(lambda: snapshots(nodes, "head")[-1].end > before, 30, "its records are gone")
    nodes.add("one")
    wait_until_level(nodes)
    assert min(base_offsets(files(nodes, "one"))) > before
    create(broker, "r")
    assert broker.list_topics() == [*"abcdefghijklmnopqr"]
    wait_for(lambda: broker.health() == [], 60, "nothing is wrong")
