"""Worlds by seed: see ``world.py``."""

from collections import Counter

import pytest

from tests.unit.actors.coordinators.transactions.world import World

STEPS = 400


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_whatever_happens_a_transaction_is_all_or_nothing_and_ends(first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + 10):
        world = World(seed)
        world.run(STEPS)
        counts.update(world.counts)
    for situation in (
        "took its id",
        "committed",
        "aborted",
        "prepared",
        "decided",
        "late",
        "coordinator restarted",
        "producer died",
        "code 90",
        "end in doubt",
    ):
        assert counts[situation], f"{situation} was not met"
