"""Who kills what, and when. The schedule is a function of the seed; whom a fault meets depends on
who lives then.

================  ==================================================================================
kill-log          SIGKILL to a LogActor
kill-manager      SIGKILL to a LogManager
kill-controller   SIGKILL to the Controller
kill-helper       SIGKILL to a CompactionActor or RetentionActor
kill-pair         SIGKILL to two actors of different kinds, within a second
pause-log         SIGSTOP to a LogActor, SIGCONT after a moment
pause-manager     SIGSTOP to a LogManager, SIGCONT after up to a minute
pause-controller  SIGSTOP to the Controller, SIGCONT after up to a minute
kill-client       SIGKILL to a process that sends or reads; another takes its place
kill-node         a whole node but the head, which comes back with its dirs after a moment
================  ==================================================================================
"""

import hashlib
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
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
    "kill-pair": 3,
    "pause-log": 3,
    "pause-manager": 2,
    "pause-controller": 2,
    "kill-client": 1,
    "kill-node": 2,
}
VICTIMS = {
    "kill-log": ("LogActor",),
    "kill-manager": ("LogManager",),
    "kill-controller": ("Controller",),
    "kill-helper": ("CompactionActor", "RetentionActor"),
    "pause-log": ("LogActor",),
    "pause-manager": ("LogManager",),
    "pause-controller": ("Controller",),
}
# Of which kinds the two of a kill-pair are.
PAIRS = tuple(combinations(("kill-log", "kill-manager", "kill-controller", "kill-helper"), 2))
GAP_S = (1.0, 8.0)
# How long a fault lasts; of a kill-pair: when the second is killed.
LASTS_S = {
    "kill-pair": (0.0, 1.0),
    "pause-log": (0.5, 6.0),
    "pause-manager": (1.0, 60.0),
    "pause-controller": (1.0, 60.0),
    "kill-node": (2.0, 12.0),
}
# They may last longer than it takes until the next calm.
LONG_PAUSES = ("pause-manager", "pause-controller")
LONGEST_PAUSE_S = 60.0
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


def schedule(
    seed: int, duration_s: float, *, longest_pause_s: float = LONGEST_PAUSE_S
) -> list[Planned]:
    """The faults of a run, in order; the first of each kind early, so that a short run has met them
    all.

    One node at most is away at a time. A calm waits for the end of long pauses, and no long pause
    begins while a calm is due. ``longest_pause_s``: of a LogManager or a Controller.
    """
    rng = random.Random(seed)
    early = rng.sample(list(WEIGHTS), len(WEIGHTS))
    planned: list[Planned] = []
    at_s, calm_s, all_are_up_s, all_run_s = 0.0, CALM_EVERY_S, 0.0, 0.0
    while (at_s := round(at_s + rng.uniform(*GAP_S), 3)) < duration_s:
        if at_s > max(calm_s, all_run_s):
            planned.append(Planned(max(calm_s, all_run_s), CALM, 0.0, 0.0))
            calm_s = planned[-1].at_s + CALM_EVERY_S
        excluded: list[str] = []
        if at_s < all_are_up_s:
            excluded.append("kill-node")
        if at_s > calm_s:
            excluded.extend(LONG_PAUSES)
        kind = _choose(rng, early, excluded)
        for_s = _duration_s(rng, kind, longest_pause_s)
        if kind == "kill-node":
            all_are_up_s = at_s + for_s + NODE_REST_S
        if kind in LONG_PAUSES:
            all_run_s = max(all_run_s, round(at_s + for_s, 3))
        planned.append(Planned(at_s, kind, rng.random(), for_s))
    return planned


def _choose(rng: random.Random, early: list[str], excluded: Sequence[str]) -> str:
    """The last allowed kind of ``early``, which is taken from it; any allowed kind if there is
    none."""
    for kind in reversed(early):
        if kind not in excluded:
            early.remove(kind)
            return kind
    allowed = {kind: weight for kind, weight in WEIGHTS.items() if kind not in excluded}
    return rng.choices(list(allowed), list(allowed.values()))[0]


def _duration_s(rng: random.Random, kind: str, longest_pause_s: float) -> float:
    shortest_s, longest_s = LASTS_S.get(kind, (0.0, 0.0))
    if kind in LONG_PAUSES:
        longest_s = max(shortest_s, min(longest_s, longest_pause_s))
    return round(rng.uniform(shortest_s, longest_s), 3)


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
        self._later: list[tuple[float, str, str | int]] = []  # when, what, to whom

    def run(self, stop: threading.Event, heal: Callable[[], None]) -> None:
        """Returns when the schedule is over or ``stop`` is set; what was stopped goes on, who was
        away is back.

        ``heal`` returns when all partitions serve. The schedule's clock stands still meanwhile.
        """
        started = time.monotonic()
        for fault in self._planned:
            while (left := started + fault.at_s - time.monotonic()) > 0 and not stop.is_set():
                soonest = min((when for when, *_ in self._later), default=started + fault.at_s)
                stop.wait(max(0.0, min(left, soonest - time.monotonic())))
                self._do_due(time.monotonic())
            if stop.is_set():
                break
            if fault.kind == CALM:
                self._do_due(float("inf"))
                calm_since = time.monotonic()
                heal()
                stop.wait(PEACE_S)
                started += time.monotonic() - calm_since
            else:
                self._strike(fault)
        self._do_due(float("inf"))

    def _strike(self, fault: Planned) -> None:
        if fault.kind == "kill-node":
            self._kill_node(fault)
        elif fault.kind == "kill-client":
            self._tell(fault.kind, self._workers.kill_one(fault.pick))
        elif fault.kind == "kill-pair":
            self._kill_pair(fault)
        else:
            self._strike_actor(fault)

    def _strike_actor(self, fault: Planned) -> None:
        victim = pick_victim(self._nodes.actors(), fault.kind, fault.pick)
        if victim is None:
            self.missed[fault.kind] += 1
            return
        self._tell(fault.kind, _named(victim))
        if fault.kind.startswith("pause-"):
            send_signal(victim.pid, signal.SIGSTOP)
            self._later.append((time.monotonic() + fault.for_s, "resume", victim.pid))
        else:
            send_signal(victim.pid, signal.SIGKILL)

    def _kill_pair(self, fault: Planned) -> None:
        pair = pick_pair(self._nodes.actors(), fault.pick)
        if pair is None:
            self.missed[fault.kind] += 1
            return
        first, second = pair
        self._tell(fault.kind, f"{_named(first)}, {_named(second)}")
        send_signal(first.pid, signal.SIGKILL)
        self._later.append((time.monotonic() + fault.for_s, "kill-second", second.pid))

    def _kill_node(self, fault: Planned) -> None:
        name = OTHERS[int(fault.pick * len(OTHERS))]
        if name not in self._nodes.names:
            self.missed[fault.kind] += 1
            return
        self._tell(fault.kind, name)
        self._nodes.kill(name)
        self._later.append((time.monotonic() + fault.for_s, "return", name))

    def _do_due(self, now: float) -> None:
        """The second halves of faults: who was stopped goes on, who was away comes back."""
        due = [entry for entry in self._later if entry[0] <= now]
        self._later = [entry for entry in self._later if entry[0] > now]
        for _, what, whom in due:
            self._tell(what, str(whom))
            if isinstance(whom, str):
                self._nodes.add(whom)
            else:
                send_signal(whom, signal.SIGKILL if what == "kill-second" else signal.SIGCONT)

    def _tell(self, kind: str, target: str) -> None:
        self._writer.write(Fault(kind, target, time.monotonic_ns()))


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
