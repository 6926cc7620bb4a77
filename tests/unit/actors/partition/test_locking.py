"""A lock that another process is about to give up is waited for, but not for ever."""

import pytest

from raylog.actors.partition.locking import LOCK_PATIENCE_S, lock_patiently
from raylog.storage.errors import LogLocked


class Time:
    """Passes by sleeping only."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Lock:
    """Free at the try of this number."""

    def __init__(self, free_at: int) -> None:
        self.free_at, self.tries = free_at, 0

    def take(self) -> str:
        self.tries += 1
        if self.tries < self.free_at:
            raise LogLocked("/disk/t-0")
        return "the lock"


def test_a_lock_that_is_free_is_taken_without_waiting() -> None:
    time = Time()
    assert lock_patiently(Lock(free_at=1).take, time.clock, time.sleep) == "the lock"
    assert time.now_s == 100.0


def test_a_lock_that_is_free_at_the_third_try_is_taken() -> None:
    time, lock = Time(), Lock(free_at=3)
    assert lock_patiently(lock.take, time.clock, time.sleep) == "the lock"
    assert lock.tries == 3


def test_a_lock_that_stays_locked_is_an_error_after_the_patience() -> None:
    time = Time()
    with pytest.raises(LogLocked):
        lock_patiently(Lock(free_at=1_000_000).take, time.clock, time.sleep)
    assert LOCK_PATIENCE_S <= time.now_s - 100.0 < LOCK_PATIENCE_S + 1


def test_another_error_is_raised_at_once() -> None:
    def take() -> None:
        raise OSError("no such folder")

    time = Time()
    with pytest.raises(OSError, match="no such folder"):
        lock_patiently(take, time.clock, time.sleep)
    assert time.now_s == 100.0
