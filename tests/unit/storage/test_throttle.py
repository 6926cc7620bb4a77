"""How fast compaction and moves go."""

import pytest

from raylog.storage.throttle import Throttle


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
