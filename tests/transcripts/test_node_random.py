"""A node's machine in a world where anything may happen, by seed: it keeps what it promises."""

from collections import Counter

import pytest

from tests.transcripts.node_world import DIRS, World

SEEDS, STEPS = 200, 250


def run(seed: int) -> World:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.heal()
    return world


def check_as_ordered(world: World) -> None:
    """The report says what was ordered, and the world is so."""
    assert world.report is not None
    shown = {
        (log.log, log.directory_id, log.state, log.config_version)
        for log in world.report.logs
        if log.topic_id is not None
    }
    ordered = {
        (log, wanted.directory_id, "serving", wanted.version)
        for log, wanted in world.wanted.items()
    }
    assert shown == ordered
    actors = {(actor.log, actor.directory_id) for actor in world.actors.values()}
    assert actors == {(log, wanted.directory_id) for log, wanted in world.wanted.items()}
    assert all(not world.disks[name].copies for name in DIRS)
    assert {dir.state for dir in world.report.dirs} == {"online"}


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_whatever_happens_what_was_ordered_is_so_in_the_end(first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + 50):
        try:
            world = run(seed)
            check_as_ordered(world)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        counts.update(world.counts)
    situations = "StartLog Adopt Doom DropCopy WriteIdentity ReadDir KillActor moved upkeep hanging"
    assert [name for name in situations.split() if counts[name] < 10] == []
