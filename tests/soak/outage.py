"""The head is lost, and with it all of Ray: it is started again over the same disks, and then the
broker.

Without an external store Ray does not outlive its head (its GCS). So this is a loss of power, with
the difference that the page cache survives: whatever was acknowledged must be there afterwards,
whichever copy of the metadata has it::

    change, answered --> head killed --> other nodes and clients killed --> Ray, broker, clients

Something is changed directly before, so that it is in the last records of the metadata. Sometimes
an operator is too early, and starts the broker when only the head is there: that must be refused,
or end with the newest metadata all the same.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from raylog.storage.errors import RaylogError
from tests.harness.nodes import HEAD, Nodes
from tests.soak.cluster import OTHERS
from tests.soak.workers import Workers

# An operator repeats `raylog start` so long: disks that are away come back meanwhile.
PATIENCE_S = 180.0
RETRY_S = 1.0
# How often he is too early.
HASTE = 0.5


class UsesRay(Protocol):
    """Somebody in this process who uses Ray in another thread."""

    def resting(self) -> AbstractContextManager[None]:
        """It does nothing meanwhile; what it does now is over first."""


class Outage:
    """``change``: change something, and return what, when the broker has answered.

    ``start_broker``: one attempt, for this process and all in it; raises why it failed.
    """

    def __init__(
        self,
        nodes: Nodes,
        workers: Workers,
        users: Sequence[UsesRay],
        *,
        change: Callable[[float], str],
        start_broker: Callable[[], None],
    ) -> None:
        self._nodes, self._workers, self._users = nodes, workers, users
        self._change, self._start_broker = change, start_broker
        self.took_s: list[float] = []  # from each kill until the broker ran again

    def strike(
        self,
        chance: float,
        for_s: float,
        *,
        can_change: bool,
        returns: Callable[[], None],
        meanwhile: Callable[[], None],
    ) -> str:
        """All of it; returns what was changed before. ``chance``: of [0, 1).

        ``for_s``: how long the other nodes live on without the head. ``returns`` is called when all
        have ended, before they are there again; ``meanwhile`` again and again until the broker
        runs.
        """
        with ExitStack() as stack:
            for user in self._users:
                stack.enter_context(user.resting())
            changed = self._change(chance) if can_change else "nothing"
            began = time.monotonic()
            self._kill(for_s)
            returns()
            is_early = chance * 10 % 1 < HASTE  # whatever the change was
            self._start(is_early=is_early, meanwhile=meanwhile)
            self.took_s.append(time.monotonic() - began)
        self._workers.start_again()
        print(f"the broker runs again after {self.took_s[-1]:.1f} s", flush=True)
        return changed

    def _kill(self, for_s: float) -> None:
        self._workers.abandon()
        self._nodes.lose_head()
        time.sleep(for_s)
        for name in self._nodes.names:
            if name != HEAD:
                self._nodes.crash(name)
        self._workers.kill_all()
        self._nodes.end()

    def _start(self, *, is_early: bool, meanwhile: Callable[[], None]) -> None:
        self._nodes.begin()
        is_started = is_early and self._try_to_start()
        for name in OTHERS:
            self._nodes.add(name)
        deadline = time.monotonic() + PATIENCE_S
        while not is_started:
            meanwhile()
            is_started = self._try_to_start()
            if not is_started and time.monotonic() > deadline:
                raise TimeoutError(f"the broker has not started again within {PATIENCE_S:.0f} s")
            time.sleep(0 if is_started else RETRY_S)

    def _try_to_start(self) -> bool:
        try:
            self._start_broker()
        except RaylogError as error:
            print(f"start: {type(error).__name__}: {error}", flush=True)
            return False
        return True
