"""A Controller that must begin over the copy of a node that was started again.

The node has no LogManager then: only a Controller would start one.
"""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raylog
from raylog.actors.node.metadata_copy import NEW_SUFFIX
from raylog.actors.runtime.names import CONTROLLER
from raylog.cluster.broker import Broker
from raylog.cluster.controller.stub import find_controller
from raylog.storage.errors import RaylogError
from raylog.storage.testing.waiting import wait_for
from tests.harness.faults import kill, pid_of, wait_for_another

NAMESPACE = "unattended"
pytestmark = pytest.mark.timeout(400)


def are_in_sync() -> bool:
    controller = find_controller(NAMESPACE)
    assert controller is not None
    found = controller.metadata_copies().get(30)
    return len(found) == 2 and all(copy.is_in_sync for copy in found)


def in_sync(broker: Broker) -> None:
    wait_for(are_in_sync, 60, "both copies are in sync", poll_s=0.1)


def test_ray_knows_that_the_copy_was_not_left_out_and_the_broker_goes_on(
    start_nodes: Callable[..., Any],
) -> None:
    nodes = start_nodes()
    nodes.add("one")
    broker = raylog.start(nodes.log_dirs("head"), namespace=NAMESPACE)
    wait_for(lambda: list(broker.nodes().values()) == [None] * 2, 60, "two LogManagers")
    in_sync(broker)
    (log_dir,) = map(Path, nodes.log_dirs("head"))
    place, backup = log_dir / "__cluster_metadata-0", log_dir.parent / "backup"
    shutil.copytree(place, backup)
    first = pid_of(broker, CONTROLLER)
    kill(first)
    wait_for_another(broker, CONTROLLER, first)
    broker.create_topic("newer")
    in_sync(broker)

    # The disk has an older state of the metadata, and no place for another one.
    second = pid_of(broker, CONTROLLER)
    os.kill(second, signal.SIGSTOP)
    shutil.rmtree(place)
    backup.rename(place)
    blocker = Path(f"{place}{NEW_SUFFIX}")
    blocker.write_bytes(b"no room")
    kill(second)
    nodes.kill("one")
    nodes.add("one")
    blocker.unlink()

    def goes_on() -> bool:
        try:
            broker.create_topic("afterwards")
        except RaylogError:
            return False
        return True

    wait_for(goes_on, 180, "a Controller has begun")
    assert {"newer", "afterwards"} <= set(broker.list_topics())
    broker.stop()
