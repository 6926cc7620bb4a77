"""Tells the Controller: reports, and refusals of orders. One call is under way at a time.

Of several reports the newest is enough, so only that is kept. It is sent again each RETRY_S until
the Controller has taken it: it may be away, and is told when it is back, at once where it has made
itself known. The answer of the one before may be late by seconds, and is not waited for then. A
refusal is sent once.
"""

import logging
import threading
from concurrent.futures import Future
from typing import Protocol

from raylog.actors.control import Report
from raylog.actors.events import warn
from raylog.storage.errors import RaylogError

logger = logging.getLogger(__name__)

TELL_TIMEOUT_S = 10.0
RETRY_S = 1.0
# A LogManager that ends does not wait for a Controller that is away: the next one sees it is gone.
LAST_TRIES = 5


class ControllerPort(Protocol):
    """The Controller of the namespace, found by its name for each call. Raises RaylogError."""

    def report(self, report: Report, timeout_s: float, given_up: "Future[None]") -> None:
        """``given_up``: when it ends nobody needs the answer any more, and this returns."""

    def refused(self, node: str, controller_epoch: int, timeout_s: float) -> None: ...


class ControllerLink:
    """See the module's head."""

    def __init__(self, port: ControllerPort, node: str, *, retry_s: float = RETRY_S) -> None:
        """``node``: its key."""
        self._port = port
        self._node = node
        self._retry_s = retry_s
        self._changed = threading.Condition()
        self._report: Report | None = None  # that the Controller has not taken yet
        self._refused_epoch: int | None = None
        self._is_stopped = False
        self._is_hurried = False  # the Controller has made itself known since the last call began
        self._given_up: Future[None] = Future()  # ends the wait for the answer to a report
        self._is_silent = False  # the last report was not taken, so that the next is not logged
        threading.Thread(target=self._run, name="controller-link", daemon=True).start()

    def send(self, report: Report) -> None:
        """Make the report known, in the place of the one that waits."""
        with self._changed:
            self._report = report
            self._changed.notify_all()

    def refuse(self, controller_epoch: int) -> None:
        """Tell a Controller that the node has seen this higher epoch."""
        with self._changed:
            self._refused_epoch = controller_epoch
            self._changed.notify_all()

    def hurry(self) -> None:
        """The Controller is there: tell it at once what it has not taken."""
        with self._changed:
            self._is_hurried = True
            if not self._given_up.done():
                self._given_up.set_result(None)
            self._changed.notify_all()

    def stop(self) -> None:
        """Tell nothing more."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def say_last(self, report: Report) -> None:
        """After ``stop``: tell this report, for a while; nothing is wrong where nobody takes it."""
        for _ in range(LAST_TRIES):
            try:
                self._port.report(report, TELL_TIMEOUT_S, Future())
                return
            except Exception as error:  # whatever Ray raises
                warn(logger, "last-report-not-taken", number=report.number, why=error)
            with self._changed:
                self._changed.wait(self._retry_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work)
                if self._is_stopped:
                    return
                report = self._report
                refused_epoch, self._refused_epoch = self._refused_epoch, None
            if refused_epoch is not None:
                self._tell_refusal(refused_epoch)
            if report is not None:
                self._tell_report(report)

    def _has_work(self) -> bool:
        return self._is_stopped or self._report is not None or self._refused_epoch is not None

    def _tell_refusal(self, controller_epoch: int) -> None:
        try:
            self._port.refused(self._node, controller_epoch, TELL_TIMEOUT_S)
        except Exception as error:  # whatever Ray raises: it orders again, and is refused again
            warn(logger, "refusal-not-told", controller_epoch=controller_epoch, why=error)

    def _tell_report(self, report: Report) -> None:
        with self._changed:
            self._is_hurried, self._given_up = False, Future()
        try:
            self._port.report(report, TELL_TIMEOUT_S, self._given_up)
        except Exception as error:  # whatever Ray raises: it is told again
            if not self._is_silent or not isinstance(error, RaylogError):
                warn(logger, "report-not-taken", number=report.number, why=error)
            self._is_silent = True
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopped or self._is_hurried, self._retry_s)
            return
        self._is_silent = False
        with self._changed:
            if self._report is report and not self._is_hurried:
                self._report = None
