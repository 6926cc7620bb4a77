"""Which logs may be compacted now; how fast it goes."""

import pytest

from raylog.storage.cleaner.states import CleaningStates
from raylog.storage.cleaner.throttle import Throttle
from raylog.storage.errors import CleaningAborted


@pytest.fixture
def states() -> CleaningStates[str]:
    return CleaningStates()


def test_a_log_that_is_being_compacted_is_not_taken_twice(states: CleaningStates[str]) -> None:
    states.begin("a")
    assert states.free(["a", "b"]) == ["b"]
    states.check("a")
    assert states.end("a"), "the round counts"
    assert states.free(["a", "b"]) == ["a", "b"]


def test_an_abort_ends_the_round_that_runs_and_its_end_does_not_count(
    states: CleaningStates[str],
) -> None:
    states.begin("a")
    states.abort("a")
    assert not states.is_quiet("a")
    with pytest.raises(CleaningAborted, match="a: the compaction was aborted"):
        states.check("a")
    assert not states.end("a")
    assert states.is_quiet("a")
    assert states.free(["a"]) == ["a"]


def test_an_abort_of_what_does_not_run_is_nothing(states: CleaningStates[str]) -> None:
    states.abort("a")
    states.begin("a")
    states.check("a")
    assert states.end("a")


def test_to_begin_with_what_is_not_free_is_a_mistake(states: CleaningStates[str]) -> None:
    states.begin("a")
    with pytest.raises(AssertionError, match="not free"):
        states.begin("a")


def test_an_uncleanable_log_is_left_alone_until_it_is_gone(states: CleaningStates[str]) -> None:
    states.begin("a")
    states.end("a")
    states.mark_uncleanable("a", "offset 5: CRC-32C")
    assert states.free(["a", "b"]) == ["b"]
    assert states.uncleanable == {"a": "offset 5: CRC-32C"}
    states.keep(["a", "b"])
    assert states.free(["a", "b"]) == ["b"]
    states.keep(["b"])
    assert states.free(["a", "b"]) == ["a", "b"], "a new log of that name"


class Time:
    """Goes on only where somebody sleeps or turns it."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


def test_whoever_is_too_fast_sleeps_until_the_rate_is_kept() -> None:
    time = Time()
    throttle = Throttle(1000, lambda: time.now, time.sleep)
    throttle(500)
    assert time.slept == 0, "too early to tell"
    time.now += 0.4
    throttle(500)
    assert time.slept == pytest.approx(0.6)
    time.now += 0.4
    throttle(100)
    assert time.slept == pytest.approx(0.6), (
        "slower than allowed: no sleep, and no credit for later"
    )
    time.now += 0.4
    throttle(1000)
    assert time.slept == pytest.approx(1.2)


def test_without_a_limit_nobody_sleeps() -> None:
    time = Time()
    throttle = Throttle(1.7976931348623157e308, lambda: time.now, time.sleep)
    for _ in range(10):
        time.now += 1
        throttle(10**12)
    assert time.slept == 0
