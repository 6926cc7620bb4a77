"""Nodes that carry the label ``raylog/log-node``: their actors wait for them, the Controller, too.
The broker is started by a process on one of them, that ends."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import raylog
from raylog.actors.runtime.handles import find, running
from raylog.actors.runtime.names import CONTROLLER, Node, log_actor_name
from raylog.actors.runtime.nodes import pinned_to
from raylog.cluster.broker import Broker
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition
from raylog.storage.testing.waiting import wait_for

NAMESPACE = "labels"
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def nodes(start_nodes: Callable[..., Any]) -> Any:
    return start_nodes(has_labels=True)


@pytest.fixture(scope="module")
def broker(nodes: Any) -> Iterator[Broker]:
    one = nodes.add("one")
    task = ray.remote(num_cpus=0)(raylog.start).options(**pinned_to(Node(one)))
    ray.get(task.remote(nodes.log_dirs("one"), namespace=NAMESPACE), timeout=120)
    running = raylog.connect(namespace=NAMESPACE)
    wait_for(lambda: list(running.nodes().values()) == [None] * 2, 60, "two LogManagers")
    yield running
    running.stop()


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.consumer(topic, from_="earliest", to="latest")]


def is_answered(question: Callable[[], object]) -> bool:
    try:
        return bool(question())
    except RaylogError:
        return False


def is_removed(folder: Path, partition: int) -> bool:
    """Whether the folder is gone, or is the one of a new partition in its place."""
    doomed = folder.parent.glob(f"anew-{partition}.*-delete")
    return not folder.exists() or any(doomed)


def was_started_again(actor: Any) -> bool:
    context = actor.__ray_call__.remote(
        lambda _: ray.get_runtime_context().was_current_actor_reconstructed
    )
    return bool(ray.get(context, timeout=30))


def test_actors_are_named_by_their_nodes_label(broker: Broker) -> None:
    assert {"LogManager:head", "LogManager:one"} <= running(NAMESPACE)


def test_a_node_that_comes_back_under_a_new_id_has_the_same_actors_with_the_same_records(
    broker: Broker, nodes: Any
) -> None:
    created = broker.create_topic("kept", partitions=2)
    there = next(place for place in created.partitions if "/one/" in (place.folder or ""))
    actor = find(log_actor_name(TopicPartition("kept", there.partition)), NAMESPACE)
    assert actor is not None
    with broker.producer() as producer:
        for n in range(200):
            producer.send("kept", b"%d" % n, partition=n % 2)
    epoch = ray.get(actor.status.remote(), timeout=30).leader_epoch

    def place_of() -> Any:
        return broker.describe_topic("kept").partitions[there.partition]

    nodes.kill("one")
    # The Controller was there; its process outlives the node's by a moment.
    wait_for(
        lambda: is_answered(lambda: place_of().node_id is None),
        60,
        "the next Controller, on the other node, has seen it go",
    )
    with broker.producer(delivery_timeout_ms=120_000, enable_idempotence=False) as producer:
        assert producer.send("kept", b"200", partition=1 - there.partition).result().offset == 100
        waiting = producer.send("kept", b"201", partition=there.partition)
        new = nodes.add("one")
        assert waiting.result().offset == 100

    wait_for(
        lambda: is_answered(lambda: place_of().node_id == new), 60, "the Controller has it there"
    )
    assert (place_of().directory_id, place_of().folder) == (there.directory_id, there.folder)
    assert ray.get(actor.status.remote(), timeout=30).leader_epoch > epoch, (
        "the same actor, in a new epoch"
    )
    assert was_started_again(find(CONTROLLER, NAMESPACE)), "the Controller is the same actor, too"
    assert sorted(int(value or b"") for value in values(broker, "kept")) == list(range(202))


def test_of_two_nodes_with_one_label_the_second_is_refused_and_its_disk_not_touched(
    broker: Broker, nodes: Any
) -> None:
    nodes.add("two")
    wait_for(lambda: list(broker.nodes().values()) == [None] * 3, 60, "three LogManagers")
    broker.create_topic("guarded", partitions=6)
    with broker.producer() as producer:
        for n in range(60):
            producer.send("guarded", b"%d" % n, partition=n % 6)
    double = nodes.add("double", disk="elsewhere", label="two")
    wait_for(lambda: broker.nodes().get(double), 60, "the problem is named")
    assert "raylog/log-node=two" in (broker.nodes()[double] or "")
    (log_dir,) = nodes.log_dirs("elsewhere")
    assert not Path(log_dir).exists()

    for place in broker.describe_topic("guarded").partitions:  # wherever Ray starts them again
        ray.kill(
            find(log_actor_name(TopicPartition("guarded", place.partition)), NAMESPACE),
            no_restart=False,
        )
    ray.kill(find("LogManager:two", NAMESPACE), no_restart=False)
    assert sorted(int(value or b"") for value in values(broker, "guarded")) == list(range(60))
    nodes.kill("double")
    wait_for(lambda: list(broker.nodes().values()) == [None] * 3, 60, "no problem is left")
    nodes.kill("two")
    wait_for(lambda: len(broker.nodes()) == 2, 60, "the Controller has seen it go")


def test_a_topic_that_was_deleted_and_made_anew_while_its_node_was_away_begins_empty(
    broker: Broker, nodes: Any
) -> None:
    nodes.add("two")
    wait_for(lambda: list(broker.nodes().values()) == [None] * 3, 60, "three LogManagers")
    created = broker.create_topic("anew", partitions=3)
    there = next(place for place in created.partitions if "/two/" in (place.folder or ""))
    with broker.producer() as producer:
        producer.send("anew", b"old", partition=there.partition).result()
    nodes.kill("two")
    wait_for(lambda: len(broker.nodes()) == 2, 60, "the Controller has seen it go")
    broker.delete_topic("anew")
    assert all(
        place.problem is None for place in broker.create_topic("anew", partitions=3).partitions
    )
    nodes.add("two")
    wait_for(lambda: list(broker.nodes().values()) == [None] * 3, 60, "three LogManagers")
    folder = Path(there.folder or "")
    wait_for(lambda: is_removed(folder, there.partition), 60, "the old folder is removed")
    assert list(folder.parent.glob("*-stray")) == []
    assert values(broker, "anew") == []
