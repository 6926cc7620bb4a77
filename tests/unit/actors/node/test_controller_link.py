"""The Controller hears the newest report, however long it is away."""

import threading
from concurrent.futures import Future

from raylog.actors.control import Report
from raylog.actors.errors import BrokerNotFound
from raylog.actors.node.controller_link import ControllerLink
from raylog.storage.testing.waiting import wait_for


def report(number: int) -> Report:
    return Report(node="n1", life="l", number=number, controller_epoch=1, dirs=(), logs=())


class FakeController:
    """A Controller that may be away, or slow."""

    def __init__(self) -> None:
        self.is_away = False
        self.is_dead = False  # and nobody knows it
        self.gate = threading.Event()
        self.gate.set()
        self.asked = 0
        self.heard: list[int] = []
        self.refused_epochs: list[int] = []

    def report(self, report: Report, timeout_s: float, given_up: "Future[None]") -> None:
        self.asked += 1
        if self.is_dead:
            given_up.result(60)
            return
        assert self.gate.wait(10)
        if self.is_away:
            raise BrokerNotFound("raylog")
        self.heard.append(report.number)

    def refused(self, node: str, controller_epoch: int, timeout_s: float) -> None:
        self.refused_epochs.append(controller_epoch)
        if self.is_away:
            raise BrokerNotFound("raylog")


def test_a_report_is_told_once() -> None:
    controller = FakeController()
    link = ControllerLink(controller, "n1", retry_s=0.001)
    link.send(report(1))
    wait_for(lambda: controller.heard == [1])
    link.send(report(2))
    wait_for(lambda: controller.heard == [1, 2])
    link.stop()


def test_the_newest_report_wins_while_a_call_is_under_way() -> None:
    controller = FakeController()
    controller.gate.clear()
    link = ControllerLink(controller, "n1", retry_s=0.001)
    link.send(report(1))
    wait_for(lambda: controller.asked == 1)
    for number in range(2, 10):
        link.send(report(number))
    controller.gate.set()
    wait_for(lambda: controller.heard == [1, 9])
    link.stop()


def test_a_controller_that_is_away_is_asked_again_with_the_newest_report() -> None:
    controller = FakeController()
    controller.is_away = True
    link = ControllerLink(controller, "n1", retry_s=0.001)
    link.send(report(1))
    wait_for(lambda: controller.asked > 3)
    link.send(report(2))
    controller.is_away = False
    wait_for(lambda: controller.heard[-1:] == [2])
    link.stop()


def test_a_refusal_is_told_once_even_if_nobody_hears_it() -> None:
    controller = FakeController()
    controller.is_away = True
    link = ControllerLink(controller, "n1", retry_s=0.001)
    link.refuse(7)
    link.send(report(1))
    wait_for(lambda: controller.asked > 3)
    assert controller.refused_epochs == [7]
    link.stop()


def test_a_controller_that_makes_itself_known_is_told_without_a_pause() -> None:
    controller = FakeController()
    controller.is_away = True
    link = ControllerLink(controller, "n1", retry_s=3600)
    link.send(report(1))
    wait_for(lambda: controller.asked == 1)
    controller.is_away = False
    link.hurry()
    wait_for(lambda: controller.heard == [1])
    link.stop()


def test_a_controller_that_comes_during_a_call_in_vain_is_told_without_a_pause() -> None:
    controller = FakeController()
    controller.gate.clear()
    link = ControllerLink(controller, "n1", retry_s=3600)
    link.send(report(1))
    wait_for(lambda: controller.asked == 1)
    link.hurry()
    controller.is_away = True
    controller.gate.set()
    wait_for(lambda: controller.asked == 2, what="it is told again, once")
    controller.is_away = False
    link.hurry()
    wait_for(lambda: controller.heard == [1])
    link.stop()


def test_the_answer_of_a_controller_that_has_died_is_not_waited_for() -> None:
    """Ray tells only after seconds that a process has died, and its successor is there."""
    controller = FakeController()
    controller.is_dead = True
    link = ControllerLink(controller, "n1", retry_s=3600)
    link.send(report(1))
    wait_for(lambda: controller.asked == 1)
    controller.is_dead = False
    link.hurry()
    wait_for(lambda: controller.heard == [1])
    link.stop()
