"""The nemesis's schedule is a function of the seed, and leaves nodes enough to go on."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.nodes import ACTOR_TITLE, ActorProcess
from tests.soak.__main__ import SHORT_MINUTES, SHORT_PAUSE_S, SHORT_SEED
from tests.soak.nemesis import pick_pair, pick_victim
from tests.soak.schedule import (
    ALONE,
    BEHIND_CALM,
    CALM,
    KILL_HEAD,
    KINDS,
    LASTS_S,
    LONG,
    LONGEST_PAUSE_S,
    PAIRS,
    Planned,
    digest,
    schedule,
)

SEEDS = st.integers(0, 2**32)
PICKS = st.floats(0, 1, exclude_max=True)
ACTORS = [
    ActorProcess("head", 1, "Controller"),
    ActorProcess("head", 2, "LogManager"),
    ActorProcess("head", 3, "LogActor"),
    ActorProcess("one", 4, "LogManager"),
    ActorProcess("one", 5, "RetentionActor"),
    ActorProcess("one", 6, "LogActor"),
]


def short_schedule() -> list[Planned]:
    return schedule(SHORT_SEED, SHORT_MINUTES * 60, longest_pause_s=SHORT_PAUSE_S)


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
def test_every_kind_of_fault_comes_within_five_minutes(seed: int) -> None:
    assert {fault.kind for fault in schedule(seed, 300)} - {CALM} == set(KINDS)


def test_every_kind_of_fault_but_the_loss_of_the_head_comes_in_the_short_run() -> None:
    assert {fault.kind for fault in short_schedule()} - {CALM} == set(KINDS) - {KILL_HEAD}


@given(SEEDS)
@settings(deadline=None)
def test_the_head_is_lost_two_to_four_times_in_twenty_minutes(seed: int) -> None:
    planned = schedule(seed, 1200)
    kills = [fault for fault in planned if fault.kind == KILL_HEAD]
    assert 2 <= len(kills) <= 4
    assert kills[0].at_s >= 60
    for kill, following in pairwise(kills):
        assert following.at_s > kill.at_s + 240
    assert not any(
        (before.kind, fault.kind) == (CALM, KILL_HEAD) for before, fault in pairwise(planned)
    )


def test_nothing_lasts_long_in_the_short_run() -> None:
    lasting = [fault for fault in short_schedule() if fault.kind in LONG]
    for fault in lasting:
        shortest_s, _ = LASTS_S[fault.kind]
        assert 0 < fault.for_s <= max(SHORT_PAUSE_S, shortest_s)


@pytest.mark.parametrize("kind", ["pause-manager", "pause-controller", "pause-raylet"])
def test_processes_stand_still_for_up_to_two_minutes(kind: str) -> None:
    assert LONGEST_PAUSE_S == 120
    pauses = [fault.for_s for fault in schedule(1, 7200) if fault.kind == kind]
    assert LONGEST_PAUSE_S - 20 < max(pauses) <= LONGEST_PAUSE_S


@given(SEEDS)
@settings(deadline=None)
def test_there_is_a_calm_each_half_minute_or_behind_the_faults_that_last_longer(seed: int) -> None:
    planned = schedule(seed, 600)
    assert [fault.at_s for fault in planned] == sorted(fault.at_s for fault in planned)
    before_s, all_run_s = 0.0, 0.0
    for fault in planned:
        if fault.kind == CALM:
            assert fault.at_s == max(before_s + 30, all_run_s)
            before_s = fault.at_s
        if fault.kind in LONG:
            all_run_s = max(all_run_s, round(fault.at_s + fault.for_s, 3))
            assert fault.at_s <= before_s + 30, "no long fault begins while a calm is due"


@given(SEEDS)
@settings(deadline=None)
def test_what_needs_all_nodes_comes_directly_behind_a_calm(seed: int) -> None:
    planned = schedule(seed, 600)
    behind = [before.kind for before, fault in pairwise(planned) if fault.kind in BEHIND_CALM]
    assert planned[0].kind not in BEHIND_CALM
    assert set(behind) == {CALM}


@pytest.mark.parametrize("group", ALONE)
@given(seed=SEEDS)
@settings(deadline=None)
def test_one_node_is_away_and_one_disk_full_or_lost_at_a_time(
    group: tuple[str, ...], seed: int
) -> None:
    struck = [fault for fault in schedule(seed, 3600) if fault.kind in group]
    assert len(struck) > 5
    for fault, following in pairwise(struck):
        assert following.at_s > fault.at_s + fault.for_s


def test_what_lasts_has_a_length() -> None:
    assert all(0 <= shortest < longest for shortest, longest in LASTS_S.values())
    assert set(LONG) <= set(LASTS_S) <= set(KINDS)


@given(PICKS)
def test_a_pair_is_two_actors_of_different_kinds(pick: float) -> None:
    pair = pick_pair(ACTORS, pick)
    assert pair is not None
    assert pair[0].actor != pair[1].actor


def test_every_two_kinds_are_paired() -> None:
    picks = [(number + 0.5) / len(PAIRS) for number in range(len(PAIRS))]
    pairs = [pick_pair(ACTORS, pick) for pick in picks]
    kinds = {frozenset(one.actor for one in pair) for pair in pairs if pair is not None}
    assert len(kinds) == len(PAIRS) == 6


@given(PICKS)
def test_where_one_of_a_pair_does_not_live_none_is_chosen(pick: float) -> None:
    assert pick_pair([one for one in ACTORS if one.actor == "LogActor"], pick) is None


@given(PICKS)
def test_a_fault_meets_one_of_its_kind_that_lives(pick: float) -> None:
    victim = pick_victim(ACTORS, "pause-manager", pick)
    assert victim is not None
    assert victim.actor == "LogManager"
    assert pick_victim([], "pause-manager", pick) is None


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
