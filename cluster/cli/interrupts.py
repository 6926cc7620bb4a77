"""Ctrl-C and SIGTERM end a command where it says so: never between two steps that belong together.

::

    with Interrupts() as interrupts:
        while True:
            with interrupts.welcome():
                records = consumer.poll()
            out.writelines(records)

A second signal ends it at once, wherever it is: what it waits for may never come.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

import typer

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def told_if_interrupted(what: str) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the command with a line that says what has become of its request."""
    with Interrupts() as interrupts:
        try:
            with interrupts.welcome():
                yield
        except KeyboardInterrupt:
            typer.echo(f"interrupted: {what}", err=True)
            raise typer.Exit(interrupts.exit_status or 128 + signal.SIGINT) from None


def end_on_sigterm() -> None:
    """From now on SIGTERM ends the command without a word, where nothing else is said of it.

    Ray's own handler prints where each thread is.
    """

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)


class Interrupts:
    """The signals of a command; for the main thread."""

    def __init__(self) -> None:
        self.number = 0  # of the signal that came last
        self._is_pending = self._is_welcome = False
        self._before: dict[int, Any] = {}

    @property
    def exit_status(self) -> int:
        """What a shell expects of a command that a signal has ended; 0 without any."""
        return 128 + self.number if self.number else 0

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._came) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def welcome(self) -> Iterator[None]:
        """A signal raises KeyboardInterrupt in here; so does one that came since the last."""
        self._is_welcome = True
        try:
            if self._is_pending:
                self._interrupt()
            yield
        finally:
            self._is_welcome = False

    def _came(self, number: int, _: object) -> None:
        was_pending, self._is_pending = self._is_pending, True
        self.number = number
        if self._is_welcome or was_pending:
            self._interrupt()

    def _interrupt(self) -> None:
        self._is_pending = False
        raise KeyboardInterrupt
