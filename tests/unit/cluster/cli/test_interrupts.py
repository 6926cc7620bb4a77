"""A signal ends a command where it is welcome, and nowhere else; a second one ends it anywhere."""

import signal

import pytest

from raylog.cluster.cli.interrupts import Interrupts

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@BOTH
def test_a_signal_raises_where_it_is_welcome(number: int) -> None:
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.welcome():
            signal.raise_signal(number)
        assert interrupts.exit_status == 128 + number


@BOTH
def test_elsewhere_it_waits_until_it_is_welcome(number: int) -> None:
    steps = []
    with Interrupts() as interrupts:
        signal.raise_signal(number)
        steps.append("whole")
        with pytest.raises(KeyboardInterrupt), interrupts.welcome():
            steps.append("not reached")
        with interrupts.welcome():
            steps.append("once")
    assert steps == ["whole", "once"]


def test_a_second_one_raises_anywhere() -> None:
    with Interrupts():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_afterwards_signals_are_as_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts() as interrupts:
        assert interrupts.exit_status == 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
