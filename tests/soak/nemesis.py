"""Carries a schedule out: kills, stops and starts processes and nodes, fills and loses disks, and
has nodes stopped and drained by command."""

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.harness.nodes import HEAD, ActorProcess, Nodes, send_signal
from tests.soak.cluster import OTHERS
from tests.soak.disks import SmallDisk, put_back, take_away
from tests.soak.history import DRAIN, RETURN, START, STOP, UNDRAIN, Fault, Writer
from tests.soak.mending import Mender
from tests.soak.node_orders import NodeOrders
from tests.soak.old_metadata import OldMetadata, newest_metadata
from tests.soak.outage import Outage
from tests.soak.schedule import CALM, KILL_HEAD, PAIRS, Planned
from tests.soak.workers import Workers

VICTIMS = {
    "kill-log": ("LogActor",),
    "kill-manager": ("LogManager",),
    "kill-controller": ("Controller",),
    "kill-helper": ("CompactionActor", "RetentionActor"),
    "pause-log": ("LogActor",),
    "pause-manager": ("LogManager",),
    "pause-controller": ("Controller",),
    "lose-metadata": ("Controller",),
    "old-metadata": ("Controller",),
}
PEACE_S = 2.0
# Second halves of faults.
RESUME, KILL_SECOND, MAKE_ROOM, PUT_BACK = "resume", "kill-second", "make-room", "put-back"
# They come to nothing when Ray has ended.
OF_PROCESSES = (RESUME, KILL_SECOND, RETURN)
# How often it is looked whether a raylet has ended by itself.
LOOK_S = 0.5


class Later(NamedTuple):
    """The second half of a fault: who was stopped goes on, who was away comes back."""

    at: float  # of the monotonic clock
    what: str
    whom: str
    do: Callable[[], object]


class Nemesis:
    """Carries a schedule out; in the main thread, since Ray starts nodes nowhere else."""

    def __init__(
        self,
        nodes: Nodes,
        workers: Workers,
        planned: list[Planned],
        writer: Writer,
        *,
        small_disks: Mapping[str, SmallDisk],
        mender: Mender,
        orders: NodeOrders,
        old_metadata: OldMetadata,
        are_in_sync: Callable[[], bool],
        have_all_copies_all: Callable[[], bool],
        outage: Outage,
    ) -> None:
        """``small_disks``: those that can be filled, by the name of their node.

        ``are_in_sync``: whether all copies of the metadata are, by the Controller's word.
        ``have_all_copies_all``: the same by what lies on the disks, and none is being left out.
        """
        self._nodes, self._workers, self._planned, self._writer = nodes, workers, planned, writer
        self._small_disks, self._mender, self._orders = small_disks, mender, orders
        self._old_metadata, self._are_in_sync = old_metadata, are_in_sync
        self._have_all_copies_all, self._outage = have_all_copies_all, outage
        self.missed: Counter[str] = Counter()
        self._later: list[Later] = []
        self._strikes: dict[str, Callable[[Planned], str | None]] = {
            "kill-client": lambda fault: self._workers.kill_one(fault.pick),
            "kill-pair": self._kill_pair,
            "kill-node": self._kill_node,
            KILL_HEAD: self._kill_head,
            "pause-raylet": self._pause_raylet,
            "stop-node": partial(self._order, STOP, START),
            "drain-node": partial(self._order, DRAIN, UNDRAIN),
            "fill-disk": self._fill_disk,
            "lose-disk": self._lose_disk,
            "lose-metadata": self._lose_metadata,
            "old-metadata": self._put_old_metadata,
        }

    def run(self, stop: threading.Event, heal: Callable[[], None]) -> None:
        """Returns when the schedule is over or ``stop`` is set; what was stopped goes on, who was
        away is back.

        ``heal`` returns when all partitions serve. The schedule's clock stands still meanwhile, and
        while Ray is started again.
        """
        self.keep_metadata()
        started = time.monotonic()
        for fault in self._planned:
            while (left := started + fault.at_s - time.monotonic()) > 0 and not stop.is_set():
                soonest = min((one.at for one in self._later), default=started + fault.at_s)
                stop.wait(max(0.0, min(left, soonest - time.monotonic(), LOOK_S)))
                self._do_due(time.monotonic())
                self.revive()
            if stop.is_set():
                break
            since = time.monotonic()
            if fault.kind == CALM:
                self._do_due(float("inf"))
                heal()
                self.keep_metadata()
                stop.wait(PEACE_S)
            else:
                self._strike(fault)
            if fault.kind in (CALM, KILL_HEAD):
                started += time.monotonic() - since
        self._do_due(float("inf"))

    def revive(self) -> None:
        """Start the nodes again whose raylets have ended by themselves: they were called dead."""
        for name in OTHERS:
            if name in self._nodes.names and self._nodes.has_ended(name):
                self._nodes.forget(name)  # who looks its id up from now on finds none
                self._tell(RETURN, f"{name}, whose raylet has ended")
                self._nodes.add(name)

    def _strike(self, fault: Planned) -> None:
        """Each fault says whom it met; None for nobody."""
        strike = self._strikes.get(fault.kind, self._strike_actor)
        victim = strike(fault)
        if victim is None:
            self.missed[fault.kind] += 1
        else:
            self._tell(fault.kind, victim)

    # -- processes ---------------------------------------------------------------------------------

    def _strike_actor(self, fault: Planned) -> str | None:
        victim = pick_victim(self._nodes.actors(), fault.kind, fault.pick)
        if victim is None:
            return None
        if fault.kind.startswith("pause-"):
            self._pause(victim.pid, fault.for_s, _named(victim))
        else:
            send_signal(victim.pid, signal.SIGKILL)
        return _named(victim)

    def _pause(self, pid: int, for_s: float, name: str) -> None:
        send_signal(pid, signal.SIGSTOP)
        self._plan(for_s, RESUME, name, partial(send_signal, pid, signal.SIGCONT))

    def _kill_pair(self, fault: Planned) -> str | None:
        pair = pick_pair(self._nodes.actors(), fault.pick)
        if pair is None:
            return None
        first, second = pair
        send_signal(first.pid, signal.SIGKILL)
        kill = partial(send_signal, second.pid, signal.SIGKILL)
        self._plan(fault.for_s, KILL_SECOND, _named(second), kill)
        return f"{_named(first)}, {_named(second)}"

    # -- nodes -------------------------------------------------------------------------------------

    def _kill_node(self, fault: Planned) -> str | None:
        name = pick(OTHERS, fault.pick)
        if name not in self._nodes.names or self._orders.waiting:
            return None
        self._nodes.kill(name)
        self._plan(fault.for_s, RETURN, name, partial(self._nodes.add, name))
        return name

    def _kill_head(self, fault: Planned) -> str | None:
        """All nodes are lost with it, and come back under other ids; disks stay as they are.

        Nothing is changed before it while somebody stands still, who may be the Controller. Nobody
        while an older copy of the metadata lies in the newest one's place, and no Controller has
        begun since: only Ray knows then that nothing is missed, and Ray is killed, too.
        """
        if self._old_metadata.is_used and not self._are_in_sync():
            return None
        can_change = all(later.what != RESUME for later in self._later)
        self._later = [later for later in self._later if later.what not in OF_PROCESSES]

        def tell_returns() -> None:
            for name in (HEAD, *OTHERS):
                self._tell(RETURN, name)

        changed = self._outage.strike(
            fault.pick,
            fault.for_s,
            can_change=can_change,
            returns=tell_returns,
            meanwhile=lambda: self._do_due(time.monotonic()),
        )
        return f"{HEAD}, behind {changed}"

    def _pause_raylet(self, fault: Planned) -> str | None:
        """If it was called dead meanwhile it ends when it goes on, and ``revive`` finds it."""
        name = pick(OTHERS, fault.pick)
        if not self._is_up(name) or self._orders.waiting:
            return None
        self._pause(self._nodes.pids(name)[0], fault.for_s, f"raylet of {name}")
        return name

    def _order(self, order: str, undo: str, fault: Planned) -> str | None:
        """Nobody while an earlier order has not taken effect, or while a node is away."""
        if not self._is_whole():
            return None
        name = pick((HEAD, *OTHERS), fault.pick)
        self._orders.give(order, name)
        self._plan(fault.for_s, f"{undo}-node", name, partial(self._orders.give, undo, name))
        return name

    def _is_up(self, name: str) -> bool:
        return name in self._nodes.names and not self._nodes.has_ended(name)

    # -- disks -------------------------------------------------------------------------------------

    def _fill_disk(self, fault: Planned) -> str | None:
        if not self._small_disks:
            return None
        name = pick(sorted(self._small_disks), fault.pick)
        disk = self._small_disks[name]
        disk.fill()
        self._plan(fault.for_s, MAKE_ROOM, name, disk.make_room)
        return name

    def _lose_disk(self, fault: Planned) -> str | None:
        """Not of the head, whose disk may be full: its dirs are for ``_lose_metadata``."""
        log_dirs = [Path(path) for name in OTHERS for path in self._nodes.log_dirs(name)]
        return self._lose(log_dirs[int(fault.pick * len(log_dirs))], fault.for_s)

    def _lose(self, log_dir: Path, for_s: float) -> str:
        take_away(log_dir)

        def come_back() -> None:
            put_back(log_dir)
            self._mender.watch(log_dir)

        name = f"{log_dir.parent.name}/{log_dir.name}"
        self._plan(for_s, PUT_BACK, name, come_back)
        return name

    # -- the metadata ------------------------------------------------------------------------------

    def _lose_metadata(self, fault: Planned) -> str | None:
        """Nobody while anything else is away, or any copy is not in sync.

        The Controller writes on to the files that it has open. Who is killed finds them no more.
        """
        controller = pick_victim(self._nodes.actors(), fault.kind, 0.0)
        is_quiet = all(later.what == MAKE_ROOM for later in self._later)
        if controller is None or not is_quiet or not self._is_whole() or not self._are_in_sync():
            return None
        folder = newest_metadata(self._nodes.log_dirs(controller.node))
        if folder is None:
            return None
        name = self._lose(folder.parent, fault.for_s)
        if fault.pick < 0.5:
            return name
        send_signal(controller.pid, signal.SIGKILL)
        return f"{name}, {_named(controller)}"

    def _is_whole(self) -> bool:
        """Whether all nodes are up and obey what was ordered of them."""
        return not self._orders.waiting and all(self._is_up(name) for name in OTHERS)

    def keep_metadata(self) -> None:
        """A copy of now, unless there is an older one that was not put in place yet.

        Nor while one lies there, and no Controller has begun since: see ``_kill_head``.
        """
        old = self._old_metadata
        controller = pick_victim(self._nodes.actors(), "old-metadata", 0.0)
        is_over = old.is_used and self._are_in_sync()
        if controller is not None and (is_over or not old.is_there):
            old.take(self._nodes.log_dirs(controller.node))

    def _put_old_metadata(self, fault: Planned) -> str | None:
        """Nobody while anything is away, since its copy of the metadata may be missed then."""
        controller = pick_victim(self._nodes.actors(), fault.kind, fault.pick)
        if self._later or controller is None or not self._is_whole():
            return None
        if not self._old_metadata.is_there:
            return None
        place = self._old_metadata.put_in_place(
            self._nodes.log_dirs(controller.node),
            stop=partial(send_signal, controller.pid, signal.SIGSTOP),
            have_others_all=self._have_all_copies_all,
            go_on=partial(send_signal, controller.pid, signal.SIGCONT),
            end=partial(send_signal, controller.pid, signal.SIGKILL),
        )
        return None if place is None else f"{place}, {_named(controller)}"

    # -- afterwards --------------------------------------------------------------------------------

    def _plan(self, for_s: float, what: str, whom: str, do: Callable[[], object]) -> None:
        self._later.append(Later(time.monotonic() + for_s, what, whom, do))

    def _do_due(self, now: float) -> None:
        """The second halves of faults that are due."""
        due = [later for later in self._later if later.at <= now]
        self._later = [later for later in self._later if later.at > now]
        for later in due:
            self._tell(later.what, later.whom)
            later.do()

    def _tell(self, kind: str, target: str) -> None:
        self._writer.write(Fault(kind, target, time.monotonic_ns()))


def pick(among: Sequence[str], chance: float) -> str:
    """``chance``: of [0, 1)."""
    return among[int(chance * len(among))]


def pick_victim(actors: Sequence[ActorProcess], kind: str, pick: float) -> ActorProcess | None:
    """Whom a fault of this kind meets; None if no such actor lives. ``pick``: of [0, 1)."""
    victims = [one for one in actors if one.actor in VICTIMS[kind]]
    return victims[int(pick * len(victims))] if victims else None


def pick_pair(
    actors: Sequence[ActorProcess], pick: float
) -> tuple[ActorProcess, ActorProcess] | None:
    """Two actors of different kinds; None if there are none of the kinds that ``pick`` chose."""
    number, among = divmod(pick * len(PAIRS), 1)
    first, second = (pick_victim(actors, kind, among) for kind in PAIRS[int(number)])
    return None if first is None or second is None else (first, second)


def _named(victim: ActorProcess) -> str:
    return f"{victim.actor} {victim.pid} on {victim.node}"
