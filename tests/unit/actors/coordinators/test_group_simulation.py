"""Worlds by seed: see ``group_world.py``."""

from collections import Counter

import pytest

from tests.unit.actors.coordinators.group_world import World

STEPS = 400


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_whatever_happens_a_group_keeps_its_promises_and_comes_to_rest(first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + 10):
        world = World(seed)
        world.run(STEPS)
        counts.update(world.counts)
    for situation in ("assigned", "committed", "coordinator restarted", "asked again", "code 25"):
        assert counts[situation], f"{situation} was not met"
