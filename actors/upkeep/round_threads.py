"""The threads of an upkeep actor: they sleep until a round is ordered. Knows no Ray."""

import logging
import threading
from collections.abc import Callable

from raylog.actors.events import warn

logger = logging.getLogger(__name__)


class RoundThreads:
    """Threads that do ``turn`` again and again, while it returns True; then each one waits.

    ``wake`` has every one that waits begin, and every other one go on once more after it has ended.
    A turn that raises ends the thread's part in the round: the next round tries again.
    """

    def __init__(self, turn: Callable[[], bool], name: str) -> None:
        self._turn, self._name = turn, name
        self._changed = threading.Condition()
        self._round = 0

    def start(self, threads: int) -> None:
        """Start so many threads, which live as long as the process."""
        for number in range(threads):
            name = f"{self._name}-{number}"
            threading.Thread(target=self._work_for_ever, name=name, daemon=True).start()

    def wake(self) -> None:
        """A round begins; returns at once."""
        with self._changed:
            self._round += 1
            self._changed.notify_all()

    def _work_for_ever(self) -> None:
        seen = 0
        while True:
            with self._changed:
                while self._round == seen:
                    self._changed.wait()
                seen = self._round
            self._work()

    def _work(self) -> None:
        try:
            while self._turn():
                pass
        except Exception:
            # A LogManager that is away, or an error of Ray's own.
            warn(logger, f"{self._name}-failed", trace=True)
