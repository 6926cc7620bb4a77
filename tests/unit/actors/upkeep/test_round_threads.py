"""The threads of an upkeep actor sleep until a round is ordered."""

import threading

import pytest

from raylog.actors.upkeep.round_threads import RoundThreads
from raylog.storage.testing.waiting import wait_for


def test_a_round_goes_on_while_there_is_work_and_the_next_begins_when_it_is_ordered() -> None:
    turns: list[int] = []
    left = [2]

    def turn() -> bool:
        turns.append(left[0])
        left[0] -= 1
        return left[0] > 0

    workers = RoundThreads(turn, "test")
    workers.start(1)
    workers.wake()
    wait_for(lambda: turns == [2, 1], 10, "the work is done")
    left[0] = 1
    workers.wake()
    wait_for(lambda: turns == [2, 1, 1], 10, "the second round is done")


def test_a_round_that_is_ordered_while_one_runs_follows_it_once() -> None:
    goes_on = threading.Event()
    turns: list[int] = []

    def turn() -> bool:
        turns.append(1)
        assert goes_on.wait(10)
        return False

    workers = RoundThreads(turn, "test")
    workers.start(1)
    workers.wake()
    wait_for(lambda: len(turns) == 1, 10, "the first round runs")
    for _ in range(3):
        workers.wake()
    goes_on.set()
    wait_for(lambda: len(turns) == 2, 10, "the second round runs")


def test_a_turn_that_fails_ends_its_round_and_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    turns: list[int] = []

    def turn() -> bool:
        turns.append(1)
        raise RuntimeError("the GCS does not answer")

    workers = RoundThreads(turn, "test")
    workers.start(1)
    workers.wake()
    wait_for(lambda: len(turns) == 1, 10, "a round was tried")
    workers.wake()
    wait_for(lambda: len(turns) == 2, 10, "the next one was tried")
