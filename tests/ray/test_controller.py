"""A Controller while others hang or die: what it answers, and how little a failure leaves.

Its rules are in the transcripts of its machine (``tests/transcripts/test_controller_*.py``).
"""

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

import raylog
from raylog.actors.errors import BrokerRunning, NotLeader, TopicBusy, TopicExists
from raylog.actors.runtime.handles import find, running
from raylog.actors.runtime.names import CONTROLLER, LOG, log_manager_name
from raylog.actors.runtime.nodes import own_node_id
from raylog.cluster.broker import Broker
from raylog.cluster.controller.stub import ControllerStub, find_controller
from raylog.storage.errors import InvalidConfig, LogLocked, LogMissing, RaylogError
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import create_log
from raylog.storage.names import DELETE_DIR_SUFFIX, TopicPartition
from raylog.storage.state.properties import random_id
from raylog.storage.testing.waiting import wait_for
from tests.harness.nodes import send_signal

PROMPT_S = 5.0  # an answer that waits for another actor here comes later, or never
DEADLINE_S = 90.0
METADATA = "__cluster_metadata-0"

pytestmark = pytest.mark.timeout(300)


class Cluster:
    """A broker over one log dir; another one on the same dir can follow."""

    def __init__(self, log_dir: str) -> None:
        self.log_dir = Path(log_dir)
        self.namespace = f"broker-{uuid.uuid4().hex[:8]}"
        self.broker = self.start()

    def start(self) -> Broker:
        return raylog.start([str(self.log_dir)], namespace=self.namespace)

    @property
    def controller(self) -> ControllerStub:
        controller = find_controller(self.namespace)
        assert controller is not None
        return controller

    @property
    def log_manager(self) -> Any:
        return find(log_manager_name(own_node_id()), self.namespace)

    def folders(self) -> list[str]:
        """The partitions' folders, without those that wait to be removed."""
        found = sorted(path.name for path in self.log_dir.iterdir() if path.is_dir())
        return [name for name in found if name != METADATA and not name.endswith(DELETE_DIR_SUFFIX)]

    def pids(self) -> list[int]:
        """Of the LogActors."""
        return [status.pid for status in self.broker.status()]

    def put_in_the_way(self, partition: str) -> Path:
        """A folder of another topic, where a partition's would be made."""
        path = self.log_dir / partition
        create_log(RealFileSystem(), str(path), random_id())
        return path

    def serves(self, topic: str, partition: int = 0) -> bool:
        try:
            why = self.controller.explain(TopicPartition(topic, partition)).get(DEADLINE_S)
        except (RaylogError, AssertionError):  # the Controller is away
            return False
        return why is None


@pytest.fixture
def cluster(local_ray: None, log_dir: str) -> Iterator[Cluster]:
    made = Cluster(log_dir)
    yield made
    made.broker.stop()
    wait_for(lambda: not running(made.namespace), DEADLINE_S, "all actors have ended")


def pid_of(actor: Any) -> int:
    return int(ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=DEADLINE_S))


@contextmanager
def standing_still(actor: Any) -> Iterator[int]:
    """The actor's process is stopped meanwhile, unless it is killed; yields its pid."""
    pid = pid_of(actor)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        send_signal(pid, signal.SIGCONT)


# -- while a LogManager hangs ----------------------------------------------------------------------


def check_look_ups(cluster: Cluster) -> None:
    """They are answered at once, and right."""
    controller = cluster.controller
    assert "old" in controller.list_topics().get(PROMPT_S)
    assert controller.explain(TopicPartition("old", 0)).get(PROMPT_S) is None
    assert controller.describe_topic("old").get(PROMPT_S).name == "old"
    assert controller.topic_metadata("old").get(PROMPT_S).topic == "old"
    assert list(controller.nodes().get(PROMPT_S)) == [own_node_id()]


def test_look_ups_are_answered_while_a_topic_is_made_and_its_name_is_taken(
    cluster: Cluster,
) -> None:
    cluster.broker.create_topic("old", 1)
    with standing_still(cluster.log_manager):
        making = cluster.controller.create_topic("new", 2, {})
        wait_for(lambda: "new" in cluster.broker.list_topics(), DEADLINE_S, "it is begun")
        check_look_ups(cluster)
        with pytest.raises(TopicExists):
            cluster.controller.create_topic("new", 1, {}).get(PROMPT_S)
    assert [place.problem for place in making.get(DEADLINE_S).partitions] == [None, None]
    assert cluster.broker.list_topics() == ["new", "old"]


def test_look_ups_are_answered_while_a_topic_is_deleted(cluster: Cluster) -> None:
    cluster.broker.create_topic("old", 1)
    cluster.broker.create_topic("gone", 1)
    with standing_still(cluster.log_manager):
        deleting = cluster.controller.delete_topic("gone")
        wait_for(lambda: cluster.broker.list_topics() == ["old"], DEADLINE_S, "it is begun")
        check_look_ups(cluster)
    deleting.get(DEADLINE_S)
    assert cluster.folders() == ["old-0"]
    assert cluster.broker.create_topic("gone", 1).partitions[0].problem is None


def test_calls_are_refused_at_once_while_the_broker_stops(cluster: Cluster) -> None:
    cluster.broker.create_topic("old", 1)
    with standing_still(cluster.log_manager):
        stopping = cluster.controller.shutdown()

        def is_refused() -> bool:
            try:
                cluster.controller.list_topics().get(PROMPT_S)
            except NotLeader as error:
                return "it is stopping" in str(error)
            return False

        wait_for(is_refused, DEADLINE_S, "a look-up is refused")
        with pytest.raises(NotLeader, match="it is stopping"):
            cluster.controller.create_topic("new", 1, {}).get(PROMPT_S)
        assert not stopping.is_answered()
    assert stopping.get(DEADLINE_S)


def test_the_log_dirs_of_a_node_that_does_not_answer_are_told_from_its_last_report(
    cluster: Cluster,
) -> None:
    with standing_still(cluster.log_manager):
        assert [one.path for one in cluster.broker.log_dirs()] == [str(cluster.log_dir)]


@pytest.mark.long
def test_a_config_that_was_written_down_but_not_told_is_told_by_the_next_life(
    cluster: Cluster,
) -> None:
    cluster.broker.create_topic("t", 1)
    with standing_still(cluster.log_manager):
        altered = cluster.broker.alter_topic_config("t", {"max.message.bytes": 77})
        assert altered.outdated == (0,)
        os.kill(pid_of(cluster.controller.handle), signal.SIGKILL)

    def obeys() -> bool:
        try:
            return cluster.broker.describe_topic("t").outdated == ()
        except RaylogError:
            return False

    wait_for(obeys, DEADLINE_S, "the partition obeys", poll_s=0.1)
    assert cluster.broker.describe_topic("t").config == {"max.message.bytes": 77}
    says = ray.get(cluster.broker.partition("t", 0).says.remote(), timeout=DEADLINE_S)
    assert says.config.max_message_bytes == 77


def test_what_a_deletion_has_left_over_is_removed_by_the_next_log_manager(
    cluster: Cluster,
) -> None:
    cluster.broker.create_topic("gone", 1)
    with standing_still(cluster.log_manager) as pid:
        deleting = cluster.controller.delete_topic("gone")
        wait_for(lambda: cluster.broker.list_topics() == [], DEADLINE_S, "it is written down")
        assert cluster.folders() == ["gone-0"]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not cluster.folders(), DEADLINE_S, "the folder is removed", poll_s=0.1)
    deleting.get(DEADLINE_S)


# -- topics ----------------------------------------------------------------------------------------


def test_a_topic_of_which_a_partition_cannot_be_made_is_refused_and_leaves_nothing(
    cluster: Cluster,
) -> None:
    other = cluster.put_in_the_way("half-1")
    content = (other / "partition.metadata").read_bytes()
    with pytest.raises(RaylogError):
        cluster.broker.create_topic("half", 3)
    assert cluster.broker.list_topics() == []
    wait_for(lambda: cluster.folders() == ["half-1"], DEADLINE_S, "nothing of it is left")
    assert (other / "partition.metadata").read_bytes() == content, "nor was the other touched"
    wait_for(
        lambda: not [name for name in running(cluster.namespace) if name.startswith(LOG)],
        DEADLINE_S,
        "no LogActor is left",
    )
    other.rename(cluster.log_dir.with_name("elsewhere"))
    made = cluster.broker.create_topic("half", 3)
    assert [place.problem for place in made.partitions] == [None] * 3


def test_partitions_that_cannot_be_made_are_not_added_and_leave_nothing(
    cluster: Cluster,
) -> None:
    cluster.broker.create_topic("t", 1)
    other = cluster.put_in_the_way("t-2")
    with pytest.raises(RaylogError):
        cluster.broker.add_partitions("t", 3)
    wait_for(lambda: cluster.folders() == ["t-0", "t-2"], DEADLINE_S, "nothing of it is left")
    assert len(cluster.broker.describe_topic("t").partitions) == 1
    other.rename(cluster.log_dir.with_name("elsewhere"))

    def are_added() -> bool:
        try:
            cluster.broker.add_partitions("t", 3)
        except TopicBusy:  # the nodes have not reported yet that nothing is left
            return False
        return True

    wait_for(are_added, DEADLINE_S, "they are added", poll_s=0.1)
    places = cluster.broker.describe_topic("t").partitions
    assert [place.problem for place in places] == [None] * 3


def test_a_config_value_of_numpys_is_kept_as_the_number_that_it_is(cluster: Cluster) -> None:
    described = cluster.broker.create_topic("numbers", 1, {"retention.ms": np.int64(5000)})
    assert described.config == {"retention.ms": 5000}
    assert type(described.config["retention.ms"]) is int
    with pytest.raises(InvalidConfig, match=r"retention\.ms"):
        cluster.broker.create_topic("odd", 1, {"retention.ms": [1]})
    assert cluster.folders() == ["numbers-0"]


# -- starting --------------------------------------------------------------------------------------


def test_a_second_start_is_refused_and_the_first_goes_on(cluster: Cluster) -> None:
    with pytest.raises(BrokerRunning):
        cluster.controller.start().get(DEADLINE_S)
    assert cluster.broker.create_topic("t", 1).partitions[0].problem is None


@pytest.mark.long
def test_a_restarted_controller_that_cannot_open_its_metadata_tries_again(
    cluster: Cluster,
) -> None:
    cluster.broker.create_topic("kept", 1)
    os.kill(pid_of(cluster.controller.handle), signal.SIGKILL)
    lock = taken(cluster.log_dir / METADATA)
    try:
        wait_for(
            lambda: "cannot open the metadata" in refusal_of(cluster.broker.list_topics),
            DEADLINE_S,
            "it says why",
            poll_s=0.1,
        )
    finally:
        lock.release()
    wait_for(lambda: cluster.serves("kept"), DEADLINE_S, "it serves again", poll_s=0.1)
    assert cluster.broker.list_topics() == ["kept"]
    assert find(CONTROLLER, cluster.namespace) is not None


def taken(folder: Path) -> Any:
    """The lock of a folder, as soon as the process that had it is dead."""
    locks: list[Any] = []

    def is_taken() -> bool:
        try:
            locks.append(RealFileSystem().lock(str(folder)))
        except LogLocked:
            return False
        return True

    wait_for(is_taken, DEADLINE_S, "the lock is free")
    return locks[0]


def refusal_of(call: Callable[[], object]) -> str:
    """The error of a call; empty if there is none."""
    try:
        call()
    except RaylogError as error:
        return str(error)
    return ""


# -- watching --------------------------------------------------------------------------------------


def test_a_log_manager_killed_for_good_is_replaced_and_its_actors_live_on(
    cluster: Cluster,
) -> None:
    cluster.broker.create_topic("t", 1)
    [pid] = cluster.pids()
    before = cluster.log_manager
    ray.kill(before, no_restart=True)
    wait_for(lambda: cluster.log_manager not in (None, before), DEADLINE_S, "another LogManager")
    wait_for(lambda: cluster.serves("t"), DEADLINE_S, "its actor is adopted", poll_s=0.1)
    assert cluster.pids() == [pid]
    assert cluster.broker.create_topic("u", 1).partitions[0].problem is None
    assert cluster.broker.nodes() == {own_node_id(): None}


def test_a_missing_log_is_served_again_when_its_folder_is_back_and_its_log_manager_looks(
    cluster: Cluster, tmp_path: Path
) -> None:
    folder = Path(cluster.broker.create_topic("t", 1).partitions[0].folder or "")
    assert cluster.broker.stop()
    folder.rename(tmp_path / "elsewhere")
    cluster.broker = cluster.start()
    why = cluster.controller.explain(TopicPartition("t", 0)).get(DEADLINE_S)
    assert isinstance(why, LogMissing)
    (tmp_path / "elsewhere").rename(folder)
    ray.kill(cluster.log_manager, no_restart=True)
    wait_for(lambda: cluster.serves("t"), DEADLINE_S, "the partition serves again", poll_s=0.1)
