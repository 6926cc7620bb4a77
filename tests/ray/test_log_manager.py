"""A LogManager, made in the test's own process with real LogActors: adoption, checkpoints,
deletion, the end."""

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from raylog.actors.errors import NotLeader
from raylog.actors.messages import DESIRED_VERSIONS_VERSION, DesiredVersions, NodeState
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.log_manager import LogManagerImpl
from raylog.actors.partition.log_actor import LogActor, LogSpec
from raylog.actors.runtime.handles import create, find, kill, running
from raylog.actors.runtime.names import log_actor_name
from raylog.actors.runtime.nodes import own_node, own_node_id
from raylog.storage.config import LogConfig
from raylog.storage.errors import DiskFull
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import create_log
from raylog.storage.log_dir import LogDir
from raylog.storage.names import TopicPartition
from raylog.storage.records.encode import encode_records
from raylog.storage.state.checkpoints import RECOVERY_POINTS, read_offsets
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.state.properties import CLEAN_SHUTDOWN, random_id
from raylog.storage.testing.waiting import wait_for

ORDERS, OTHERS = TopicPartition("orders", 0), TopicPartition("others", 0)
CLUSTER, NEW, OLD = random_id(), random_id(), random_id()


class Node:
    """A LogManager, and what lies on its disk and runs in its namespace."""

    def __init__(self, log_dir: str, **config: Any) -> None:
        self.log_dir, self.namespace = log_dir, f"node-{uuid.uuid4().hex[:8]}"
        self._config = BrokerConfig.parse({"log.dirs": [log_dir], **config})
        self.manager = self.another()

    def another(self) -> LogManagerImpl:
        """A LogManager as it is before its start."""
        return LogManagerImpl(self.namespace, CLUSTER, 1, self._config)

    def make(self, partition: TopicPartition = ORDERS, topic_id: str = NEW) -> None:
        self.manager.create_partition(partition, topic_id)
        self.manager.open_partition(partition, topic_id, LogConfig())

    def open(self, partition: TopicPartition = ORDERS, topic_id: str = NEW) -> None:
        self.manager.open_partition(partition, topic_id, LogConfig())

    def actor(self, partition: TopicPartition = ORDERS) -> Any:
        return find(log_actor_name(partition), self.namespace)

    def ask(self, method: str, *arguments: Any, partition: TopicPartition = ORDERS) -> Any:
        return ray.get(getattr(self.actor(partition), method).remote(*arguments), timeout=60)

    def append(self, count: int = 1, partition: TopicPartition = ORDERS) -> None:
        rows = [(int(time.time() * 1000), None, b"x", ())] * count
        self.ask("append", bytes(encode_records(rows)), partition=partition)

    def intrude(
        self, folder: Path, partition: TopicPartition = ORDERS, topic_id: str = OLD
    ) -> None:
        """Another topic's LogActor, under the name that the partition's will have."""
        create_log(RealFileSystem(), str(folder), topic_id)
        spec = LogSpec(
            partition, topic_id, str(folder), LogConfig(), False, ProducerExpiration(1000)
        )
        create(LogActor, log_actor_name(partition), self.namespace, own_node(), spec)
        serving = self.ask("serving", partition=partition)
        assert serving[:3] == (topic_id, str(folder), own_node_id())

    def recovery_points(self) -> dict[TopicPartition, int]:
        return read_offsets(RealFileSystem(), f"{self.log_dir}/{RECOVERY_POINTS}")


@pytest.fixture
def node(local_ray: None, log_dir: str) -> Iterator[Node]:
    made = Node(log_dir)
    made.manager.start()
    yield made
    made.manager.shutdown()
    wait_for(lambda: not running(made.namespace), 30, "all actors have ended")


# -- the end ---------------------------------------------------------------------------------------


def test_a_stop_that_cannot_write_its_checkpoints_leaves_no_actor_no_lock_and_no_marker(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.make()
    node.append(3)

    def full(*_: object) -> None:
        raise DiskFull(node.log_dir)

    with monkeypatch.context() as patch:
        patch.setattr(LogDir, "write_recovery_points", full)
        assert not node.manager.shutdown()
    wait_for(lambda: not running(node.namespace), 30, "the LogActor has ended")
    assert not Path(node.log_dir, CLEAN_SHUTDOWN).exists()
    node.manager = node.another()
    node.manager.start()
    node.open()
    assert node.ask("offsets").log_end_offset == 3
    node.append()


def test_a_dir_whose_marker_cannot_be_written_is_unlocked_all_the_same(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DiskFull(node.log_dir)

    with monkeypatch.context() as patch:
        patch.setattr(RealFileSystem, "write_file", full)
        assert not node.manager.shutdown()
    node.manager = node.another()
    node.manager.start()


def test_a_log_manager_that_stops_takes_no_more_work(node: Node) -> None:
    node.make()
    assert node.manager.shutdown()
    for work in (
        node.manager.start,
        node.make,
        node.open,
        lambda: node.manager.delete_partition(ORDERS, NEW),
        lambda: node.manager.set_aside(ORDERS, NEW),
    ):
        with pytest.raises(NotLeader, match="is stopping"):
            work()
    assert Path(node.log_dir, "orders-0").exists()


# -- adoption --------------------------------------------------------------------------------------


def test_an_actor_that_serves_is_adopted_as_it_is(node: Node) -> None:
    node.make()
    pid = node.ask("status").pid
    node.open()
    assert node.ask("status").pid == pid


def test_a_closed_actor_is_replaced(node: Node) -> None:
    node.make()
    node.append(2)
    node.ask("close")
    node.open()
    node.append()
    assert node.ask("offsets").log_end_offset == 3


def test_an_actor_of_another_topic_is_replaced(node: Node, tmp_path: Path) -> None:
    node.intrude(tmp_path / "orders-0")
    node.make()
    assert node.ask("serving").topic_id == NEW


# -- deletion --------------------------------------------------------------------------------------


def test_a_living_actor_is_ended_before_its_folder_is_set_aside(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.make()
    doom, seen = LogDir.doom, []

    def watched(log_dir: LogDir, partition: TopicPartition, **options: Any) -> str:
        # LogLocked if an actor still had it
        RealFileSystem().lock(log_dir.folder(partition)).release()
        seen.append(partition)
        return doom(log_dir, partition, **options)

    monkeypatch.setattr(LogDir, "doom", watched)
    stray = node.manager.set_aside(ORDERS, NEW)
    assert seen == [ORDERS]
    assert stray.endswith("-stray")
    assert Path(stray).is_dir()
    wait_for(lambda: node.actor() is None, 30, "the LogActor has ended")


def test_setting_an_old_topics_folder_aside_leaves_the_actor_of_the_new_one_alone(
    node: Node, tmp_path: Path
) -> None:
    node.intrude(tmp_path / "orders-0", topic_id=NEW)  # it runs on another node, as it were
    node.manager.create_partition(ORDERS, OLD)
    node.manager.set_aside(ORDERS, OLD)
    assert node.ask("serving").topic_id == NEW
    kill(log_actor_name(ORDERS), node.namespace)


def test_a_folder_of_another_topic_is_not_deleted(node: Node) -> None:
    node.make()
    node.manager.delete_partition(ORDERS, OLD)
    assert node.ask("serving").topic_id == NEW
    assert Path(node.log_dir, "orders-0").is_dir()


def test_an_actor_that_is_opened_while_its_partition_is_deleted_is_ended(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.make()
    end = node.manager._end_actor

    def and_open_again(partition: TopicPartition, topic_id: str) -> None:
        end(partition, topic_id)
        wait_for(lambda: node.actor() is None, 30, "the name is free")
        node.open()

    monkeypatch.setattr(node.manager, "_end_actor", and_open_again)
    node.manager.delete_partition(ORDERS, NEW)
    wait_for(lambda: node.actor() is None, 30, "the LogActor has ended")


# -- checkpoints -----------------------------------------------------------------------------------


def test_a_topic_made_anew_does_not_begin_where_the_old_ones_checkpoint_left_off(
    node: Node,
) -> None:
    node.make(topic_id=OLD)
    node.make(OTHERS)
    for partition in (ORDERS, OTHERS):
        node.append(7, partition)
        node.ask("flush", partition=partition)
    node.manager.checkpoint()
    assert node.recovery_points() == {ORDERS: 7, OTHERS: 7}
    node.manager.delete_partition(ORDERS, OLD)
    assert node.recovery_points() == {OTHERS: 7}
    node.make()
    assert node.ask("offsets") == (0, 0, 0, 0)
    # the next to write the checkpoints, before orders was asked
    node.manager.delete_partition(OTHERS, NEW)
    assert node.recovery_points() == {}
    node.manager.checkpoint()
    assert node.recovery_points() == {ORDERS: 0}


def test_an_answer_of_a_partition_deleted_and_made_anew_meanwhile_is_not_written(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.make(topic_id=OLD)
    node.append(7)
    node.ask("flush")
    ask_all = node.manager._ask_all

    def and_make_anew(call: Any) -> Any:
        answers = ask_all(call)
        node.manager.delete_partition(ORDERS, OLD)
        node.make()
        return answers

    with monkeypatch.context() as patch:
        patch.setattr(node.manager, "_ask_all", and_make_anew)
        node.manager.checkpoint()
    assert node.recovery_points().get(ORDERS, 0) == 0


def test_upkeep_survives_an_exception_that_is_not_ours(
    local_ray: None, log_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = threading.Semaphore(0)

    def failing(_: LogManagerImpl) -> None:
        rounds.release()
        raise ValueError("Ray's own")

    monkeypatch.setattr(LogManagerImpl, "checkpoint", failing)
    node = Node(log_dir, **{"log.flush.offset.checkpoint.interval.ms": 1})
    node.manager.start()
    try:
        for _ in range(3):
            assert rounds.acquire(timeout=30), "the upkeep goes on"
    finally:
        assert node.manager.shutdown()


def test_a_config_is_told_to_its_topic_and_confirmed_by_the_controllers_word(node: Node) -> None:
    def word(heard: NodeState | None) -> DesiredVersions:
        return DesiredVersions(
            version=DESIRED_VERSIONS_VERSION,
            controller="c1",
            life=heard.life if heard else "",
            number=heard.number if heard else 0,
            since=0,
            revision=1,
            topics=((NEW, 4), (OLD, 9)),
        )

    node.make()
    altered = LogConfig(retention_ms=-1)
    assert node.manager.reconfigure(ORDERS, NEW, altered, 4) == 4
    assert node.manager.reconfigure(ORDERS, NEW, LogConfig(), 3) == 4, "an older one comes late"
    assert node.manager.config_of(ORDERS, NEW) == (altered, 4)
    assert node.manager.config_of(ORDERS, OLD) is None
    with pytest.raises(NotLeader, match="does not serve it"):
        node.manager.reconfigure(ORDERS, OLD, altered, 5)
    state = node.manager.state(word(None))
    assert node.manager.confirmed([ORDERS]) == {}
    node.manager.state(word(state))
    rights = node.manager.confirmed([ORDERS, OTHERS])
    assert [(key, right.topic_id, right.version) for key, right in rights.items()] == [
        (ORDERS, NEW, 4)
    ]
    assert node.ask("delete_old_segments", rights[ORDERS]).segments == 0
