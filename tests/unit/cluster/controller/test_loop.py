"""The loop hands instructions out and publishes what the machine knows; without its thread."""

import threading

import pytest

from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.commands import CreateTopic
from raylog.cluster.controller.describe import (
    UPKEEP_PATIENCE_MS,
    list_topics,
    missing_upkeep,
)
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.events import (
    Appended,
    AppendFailed,
    Asked,
    Event,
    NodesSeen,
    Reported,
    ReserveMade,
    Started,
    Tick,
)
from raylog.cluster.controller.instructions import (
    Answer,
    Append,
    AskWhether,
    MakeSnapshot,
    Push,
    Tell,
)
from raylog.cluster.controller.loop import ControllerLoop
from raylog.cluster.controller.machine import ControllerMachine
from raylog.cluster.controller.records import ClusterRecord
from raylog.storage.errors import StorageError
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.waiting import wait_for
from tests.harness.control_nodes import PerfectNode


class Stage:
    """A loop whose disk and node ``a`` do at once what they are told."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.node = PerfectNode("a", "dir-a")
        self.failures: list[BaseException] = []
        self.answers: list[Answer] = []
        self.topics_at_answer: list[list[str]] = []
        self.started: list[str] = []
        self.events: list[Event] = []
        self.disk_error: StorageError | None = None
        config = BrokerConfig.parse({"log.dirs": ["/disk"]})
        machine = ControllerMachine(config)
        self.loop = ControllerLoop(machine, self, self.clock, self.failures.append)

    def append(self, append: Append) -> None:
        if self.disk_error is not None:
            self.events.append(AppendFailed(token=append.token, error=self.disk_error))
        else:
            self.events.append(Appended(token=append.token))

    def make_reserve(self) -> None:
        self.events.append(ReserveMade())

    def make_snapshot(self, wanted: MakeSnapshot) -> None:
        raise AssertionError("the cluster is of the first level")

    def start_manager(self, node: str) -> None:
        self.started.append(node)
        self.events.append(Reported(report=self.node.report()))

    def tell(self, tell: Tell) -> None:
        self.node.obey(tell.orders)
        self.events.append(Reported(report=self.node.report()))

    def push(self, push: Push) -> None:
        raise AssertionError("there is one node")

    def ask_whether(self, question: AskWhether) -> None:
        raise AssertionError("there is one node")

    def answer(self, answer: Answer) -> None:
        self.answers.append(answer)
        self.topics_at_answer.append(list_topics(self.loop.snapshot))

    def play(self, *events: Event) -> None:
        """These happen, and what follows from them."""
        self.events += events
        while self.events:
            self.loop.handle(self.events.pop(0))

    def begin(self) -> None:
        desired = Desired()
        desired.apply(ClusterRecord(cluster_id="cluster"))
        self.play(Started(desired=desired, node="a"), NodesSeen(nodes={"a": "ray-a"}))


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.begin()
    return made


def test_what_is_answered_can_be_looked_up(stage: Stage) -> None:
    command = CreateTopic(name="t", topic_id="id-t", partitions=1)
    stage.play(Asked(request=1, command=command))
    assert [answer.error for answer in stage.answers] == [None]
    assert stage.topics_at_answer == [["t"]]
    assert stage.started == ["a"]
    assert stage.loop.snapshot.node_ids == {"a": "ray-a"}


def test_a_controller_without_its_epoch_is_not_said_to_be_in_charge() -> None:
    stage = Stage()
    stage.disk_error = StorageError("/disk", "EIO")
    stage.begin()
    assert not stage.loop.snapshot.is_in_charge
    stage = Stage()
    stage.begin()
    assert stage.loop.snapshot.is_in_charge


def test_a_snapshot_stays_as_it_was(stage: Stage) -> None:
    before = stage.loop.snapshot
    stage.play(Asked(request=1, command=CreateTopic(name="t", topic_id="id-t", partitions=1)))
    assert list_topics(before) == []
    assert list_topics(stage.loop.snapshot) == ["t"]
    stage.loop.snapshot.desired.validate()


def test_a_failed_log_is_told_once_and_requests_are_still_refused(stage: Stage) -> None:
    stage.disk_error = StorageError("/disk", "EIO")
    for request in (1, 2):
        command = CreateTopic(name=f"t{request}", topic_id=f"id-{request}", partitions=1)
        stage.play(Asked(request=request, command=command))
    assert stage.failures == [stage.disk_error]
    assert [str(answer.error) for answer in stage.answers] == [str(stage.disk_error)] * 2
    assert stage.loop.snapshot.failure is stage.disk_error


def test_a_node_without_the_upkeep_that_it_needs_is_told_after_a_while(stage: Stage) -> None:
    stage.node.upkeep = stage.node.upkeep_needed = ("retention", "compaction")
    stage.play(Reported(report=stage.node.report()))
    stage.clock.advance(UPKEEP_PATIENCE_MS + 1)
    stage.play(Tick())
    assert missing_upkeep(stage.loop.snapshot) == {}
    stage.node.upkeep = ("retention",)
    stage.play(Reported(report=stage.node.report()))
    assert missing_upkeep(stage.loop.snapshot) == {}
    stage.clock.advance(UPKEEP_PATIENCE_MS + 1)
    stage.play(Tick())
    assert list(missing_upkeep(stage.loop.snapshot)) == ["ray-a"]


def test_a_mistake_of_our_own_ends_the_controller() -> None:
    stage = Stage()
    stage.loop.start()
    started = Started(desired=Desired(), node="a")
    stage.loop.put(started)
    stage.loop.put(started)  # which the machine asserts never to happen
    wait_for(lambda: stage.failures, what="the failure is told")
    assert isinstance(stage.failures[0], AssertionError)
    stage.loop.stop(10)


def test_time_passes_without_events() -> None:
    stage = Stage()
    stage.begin()
    stage.clock = ManualClock()
    stage.loop.start()
    stage.loop.stop(10)
    assert stage.failures == []


def test_ticks_come_however_full_the_inbox_is() -> None:
    stage = Stage()
    stage.begin()
    ticked = threading.Event()
    handle = stage.loop.handle

    def watched(event: Event) -> None:
        if isinstance(event, Tick):
            ticked.set()
        stage.clock.advance(10)
        if not ticked.is_set():
            stage.loop.put(event)  # the next one is there before this one has ended
        handle(event)

    stage.loop.handle = watched  # type: ignore[method-assign]
    stage.loop.put(NodesSeen(nodes={"a": "ray-a"}))
    stage.loop.start()
    assert ticked.wait(10)
    stage.loop.stop(10)
    assert stage.failures == []
