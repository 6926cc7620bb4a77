"""One of three nodes is drained, stopped and started again while the others serve."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray

import raylog
from raylog.actors.errors import NotLeader, ProduceFailed
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import CONTROLLER
from raylog.cluster.broker import Broker
from raylog.cluster.controller.node_states import NodeDescription
from raylog.cluster.health.findings import notes
from raylog.cluster.health.gathering import gather_facts
from raylog.storage.errors import RaylogError
from raylog.storage.testing.waiting import wait_for
from tests.harness.shell import run_here

NAMESPACE = "operated"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nodes(start_nodes: Callable[..., Any]) -> Any:
    started = start_nodes(has_labels=True)
    started.add("one")
    started.add("two")
    return started


@pytest.fixture(scope="module")
def broker(nodes: Any) -> Iterator[Broker]:
    running = raylog.start(nodes.log_dirs("head"), namespace=NAMESPACE)
    wait_for(lambda: list(running.nodes().values()) == [None] * 3, 60, "three LogManagers")
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def online(broker: Broker) -> Iterator[None]:
    """Whatever a test leaves, the next one finds every node online."""
    yield
    for found in broker.describe_nodes():
        if found.state != "online":
            broker.start_node(found.node)


def home(folder: str | None) -> str:
    """The node's name, of a partition's folder."""
    return Path(folder or "").parent.parent.name


def node(broker: Broker, name: str) -> NodeDescription:
    return next(found for found in broker.describe_nodes() if found.node == name)


def homes_of(broker: Broker, topic: str) -> dict[int, str]:
    return {
        place.partition: home(place.folder) for place in broker.describe_topic(topic).partitions
    }


def why_away(broker: Broker, topic: str, partition: int) -> str:
    """What who asks for a partition is told."""
    try:
        broker.partition(topic, partition, timeout_s=0)
    except NotLeader as error:
        return str(error)
    return ""


def produce_until(done: "Future[Any]", broker: Broker, topic: str, partitions: list[int]) -> int:
    """Send a record to each partition, again and again; how many each got."""
    count = 0
    with broker.producer() as producer:
        while not done.done():
            for partition in partitions:
                producer.send(topic, b"%d" % count, partition=partition).result()
            count += 1
    return count


def test_one_node_is_stopped_and_started_while_the_others_serve(broker: Broker, nodes: Any) -> None:
    broker.create_topic("t", partitions=6)
    homes = homes_of(broker, "t")
    away = [partition for partition, name in homes.items() if name == "one"]
    here = [partition for partition, name in homes.items() if name != "one"]
    assert len(away) == 2
    with broker.producer() as producer:
        for n in range(300):
            producer.send("t", b"%d" % n, partition=away[n % 2])

    with ThreadPoolExecutor() as pool:
        stopping = pool.submit(broker.stop_node, "one")
        sent = produce_until(stopping, broker, "t", here)
    stopped = stopping.result()
    assert (stopped.state, stopped.was_clean, stopped.waits_for) == ("stopped", True, "")
    (log_dir,) = nodes.log_dirs("one")
    assert (Path(log_dir) / ".kafka_cleanshutdown").exists(), "the next start recovers nothing"
    points = (Path(log_dir) / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert {f"t {partition} 150" for partition in away} <= set(points)
    wait_for(
        lambda: [process for process in nodes.actors() if process.node == "one"] == [],
        30,
        "no actor is left there",
    )

    # The others serve, clients learn why these do not, and nothing is wrong.
    found = list(broker.consumer("t", from_="earliest", to="latest", partitions=here))
    assert len(found) == sent * len(here)
    wait_for(lambda: "raylog node start one" in why_away(broker, "t", away[0]), 30, "clients learn")
    with broker.producer(delivery_timeout_ms=4_000, request_timeout_ms=2_000) as producer:
        refused = producer.send("t", b"in vain", partition=away[0])
        with pytest.raises(ProduceFailed, match="raylog node start one"):
            refused.result()
    wait_for(lambda: broker.health() == [], 30, "nothing is wrong")
    (note,) = notes(gather_facts(NAMESPACE))
    assert (note.severity, note.subject) == ("info", "node one")

    # A new Controller knows it.
    controller = find(CONTROLLER, NAMESPACE)
    ray.kill(controller, no_restart=False)
    assert broker.stop_node("one").state == "stopped"

    started = broker.start_node("one")
    assert (started.state, started.serving, started.not_serving) == ("online", 2, {})
    assert not (Path(log_dir) / ".kafka_cleanshutdown").exists()
    found = list(broker.consumer("t", from_="earliest", to="latest", partitions=away))
    assert sorted(int(record.value or b"") for record in found) == list(range(300))
    reports = [status.report for status in broker.status()]
    assert all(report.totals == () for report in reports), "nothing had to be mended"


def test_a_drained_node_serves_what_it_has_and_gets_no_new_partition(broker: Broker) -> None:
    drained = broker.drain_node("two")
    assert (drained.state, drained.waits_for) == ("draining", "")
    broker.create_topic("elsewhere", partitions=4)
    assert "two" not in homes_of(broker, "elsewhere").values()
    assert node(broker, "two").serving == node(broker, "two").wanted
    assert broker.drain_node("two", undo=True).state == "online"
    broker.create_topic("again", partitions=3)
    assert "two" in homes_of(broker, "again").values()


def test_the_node_of_the_controller_is_stopped_and_the_controller_goes_on(broker: Broker) -> None:
    stopped = broker.stop_node("head")
    assert (stopped.state, stopped.was_clean) == ("stopped", True)
    assert "head" not in {
        home(place.folder) for place in broker.create_topic("without", partitions=4).partitions
    }
    listed = run_here("node", "list", "--namespace", NAMESPACE)
    assert [line.split("\t")[:3:2] for line in listed.lines()[1:]] == [
        ["head", "stopped"],
        ["one", "online"],
        ["two", "online"],
    ]
    assert broker.start_node("head").not_serving == {}


def test_a_stopped_node_whose_machine_starts_again_stays_stopped(
    broker: Broker, nodes: Any
) -> None:
    assert broker.stop_node("one").state == "stopped"
    nodes.kill("one")
    wait_for(lambda: node(broker, "one").node_id is None, 60, "the Controller has seen it go")
    nodes.add("one")
    wait_for(lambda: node(broker, "one").node_id is not None, 60, "and come back")
    assert node(broker, "one").state == "stopped"
    assert [process for process in nodes.actors() if process.node == "one"] == []
    assert broker.start_node("one").not_serving == {}


def test_a_broker_that_is_started_again_keeps_a_node_stopped(broker: Broker, nodes: Any) -> None:
    broker.stop_node("two")
    assert broker.stop()
    again = raylog.start(nodes.log_dirs("head"), namespace=NAMESPACE)
    assert node(again, "two").state == "stopped"

    def is_serving() -> bool:
        try:
            return again.start_node("two").not_serving == {}
        except RaylogError:
            return False

    assert is_serving()
