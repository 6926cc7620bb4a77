"""The loop gives the machine events in order; look-ups are answered beside it."""

import threading
from dataclasses import replace
from queue import SimpleQueue

from raylog.actors.control import DirReport, LogId, Orders, Report, Serve
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.confirmed_logs import CONFIRMED_FOR_MS
from raylog.actors.node.events import (
    DirFailed,
    Finished,
    Folder,
    Ordered,
    Served,
    Started,
    Tick,
)
from raylog.actors.node.instructions import Instruction, SendReport, StartLog, WriteEpoch
from raylog.actors.node.machine import NodeMachine
from raylog.actors.node.shell import NodeShell
from raylog.storage.config import LogConfig
from raylog.storage.errors import OutOfResources
from raylog.storage.names import TopicPartition
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.waiting import wait_for
from tests.harness.log_actors import ORDERS, A

STARTED = Started(
    dirs=(DirReport(directory_id=A, path="/a", state="online"),),
    folders=(Folder(partition=ORDERS.partition, topic_id=ORDERS.topic_id, directory_id=A),),
)


class Collected:
    """Hands that only collect."""

    def __init__(self) -> None:
        self.instructions: SimpleQueue[Instruction] = SimpleQueue()

    def carry_out(self, instruction: Instruction) -> None:
        self.instructions.put(instruction)


class Node:
    def __init__(self) -> None:
        self.ended = threading.Event()
        self.hands = Collected()
        self.clock = ManualClock()
        machine = NodeMachine(node="n1", life="life-1", config=BrokerConfig())
        self.shell = NodeShell(machine, self.clock, self.ended.set)

    def next(self, kind: type[Instruction]) -> Instruction:  # type: ignore[valid-type]
        """The next instruction of this kind."""
        while True:
            instruction = self.hands.instructions.get(timeout=10)
            if isinstance(instruction, kind):  # type: ignore[arg-type]
                return instruction

    def serve(self, log: LogId = ORDERS) -> None:
        """Order a log, and carry out what follows."""
        self.is_served(self.order(log))

    def order(self, log: LogId = ORDERS) -> StartLog:
        """Order a log; returns what begins it."""
        order = Serve(log=log, directory_id=A, config=LogConfig(), config_version=3)
        self.shell.tell(
            Ordered(
                orders=Orders(
                    controller_epoch=5,
                    number=1,
                    node="n1",
                    life="life-1",
                    report=1,
                    orders=(order,),
                )
            )
        )
        write = self.next(WriteEpoch)  # type: ignore[arg-type]
        assert isinstance(write, WriteEpoch)
        self.shell.tell(Finished(token=write.token))
        start = self.next(StartLog)  # type: ignore[arg-type]
        assert isinstance(start, StartLog)
        return start

    def is_served(self, start: StartLog) -> None:
        served = Served(log=start.log, directory_id=A, config=LogConfig(), config_version=3)
        self.shell.tell(Finished(token=start.token, result=served))


def test_what_is_told_before_the_beginning_comes_after_it() -> None:
    node = Node()
    node.shell.tell(Tick())
    node.shell.begin(STARTED, node.hands)
    report = node.next(SendReport)  # type: ignore[arg-type]
    assert isinstance(report, SendReport)
    assert report.report.number == 1
    node.shell.stop()
    assert not node.ended.is_set()


def test_look_ups_know_what_is_ordered_and_served() -> None:
    node = Node()
    assert (node.shell.order_of(ORDERS), node.shell.served(), node.shell.rights()) == (None, (), {})
    assert node.shell.home_of(ORDERS) is None
    node.shell.begin(STARTED, node.hands)
    node.serve()
    wait_for(lambda: node.shell.served())
    order = node.shell.order_of(ORDERS)
    assert order is not None
    assert (order.directory_id, order.config_version, order.controller_epoch) == (A, 3, 5)
    assert node.shell.home_of(ORDERS) == A
    wait_for(lambda: node.shell.reported_logs() == {ORDERS})
    assert node.shell.offline_logs() == 0
    node.shell.stop()


def test_what_is_to_be_opened_is_known_when_something_was_ordered() -> None:
    other = replace(ORDERS, partition=TopicPartition("nobody-orders-it", 0))
    found = Folder(partition=other.partition, topic_id=other.topic_id, directory_id=A)
    node = Node()
    assert node.shell.opening_in(A) is None
    node.shell.begin(replace(STARTED, folders=(*STARTED.folders, found)), node.hands)
    wait_for(lambda: len(node.shell.reported_logs()) == 2)
    assert node.shell.opening_in(A) is None
    start = node.order()
    wait_for(lambda: node.shell.opening_in(A) == {ORDERS.partition})
    node.is_served(start)
    wait_for(lambda: node.shell.opening_in(A) == set())
    node.shell.stop()


def test_a_dir_that_failed_is_in_the_last_report() -> None:
    node = Node()
    node.shell.begin(STARTED, node.hands)
    node.shell.tell(DirFailed(directory_id=A, why="EIO"))
    wait_for(lambda: [dir.state for dir in node.shell.dirs()] == ["offline"])
    assert node.shell.offline_logs() == 1
    node.shell.stop()


def test_after_the_end_nothing_is_carried_out() -> None:
    node = Node()
    node.shell.begin(STARTED, node.hands)
    node.shell.stop()
    while not node.hands.instructions.empty():
        node.hands.instructions.get()
    node.shell.tell(DirFailed(directory_id=A, why="EIO"))
    assert node.hands.instructions.empty()


class Broken:
    """Hands with a mistake."""

    def __init__(self) -> None:
        self.calls = 0

    def carry_out(self, instruction: Instruction) -> None:
        self.calls += 1
        raise ZeroDivisionError("a mistake of ours")


def test_a_mistake_of_ours_ends_the_process() -> None:
    node, broken = Node(), Broken()
    node.shell.begin(STARTED, broken)
    assert node.ended.wait(10)
    node.shell.tell(DirFailed(directory_id=A, why="EIO"))
    node.shell.stop()
    assert broken.calls == 1, "its state is not trusted, so nothing more is handled"


class Reluctant(Collected):
    """Hands that cannot begin with an epoch at first."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, WriteEpoch) and not self.refused:
            self.refused += 1
            raise OutOfResources("/dir-a", "no thread is left")
        super().carry_out(instruction)


def test_what_a_hand_cannot_begin_is_told_to_the_machine_and_the_rest_is_carried_out() -> None:
    node = Node()
    node.hands = Reluctant()
    node.shell.begin(STARTED, node.hands)
    orders = Orders(controller_epoch=5, number=1, node="n1", life="life-1", report=1, orders=())
    node.shell.tell(Ordered(orders=orders))
    while report_of(node.next(SendReport)).controller_epoch != 5:  # type: ignore[arg-type]
        pass  # what was said after the instruction that failed
    node.shell.tell(Tick())
    assert isinstance(node.next(WriteEpoch), WriteEpoch), "it is tried again"  # type: ignore[arg-type]
    node.shell.stop()
    assert not node.ended.is_set()


def report_of(instruction: Instruction) -> Report:
    assert isinstance(instruction, SendReport)
    return instruction.report


def test_an_adopted_log_is_at_home_where_it_is_served_before_anybody_orders_it() -> None:
    node = Node()
    served = Served(log=ORDERS, directory_id=A, config=LogConfig(), config_version=3)
    node.shell.begin(replace(STARTED, served=(served,)), node.hands)
    wait_for(lambda: node.shell.home_of(ORDERS) == A)
    assert node.shell.order_of(ORDERS) is None
    node.shell.stop()


def test_the_right_to_remove_ends_with_time() -> None:
    node = Node()
    node.shell.begin(STARTED, node.hands)
    node.serve()
    number, states = 0, [""]
    while states != ["serving"]:
        instruction = node.hands.instructions.get(timeout=10)
        if isinstance(instruction, SendReport):
            number = instruction.report.number
            states = [log.state for log in instruction.report.logs]
    confirming = Orders(
        controller_epoch=5,
        number=2,
        node="n1",
        life="life-1",
        report=number,
        orders=(),
    )
    node.shell.tell(Ordered(orders=confirming))
    wait_for(lambda: list(node.shell.rights()) == [ORDERS])
    node.clock.advance(CONFIRMED_FOR_MS)
    assert node.shell.rights() == {}
    node.shell.stop()
