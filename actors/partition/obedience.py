"""Which orders a LogActor obeys, and what it obeys now. Knows no Ray.

========================================================  ==========================================
an order                                                  what follows
========================================================  ==========================================
of a higher ``version`` of its layout                     UnsupportedVersion is raised
for another log, or the log of another log dir            NotLeader is raised
of a lower ``controller_epoch`` than one that came before  it changes nothing
any other                                                 it is obeyed
========================================================  ==========================================
"""

import threading

from raylog.actors.errors import NotLeader, UnsupportedVersion
from raylog.actors.node_messages import VERSION, LogOrder
from raylog.actors.partition.spec import LogSpec


class Obedience:
    """See the module's head. Safe for threads; its lock is held over no other work.

    ``order``: what is obeyed now; None before a config is known that is not an old one.
    """

    def __init__(self, spec: LogSpec) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self.order: LogOrder | None = None
        self.controller_epoch = spec.controller_epoch  # the highest that was seen

    def accept(self, order: LogOrder) -> bool:
        """Whether to obey an order. Raises UnsupportedVersion, or NotLeader."""
        spec = self._spec
        if order.version > VERSION:
            raise UnsupportedVersion(str(spec.partition), order.version, VERSION)
        if order.log != spec.log:
            raise NotLeader(str(spec.partition), f"this is {spec.log}, not {order.log}")
        if order.directory_id != spec.directory_id:
            dirs = f"log dir {spec.directory_id}, not {order.directory_id}"
            raise NotLeader(str(spec.partition), f"it is served from {dirs}")
        with self._lock:
            if order.controller_epoch < self.controller_epoch:
                return False
            self.controller_epoch = order.controller_epoch
        return True

    def obeyed(self, order: LogOrder) -> None:
        """An order is obeyed from now on, unless one of a newer config is already."""
        with self._lock:
            if self.order is None or order.config_version >= self.order.config_version:
                self.order = order


def first_order(spec: LogSpec) -> LogOrder:
    """What a first start was ordered with its spec."""
    return LogOrder(
        log=spec.log,
        directory_id=spec.directory_id,
        config=spec.config,
        config_version=spec.config_version,
        controller_epoch=spec.controller_epoch,
    )
