"""The shell around the Controller's machine: its parts, put together. No Ray of its own.

::

    MetadataLog --> Desired --> ControllerMachine
                                      |
    node watch, reports, users --> ControllerLoop --+--> Appender --> MetadataLog
                                                    +--> Managers --> LogManagers of the nodes
                                                    +--> Pushing --> their copies of the metadata
                                                    +--> Showing --> what they tell to clients
                                                    +--> Requests --> users

Who reaches the LogManagers, and how, is an argument (``managers.LogManagers``).
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from raylog.actors.errors import RequestTimedOut
from raylog.actors.events import warn
from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.appending import Appender
from raylog.cluster.controller.asking import Commanding, Lookups
from raylog.cluster.controller.describe import Snapshot, has_settled, is_settled
from raylog.cluster.controller.events import Event, NodesSeen, Started, Stopping
from raylog.cluster.controller.instructions import (
    Answer,
    Append,
    AskWhether,
    MakeReserve,
    MakeSnapshot,
    Push,
    Tell,
)
from raylog.cluster.controller.loop import ControllerLoop
from raylog.cluster.controller.machine import ControllerMachine
from raylog.cluster.controller.managers import LogManagers, Managers, is_passing
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.pushing import CopyHolders, Pushing
from raylog.cluster.controller.requests import Requests
from raylog.cluster.controller.showing import Showing, Shown
from raylog.storage.clock import Clock, SteadyClock
from raylog.storage.errors import LogLocked, RaylogError, StorageError
from raylog.storage.state.controller_epoch import NO_EPOCH

logger = logging.getLogger(__name__)

# How long the first start waits for its own node's LogManager.
OWN_NODE_TIMEOUT_S = 120.0
# How long an end waits for each of the threads: none does anything long.
END_TIMEOUT_S = 10.0
_INTERVAL_S = 0.05


class Reach(LogManagers, CopyHolders, Shown, Protocol):
    """The way to the nodes' LogManagers, and to their copies of the metadata."""


class ControllerShell:
    """A Controller from the opening of its metadata on. ``put`` takes events in any thread."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataLog,
        node: str,
        managers: Reach,
        *,
        failed: Callable[[BaseException], None],
        others: Callable[[], Mapping[str, str]] = dict,
        clock: Clock | None = None,
        least_epoch: int = NO_EPOCH,
        accepts_older: bool = False,
        is_controller: Callable[[AskWhether], bool] = lambda question: True,
        start: str = "",
    ) -> None:
        """``node``: the key of the node that this runs on. ``failed``: as of the loop.

        ``is_controller``: as of ``Pushing``.

        ``others``: Ray's id of a node that takes no part -> why. ``clock``: that of the machine.
        ``least_epoch``, ``accepts_older``: as of ``Started``. ``config``, ``start``: as of the
        machine.
        """
        self._metadata, self._node = metadata, node
        self.cluster_id = metadata.desired.cluster_id
        self._requests = Requests()
        machine = ControllerMachine(config, start)
        self._showing = Showing(self._snapshot, managers)
        self._loop = ControllerLoop(
            machine, self, clock or SteadyClock(), failed, self._showing.look
        )
        self._appender = Appender(metadata, self._loop.put)
        self._is_appender_ended = False
        self._managers = Managers(managers, self._loop.put)
        self._pushing = Pushing(self.cluster_id, metadata, managers, is_controller, self._loop.put)
        problems = self._managers.problems
        self.lookups = Lookups(self._snapshot, problems, others)
        self.commanding = Commanding(self._loop.put, self._requests, self._snapshot, problems)
        # Look-ups are right from the first moment on.
        started = Started(
            desired=metadata.desired,
            node=node,
            folder=metadata.folder,
            least_epoch=least_epoch,
            accepts_older=accepts_older,
            history=metadata.history(),
            directory_id=metadata.directory_id,
            damaged_snapshots=metadata.damaged_snapshots(),
        )
        self._loop.handle(started)

    def _snapshot(self) -> Snapshot:
        return self._loop.snapshot

    def put(self, event: Event) -> None:
        """Something happened. Returns at once."""
        if isinstance(event, NodesSeen):
            self._managers.keep(event.nodes)
            self._pushing.keep(event.nodes)
        self._loop.put(event)

    # -- the machine's hands -----------------------------------------------------------------------

    def append(self, append: Append) -> None:
        self._appender.do(append)

    def make_reserve(self) -> None:
        self._appender.do(MakeReserve())

    def make_snapshot(self, wanted: MakeSnapshot) -> None:
        self._appender.do(wanted)

    def start_manager(self, node: str) -> None:
        self._managers.start_manager(node)

    def tell(self, tell: Tell) -> None:
        self._managers.tell(tell.node, tell.orders)

    def push(self, push: Push) -> None:
        self._pushing.push(push)

    def ask_whether(self, question: AskWhether) -> None:
        self._pushing.ask_whether(question)

    def answer(self, answer: Answer) -> None:
        self._requests.answer(answer)

    # -- beginning and ending ----------------------------------------------------------------------

    def begin(self) -> None:
        """Start the threads."""
        self._appender.start()
        self._loop.start()
        self._showing.start()

    def wait_until_serving(self, is_stopped_after: Callable[[float], bool]) -> None:
        """Return when the nodes that are there obey, and have opened what they have.

        Raises why this node's log dirs cannot be used, or why the metadata has failed. Of the other
        nodes, ``nodes()`` tells. ``is_stopped_after``: waits so many seconds; True where nobody
        wants it any more.
        """
        end_s = time.monotonic() + OWN_NODE_TIMEOUT_S
        while not is_stopped_after(_INTERVAL_S):
            snapshot, problems = self._loop.snapshot, self._managers.problems()
            if snapshot.failure is not None:
                raise snapshot.failure
            own = snapshot.observed.get(self._node)
            epoch = snapshot.desired.controller_epoch
            # It may have been stopped by an operator.
            is_settled_here = own is not None and (own.obeys(epoch) or own.is_ended)
            if not is_settled_here or not snapshot.is_in_charge:
                self._raise_own_problem(problems.get(self._node), time.monotonic() > end_s)
            elif has_settled(snapshot, problems) and is_settled(snapshot, problems):
                return

    def _raise_own_problem(self, problem: RaylogError | None, is_over: bool) -> None:
        """Raise what keeps this node from taking part, if that does not pass by itself."""
        if problem is not None and (is_over or not is_passing(problem)):
            raise problem
        if is_over:
            raise RequestTimedOut("the LogManager of this node", round(OWN_NODE_TIMEOUT_S * 1000))

    def write_stopped(self, timeout_s: float) -> bool:
        """Write down that the broker is stopped in order, before ``leave``.

        All copies in sync have that when it is true. False where one of them does not answer in
        time, or nothing can be written: the next start has to find them all.
        """
        if not self._loop.snapshot.is_in_charge:
            return False
        self._loop.put(Stopping())
        end_s = time.monotonic() + timeout_s
        while not self._loop.snapshot.desired.is_all_stopped:
            if self._loop.snapshot.failure is not None or time.monotonic() > end_s:
                return False
            time.sleep(_INTERVAL_S)
        return True

    def leave(self, why: RaylogError, *, is_end: bool = True) -> None:
        """Say nothing to anybody any more; all who wait get ``why``.

        ``is_end``: of the broker; else another Controller follows.
        """
        self._loop.stop(END_TIMEOUT_S)
        self._showing.stop(END_TIMEOUT_S)
        self._requests.close(why)
        self._managers.stop(END_TIMEOUT_S, is_end=is_end)
        self._pushing.stop(END_TIMEOUT_S)
        self._is_appender_ended = self._appender.stop(END_TIMEOUT_S)

    def make_room(self) -> None:
        """After ``leave``: where the disk is full, make room for the checkpoints of the nodes.

        Without them the next start would have to recover logs that were closed in order.
        """
        if self._is_appender_ended:
            self._metadata.make_room()

    def close(self) -> bool:
        """Close the metadata, after ``leave``; returns whether that was in order.

        Where the thread that writes it does not end, it stays locked.
        """
        if not self._appender.stop(END_TIMEOUT_S):
            return False
        try:
            self._metadata.close()
        except StorageError as error:  # every append was fsynced: nothing is lost
            warn(logger, "metadata-not-closed", why=error)
            return False
        return True


# The pauses between two tries to open the metadata.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0


def again_until_open(
    open_once: Callable[[], object],
    tell: Callable[[Exception], None],
    is_stopped_after: Callable[[float], bool],
) -> None:
    """Try to open the metadata until it succeeds, or nobody wants it any more.

    A disk may be mounted late, or another process at its end have the lock. ``tell``: is told each
    new reason. ``is_stopped_after``: as of ``ControllerShell.wait_until_serving``.
    """
    pause_s, told = FIRST_PAUSE_S, ""
    while True:
        try:
            open_once()
            return
        except Exception as error:
            if str(error) != told:
                told = str(error)
                tell(error)
        if is_stopped_after(pause_s):
            return
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def why_not_open(error: Exception, node: str) -> str:
    """Why a Controller on this node cannot open the metadata, and what to do where it waits.

    Its node's LogManager has the lock of a copy, and gives it up when it is asked to: where it
    hangs, nobody but a person can end that. ``node``: as users see it.
    """
    why = f"its Controller on node {node} cannot open the metadata, and tries again: {error}"
    if not isinstance(error, LogLocked):
        return why
    return (
        f"{why}. If that process is a `ray::` actor that hangs, and no disk hangs there, end it on "
        "that machine (`kill -9` and its pid): Ray starts it again, and nothing is lost"
    )
