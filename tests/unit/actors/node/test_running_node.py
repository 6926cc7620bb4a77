"""A node with all its parts, but Ray: on disks in memory, with LogActors of the test.

The Controller is the test: it reads reports and orders. Time goes a hundred times as fast.
"""

import threading
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import pytest

from raylog.actors.cluster_image import (
    Endpoint,
    ImageUpdate,
    NodeEntry,
    PartitionEntry,
    TopicEntry,
)
from raylog.actors.control import (
    Create,
    DirReport,
    LogId,
    Order,
    Orders,
    Remove,
    Report,
    Serve,
    Stop,
)
from raylog.actors.errors import NotLeader, UnsupportedVersion
from raylog.actors.messages import PartitionOffsets
from raylog.actors.metrics import Exporter, Metric
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.dir_openings import PATIENCE_S, in_threads
from raylog.actors.node.disk_work import DiskWork
from raylog.actors.node.events import UpkeepKind
from raylog.actors.node.log_start import NodeFacts
from raylog.actors.node.running_node import NodePorts, RunningNode
from raylog.actors.node_messages import UpkeepOrder
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    InvalidLogDir,
    LogLocked,
    OutOfResources,
    RaylogError,
    StorageError,
)
from raylog.storage.names import TopicPartition
from raylog.storage.report import Progress
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.state.properties import random_id
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.testing.waiting import wait_for
from tests.harness.hasty import Hasty
from tests.harness.log_actors import ELSEWHERE, HERE, FakeLog, FakeLogActors, says, through
from tests.harness.node_sockets import FakeSockets
from tests.unit.actors.node.disks import HangingFileSystem

CLUSTER, TOPIC = random_id(), random_id()
LOG = LogId(partition=TopicPartition("orders", 0), topic_id=TOPIC)
PATHS = ("/disk/a", "/disk/b")


class Controller:
    """Hears reports."""

    def __init__(self) -> None:
        self.report_heard: Report | None = None
        self.is_away = False
        self.is_dead = threading.Event()  # it answers nothing, until somebody gives that up
        self.is_asked = threading.Event()  # and somebody waits for it
        self.refused_epochs: list[int] = []

    def report(self, report: Report, timeout_s: float, given_up: "Future[None]") -> None:
        if self.is_away:
            raise NotLeader("the Controller", "it is away")
        if self.is_dead.is_set():
            self.is_asked.set()
            given_up.result(3_600)
            return
        self.report_heard = report

    def refused(self, node: str, controller_epoch: int, timeout_s: float) -> None:
        self.refused_epochs.append(controller_epoch)


class Upkeep:
    """Upkeep actors that are there when they are started."""

    def __init__(self) -> None:
        self.kinds: tuple[UpkeepKind, ...] = ()
        self.orders: list[UpkeepOrder] = []

    def obey(self, config: BrokerConfig) -> None:
        self.kinds = type(self.kinds)()

    def start(self, kind: UpkeepKind) -> None:
        if kind not in self.kinds:
            self.kinds = (*self.kinds, kind)

    def round(self, kind: UpkeepKind, order: UpkeepOrder) -> None:
        self.orders.append(order)

    def running(self) -> tuple[UpkeepKind, ...]:
        return self.kinds

    def kill(self) -> None:
        self.kinds = ()


class Node:
    """A node and its Controller."""

    def __init__(
        self,
        fs: MemoryFileSystem | None = None,
        actors: FakeLogActors | None = None,
        *,
        patience_s: float = PATIENCE_S,
        sockets: FakeSockets | None = None,
    ) -> None:
        self.fs = fs or MemoryFileSystem()
        if fs is None:
            self.fs.make_dir("/disk")
            self.fs.sync_dir("/")
        self.actors = actors or FakeLogActors()
        self.controller, self.upkeep = Controller(), Upkeep()
        self.ended, self.end_wanted = threading.Event(), threading.Event()
        self.gauges: dict[str, float] = {}
        self.number = 0
        hasty = Hasty()
        self.disk = DiskWork(
            self.fs,
            ManualClock(),
            cluster_id=CLUSTER,
            node_number=1,
            delete_delay_ms=0,
            copy_rate=1e9,
            now_s=hasty.now_s,
            sleep=lambda seconds: None,
            beside=in_threads(patience_s),
        )
        self.node = RunningNode(
            NodeFacts(
                namespace="raylog",
                node="n1",
                node_id=HERE,
                producer_expiration=ProducerExpiration(after_ms=86_400_000),
                cluster_id=CLUSTER,
            ),
            random_id(),
            BrokerConfig(),
            NodePorts(
                disk=self.disk,
                actors=self.actors,
                upkeep=self.upkeep,
                controller=self.controller,
                exporter=Exporter(self._metric),
                clock=hasty,
                timer=hasty,
                room=lambda: 11,
                end_process=self.ended.set,
                end_node=self.end_wanted.set,
                sockets=sockets,
            ),
        )

    def _metric(self, metric: Metric) -> SimpleNamespace:
        def set(value: float, tags: object) -> None:
            self.gauges[metric.name] = value

        return SimpleNamespace(set=set)

    def begin(self, *, is_restarted: bool = False) -> "Node":
        self.node.begin(PATHS, is_restarted=is_restarted)
        wait_for(lambda: self.controller.report_heard is not None)
        return self

    def report(self) -> Report:
        assert self.controller.report_heard is not None
        return self.controller.report_heard

    def states(self) -> list[tuple[LogId | None, str]]:
        return [(log.log, log.state) for log in self.report().logs]

    def dir(self, index: int) -> DirReport:
        return self.report().dirs[index]

    def order(self, *orders: Order, epoch: int = 5) -> None:
        self.number += 1
        report = self.report()
        self.node.obey(
            Orders(
                controller_epoch=epoch,
                number=self.number,
                node="n1",
                life=report.life,
                report=report.number,
                orders=orders,
            )
        )

    def serve(self, version: int = 1) -> None:
        """Have the log made and served."""
        self.order(Create(log=LOG))
        wait_for(lambda: (LOG, "found") in self.states())
        home = next(log.directory_id for log in self.report().logs if log.log == LOG)
        self.order(Serve(log=LOG, directory_id=home, config=LogConfig(), config_version=version))
        wait_for(lambda: (LOG, "serving") in self.states())


def test_clients_find_the_processes_of_a_node_and_the_controller_hears_where() -> None:
    sockets = FakeSockets()
    node = Node(sockets=sockets).begin()
    wait_for(lambda: sockets.looks > 1)
    topic_id, (topic, number) = LOG.topic_id, LOG.partition
    one = PartitionEntry(number, Endpoint(7, 19_099), "n1", 0, False)
    update = ImageUpdate(
        controller_epoch=5,
        base=0,
        number=1,
        cluster_id=CLUSTER,
        controller="n1",
        nodes=(NodeEntry("n1", Endpoint(1, 19_093), ""),),
        topics=(TopicEntry(topic, topic_id, (one,)),),
    )
    node.node.addresses.take(update)
    node.serve()
    (spec,) = node.actors.made
    assert (spec.endpoint, spec.cluster_id) == (Endpoint(7, 19_099), CLUSTER)
    wait_for(lambda: (node.report().host, node.report().port) == (sockets.host, 19_093))
    actor = node.actors.living[LOG.partition]
    actor.said = replace(actor.said, port=40_001)
    wait_for(lambda: [log.port for log in node.report().logs] == [40_001])
    assert node.node.shutdown()
    assert sockets.is_closed


def test_a_log_is_made_served_and_removed() -> None:
    node = Node().begin()
    node.serve()
    (spec,) = node.actors.made
    assert node.fs.is_dir(spec.folder)
    order = node.node.order_of(LOG)
    assert order is not None
    assert (order.directory_id, order.config_version) == (spec.directory_id, 1)
    node.order(Remove(log=LOG))
    wait_for(lambda: not node.report().logs)
    assert node.actors.living == {}
    wait_for(lambda: not node.fs.is_dir(spec.folder))
    assert node.node.shutdown()


def test_the_controller_hears_from_the_node_all_the_time() -> None:
    node = Node().begin()
    first = node.report().number
    wait_for(lambda: node.report().number > first + 3)
    wait_for(lambda: node.report().room == 11)
    wait_for(lambda: all(dir.usable_bytes >= 0 for dir in node.report().dirs))
    node.node.shutdown()


def test_what_it_serves_is_exported() -> None:
    sockets = FakeSockets()
    node = Node(sockets=sockets).begin()
    node.serve()
    wait_for(lambda: node.gauges.get("raylog_partitions") == 1)
    assert node.gauges["raylog_log_dirs_offline"] == 0
    wait_for(lambda: sockets.exports)
    node.node.shutdown()


def test_orders_of_an_older_controller_are_refused() -> None:
    node = Node().begin()
    node.serve()
    node.order(Remove(log=LOG), epoch=4)
    wait_for(lambda: node.controller.refused_epochs == [5])
    node.node.shutdown()


def test_orders_of_a_newer_version_are_refused() -> None:
    node = Node().begin()
    orders = Orders(
        controller_epoch=1, number=1, node="n1", life="x", report=1, orders=(), version=99
    )
    with pytest.raises(UnsupportedVersion):
        node.node.obey(orders)
    node.node.shutdown()


def test_upkeep_is_started_and_has_rounds_under_a_confirmed_config() -> None:
    node = Node().begin()
    node.serve()
    wait_for(lambda: node.report().upkeep == ("retention",))

    def is_confirmed() -> bool:
        node.order()
        return LOG.partition in node.node.confirmed([LOG.partition])

    wait_for(is_confirmed)
    right = node.node.confirmed([LOG.partition])[LOG.partition]
    assert (right.log, right.config_version) == (LOG, 1)
    node.node.shutdown()
    assert node.upkeep.kinds == ()


def test_an_orderly_end_leaves_clean_logs() -> None:
    node = Node().begin()
    node.serve()
    assert node.node.shutdown()
    assert node.actors.living == {}
    again = Node(node.fs).begin()
    again.serve()
    (spec,) = again.actors.made
    assert spec.is_clean
    assert spec.recovery_point == 5
    again.node.shutdown()


def test_a_node_that_is_ordered_to_stop_ends_in_order_and_its_last_report_says_so() -> None:
    node = Node().begin()
    node.serve()
    node.order(Stop())
    assert node.end_wanted.wait(30)
    before = node.report().number
    node.node.end()
    assert node.report().number > before  # else it is an old one
    assert (node.report().ended, node.report().logs) == ("in order", ())
    assert node.actors.living == {}
    again = Node(node.fs).begin()
    again.serve()
    assert [spec.is_clean for spec in again.actors.made] == [True]
    again.node.shutdown()


def test_a_node_goes_on_reporting_that_it_is_ending_while_a_log_actor_hangs() -> None:
    closes = threading.Event()

    class HangingLogActors(FakeLogActors):
        def close(self, partition: TopicPartition, timeout_s: float) -> PartitionOffsets:
            assert closes.wait(30)
            return super().close(partition, timeout_s)

    node = Node(actors=HangingLogActors()).begin()
    node.serve()
    before = node.report().number
    ending = threading.Thread(target=node.node.end)
    ending.start()
    wait_for(lambda: node.report().is_ending and node.report().number > before + 2)
    assert node.report().logs
    closes.set()
    ending.join(30)
    assert (node.report().ended, node.report().logs) == ("in order", ())


def test_the_last_report_of_a_node_whose_log_cannot_be_closed_says_that_it_is_not_clean() -> None:
    node = Node().begin()
    node.serve()
    node.actors.living[LOG.partition].close_error = StorageError("/disk/a", "EIO")
    node.node.end()
    assert node.report().ended == "not in order"


@pytest.mark.parametrize(("node_id", "is_left"), [(HERE, False), (ELSEWHERE, True)])
def test_a_node_that_is_stopped_leaves_no_actor_of_its_own_that_waits_for_its_order(
    node_id: str, is_left: bool
) -> None:
    node = Node().begin()
    node.serve()
    again = Node(node.fs.crash(), node.actors.outliving())
    actor = again.actors.living[LOG.partition]
    actor.said, actor.states = replace(actor.said, node_id=node_id), ["learning"]
    again.begin()
    assert again.states() == [(LOG, "found")]
    again.node.end()
    assert (LOG.partition in again.actors.living) is is_left
    node.node.shutdown()


def test_a_node_that_is_stopped_ends_no_silent_actor_of_a_log_that_it_does_not_have() -> None:
    node = Node().begin()
    node.serve()
    other = LogId(partition=TopicPartition("others", 0), topic_id=TOPIC)
    node.actors.living[other.partition] = FakeLog(said=says(other), is_silent=True)
    node.node.end()
    assert node.actors.living.keys() == {other.partition}


def test_a_node_that_is_stopped_ends_an_actor_of_a_log_dir_that_it_never_read() -> None:
    """It has a right to remove records yet, and appends; nobody would end it any more."""
    node = Node().begin()
    node.serve()
    stranger = LogId(partition=TopicPartition("others", 0), topic_id=TOPIC)
    elsewhere = LogId(partition=TopicPartition("others", 1), topic_id=TOPIC)
    node.actors.living[stranger.partition] = FakeLog(said=says(stranger))
    away = replace(says(elsewhere), node_id="another-node")
    node.actors.living[elsewhere.partition] = FakeLog(said=away)
    node.node.end()
    assert node.actors.living.keys() == {elsewhere.partition}


def test_a_node_ends_also_where_no_controller_hears_its_last_report() -> None:
    node = Node().begin()
    node.controller.is_away = True
    node.node.end()
    assert node.report().ended is None


def test_a_log_that_cannot_be_closed_is_not_clean() -> None:
    node = Node().begin()
    node.serve()
    node.actors.living[LOG.partition].close_error = StorageError("/disk/a", "EIO")
    assert not node.node.shutdown()
    again = Node(node.fs).begin()
    again.serve()
    assert [spec.is_clean for spec in again.actors.made] == [False]
    again.node.shutdown()


def test_an_actor_that_lives_on_is_adopted() -> None:
    node = Node().begin()
    node.serve()
    fs = node.fs.crash()
    again = Node(fs, node.actors.outliving()).begin(is_restarted=True)
    assert again.report().is_restarted
    wait_for(lambda: again.states() == [(LOG, "serving")])
    assert again.actors.made == []
    assert again.node.order_of(LOG) is None
    again.node.shutdown()
    node.node.shutdown()


def test_an_adopted_actor_that_asks_for_its_order_was_started_again() -> None:
    """The one before is gone, and the Controller hears it without a round of questions."""
    node = Node().begin()
    node.serve()
    again = Node(node.fs.crash(), node.actors.outliving()).begin(is_restarted=True)
    wait_for(lambda: again.states() == [(LOG, "serving")])
    assert again.node.order_of(LOG) is None
    wait_for(lambda: again.states() == [(LOG, "found")])
    assert not again.actors.living
    again.serve()
    again.node.shutdown()
    node.node.shutdown()


def test_a_failed_disk_takes_its_dir_offline_and_ends_its_actors() -> None:
    node = Node().begin()
    node.serve()
    (spec,) = node.actors.made
    node.node.failed(LOG, StorageError(spec.folder, "EIO"))
    wait_for(lambda: [dir.state for dir in node.report().dirs].count("offline") == 1)
    wait_for(lambda: not node.actors.living)
    problems = [dir.problem for dir in node.node.log_dirs() if not dir.is_online]
    assert len(problems) == 1
    assert not node.node.shutdown()


def test_a_dir_that_hangs_under_an_epoch_is_shown_and_comes_back_by_itself() -> None:
    fs = HangingFileSystem()
    fs.make_dir("/disk")
    fs.sync_dir("/")
    node = Node(fs).begin()
    fs.hang(f"{PATHS[0]}/controller-epoch")
    node.serve()
    assert node.actors.made[0].folder.startswith(PATHS[1])
    here, other = sorted(node.node.log_dirs(), key=lambda dir: dir.path)
    assert (here.is_online, other.is_online, other.problem) == (True, True, None)
    assert "epoch" in (here.problem or "")
    fs.let_go()
    wait_for(lambda: all(dir.takes_orders for dir in node.report().dirs))
    assert [dir.problem for dir in node.node.log_dirs()] == [None, None]
    assert node.node.shutdown()


def test_a_dir_that_hangs_when_the_node_begins_is_shown_and_served_when_it_answers() -> None:
    fs = HangingFileSystem()
    fs.make_dir("/disk")
    fs.sync_dir("/")
    node = Node(fs).begin()
    node.serve()
    (served,) = node.report().logs
    assert node.node.shutdown()
    path = fs.real_path(
        next(d.path for d in node.report().dirs if d.directory_id == served.directory_id)
    )

    fs.hang(path)
    later = Node(fs, patience_s=0.0).begin()
    assert {dir.path: dir.state for dir in later.report().dirs}[path] == "offline"
    assert later.states() == []
    fs.let_go()
    wait_for(lambda: all(dir.state == "online" for dir in later.report().dirs))
    wait_for(lambda: later.states() == [(LOG, "found")])
    order = Serve(log=LOG, directory_id=served.directory_id, config=LogConfig(), config_version=2)
    later.order(order)
    wait_for(lambda: later.states() == [(LOG, "serving")])
    later.node.shutdown()


def test_a_failure_is_that_of_the_dir_in_which_it_happened() -> None:
    node = Node().begin()
    node.serve()
    (spec,) = node.actors.made
    other = next(dir for dir in node.report().dirs if dir.directory_id != spec.directory_id)
    node.node.failed(LOG, StorageError(f"{other.path}/orders-0/0.log", "EIO"))

    def offline() -> list[str | None]:
        return [dir.directory_id for dir in node.report().dirs if dir.state == "offline"]

    wait_for(lambda: offline() == [other.directory_id])
    assert (LOG, "serving") in node.states()
    node.node.shutdown()


def test_an_actor_that_is_gone_is_reported_and_made_anew_by_the_next_order() -> None:
    node = Node().begin()
    node.serve()
    node.actors.living.clear()
    wait_for(lambda: len(node.actors.made) > 1 or (LOG, "serving") not in node.states())
    node.node.shutdown()


def test_an_actor_that_asks_what_it_shall_obey_is_not_gone() -> None:
    node = Node().begin()
    node.serve()
    assert node.node.order_of(LOG) is not None
    node.order()
    wait_for(lambda: node.report().orders == node.number)
    assert node.states() == [(LOG, "serving")]
    node.node.shutdown()


def test_a_controller_that_wants_a_report_gets_one_at_once() -> None:
    """The answer of the one before is not waited for."""
    node = Node().begin()
    node.controller.is_dead.set()
    number = node.report().number
    wait_for(node.controller.is_asked.is_set)
    node.controller.is_dead.clear()
    node.node.want_report()
    wait_for(lambda: node.report().number > number)
    node.node.shutdown()


def test_what_recovery_tells_is_looked_up() -> None:
    node = Node().begin()
    progress = Progress(*range(len(Progress._fields)))
    node.node.recovering(LOG.partition, progress)
    assert [entry.progress for entry in node.node.recoveries()] == [progress]
    node.node.recovering(LOG.partition, None)
    assert node.node.recoveries() == []
    node.node.shutdown()


def test_where_compaction_goes_on_is_kept() -> None:
    node = Node().begin()
    node.serve()
    node.node.record_cleaner_offset(LOG, 4)
    assert node.node.cleaner_offsets() == {LOG.partition: 4}
    other = LogId(partition=LOG.partition, topic_id=random_id())
    node.node.record_cleaner_offset(other, 9)
    assert node.node.cleaner_offsets() == {LOG.partition: 4}
    node.node.shutdown()


def test_where_a_log_begins_is_written_for_who_serves_it() -> None:
    node = Node().begin()
    node.serve()
    offsets = PartitionOffsets(
        log_start_offset=2, recovery_point=5, high_watermark=5, log_end_offset=5
    )
    node.node.record_log_start(LOG, offsets)
    other = LogId(partition=LOG.partition, topic_id=random_id())
    with pytest.raises(NotLeader, match="not served here"):
        node.node.record_log_start(other, offsets)
    node.node.shutdown()


class SilentRay(FakeLogActors):
    """Ray's head does not answer."""

    def running(self) -> set[TopicPartition]:
        raise StorageError("ray", "does not answer")


def test_a_beginning_that_fails_leaves_the_dirs_to_the_next() -> None:
    node = Node().begin()
    node.serve()
    node.node.shutdown()
    silent = Node(node.fs, SilentRay())
    with pytest.raises(RaylogError):
        silent.node.begin(PATHS, is_restarted=False)
    again = Node(node.fs).begin()
    again.serve()
    assert [spec.is_clean for spec in again.actors.made] == [True]
    again.node.shutdown()


def test_dirs_that_another_process_has_are_refused() -> None:
    node = Node().begin()
    with pytest.raises((LogLocked, InvalidLogDir)):
        Node(node.fs).node.begin(PATHS, is_restarted=False)
    node.node.shutdown()


def test_a_beginning_that_gets_no_thread_leaves_the_dirs_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = Node().begin()
    first.node.shutdown()
    start = threading.Thread.start
    for allowed in range(40):
        node = Node(first.fs)
        left = [allowed]

        def start_if_allowed(thread: threading.Thread, left: list[int] = left) -> None:
            if threading.current_thread() is threading.main_thread():
                left[0] -= 1
                if left[0] < 0:
                    raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as shortage:
            shortage.setattr(threading.Thread, "start", start_if_allowed)
            try:
                node.node.begin(PATHS, is_restarted=False)
            except OutOfResources:
                continue
        break
    assert allowed > 10, "it needs that many"
    wait_for(lambda: ticking() == 1, what="those that began in vain end")
    wait_for(lambda: node.controller.report_heard is not None)
    node.serve()
    assert node.node.shutdown()


def ticking() -> int:
    return sum(thread.name == "tick" for thread in threading.enumerate())


def links() -> int:
    return sum(thread.name == "controller-link" for thread in threading.enumerate())


def test_a_beginning_that_fails_leaves_no_thread_behind() -> None:
    """After a restart it is tried again each second, for as long as a disk is not mounted."""
    node = Node().begin()
    before = links()
    for _ in range(3):
        with pytest.raises((LogLocked, InvalidLogDir)):
            Node(node.fs).node.begin(PATHS, is_restarted=True)
    wait_for(lambda: links() <= before)
    node.node.shutdown()


def test_a_foreign_actor_in_the_place_of_a_log_is_ended() -> None:
    actors = FakeLogActors()
    node = Node(None, actors).begin()
    node.serve()
    node.node.shutdown()
    actors.living[LOG.partition] = FakeLog(said=says(LOG, directory_id="gone"))
    again = Node(node.fs, actors).begin()
    wait_for(lambda: not actors.living)
    again.node.shutdown()


def test_an_actor_that_hung_while_its_dir_was_replaced_is_ended_when_it_answers() -> None:
    """What it acknowledges would be lost with the dir, whose lock nobody has."""
    actors = FakeLogActors()
    hanging = FakeLog(said=says(LOG, directory_id="gone"), is_silent=True)
    actors.living[LOG.partition] = hanging
    node = Node(None, actors).begin(is_restarted=True)
    assert actors.killed == []
    hanging.is_silent = False
    wait_for(lambda: not actors.living)
    node.node.shutdown()


def test_an_orderly_end_ends_the_actors_that_are_still_opening() -> None:
    node = Node().begin()
    node.actors.next = [through("opening")]
    node.order(Create(log=LOG))
    wait_for(lambda: (LOG, "found") in node.states())
    home = node.report().logs[0].directory_id
    order = Serve(log=LOG, directory_id=home, config=LogConfig(), config_version=1)
    node.order(order)
    wait_for(lambda: LOG.partition in node.actors.living)
    assert not node.node.shutdown()
    assert node.actors.living == {}
