"""Copies of the metadata on real nodes: what is decided is on the disks of two of them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import raylog
from raylog.actors.node.metadata_copy import values_of
from raylog.actors.runtime.names import CONTROLLER
from raylog.cluster.broker import Broker
from raylog.cluster.controller.following import CopyStatus
from raylog.cluster.controller.records import TopicRecord, decode
from raylog.cluster.controller.stub import find_controller
from raylog.storage.names import LOG_SUFFIX
from raylog.storage.records.scan import scan_batches
from raylog.storage.testing.waiting import wait_for
from tests.harness.faults import kill, pid_of

NAMESPACE = "copies"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nodes(start_nodes: Callable[..., Any]) -> Any:
    started = start_nodes()
    started.add("one")
    return started


@pytest.fixture(scope="module")
def broker(nodes: Any) -> Iterator[Broker]:
    running = raylog.start(nodes.log_dirs("head"), namespace=NAMESPACE)
    wait_for(lambda: list(running.nodes().values()) == [None] * 2, 60, "two LogManagers")
    yield running
    running.stop()


def copies() -> tuple[CopyStatus, ...]:
    controller = find_controller(NAMESPACE)
    assert controller is not None
    return controller.metadata_copies().get(30)


def wait_until_in_sync() -> None:
    def are_level() -> bool:
        found = copies()
        ends = {copy.end for copy in found}
        return len(found) == 2 and len(ends) == 1 and all(copy.is_in_sync for copy in found)

    wait_for(are_level, 60, "both copies are in sync", poll_s=0.1)


def metadata(nodes: Any, name: str) -> list[bytes]:
    """The records of the metadata in the log dir of a node."""
    (folder,) = nodes.log_dirs(name)
    files = sorted(Path(folder, "__cluster_metadata-0").glob(f"*{LOG_SUFFIX}"))
    found = []
    for file in files:
        content = file.read_bytes()
        found += list(values_of(content[: scan_batches(content, verify=True).end]))
    return found


def topics(values: list[bytes]) -> set[str]:
    records = map(decode, values)
    return {record.name for record in records if isinstance(record, TopicRecord)}


def log_manager_of(nodes: Any, name: str) -> int:
    [pid] = [one.pid for one in nodes.actors() if (one.node, one.actor) == (name, "LogManager")]
    return int(pid)


def test_both_nodes_have_every_record_when_a_topic_is_created(broker: Broker, nodes: Any) -> None:
    wait_until_in_sync()
    broker.create_topic("t", partitions=2)
    own, copy = metadata(nodes, "head"), metadata(nodes, "one")
    assert topics(copy) == topics(own) == {"t"}
    wait_until_in_sync()
    assert metadata(nodes, "one") == metadata(nodes, "head")


def test_a_node_whose_log_manager_was_killed_follows_again(broker: Broker, nodes: Any) -> None:
    wait_until_in_sync()
    kill(log_manager_of(nodes, "one"))
    broker.create_topic("meanwhile")
    wait_until_in_sync()
    broker.create_topic("afterwards")
    assert {"meanwhile", "afterwards"} <= topics(metadata(nodes, "one"))


def test_the_next_controller_goes_on_with_the_copies_there_are(broker: Broker, nodes: Any) -> None:
    wait_until_in_sync()
    kill(pid_of(broker, CONTROLLER))
    broker.create_topic("of-the-next")
    wait_until_in_sync()
    assert metadata(nodes, "one") == metadata(nodes, "head")


def test_a_node_that_is_away_is_waited_for_ten_seconds_and_follows_again_when_it_is_back(
    broker: Broker, nodes: Any
) -> None:
    wait_until_in_sync()
    nodes.kill("one")
    # Before that the topic may be placed there.
    wait_for(lambda: len(broker.nodes()) == 1, 60, "the Controller has seen it go")
    broker.create_topic("alone")
    assert [copy.is_in_sync for copy in copies()] in ([True], [True, False])
    nodes.add("one")
    wait_until_in_sync()
    assert "alone" in topics(metadata(nodes, "one"))


def test_a_broker_that_is_stopped_in_order_says_so_on_every_disk(
    broker: Broker, nodes: Any
) -> None:
    wait_until_in_sync()
    broker.stop()  # not all of it is in order: a node has gone without its logs being closed
    last = metadata(nodes, "one")
    assert last == metadata(nodes, "head")
    assert b"stopped" in last[-1]
