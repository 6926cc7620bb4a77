"""A signal ends a command where it is welcome, and nowhere else; a second one ends it anywhere."""

import signal

import pytest
import typer

from raylog.cluster.cli.interrupts import Interrupts, end_on_sigterm, told_if_interrupted

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


@BOTH
def test_a_command_that_changes_something_says_what_may_have_become_of_it(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, told_if_interrupted("it may be done all the same"):
        signal.raise_signal(number)
    assert ended.value.exit_code == 128 + number
    assert capsys.readouterr().err == "interrupted: it may be done all the same\n"


def test_other_commands_end_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        end_on_sigterm()
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 128 + signal.SIGTERM
    assert capsys.readouterr() == ("", "")


def test_afterwards_signals_are_as_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts() as interrupts:
        assert interrupts.exit_status == 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
