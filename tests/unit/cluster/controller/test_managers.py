"""Lines to LogManagers: one that hangs keeps nobody waiting; only the newest orders are sent."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from raylog.actors.control import Orders
from raylog.actors.errors import NotLeader
from raylog.cluster.controller.events import Silent
from raylog.cluster.controller.managers import Managers
from raylog.storage.errors import LogLocked, RaylogError
from raylog.storage.testing.waiting import wait_for


def orders(number: int, life: str = "l") -> Orders:
    return Orders(controller_epoch=1, number=number, node="a", life=life, report=0, orders=())


class Recorder:
    """The way to LogManagers that waits and fails when a test says so."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.entered: list[str] = []
        self.killed: list[str] = []
        self.forgotten: list[str] = []
        self.gates: dict[str, threading.Event] = {}
        self.errors: dict[str, Exception] = {}
        self.dead: set[str] = set()  # lives that answer nothing
        self.starts_in_vain = 0  # so many meet a process that has died
        self.started: list[str] = []

    def start(self, node: str, given_up: "Future[None]") -> None:
        self._enter(node)
        if self.starts_in_vain:
            self.starts_in_vain -= 1
            given_up.result(60)
            return
        self.started.append(node)

    def obey(self, node: str, given: Orders, given_up: "Future[None]") -> None:
        self._enter(node)
        if given.life in self.dead:
            given_up.result(60)
            return
        self.told.append((node, given.number))

    def kill(self, node: str) -> None:
        self.killed.append(node)

    def forget(self, node: str) -> None:
        self.forgotten.append(node)

    def hangs(self, node: str) -> threading.Event:
        self.gates[node] = threading.Event()
        return self.gates[node]

    def _enter(self, node: str) -> None:
        self.entered.append(node)
        if node in self.gates:
            assert self.gates[node].wait(60)
        if node in self.errors:
            raise self.errors[node]


class World:
    def __init__(self) -> None:
        self.recorder = Recorder()
        self.silent: list[str] = []
        self.refusing: list[str] = []
        self.managers = Managers(self.recorder, self._hear)

    def _hear(self, event: Silent) -> None:
        self.silent.append(event.node)
        if event.is_refused:
            self.refusing.append(event.node)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    for gate in made.recorder.gates.values():
        gate.set()
    made.managers.stop(10)


def test_a_log_manager_that_hangs_keeps_no_other_waiting(world: World) -> None:
    world.recorder.hangs("a")
    world.managers.tell("a", orders(1))
    world.managers.tell("b", orders(2))
    wait_for(lambda: world.recorder.told == [("b", 2)], what="b is told")


def test_nothing_is_remembered_of_a_node_that_is_gone(world: World) -> None:
    gate = world.recorder.hangs("a")
    for node in ("a", "b"):
        world.managers.tell(node, orders(1))
    wait_for(lambda: sorted(world.recorder.entered) == ["a", "b"])
    world.managers.keep(["b"])
    assert world.recorder.forgotten == [], "a call to it is under way"
    gate.set()
    wait_for(lambda: world.recorder.forgotten == ["a"])


def test_of_several_orders_only_the_newest_are_sent(world: World) -> None:
    gate = world.recorder.hangs("a")
    world.managers.tell("a", orders(1))
    wait_for(lambda: world.recorder.entered == ["a"], what="the call is under way")
    for number in (2, 3, 4):
        world.managers.tell("a", orders(number))
    gate.set()
    wait_for(lambda: world.recorder.told == [("a", 1), ("a", 4)], what="the newest are sent")


def test_the_answer_of_a_life_that_has_ended_is_not_waited_for(world: World) -> None:
    """Ray tells only after seconds that a process has died, and its successor has reported."""
    world.recorder.dead.add("before")
    world.managers.tell("a", orders(1, "before"))
    wait_for(lambda: world.recorder.entered == ["a"], what="the call is under way")
    world.managers.tell("a", orders(2, "after"))
    wait_for(lambda: world.recorder.told == [("a", 2)], what="the new life is told")
    assert world.silent == [], "nobody failed"


def test_a_start_that_meets_a_life_that_has_ended_is_begun_anew_with_the_next(
    world: World,
) -> None:
    """It may have another broker's config, so it is not enough that it reports."""
    world.managers.tell("a", orders(1, "before"))
    wait_for(lambda: world.recorder.told == [("a", 1)], what="the first life is told")
    world.recorder.starts_in_vain = 1
    world.managers.start_manager("a")
    wait_for(lambda: world.recorder.entered == ["a", "a"], what="the start is under way")
    world.managers.tell("a", orders(2, "after"))
    wait_for(lambda: world.recorder.told[1:] == [("a", 2)], what="the new life is told")
    assert world.recorder.started == ["a"], "it was asked for its config before"
    assert world.silent == []


def test_the_first_start_is_not_begun_anew_for_the_life_that_it_has_made(world: World) -> None:
    gate = world.recorder.hangs("a")
    world.managers.start_manager("a")
    wait_for(lambda: world.recorder.entered == ["a"], what="the start is under way")
    world.managers.tell("a", orders(1))
    gate.set()
    wait_for(lambda: world.recorder.told == [("a", 1)], what="the new life is told")
    assert world.recorder.started == ["a"]


def test_a_start_that_is_begun_anew_is_so_once(world: World) -> None:
    world.managers.tell("a", orders(1, "before"))
    wait_for(lambda: world.recorder.told == [("a", 1)], what="the first life is told")
    world.recorder.starts_in_vain = 1
    world.managers.start_manager("a")
    wait_for(lambda: world.recorder.entered == ["a"] * 2, what="the start is under way")
    gate = world.recorder.hangs("a")
    world.managers.tell("a", orders(2, "after"))
    wait_for(lambda: world.recorder.entered == ["a"] * 3, what="it is begun anew")
    world.managers.tell("a", orders(3, "after"))
    gate.set()
    wait_for(lambda: world.recorder.told[1:] == [("a", 3)], what="the new life is told")
    assert world.recorder.started == ["a"]


@pytest.mark.parametrize("error", [LogLocked("/disk"), NotLeader("it", "died"), KeyError("a bug")])
def test_a_call_that_fails_makes_the_node_silent_and_the_reason_is_kept(
    world: World, error: Exception
) -> None:
    world.recorder.errors["a"] = error
    world.managers.start_manager("a")
    wait_for(lambda: world.silent == ["a"], what="the machine hears it")
    assert world.refusing == (["a"] if isinstance(error, LogLocked) else [])
    problem = world.managers.problems()["a"]
    assert isinstance(problem, RaylogError)
    del world.recorder.errors["a"]
    world.managers.start_manager("a")
    wait_for(lambda: world.managers.problems() == {}, what="the reason is forgotten")


def test_a_reason_is_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.recorder.errors["a"] = LogLocked("/disk")
    with caplog.at_level("WARNING"):
        for times in (1, 2, 3):
            world.managers.start_manager("a")
            wait_for(lambda times=times: world.silent == ["a"] * times)  # type: ignore[misc]
    assert len(caplog.records) == 1


def test_a_log_manager_that_is_created_during_a_stop_is_killed(world: World) -> None:
    gate = world.recorder.hangs("a")
    world.managers.start_manager("a")
    wait_for(lambda: world.recorder.entered == ["a"], what="it is being created")
    world.managers.stop(0.01)
    assert world.recorder.killed == []
    gate.set()
    wait_for(lambda: world.recorder.killed == ["a"], what="it is killed")
    world.managers.start_manager("b")
    world.managers.tell("b", orders(1))
    assert world.recorder.entered == ["a"], "nobody is called any more"


def test_the_next_controller_keeps_the_log_manager_that_was_being_started(world: World) -> None:
    gate = world.recorder.hangs("a")
    world.managers.start_manager("a")
    wait_for(lambda: world.recorder.entered == ["a"], what="it is being started")
    world.managers.stop(0.01, is_end=False)
    gate.set()
    wait_for(lambda: world.recorder.forgotten == ["a"], what="the line ends")
    assert world.recorder.killed == []


def test_a_node_that_left_is_told_nothing_until_it_is_back(world: World) -> None:
    gate = world.recorder.hangs("a")
    world.managers.tell("a", orders(1))
    wait_for(lambda: world.recorder.entered == ["a"], what="the call is under way")
    world.managers.tell("a", orders(2))
    world.managers.keep(["b"])
    gate.set()
    wait_for(lambda: world.recorder.told == [("a", 1)], what="the call ends")
    world.managers.tell("a", orders(3))
    wait_for(lambda: world.recorder.told == [("a", 1), ("a", 3)], what="it is told anew")


def test_a_node_that_is_back_keeps_the_log_manager_that_was_being_started(world: World) -> None:
    gate = world.recorder.hangs("a")
    world.managers.start_manager("a")
    wait_for(lambda: world.recorder.entered == ["a"], what="it is being started")
    world.managers.keep([])  # Ray's head has not seen the node for a moment
    world.managers.start_manager("a")
    wait_for(lambda: world.recorder.entered == ["a", "a"], what="it is started anew")
    gate.set()
    world.managers.tell("a", orders(1))
    wait_for(lambda: world.recorder.told == [("a", 1)], what="the new start ends")
    wait_for(lambda: not lines_of("a")[1:], what="the old line ends")
    assert world.recorder.killed == []


def lines_of(node: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"line-{node}"]
