"""Who kills what, and when. The schedule is a function of the seed; whom a fault meets depends on
who lives then.

===============  ==================================================================================
kill-log         SIGKILL to a LogActor
kill-manager     SIGKILL to a LogManager
kill-controller  SIGKILL to the Controller
kill-helper      SIGKILL to a CompactionActor or RetentionActor
pause-log        SIGSTOP to a LogActor, SIGCONT after a moment
kill-client      SIGKILL to a process that sends or reads; another takes its place
kill-node        a whole node but the head, which comes back with its dirs after a moment
===============  ==================================================================================
"""

import hashlib
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from tests.harness.nodes import ActorProcess, Nodes, send_signal
from tests.soak.cluster import OTHERS
from tests.soak.history import Fault, Writer
from tests.soak.workers import Workers

WEIGHTS = {
    "kill-log": 6,
    "kill-manager": 2,
    "kill-controller": 2,
    "kill-helper": 2,
    "pause-log": 3,
    "kill-client": 1,
    "kill-node": 2,
}
VICTIMS = {
    "kill-log": ("LogActor",),
    "kill-manager": ("LogManager",),
    "kill-controller": ("Controller",),
    "kill-helper": ("CompactionActor", "RetentionActor"),
    "pause-log": ("LogActor",),
}
GAP_S = (1.0, 8.0)
LASTS_S = {"pause-log": (0.5, 6.0), "kill-node": (2.0, 12.0)}
# A machine that is too slow for the schedule would never serve: now and then all must heal before
# it goes on.
CALM = "calm"
CALM_EVERY_S = 30.0
PEACE_S = 2.0
# A node that has come back is left alone so long.
NODE_REST_S = 8.0


class Planned(NamedTuple):
    """One fault. ``pick`` of [0, 1) chooses among those that live; ``for_s`` is how long it
    lasts."""

    at_s: float
    kind: str
    pick: float
    for_s: float


def schedule(seed: int, duration_s: float) -> list[Planned]:
    """The faults of a run, in order; the first of each kind early, so that a short run has met them
    all. One node at most is away at a time."""
    rng = random.Random(seed)
    calm_s = CALM_EVERY_S
    early = rng.sample(list(WEIGHTS), len(WEIGHTS))
    planned: list[Planned] = []
    at_s, all_are_up_s = 0.0, 0.0
    while (at_s := round(at_s + rng.uniform(*GAP_S), 3)) < duration_s:
        if at_s > calm_s:
            planned.append(Planned(calm_s, CALM, 0.0, 0.0))
            calm_s += CALM_EVERY_S
        kind = early.pop() if early else rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if kind == "kill-node" and at_s < all_are_up_s:
            kind = "kill-log"
        for_s = rng.uniform(*LASTS_S.get(kind, (0.0, 0.0)))
        if kind == "kill-node":
            all_are_up_s = at_s + for_s + NODE_REST_S
        planned.append(Planned(at_s, kind, rng.random(), round(for_s, 3)))
    return planned


def digest(planned: list[Planned]) -> str:
    """Tells two schedules apart."""
    return hashlib.sha256(repr(planned).encode()).hexdigest()[:12]


class Nemesis:
    """Carries a schedule out; in the main thread, since Ray starts nodes nowhere else."""

    def __init__(
        self, nodes: Nodes, workers: Workers, planned: list[Planned], writer: Writer
    ) -> None:
        self._nodes, self._workers, self._planned, self._writer = nodes, workers, planned, writer
        self.missed: Counter[str] = Counter()
        self._undo: list[tuple[float, str, str | int]] = []  # when, what, to whom

    def run(self, stop: threading.Event, heal: Callable[[], None]) -> None:
        """Returns when the schedule is over or ``stop`` is set; what was stopped goes on, who was
        away is back.

        ``heal`` returns when all partitions serve. The schedule's clock stands still meanwhile.
        """
        started = time.monotonic()
        for fault in self._planned:
            while (left := started + fault.at_s - time.monotonic()) > 0 and not stop.is_set():
                soonest = min((when for when, *_ in self._undo), default=started + fault.at_s)
                stop.wait(max(0.0, min(left, soonest - time.monotonic())))
                self._undo_due(time.monotonic())
            if stop.is_set():
                break
            if fault.kind == CALM:
                self._undo_due(float("inf"))
                calm_since = time.monotonic()
                heal()
                stop.wait(PEACE_S)
                started += time.monotonic() - calm_since
            else:
                self._strike(fault)
        self._undo_due(float("inf"))

    def _strike(self, fault: Planned) -> None:
        if fault.kind == "kill-node":
            self._kill_node(fault)
            return
        if fault.kind == "kill-client":
            self._tell(fault.kind, self._workers.kill_one(fault.pick))
            return
        victims = [one for one in self._nodes.actors() if _is(one, fault.kind)]
        if not victims:
            self.missed[fault.kind] += 1
            return
        victim = victims[int(fault.pick * len(victims))]
        self._tell(fault.kind, f"{victim.actor} {victim.pid} on {victim.node}")
        if fault.kind == "pause-log":
            send_signal(victim.pid, signal.SIGSTOP)
            self._undo.append((time.monotonic() + fault.for_s, "resume", victim.pid))
        else:
            send_signal(victim.pid, signal.SIGKILL)

    def _kill_node(self, fault: Planned) -> None:
        name = OTHERS[int(fault.pick * len(OTHERS))]
        if name not in self._nodes.names:
            self.missed[fault.kind] += 1
            return
        self._tell(fault.kind, name)
        self._nodes.kill(name)
        self._undo.append((time.monotonic() + fault.for_s, "return", name))

    def _undo_due(self, now: float) -> None:
        due = [entry for entry in self._undo if entry[0] <= now]
        self._undo = [entry for entry in self._undo if entry[0] > now]
        for _, what, whom in due:
            self._writer.write(Fault(what, str(whom), time.monotonic_ns()))
            if isinstance(whom, int):
                send_signal(whom, signal.SIGCONT)
            else:
                self._nodes.add(whom)

    def _tell(self, kind: str, target: str) -> None:
        self._writer.write(Fault(kind, target, time.monotonic_ns()))


def _is(process: ActorProcess, kind: str) -> bool:
    return process.actor in VICTIMS[kind]
