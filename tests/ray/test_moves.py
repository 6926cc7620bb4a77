"""Partitions that move between the log dirs of their node while they are written and read."""

import os
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import ray

import raylog
from raylog.actors.control import LogId
from raylog.actors.errors import InvalidRequest, UnknownTopicOrPartition
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import log_manager_name
from raylog.actors.runtime.nodes import own_node_id
from raylog.cluster.broker import Broker
from raylog.storage.files import RealFileSystem
from raylog.storage.names import TopicPartition
from raylog.storage.state.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS, read_offsets
from raylog.storage.testing.waiting import wait_for


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in "ab"]


@pytest.fixture
def broker(local_ray: None, dirs: list[Path]) -> Iterator[Broker]:
    config = {"log.segment.delete.delay.ms": 0}
    running = raylog.start(
        [str(path) for path in dirs], config=config, namespace=f"moves-{uuid.uuid4().hex[:8]}"
    )
    yield running
    assert running.stop(), "the broker stops in order"


class Writer(threading.Thread):
    """Sends numbers, one by one acknowledged, until it is told to stop."""

    def __init__(self, broker: Broker, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer, self._topic = broker.producer(delivery_timeout_ms=120_000), topic
        self.acknowledged: list[int] = []
        self._enough = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._enough.is_set():
            self._producer.send(self._topic, b"%d" % number, partition=0)
            self._producer.flush()
            self.acknowledged.append(number)
            number += 1

    def write(self, count: int) -> None:
        """Return when so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        wait_for(lambda: len(self.acknowledged) >= wanted, 60, "more records are acknowledged")

    def stop(self) -> list[int]:
        self._enough.set()
        self.join(120)
        assert not self.is_alive(), "the writer comes to its end"
        self._producer.close()
        return self.acknowledged


def numbers(broker: Broker, topic: str) -> list[int]:
    with broker.consumer(topic, from_="earliest", to="latest") as consumer:
        return [int((record.value or b"")[:9]) for record in consumer]


def folder(broker: Broker, topic: str) -> Path:
    return Path(str(broker.describe_topic(topic).partitions[0].folder))


def folders(path: Path) -> list[str]:
    return sorted(
        entry.name for entry in path.iterdir() if entry.is_dir() and "metadata" not in entry.name
    )


def test_every_acknowledged_record_is_there_once_in_order_while_the_partition_moves_to_and_fro(
    broker: Broker, dirs: list[Path]
) -> None:
    broker.create_topic("orders", 1)
    home = folder(broker, "orders").parent
    away = next(path for path in dirs if path != home)
    writer = Writer(broker, "orders")
    writer.start()
    for target in (away, home, away):
        writer.write(5)
        moved = broker.move_partition("orders", 0, str(target))
        assert moved.folder == str(target / "orders-0")
    acknowledged = writer.stop()
    assert numbers(broker, "orders") == acknowledged
    assert folder(broker, "orders") == away / "orders-0"
    wait_for(lambda: folders(home) == [], 60, "the old folder is removed")
    wait_for(lambda: folders(away) == ["orders-0"], 60, "the first move's copy is removed, too")


def test_checkpoints_move_along_and_a_move_to_where_it_is_does_nothing(
    broker: Broker, dirs: list[Path]
) -> None:
    broker.create_topic("orders", 1, {"cleanup.policy": "compact,delete"})
    home = folder(broker, "orders").parent
    away = next(path for path in dirs if path != home)
    with broker.producer() as producer:
        for number in range(10):
            producer.send("orders", b"%d" % number, key=b"k", partition=0)
    manager = find(log_manager_name(own_node_id()), broker.namespace)
    assert manager is not None
    topic = broker.describe_topic("orders")
    log = LogId(partition=TopicPartition("orders", 0), topic_id=topic.topic_id)
    ray.get(manager.record_cleaner_offset.remote(log, 4), timeout=60)
    described = topic.partitions[0]
    assert broker.move_partition("orders", 0, str(home) + "/") == described
    moved = broker.move_partition(
        "orders", 0, next(d.directory_id for d in broker.log_dirs() if d.path == str(away))
    )
    assert moved.folder == str(away / "orders-0")
    partition, fs = TopicPartition("orders", 0), RealFileSystem()
    assert read_offsets(fs, str(away / RECOVERY_POINTS))[partition] == 10
    assert read_offsets(fs, str(away / CLEANER_OFFSETS)) == {partition: 4}
    wait_for(
        lambda: read_offsets(fs, str(home / CLEANER_OFFSETS)) == {},
        60,
        "the old log dir has forgotten it",
        poll_s=0.05,
    )
    assert ray.get(manager.cleaner_offsets.remote(), timeout=60) == {partition: 4}
    assert folder(broker, "orders") == Path(str(moved.folder))
    assert numbers(broker, "orders") == list(range(10))


def test_what_cannot_be_moved_is_refused_by_name(broker: Broker, dirs: list[Path]) -> None:
    broker.create_topic("orders", 1)
    with pytest.raises(InvalidRequest, match=f"/elsewhere.*usable: .*{dirs[0]}"):
        broker.move_partition("orders", 0, "/elsewhere")
    with pytest.raises(UnknownTopicOrPartition):
        broker.move_partition("orders", 1, str(dirs[0]))
    with pytest.raises(UnknownTopicOrPartition):
        broker.move_partition("nothing", 0, str(dirs[0]))


@pytest.mark.timeout(300)
def test_a_log_manager_that_is_killed_in_the_middle_of_a_copy_loses_nothing(
    local_ray: None, dirs: list[Path]
) -> None:
    """The move was written down: the next life of the LogManager goes on with it."""
    config = {
        "log.segment.delete.delay.ms": 0,
        "replica.alter.log.dirs.io.max.bytes.per.second": 1_000_000,  # the copy takes 10 s
    }
    paths = [str(path) for path in dirs]
    with raylog.start(paths, config=config, namespace=f"moves-{uuid.uuid4().hex[:8]}") as broker:
        broker.create_topic("orders", 1)
        home = folder(broker, "orders").parent
        away = next(path for path in dirs if path != home)
        with broker.producer() as producer:
            for _ in range(20):
                producer.send("orders", b"0" * 500_000, partition=0)
        with ThreadPoolExecutor(1) as pool:
            moving = pool.submit(broker.move_partition, "orders", 0, str(away))
            wait_for(
                lambda: any(name.endswith("-future") for name in folders(away)),
                60,
                "the copy has begun",
            )
            manager = find(log_manager_name(own_node_id()), broker.namespace)
            assert manager is not None
            pid = ray.get(manager.__ray_call__.remote(lambda _: os.getpid()), timeout=60)
            psutil.Process(pid).kill()
            assert len(numbers(broker, "orders")) == 20, "it is read meanwhile"
            with broker.producer() as producer:
                producer.send("orders", b"1", partition=0)
            assert moving.result(180).folder == str(away / "orders-0")
        wait_for(lambda: folders(home) == [], 60, "the old folder is removed")
        assert folders(away) == ["orders-0"]
        assert len(numbers(broker, "orders")) == 21
