"""LogManagers are shown what they lack; one that hangs or refuses holds up nobody."""

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from raylog.actors.cluster_image import ImageKept, ImageUpdate
from raylog.actors.errors import NotLeader
from raylog.cluster.controller.describe import Snapshot
from raylog.cluster.controller.records import ControllerRecord
from raylog.cluster.controller.showing import IDLE_S, PATIENCE_S, Showing
from tests.harness.control_nodes import obeying
from tests.unit.cluster.controller.test_imaging import EPOCH, snapshot_of, topic
from tests.unit.cluster.controller.test_plan import report


class Play:
    """A Controller's ``Showing``, its LogManagers, and the time."""

    def __init__(self) -> None:
        self.snapshot = snapshot_of()
        self.now_s = 100.0
        self.sent: list[tuple[str, ImageUpdate]] = []
        self.answers: list[Future[Any]] = []
        self.is_there = True
        self.showing = Showing(lambda: self.snapshot, self, lambda: self.now_s)

    def show(self, node: str, update: ImageUpdate) -> "Future[Any] | None":
        if not self.is_there:
            return None
        self.sent.append((node, update))
        self.answers.append(Future())
        return self.answers[-1]

    def round(self) -> list[tuple[int, int]]:
        """Have a round; returns (base, number) of what it has sent."""
        before = len(self.sent)
        self.showing.round()
        return [(update.base, update.number) for _, update in self.sent[before:]]

    def kept(self, number: int, epoch: int = EPOCH) -> None:
        """The last one is answered."""
        self.answers[-1].set_result(ImageKept(controller_epoch=epoch, number=number))

    def becomes(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot


def test_a_new_manager_is_shown_everything_and_then_what_changes() -> None:
    play = Play()
    assert play.round() == [(0, 1)]
    play.kept(1)
    assert play.round() == []
    play.becomes(snapshot_of(topic("t")))
    assert play.round() == [(1, 2)]


def test_nothing_is_sent_while_an_answer_is_awaited() -> None:
    play = Play()
    assert play.round() == [(0, 1)]
    play.becomes(snapshot_of(topic("t")))
    assert play.round() == []
    play.now_s += PATIENCE_S - 0.1
    assert play.round() == []
    play.now_s += 0.1
    assert play.round() == [(0, 2)]


def test_a_manager_that_refuses_is_asked_again_after_a_pause() -> None:
    play = Play()
    play.round()
    play.answers[-1].set_exception(NotLeader("LogManager:a", "it is stopping"))
    assert play.round() == []
    play.now_s += IDLE_S
    assert play.round() == [(0, 1)]


def test_a_manager_that_has_lost_what_it_had_is_shown_everything_after_a_pause() -> None:
    play = Play()
    play.round()
    play.kept(1)
    play.becomes(snapshot_of(topic("t")))
    assert play.round() == [(1, 2)]
    play.kept(0, epoch=-1)
    assert play.round() == []
    play.now_s += IDLE_S
    assert play.round() == [(0, 2)]


def test_a_manager_that_has_not_taken_an_update_gets_it_again_after_a_pause() -> None:
    play = Play()
    play.round()
    play.kept(1)
    play.becomes(snapshot_of(topic("t")))
    assert play.round() == [(1, 2)]
    play.kept(1)
    assert play.round() == []
    play.now_s += IDLE_S
    assert play.round() == [(1, 2)]


def test_a_node_that_has_left_is_shown_nothing() -> None:
    play = Play()
    play.round()
    play.kept(1)
    play.becomes(replace(snapshot_of(topic("t")), observed={}))
    assert play.round() == []


def test_one_that_obeys_a_newer_controller_is_not_asked_all_the_time() -> None:
    play = Play()
    play.round()
    play.kept(9, epoch=EPOCH + 1)
    assert play.round() == []
    play.now_s += IDLE_S
    assert play.round() == [(0, 1)]


def test_another_life_of_a_manager_is_shown_everything_at_once() -> None:
    play = Play()
    play.round()
    play.kept(1)
    play.round()
    reborn = replace(report("a"), life="2")
    play.becomes(replace(play.snapshot, observed={"a": obeying(reborn, EPOCH)}))
    assert play.round() == [(0, 1)]


def test_a_controller_with_another_epoch_counts_anew() -> None:
    play = Play()
    play.round()
    play.kept(1)
    play.round()
    later = snapshot_of(ControllerRecord(epoch=EPOCH + 1, node="a"))
    play.becomes(later)
    assert play.round() == [(0, 1)]
    assert play.sent[-1][1].controller_epoch == EPOCH + 1


def test_who_is_not_in_charge_shows_nothing() -> None:
    play = Play()
    play.becomes(replace(play.snapshot, is_in_charge=False))
    assert play.round() == []


def test_a_manager_of_which_no_handle_is_known_is_looked_for_again() -> None:
    play = Play()
    play.is_there = False
    assert play.round() == []
    play.is_there = True
    assert play.round() == [(0, 1)]
