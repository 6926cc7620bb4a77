"""Which Controller of this process answers calls: none, one, or none any more. Knows no Ray.

::

    none --take_over--> one --retire--> none --take_over--> one ...
      |                  |                |
      +------------------+----------------+--stop--> none any more

Who retires a Controller ends it in a thread of its own, while others may already stop the broker:
``stop`` waits for that end, so that the metadata is closed when it returns.
"""

import threading
from copy import copy
from typing import Generic, Protocol, TypeVar

from raylog.actors.errors import NotLeader
from raylog.storage.errors import RaylogError

# How long a stop waits for the end of a Controller that has failed: of three threads, and the log.
RETIRED_TIMEOUT_S = 45.0


class Ending(Protocol):
    """A Controller, as far as it is ended; ``starting.RunningController``."""

    def leave(self, why: RaylogError, *, is_end: bool = True) -> None: ...
    def make_room(self) -> None: ...
    def close(self) -> bool: ...


Controller = TypeVar("Controller", bound=Ending)


class Current(Generic[Controller]):
    """See the module's head. ``stopped``: set when the broker begins to stop."""

    def __init__(self, why_not: NotLeader) -> None:
        """``why_not``: what a call gets while there is no Controller."""
        self.stopped = threading.Event()
        self._changed = threading.Condition()
        self._controller: Controller | None = None
        self._why_not = why_not
        self._retiring = 0
        self._are_retired_in_order = True

    def get(self) -> Controller:
        """The Controller. Raises NotLeader while there is none."""
        with self._changed:
            if self._controller is None:
                raise copy(self._why_not)  # itself, it would keep the frames of every call
            return self._controller

    def explain(self, why_not: NotLeader) -> None:
        """Why there is no Controller; nothing while the broker stops."""
        with self._changed:
            if not self.stopped.is_set():
                self._why_not = why_not

    def take_over(self, controller: Controller) -> None:
        """This one answers from now on. Where the broker stops, it is closed, and NotLeader."""
        with self._changed:
            if not self.stopped.is_set():
                self._controller = controller
                return
            self._retiring += 1
        self._ended(is_in_order=controller.close())
        raise copy(self._why_not)

    def retire(self, why_not: NotLeader, why: RaylogError) -> bool:
        """End the Controller, if there is one; another follows. Returns whether one may.

        ``why``: what those get whose request is under way. False where its end was not in order,
        and where the broker stops.
        """
        with self._changed:
            if self.stopped.is_set():
                return False
            self._why_not = why_not
            controller, self._controller = self._controller, None
            self._retiring += 1
        is_in_order = False
        try:
            if controller is not None:
                controller.leave(why, is_end=False)
            is_in_order = controller is None or controller.close()  # False where the disk hangs
        finally:
            self._ended(is_in_order=is_in_order)
        return is_in_order

    def _ended(self, *, is_in_order: bool) -> None:
        with self._changed:
            self._retiring -= 1
            self._are_retired_in_order &= is_in_order
            self._changed.notify_all()

    def stop(self, why_not: NotLeader, timeout_s: float = RETIRED_TIMEOUT_S) -> Controller | None:
        """The broker stops: every call gets ``why_not``. The Controller says nothing any more.

        Returns it, for its caller to close. One that is being retired is waited for.
        """
        with self._changed:
            self._why_not = why_not
            self.stopped.set()
            controller, self._controller = self._controller, None
            self._changed.wait_for(lambda: not self._retiring, timeout_s)
        if controller is not None:
            controller.leave(why_not)
            controller.make_room()
        return controller

    def is_retired(self) -> bool:
        """Whether each Controller that was retired has ended, in order."""
        with self._changed:
            return not self._retiring and self._are_retired_in_order
