"""The Controller on Ray: see ``controller_link.py``."""

from concurrent.futures import Future

from raylog.actors.control import Report
from raylog.actors.errors import BrokerNotFound
from raylog.actors.runtime.stubs import ReportsStub, find_reports

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
        """A producer id that nobody has had."""
        return self._controller().allocate_producer_id().get(ID_TIMEOUT_S)

    def _controller(self) -> ReportsStub:
        controller = find_reports(self._namespace)
        if controller is None:
            raise BrokerNotFound(self._namespace)
        return controller
