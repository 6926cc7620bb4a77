"""Shows each LogManager the cluster, as soon as something has changed (``imaging.py``).

One thread has rounds. In each it sends what a LogManager lacks, and waits for nobody: the answer of
the last round is looked at in the next one. A LogManager that is silent is sent nothing else until
it has answered, or PATIENCE_S have passed; a new life of it has nothing, and is sent everything.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Protocol

from raylog.actors.cluster_image import ImageKept, ImageUpdate
from raylog.actors.events import warn
from raylog.cluster.controller.describe import Snapshot
from raylog.cluster.controller.imaging import Imaging

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 10.0
# What changes meanwhile is sent together.
PAUSE_S: Final = 0.05
# A round without any news: who failed to answer is asked again.
IDLE_S: Final = 1.0


class Shown(Protocol):
    """The way to the LogManagers. Waits for nothing."""

    def show(self, node: str, update: ImageUpdate) -> "Future[Any] | None":
        """Send it; the answer is an ImageKept. None where nobody is known there."""


@dataclass(slots=True, eq=False)
class _Line:
    """A LogManager's life, and the state that it has."""

    life: str
    number: int = 0
    answer: "Future[Any] | None" = None  # of what is under way
    sent_s: float = 0.0
    again_s: float = 0.0  # nothing is sent before
    is_silent: bool = False  # the last answer was an error, and that was logged


class Showing:
    """See the module's head. ``snapshot``: what the Controller knows now."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        shown: Shown,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._snapshot, self._shown, self._now_s = snapshot, shown, now_s
        self._imaging = Imaging(-1)
        self._lines: dict[str, _Line] = {}
        self._news = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="showing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def look(self) -> None:
        """Something may have changed. Returns at once."""
        self._news.set()

    def stop(self, timeout_s: float) -> None:
        """Show nothing any more."""
        self._stopped.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.round()
            except Exception:  # clients see an older image; the broker goes on
                warn(logger, "image-not-shown", trace=True)
            self._news.wait(IDLE_S)
            self._stopped.wait(PAUSE_S)
            self._news.clear()

    def round(self) -> None:
        """Send everybody what he lacks."""
        snapshot = self._snapshot()
        epoch = snapshot.desired.controller_epoch
        if not snapshot.is_in_charge:
            return
        if self._imaging.epoch != epoch:
            self._imaging = Imaging(epoch)
            self._lines.clear()
        self._imaging.look(snapshot)
        lives = {
            key: seen.report.life
            for key, seen in snapshot.observed.items()
            if seen.report is not None
        }
        self._keep(lives)
        for key, line in self._lines.items():
            self._show(key, line)

    def _keep(self, lives: Mapping[str, str]) -> None:
        """Have a line to each of these lives, and to no other."""
        for key in self._lines.keys() - lives.keys():
            del self._lines[key]
        for key, life in lives.items():
            if key not in self._lines or self._lines[key].life != life:
                self._lines[key] = _Line(life)

    def _show(self, key: str, line: _Line) -> None:
        now_s = self._now_s()
        if line.answer is not None and line.answer.done():
            self._note(key, line, line.answer)
            line.answer = None
        is_waiting = line.answer is not None and now_s < line.sent_s + PATIENCE_S
        if is_waiting or now_s < line.again_s or line.number == self._imaging.number:
            return
        line.answer = self._shown.show(key, self._imaging.update_after(line.number))
        line.sent_s = now_s
        if line.answer is not None:
            line.answer.add_done_callback(lambda _: self.look())

    def _note(self, key: str, line: _Line, answer: "Future[Any]") -> None:
        """What became of an update. One that was not taken is sent again, after a pause."""
        error = answer.exception()
        if error is None:
            kept: ImageKept = answer.result()
            is_own = kept.controller_epoch == self._imaging.epoch
            is_taken = is_own and kept.number > line.number
            line.number = kept.number if is_own else 0
        else:
            is_taken = False
            if not line.is_silent:
                warn(logger, "image-not-taken", node=key, why=error)
        line.is_silent = error is not None
        if not is_taken:
            line.again_s = self._now_s() + IDLE_S
