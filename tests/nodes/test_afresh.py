"""The whole Ray cluster is gone, and another one is started over the same disks. Drivers start
brokers and exit."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import ray

import raylog
from raylog.actors.errors import MetadataIncomplete
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import CONTROLLER, Node
from raylog.actors.runtime.nodes import own_node, pinned_to
from raylog.cluster.broker import Broker
from raylog.storage.testing.waiting import wait_for
from tests.harness.copies import in_sync

NAMESPACE = "afresh"
pytestmark = pytest.mark.timeout(300)
DRIVER = """
import sys, raylog
raylog.start(sys.argv[2:], address=sys.argv[1], namespace="afresh")
"""


def values(broker: Broker) -> list[int]:
    return sorted(int(r.value or b"") for r in broker.consumer("t", from_="earliest", to="latest"))


def controllers_node() -> str:
    handle = find(CONTROLLER, NAMESPACE)
    assert handle is not None
    return str(
        ray.get(
            handle.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id()),
            timeout=30,
        )
    )


def epochs(broker: Broker) -> list[int]:
    return [one.leader_epoch for one in sorted(broker.status(), key=lambda one: one.partition)]


def test_a_cluster_over_old_disks_goes_on_with_them_whoever_starts_the_broker(
    start_nodes: Callable[..., Any],
) -> None:
    nodes = start_nodes()
    one = nodes.add("one")
    task = ray.remote(num_cpus=0)(raylog.start).options(**pinned_to(Node(one)))
    ray.get(task.remote(nodes.log_dirs("one"), namespace=NAMESPACE), timeout=120)
    broker = raylog.connect(namespace=NAMESPACE)
    wait_for(lambda: list(broker.nodes().values()) == [None] * 2, 60, "two LogManagers")
    assert controllers_node() == one
    cluster_id = broker.cluster_id()
    wait_for(lambda: in_sync(broker) == 2, 60, "both nodes have the metadata")
    broker.create_topic("t", partitions=4)
    broker.alter_topic_config("t", {"max.message.bytes": 70_000})
    with broker.producer() as producer:
        for n in range(400):
            producer.send("t", b"%d" % n, partition=n % 4)
    before = epochs(broker)
    nodes.end()

    nodes.begin()  # without the node of the Controller, which may have left the other copy out
    head = own_node().node_id
    with pytest.raises(MetadataIncomplete, match=f"node {one[:8]}"):
        raylog.start(nodes.log_dirs("head"), namespace=NAMESPACE)
    empty = nodes.add("empty")
    with pytest.raises(MetadataIncomplete, match=f"node {one[:8]}"):
        raylog.start(nodes.log_dirs("head"), namespace=NAMESPACE)
    assert find(CONTROLLER, NAMESPACE) is None, "nothing is left running"

    one = nodes.add("one")
    driver = [sys.executable, "-c", DRIVER, nodes.address, *nodes.log_dirs("head")]
    subprocess.run(driver, check=True, timeout=180)  # on the head; and it exits
    broker = raylog.connect(namespace=NAMESPACE)
    assert controllers_node() in (one, head), f"where the metadata is, and not on {empty}"
    assert broker.cluster_id() == cluster_id
    wait_for(lambda: list(broker.nodes().values()) == [None] * 3, 60, "three LogManagers")
    assert values(broker) == list(range(400))
    assert all(new > old for new, old in zip(epochs(broker), before, strict=True))
    assert broker.describe_topic("t").config == {"max.message.bytes": 70_000}
    assert broker.stop()
