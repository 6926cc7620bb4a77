"""Work that may wait for Ray, one piece after another, in a thread of its own.

A look for an actor asks Ray's head, and waits for its answer. A client's calls wait for nothing, so
they leave such work here. The thread is a daemon: it never keeps a process from ending.
"""

import logging
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

logger = logging.getLogger(__name__)

Work = Callable[[], None]


class Background:
    """One thread, begun with the first piece of work."""

    def __init__(self) -> None:
        self.start_anew()

    def start_anew(self) -> None:
        """Forget everything: this process was forked off, and the thread is its parent's."""
        self._lock = threading.Lock()
        self._works: SimpleQueue[Work] = SimpleQueue()
        self._is_running = False

    def run(self, work: Work) -> None:
        """Do it as soon as what came before is done."""
        self._works.put(work)
        with self._lock:
            if not self._is_running:
                threading.Thread(target=self._run, name="raylog-lookups", daemon=True).start()
                self._is_running = True  # not where no thread could be started

    def _run(self) -> None:
        while True:
            work = self._works.get()
            try:
                work()
            except Exception:  # a fault of ours: the next piece must not suffer for it
                logger.exception("a lookup failed in a way that nobody expected")


BACKGROUND: Final = Background()  # the process's
# A process that is forked off has none of its parent's threads.
os.register_at_fork(after_in_child=BACKGROUND.start_anew)
