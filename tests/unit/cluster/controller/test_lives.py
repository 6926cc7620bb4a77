"""The pauses between the lives of a Controller whose metadata fails."""

from collections.abc import Callable

import pytest

from raylog.cluster.controller.lives import GOOD_LIFE_S, LONGEST_PAUSE_S, Lives, begin_again


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def lived(lives: Lives, clock: Clock, seconds: float) -> float:
    lives.begin()
    clock.now_s += seconds
    pause_s = lives.end()
    clock.now_s += pause_s
    return pause_s


def test_on_a_disk_that_fails_for_good_the_pauses_grow_up_to_a_minute() -> None:
    clock = Clock()
    lives = Lives(clock)
    pauses = [lived(lives, clock, 0.1) for _ in range(8)]
    assert pauses == [3.0, 6.0, 12.0, 24.0, 48.0, LONGEST_PAUSE_S, LONGEST_PAUSE_S, 60.0]


def test_after_a_life_that_went_well_the_first_pause_is_short_again() -> None:
    clock = Clock()
    lives = Lives(clock)
    for _ in range(3):
        lived(lives, clock, 0.1)
    assert lived(lives, clock, GOOD_LIFE_S - 1) == 24.0
    assert lived(lives, clock, GOOD_LIFE_S) == 3.0
    assert lived(lives, clock, 0.1) == 6.0


def hangs() -> bool:
    return False


def is_broken() -> bool:
    raise RuntimeError("can't start new thread")


def what_follows(end: Callable[[], bool]) -> list[str]:
    done: list[str] = []
    begin_again(end, lambda: done.append("begins"), lambda: done.append("process ends"))
    return done


def test_the_next_life_begins_where_the_last_one_has_ended_in_order() -> None:
    assert what_follows(lambda: True) == ["begins"]


@pytest.mark.parametrize("end", [hangs, is_broken])
def test_a_life_that_cannot_be_ended_takes_its_process_with_it(end: Callable[[], bool]) -> None:
    """Else it would say for ever that it begins again."""
    assert what_follows(end) == ["process ends"]
