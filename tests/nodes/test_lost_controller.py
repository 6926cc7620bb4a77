"""The node of the Controller is lost: the broker goes on with another Controller."""

from collections.abc import Callable
from typing import Any

import pytest
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import raylog
from raylog.cluster.broker import Broker
from raylog.storage.testing.waiting import wait_for
from tests.harness.copies import in_sync

WITHIN_S = 90


def start_on(node_id: str, log_dirs: list[str], namespace: str) -> Broker:
    """Start a broker from a node: a new cluster's Controller begins there."""

    @ray.remote(num_cpus=0)
    def start() -> None:
        raylog.start(log_dirs, namespace=namespace)

    affinity = NodeAffinitySchedulingStrategy(node_id, soft=False)
    ray.get(start.options(scheduling_strategy=affinity).remote())
    return raylog.connect(namespace=namespace)


def controllers_node(broker: Broker) -> str | None:
    """Ray's id of the node where the Controller answers; None while it does not."""
    try:
        return broker.admin().describe_cluster(timeout_s=5).result().controller_node_id
    except raylog.errors.RaylogError:
        return None


def fill(broker: Broker, topic: str, partitions: int) -> None:
    broker.create_topic(topic, partitions=partitions)
    with broker.producer() as producer:
        for n in range(100 * partitions):
            producer.send(topic, b"%d" % n, partition=n % partitions)


@pytest.mark.timeout(400)
def test_the_broker_goes_on_without_the_controllers_node_and_its_disk(
    start_nodes: Callable[..., Any],
) -> None:
    """The old disk comes back later: it is brought up to date, and takes nothing back."""
    nodes = start_nodes()
    one = nodes.add("one")
    nodes.add("two")
    broker = start_on(one, nodes.log_dirs("head"), "lost-disk")
    wait_for(lambda: list(broker.nodes().values()) == [None] * 3, 60, "three LogManagers")
    assert controllers_node(broker) == one
    fill(broker, "before", 3)
    wait_for(lambda: in_sync(broker) == 3, 60, "three copies are in sync")
    nodes.kill("one")
    wait_for(lambda: controllers_node(broker) not in (None, one), WITHIN_S, "another Controller")
    away = next(
        place.partition
        for place in broker.describe_topic("before").partitions
        if place.node_id is None
    )
    here = [number for number in range(3) if number != away]
    found = broker.consumer("before", from_="earliest", to="latest", partitions=here)
    assert len(list(found)) == 200
    fill(broker, "meanwhile", 2)
    nodes.add("one")
    wait_for(lambda: list(broker.nodes().values()) == [None] * 3, WITHIN_S, "its node is back")
    wait_for(lambda: in_sync(broker) == 3, WITHIN_S, "the old disk is brought up to date")
    assert len(list(broker.consumer("before", from_="earliest", to="latest"))) == 300
    assert len(list(broker.consumer("meanwhile", from_="earliest", to="latest"))) == 200
    assert broker.stop()
