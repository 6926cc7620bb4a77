"""What is done to the broker, and when: a function of the seed. Whom a fault meets depends on who
lives then.

================  ==================================================================================
kill-log          SIGKILL to a LogActor
kill-manager      SIGKILL to a LogManager
kill-controller   SIGKILL to the Controller
kill-helper       SIGKILL to a CompactionActor or RetentionActor
kill-pair         SIGKILL to two actors of different kinds, within a second
pause-log         SIGSTOP to a LogActor, SIGCONT after a moment
pause-manager     SIGSTOP to a LogManager, SIGCONT after up to two minutes
pause-controller  SIGSTOP to the Controller, SIGCONT after up to two minutes
pause-raylet      SIGSTOP to the raylet of a node but the head, SIGCONT after up to two minutes. Ray
                  calls the node dead meanwhile, though its actors run. When the raylet goes on, it
                  ends, and the node is started again
kill-client       SIGKILL to a process that sends or reads; another takes its place
kill-node         a whole node but the head, which comes back with its dirs after a moment
kill-head         all processes of the head, which Ray does not outlive; then all of Ray ends, and
                  is started again over the same disks
stop-node         a node is stopped by command (``raylog node stop``), and started again by command
                  after a moment; also the head
drain-node        a node gets no new partition for a moment (``raylog node drain``, ``--undo``)
fill-disk         a node's disk has no room for up to half a minute
old-metadata      an older copy of the metadata replaces that on the Controller's node, and the
                  Controller is killed, as when an old disk comes back. Directly behind a calm, when
                  the copies of the other nodes have everything
lose-disk         a log dir is gone, and a file in its place, for up to half a minute; then it is
                  put back, and an operator says so. Not of the head
lose-metadata     the same with the log dir of the Controller's metadata, while the copies of other
                  nodes are in sync; half of the times the Controller is killed, too
================  ==================================================================================
"""

import hashlib
import random
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

WEIGHTS = {
    "kill-log": 6,
    "kill-manager": 2,
    "kill-controller": 2,
    "kill-helper": 2,
    "kill-pair": 3,
    "pause-log": 3,
    "pause-manager": 2,
    "pause-controller": 2,
    "pause-raylet": 1,
    "kill-client": 1,
    "kill-node": 2,
    "stop-node": 2,
    "drain-node": 1,
    "fill-disk": 2,
    "lose-disk": 2,
    "lose-metadata": 2,
    "old-metadata": 6,  # of the few that come directly behind a calm
}
# Of which kinds the two of a kill-pair are.
PAIRS = tuple(combinations(("kill-log", "kill-manager", "kill-controller", "kill-helper"), 2))
# Ray does not outlive its head. So this is rare: two to four times in 20 minutes, and never in the
# first minute.
KILL_HEAD = "kill-head"
FIRST_HEAD_S, NEXT_HEAD_S = (60.0, 240.0), (300.0, 540.0)
KINDS = (*WEIGHTS, KILL_HEAD)
GAP_S = (1.0, 8.0)
LONGEST_PAUSE_S = 120.0
# How long a fault lasts; of a kill-pair: when the second is killed.
LASTS_S = {
    "kill-pair": (0.0, 1.0),
    "pause-log": (0.5, 6.0),
    "pause-manager": (1.0, LONGEST_PAUSE_S),
    "pause-controller": (1.0, LONGEST_PAUSE_S),
    "pause-raylet": (10.0, LONGEST_PAUSE_S),  # longer than it takes to call it dead
    "kill-node": (2.0, 12.0),
    KILL_HEAD: (0.0, 6.0),  # what is not on the head lives on so long
    "stop-node": (2.0, 12.0),
    "drain-node": (3.0, 12.0),
    "fill-disk": (2.0, 30.0),
    "lose-disk": (2.0, 30.0),
    "lose-metadata": (2.0, 30.0),
}
# They may last longer than it takes until the next calm.
LONG = (
    "pause-manager",
    "pause-controller",
    "pause-raylet",
    "fill-disk",
    "lose-disk",
    "lose-metadata",
)
# One of each group at a time. Of the first group: one node at most is away, or gets no partitions.
ALONE = (
    ("kill-node", "pause-raylet", "stop-node", "drain-node"),
    ("fill-disk",),
    ("lose-disk", "lose-metadata"),
)
# A machine that is too slow for the schedule would never serve: now and then all must heal before
# it goes on.
CALM = "calm"
CALM_EVERY_S = 30.0
# These need that nothing is away, and come first behind a calm.
BEHIND_CALM = ("old-metadata",)
# What was away and has come back is left alone so long by its group.
REST_S = 8.0


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

    A calm waits for the end of long faults, and none begins while a calm is due. Nothing but what
    belongs there comes directly behind it. ``longest_pause_s``: of these.
    """
    rng = random.Random(seed)
    head_kills = list(_head_kills(seed, duration_s))
    early = sorted(rng.sample(list(WEIGHTS), len(WEIGHTS)), key=BEHIND_CALM.__contains__)
    planned: list[Planned] = []
    at_s, calm_s, all_over_s = 0.0, CALM_EVERY_S, 0.0
    free_s = dict.fromkeys(ALONE, 0.0)
    while (at_s := round(at_s + rng.uniform(*GAP_S), 3)) < duration_s:
        if at_s > max(calm_s, all_over_s):
            planned.append(Planned(max(calm_s, all_over_s), CALM, 0.0, 0.0))
            calm_s = planned[-1].at_s + CALM_EVERY_S
        elif head_kills and head_kills[0].at_s < at_s and planned[-1].kind != CALM:
            kill = head_kills.pop(0)
            planned.append(kill._replace(at_s=max(kill.at_s, planned[-1].at_s)))
        excluded = [kind for group in ALONE if at_s < free_s[group] for kind in group]
        if at_s > calm_s:
            excluded.extend(LONG)
        if not planned or planned[-1].kind != CALM:
            excluded.extend(BEHIND_CALM)
        kind = _choose(rng, early, excluded)
        for_s = _duration_s(rng, kind, longest_pause_s)
        for group in ALONE:
            if kind in group:
                free_s[group] = at_s + for_s + REST_S
        if kind in LONG:
            all_over_s = max(all_over_s, round(at_s + for_s, 3))
        planned.append(Planned(at_s, kind, rng.random(), for_s))
    return planned


def _head_kills(seed: int, duration_s: float) -> Iterator[Planned]:
    """Of their own generator, and rare by time: they take long."""
    rng = random.Random(f"{seed}/{KILL_HEAD}")
    at_s = round(rng.uniform(*FIRST_HEAD_S), 3)
    while at_s < duration_s:
        yield Planned(at_s, KILL_HEAD, rng.random(), round(rng.uniform(*LASTS_S[KILL_HEAD]), 3))
        at_s = round(at_s + rng.uniform(*NEXT_HEAD_S), 3)


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
    if kind in LONG:
        longest_s = max(shortest_s, min(longest_s, longest_pause_s))
    return round(rng.uniform(shortest_s, longest_s), 3)


def digest(planned: list[Planned]) -> str:
    """Tells two schedules apart."""
    return hashlib.sha256(repr(planned).encode()).hexdigest()[:12]
