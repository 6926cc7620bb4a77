"""Two faults at once, against control: something hangs or fails, and something is started again.

The numbers are those of issue 12. The machines' own tests of the same are in
``tests/transcripts`` and ``tests/simulation``; what needs several nodes is in
``tests/nodes/test_hanging_node.py``.
"""

import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import raylog
from raylog.actors.errors import (
    NoLogDirs,
    OlderMetadata,
    TooManyPartitions,
    UnknownTopicOrPartition,
)
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import (
    CONTROLLER,
    log_actor_name,
    log_manager_name,
    retention_actor_name,
)
from raylog.actors.runtime.nodes import own_node
from raylog.cluster.broker import Broker
from raylog.cluster.controller.reserve import METADATA_RESERVE, RESERVE_BYTES
from raylog.storage.errors import DiskFull, LogDirOffline, RaylogError
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.names import FUTURE_DIR_SUFFIX, TopicPartition
from raylog.storage.state.properties import META_PROPERTIES
from raylog.storage.testing.waiting import wait_for
from tests.harness.faults import (
    DEADLINE_S,
    HOUR_MS,
    folders_of,
    hanging,
    holds,
    is_another,
    kill,
    kill_for_good,
    pid_of,
    send,
    start_offset,
    strays,
    values,
    wait_for_another,
    wait_until,
)

pytestmark = pytest.mark.timeout(400)

ROUND_MS = 500
# Each record of OLD has a segment of its own.
OLD = (b"0" * 600, b"1" * 600, b"2" * 600)
SMALL_SEGMENTS = {"internal.segment.bytes": 700}


class Cluster:
    """A broker over the log dirs "a", which has the metadata, and "b"."""

    def __init__(self, root: Path, **config: Any) -> None:
        self.dirs = [root / "a", root / "b"]
        self.namespace = f"faults-{uuid.uuid4().hex[:8]}"
        self.accepts_older = False  # at the next start, whether its metadata may be older
        self.broker = self.start(**config)

    def start(self, **config: Any) -> Broker:
        settings = {"log.retention.check.interval.ms": ROUND_MS, **config}
        return raylog.start(
            [str(path) for path in self.dirs],
            config=settings,
            namespace=self.namespace,
            older_metadata=self.accepts_older,
        )

    @property
    def manager(self) -> str:
        return log_manager_name(own_node().key)

    @property
    def retention(self) -> str:
        return retention_actor_name(own_node().key)

    def pid(self, name: str) -> int:
        return pid_of(self.broker, name)

    def create_in(self, path: Path, name: str, **config: Any) -> None:
        """A topic whose only partition lies in this log dir."""
        made = self.broker.create_topic(name, 1, config)
        if not Path(str(made.partitions[0].folder)).is_relative_to(path):
            self.broker.move_partition(name, 0, str(path))

    def is_offline(self, topic: str) -> bool:
        self.broker.forget(topic, 0)
        try:
            self.broker.partition(topic, 0, timeout_s=0)
        except LogDirOffline:
            return True
        except RaylogError:
            return False
        return False

    def are_online(self) -> list[bool]:
        """Of its log dirs, in their order; empty while nobody can tell."""
        told = {status.path: status.is_online for status in self.broker.log_dirs()}
        return [told[str(path)] for path in self.dirs] if len(told) == len(self.dirs) else []

    def rounds_since(self, when_ms: int, topic: str) -> bool:
        """Whether retention has come to the topic since, without a problem."""
        return any(
            status.when_ms > when_ms and status.problem is None
            for status in self.broker.retention()
            if status.partition == f"{topic}-0"
        )


@pytest.fixture
def make(local_ray: None, tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Make a cluster, with a config; it is stopped in the end."""
    made: list[Cluster] = []

    def make_one(**config: Any) -> Cluster:
        made.append(Cluster(tmp_path, **config))
        return made[-1]

    yield make_one
    for cluster in made:
        cluster.broker.stop()


@pytest.fixture
def cluster(make: Callable[..., Cluster]) -> Cluster:
    return make()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    threads = ThreadPoolExecutor(4)
    yield threads
    threads.shutdown(wait=False, cancel_futures=True)


def now_ms() -> int:
    return int(time.time() * 1000)


# -- 1: records deleted under an old config --------------------------------------------------------


@pytest.mark.parametrize(
    "is_controller_killed", [pytest.param(False, marks=pytest.mark.long), True]
)
def test_no_record_is_deleted_under_a_config_that_was_replaced(
    cluster: Cluster, is_controller_killed: bool
) -> None:
    """The LogManager hangs, the config changes, and the LogActor is killed, perhaps with the
    Controller."""
    broker = cluster.broker
    broker.create_topic("orders", 1, {"retention.ms": HOUR_MS, **SMALL_SEGMENTS})
    log_actor = log_actor_name(TopicPartition("orders", 0))
    manager, log, controller = map(cluster.pid, (cluster.manager, log_actor, CONTROLLER))
    with hanging(manager):
        altered = broker.alter_topic_config("orders", {"retention.ms": -1})
        assert altered.outdated == (0,), "the partition that does not obey it is named"
        send(broker, "orders", *OLD, age_ms=2 * HOUR_MS)
        kill(log, *([controller] if is_controller_killed else []))
        wait_for_another(broker, log_actor, log)
    went_on_ms = now_ms()
    wait_until(lambda: broker.describe_topic("orders").outdated == (), "it obeys the new config")
    wait_until(lambda: cluster.rounds_since(went_on_ms, "orders"), "retention goes on")
    assert start_offset(broker, "orders") == 0
    assert values(broker, "orders") == list(OLD)
    broker.alter_topic_config("orders", {"retention.ms": HOUR_MS})
    wait_until(lambda: start_offset(broker, "orders") > 0, "the old config would remove them")


# -- 3: a log dir that lost its identity -----------------------------------------------------------


@pytest.mark.parametrize("content", [None, b"spoiled"])
def test_a_dir_with_partitions_that_lost_its_identity_is_refused_and_stays_as_it_is(
    cluster: Cluster, content: bytes | None
) -> None:
    path = cluster.dirs[1]
    cluster.create_in(path, "orders")
    send(cluster.broker, "orders", b"kept")
    assert cluster.broker.stop()
    identity = path / META_PROPERTIES
    before = identity.read_bytes()
    identity.unlink() if content is None else identity.write_bytes(content)
    told = ""
    try:
        cluster.broker = cluster.start()
        told = "; ".join(str(status.problem) for status in cluster.broker.log_dirs())
        cluster.broker.stop()
    except RaylogError as error:
        told = str(error)
    assert META_PROPERTIES in told
    assert folders_of(path, "orders") == ["orders-0"]
    assert strays(path) == []
    assert (identity.read_bytes() if identity.exists() else None) == content, "nothing is made up"
    identity.write_bytes(before)
    cluster.broker = cluster.start()
    wait_until(lambda: values(cluster.broker, "orders") == [b"kept"], "the records are there")


# -- 4: older metadata -----------------------------------------------------------------------------


@pytest.mark.long  # CI runs the page's way, in test_restore_page.py
@pytest.mark.parametrize("is_first_refused", [True, False])
def test_older_metadata_is_refused_until_somebody_accepts_it(
    cluster: Cluster, is_first_refused: bool
) -> None:
    """A refused start ends the LogManagers; without it they live, and serve what is lost."""
    broker = cluster.broker
    metadata = cluster.dirs[0] / str(METADATA_PARTITION)
    backup = cluster.dirs[0].parent / "backup"
    broker.create_topic("kept", 1)
    send(broker, "kept", b"kept")
    shutil.copytree(metadata, backup)
    first = cluster.pid(CONTROLLER)
    kill(first)
    wait_for_another(broker, CONTROLLER, first)
    wait_until(lambda: list(broker.nodes().values()) == [None], "the node takes part")
    broker.create_topic("lost", 1)
    send(broker, "lost", b"lost")

    metadata.rename(cluster.dirs[0].parent / "newer")
    backup.rename(metadata)
    kill(cluster.pid(CONTROLLER))

    def is_refused() -> bool:
        try:
            broker.create_topic("more", 1)
        except RaylogError as error:
            return "--older-metadata" in str(error)
        raise AssertionError("a Controller decides over older metadata")

    wait_until(is_refused, "the Controller that is started again refuses")
    assert values(broker, "lost") == [b"lost"]
    kill_for_good(broker, CONTROLLER)
    wait_for(lambda: find(CONTROLLER, cluster.namespace) is None, DEADLINE_S, "it is gone")
    if is_first_refused:
        with pytest.raises(OlderMetadata, match=str(cluster.dirs[0])):
            cluster.start()
        assert not any(strays(path) for path in cluster.dirs), "nothing was changed"
    cluster.accepts_older = True
    again = cluster.broker = cluster.start()
    assert again.list_topics() == ["kept"]
    assert values(again, "kept") == [b"kept"]
    again.create_topic("lost", 1)
    assert values(again, "lost") == []
    assert sum(len(strays(path)) for path in cluster.dirs) == 1
    assert [finding for finding in again.health() if finding.subject == "metadata"] == []


# -- 5: a Controller that is killed at the end of a move -------------------------------------------


@pytest.mark.parametrize("moment", ["copying", "adopted"])
def test_a_controller_that_dies_in_a_move_takes_no_healthy_dir_offline(
    make: Callable[..., Cluster], pool: ThreadPoolExecutor, moment: str
) -> None:
    rate = {"replica.alter.log.dirs.io.max.bytes.per.second": 2_000_000}
    cluster = make(**rate)
    broker, (first, second) = cluster.broker, cluster.dirs
    cluster.create_in(first, "orders")
    sent = [b"%d" % n * 100_000 for n in range(10)]
    send(broker, "orders", *sent)
    controller = cluster.pid(CONTROLLER)

    def has_come() -> bool:
        names = folders_of(second, "orders")
        if moment == "copying":
            return any(name.endswith(FUTURE_DIR_SUFFIX) for name in names)
        return "orders-0" in names

    moving = pool.submit(broker.move_partition, "orders", 0, str(second))
    wait_for(has_come, DEADLINE_S, moment)
    kill(controller)
    wait_for_another(broker, CONTROLLER, controller)
    with suppress(RaylogError):
        moving.result(DEADLINE_S)
    wait_until(lambda: values(broker, "orders") == sent, "all records are there")
    wait_until(cluster.are_online, "the log dirs are told")
    assert cluster.are_online() == [True, True]
    send(broker, "orders", b"after")

    def lies_once() -> bool:
        lying = [*folders_of(first, "orders"), *folders_of(second, "orders")]
        return lying == ["orders-0"]

    wait_until(lies_once, "one folder of it is left")
    assert values(broker, "orders") == [*sent, b"after"]
    assert cluster.are_online() == [True, True]


# -- 6: a log dir is offline until it is told otherwise --------------------------------------------


@pytest.mark.parametrize("is_controller_killed", [False, True])
def test_a_dir_stays_offline_when_its_log_manager_dies_until_it_is_told_to_come_back(
    cluster: Cluster, is_controller_killed: bool
) -> None:
    broker, path = cluster.broker, cluster.dirs[1]
    cluster.create_in(path, "orders")
    send(broker, "orders", b"before")
    gone = path.with_name("b-gone")
    path.rename(gone)
    wait_until(lambda: cluster.is_offline("orders"), "the dir is offline")
    gone.rename(path)
    manager, controller = cluster.pid(cluster.manager), cluster.pid(CONTROLLER)
    kill(manager, *([controller] if is_controller_killed else []))
    wait_for_another(broker, cluster.manager, manager)
    if is_controller_killed:
        wait_for_another(broker, CONTROLLER, controller)
    wait_until(lambda: list(broker.nodes().values()) == [None], "the node takes part")
    wait_until(cluster.are_online, "the log dirs are told")
    assert cluster.are_online() == [True, False]
    wait_until(lambda: cluster.is_offline("orders"), "its partition is offline, too")

    commands: Any = broker
    commands.log_dir_online(str(path))
    wait_until(lambda: values(broker, "orders") == [b"before"], "it serves again")
    send(broker, "orders", b"after")
    assert values(broker, "orders") == [b"before", b"after"]
    assert cluster.are_online() == [True, True]


# -- 9: retention and compaction -------------------------------------------------------------------


@pytest.mark.parametrize("is_manager_killed", [False, True])
def test_retention_goes_on_when_its_actor_was_ended_for_good(
    cluster: Cluster, is_manager_killed: bool
) -> None:
    broker = cluster.broker
    broker.create_topic("orders", 1, {"retention.ms": HOUR_MS, **SMALL_SEGMENTS})
    wait_until(lambda: cluster.rounds_since(0, "orders"), "retention has begun")
    retention, manager = cluster.pid(cluster.retention), cluster.pid(cluster.manager)
    kill_for_good(broker, cluster.retention)
    if is_manager_killed:
        kill(manager)
    wait_for_another(broker, cluster.retention, retention)
    send(broker, "orders", *OLD, b"new", age_ms=2 * HOUR_MS)
    wait_until(lambda: start_offset(broker, "orders") > 0, "old records go")
    wait_until(lambda: broker.health() == [], "all is well again")


def test_health_says_that_nobody_runs_retention(cluster: Cluster) -> None:
    """Nobody starts it again while the LogManager hangs."""
    broker = cluster.broker
    broker.create_topic("orders", 1, {"retention.ms": HOUR_MS})
    wait_until(lambda: cluster.rounds_since(0, "orders"), "retention has begun")

    def is_told() -> bool:
        found = broker.health()
        return any("retention" in f"{each.subject} {each.what}".lower() for each in found)

    with hanging(cluster.pid(cluster.manager)):
        kill_for_good(broker, cluster.retention)
        wait_until(is_told, "health says it")
    wait_until(lambda: broker.health() == [], "all is well again")


# -- 11: a Controller that cannot start ------------------------------------------------------------


def test_a_controller_that_could_not_start_again_starts_when_its_metadata_is_back(
    cluster: Cluster,
) -> None:
    broker = cluster.broker
    broker.create_topic("orders", 1)
    controller = cluster.pid(CONTROLLER)
    metadata = cluster.dirs[0] / str(METADATA_PARTITION)
    gone = cluster.dirs[0].parent / "metadata-gone"

    def has_tried() -> bool:
        is_gone = find(CONTROLLER, cluster.namespace) is None
        return is_gone or is_another(broker, CONTROLLER, controller)

    with broker.producer(linger_ms=0) as producer:
        producer.send("orders", b"before", partition=0).result(DEADLINE_S)
        metadata.rename(gone)
        kill(controller)
        wait_for(has_tried, DEADLINE_S, "it was started again")
        producer.send("orders", b"meanwhile", partition=0).result(DEADLINE_S)
    assert not metadata.exists(), "no new cluster is begun"
    gone.rename(metadata)
    wait_until(lambda: broker.list_topics() == ["orders"], "it has started")
    wait_until(lambda: list(broker.nodes().values()) == [None], "the node takes part")
    broker.create_topic("payments", 1)
    assert values(broker, "orders") == [b"before", b"meanwhile"]


# -- 13: more partitions than a node can have ------------------------------------------------------


def test_more_partitions_than_the_nodes_have_room_for_are_refused_by_name(
    cluster: Cluster,
) -> None:
    broker = cluster.broker
    broker.create_topic("orders", 1)
    with pytest.raises(TooManyPartitions, match="each is a process"):
        broker.create_topic("many", 10_000)
    with pytest.raises(TooManyPartitions, match="each is a process"):
        broker.add_partitions("orders", 10_000)
    assert broker.list_topics() == ["orders"]
    assert [folders_of(path, "many") for path in cluster.dirs] == [[], []]
    assert len(broker.describe_topic("orders").partitions) == 1
    broker.create_topic("many", 2)


# -- 14: a full disk -------------------------------------------------------------------------------


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """Where a small disk is mounted; a test fills it with a file."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path) -> None:
    """Another program takes all the room."""
    with (disk / "ballast").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def subjects(broker: Broker) -> set[str]:
    return {finding.subject for finding in broker.health()}


def test_a_controller_begins_on_a_full_disk_and_retention_makes_room(
    full_disk: Path, local_ray: None
) -> None:
    log_dir = full_disk / "log"
    namespace = f"faults-{uuid.uuid4().hex[:8]}"
    config = {"log.retention.check.interval.ms": ROUND_MS}
    broker = raylog.start([str(log_dir)], config=config, namespace=namespace)
    try:
        topic = {"retention.ms": -1, "file.delete.delay.ms": 0}
        topic["internal.segment.bytes"] = 1_000_000
        broker.create_topic("orders", 1, topic)
        send(broker, "orders", *[b"%02d" % n * 400_000 for n in range(30)], age_ms=2 * HOUR_MS)
        reserve = log_dir / METADATA_RESERVE
        wait_for(lambda: reserve.stat().st_size == RESERVE_BYTES, DEADLINE_S, "there is one")
        fill(full_disk)
        for _ in range(2):
            controller = pid_of(broker, CONTROLLER)
            kill(controller)
            wait_for_another(broker, CONTROLLER, controller)
            wait_until(lambda: list(broker.nodes().values()) == [None], "the node obeys")
        assert reserve.stat().st_size < RESERVE_BYTES
        wait_until(lambda: "metadata reserve" in subjects(broker), "health says it")
        asked_s = time.monotonic()
        with pytest.raises(DiskFull):
            broker.create_topic("payments", 1)
        assert time.monotonic() - asked_s < 10
        broker.alter_topic_config("orders", {"retention.ms": HOUR_MS})
        wait_until(lambda: start_offset(broker, "orders") > 0, "retention removes old records")
        wait_until(lambda: reserve.stat().st_size == RESERVE_BYTES, "the reserve is made again")
        wait_until(lambda: "metadata reserve" not in subjects(broker), "health is good")

        def has_room() -> bool:
            try:
                return bool(broker.create_topic("payments", 1))
            except NoLogDirs:  # the node has measured it before
                return False

        wait_until(has_room, "the node reports that there is room")
    finally:
        assert broker.stop()


def test_a_stop_on_the_full_disk_of_the_metadata_is_in_order(
    full_disk: Path, local_ray: None
) -> None:
    namespace = f"faults-{uuid.uuid4().hex[:8]}"
    broker = raylog.start([str(full_disk / "log")], namespace=namespace)
    broker.create_topic("orders", 1)
    send(broker, "orders", b"here")
    wait_for((full_disk / "log" / METADATA_RESERVE).exists, DEADLINE_S, "there is a reserve")
    fill(full_disk)
    assert broker.stop()
    wait_for(lambda: find(CONTROLLER, namespace) is None, DEADLINE_S, "it is gone")
    again = raylog.start([str(full_disk / "log")], namespace=namespace)
    try:
        assert values(again, "orders") == [b"here"]
    finally:
        assert again.stop()


@contextmanager
def failing_fsync(pid: int) -> Iterator[None]:
    """Every fsync of a process fails meanwhile, as on a disk that is broken."""
    inject = "inject=fsync,fdatasync:error=EIO"
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", inject, "-p", str(pid)]
    if shutil.which("strace") is None:
        pytest.skip("strace is missing")
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: is_traced(pid) or tracer.poll() is not None, DEADLINE_S, "it is traced")
        if tracer.poll() is not None:
            pytest.skip("no process can be traced here")
        yield
    finally:
        tracer.terminate()
        tracer.wait()


def is_traced(pid: int) -> bool:
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    return all("TracerPid:\t0\n" not in (task / "status").read_text() for task in tasks)


def test_a_controller_whose_metadata_fails_begins_again_and_health_says_why(
    cluster: Cluster,
) -> None:
    broker = cluster.broker
    broker.create_topic("orders", 1)
    controller = cluster.pid(CONTROLLER)
    with broker.producer(linger_ms=0) as producer, failing_fsync(controller):
        with pytest.raises(RaylogError):
            broker.create_topic("payments", 1)
        wait_until(lambda: is_told(broker, "Input/output error"), "health says why")
        assert broker.describe_topic("orders").name == "orders", "look-ups are answered"
        producer.send("orders", b"meanwhile", partition=0).result(DEADLINE_S)
    wait_until(lambda: list(broker.nodes().values()) == [None], "the node obeys")
    wait_until(lambda: broker.health() == [], "all is well again")
    if "payments" not in broker.list_topics():
        broker.create_topic("payments", 1)
    assert cluster.pid(CONTROLLER) == controller, "it went on in the same process"


def is_told(broker: Broker, text: str) -> bool:
    return any(text in finding.what for finding in broker.health())


@pytest.mark.parametrize("is_manager_killed", [False, True])
def test_a_full_disk_gets_no_new_partition_while_another_has_room(
    full_disk: Path, local_ray: None, tmp_path: Path, is_manager_killed: bool
) -> None:
    roomy = tmp_path / "roomy"
    namespace = f"faults-{uuid.uuid4().hex[:8]}"
    broker = raylog.start([str(roomy), str(full_disk / "log")], namespace=namespace)
    try:
        broker.create_topic("filler", 1)  # the other one has the fewest partitions now
        fill(full_disk)
        if is_manager_killed:
            name = log_manager_name(own_node().key)
            manager = pid_of(broker, name)
            kill(manager)
            wait_for_another(broker, name, manager)
            wait_until(lambda: list(broker.nodes().values()) == [None], "the node takes part")
        made = broker.create_topic("orders", 3)
        homes = [Path(str(place.folder)).parent for place in made.partitions]
        assert homes == [roomy] * 3
        send(broker, "orders", b"here", partition=2)
        (full_disk / "ballast").unlink()
        send(broker, "filler", b"there")
    finally:
        broker.stop()


# -- 15: a start beside living LogManagers ---------------------------------------------------------


def test_a_start_with_another_config_counts_for_log_managers_that_live(
    make: Callable[..., Cluster],
) -> None:
    cluster = make(**{"log.retention.check.interval.ms": HOUR_MS})
    broker = cluster.broker
    broker.create_topic("orders", 1, {"retention.ms": HOUR_MS, **SMALL_SEGMENTS})
    send(broker, "orders", *OLD, b"new", age_ms=2 * HOUR_MS)
    log = cluster.pid(log_actor_name(TopicPartition("orders", 0)))
    kill_for_good(broker, CONTROLLER)
    wait_for(lambda: find(CONTROLLER, cluster.namespace) is None, DEADLINE_S, "it is gone")
    cluster.broker = cluster.start(**{"log.retention.check.interval.ms": ROUND_MS})
    again = cluster.broker
    wait_until(lambda: start_offset(again, "orders") > 0, "retention has the new interval")
    assert cluster.pid(log_actor_name(TopicPartition("orders", 0))) == log, "it has served on"
    again.create_topic("payments", 1)


# -- 16: deleting while the Controller dies --------------------------------------------------------


@pytest.mark.parametrize("moment", ["asked", "removing"])
def test_a_deletion_in_which_the_controller_dies_ends_and_leaves_no_stray(
    cluster: Cluster, pool: ThreadPoolExecutor, moment: str
) -> None:
    broker = cluster.broker
    broker.create_topic("orders", 4, {"file.delete.delay.ms": 0})
    for partition in range(4):
        send(broker, "orders", b"x", partition=partition)
    controller = cluster.pid(CONTROLLER)

    def folders() -> list[str]:
        return [name for path in cluster.dirs for name in folders_of(path, "orders")]

    deleting = pool.submit(broker.delete_topic, "orders")
    if moment == "removing":
        wait_for(lambda: len(folders()) < 4, DEADLINE_S, "the first folder is gone")
    kill(controller)
    wait_for_another(broker, CONTROLLER, controller)
    with suppress(RaylogError):
        deleting.result(DEADLINE_S)

    def is_deleted() -> bool:
        with suppress(UnknownTopicOrPartition):
            broker.delete_topic("orders")
        return "orders" not in broker.list_topics()

    wait_until(is_deleted, "the topic is deleted")
    wait_until(lambda: not folders(), "its folders are removed")
    assert [strays(path) for path in cluster.dirs] == [[], []]
    broker.create_topic("orders", 1)
    assert holds(lambda: values(broker, "orders") == [])
