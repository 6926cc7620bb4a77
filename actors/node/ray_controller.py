"""The Controller on Ray: see ``controller_link.py``."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from raylog.actors.control import Report
from raylog.actors.errors import BrokerNotFound, NotLeader
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.names import CONTROLLER
from raylog.actors.runtime.stubs import ReportsStub, find_reports
from raylog.storage.errors import RaylogError

Answer = TypeVar("Answer")

# For a producer id: a client waits, and asks again.
ID_TIMEOUT_S = 10.0


class RayController:
    """The Controller of a namespace. Raises BrokerNotFound while it is away."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def report(self, report: Report, timeout_s: float, given_up: "Future[None]") -> None:
        self._controller().report(report).get_unless(given_up, timeout_s)

    def refused(self, node: str, controller_epoch: int, timeout_s: float) -> None:
        self._controller().refused(node, controller_epoch).get(timeout_s)

    def allocate_producer_id(self) -> int:
        """A producer id that nobody has had. Raises RaylogError, whatever happens there."""
        return self._asked(lambda controller: controller.allocate_producer_id(), ID_TIMEOUT_S)

    def answer_command(self, frame: bytes, timeout_s: float) -> bytes:
        """The frame that answers one. Raises RaylogError, whatever happens there."""
        return self._asked(lambda controller: controller.answer_command(frame), timeout_s)

    def answer_lookup(self, frame: bytes, timeout_s: float) -> bytes:
        """The frame that answers one. Raises RaylogError, whatever happens there."""
        return self._asked(lambda controller: controller.answer_lookup(frame), timeout_s)

    def _asked(self, ask: Callable[[ReportsStub], Call[Answer]], timeout_s: float) -> Answer:
        try:
            return ask(self._controller()).get(timeout_s)
        except RaylogError:
            raise
        except Exception as error:  # a bug there, or an older release without the method
            raise NotLeader(CONTROLLER, repr(error)) from error

    def _controller(self) -> ReportsStub:
        controller = find_reports(self._namespace)
        if controller is None:
            raise BrokerNotFound(self._namespace)
        return controller
