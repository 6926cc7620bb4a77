"""The process of a LogActor: what it knows of itself, and how it ends."""

import logging
import os
import sys
import threading
from collections.abc import Callable

from raylog.actors.events import set_up_logs
from raylog.actors.runtime.handles import end_own_actor
from raylog.actors.runtime.nodes import is_restarted, own_host, own_name, own_node, own_node_id

# With the default of 5 ms, one busy thread makes every small call take 10 ms.
SWITCH_INTERVAL_S = 0.0005


class RayProcess:
    """See ``Process`` in ``living.py``."""

    def __init__(self) -> None:
        set_up_logs(own_name())
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self.node_id, self.host = own_node_id(), own_host()
        self.is_restart = is_restarted()

    def check_alone(self) -> None:
        own_node().check_alone()

    def spawn(self, name: str, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name=name, daemon=True).start()

    def end_actor(self) -> None:
        end_own_actor()

    def end(self) -> None:
        logging.shutdown()
        os._exit(1)
