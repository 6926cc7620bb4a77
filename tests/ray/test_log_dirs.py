"""Log dirs of a running broker: which there are, what happens when one's disk is taken away, and
when it is back."""

import shutil
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import raylog
from raylog.actors.errors import InvalidRequest, NoLogDirs
from raylog.actors.node.processes import is_running, process_at
from raylog.actors.node.ray_log_actors import TITLE
from raylog.actors.runtime.names import log_actor_name, log_manager_name
from raylog.actors.runtime.nodes import own_node
from raylog.cluster.broker import Broker
from raylog.cluster.controller.stub import find_controller
from raylog.storage.errors import DuplicateLogDir, LogDirOffline, LogDirTakenOffline
from raylog.storage.files import RealFileSystem
from raylog.storage.log_dir import LOCK_FILE
from raylog.storage.names import TopicPartition
from raylog.storage.state.properties import CLEAN_SHUTDOWN
from raylog.storage.testing.waiting import wait_for
from tests.harness.faults import hanging, kill, pid_of, wait_for_another, wait_until

DEADLINE_S = 120.0  # of a machine that does much else


class Cluster:
    """A broker over two dirs, each with one topic, whose dirs can be taken away."""

    def __init__(self, root: Path) -> None:
        self.dirs = [root / "a", root / "b"]
        self.namespace = f"dirs-{uuid.uuid4().hex[:8]}"
        self.broker = self.start()

    def start(self) -> Broker:
        return raylog.start([str(path) for path in self.dirs], namespace=self.namespace)

    def topic_in(self, path: Path) -> str:
        """The topic whose only partition lies there."""
        [name] = [entry.name for entry in path.iterdir() if entry.name.startswith("topic-")]
        return name.rpartition("-")[0]

    def send(self, topic: str, value: bytes) -> None:
        with self.broker.producer(delivery_timeout_ms=60_000) as producer:
            producer.send(topic, value, partition=0)

    def values(self, topic: str) -> list[bytes | None]:
        with self.broker.consumer(topic, from_="earliest", to="latest") as consumer:
            return [record.value for record in consumer]

    def take_away(self, path: Path) -> Path:
        """The disk vanishes; returns where it went."""
        gone = path.with_name(path.name + "-gone")
        path.rename(gone)
        return gone

    def is_offline(self, topic: str) -> bool:
        self.broker.forget(topic, 0)
        try:
            self.broker.partition(topic, 0, timeout_s=0)
        except LogDirOffline:
            return True
        except raylog.RaylogError:
            return False
        return False


@pytest.fixture
def cluster(local_ray: None, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    for name in ("topic-one", "topic-two"):
        made.broker.create_topic(name, 1)
        made.send(name, b"before")
    yield made
    made.broker.stop()


def test_a_dir_that_vanishes_takes_only_its_own_partitions_offline_until_a_restart(
    cluster: Cluster,
) -> None:
    # The first dir has the metadata, too: taking the second away leaves the broker whole.
    _, path = cluster.dirs
    lost, other = cluster.topic_in(path), cluster.topic_in(cluster.dirs[0])
    gone = cluster.take_away(path)
    wait_for(lambda: cluster.is_offline(lost), DEADLINE_S, "the partition is offline", poll_s=0.1)
    with pytest.raises(
        LogDirOffline, match=f"log dir {path} is offline: .*the folder is gone.*repair its disk"
    ):
        cluster.broker.partition(lost, 0)
    cluster.send(other, b"meanwhile")
    assert cluster.values(other) == [b"before", b"meanwhile"]

    online, offline = sorted(cluster.broker.log_dirs(), key=lambda dir: dir.path)
    assert (online.is_online, online.problem, online.partitions) == (True, None, 1)
    assert 0 < online.size_bytes < online.usable_bytes <= online.total_bytes
    assert (online.loaded, online.to_load) == (0, 0)
    assert (offline.path, offline.is_online) == (str(path), False)
    assert "the folder is gone" in str(offline.problem)

    new = cluster.broker.create_topic("topic-new", 1)
    assert str(new.partitions[0].folder).startswith(str(cluster.dirs[0]))
    assert not path.exists(), "nothing is made in the place of what is gone"

    assert not cluster.broker.stop(), "a dir that failed was not closed in order"
    gone.rename(path)
    cluster.broker = cluster.start()
    cluster.send(lost, b"after")
    assert cluster.values(lost) == [b"before", b"after"]
    assert [(dir.loaded, dir.to_load) for dir in cluster.broker.log_dirs()] == [(2, 2), (1, 1)]


def test_a_dir_that_is_back_is_used_again_by_command_without_a_restart(cluster: Cluster) -> None:
    _, path = cluster.dirs
    lost = cluster.topic_in(path)
    gone = cluster.take_away(path)
    wait_for(partial(cluster.is_offline, lost), DEADLINE_S, "it is offline", poll_s=0.1)
    gone.rename(path)
    controller = find_controller(cluster.namespace)
    assert controller is not None
    controller.log_dir_online(str(path)).get(DEADLINE_S)
    wait_for(lambda: not cluster.is_offline(lost), DEADLINE_S, "it is back", poll_s=0.1)
    cluster.send(lost, b"after")
    assert cluster.values(lost) == [b"before", b"after"]
    wait_until(lambda: cluster.broker.health() == [], "nothing is wrong")


def test_a_dir_that_cannot_be_used_at_the_start_is_offline_and_the_other_serves(
    cluster: Cluster,
) -> None:
    path = cluster.dirs[1]
    lost, other = cluster.topic_in(path), cluster.topic_in(cluster.dirs[0])
    assert cluster.broker.stop()
    gone = cluster.take_away(path)
    path.write_bytes(b"in its place")
    cluster.broker = cluster.start()
    assert cluster.values(other) == [b"before"]
    problem = cluster.broker.describe_topic(lost).partitions[0].problem
    assert f"{path}" in str(problem)
    assert "this is a file; give a folder" in str(problem)
    cluster.broker.stop()
    path.unlink()
    gone.rename(path)
    cluster.broker = cluster.start()
    assert cluster.values(lost) == [b"before"]


def test_without_a_dir_that_serves_no_topic_is_made(cluster: Cluster) -> None:
    for path in cluster.dirs:
        topic = cluster.topic_in(path)
        cluster.take_away(path)
        wait_for(partial(cluster.is_offline, topic), DEADLINE_S, "it is offline", poll_s=0.1)
    with pytest.raises(NoLogDirs, match="the folder is gone"):
        cluster.broker.create_topic("topic-new", 1)


def test_one_dir_given_twice_is_refused(local_ray: None, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(DuplicateLogDir, match="are the same folder"):
        raylog.start(
            [str(tmp_path / "a"), str(tmp_path / "link")], namespace=f"twice-{uuid.uuid4().hex[:8]}"
        )


def test_a_dir_is_taken_offline_in_order_and_its_disk_can_be_swapped(cluster: Cluster) -> None:
    _, path = cluster.dirs
    taken, other = cluster.topic_in(path), cluster.topic_in(cluster.dirs[0])
    answer = cluster.broker.log_dir_offline(str(path))
    assert (answer.path, answer.waits_for, answer.was_clean) == (str(path), "", True)
    assert (path / CLEAN_SHUTDOWN).exists()
    RealFileSystem().lock(str(path / LOCK_FILE)).release()  # it is free
    sentence = f"log dir {path} is offline: an operator took it offline; `raylog log-dirs online"
    with pytest.raises(LogDirTakenOffline, match=sentence):
        cluster.broker.partition(taken, 0)
    assert cluster.broker.health() == [], "nothing is wrong"

    manager = log_manager_name(own_node().key)
    pid = pid_of(cluster.broker, manager)
    kill(pid)
    wait_for_another(cluster.broker, manager, pid)
    wait_until(lambda: list(cluster.broker.nodes().values()) == [None], "the node takes part")

    def is_repeated() -> bool:
        again = cluster.broker.log_dir_offline(str(path))
        return (again.waits_for, again.was_clean) == ("", True)

    wait_until(is_repeated, "it may be repeated")

    gone = cluster.take_away(path)
    cluster.send(other, b"meanwhile")
    assert cluster.values(other) == [b"before", b"meanwhile"]
    new = cluster.broker.create_topic("new", 1)
    assert str(new.partitions[0].folder).startswith(str(cluster.dirs[0]))
    shutil.copytree(gone, path)  # to a new disk, with what was on the old one
    (used,) = cluster.broker.log_dir_online(str(path), timeout_s=DEADLINE_S)
    assert (used.state, used.serving, used.not_serving) == ("online", 1, {})
    assert not cluster.is_offline(taken)
    cluster.send(taken, b"after")
    assert cluster.values(taken) == [b"before", b"after"]
    wait_until(lambda: cluster.broker.health() == [], "nothing is wrong")


def test_a_dir_is_not_out_of_use_before_a_log_actor_that_hangs_has_ended(
    cluster: Cluster,
) -> None:
    """Its process has the log's files open, and would go on to write when it wakes."""
    _, path = cluster.dirs
    taken = cluster.topic_in(path)
    pid = pid_of(cluster.broker, log_actor_name(TopicPartition(taken, 0)))
    process = process_at(pid, TITLE)
    assert process is not None
    with hanging(process.pid):
        answer = cluster.broker.log_dir_offline(str(path))
        assert not is_running(process)
    assert (answer.waits_for, answer.was_clean) == ("", False)
    (used,) = cluster.broker.log_dir_online(str(path), timeout_s=DEADLINE_S)
    assert (used.state, used.serving) == ("online", 1)
    assert cluster.values(taken) == [b"before"]


def test_a_dir_that_cannot_be_spared_is_not_taken_offline(cluster: Cluster) -> None:
    with pytest.raises(InvalidRequest, match=r"has the cluster's metadata.*`raylog stop`"):
        cluster.broker.log_dir_offline(str(cluster.dirs[0]))
    assert all(dir.is_online for dir in cluster.broker.log_dirs())
