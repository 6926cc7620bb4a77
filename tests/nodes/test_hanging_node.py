"""Two nodes, and the LogManager of one hangs, or is away: what is not on that node goes on.

Numbers 10 and 16 of issue 12.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import raylog
from raylog.actors.runtime.names import CONTROLLER
from raylog.cluster.broker import Broker
from raylog.cluster.controller.describe import PartitionDescription
from raylog.storage.testing.waiting import wait_for
from tests.harness.faults import (
    DEADLINE_S,
    folders_of,
    hanging,
    kill,
    pid_of,
    send,
    strays,
    values,
    wait_for_another,
    wait_until,
)
from tests.harness.nodes import Nodes

pytestmark = pytest.mark.timeout(400)

# An answer that waits for the LogManager that hangs would take 30 s at least.
PROMPT_S = 10.0


@pytest.fixture(scope="module")
def nodes(start_nodes: Callable[..., Nodes]) -> Nodes:
    started = start_nodes()
    started.add("one")
    return started


@pytest.fixture(scope="module")
def broker(nodes: Nodes) -> Iterator[Broker]:
    running = raylog.start(nodes.log_dirs("head"), namespace="hanging")
    wait_until(lambda: list(running.nodes().values()) == [None] * 2, "two LogManagers")
    yield running
    running.stop()


@pytest.fixture
def topic(broker: Broker, nodes: Nodes) -> str:
    """One with a partition on each node, both of which serve."""
    wait_until(lambda: list(broker.nodes().values()) == [None] * 2, "both nodes take part")
    name = f"topic-{uuid.uuid4().hex[:8]}"
    made = broker.create_topic(name, 2)
    assert sorted(map(home, made.partitions)) == ["head", "one"]
    for partition in range(2):
        send(broker, name, b"before", partition=partition)
    return name


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    threads = ThreadPoolExecutor(4)
    yield threads
    threads.shutdown(wait=False, cancel_futures=True)


def home(place: PartitionDescription) -> str:
    """The name of the node whose disk has the partition."""
    return Path(str(place.folder)).parent.parent.name


def manager_of(nodes: Nodes, name: str) -> int:
    """The process of the node's LogManager."""
    [pid] = [one.pid for one in nodes.actors() if (one.node, one.actor) == (name, "LogManager")]
    return pid


def promptly(question: Callable[[], Any]) -> Any:
    """The answer, which comes at once."""
    began = time.monotonic()
    answer = question()
    assert time.monotonic() - began < PROMPT_S
    return answer


def look_up(broker: Broker, topic: str) -> None:
    """All look-ups are answered at once."""
    assert topic in promptly(broker.list_topics)
    assert len(promptly(lambda: broker.describe_topic(topic)).partitions) == 2
    assert len(promptly(broker.nodes)) == 2
    assert promptly(broker.log_dirs)
    connection = broker.connection()
    metadata = connection.metadata(topic, timeout_s=PROMPT_S).result()
    assert len(metadata.partitions) == 2


def check_control(broker: Broker, topic: str, pool: ThreadPoolExecutor) -> None:
    """What is not the hanging node's goes on; the node is shown, and gets nothing new."""
    look_up(broker, topic)
    connection = broker.connection()
    ids = [connection.new_producer_id(timeout_s=PROMPT_S).result() for _ in range(3)]
    assert len(set(ids)) == 3
    for partition in range(2):
        send(broker, topic, b"meanwhile", partition=partition)
    wait_until(lambda: sum(map(bool, broker.nodes().values())) == 1, "the node is shown")
    name = f"elsewhere-{uuid.uuid4().hex[:8]}"
    made = pool.submit(broker.create_topic, name, 2).result(DEADLINE_S)
    assert [home(place) for place in made.partitions] == ["head"] * 2
    send(broker, name, b"new", partition=1)
    look_up(broker, topic)
    broker.delete_topic(name)


def test_a_log_manager_that_hangs_stops_nothing_but_its_own_nodes_changes(
    broker: Broker, nodes: Nodes, topic: str, pool: ThreadPoolExecutor
) -> None:
    with hanging(manager_of(nodes, "one")):
        check_control(broker, topic, pool)
    wait_until(lambda: list(broker.nodes().values()) == [None] * 2, "it takes part again")
    assert Counter(values(broker, topic)) == {b"before": 2, b"meanwhile": 2}


def test_a_controller_starts_again_while_a_log_manager_hangs(
    broker: Broker, nodes: Nodes, topic: str, pool: ThreadPoolExecutor
) -> None:
    controller = pid_of(broker, CONTROLLER)
    with hanging(manager_of(nodes, "one")):
        kill(controller)
        wait_for_another(broker, CONTROLLER, controller)
        wait_until(lambda: topic in broker.list_topics(), "look-ups are answered")
        wait_until(lambda: len(broker.nodes()) == 2, "it knows both nodes")
        check_control(broker, topic, pool)
    wait_until(lambda: list(broker.nodes().values()) == [None] * 2, "it takes part again")
    assert Counter(values(broker, topic)) == {b"before": 2, b"meanwhile": 2}


def test_what_is_deleted_while_its_log_manager_hangs_goes_when_it_is_back(
    broker: Broker, nodes: Nodes, topic: str, pool: ThreadPoolExecutor
) -> None:
    [disk] = nodes.log_dirs("one")
    with hanging(manager_of(nodes, "one")):
        deleting = pool.submit(broker.delete_topic, topic)
        wait_until(lambda: topic not in broker.list_topics(), "the topic is gone")
    deleting.result(DEADLINE_S)
    wait_for(lambda: not folders_of(disk, topic), DEADLINE_S, "its folder is removed")
    assert strays(disk) == []


def test_what_is_deleted_while_its_node_is_away_goes_when_it_is_back(
    broker: Broker, nodes: Nodes, topic: str, pool: ThreadPoolExecutor
) -> None:
    """The Controller dies meanwhile: who comes after it knows what is still to be removed."""
    [disk] = nodes.log_dirs("one")
    nodes.kill("one")
    wait_until(lambda: len(broker.nodes()) == 1, "the Controller has seen it go")
    controller = pid_of(broker, CONTROLLER)
    deleting = pool.submit(broker.delete_topic, topic)
    wait_until(lambda: topic not in broker.list_topics(), "the topic is gone")
    kill(controller)
    wait_for_another(broker, CONTROLLER, controller)
    nodes.add("one")
    with suppress(raylog.RaylogError):
        deleting.result(DEADLINE_S)
    wait_for(lambda: not folders_of(disk, topic), DEADLINE_S, "its folder is removed")
    assert strays(disk) == []
    assert topic not in broker.list_topics()
