"""A node that stands still and is taken for dead, while another one has its disk: never two
writers.

The node's raylet, LogManager and LogActors are stopped (SIGSTOP), Ray calls the node dead, and a
second node comes up over the same folders. They go on (SIGCONT) when the second has long tried to
take them.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import raylog
from raylog.actors.partition.log_actor import LogActor
from raylog.actors.runtime.names import Node
from raylog.actors.runtime.nodes import pinned_to
from raylog.cluster.broker import Broker
from raylog.storage.errors import LogLocked
from raylog.storage.files import RealFileSystem
from raylog.storage.names import TopicPartition
from raylog.storage.records.batch import iter_batches
from raylog.storage.testing.waiting import wait_for
from raylog.storage.tools.verify import verify_folder
from tests.harness.bare_logs import bare_spec, settled

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nodes(start_nodes: Callable[..., Any]) -> Any:
    started = start_nodes()
    started.add("one")
    return started


@pytest.fixture(scope="module")
def broker(nodes: Any) -> Iterator[Broker]:
    running = raylog.start(nodes.log_dirs("head"), namespace="writers")
    wait_for(lambda: list(running.nodes().values()) == [None] * 2, 60, "two LogManagers")
    yield running
    running.stop()


class Producing:
    """A producer that sends numbers, one behind the other, and keeps what was acknowledged."""

    def __init__(self, broker: Broker, partition: int) -> None:
        self.acknowledged: dict[int, int] = {}  # number -> offset
        self._broker, self._partition, self._stop = broker, partition, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        with self._broker.producer(linger_ms=1, delivery_timeout_ms=200_000) as producer:
            while not self._stop.is_set():
                value = b"%d" % number
                self.acknowledged[number] = (
                    producer.send("t", value, partition=self._partition).result(200).offset
                )
                number += 1

    def more(self, records: int) -> None:
        wanted = len(self.acknowledged) + records
        wait_for(lambda: len(self.acknowledged) >= wanted, 120, "more acknowledgements")

    def end(self) -> None:
        self._stop.set()
        self._thread.join(200)
        assert not self._thread.is_alive()


def epochs_in(folder: Path) -> list[int]:
    """The leader epoch of every batch, in the order in which they lie there."""
    contents = [path.read_bytes() for path in sorted(folder.glob("*.log"))]
    return [header.leader_epoch for content in contents for _, header in iter_batches(content)]


def test_while_a_node_stands_still_nobody_else_writes_to_its_logs(
    broker: Broker, nodes: Any, frozen: Any
) -> None:
    created = broker.create_topic("t", partitions=2)
    there = next(place for place in created.partitions if "/one/" in (place.folder or ""))
    partition, folder = TopicPartition("t", there.partition), Path(there.folder or "")
    producing = Producing(broker, there.partition)
    producing.more(200)

    frozen.stop(nodes.pids("one"))
    wait_for(
        lambda: broker.describe_topic("t").partitions[there.partition].problem, 60, "it is away"
    )
    size_bytes = sum(path.stat().st_size for path in folder.glob("*.log"))
    two = nodes.add("two", disk="one")
    wait_for(lambda: "locked" in (broker.nodes().get(two) or ""), 60, "the second node is refused")
    spec = bare_spec(partition, created.topic_id, str(folder))
    intruder: Any = LogActor.options(**pinned_to(Node(two))).remote(spec)  # type: ignore[attr-defined]
    assert isinstance(settled(intruder).problem, LogLocked)
    assert sum(path.stat().st_size for path in folder.glob("*.log")) == size_bytes, "nobody wrote"

    frozen.go_on()
    wait_for(lambda: nodes.has_ended("one"), 60, "its raylet has heard that it is dead, and ends")
    wait_for(lambda: broker.nodes().get(two, "unknown") is None, 120, "the second node takes part")
    producing.more(200)
    producing.end()
    nodes.forget("one")
    serving = [one for one in broker.status() if one.partition == str(partition)]
    assert len(serving) == 1
    assert broker.describe_topic("t").partitions[there.partition].node_id == two

    found = broker.consumer("t", from_="earliest", to="latest", partitions=[there.partition])
    offsets = {int(record.value or b""): record.offset for record in found}
    assert offsets == producing.acknowledged, "all that was acknowledged, where it was said to be"
    assert list(offsets.values()) == list(range(len(offsets))), "in order, and nothing twice"
    assert broker.stop()
    epochs = epochs_in(folder)
    assert epochs == sorted(epochs)
    assert len({*epochs}) == 2
    reports = verify_folder(RealFileSystem(), str(folder))
    assert [(report.problems, report.is_torn) for report in reports] == [((), False)] * len(reports)
