"""The nemesis's schedule is a function of the seed, and leaves nodes enough to go on."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.nodes import ACTOR_TITLE
from tests.soak.__main__ import SHORT_MINUTES, SHORT_SEED
from tests.soak.nemesis import CALM, WEIGHTS, digest, schedule

SEEDS = st.integers(0, 2**32)


@given(SEEDS)
@settings(deadline=None)
def test_one_seed_has_one_schedule(seed: int) -> None:
    assert schedule(seed, 300) == schedule(seed, 300)
    assert digest(schedule(seed, 300)) != digest(schedule(seed + 1, 300))


@given(SEEDS)
@settings(deadline=None)
def test_a_longer_run_begins_as_the_shorter(seed: int) -> None:
    short = schedule(seed, 60)
    assert schedule(seed, 600)[: len(short)] == short
    assert all(fault.at_s < 60 for fault in short)


@given(SEEDS)
@settings(deadline=None)
def test_every_kind_of_fault_comes_within_a_minute(seed: int) -> None:
    assert {fault.kind for fault in schedule(seed, 60)} - {CALM} == set(WEIGHTS)


def test_every_kind_of_fault_comes_in_the_short_run() -> None:
    assert {fault.kind for fault in schedule(SHORT_SEED, SHORT_MINUTES * 60)} - {CALM} == set(
        WEIGHTS
    )


@given(SEEDS)
@settings(deadline=None)
def test_there_is_a_calm_twice_a_minute(seed: int) -> None:
    planned = schedule(seed, 300)
    assert [fault.at_s for fault in planned] == sorted(fault.at_s for fault in planned)
    assert [fault.at_s for fault in planned if fault.kind == CALM][:8] == [
        30.0 * n for n in range(1, 9)
    ]


@given(SEEDS)
@settings(deadline=None)
def test_one_node_is_away_at_a_time(seed: int) -> None:
    killed = [fault for fault in schedule(seed, 1200) if fault.kind == "kill-node"]
    assert len(killed) > 5
    for fault, following in pairwise(killed):
        assert following.at_s > fault.at_s + fault.for_s


@pytest.mark.parametrize(
    ("title", "actor"),
    [
        ("ray::LogManagerImpl", "LogManager"),
        ("ray::Log:fsynced-1:LogActorImpl.append", "LogActor"),
        ("ray::ControllerImpl.create_topic", "Controller"),
        ("ray::IDLE", None),
    ],
)
def test_an_actor_is_known_by_its_process_title(title: str, actor: str | None) -> None:
    found = ACTOR_TITLE.match(title)
    assert (found[1] if found else None) == actor
