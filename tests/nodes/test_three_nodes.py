"""Three Ray nodes on one machine, each with log dirs of its own: placement, a killed node, its
return."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import raylog
from raylog.actors.errors import NotLeader, ProduceFailed
from raylog.cluster.broker import Broker
from raylog.storage.testing.waiting import wait_for


@pytest.fixture(scope="module")
def nodes(start_nodes: Callable[..., Any]) -> Any:
    started = start_nodes()
    started.add("one")
    started.add("two")
    return started


@pytest.fixture(scope="module")
def broker(nodes: Any) -> Iterator[Broker]:
    running = raylog.start(nodes.log_dirs("head"), namespace="three")
    wait_for(lambda: list(running.nodes().values()) == [None] * 3, 60, "three LogManagers")
    yield running
    running.stop()


def home(folder: str | None) -> str:
    """The node's name, of a partition's folder."""
    return Path(folder or "").parent.parent.name


def test_partitions_are_spread_over_the_nodes_each_on_its_own_disk(broker: Broker) -> None:
    created = broker.create_topic("spread", partitions=6)
    assert Counter(home(place.folder) for place in created.partitions) == {
        "head": 2,
        "one": 2,
        "two": 2,
    }
    assert len({place.node_id for place in created.partitions}) == 3
    with broker.producer() as producer:
        for n in range(600):
            producer.send("spread", b"%d" % n, partition=n % 6)
    found = list(broker.consumer("spread", from_="earliest", to="latest"))
    assert sorted(int(record.value or b"") for record in found) == list(range(600))


@pytest.mark.timeout(240)
def test_a_killed_nodes_partitions_are_away_and_come_back_with_its_disk(
    broker: Broker, nodes: Any
) -> None:
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
        lambda: broker.describe_topic("moved").partitions[away].node_id,
        60,
        "the Controller hears of it, too",
    )
    place = broker.describe_topic("moved").partitions[away]
    assert home(place.folder) == "two"
    assert place.node_id != old_node, "under a new node id"
    found = broker.consumer("moved", from_="earliest", to="latest", partitions=[away])
    values = [record.value for record in found]
    assert values == [b"%d" % n for n in range(300) if n % 3 == away] + [b"sent while away"]


@pytest.mark.timeout(240)
def test_a_config_that_was_changed_while_a_node_was_away_counts_when_it_is_back(
    broker: Broker, nodes: Any
) -> None:
    created = broker.create_topic("altered", partitions=3)
    away = next(place.partition for place in created.partitions if home(place.folder) == "two")
    nodes.kill("two")
    wait_for(lambda: len(broker.nodes()) == 2, 60, "the Controller has seen it go")
    broker.alter_topic_config("altered", {"max.message.bytes": 500})
    nodes.add("two")
    with broker.producer(delivery_timeout_ms=120_000) as producer:
        assert producer.send("altered", b"small", partition=away).result().offset == 0
        with pytest.raises(ProduceFailed, match="500"):
            producer.send("altered", b"large" * 200, partition=away).result()


def test_a_new_topic_avoids_a_node_that_is_away(broker: Broker, nodes: Any) -> None:
    nodes.kill("one")
    wait_for(lambda: len(broker.nodes()) == 2, 60, "the Controller has seen it go")
    broker.create_topic("elsewhere", partitions=2)
    assert "one" not in {
        home(place.folder) for place in broker.describe_topic("elsewhere").partitions
    }
    nodes.add("one")
    wait_for(
        lambda: all(p.node_id for p in broker.describe_topic("spread").partitions),
        60,
        "its partitions are back",
    )
    found = list(broker.consumer("spread", from_="earliest", to="latest"))
    assert len(found) == 600
